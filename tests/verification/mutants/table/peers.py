"""What brokers, registries and other programs choose: their text, and how long they take."""

from __future__ import annotations

from mutants.mutant import Mutant

PEERS: tuple[Mutant, ...] = (
    Mutant(
        name="peers: a name of somebody else's goes into a line to paste as it is",
        rule="docs/security.md: names in commands are quoted",
        pattern="shlex.quote(escaped($VALUE))",
        replacement="escaped($VALUE)",
        killer="tests/unit/text/test_quoting.py::test_a_pasted_command_runs_itself_and_nothing_else",
    ),
    Mutant(
        name="peers: another program's transaction gets a command of this sink's",
        rule="docs/security.md: names in commands are quoted",
        pattern="is_prefix($SINK.names.sink)",
        replacement="$SINK.names.sink",
        killer="tests/unit/cli/test_transactions.py::test_names_of_others_are_shown_as_they_print_and_get_no_command",
    ),
    Mutant(
        name="peers: an id with a line's end is not listed",
        rule="docs/faq.md: transactions list shows what is open",
        pattern='re.compile(r"(.+)\\.(?:[0-9]{1,10}|driver)", re.DOTALL)',
        replacement='re.compile(r"(.+)\\.(?:[0-9]{1,10}|driver)")',
        killer="tests/unit/commit/test_open_transactions.py::test_a_sink_is_busy_whatever_characters_its_name_has",
    ),
    Mutant(
        name="peers: control characters move the terminal's cursor",
        rule="docs/security.md: text of a peer is escaped and cut",
        pattern='$TEXT if $TEXT.isprintable() else "".join($C if $C.isprintable() else repr($C)[1:-1] for $C in $TEXT)',
        replacement="$TEXT",
        killer="tests/unit/text/test_quoting.py::test_what_does_not_print_is_shown_as_its_escape",
    ),
    Mutant(
        name="peers: a message of 8 MB fills the log",
        rule="docs/security.md: text of a peer is escaped and cut",
        pattern="len($TEXT) <= $MOST and len($SHOWN) <= $MOST",
        replacement="True",
        within="quoted",
        killer="tests/unit/text/test_quoting.py::test_it_fills_no_log",
    ),
    Mutant(
        name="peers: an error shows its facts as somebody said them",
        rule="docs/security.md: text of a peer is escaped and cut",
        pattern='$FACT if $NAME.startswith("_") or $NAME == "args" else $SHOWN($NAME, $FACT)',
        replacement="$FACT",
        killer="tests/unit/errors/test_errors.py::test_whatever_a_peer_says_a_message_is_printed_as_it_reads_and_is_short",
    ),
    Mutant(
        name="peers: an offset that no log has is believed",
        rule="nothing is lost",
        pattern="not UNKNOWN_OFFSET <= $RESULT.base_offset <= MAX_BASE_OFFSET",
        replacement="False",
        killer="tests/unit/kafka/protocol/test_requests.py::TestDecode::test_offsets_that_no_log_has",
    ),
    Mutant(
        name="peers: the check waits as long as a byte comes now and then",
        rule="docs/security.md: each step has one deadline",
        pattern="$LEFT_S = self.$UNTIL_S - time.monotonic()",
        replacement="$LEFT_S = STEP_TIMEOUT_S",
        killer="tests/unit/doctor/test_dialogue.py::test_peers_that_are_no_brokers",
    ),
    Mutant(
        name="peers: a cluster that names brokers without end is looked at for as long",
        rule="docs/security.md: each step has one deadline",
        pattern="time.monotonic() < $UNTIL_S",
        replacement="$UNTIL_S",
        within="in_time",
        killer="tests/unit/doctor/test_engine.py::"
        "test_a_cluster_that_names_brokers_without_end_is_looked_at_for_a_while",
    ),
    Mutant(
        name="peers: a token is waited for as long as a byte comes now and then",
        rule="docs/security.md: each step has one deadline",
        pattern="within(ATTEMPT_TIMEOUT_S, $ASK)",
        replacement="$ASK()",
        killer="tests/unit/kafka/test_oauth.py::test_an_endpoint_that_never_comes_to_an_end",
    ),
    Mutant(
        name="peers: iterations of SCRAM are computed for as long as they take",
        rule="docs/security.md: each step has one deadline",
        pattern="$NODE.computing_since_ms is not None",
        replacement="False",
        killer="tests/unit/kafka/net/test_network_client.py::TestManyIterations::"
        "test_that_take_longer_than_a_request_may_are_told",
    ),
    Mutant(
        name="API: a peer's text in an error makes lines of its own",
        rule="docs/security.md: text of a peer is escaped and cut",
        pattern="$ERROR.args = ($ONE_LINE(str($ERROR)),)",
        replacement="pass",
        killer="tests/unit/errors/test_failures.py::test_it_is_one_line_whatever_a_peer_says_and_a_line_of_fields_follows",
    ),
)

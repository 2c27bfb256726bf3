"""What brokers, registries and other programs choose: their text, and how long they take."""

from __future__ import annotations

from mutants.mutant import Mutant

PEERS: tuple[Mutant, ...] = (
    Mutant("peers: a name of somebody else's goes into a line to paste as it is",
           "docs/security.md: names in commands are quoted",
           "shlex.quote(escaped($VALUE))", "escaped($VALUE)",
           "tests/unit/text/test_quoting.py::test_a_pasted_command_runs_itself_and_nothing_else"),
    Mutant("peers: another program's transaction gets a command of this sink's",
           "docs/security.md: names in commands are quoted",
           "is_prefix($SINK.names.sink)", "$SINK.names.sink",
           "tests/unit/cli/test_transactions.py::test_names_of_others_are_shown_as_they_print_and_get_no_command"),
    Mutant("peers: an id with a line's end is not listed", "docs/faq.md: transactions list shows what is open",
           're.compile(r"(.+)\\.(?:[0-9]{1,10}|driver)", re.DOTALL)', 're.compile(r"(.+)\\.(?:[0-9]{1,10}|driver)")',
           "tests/unit/commit/test_open_transactions.py::test_a_sink_is_busy_whatever_characters_its_name_has"),
    Mutant("peers: control characters move the terminal's cursor",
           "docs/security.md: text of a peer is escaped and cut",
           '$TEXT if $TEXT.isprintable() else "".join($C if $C.isprintable() else repr($C)[1:-1] for $C in $TEXT)',
           "$TEXT",
           "tests/unit/text/test_quoting.py::test_what_does_not_print_is_shown_as_its_escape"),
    Mutant("peers: a message of 8 MB fills the log", "docs/security.md: text of a peer is escaped and cut",
           "len($TEXT) <= $MOST and len($SHOWN) <= $MOST", "True",
           "tests/unit/text/test_quoting.py::test_it_fills_no_log", within="quoted"),
    Mutant("peers: an error shows its facts as somebody said them",
           "docs/security.md: text of a peer is escaped and cut",
           '$FACT if $NAME.startswith("_") or $NAME == "args" else $SHOWN($NAME, $FACT)', "$FACT",
           "tests/unit/errors/test_errors.py::test_whatever_a_peer_says_a_message_is_printed_as_it_reads_and_is_short"),
    Mutant("peers: an offset that no log has is believed", "nothing is lost",
           "not UNKNOWN_OFFSET <= $RESULT.base_offset <= MAX_OFFSET", "False",
           "tests/unit/kafka/protocol/test_requests.py::TestDecode::test_offsets_that_no_log_has"),
    Mutant("peers: the check waits as long as a byte comes now and then",
           "docs/security.md: each step has one deadline",
           "$LEFT_S = self.$UNTIL_S - time.monotonic()", "$LEFT_S = STEP_TIMEOUT_S",
           "tests/unit/doctor/test_reaching.py::"
           "test_peers_that_are_no_brokers"),
    Mutant("peers: a cluster that names brokers without end is looked at for as long",
           "docs/security.md: each step has one deadline",
           "time.monotonic() < $UNTIL_S", "$UNTIL_S",
           "tests/unit/doctor/test_engine.py::"
           "test_a_cluster_that_names_brokers_without_end_is_looked_at_for_a_while", within="in_time"),
    Mutant("peers: a token is waited for as long as a byte comes now and then",
           "docs/security.md: each step has one deadline",
           "within(ATTEMPT_TIMEOUT_S, $ASK)", "$ASK()",
           "tests/unit/kafka/test_oauth.py::test_an_endpoint_that_never_comes_to_an_end"),
    Mutant("peers: iterations of SCRAM are computed for as long as they take",
           "docs/security.md: each step has one deadline",
           "$NODE.computing_since_ms is not None", "False",
           "tests/unit/kafka/net/test_network_client.py::TestManyIterations::"
           "test_that_take_longer_than_a_request_may_are_told"),
    Mutant("API: a peer's text in an error makes lines of its own",
           "docs/security.md: text of a peer is escaped and cut",
           "$MESSAGE = _one_line(str($ERROR))", "$MESSAGE = str($ERROR)",
           "tests/unit/errors/test_failures.py::test_it_is_one_line_whatever_a_peer_says_and_a_line_of_fields_follows"),
)  # fmt: skip

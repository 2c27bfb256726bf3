"""Names, versions and groups that a write leaves for the next one."""

from __future__ import annotations

from mutants.mutant import Mutant

_WORLDS = "tests/verification/model/test_exactly_once.py::test_rows_are_visible_once_whatever_happens"

VERSIONS: tuple[Mutant, ...] = (
    Mutant("batch versions: one that is visible in part counts as written",
           "docs/guarantees.md: a version of a batch write is written once",
           "$DECISION.micro_batch_id == $VERSION and not $FACTS.missing", "$DECISION.micro_batch_id == $VERSION",
           f"{_WORLDS}[versions of batch writes may time out at any time]"),
    Mutant("names: a stale answer hides that a query began under its earlier name",
           "docs/guarantees.md: one name a stream",
           'read_decision($SINK, barrier=f"name {$QUERY_ID}")', "read_decision($SINK)",
           "tests/unit/commit/test_lineage.py::"
           "test_a_coordinator_that_stood_still_does_not_hide_the_querys_decision"),
    Mutant("names: micro-batches that were written otherwise are followed as if exactly-once",
           "docs/guarantees.md: one guarantee a checkpoint",
           "if $IS_OTHER:\n    raise WrittenOtherwise($$$FACTS)", "if False:\n    raise WrittenOtherwise($$$FACTS)",
           "tests/unit/commit/test_lineage.py::"
           "test_micro_batches_that_were_written_otherwise_are_no_aborted_transaction"),
    Mutant("a failed batch write gets advice on a query's restart",
           "docs/design/decisions.md: errors know whose write it was",
           "WriteKind.STREAM if $BATCH is None else $BATCH.kind", "WriteKind.STREAM",
           "tests/unit/spark/test_exactly_once.py::test_errors_say_who_runs_the_write_again"),
    Mutant("a failed batch write is told what becomes of a stream's rows",
           "docs/design/decisions.md: errors know whose write it was",
           "_WORDS[$STATE] if $KIND is None else _OF_KIND.get(($STATE, $KIND), _WORDS[$STATE])", "_WORDS[$STATE]",
           "tests/unit/spark/test_exactly_once.py::test_errors_say_who_runs_the_write_again"),
    Mutant(
        "an abort takes the run of another query with its prefix for its own, and ends what that has open",
        "docs/design/decisions.md: an abort is of one run of one query",
        "$NAME = f\"{$PREFIX}\\n{$CHECKPOINT or ''}\"", "$NAME = $PREFIX",
        "tests/unit/spark/test_exactly_once.py::" "test_a_streams_abort_is_not_of_another_query_that_has_its_prefix"),
    Mutant("topic ids: a decision forgets them, and a replay passes rows over that went with an old topic",
           "docs/design/decisions.md: a decision lists topic ids",
           "{$TOPIC: $TOPIC_ID for $TOPIC in $TOPICS if ($TOPIC_ID := $TOPIC_IDS.get($TOPIC)) is not None}",
           "{$TOPIC: $TOPIC_ID for $TOPIC, $TOPIC_ID in ()}",
           "tests/unit/commit/test_two_phase.py::test_a_decision_says_which_topics_those_were"),
    Mutant("groups: markers are deleted beside their decision, which then tells of rows that are missing",
           "docs/guarantees.md: groups of a batch write are deleted",
           ("yield from $DELETE([$FIRST])", "yield from $DELETE([*$OTHERS, *$SLOTS])"),
           "yield from $DELETE([*$SLOTS])\nyield from $DELETE([$FIRST, *$OTHERS])",
           "tests/unit/commit/test_open_transactions.py::"
           "test_wherever_it_stops_no_rows_seem_missing_and_an_abort_takes_none_away"),
    Mutant("groups: a write whose groups cannot be deleted fails, and a job that is done runs again",
           "nothing doubles in exactly-once",
           'log.debug("groups of %s are left to expire: %s", $$$FACTS)', "raise",
           "tests/unit/spark/test_exactly_once.py::"
           "test_groups_that_cannot_be_deleted_fail_no_write_and_start_no_look_at_hosts"),
)  # fmt: skip

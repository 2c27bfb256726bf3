"""Names, versions and groups that a write leaves for the next one."""

from __future__ import annotations

from mutants.mutant import Mutant

_WORLDS = "tests/verification/model/test_exactly_once.py::test_rows_are_visible_once_whatever_happens"

VERSIONS: tuple[Mutant, ...] = (
    Mutant(
        name="batch versions: one that is visible in part counts as written",
        rule="docs/guarantees.md: a version of a batch write is written once",
        pattern="$DECISION.micro_batch_id == $VERSION and not $FACTS.missing",
        replacement="$DECISION.micro_batch_id == $VERSION",
        killer=f"{_WORLDS}[versions of batch writes may time out at any time]",
    ),
    Mutant(
        name="names: a stale answer hides that a query began under its earlier name",
        rule="docs/guarantees.md: one name a stream",
        pattern='read_decision($SINK, barrier=f"name {$QUERY_ID}")',
        replacement="read_decision($SINK)",
        killer="tests/unit/commit/test_earlier_name.py::"
        "test_a_coordinator_that_stood_still_does_not_hide_the_querys_decision",
    ),
    Mutant(
        name="names: micro-batches that were written otherwise are followed as if exactly-once",
        rule="docs/guarantees.md: one guarantee a checkpoint",
        pattern="if $IS_OTHER:\n    raise WrittenOtherwise($$$FACTS)",
        replacement="if False:\n    raise WrittenOtherwise($$$FACTS)",
        killer="tests/unit/commit/test_lineage.py::"
        "test_micro_batches_that_were_written_otherwise_are_no_aborted_transaction",
    ),
    Mutant(
        name="a failed batch write gets advice on a query's restart",
        rule="docs/design/decisions.md: errors know whose write it was",
        pattern="WriteKind.STREAM if $BATCH is None else $BATCH.kind",
        replacement="WriteKind.STREAM",
        killer="tests/unit/spark/test_exactly_once.py::test_errors_say_who_runs_the_write_again",
    ),
    Mutant(
        name="a failed batch write is told what becomes of a stream's rows",
        rule="docs/design/decisions.md: errors know whose write it was",
        pattern="_WORDS[$STATE] if $KIND is None else _OF_KIND.get(($STATE, $KIND), _WORDS[$STATE])",
        replacement="_WORDS[$STATE]",
        killer="tests/unit/spark/test_exactly_once.py::test_errors_say_who_runs_the_write_again",
    ),
    Mutant(
        name="an abort takes the run of another query with its prefix for its own, and ends what that has open",
        rule="docs/design/decisions.md: an abort is of one run of one query",
        pattern="$NAME = f\"{$PREFIX}\\n{$CHECKPOINT or ''}\"",
        replacement="$NAME = $PREFIX",
        killer="tests/unit/spark/test_exactly_once.py::"
        "test_a_streams_abort_is_not_of_another_query_that_has_its_prefix",
    ),
    Mutant(
        name="topic ids: a decision forgets them, and a replay passes rows over that went with an old topic",
        rule="docs/design/decisions.md: a decision lists topic ids",
        pattern="{$TOPIC: $TOPIC_ID for $TOPIC in $TOPICS if ($TOPIC_ID := $TOPIC_IDS.get($TOPIC)) is not None}",
        replacement="{$TOPIC: $TOPIC_ID for $TOPIC, $TOPIC_ID in ()}",
        killer="tests/unit/commit/test_two_phase.py::test_a_decision_says_which_topics_those_were",
    ),
    Mutant(
        name="groups: markers are deleted beside their decision, which then tells of rows that are missing",
        rule="docs/guarantees.md: groups of a batch write are deleted",
        pattern=(
            "yield from $DELETE([$FIRST])",
            "yield from $DELETE([*$OTHERS, *$SLOTS])",
        ),
        replacement="yield from $DELETE([*$SLOTS])\nyield from $DELETE([$FIRST, *$OTHERS])",
        killer="tests/unit/commit/test_forgetting.py::"
        "test_wherever_it_stops_no_rows_seem_missing_and_an_abort_takes_none_away",
    ),
    Mutant(
        name="groups: a write whose groups cannot be deleted fails, and a job that is done runs again",
        rule="nothing doubles in exactly-once",
        pattern='log.debug("groups of %s are left to expire: %s", $$$FACTS)',
        replacement="raise",
        killer="tests/unit/spark/test_exactly_once.py::"
        "test_groups_that_cannot_be_deleted_fail_no_write_and_start_no_look_at_hosts",
    ),
)

"""State of the brokers that went back."""

from __future__ import annotations

from mutants.mutant import Mutant

RULE = "docs/design/exactly-once.md: state that went back"
MODEL = "tests/verification/model/test_rolled_back.py::"
UNIT = "tests/unit/commit/test_went_back.py::"
WORLDS = "tests/verification/model/test_exactly_once.py::test_rows_are_visible_once_whatever_happens"

WENT_BACK: tuple[Mutant, ...] = (
    Mutant(
        name="a plan does not ask coordinators for commits that no decision names",
        rule=RULE,
        pattern="yield from check_offsets($SINK, $GENERATION, $DECISION, $LISTED)",
        replacement="pass",
        killer=f"{MODEL}test_a_visible_micro_batch_that_the_offsets_have_lost_stops_the_query",
    ),
    Mutant(
        name="before the first decision, a slot's commit needs no explanation",
        rule=RULE,
        pattern="$SLOTS, $EXPECTED = yield from $BY_MARKERS($SINK, $GENERATION, $DECISION, $SLOTS)",
        replacement="return",
        killer=f"{UNIT}test_a_micro_batch_that_the_offsets_do_not_know_any_more_is_not_written_again",
    ),
    Mutant(
        name="a producer id that was spent by the decision's own commit is taken for a later commit",
        rule=RULE,
        pattern="if $ANSWER.error_code == ErrorCode.NONE:\n    del $FOUND[$SLOT]",
        replacement="pass",
        killer=f"{WORLDS}[producer ids may be spent]",
    ),
    Mutant(
        name="leaders that know later ids than the coordinators are not noticed",
        rule=RULE,
        pattern="yield from check_transactions($SINK, $FACTS, $LEADERS)",
        replacement="pass",
        killer=f"{MODEL}test_both_may_go_back",
    ),
    Mutant(
        name="a slot writes under ids that a coordinator gave out a second time",
        rule=RULE,
        pattern="$IDS = yield from $BEYOND($SINK, $TRANSACTIONAL_ID, $IDS, $PINNED, $FACTS.decision)",
        replacement="pass",
        killer=f"{MODEL}test_coordinators_that_went_back_give_out_ids_that_a_decision_names",
    ),
    Mutant(
        name="a driver decides under a generation that a coordinator gave out a second time",
        rule=RULE,
        pattern="$GENERATION = yield from $BEYOND($SINK, $SINK.names.driver, $GENERATION, $NAMED, $DECISION)",
        replacement="pass",
        killer=f"{UNIT}test_a_coordinator_that_went_back_by_an_attempt_gives_out_ids_of_the_decision",
    ),
    Mutant(
        name="a marker of nothing does not say which transaction wrote it",
        rule=RULE,
        pattern="Marker.nothing($IDS, $SINK.transaction_version)",
        replacement='Marker(0, "", "")',
        killer=f"{UNIT}test_a_micro_batch_that_the_offsets_do_not_know_any_more_is_not_written_again",
    ),
    Mutant(
        name="the check does not mention that an internal topic has one replica",
        rule="docs/guarantees.md: internal topics that lose records",
        pattern='$WEAK += [f"{$EACH.name} has one replica"] * ($FACTOR < 2)',
        replacement="pass",
        killer="tests/unit/doctor/test_state_topics.py::test_topics_of_state",
    ),
)

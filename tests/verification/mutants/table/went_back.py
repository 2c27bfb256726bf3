"""State of the brokers that went back."""

from __future__ import annotations

from mutants.mutant import Mutant

RULE = "docs/design/exactly-once.md: state that went back"
MODEL = "tests/verification/model/test_exactly_once.py::"
UNIT = "tests/unit/commit/test_lost_state.py::"
WORLDS = f"{MODEL}test_rows_are_visible_once_whatever_happens"

WENT_BACK: tuple[Mutant, ...] = (
    Mutant("a plan does not ask coordinators for commits that no decision names", RULE,
           "yield from check_offsets($SINK, $GENERATION, $DECISION, $LISTED)", "pass",
           f"{MODEL}test_a_visible_micro_batch_that_the_offsets_have_lost_stops_the_query"),
    Mutant("before the first decision, a slot's commit needs no explanation", RULE,
           "$SLOTS, $EXPECTED = yield from $BY_MARKERS($SINK, $GENERATION, $DECISION, $SLOTS)", "return",
           f"{UNIT}test_a_micro_batch_that_the_offsets_do_not_know_any_more_is_not_written_again"),
    Mutant("a producer id that was spent by the decision's own commit is taken for a later commit", RULE,
           "if $ANSWER.error_code == ErrorCode.NONE:\n    del $FOUND[$SLOT]", "pass",
           f"{WORLDS}[producer ids may be spent]"),
    Mutant("leaders that know later ids than the coordinators are not noticed", RULE,
           "yield from check_transactions($SINK, $FACTS, $LEADERS)", "pass",
           f"{WORLDS}[offsets and transactions may go back together]"),
    Mutant("a slot writes under ids that a coordinator gave out a second time", RULE,
           "$IDS = yield from $BEYOND($SINK, $TRANSACTIONAL_ID, $IDS, $PINNED, $FACTS.decision)", "pass",
           f"{MODEL}test_coordinators_that_went_back_give_out_ids_that_a_decision_names"),
    Mutant("a driver decides under a generation that a coordinator gave out a second time", RULE,
           "$GENERATION = yield from $BEYOND($SINK, $SINK.names.driver, $GENERATION, $NAMED, $DECISION)", "pass",
           f"{UNIT}test_ids_that_a_coordinator_which_went_back_gives_out_again_are_not_used"),
    Mutant("a marker of nothing does not say which transaction wrote it", RULE,
           "Marker.nothing($IDS, $SINK.transaction_version)", 'Marker(0, "", "")',
           f"{UNIT}test_a_first_micro_batch_is_not_written_again_by_slots_that_say_that_nothing_was_committed"),
    Mutant("the check does not mention that an internal topic has one replica",
           "docs/guarantees.md: internal topics that lose records",
           '$WEAK += [f"{$EACH.name} has one replica"] * ($FACTOR < 2)', "pass",
           "tests/unit/doctor/test_judging.py::test_topics_of_state"),
)  # fmt: skip

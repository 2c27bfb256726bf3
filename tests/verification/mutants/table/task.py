"""The two-phase commit: an attempt of a slot."""

from __future__ import annotations

from mutants.mutant import Mutant

_WORLDS = "tests/verification/model/test_exactly_once.py::test_rows_are_visible_once_whatever_happens"

TASK: tuple[Mutant, ...] = (
    Mutant("the generation check in the task is left out",
           "docs/design/exactly-once.md: a run's generation fences earlier runs",
           ("$TRANSACTIONAL_ID = $SINK.names.slot($SLOT)", "yield from check_generation($SINK, $FACTS.generation)"),
           "$TRANSACTIONAL_ID = $SINK.names.slot($SLOT)",
           "tests/unit/commit/test_two_phase.py::test_an_attempt_of_another_run_touches_nothing"),
    Mutant("an attempt that others came before is taken for the first since the decision",
           "docs/design/exactly-once.md: a task uses the marker that the plan read only if its epoch is the next one",
           "$DECISION is not None and $PINNED is not None and $IDS == $NEXT_AFTER($PINNED, $DECISION)",
           "$DECISION is not None and $PINNED is not None and $IDS.producer_id == $PINNED.producer_id",
           f"{_WORLDS}[an attempt may go on behind a commit that a leader did not hear of]"),
    Mutant("no markers: a task writes rows that are visible already",
           "docs/design/exactly-once.md: the marker decides whether a slot is visible",
           "if $MARKER.micro_batch_id == $MICRO_BATCH_ID:\n    $VISIBLE = $MARKER", "$VISIBLE = None",
           f"{_WORLDS}[a driver may die before any two effects]"),
    Mutant("the marker of another query stands for this one's",
           "docs/design/exactly-once.md: the marker decides whether a slot is visible",
           "$MARKER is not None and $MARKER.query_id == $QUERY_ID", "$MARKER is not None",
           "tests/unit/commit/test_two_phase.py::test_a_new_query_under_an_old_name_is_not_taken_for_the_old_one",
           within="begin"),
    Mutant("a group that is deleted after the plan has its slot written again",
           "docs/design/exactly-once.md: a marker that is absent proves nothing",
           "$MARKERS.get($SLOT, $FACTS.markers.get($SLOT))", "$MARKERS.get($SLOT)",
           "tests/unit/commit/test_lost_state.py::"
           "test_a_group_deleted_between_plan_and_task_has_its_slot_not_written_again"),
)  # fmt: skip

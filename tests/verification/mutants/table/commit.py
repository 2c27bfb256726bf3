"""The two-phase commit: deciding, ending what was decided, and aborting."""

from __future__ import annotations

from mutants.mutant import Mutant

COMMIT: tuple[Mutant, ...] = (
    Mutant(
        name="fingerprints are not compared: neither with what was decided nor with what is visible",
        rule="docs/guarantees.md: a replay must give the same rows",
        pattern=(
            "check_decision($SINK, $FACTS, $PREPARED, $$$LINEAGE)",
            "check_replay($SINK, $PREPARED, $$$IDS)",
        ),
        replacement="pass",
        within="commit",
        killer="tests/verification/model/test_exactly_once.py::"
        "test_a_replay_with_other_rows_replaces_what_is_not_visible_and_stops_at_what_is",
    ),
    Mutant(
        name="an older checkpoint writes what was committed once more",
        rule="nothing doubles in exactly-once",
        pattern="$DECISION.micro_batch_id > $MICRO_BATCH_ID",
        replacement="False",
        within="check_lineage",
        killer="tests/unit/commit/test_lineage.py::test_what_may_follow_upon_the_last_decision",
    ),
    Mutant(
        name="a micro-batch goes on where the one before is not whole",
        rule="nothing is lost",
        pattern="if $IS_TORN:\n    raise CommittedDataMissing($$$FACTS)",
        replacement="if False:\n    raise CommittedDataMissing($$$FACTS)",
        killer="tests/unit/commit/test_lineage.py::test_what_may_follow_upon_the_last_decision",
    ),
    Mutant(
        name="it is decided to commit transactions that are no longer open",
        rule="docs/design/exactly-once.md: nothing is committed that no decision names",
        pattern="at_once($WRITTEN, $CHECK_OPEN($SINK, $OPEN_SLOTS, $DECISION, $NOW_MS), check_leaders($$$OF_SLOTS))",
        replacement="at_once($WRITTEN, $CHECK_OPEN($SINK, [], $DECISION, $NOW_MS), check_leaders($$$OF_SLOTS))",
        killer="tests/unit/commit/test_two_phase.py::test_nothing_is_decided_of_a_slot_that_somebody_else_has_begun",
    ),
    Mutant(
        name="the age of a transaction is that of the whole micro-batch, by another clock than its coordinator's",
        rule="docs/operations.md: clocks",
        pattern="$DRIVER.start_time_ms - $EACH.start_time_ms + $WAITED_MS",
        replacement="open_ms + $WAITED_MS",
        killer="tests/unit/commit/test_clocks.py::test_tasks_that_wrote_late_are_in_time_however_long_ago_the_plan_is",
    ),
    Mutant(
        name="it is decided to commit transactions that are about to time out",
        rule="docs/guarantees.md: a micro-batch must fit the transaction timeout",
        pattern="if $AGE_MS > $MOST_MS:\n    raise (yield from $TOO_LATE($$$FACTS))",
        replacement="pass",
        killer="tests/unit/commit/test_two_phase.py::test_nothing_is_decided_that_may_time_out_before_it_is_committed",
    ),
    Mutant(
        name="a stale coordinator is believed",
        rule="docs/design/exactly-once.md: a stale coordinator is asked again",
        pattern="if not any(map($IS_FROM_BEFORE, $SLOTS, $FOUND)):\n    break",
        replacement="if True:\n    break",
        killer="tests/unit/commit/test_two_phase.py::"
        "test_a_coordinator_that_stood_still_is_asked_until_it_has_heard_of_the_slot",
    ),
    Mutant(
        name="no decision: slots are committed without one",
        rule="docs/design/exactly-once.md: nothing is committed that no decision names",
        pattern="yield from $DECIDE($SINK, $DECISION)",
        replacement="pass",
        within="commit",
        killer="tests/verification/model/test_exactly_once.py::test_a_driver_may_die_before_any_two_effects",
    ),
    Mutant(
        name="slots are committed before the decision",
        rule="docs/design/exactly-once.md: nothing is committed that no decision names",
        pattern="yield from $DECIDE($SINK, $DECISION)",
        replacement="yield [end_txn($SINK, $SINK.names.slot(each.slot), each.ids, committed=True) for each in "
        "$OPEN_SLOTS]\n"
        "yield from $DECIDE($SINK, $DECISION)",
        within="commit",
        given=("at_once($WRITTEN, $LOOKED_AT, check_leaders($SINK, $OPEN_SLOTS, $$$OF_RUN))",),
        killer="tests/verification/model/test_exactly_once.py::test_a_driver_may_die_before_any_two_effects",
    ),
    Mutant(
        name="commit Inits the driver's id: two drivers may both decide",
        rule="docs/design/exactly-once.md: a run's generation fences earlier runs",
        pattern="$FACTS.generation",
        replacement="(yield from take_over($SINK))",
        within="Decision($$$SAID, transaction_version=$SINK.transaction_version, $$$PINNED)",
        killer="tests/unit/commit/test_two_phase.py::test_a_driver_that_another_has_overtaken_decides_nothing",
    ),
    Mutant(
        name="a fence is taken for success: of the decision",
        rule="docs/design/exactly-once.md: a fence is neither success nor failure",
        pattern=(
            "if $ANSWER.error_code == ErrorCode.NONE:\n    return",
            "check_definite($ANSWER.error_code, $SINK.names.driver)",
        ),
        replacement="if is_definite($ANSWER.error_code):\n"
        "    return\n"
        "check_definite($ANSWER.error_code, $SINK.names.driver)",
        killer="tests/unit/commit/test_two_phase.py::"
        "test_another_drivers_decision_about_the_same_micro_batch_is_not_ones_own",
    ),
    Mutant(
        name="abort after a commit that timed out: a commit whose EndTxn has no certain answer aborts the slot",
        rule="docs/design/exactly-once.md: a decision is committed whole, by every plan and commit",
        pattern="raise CommitOutcomeUnknown($$$SAID, missing=list($REFUSED), $$$REST)",
        replacement="yield $ABORTS($SINK, {$SINK.names.slot(each.slot): each.ids for each in $OPEN_SLOTS})\n"
        "raise CommitOutcomeUnknown($$$SAID, missing=list($REFUSED), $$$REST)",
        given=(
            "at_once($WRITTEN, $LOOKED_AT, check_leaders($SINK, $OPEN_SLOTS, $$$OF_RUN))",
            "$ANSWERS = yield $ABORTS($ITS_SINK, $OPEN)",
        ),
        killer="tests/unit/commit/test_two_phase.py::test_a_commit_that_got_no_answer_aborts_nothing",
    ),
    Mutant(
        name="an unknown EndTxn outcome is reported as commit: any marker will do",
        rule="docs/design/exactly-once.md: the marker decides whether a slot is visible",
        pattern="[$SLOT for $SLOT, $MARKER in $EXPECTED.items() if $MARKERS.get($SLOT) != $MARKER]",
        replacement="[$SLOT for $SLOT, $MARKER in $EXPECTED.items() if $SLOT not in $MARKERS]",
        killer="tests/verification/model/test_exactly_once.py::test_transactions_may_time_out_at_any_time",
    ),
    Mutant(
        name="an abort fences the run that has begun since",
        rule="docs/design/exactly-once.md: a run's generation fences earlier runs",
        pattern="yield from check_generation($SINK, $GENERATION)",
        replacement="pass",
        within="abort",
        killer="tests/unit/commit/test_two_phase.py::test_an_abort_touches_nothing_once_another_run_has_begun",
    ),
    Mutant(
        name="abort without reading the decision",
        rule="docs/design/exactly-once.md: a decision is committed whole, by every plan and commit",
        pattern="$DECISION is not None and $DECISION.generation == $GENERATION",
        replacement="False",
        killer="tests/unit/commit/test_two_phase.py::test_an_abort_commits_what_was_decided",
    ),
    Mutant(
        name="abort lets attempts write that have begun",
        rule="docs/design/exactly-once.md: abort fences what has begun",
        pattern=(
            "$FACTS = yield from plan(replace($SINK, comes_again=False))",
            "yield from $END_BEGUN($SINK, $FACTS)",
        ),
        replacement="$FACTS = yield from plan(replace($SINK, comes_again=False))",
        killer="tests/unit/commit/test_two_phase.py::"
        "test_an_attempt_that_had_begun_when_its_run_was_aborted_opens_nothing_any_more",
    ),
    Mutant(
        name="abort leaves open what an attempt writes first during it",
        rule="docs/design/exactly-once.md: abort fences what has begun",
        pattern="yield from abort_open($SINK, $FACTS.generation, $STILL_OPEN)",
        replacement="pass",
        killer="tests/unit/commit/test_two_phase.py::"
        "test_an_attempt_that_writes_its_first_rows_during_the_abort_leaves_nothing_open",
    ),
    Mutant(
        name="rows of an aborted attempt are committed with those of the next, where a leader has both "
        "in one transaction",
        rule="docs/design/exactly-once.md: a commit asks the leaders where each transaction begins",
        pattern="check_leaders($SINK, $OPEN_SLOTS, $$$OF_RUN)",
        replacement="check_leaders($SINK, [], $$$OF_RUN)",
        killer="tests/verification/model/test_exactly_once.py::test_a_leader_may_not_hear_of_an_abort",
    ),
    Mutant(
        name="rows that their leader has in no transaction any more are taken for committed",
        rule="docs/design/exactly-once.md: a commit asks the leaders where each transaction begins",
        pattern="($SINCE := $BEGAN.get($WHERE, NOTHING_OPEN)) != $FIRST",
        replacement="($SINCE := $BEGAN.get($WHERE, NOTHING_OPEN)) not in ($FIRST, NOTHING_OPEN)",
        killer="tests/unit/commit/test_hanging.py::"
        "test_rows_that_are_in_no_transaction_any_more_are_not_taken_for_committed",
    ),
    Mutant(
        name="a transaction that hangs on a leader is passed over",
        rule="KAFKA-20734: a hanging transaction is committed, never aborted",
        pattern=(
            "if $MISSING:\n    raise CommitOutcomeUnknown($$$FACTS)",
            "$OURS = {$IDS: $SINK.names.slot($SLOT) for $IDS, $SLOT in $COMMITTED.items()}",
            "yield from end_hanging($$$OF_MICRO_BATCH)",
        ),
        replacement="if $MISSING:\n    raise CommitOutcomeUnknown($$$FACTS)",
        killer="tests/verification/model/test_exactly_once.py::test_a_leader_may_not_hear_of_a_commit",
    ),
    Mutant(
        name="what was pinned and timed out is taken for committed",
        rule="KAFKA-20734: a hanging transaction is committed, never aborted",
        pattern="$NEW | {$IDS: $SLOT for $SLOT, $IDS in enumerate($DECIDED.pinned) if $IDS is not None and "
        "$SLOT in $VISIBLE_BEFORE}",
        replacement="$NEW | {$IDS: $SLOT for $SLOT, $IDS in enumerate($DECIDED.pinned) if $IDS is not None}",
        killer="tests/unit/commit/test_hanging.py::"
        "test_what_was_pinned_and_did_not_become_visible_is_never_taken_for_committed",
    ),
    Mutant(
        name="what hangs is ended with ABORT",
        rule="KAFKA-20734: a hanging transaction is committed, never aborted",
        pattern="True",
        replacement="False",
        within="WriteTxnMarkersRequest($$$FIELDS)",
        killer="tests/unit/commit/test_hanging.py::test_what_hangs_is_committed_on_the_leader_with_its_own_ids",
    ),
    Mutant(
        name="brokers without WriteTxnMarkers are asked for it until a timeout",
        rule="docs/compatibility.md: without WriteTxnMarkers the query stops with HangingTransaction",
        pattern="not client.can_repair()",
        replacement="False",
        within="_answer",
        killer="tests/unit/commit/test_runner.py::test_brokers_without_write_txn_markers_are_not_asked_to_write_one",
    ),
)

"""The two-phase commit: what a run does before its tasks begin."""

from __future__ import annotations

from mutants.mutant import Mutant

PLAN: tuple[Mutant, ...] = (
    Mutant(
        name="the driver reads the decision before it Inits its id, which an older driver can still decide under",
        rule="docs/design/exactly-once.md: a run's generation fences earlier runs",
        pattern=(
            "$GENERATION = yield from take_over($SINK)",
            "$DECISION, $LISTED = yield from at_once($LAST_DECISION($SINK, $GENERATION), $LIST($SINK))",
        ),
        replacement="$DECISION, $LISTED = yield from at_once(read_decision($SINK), $LIST($SINK))\n"
        "$GENERATION = yield from take_over($SINK)",
        killer="tests/verification/model/test_exactly_once.py::test_of_two_drivers_on_a_checkpoint_one_is_fenced",
    ),
    Mutant(
        name="no recovery: what was decided is not committed by the next plan",
        rule="docs/design/exactly-once.md: a decision is committed whole, by every plan and commit",
        pattern="$WAS_COMMITTED = yield from finish($SINK, $DECISION, $VISIBLE)",
        replacement="pass",
        killer="tests/verification/model/test_exactly_once.py::"
        "test_a_replay_with_other_rows_replaces_what_is_not_visible_and_stops_at_what_is",
    ),
    Mutant(
        name="recovery with unpinned ids: those that the slot has now",
        rule="docs/design/exactly-once.md: EndTxn with the pinned ids",
        pattern="$PINNED = [($SINK.names.slot($SLOT), $IDS) for $SLOT in $SLOTS if ($IDS := "
        "$DECISION.pinned[$SLOT]) is not None]",
        replacement="found = yield from described($SINK, [$SINK.names.slot($SLOT) for $SLOT in $SLOTS])\n"
        "$PINNED = [(each.transactional_id, Ids(each.producer_id, each.producer_epoch)) for each "
        "in found]",
        killer="tests/unit/commit/test_two_phase.py::"
        "test_a_plan_that_is_overtaken_commits_nothing_that_was_begun_since",
    ),
    Mutant(
        name="recovery commits in the version that the cluster has now, not in that of the transaction",
        rule="KIP-890: transaction version",
        pattern="$COMMIT_EACH($SINK, $PINNED, $DECISION.transaction_version)",
        replacement="$COMMIT_EACH($SINK, $PINNED, $SINK.transaction_version)",
        within="finish",
        killer="tests/unit/commit/test_two_phase.py::"
        "test_a_plan_finishes_a_decision_in_the_version_that_its_transactions_have",
    ),
    Mutant(
        name="an EndTxn that a stale coordinator refuses is over",
        rule="docs/design/exactly-once.md: a stale coordinator is asked again",
        pattern="[$EACH for $EACH in $REFUSED if not $IS_OVER($FOUND[$EACH], $EACH[1])]",
        replacement="[]",
        killer="tests/verification/model/test_exactly_once.py::"
        "test_transaction_coordinators_that_stood_still_may_answer_for_a_moment",
    ),
    Mutant(
        name="a plan aborts what the decision names, where that is said to be open",
        rule="docs/design/exactly-once.md: a decision is committed whole, by every plan and commit",
        pattern='$OPEN_SINCE($SINK, $DECISION, $IN($LISTED, "Ongoing"))',
        replacement='open_ones($SINK, $IN($LISTED, "Ongoing"))',
        within="plan",
        killer="tests/unit/commit/test_two_phase.py::"
        "test_a_plan_aborts_nothing_that_the_decision_names_whatever_coordinators_say",
    ),
    Mutant(
        name="slots that no decision names are left open",
        rule="docs/design/exactly-once.md: a plan aborts what is open and undecided",
        pattern="yield from abort_open($SINK, $GENERATION, $STILL_OPEN)",
        replacement="pass",
        within="plan",
        killer="tests/verification/model/test_exactly_once.py::"
        "test_a_replay_with_other_rows_replaces_what_is_not_visible_and_stops_at_what_is",
    ),
    Mutant(
        name="a plan that another has overtaken aborts the other's slots",
        rule="docs/design/exactly-once.md: a run's generation fences earlier runs",
        pattern=(
            "yield from check_generation($SINK, $GENERATION)",
            "$ANSWERS = yield $ABORTS($SINK, $OPEN)",
        ),
        replacement="$ANSWERS = yield $ABORTS($SINK, $OPEN)",
        killer="tests/unit/commit/test_two_phase.py::test_a_plan_that_is_overtaken_while_it_looks_aborts_nothing",
    ),
    Mutant(
        name="version 1 aborts with an EndTxn, which can come late and hit the next transaction",
        rule="KIP-890: a late EndTxn of version 1",
        pattern="return [init_producer_id($SINK, $TRANSACTIONAL_ID) for $TRANSACTIONAL_ID in $TRANSACTIONS]",
        replacement="return [end_txn($SINK, name, ids, committed=False) for name, ids in $TRANSACTIONS.items()]",
        killer="tests/unit/commit/test_two_phase.py::test_a_plan_ends_what_no_decision_names_in_the_way_of_its_version",
    ),
    Mutant(
        name="a plan takes a marker that it does not find for one that is not there",
        rule="docs/design/exactly-once.md: brokers do not fence OffsetFetch",
        pattern='read_markers($SINK, $MISSING, barrier=f"plan {$GENERATION}")',
        replacement="read_markers($SINK, $MISSING)",
        killer="tests/verification/model/test_exactly_once.py::"
        "test_group_coordinators_that_stood_still_may_answer_for_a_moment",
    ),
    Mutant(
        name="a marker that is gone is taken for rows that are not there",
        rule="docs/design/exactly-once.md: a marker that is absent proves nothing",
        pattern="$UNPROVED.append($SLOT)",
        replacement="pass",
        within="for $SLOT, $IDS in enumerate($DECISION.pinned):\n    $$$LOOKED_AT",
        killer="tests/verification/model/test_exactly_once.py::test_groups_may_be_deleted_at_any_time",
    ),
    Mutant(
        name="what a coordinator proves is not written down before a task's Init makes it forget",
        rule="docs/design/exactly-once.md: a marker that is absent proves nothing",
        pattern=(
            "$RESTORED = {$SINK.names.slot($SLOT): $FACTS for $SLOT, $MARKER in $LOST.items()}",
            "return (yield from $PLAN_AFTER($SINK, $GENERATION, $RESTORED, $ALLOWED))",
        ),
        replacement="pass",
        killer="tests/verification/model/test_exactly_once.py::test_groups_may_be_deleted_at_any_time",
    ),
    Mutant(
        name="a new slot does not say that nothing was committed: one that times out is taken for lost",
        rule="docs/design/exactly-once.md: a marker that is absent proves nothing",
        pattern="$MARKER is None and $SINK.comes_again and not $IS_PINNED",
        replacement="False",
        killer="tests/unit/commit/test_lost_groups.py::"
        "test_a_new_sink_and_a_new_slot_say_that_nothing_was_decided_or_committed",
    ),
    Mutant(
        name="a first micro-batch whose decision is lost is taken for a new one",
        rule="docs/design/exactly-once.md: a decision that is not found was lost",
        pattern="$FACTS.is_forgotten and not $ALLOW_LOST_STATE",
        replacement="False",
        killer="tests/verification/model/test_exactly_once.py::test_groups_may_be_deleted_at_any_time",
    ),
    Mutant(
        name="a decision that has lost a part is taken for somebody else's text",
        rule="docs/design/exactly-once.md: if one part of a decision is gone, all of it is",
        pattern="any($GROUP.offset == NO_OFFSET for $GROUP in $MORE)",
        replacement="False",
        killer="tests/unit/commit/test_lost_groups.py::test_a_part_of_a_decision_that_is_gone_is_the_whole_of_it",
    ),
    Mutant(
        name="a run writes behind rows that a leader hides, and its abort takes them away",
        rule="KAFKA-20734: a hanging transaction is committed, never aborted",
        pattern="yield from end_hanging($SINK, $OURS, sorted($TOUCHED), $DECISION.micro_batch_id, $LEADERS)",
        replacement="pass",
        killer="tests/verification/model/test_exactly_once.py::"
        "test_a_version_that_a_leader_hides_is_not_passed_over_as_written",
    ),
)

"""The two-phase commit: what a run does before its tasks begin."""

from __future__ import annotations

from mutants.mutant import Mutant

_WORLDS = "tests/verification/model/test_exactly_once.py::test_rows_are_visible_once_whatever_happens"

PLAN: tuple[Mutant, ...] = (
    Mutant("the driver reads the decision before it Inits its id, which an older driver can still decide under",
           "docs/design/exactly-once.md: a run's generation fences earlier runs",
           ("$GENERATION = yield from take_over($SINK)",
           "$DECISION, $LISTED = yield from at_once($LAST_DECISION($SINK, $GENERATION), $LIST($SINK))"),
           "$DECISION, $LISTED = yield from at_once(read_decision($SINK), $LIST($SINK))\n"
           "$GENERATION = yield from take_over($SINK)",
           f"{_WORLDS}[of two drivers on a checkpoint one is fenced]"),
    Mutant("no recovery: what was decided is not committed by the next plan",
           "docs/design/exactly-once.md: a decision is committed whole, by every plan and commit",
           "$WAS_COMMITTED = yield from finish($SINK, $DECISION, $VISIBLE)", "pass",
           f"{_WORLDS}[abort may follow upon a commit that does not know that it decided]"),
    Mutant(
        "recovery with unpinned ids: those that the slot has now",
        "docs/design/exactly-once.md: EndTxn with the pinned ids",
        "$PINNED = [($SINK.names.slot($SLOT), $IDS) for $SLOT in $SLOTS if ($IDS := "
        "$DECISION.pinned[$SLOT]) is not None]",
        "found = yield from described($SINK, [$SINK.names.slot($SLOT) for $SLOT in $SLOTS])\n"
        "$PINNED = [(each.transactional_id, Ids(each.producer_id, each.producer_epoch)) for each " "in found]",
        "tests/unit/commit/test_two_phase.py::" "test_a_plan_that_is_overtaken_commits_nothing_that_was_begun_since"),
    Mutant("recovery commits in the version that the cluster has now, not in that of the transaction",
           "KIP-890: transaction version",
           "$COMMIT_EACH($SINK, $PINNED, $DECISION.transaction_version)",
           "$COMMIT_EACH($SINK, $PINNED, $SINK.transaction_version)",
           "tests/unit/commit/test_two_phase.py::"
           "test_a_plan_finishes_a_decision_in_the_version_that_its_transactions_have", within="finish"),
    Mutant("an EndTxn that a stale coordinator refuses is over",
           "docs/design/exactly-once.md: a stale coordinator is asked again",
           "[$EACH for $EACH in $REFUSED if not $IS_OVER($FOUND[$EACH], $EACH[1])]", "[]",
           f"{_WORLDS}[stale transaction coordinators may answer for a moment]"),
    Mutant("a plan aborts what the decision names, where that is said to be open",
           "docs/design/exactly-once.md: a decision is committed whole, by every plan and commit",
           '$OPEN_SINCE($SINK, $DECISION, $IN($LISTED, "Ongoing"))', 'open_ones($SINK, $IN($LISTED, "Ongoing"))',
           "tests/unit/commit/test_two_phase.py::"
           "test_a_plan_aborts_nothing_that_the_decision_names_whatever_coordinators_say", within="plan"),
    Mutant("slots that no decision names are left open",
           "docs/design/exactly-once.md: a plan aborts what is open and undecided",
           "yield from abort_open($SINK, $GENERATION, $STILL_OPEN)", "pass",
           f"{_WORLDS}[a replay with other rows replaces what is not visible and stops at what is]", within="plan"),
    Mutant("a plan that another has overtaken aborts the other's slots",
           "docs/design/exactly-once.md: a run's generation fences earlier runs",
           ("yield from check_generation($SINK, $GENERATION)", "$ANSWERS = yield $ABORTS($SINK, $OPEN)"),
           "$ANSWERS = yield $ABORTS($SINK, $OPEN)",
           "tests/unit/commit/test_two_phase.py::test_a_plan_that_is_overtaken_while_it_looks_aborts_nothing"),
    Mutant("version 1 aborts with an EndTxn, which can come late and hit the next transaction",
           "KIP-890: a late EndTxn of version 1",
           "return [init_producer_id($SINK, $TRANSACTIONAL_ID) for $TRANSACTIONAL_ID in $TRANSACTIONS]",
           "return [end_txn($SINK, name, ids, committed=False) for name, ids in $TRANSACTIONS.items()]",
           "tests/unit/commit/test_two_phase.py::test_a_plan_ends_what_no_decision_names_in_the_way_of_its_version"),
    Mutant("a plan takes a marker that it does not find for one that is not there",
           "docs/design/exactly-once.md: brokers do not fence OffsetFetch",
           'read_markers($SINK, $MISSING, barrier=f"plan {$GENERATION}")', "read_markers($SINK, $MISSING)",
           f"{_WORLDS}[stale group coordinators may answer for a moment]"),
    Mutant("a marker that is gone is taken for rows that are not there",
           "docs/design/exactly-once.md: a marker that is absent proves nothing",
           "$UNPROVED.append($SLOT)", "pass",
           f"{_WORLDS}[groups may be deleted at any time]",
           within="for $SLOT, $IDS in enumerate($DECISION.pinned):\n    $$$LOOKED_AT"),
    Mutant("what a coordinator proves is not written down before a task's Init makes it forget",
           "docs/design/exactly-once.md: a marker that is absent proves nothing",
           ("$RESTORED = {$SINK.names.slot($SLOT): $FACTS for $SLOT, $MARKER in $LOST.items()}",
           "return (yield from $PLAN_AFTER($SINK, $GENERATION, $RESTORED, $ALLOWED))"), "pass",
           f"{_WORLDS}[groups may be deleted at any time]"),
    Mutant("a new slot does not say that nothing was committed: one that times out is taken for lost",
           "docs/design/exactly-once.md: a marker that is absent proves nothing",
           "$MARKER is None and $SINK.comes_again and not $IS_PINNED", "False",
           "tests/unit/commit/test_lost_state.py::"
           "test_a_new_sink_and_a_new_slot_say_that_nothing_was_decided_or_committed"),
    Mutant("a first micro-batch whose decision is lost is taken for a new one",
           "docs/design/exactly-once.md: a decision that is not found was lost",
           "$FACTS.is_forgotten and not $ALLOW_LOST_STATE", "False",
           f"{_WORLDS}[groups may be deleted at any time]"),
    Mutant("a decision that has lost a part is taken for somebody else's text",
           "docs/design/exactly-once.md: if one part of a decision is gone, all of it is",
           "any($GROUP.offset == NO_OFFSET for $GROUP in $MORE)", "False",
           "tests/unit/commit/test_lost_state.py::test_a_part_of_a_decision_that_is_gone_is_the_whole_of_it"),
    Mutant("a run writes behind rows that a leader hides, and its abort takes them away",
           "KAFKA-20734: a hanging transaction is committed, never aborted",
           "yield from end_hanging($SINK, $OURS, sorted($TOUCHED), $DECISION.micro_batch_id, $LEADERS)", "pass",
           f"{_WORLDS}[a version that a leader hides is not passed over as written]"),
)  # fmt: skip

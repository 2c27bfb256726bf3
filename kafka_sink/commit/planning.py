"""The plan: take the sink over, finish what the last decision names, abort the rest. Also versions, and the abort.

`kafka_sink.commit` has the protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kafka_sink.commit.ending import (
    abort_open,
    beyond,
    commit_each,
    finish,
    in_state,
    listed_slots,
    next_after,
    open_since,
    outcome_of,
)
from kafka_sink.commit.handover import Facts, Sink, visible_of
from kafka_sink.commit.hanging import end_hanging, producers
from kafka_sink.commit.markers import NOTHING_COMMITTED, Decision, Ids, Marker
from kafka_sink.commit.replay import check_may_follow
from kafka_sink.commit.requests import (
    BrokerSetting,
    Steps,
    at_once,
    check_answer,
    check_generation,
    described,
    init_producer_id,
    read_decision,
    read_markers,
    write_offset,
)
from kafka_sink.commit.went_back import check_offsets, check_transactions
from kafka_sink.errors import (
    AttemptFenced,
    DriverFenced,
    FingerprintsLost,
    InvalidOption,
    NonDeterministicReplay,
    UnreadableState,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

# The broker setting that limits a transaction's timeout.
TIMEOUT_CEILING = "transaction.max.timeout.ms"


def plan(sink: Sink, *, allow_lost_state: bool = False) -> Steps[Facts]:
    """Take the sink over, and end all of its open transactions.

    Raises DriverFenced, TransactionRefused, StateWentBack unless `allow_lost_state`, or InvalidOption for a timeout
    above the brokers' limit.
    """
    generation = yield from take_over(sink)
    # The list is taken before the decision is finished. `open_since` describes its transactions afterwards.
    decision, listed = yield from at_once(_last_decision(sink, generation), listed_slots(sink))
    if decision is None and not listed and sink.comes_again:
        # No task has begun yet. After this write, a missing decision is a lost decision.
        (text,) = Decision.nothing(generation, sink.transaction_version).texts()
        return (yield from _plan_after(sink, generation, {sink.names.decision(0): (0, text)}, allow_lost_state))
    is_last = _is_last(decision, generation)
    if decision is not None and not is_last:
        generation = yield from beyond(sink, sink.names.driver, generation, decision.generation, decision)
    if sink.comes_again and not allow_lost_state and not is_last:
        # Before any transaction is ended: those of a lost decision are not to be aborted.
        yield from check_offsets(sink, generation, decision, listed)
    is_forgotten = decision is None and sink.comes_again
    if decision is not None and decision.is_nothing:
        decision = None
    known: dict[int, Marker] = {}
    was_committed: dict[int, bool | None] = {}
    if decision is not None:
        known = yield from _known(sink, decision)
        was_committed = yield from finish(sink, decision, known)
    still_open, decided = yield from open_since(sink, decision, in_state(listed, "Ongoing"))
    yield from abort_open(sink, generation, still_open)
    awake = tuple(sorted(sink.names.slot_of(each.transactional_id) for each in decided))
    slots = range(len(decision.pinned)) if decision is not None else ()
    # Read after the aborts: the marker of an open transaction is unstable until the transaction ends.
    missing = [slot for slot in slots if slot not in known]
    markers = known | (yield from read_markers(sink, missing, barrier=f"plan {generation}"))
    lost, unproved = _lost_markers(decision, markers, was_committed) if decision is not None else ({}, ())
    if lost:
        # Write the proof before a task Inits the slot: after an Init the coordinator has forgotten the last end.
        restored = {sink.names.slot(slot): (marker.micro_batch_id, marker.text) for slot, marker in lost.items()}
        return (yield from _plan_after(sink, generation, restored, allow_lost_state))
    return Facts(generation, decision, markers, unproved, is_forgotten, awake)


def _lost_markers(
    decision: Decision, markers: Mapping[int, Marker], was_committed: Mapping[int, bool | None]
) -> tuple[dict[int, Marker], tuple[int, ...]]:
    """Return the markers to restore, by slot, and the slots whose state is unproved.

    A marker is restored where its group does not show the decision, but other facts prove the state of the slot. A slot
    that rested has no marker of the decision. If its older marker has expired, it says that nothing was committed. An
    older marker proves that the pinned transaction was not committed: the commit would have replaced it, and a deleted
    or expired offset does not come back. A missing marker proves nothing.
    """
    lost: dict[int, Marker] = {}
    unproved = []
    visible = visible_of(decision, markers)
    for slot, ids in enumerate(decision.pinned):
        if slot in decision.resting:
            if slot not in markers:
                lost[slot] = NOTHING_COMMITTED
        elif slot in visible:
            continue
        elif ids is None or was_committed.get(slot):
            lost[slot] = decision.marker_of(slot)
        elif slot not in markers and was_committed.get(slot) is False:
            lost[slot] = NOTHING_COMMITTED
        elif slot not in markers:
            unproved.append(slot)
    return lost, tuple(unproved)


def _plan_after(
    sink: Sink, generation: Ids, offsets: Mapping[str, tuple[int, str]], allow_lost_state: bool
) -> Steps[Facts]:
    """Write these offsets to their groups in a transaction of the driver, then plan again. Raises as `plan`.

    Only the current generation can commit this transaction, and the commit uses up the generation.
    """
    driver = sink.names.driver
    was_committed: bool | None = None
    try:
        for group_id, (offset, text) in offsets.items():
            yield from write_offset(sink, driver, generation, group_id, offset, text)
        ((_, was_committed),) = yield from commit_each(sink, [(driver, generation)], sink.transaction_version)
    except AttemptFenced:
        (found,) = yield from described([driver])
        was_committed = outcome_of(found, generation, sink.transaction_version)
    if was_committed is None:
        (found,) = yield from described([driver])
        current = Ids.of(found)
        raise DriverFenced(sink=sink.names.sink, generation=str(generation), current=str(current))
    return (yield from plan(sink, allow_lost_state=allow_lost_state))


def take_over(sink: Sink) -> Steps[Ids]:
    """Return the next generation. A driver with the previous generation can decide nothing more. Raises as `plan`."""
    (driver,) = yield [init_producer_id(sink, sink.names.driver)]
    if driver.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        yield from _refuse_timeout(sink)
    check_answer(driver.error_code, "InitProducerId", sink.names.driver)
    return Ids.of(driver)


def _refuse_timeout(sink: Sink) -> Steps[None]:
    (ceiling,) = yield [BrokerSetting(TIMEOUT_CEILING)]
    unknown = "; brokers show its value only with the ACL CLUSTER DESCRIBE_CONFIGS"
    raise InvalidOption(
        option="kafka.transaction.timeout.ms",
        value=str(sink.timeout_ms),
        expected=f"at most the brokers' {TIMEOUT_CEILING}{unknown if ceiling is None else f', {ceiling}'}",
    )


def _last_decision(sink: Sink, generation: Ids) -> Steps[Decision | None]:
    """Return the last decision. No older driver can change it, because this generation has taken the sink over."""
    try:
        decision = yield from read_decision(sink)
    except UnreadableState:
        # Perhaps the groups of the decision were read at different times.
        decision = None
    if _is_last(decision, generation):
        return decision
    return (yield from read_decision(sink, barrier=f"plan {generation}"))


def _is_last(decision: Decision | None, generation: Ids) -> bool:
    """Return True if no run can have decided between this decision and this generation."""
    return decision is not None and generation == next_after(decision.generation, decision)


def _known(sink: Sink, decision: Decision) -> Steps[dict[int, Marker]]:
    """Return the markers of the decision's visible slots, and the older ones of slots that rested.

    Normally these are all slots, and `finish` sends nothing.
    """
    found = yield from read_markers(sink, range(len(decision.pinned)), stable=False)
    needed = visible_of(decision, found).keys() | decision.resting
    return {slot: marker for slot, marker in found.items() if slot in needed}


def is_written(sink: Sink, facts: Facts, *, query_id: str, version: int, allow_lost_state: bool) -> Steps[bool]:
    """Return True if the write skips this version: it is visible whole, or a later version was decided.

    Call it after `plan` and before any row is read. Raises DriverFenced, and the errors of `check_may_follow`.
    """
    decision = facts.decision
    if decision is not None and decision.query_id == query_id:
        is_whole = decision.micro_batch_id == version and not facts.missing
        if is_whole or decision.micro_batch_id > version:
            return True
    # A later run may have replaced markers during the read. Such markers are not missing.
    yield from check_generation(sink, facts.generation)
    check_may_follow(sink, facts, query_id=query_id, micro_batch_id=version, allow_lost_state=allow_lost_state)
    return False


def check_written(
    sink: Sink,
    facts: Facts,
    counted: Sequence[str],
    *,
    total: Callable[[Iterable[str]], Any],
    touched: Sequence[TopicPartition],
    allow_lost_state: bool = False,
) -> Steps[None]:
    """Check that the skipped version has the same rows as the visible rows, and that readers see them.

    `counted`: the fingerprint of each slot's rows. `total`: a function that adds up fingerprints, so that rows may come
    in other slots than before. If a marker was lost, fingerprints are compared slot by slot. `touched`: all partitions
    that may have the rows.

    Raises NonDeterministicReplay, FingerprintsLost, VerificationRefused, HangingTransaction.
    """
    decision, visible = facts.decision, facts.visible
    assert decision is not None, "a skipped version was decided"
    version = decision.micro_batch_id
    # The rows of the first write must be readable, even if this write has other rows.
    yield from end_what_hangs(sink, facts, touched, allow_lost_state=allow_lost_state)
    visible_in_order = [visible[slot] for slot in sorted(visible)]
    with_rows = {slot: marker for slot, marker in visible.items() if slot not in decision.resting}
    restored = sorted(slot for slot, marker in with_rows.items() if marker.is_restored)
    if restored:
        is_same = len(counted) == len(visible) and all(map(Marker.may_be_of, visible_in_order, counted))
        if (facts.incomparable or not is_same) and not allow_lost_state:
            raise FingerprintsLost(sink=sink.names.sink, micro_batch_id=version, slots=restored)
    elif total(counted) != total(marker.fingerprint for marker in with_rows.values()):
        raise NonDeterministicReplay(sink=sink.names.sink, micro_batch_id=version, slots=sorted(visible))


def end_what_hangs(
    sink: Sink, facts: Facts, touched: Sequence[TopicPartition], *, allow_lost_state: bool = False
) -> Steps[None]:
    """End hanging transactions of the last decision, whose driver may have died before it checked the leaders.

    A run must call it before it writes other rows. On a leader that still has the old transaction open, the new rows
    join that transaction, and an abort would remove both. `touched`: all partitions of the decision's topics that may
    have its rows.

    Raises VerificationRefused, HangingTransaction, and StateWentBack unless `allow_lost_state`.
    """
    decision, visible = facts.decision, facts.visible
    if decision is None or not touched:
        return
    leaders = yield from producers(sink, sorted(touched), decision.micro_batch_id, committed=True)
    if not allow_lost_state:
        yield from check_transactions(sink, facts, leaders)
    pinned = {ids: slot for slot, ids in enumerate(decision.pinned) if ids is not None and slot in visible}
    ours = {ids: sink.names.slot(slot) for ids, slot in pinned.items()}
    yield from end_hanging(sink, ours, sorted(touched), decision.micro_batch_id, leaders)


def abort(sink: Sink, generation: Ids) -> Steps[None]:
    """End all transactions of a run whose micro-batch failed, by a plan without tasks.

    The plan fences tasks that have not begun, commits decided transactions and aborts all others. It needs no ids from
    the tasks. It runs in another process than `commit`, and `commit` may have decided without knowing it. If another
    run has taken the sink over, that run ends the transactions.
    """
    try:
        yield from check_generation(sink, generation)
        # No task follows, so the plan need not write down that nothing was decided.
        facts = yield from plan(replace(sink, comes_again=False))
        yield from _end_begun(sink, facts)
    except DriverFenced:
        # On version 2 the EndTxn of this run's own decision raises the driver's epoch as well.
        decision = yield from read_decision(sink, barrier=f"abort {generation}")
        if decision is not None and decision.generation == generation:
            yield from finish(sink, decision)


def _end_begun(sink: Sink, facts: Facts) -> Steps[None]:
    """Fence attempts that began before this plan. Abort their rows if they wrote the first ones since the plan's list.

    Spark stops a task a moment after its job has failed. Rows that the task writes in this moment would stay open. An
    attempt that begins later finds another generation, and stops.
    """
    listed = yield from listed_slots(sink)
    still_open, _ = yield from open_since(sink, facts.decision, in_state(listed, "Ongoing"))
    yield from abort_open(sink, facts.generation, still_open)
    begun = in_state(listed, "Empty")
    if not begun:
        return
    yield from check_generation(sink, facts.generation)
    answers = yield [init_producer_id(sink, transactional_id) for transactional_id in begun]
    for transactional_id, answer in zip(begun, answers, strict=True):
        check_answer(answer.error_code, "InitProducerId", transactional_id)

"""The commit: check all slots, decide, end each transaction, and verify. Then perhaps forget.

`kafka_sink.commit` has the protocol.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from kafka_sink.commit.ending import commit_each, is_decided, list_open, listed_slots, pinned_in
from kafka_sink.commit.handover import Facts, Sink, SlotPrepared
from kafka_sink.commit.hanging import check_leaders, end_hanging, still_open
from kafka_sink.commit.markers import Decision, Ids, Marker, digest_of
from kafka_sink.commit.replay import check_decision, check_replay
from kafka_sink.commit.requests import (
    PAUSES_MS,
    Pause,
    Steps,
    ToCoordinator,
    at_once,
    check_answer,
    check_definite,
    check_generation,
    described,
    is_definite,
    read_decision,
    read_markers,
    write_offset,
)
from kafka_sink.errors import (
    AttemptFenced,
    AttemptReplaced,
    CommitOutcomeUnknown,
    DriverFenced,
    ExactlyOnceError,
    NonDeterministicReplay,
    TransactionTimedOut,
)
from kafka_sink.kafka.protocol.apis.groups import CoordinatorKind, DeleteGroupsRequest
from kafka_sink.kafka.protocol.apis.transaction_state import TransactionDescription
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_name

# A decision and its EndTxn requests may take this long. If they take longer, a transaction may time out during the
# commit, and the markers show it.
LEAST_TIME_LEFT_MS = 5_000


def commit(
    sink: Sink,
    facts: Facts,
    prepared: Sequence[SlotPrepared],
    *,
    micro_batch_id: int,
    now_ms: int,
    open_ms: int = 0,
    allow_lost_state: bool = False,
    topic_ids: Mapping[str, str | None] = MappingProxyType({}),
) -> Steps[None]:
    """Make a whole micro-batch visible.

    `prepared`: an item for each slot, in the order of slots. `now_ms`: wall-clock time in ms since 1970. `open_ms`: the
    time since the plan, so that no transaction has been open for longer. `topic_ids`: the ids of topics that the tasks
    found, by topic.

    Raises an ExactlyOnceError: Spark then does not record the micro-batch, and runs it again.
    """
    check_decision(sink, facts, prepared, micro_batch_id=micro_batch_id, allow_lost_state=allow_lost_state)
    check_replay(sink, prepared, micro_batch_id=micro_batch_id)
    if facts.is_forgotten and not allow_lost_state:
        yield from _check_beyond(sink, facts, prepared, micro_batch_id)
    open_slots = [each for each in prepared if each.is_open]
    unproved: list[SlotPrepared] = []
    decided = facts.decision
    is_decided = decided is not None and (decided.micro_batch_id, decided.query_id, len(decided.pinned)) == (
        micro_batch_id,
        prepared[0].query_id,
        len(prepared),
    )
    if open_slots or not is_decided:
        topics = sorted({topic for each in prepared for topic, _ in each.partitions})
        decision = Decision(
            micro_batch_id=micro_batch_id,
            query_id=prepared[0].query_id,
            generation=facts.generation,
            transaction_version=sink.transaction_version,
            decided_ms=now_ms,
            pinned=tuple(None if each.visible else each.ids for each in prepared),
            topics=tuple(topics),
            topic_ids={topic: topic_id for topic in topics if (topic_id := topic_ids.get(topic)) is not None},
            digests=tuple(digest_of(each.fingerprint) for each in prepared),
            resting=frozenset(each.slot for each in prepared if each.rests),
        )
        _, (found, described_ms), *waits_ms = yield from at_once(
            _write_decision(sink, decision),
            _check_open(sink, open_slots, decision, open_ms),
            check_leaders(sink, open_slots, generation=facts.generation, micro_batch_id=micro_batch_id),
            _check_resting(sink, decision),
        )
        if waited_ms := sum(waits_ms):
            # During the wait a transaction may have ended or come too close to its timeout.
            described_ms += waited_ms
            found, more_ms = yield from _check_open(sink, open_slots, decision, open_ms + described_ms)
            described_ms += more_ms
        yield from _check_ages(sink, found, decision, open_ms=open_ms, waited_ms=described_ms)
        yield from _decide(sink, decision)
        # After the decision no transaction of the micro-batch may be aborted.
        pinned = [(sink.names.slot(each.slot), each.ids) for each in open_slots]
        ended = yield from commit_each(sink, pinned, sink.transaction_version)
        refused = {
            each.slot: error_name(answer.error_code)
            for each, (answer, _) in zip(open_slots, ended, strict=True)
            if not is_definite(answer.error_code)
        }
        if refused:
            raise CommitOutcomeUnknown(
                sink=sink.names.sink,
                micro_batch_id=micro_batch_id,
                visible=[each.slot for each in prepared if each.slot not in refused],
                missing=list(refused),
                reason=f"EndTxn was refused with {', '.join(sorted(set(refused.values())))}",
            )
        unproved = [each for each, (_, was_committed) in zip(open_slots, ended, strict=True) if not was_committed]
    yield from _verify(sink, facts, prepared, unproved, micro_batch_id=micro_batch_id)


def _check_beyond(sink: Sink, facts: Facts, prepared: Sequence[SlotPrepared], micro_batch_id: int) -> Steps[None]:
    """Where the decision is gone, check that no slot beyond those of this run shows the micro-batch. Raises
    NonDeterministicReplay."""
    slots = {sink.names.slot_of(name) for name, _ in (yield from listed_slots(sink))}
    beyond = sorted(slot for slot in slots if slot >= len(prepared))
    markers = yield from read_markers(sink, beyond, barrier=f"beyond {facts.generation}")
    this = micro_batch_id, prepared[0].query_id
    visible = [slot for slot, marker in markers.items() if (marker.micro_batch_id, marker.query_id) == this]
    if visible:
        raise NonDeterministicReplay(sink=sink.names.sink, micro_batch_id=micro_batch_id, slots=visible)


def _check_open(
    sink: Sink, slots: Sequence[SlotPrepared], decision: Decision, open_ms: int
) -> Steps[tuple[list[TransactionDescription], int]]:
    """Check that each transaction is open. Return the descriptions, and the milliseconds of waiting for them.

    Raises TransactionTimedOut, AttemptReplaced, or DriverFenced if another run has ended the transaction.
    """
    found, waited_ms = yield from _described_since_begun(sink, slots)
    for each, description in zip(slots, found, strict=True):
        if description.state != "Ongoing" or Ids.of(description) != each.ids:
            raise (yield from _too_late(sink, decision, description, each.ids, open_ms + waited_ms))
    return found, waited_ms


def _check_resting(sink: Sink, decision: Decision) -> Steps[int]:
    """Check that no attempt of a slot that rests has left a transaction open, which no decision would end.

    Such an attempt found rows where the attempt whose message came found none. Returns the milliseconds of waiting for
    stale coordinators. Raises AttemptReplaced, or DriverFenced if another run has begun.
    """
    resting = {sink.names.slot(slot) for slot in decision.resting}
    waited_ms = 0
    if not resting:
        return waited_ms
    for pause_ms in (*PAUSES_MS, None):
        listed = yield from list_open(sink)
        found = yield from described([name for name in listed if name in resting])
        still_open = [each for each in found if each.state == "Ongoing"]
        # A transaction that an earlier decision ended is open for a stale coordinator alone.
        if pause_ms is None or not any(is_decided(sink, decision, each) for each in still_open):
            break
        yield [Pause(pause_ms)]
        waited_ms += pause_ms
    if still_open:
        yield from check_generation(sink, decision.generation)
        first = still_open[0]
        raise AttemptReplaced(
            transactional_id=first.transactional_id,
            expected=str(pinned_in(decision, sink.names.slot_of(first.transactional_id))),
            found=f"{first.state} {Ids.of(first)}",
        )
    return waited_ms


def _check_ages(
    sink: Sink, found: Sequence[TransactionDescription], decision: Decision, *, open_ms: int, waited_ms: int
) -> Steps[None]:
    """Check that the timeout of each transaction is at least LEAST_TIME_LEFT_MS away. Raises as `_check_open`.

    Brokers' times are compared with brokers' times only: the driver's own transaction has just begun, so its start is
    their clock. Most micro-batches are too young to be checked. `waited_ms`: since the driver's transaction began.
    """
    most_ms = sink.timeout_ms - LEAST_TIME_LEFT_MS
    if not found or open_ms + waited_ms <= most_ms:
        return
    (driver,) = yield from described([sink.names.driver])
    for each in found:
        age_ms = driver.start_time_ms - each.start_time_ms + waited_ms
        if age_ms > most_ms:
            raise (yield from _too_late(sink, decision, each, Ids.of(each), age_ms))


def _too_late(
    sink: Sink, decision: Decision, description: TransactionDescription, expected: Ids, age_ms: int
) -> Steps[ExactlyOnceError]:
    (driver,) = yield from described([sink.names.driver])
    if Ids.of(driver) != decision.generation:
        return (yield from _lost(sink, decision))
    if _is_replaced(description, expected):
        return AttemptReplaced(
            transactional_id=description.transactional_id,
            expected=str(expected),
            found=f"{description.state} {Ids.of(description)}",
        )
    return TransactionTimedOut(
        transactional_id=description.transactional_id,
        expected=str(expected),
        found=f"{description.state} {Ids.of(description)}",
        age_ms=age_ms,
        timeout_ms=sink.timeout_ms,
    )


def _is_replaced(description: TransactionDescription, prepared: Ids) -> bool:
    """Return True if InitProducerId has ended the transaction. A timeout leaves an abort, and no further state."""
    if description.producer_id == prepared.producer_id:
        is_later = description.producer_epoch > prepared.producer_epoch
    else:
        # A spent producer id was replaced. Coordinators that have forgotten the transactional id say -1.
        is_later = description.producer_id >= 0
    return is_later and not description.state.endswith("Abort")


def _described_since_begun(
    sink: Sink, slots: Sequence[SlotPrepared]
) -> Steps[tuple[list[TransactionDescription], int]]:
    """Return descriptions of the slots' transactions, and the milliseconds of waiting for them.

    A replaced coordinator answers with old data until it learns of its successor. Epochs never decrease, so a lower
    epoch shows that an answer is stale: then the coordinators are asked again.
    """
    names = [sink.names.slot(each.slot) for each in slots]
    waited_ms = 0
    found = yield from described(names)
    for pause_ms in PAUSES_MS:
        if not any(map(_is_from_before, slots, found)):
            break
        yield [Pause(pause_ms)]
        waited_ms += pause_ms
        found = yield from described(names)
    return found, waited_ms


def _is_from_before(slot: SlotPrepared, description: TransactionDescription) -> bool:
    """Return True if the description may be older than the slot's transaction.

    A different or missing producer id counts as older too, and so does Empty at the slot's own epoch.
    """
    is_same = description.producer_id == slot.ids.producer_id
    raised_by = description.producer_epoch - slot.ids.producer_epoch
    return not is_same or raised_by < 0 or (raised_by == 0 and description.state == "Empty")


def _write_decision(sink: Sink, decision: Decision) -> Steps[None]:
    """Write the decision into the driver's transaction. The end of that transaction makes the decision.

    Raises DriverFenced, TransactionTimedOut.
    """
    names = sink.names
    try:
        for part, text in enumerate(decision.texts(sink.metadata_max_characters)):
            group_id = names.decision(part)
            yield from write_offset(sink, names.driver, decision.generation, group_id, decision.micro_batch_id, text)
    except AttemptFenced:
        raise (yield from _lost(sink, decision)) from None


def _decide(sink: Sink, decision: Decision) -> Steps[None]:
    """Commit the driver's transaction, which makes the decision.

    Before it, no row of the micro-batch can become visible. After it, all rows will.
    """
    pinned = [(sink.names.driver, decision.generation)]
    ((answer, _),) = yield from commit_each(sink, pinned, sink.transaction_version)
    if answer.error_code == ErrorCode.NONE:
        return
    check_definite(answer.error_code, sink.names.driver)
    # Perhaps the EndTxn succeeded and its answer was lost, or another run fenced this one. The decision shows which.
    found = yield from read_decision(sink, barrier=f"decide {decision.generation}")
    if found != decision:
        raise (yield from _lost(sink, decision))


def _lost(sink: Sink, decision: Decision) -> Steps[ExactlyOnceError]:
    """Return the error that says why the driver's ids are no longer valid."""
    generation = decision.generation
    (driver,) = yield from described([sink.names.driver])
    current = Ids.of(driver)
    # A timeout leaves an aborted transaction with an epoch one higher (both versions, seen on 3.9.2 and 4.3.1). A
    # driver that takes the sink over leaves the state Empty.
    if driver.state.endswith("Abort") and current == Ids(generation.producer_id, generation.producer_epoch + 1):
        return TransactionTimedOut(
            transactional_id=driver.transactional_id,
            expected=str(generation),
            found=f"{driver.state} {current}",
            age_ms=sink.timeout_ms,
            timeout_ms=sink.timeout_ms,
        )
    return DriverFenced(sink=sink.names.sink, generation=str(generation), current=str(current))


def _verify(
    sink: Sink, facts: Facts, prepared: Sequence[SlotPrepared], unproved: Sequence[SlotPrepared], *, micro_batch_id: int
) -> Steps[None]:
    """Check that every marker is visible, and end hanging transactions.

    `unproved`: the slots whose coordinators do not prove the commit. There another run may have written the rows and
    the marker again. Raises CommitOutcomeUnknown, VerificationRefused, HangingTransaction.
    """
    expected = {
        each.slot: each.visible or Marker(micro_batch_id, each.query_id, each.fingerprint)
        for each in prepared
        if not each.rests
    }
    markers = yield from read_markers(sink, list(expected))
    missing = [slot for slot, marker in expected.items() if markers.get(slot) != marker]
    if missing:
        markers |= yield from read_markers(sink, missing, barrier=f"verify {facts.generation}")
        missing = [slot for slot in missing if markers.get(slot) != expected[slot]]
    reason = (
        "another program ended the transactions or deleted the slots' consumer groups, or the transactions timed out"
    )
    touched = sorted({partition for each in prepared for partition in each.partitions})
    committed, unsure = _committed(facts, prepared, micro_batch_id), {}
    for each in unproved:
        unsure[each.ids] = sink.names.slot(committed.pop(each.ids))
    if not missing and unsure and touched:
        hanging = yield from still_open(sink, unsure, touched, micro_batch_id)
        names = {each.transactional_id for each in hanging}
        missing = [each.slot for each in unproved if sink.names.slot(each.slot) in names]
        reason = "a leader reports open transactions, and nothing proves if they were committed or aborted"
    if missing:
        raise CommitOutcomeUnknown(
            sink=sink.names.sink,
            micro_batch_id=micro_batch_id,
            visible=sorted(expected.keys() - set(missing)),
            missing=missing,
            reason=reason,
        )
    ours = {ids: sink.names.slot(slot) for ids, slot in committed.items()}
    yield from end_hanging(sink, ours, touched, micro_batch_id)


def _committed(facts: Facts, prepared: Sequence[SlotPrepared], micro_batch_id: int) -> dict[Ids, int]:
    """Return the slots by the ids of the transactions that wrote the visible rows.

    The key has the epoch too, because a later attempt of a slot has the same producer id. A slot that was visible
    before has the ids that the earlier decision pins.
    """
    new = {each.ids: each.slot for each in prepared if each.is_open}
    decided = facts.decision
    if decided is None or (decided.micro_batch_id, decided.query_id) != (micro_batch_id, prepared[0].query_id):
        return new
    visible_before = {each.slot for each in prepared if each.visible is not None}
    return new | {ids: slot for slot, ids in enumerate(decided.pinned) if ids is not None and slot in visible_before}


def forget(sink: Sink, generation: Ids) -> Steps[None]:
    """Delete the groups of a batch write whose name is never used again, when the commit of `generation` has succeeded.

    A decision without its markers would look like missing rows. So its first group is deleted first. Transactional ids
    stay until the brokers expire them, and still show the outcome of the write.

    Raises TransactionRefused and leaves groups behind; the usual cause is a missing ACL GROUP DELETE.

    Source: KIP-229 (DeleteGroups); OffsetMetadataManager.deleteAllOffsets, GroupMetadata.removeAllOffsets in Kafka.
    """
    # Brokers that delete a group also drop its offsets in open transactions. This read waits for their end, so that no
    # offset comes back later.
    decision = yield from read_decision(sink)
    if decision is None or decision.generation != generation:
        return
    first, *others = (sink.names.decision(part) for part, _ in enumerate(decision.texts(sink.metadata_max_characters)))
    yield from _delete([first])
    yield from _delete([*others, *(sink.names.slot(slot) for slot, _ in enumerate(decision.pinned))])


def _delete(group_ids: Sequence[str]) -> Steps[None]:
    answers = yield [
        ToCoordinator(CoordinatorKind.GROUP, group_id, DeleteGroupsRequest((group_id,))) for group_id in group_ids
    ]
    for group_id, answer in zip(group_ids, answers, strict=True):
        (deleted,) = answer.groups
        # GROUP_ID_NOT_FOUND: an earlier request deleted the group, and its answer was lost.
        if deleted.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            check_answer(deleted.error_code, "DeleteGroups", group_id)

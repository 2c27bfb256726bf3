"""State of the brokers that went back: an internal topic lost its last records.

A plan trusts three logs: __consumer_offsets (decisions and markers), __transaction_state (ids and ends), and the topics
themselves. An unclean election, or a single replica that lost its disk or page cache, takes the last records of one
away. Then the others are ahead of it, and show it:

    offsets went back       a coordinator has committed a transaction of a slot that the last decision does not name
    transactions went back  a leader has a later epoch of a slot than the slot's coordinator

Both look alike without a loss, as long as an answer is stale. So answers that may be stale are asked for again. What
cannot be seen: a slot whose next attempt has begun since, because its coordinator then forgets the last end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_sink.commit.handover import Facts, Sink
from kafka_sink.commit.markers import Decision, Ids
from kafka_sink.commit.requests import PAUSES_MS, Pause, Steps, check_generation, described, end_txn, read_markers
from kafka_sink.errors import StateWentBack
from kafka_sink.kafka.protocol.apis.transaction_state import DescribeProducersResponse, TransactionDescription
from kafka_sink.kafka.protocol.error_codes import ErrorCode

_COMMITTED = ("PrepareCommit", "CompleteCommit")
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


def check_offsets(
    sink: Sink, generation: Ids, decision: Decision | None, listed: Sequence[tuple[str, str]]
) -> Steps[None]:
    """Check that the decision explains every commit of its slots. Raises StateWentBack, DriverFenced.

    Call it if a run has begun since the decision, and before any task begins. `listed`: the slots' transactional ids
    and their states. A decision that names no slot is explained by the slots' own markers.
    """
    slots = sorted({sink.names.slot_of(name) for name, state in listed if state in _COMMITTED})
    further: dict[int, TransactionDescription] = {}
    for pause_ms in (*PAUSES_MS, None):
        if decision is None or decision.is_nothing:
            slots, expected = yield from _by_markers(sink, generation, decision, slots)
        else:
            slots = [slot for slot in slots if slot < len(decision.pinned)]
            pinned = {slot: ids for slot in slots if (ids := decision.pinned[slot]) is not None}
            expected = {slot: (ids, decision.transaction_version) for slot, ids in pinned.items()}
        further = yield from _further(sink, slots, expected)
        slots = list(further)
        if any(_raised_by(further[slot], *expected[slot]) > 0 for slot in slots if slot in expected):
            # Epochs never decrease, so this answer is not stale.
            break
        if slots and pause_ms is not None:
            yield [Pause(pause_ms)]
    # An epoch before the expected one is of a coordinator that itself went back, and shows nothing.
    shown = {
        slot: _shown(each)
        for slot, each in further.items()
        if slot not in expected or _raised_by(each, *expected[slot]) >= 0
    }
    if shown:
        yield from check_generation(sink, generation)
        raise _went_back(sink, OFFSETS, decision, shown)


def _by_markers(
    sink: Sink, generation: Ids, decision: Decision | None, slots: Sequence[int]
) -> Steps[tuple[list[int], dict[int, tuple[Ids, int]]]]:
    """Return the slots whose group says that nothing was committed, or nothing at all; and the ids and versions of the
    transactions that wrote so.

    A group without an offset is left out if the decision is gone, too: then tasks refuse to write.
    """
    markers = yield from read_markers(sink, slots, stable=False, barrier=f"back {generation}")
    written_by = {slot: own for slot, marker in markers.items() if (own := marker.written_by) is not None}
    unmarked = [] if decision is None else [slot for slot in slots if slot not in markers]
    return sorted([*written_by, *unmarked]), written_by


def _further(
    sink: Sink, slots: Sequence[int], expected: Mapping[int, tuple[Ids, int]]
) -> Steps[dict[int, TransactionDescription]]:
    """Return the slots' last transactions that were committed and are not the expected ones."""
    described_now = yield from described([sink.names.slot(slot) for slot in slots])
    found = {
        slot: each
        for slot, each in zip(slots, described_now, strict=True)
        if each.state in _COMMITTED
        and not (
            slot in expected
            and each.producer_id == expected[slot][0].producer_id
            and _raised_by(each, *expected[slot]) == 0
        )
    }
    # An EndTxn that is repeated succeeds for the last transaction only: its producer id was spent, and replaced.
    again = [(slot, *expected[slot]) for slot in found if slot in expected]
    repeated = [
        end_txn(sink, sink.names.slot(slot), ids, committed=True, version=version) for slot, ids, version in again
    ]
    answers = (yield repeated) if repeated else []
    for (slot, *_), answer in zip(again, answers, strict=True):
        if answer.error_code == ErrorCode.NONE:
            del found[slot]
    return found


def _raised_by(description: TransactionDescription, ids: Ids, version: int) -> int:
    """Return by how many epochs the description is later than the end of the transaction with these ids. 0 if it is of
    another producer id, which may be an earlier one or a later one. An EndTxn of version 2 raises the epoch."""
    if description.producer_id != ids.producer_id:
        return 0
    return description.producer_epoch - (ids.producer_epoch + version - 1)


def check_transactions(sink: Sink, facts: Facts, leaders: DescribeProducersResponse) -> Steps[None]:
    """Check that no leader has a later epoch of a pinned producer id than its coordinator. Raises as `check_offsets`.

    Normally no leader has an epoch after the decision's, and this sends nothing.
    """
    decision = facts.decision
    assert decision is not None, "leaders are asked for a decision's topics"
    latest: dict[int, int] = {}
    for partition in leaders.partitions:
        for producer in partition.producers:
            epoch = max(producer.producer_epoch, latest.get(producer.producer_id, -1))
            latest[producer.producer_id] = epoch
    raised_by = decision.transaction_version - 1
    ahead = {
        slot: Ids(ids.producer_id, latest[ids.producer_id])
        for slot, ids in enumerate(decision.pinned)
        if ids is not None and latest.get(ids.producer_id, -1) > ids.producer_epoch + raised_by
    }
    for pause_ms in (*PAUSES_MS, None):
        found = yield from described([sink.names.slot(slot) for slot in ahead])
        ahead = {
            slot: ids
            for (slot, ids), each in zip(ahead.items(), found, strict=True)
            if each.producer_id == ids.producer_id and each.producer_epoch < ids.producer_epoch
        }
        if not ahead:
            return
        if pause_ms is not None:
            yield [Pause(pause_ms)]
    yield from check_generation(sink, facts.generation)
    shown = {slot: f"{sink.names.slot(slot)}: leader {ids}" for slot, ids in ahead.items()}
    raise _went_back(sink, TRANSACTIONS, decision, shown)


def _shown(description: TransactionDescription) -> str:
    ids = Ids.of(description)
    return f"{description.transactional_id}: {description.state} {ids}"


def _went_back(sink: Sink, topic: str, decision: Decision | None, found: Mapping[int, str]) -> StateWentBack:
    return StateWentBack(
        sink=sink.names.sink,
        topic=topic,
        decided_micro_batch_id=None if decision is None or decision.is_nothing else decision.micro_batch_id,
        slots=list(found),
        found=list(found.values()),
    )

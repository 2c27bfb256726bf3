"""Leaders and coordinators that disagree: a leader missed the end of a transaction, or ended one that is open.

    COMMIT lost     the leader keeps the transaction open, so readers stop there: wait, then write the COMMIT marker
    ABORT lost      the next attempt's rows join the aborted rows, and a COMMIT would show both: decide nothing
    foreign ABORT   another program aborted on the leader alone, so prepared rows are gone: decide nothing

Source: KAFKA-20734; KIP-664 (DescribeProducers, WriteTxnMarkers).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_sink.commit.handover import Sink, SlotPrepared, command
from kafka_sink.commit.markers import Ids
from kafka_sink.commit.requests import PAUSES_MS, Pause, Steps, ToLeaders, check_generation
from kafka_sink.errors import AbortedRowsOpen, HangingTransaction, PreparedRowsGone, VerificationRefused
from kafka_sink.kafka.protocol.apis.transaction_state import (
    ActiveProducer,
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from kafka_sink.kafka.protocol.apis.transactions import WriteTxnMarkersRequest
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_name
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

# Stands for the start offset of a producer that has no open transaction.
NOTHING_OPEN = -1
# Behind it sequences begin at 0 again.
MAX_SEQUENCE = 2**31 - 1
NO_MARKERS = "the brokers have no WriteTxnMarkers"


def check_leaders(sink: Sink, slots: Sequence[SlotPrepared], *, generation: Ids, micro_batch_id: int) -> Steps[int]:
    """Check on every leader that each slot's transaction begins with the slot's first row and ends with its last one.

    If it begins earlier, the leader missed the abort of an earlier attempt, and a commit would show the aborted rows
    too. If it begins later or not at all, acknowledged rows are in no transaction: somebody aborted it on the leader
    alone, or an unclean election removed the rows. If the leader's last sequence is an earlier one, an unclean election
    removed the last rows. (Each attempt of a slot has an epoch of its own, so its sequences begin at 0.)

    A replaced leader answers with old data until it learns of its successor. So the leaders are asked again for up to
    33 s if an answer may be stale. Returns the milliseconds of this wait, so that the caller can repeat older reads.

    Raises AbortedRowsOpen or PreparedRowsGone (then the micro-batch is aborted), VerificationRefused, DriverFenced.
    """
    written = {
        (*partition, each.ids.producer_id): (each, first)
        for each in slots
        for partition, first in each.first_offsets.items()
    }
    if not written:
        return 0
    waited_ms = 0
    wrong = yield from _begun_elsewhere(sink, written, micro_batch_id)
    for pause_ms in PAUSES_MS:
        if not any(map(_may_be_from_before, wrong)):
            break
        yield [Pause(pause_ms)]
        waited_ms += pause_ms
        wrong = yield from _begun_elsewhere(sink, written, micro_batch_id)
    if wrong:
        if wrong[0].are_rows_gone:
            # Another run's driver may have ended the transaction. Then DriverFenced is the right error.
            yield from check_generation(sink, generation)
        raise wrong[0].error(sink, micro_batch_id)
    return waited_ms


@dataclass(frozen=True, slots=True)
class _Begun:
    """A slot's transaction on a leader, where it differs from what the slot wrote.

    `since`: the leader's start offset, or NOTHING_OPEN. `first`: the offset of the first row, None if unknown.
    `lacks`: how many of the last rows the leader does not have.
    """

    topic: str
    partition: int
    slot: int
    first: int | None
    since: int
    lacks: int = 0

    @property
    def are_rows_gone(self) -> bool:
        return self.since == NOTHING_OPEN or bool(self.lacks) or (self.first is not None and self.since > self.first)

    def error(self, sink: Sink, micro_batch_id: int) -> PreparedRowsGone | AbortedRowsOpen:
        transactional_id = sink.names.slot(self.slot)
        if self.are_rows_gone:
            return PreparedRowsGone(
                micro_batch_id=micro_batch_id,
                topic=self.topic,
                partition=self.partition,
                transactional_id=transactional_id,
                open_since_offset=None if self.since == NOTHING_OPEN else self.since,
                first_offset=self.first,
                lacking_count=self.lacks,
            )
        return AbortedRowsOpen(
            micro_batch_id=micro_batch_id,
            topic=self.topic,
            partition=self.partition,
            transactional_id=transactional_id,
            open_since_offset=self.since,
            first_offset=self.first,
        )


def _may_be_from_before(begun: _Begun) -> bool:
    """Return True if the leader's answer may be older than the slot's first row."""
    return begun.since == NOTHING_OPEN or bool(begun.lacks) or (begun.first is not None and begun.since < begun.first)


def _begun_elsewhere(
    sink: Sink, written: Mapping[tuple[str, int, int], tuple[SlotPrepared, int | None]], micro_batch_id: int
) -> Steps[list[_Begun]]:
    """Return the slots' transactions that do not have just the slot's rows. Raises VerificationRefused.

    `written`: the slot and the offset of its first row, by topic, partition and producer id.
    """
    touched = sorted({TopicPartition(topic, partition) for topic, partition, _ in written})
    answer = yield from producers(sink, touched, micro_batch_id, committed=False)
    there = {
        (found.topic, found.partition, producer.producer_id): producer
        for found in answer.partitions
        for producer in found.producers
    }
    begun = [
        _Begun(
            *where[:2],
            slot.slot,
            first,
            since=NOTHING_OPEN if (producer := there.get(where)) is None else producer.current_txn_start_offset,
            lacks=_lacking(slot, TopicPartition(*where[:2]), producer),
        )
        for where, (slot, first) in written.items()
    ]
    return [each for each in begun if each.since != each.first or each.lacks]


def _lacking(slot: SlotPrepared, partition: TopicPartition, producer: ActiveProducer | None) -> int:
    """Return how many of the slot's last records the leader does not have, 0 if it does not tell."""
    count = slot.record_counts.get(partition, 0)
    if producer is None or producer.last_sequence < 0 or count > MAX_SEQUENCE:
        return 0
    return max(0, count - 1 - producer.last_sequence)


@dataclass(frozen=True, slots=True)
class Hanging:
    """A transaction that its coordinator has ended and a leader still has open.

    `coordinator_epoch`: the epoch in the producer's last marker on this partition, -1 if it has none.
    """

    topic: str
    partition: int
    transactional_id: str
    ids: Ids
    start_offset: int
    coordinator_epoch: int


def end_hanging(
    sink: Sink,
    ours: Mapping[Ids, str],
    touched: Sequence[TopicPartition],
    micro_batch_id: int,
    leaders: DescribeProducersResponse | None = None,
) -> Steps[None]:
    """Wait up to 33 s until the leaders of `touched` have ended the transactions `ours`, which are all committed.

    Then write COMMIT markers to the leaders that still have one open (KAFKA-20734). `ours`: transactional ids by
    producer id and epoch. `leaders`: what the leaders have just answered, if they were asked. Raises
    VerificationRefused, HangingTransaction.
    """
    if not touched:
        return
    hanging = _open_of(leaders, ours) if leaders else (yield from still_open(sink, ours, touched, micro_batch_id))
    for pause_ms in PAUSES_MS:
        if not hanging:
            return
        yield [Pause(pause_ms)]
        hanging = yield from still_open(sink, ours, touched, micro_batch_id)
    if not hanging:
        return
    reasons = yield from write_commit_markers(hanging)
    refused = {(each.topic, each.partition): reason for each, reason in zip(hanging, reasons, strict=True)}
    # Look again even if a marker was refused: another run may have ended the transaction in the meantime.
    still = yield from still_open(sink, ours, touched, micro_batch_id)
    if still:
        reason = refused.get((still[0].topic, still[0].partition))
        raise _hanging(
            sink, still[0], reason or "the leader accepted a marker from WriteTxnMarkers, and still has it open"
        )


def write_commit_markers(hanging: Sequence[Hanging]) -> Steps[list[str]]:
    """Write COMMIT markers to the leaders for committed transactions, as the coordinators should have done.

    Never write ABORT: it would remove committed rows, while other rows of the micro-batch are visible. The marker has
    the epoch of the transaction, not the coordinator's current epoch. A leader refuses a marker with an earlier epoch
    than its own, so a late marker cannot commit a later attempt of the slot.

    Returns for each transaction the reason of a refusal, "" if there was none.
    """
    answers = yield [
        ToLeaders(
            WriteTxnMarkersRequest(
                producer_id=each.ids.producer_id,
                producer_epoch=each.ids.producer_epoch,
                committed=True,
                # A leader refuses a marker with an earlier coordinator epoch than its last one. -1: it has had none.
                coordinator_epoch=max(0, each.coordinator_epoch),
                partitions=(TopicPartition(each.topic, each.partition),),
            )
        )
        for each in hanging
    ]
    return [_refusal(answer.results[0].error_code) for answer in answers]


def _refusal(code: int) -> str:
    if code == ErrorCode.UNSUPPORTED_VERSION:
        return NO_MARKERS
    return "" if code == ErrorCode.NONE else f"WriteTxnMarkers was refused: {error_name(code)}"


def _hanging(sink: Sink, hanging: Hanging, reason: str) -> HangingTransaction:
    return HangingTransaction(
        topic=hanging.topic,
        partition=hanging.partition,
        transactional_id=hanging.transactional_id,
        producer_id=hanging.ids.producer_id,
        start_offset=hanging.start_offset,
        reason=reason,
        command="" if reason == NO_MARKERS else command(sink, "repair", topic=hanging.topic),
    )


def still_open(
    sink: Sink, ours: Mapping[Ids, str], touched: Sequence[TopicPartition], micro_batch_id: int
) -> Steps[list[Hanging]]:
    """Return the transactions of `ours` that leaders have open. Raises VerificationRefused."""
    return _open_of((yield from producers(sink, touched, micro_batch_id, committed=True)), ours)


def _open_of(leaders: DescribeProducersResponse, ours: Mapping[Ids, str]) -> list[Hanging]:
    return [
        Hanging(
            found.topic, found.partition, ours[ids], ids, producer.current_txn_start_offset, producer.coordinator_epoch
        )
        for found in leaders.partitions
        for producer in found.producers
        if (ids := Ids.of(producer)) in ours and producer.current_txn_start_offset >= 0
    ]


def producers(
    sink: Sink, partitions: Sequence[TopicPartition], micro_batch_id: int, *, committed: bool
) -> Steps[DescribeProducersResponse]:
    """Return the leaders' producer states. `committed`: for the error's text. Raises VerificationRefused."""
    (answer,) = yield [ToLeaders(DescribeProducersRequest(partitions=tuple(partitions)))]
    for found in answer.partitions:
        if found.error_code != ErrorCode.NONE:
            raise VerificationRefused(
                sink=sink.names.sink,
                micro_batch_id=micro_batch_id,
                topic=found.topic,
                partition=found.partition,
                code=found.error_code,
                name=error_name(found.error_code),
                committed=committed,
            )
    response: DescribeProducersResponse = answer
    return response

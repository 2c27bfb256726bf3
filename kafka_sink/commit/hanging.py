"""What leaders did not hear of: transactions that their coordinators have ended, and that they have open even so.

    COMMIT lost   readers see nothing behind it: wait for it, then write the marker in the coordinator's place
    ABORT lost    the next attempt's rows join the aborted ones, and their COMMIT would show both: nothing is decided
    ABORT of others' making   rows of a transaction that its coordinator has open are gone: nothing is decided

Source: KAFKA-20734; KIP-664 (DescribeProducers, WriteTxnMarkers).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_sink.commit.effects import PAUSES_MS, Pause, Steps, ToLeaders
from kafka_sink.commit.exchanges import check_generation
from kafka_sink.commit.handover import Sink, SlotPrepared, command
from kafka_sink.commit.markers import Ids
from kafka_sink.errors import AbortedRowsOpen, HangingTransaction, PreparedRowsGone, VerificationRefused
from kafka_sink.kafka.protocol.apis.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
)
from kafka_sink.kafka.protocol.apis.write_txn_markers import (
    WriteTxnMarkersRequest,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_name
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

# Instead of an offset at which a producer's transaction begins.
NOTHING_OPEN = -1


def check_leaders(sink: Sink, slots: Sequence[SlotPrepared], *, generation: Ids, micro_batch_id: int) -> Steps[int]:
    """That each transaction begins, on every leader, with the first row of the slot's.

    Where it begins before, the leader did not hear of the end of an aborted attempt, whose rows a commit would take
    along. Where it begins later or not at all, acknowledged rows are in no transaction any more: somebody aborted it on
    the leader alone, which the coordinator does not know, or an unclean election took them.

    A stale leader, whose place another took, answers by what it knew, until it learns of its successor. So an answer
    that may be stale is asked for again, for half a minute. Returns the milliseconds of this wait: what was read before
    it is that old.

    Raises AbortedRowsOpen or PreparedRowsGone, after which the rest is aborted; VerificationRefused; DriverFenced.
    """
    written = {
        (topic, partition, each.ids.producer_id): (each, first)
        for each in slots
        for (topic, partition), first in each.first_offsets.items()
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
            # Another run's driver may have ended it: nothing is lost.
            yield from check_generation(sink, generation)
        raise wrong[0].error(sink, micro_batch_id)
    return waited_ms


@dataclass(frozen=True, slots=True)
class _Begun:
    """Where a leader has a slot's transaction begin, NOTHING_OPEN or `since`, and not with its `first` row; None: which
    that is was not said."""

    topic: str
    partition: int
    slot: int
    first: int | None
    since: int

    @property
    def are_rows_gone(self) -> bool:
        return self.since == NOTHING_OPEN or (self.first is not None and self.since > self.first)

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
    """Whether a leader can have said so before the slot's first row came to it."""
    return begun.since == NOTHING_OPEN or (begun.first is not None and begun.since < begun.first)


def _begun_elsewhere(
    sink: Sink, written: Mapping[tuple[str, int, int], tuple[SlotPrepared, int | None]], micro_batch_id: int
) -> Steps[list[_Begun]]:
    """Of what slots have `written`, by topic, partition and producer id, with the first offset. Raises
    VerificationRefused."""
    touched = sorted({TopicPartition(topic, partition) for topic, partition, _ in written})
    answer = yield from _producers(sink, touched, micro_batch_id, committed=False)
    began = {
        (found.topic, found.partition, producer.producer_id): producer.current_txn_start_offset
        for found in answer.partitions
        for producer in found.producers
    }
    return [
        _Begun(*where[:2], slot.slot, first, since)
        for where, (slot, first) in written.items()
        if (since := began.get(where, NOTHING_OPEN)) != first
    ]


@dataclass(frozen=True, slots=True)
class Hanging:
    """A leader has not ended a transaction that its coordinator has. `coordinator_epoch`: of the producer's last marker
    on this partition."""

    topic: str
    partition: int
    transactional_id: str
    ids: Ids
    start_offset: int
    coordinator_epoch: int


def end_hanging(
    sink: Sink, ours: Mapping[Ids, str], touched: Sequence[TopicPartition], micro_batch_id: int
) -> Steps[None]:
    """Waits for the leaders of the partitions `touched` to end the transactions `ours`, transactional ids by
    the producer's, all of them committed; and has them do it where the coordinators did not (KAFKA-20734).

    Raises VerificationRefused, HangingTransaction.
    """
    hanging = (yield from still_open(sink, ours, touched, micro_batch_id)) if touched else []
    for pause_ms in PAUSES_MS:
        if not hanging:
            return
        yield [Pause(pause_ms)]
        hanging = yield from still_open(sink, ours, touched, micro_batch_id)
    if not hanging:
        return
    reasons = yield from write_commit_markers(hanging)
    refused = {(each.topic, each.partition): reason for each, reason in zip(hanging, reasons, strict=True)}
    # Also where it was refused: another run may have ended it in the meantime, and gone on.
    still = yield from still_open(sink, ours, touched, micro_batch_id)
    if still:
        reason = refused.get((still[0].topic, still[0].partition))
        raise _hanging(
            sink, still[0], reason or "the leader took a marker from WriteTxnMarkers, and has it open even so"
        )


def write_commit_markers(hanging: Sequence[Hanging]) -> Steps[list[str]]:
    """COMMIT, in the coordinators' place, for transactions that are committed; never ABORT, which would take rows away
    that others of the micro-batch are visible with. Returns why one was refused, by transaction; empty if it was not.

    With the epoch of the transaction itself, not with the one that its coordinator has now: a leader refuses a marker
    of an earlier epoch than its own, so that one which comes late cannot commit what a later attempt of the slot has
    open there.
    """
    answers = yield [
        ToLeaders(
            WriteTxnMarkersRequest(
                producer_id=each.ids.producer_id,
                producer_epoch=each.ids.producer_epoch,
                committed=True,
                # A leader takes none of an earlier coordinator than its last one; -1 where it has had none.
                coordinator_epoch=max(0, each.coordinator_epoch),
                partitions=(TopicPartition(each.topic, each.partition),),
            )
        )
        for each in hanging
    ]
    codes = [answer.results[0].error_code for answer in answers]
    return ["" if code == ErrorCode.NONE else f"WriteTxnMarkers was refused: {error_name(code)}" for code in codes]


def _hanging(sink: Sink, hanging: Hanging, reason: str) -> HangingTransaction:
    return HangingTransaction(
        topic=hanging.topic,
        partition=hanging.partition,
        transactional_id=hanging.transactional_id,
        producer_id=hanging.ids.producer_id,
        start_offset=hanging.start_offset,
        reason=reason,
        command=command(sink, "repair", topic=hanging.topic),
    )


def still_open(
    sink: Sink, ours: Mapping[Ids, str], touched: Sequence[TopicPartition], micro_batch_id: int
) -> Steps[list[Hanging]]:
    """Which of `ours` the leaders have open. Raises VerificationRefused."""
    answer = yield from _producers(sink, touched, micro_batch_id, committed=True)
    return [
        Hanging(
            found.topic, found.partition, ours[ids], ids, producer.current_txn_start_offset, producer.coordinator_epoch
        )
        for found in answer.partitions
        for producer in found.producers
        if (ids := Ids(producer.producer_id, producer.producer_epoch)) in ours
        and producer.current_txn_start_offset >= 0
    ]


def _producers(
    sink: Sink, partitions: Sequence[TopicPartition], micro_batch_id: int, *, committed: bool
) -> Steps[DescribeProducersResponse]:
    """What the leaders know of producers. Raises VerificationRefused."""
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

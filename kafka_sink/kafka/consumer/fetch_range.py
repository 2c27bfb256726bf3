"""A range of one partition, and what a reader finds in it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka.metadata import NO_EPOCH, NO_LEADER
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.records.record_batch import AbortedTransaction


@dataclass(frozen=True, slots=True)
class FetchRange:
    """The offsets from `first` to before `end` of a partition.

    `topic_id`: that of the topic when the range was planned; None if the brokers have no ids.
    `leader_epoch`: the partition's leader epoch when the log was seen to reach `end`; NO_EPOCH if unknown.
    `record_epoch`: that of the leader that wrote the last record before `end`; NO_EPOCH if unknown. `record_start`:
    where the records of that leader begin.
    `leader`: the node that led when the range was planned, for `divide.packed`; NO_LEADER if unknown, as in streams.
    """

    topic: str
    topic_id: uuid.UUID | None
    partition: int
    first: int
    end: int
    leader_epoch: int = NO_EPOCH
    record_epoch: int = NO_EPOCH
    record_start: int = 0
    leader: int = field(default=NO_LEADER, compare=False)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class RecordSet:
    """The answer of one Fetch request: record batches, a view of the received bytes. The last one may be cut off.

    `offset`: the first offset that is wanted of it; the first batch may begin before. `end`: before which they are
    wanted; that of the range, or where a log parts that was truncated since. `next_offset`: after its last whole batch,
    or after the one that reaches `end`. `has_records`: False if compaction has emptied its batches.
    """

    offset: int
    end: int
    next_offset: int
    records: memoryview
    aborted_transactions: tuple[AbortedTransaction, ...]
    has_records: bool = True


@dataclass(frozen=True, slots=True)
class Loss:
    """The offsets from `first` to before `end` cannot be read. For a truncation, `first` is where the logs part, and a
    part may have been handed over before."""

    first: int
    end: int
    cause: LossCause


def parts_at(record_epoch: int, record_start: int, *, epoch: int, end: int) -> int:
    """Return up to where another log has the same records as one whose last records are of `record_epoch`, from
    `record_start` on. -1: nobody knows.

    `epoch`, `end`: the answer to OffsetForLeaderEpoch, asked for `record_epoch`. If the other log has no record of the
    asked one, it names an earlier epoch, or no epoch and no end (both -1). Then the logs part where these records
    begin, or before. Java's consumer only looks at `end` (SubscriptionState.maybeCompleteValidation).
    """
    return min(end, record_start) if epoch < record_epoch else end


def after_out_of_range(position: int, earliest: int, latest: int) -> LossCause | None:
    """Return why `position` is not in a log that goes from `earliest` to before `latest`. None: it is, so the answer
    that it is not was late.

    Source: org.apache.spark.sql.kafka010.consumer.KafkaDataConsumer.getEarliestAvailableOffsetBetween.
    """
    if position < earliest:
        return LossCause.DELETED
    return LossCause.TRUNCATED if position > latest else None

"""What became of the rows of one write: the proof that its commit message carries.

The accumulator counts a batch in when it opens one for the write, the Sender counts it out with the leader's answer.
A write is delivered when nothing is pending and nothing failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.producer.runs import AcknowledgedBatch, Runs
from kafka_sink.kafka.protocol.topic_partition import TopicPartition


class RefusedRow(NamedTuple):
    """A record that its leader refused, and not the others of its batch. `body`: as of `records_at`."""

    topic_partition: TopicPartition
    timestamp_ms: int
    body: bytes


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """What the leader of one partition acknowledged to one write; with acks=0, what was sent to it.

    `first_offset` and `last_offset` are inclusive; other writers' records may lie between them, so `record_count` is
    counted and not derived. They are None if the only answer was "written before" without saying where, and with
    acks=0, which has no answers.
    `batch_bytes` is the size of the record batches in the log, headers and compression included.
    """

    topic: str
    partition: int
    record_count: int
    first_offset: int | None
    last_offset: int | None
    batch_count: int
    batch_bytes: int

    def plus(self, other: PartitionOffsets) -> PartitionOffsets:
        """What `self` and `other`, of the same partition, acknowledge together."""
        first_offsets = [one.first_offset for one in (self, other) if one.first_offset is not None]
        last_offsets = [one.last_offset for one in (self, other) if one.last_offset is not None]
        return PartitionOffsets(
            self.topic,
            self.partition,
            record_count=self.record_count + other.record_count,
            first_offset=min(first_offsets, default=None),
            last_offset=max(last_offsets, default=None),
            batch_count=self.batch_count + other.batch_count,
            batch_bytes=self.batch_bytes + other.batch_bytes,
        )


class Acknowledgements:
    """The ledger of one write. Guarded by the accumulator's lock. `runs`: where each batch went, for who wants that; to
    be set before the first row."""

    def __init__(self) -> None:
        self.runs: Runs | None = None
        self.pending_batches = 0
        self.failure: KafkaSinkError | None = None
        # The brokers that acknowledged batches under their topic's name, and not its id (Produce < 13).
        self.takers_by_name: set[int] = set()
        # Not None: rows that a leader refuses are left out, and come here for the write to account for. That takes them
        # out without the lock.
        self.refused: deque[RefusedRow] | None = None
        # Of whose rows that is not so.
        self.dead_letter_topic: str | None = None
        self._by_partition: dict[TopicPartition, PartitionOffsets] = {}

    @property
    def settled(self) -> bool:
        """Nothing more is to come: every batch was answered, or the write has failed."""
        return self.pending_batches == 0 or self.failure is not None

    def opened(self, batch_count: int = 1) -> None:
        self.pending_batches += batch_count

    def split(self, part_count: int) -> None:
        """Instead of one batch, `part_count` will be acknowledged, 0 where nothing is left of it."""
        self.pending_batches += part_count - 1

    def leaves_out(self, topic: str) -> bool:
        """Whether rows of `topic` that a leader refuses are left out, and do not fail the write."""
        return self.refused is not None and topic != self.dead_letter_topic

    def leave_out(self, refused: Iterable[RefusedRow]) -> None:
        assert self.refused is not None
        self.refused.extend(refused)

    def acknowledged(self, batch: AcknowledgedBatch, base_offset: int | None) -> None:
        """The leader has `batch`, at `base_offset`; None when it remembers having it but not where, or says nothing."""
        self.pending_batches -= 1
        here = batch.topic_partition
        receipt = PartitionOffsets(
            *here,
            record_count=batch.record_count,
            first_offset=base_offset,
            last_offset=None if base_offset is None else base_offset + batch.record_count - 1,
            batch_count=1,
            batch_bytes=batch.size_bytes,
        )
        before = self._by_partition.get(here)
        self._by_partition[here] = receipt if before is None else before.plus(receipt)
        if self.runs is not None:
            self.runs.acknowledged(batch, base_offset)

    def failed(self, error: KafkaSinkError) -> None:
        """A batch will not be acknowledged: the first reason is the one the user sees."""
        self.pending_batches -= 1
        if self.failure is None:
            self.failure = error

    def partitions(self) -> tuple[PartitionOffsets, ...]:
        """One receipt a partition, sorted by topic and partition."""
        return tuple(self._by_partition[key] for key in sorted(self._by_partition))

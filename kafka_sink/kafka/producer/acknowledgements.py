"""The results of the rows of one write. They are the proof in the task's commit message.

The accumulator adds a batch to the count when it opens the batch. The Sender removes it with the leader's answer. A
write is delivered when no batch is pending and none has failed. If a receipt file is configured (option receiptsPath),
the write also keeps a run for each batch: where it was written, in packed form.
"""

from __future__ import annotations

import struct
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

if TYPE_CHECKING:
    from kafka_sink.kafka.producer.producer_batch import ProducerBatch

# --- runs -------------------------------------------------------------------------------------------------------------

NO_OFFSET = -1
"""The leader has the batch but gave no offset: the answer "written before", or acks=0."""

RUN = np.dtype(
    [
        ("place", "<i4"),  # of the partition in PackedRuns.partitions
        ("record_count", "<i4"),
        ("base_offset", "<i8"),
        ("base_timestamp", "<i8"),
        ("batch_bytes", "<i4"),
        ("checksum", "<u4"),
        ("retries", "<i4"),
    ]
)
"""One acknowledged record batch: `record_count` records from `base_offset` on, without a gap.

`checksum` is the CRC-32C of its records section before compression. If the records are read back and encoded again, it
is equal if and only if the records are equal, with their places and times. The times are differences to
`base_timestamp`, which readers do not get, so it is kept too.
"""
_RUN = struct.Struct("<iiqqiIi")


@dataclass(frozen=True, slots=True)
class PackedRuns:
    """`data`: RUN after RUN, in the order of acknowledgement."""

    partitions: tuple[TopicPartition, ...] = ()
    data: bytes = b""

    @property
    def columns(self) -> npt.NDArray[np.void]:
        """RUN[n], read-only."""
        return np.frombuffer(self.data, RUN)


class Runs:
    """The runs of one write, in the order of acknowledgement. Guarded by the accumulator's lock."""

    def __init__(self) -> None:
        self._places: dict[TopicPartition, int] = {}
        self._data = bytearray()

    def acknowledged(self, batch: ProducerBatch, base_offset: int | None) -> None:
        assert batch.checksum is not None, "a batch whose write keeps runs is summed when it is closed"
        self._data += _RUN.pack(
            self._places.setdefault(batch.topic_partition, len(self._places)),
            batch.record_count,
            NO_OFFSET if base_offset is None else base_offset,
            batch.base_timestamp,
            batch.size_bytes,
            batch.checksum,
            batch.attempts - 1,
        )

    def packed(self) -> PackedRuns:
        return PackedRuns(tuple(self._places), bytes(self._data))


# --- acknowledgements -------------------------------------------------------------------------------------------------


class RefusedRow(NamedTuple):
    """A record that its leader refused alone, not its whole batch. `body`: as in `records_at`."""

    topic_partition: TopicPartition
    timestamp_ms: int
    body: bytes


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """What the leader of one partition acknowledged to one write. With acks=0, what was sent to the leader.

    `first_offset` and `last_offset` are inclusive. Records of other writers may lie between them, so `record_count` is
    counted, not derived. The offsets are None if the only answer was "written before" without an offset, and with
    acks=0, which has no answers.
    `batch_bytes` is the size of the record batches in the log, with headers, after compression.
    """

    topic: str
    partition: int
    record_count: int
    first_offset: int | None
    last_offset: int | None
    batch_count: int
    batch_bytes: int

    def plus(self, other: PartitionOffsets) -> PartitionOffsets:
        """Return the sum of `self` and `other`, which are of the same partition."""
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
    """The ledger of one write. Guarded by the accumulator's lock. `runs`: where each batch was written, if wanted; set
    it before the first row."""

    def __init__(self) -> None:
        self.runs: Runs | None = None
        self.pending_batches = 0
        self.failure: KafkaSinkError | None = None
        # The brokers that acknowledged batches by topic name instead of topic id (Produce < 13).
        self.takers_by_name: set[int] = set()
        # If not None, rows that a leader refuses are left out and added here. The write removes them without the lock.
        self.refused: deque[RefusedRow] | None = None
        # The topic whose refused rows are not left out.
        self.dead_letter_topic: str | None = None
        # Topic -> how often records were sent again.
        self.retried: Counter[str] = Counter()
        # Answers to Produce, and the throttle times in them: their sum and the longest.
        self.answers = 0
        self.throttle_ms = 0
        self.longest_throttle_ms = 0
        self._by_partition: dict[TopicPartition, PartitionOffsets] = {}

    @property
    def settled(self) -> bool:
        """True if every batch is answered or the write has failed."""
        return self.pending_batches == 0 or self.failure is not None

    def answered(self, throttle_ms: int) -> None:
        """Count an answer to Produce, and its throttle time: 0 if the broker does not throttle."""
        self.answers += 1
        self.throttle_ms += throttle_ms
        self.longest_throttle_ms = max(self.longest_throttle_ms, throttle_ms)

    def opened(self, batch_count: int = 1) -> None:
        self.pending_batches += batch_count

    def split(self, part_count: int) -> None:
        """Count `part_count` batches instead of one. 0 if nothing is left of the batch."""
        self.pending_batches += part_count - 1

    def leaves_out(self, topic: str) -> bool:
        """Return True if rows of `topic` that a leader refuses are left out instead of failing the write."""
        return self.refused is not None and topic != self.dead_letter_topic

    def leave_out(self, refused: Iterable[RefusedRow]) -> None:
        assert self.refused is not None
        self.refused.extend(refused)

    def acknowledged(self, batch: ProducerBatch, base_offset: int | None) -> None:
        """Count `batch`, written at `base_offset`. None if the leader does not know the offset, or does not answer."""
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
        """Count a batch that will not be acknowledged. The user sees the first error."""
        self.pending_batches -= 1
        if self.failure is None:
            self.failure = error

    def partitions(self) -> tuple[PartitionOffsets, ...]:
        """Return one receipt per partition, sorted by topic and partition."""
        return tuple(self._by_partition[key] for key in sorted(self._by_partition))

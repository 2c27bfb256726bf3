"""The runs of one write for a receipt file (option receiptsPath): where each record batch was written, in packed form.

A run is one acknowledged record batch: `record_count` records from `base_offset` on, without a gap. Its checksum is the
CRC-32C of its records section before compression. If the records are read back and encoded again, the checksum is equal
if and only if the records are equal, with their places and times. The times are differences to `base_timestamp`, which
readers do not get, so it is kept too.

Runs are kept only if a receipt file is configured. A run takes RUN.itemsize bytes, in the write and in the task's
commit message, for a record batch of up to 1 MiB of rows.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kafka_sink.kafka.protocol.topic_partition import TopicPartition

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
_RUN = struct.Struct("<iiqqiIi")


class AcknowledgedBatch(Protocol):
    """The fields of a batch that a run keeps. `size_bytes`: on the wire. `checksum`: CRC-32C of the records before
    compression; None if no runs are kept. `attempts`: how often the batch was sent."""

    topic_partition: TopicPartition
    record_count: int
    base_timestamp: int
    checksum: int | None
    attempts: int

    @property
    def size_bytes(self) -> int: ...


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

    def acknowledged(self, batch: AcknowledgedBatch, base_offset: int | None) -> None:
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

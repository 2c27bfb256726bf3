"""Rows of one Arrow batch, sorted by the partition they go to, and how far each partition's run has been placed.

One counting sort an Arrow batch; from here on a partition's rows are a slice.
"""

from __future__ import annotations

import uuid

import numpy as np
import numpy.typing as npt

from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.kernel import KERNEL, Kernel
from kafka_sink.records.record_size import lone_batch_size, lone_batch_sizes

Int64s = npt.NDArray[np.int64]


class RoutedRows:
    """`destination[i]` (int64[n]) is row i's index into `destinations`, the write's, to which later rows may add;
    `topic_ids[d]` is the id under which the topic of `destinations[d]` was known when the rows were routed: a topic of
    that name with another id is another topic. `largest_bytes`: of an uncompressed batch of the largest row alone; 0
    without rows.

    After construction "row" means a position in wire order. `next_row[d]`: the first row of destination d that no batch
    has yet; `end_row[d]`: one past its last. What has been placed is never looked at again.
    """

    def __init__(
        self,
        columns: RecordColumns,
        destination: Int64s,
        destinations: list[TopicPartition],
        topic_ids: list[uuid.UUID | None],
        kernel: Kernel = KERNEL,
    ) -> None:
        order, counts = kernel.wire_order(destination, len(destinations))
        self.destinations = destinations
        self.topic_ids = topic_ids
        self.end_row: Int64s = np.cumsum(counts)
        self.next_row: Int64s = self.end_row - counts
        self.encoder = kernel.encoder(columns, order)
        sizes = self.encoder.payload_sizes
        self.largest_bytes = lone_batch_size(int(sizes.max())) if sizes.size else 0
        self._order = order
        # In the order of the Arrow batch.
        self.destination = destination
        self._timestamp_ms = columns.timestamp_ms

    def timestamp_ms(self, rows: Int64s) -> Int64s:
        """int64[k]: timestamps of `rows` (int64[k])."""
        return self._timestamp_ms[self._order[rows]]

    def lone_batch_bytes(self, rows: Int64s) -> Int64s:
        """int64[k]: bytes of an uncompressed batch of each of `rows` (int64[k]) alone."""
        return lone_batch_sizes(self.encoder.payload_sizes[self._order[rows]])

    def unplaced(self) -> Int64s:
        """Destinations that have rows left."""
        return np.flatnonzero(self.next_row < self.end_row)

    def unplaced_count(self) -> int:
        """Rows that no batch has yet."""
        return int((self.end_row - self.next_row).sum())

    def largest(self) -> tuple[TopicPartition, int] | None:
        """The row that takes most bytes as a batch of its own: where it goes and how many; None without rows."""
        sizes = self.encoder.payload_sizes
        return (self.destinations[self.destination[sizes.argmax()]], self.largest_bytes) if sizes.size else None

    def needed_bytes(self, buffer_bytes: int) -> int:
        """The smallest buffer that would take the next row of the first destination that waits."""
        return max(buffer_bytes, int(self.lone_batch_bytes(self.next_row[self.unplaced()[:1]])[0]))

"""Rows of one Arrow batch, sorted by partition, and how many rows of each partition are already placed.

One counting sort per Arrow batch makes a partition's rows a slice.
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
    """`destination[i]` (int64[n]) is row i's index into `destinations`, the write's list, to which later rows may add.
    `topic_ids[d]` is the topic id of `destinations[d]` when the rows were routed. A topic of the same name with another
    id is another topic. `largest_bytes`: the size of an uncompressed batch of only the largest row; 0 without rows.

    After construction "row" means a position in wire order. `next_row[d]`: the first row of destination d without a
    batch.
    `end_row[d]`: one past its last row. Placed rows are never read again.
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
        """Return int64[k]: timestamps of `rows` (int64[k])."""
        return self._timestamp_ms[self._order[rows]]

    def lone_batch_bytes(self, rows: Int64s) -> Int64s:
        """Return int64[k]: for each of `rows` (int64[k]), the bytes of an uncompressed batch of only this row."""
        return lone_batch_sizes(self.encoder.payload_sizes[self._order[rows]])

    def unplaced(self) -> Int64s:
        """Return the destinations that have rows left."""
        return np.flatnonzero(self.next_row < self.end_row)

    def unplaced_count(self) -> int:
        """Return the number of rows without a batch."""
        return int((self.end_row - self.next_row).sum())

    def largest(self) -> tuple[TopicPartition, int] | None:
        """Return the destination and size of the row that is largest as a batch of its own, or None without rows."""
        sizes = self.encoder.payload_sizes
        return (self.destinations[self.destination[sizes.argmax()]], self.largest_bytes) if sizes.size else None

    def needed_bytes(self, buffer_bytes: int) -> int:
        """Return the smallest buffer size that takes the next row of the first waiting destination."""
        return max(buffer_bytes, int(self.lone_batch_bytes(self.next_row[self.unplaced()[:1]])[0]))

"""Rows of one Arrow batch, sorted by the partition they go to, and how far each partition's run has been placed.

One counting of destinations and one stable sort an Arrow batch; from here on a partition's rows are a slice.
"""

from __future__ import annotations

import uuid

import numpy as np
import numpy.typing as npt

from kafka_sink.producer.receipts import TopicPartition
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.encoder import RecordEncoder

Int64s = npt.NDArray[np.int64]


class RoutedRows:
    """`destination[i]` (int array of n) is row i's index into `destinations`; `topic_ids[d]` is the id under which the
    topic of `destinations[d]` was known when the rows were routed: a topic of that name with another id is another
    topic.

    After construction "row" means a position in wire order. `next_row[d]`: the first row of destination d that no batch
    has yet; `end_row[d]`: one past its last. What has been placed is never looked at again.
    """

    def __init__(
        self,
        columns: RecordColumns,
        destination: Int64s,
        destinations: list[TopicPartition],
        topic_ids: list[uuid.UUID | None],
    ) -> None:
        order = np.argsort(destination, kind="stable").astype(np.int64, copy=False)
        counts = np.bincount(destination, minlength=len(destinations))
        self.destinations = destinations
        self.topic_ids = topic_ids
        self.end_row: Int64s = np.cumsum(counts)
        self.next_row: Int64s = self.end_row - counts
        self.timestamp_ms: Int64s = columns.timestamp_ms[order]
        self.encoder = RecordEncoder(columns, order)
        self.lone_batch_bytes: Int64s = self.encoder.lone_batch_sizes()

    def unplaced(self) -> Int64s:
        """Destinations that have rows left."""
        return np.flatnonzero(self.next_row < self.end_row)

    def unplaced_count(self) -> int:
        """Rows that no batch has yet."""
        return int((self.end_row - self.next_row).sum())

    def largest(self) -> tuple[TopicPartition, int] | None:
        """The row that takes most bytes as a batch of its own: where it goes and how many; None without rows."""
        if not self.lone_batch_bytes.size:
            return None
        row = int(self.lone_batch_bytes.argmax())
        destination = int(np.searchsorted(self.end_row, row, side="right"))
        return self.destinations[destination], int(self.lone_batch_bytes[row])

    def needed_bytes(self, buffer_bytes: int) -> int:
        """The smallest buffer that would take the next row of the first destination that waits."""
        row = self.next_row[self.unplaced()[0]]
        return max(buffer_bytes, int(self.lone_batch_bytes[row]))

"""Assigns each row to a topic and partition, and sorts the rows by partition.

A write has one Router. For each topic it remembers the partition for the next rows without a key, and how many
partitions the topic had when the write first saw it. Keys are spread over that many partitions. So a key keeps its
partition for the whole task, even if the topic gets more partitions meanwhile. Other rows may use new partitions: rows
that name a partition, and rows without a key.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_sink.errors import TopicNameInvalid, TopicNull
from kafka_sink.errors.quoting import is_topic_name, shown
from kafka_sink.kafka.metadata import TopicSnapshot
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.kernel import KERNEL, Kernel
from kafka_sink.records.partitioner import PARTITIONERS, RowPartitioner, Spreader
from kafka_sink.records.record_size import lone_batch_size, lone_batch_sizes

Int64s = npt.NDArray[np.int64]


class RoutedRows:
    """Rows of one Arrow batch, sorted by partition, and how many rows of each partition are already placed. One
    counting sort makes a partition's rows a slice.

    `destination[i]` (int64[n]) is row i's index into `destinations`, the write's list, to which later rows may add.
    `topic_ids[d]` is the topic id of `destinations[d]` when the rows were routed. A topic of the same name with another
    id is another topic. `largest_bytes`: the size of an uncompressed batch of only the largest row; 0 without rows.

    After construction "row" means a position in wire order. `next_row[d]`: the first row of destination d without a
    batch. `end_row[d]`: one past its last row. Placed rows are never read again.
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


@dataclass(frozen=True, slots=True)
class RowTopics:
    """The topics of one Arrow batch's rows. `index[i]` (int64[n]) is row i's place in `names`; None if all rows have
    the only topic."""

    names: tuple[str, ...]
    index: Int64s | None


class _TopicMemory:
    """What a write knows about one topic.

    It keeps the partition for the next row without a key, and the number of partitions when first seen. It also keeps
    what the last metadata allows rows to choose from, computed once per metadata instead of once per Arrow batch.

    `destination[p]` is partition p's index into the write's destinations. It covers as many partitions as were ever
    seen, because a broker that lags behind may report fewer than exist.
    """

    def __init__(self, spreader: Spreader, key_partition_count: int) -> None:
        self.spreader = spreader
        self.key_partition_count = key_partition_count
        self.destination = np.zeros(0, np.int64)
        self.available: tuple[int, ...] = ()
        self.state: TopicSnapshot | None = None


class Router:
    """`topic`: the topic of every row, or None if rows name their topics. `batch_bytes`: how many bytes of rows without
    a key go to one partition before the next. `partitioner`: a name in PARTITIONERS."""

    def __init__(
        self, *, topic: str | None, batch_bytes: int, rng: random.Random, partitioner: str = "murmur2"
    ) -> None:
        self._topic = topic
        self._batch_bytes = batch_bytes
        self._rng = rng
        self._rule = PARTITIONERS[partitioner]
        self._memories: dict[str, _TopicMemory] = {}
        # For the whole write: a destination keeps its index from one Arrow batch to the next.
        self._destinations: list[TopicPartition] = []
        self._topic_ids: list[uuid.UUID | None] = []

    def topics_of(self, columns: RecordColumns) -> RowTopics:
        """Return the topics of the rows. Raises TopicNull, TopicNameInvalid."""
        if self._topic is not None:
            return RowTopics((self._topic,), None)
        if columns.topic is None or columns.topic.null_count:
            raise TopicNull
        encoded = columns.topic.dictionary_encode()
        names = self._names(encoded.dictionary)
        if len(names) == 1:
            return RowTopics(names, None)
        return RowTopics(names, encoded.indices.to_numpy().astype(np.int64, copy=False))

    def _names(self, distinct: pa.Array) -> tuple[str, ...]:
        try:
            names = tuple(distinct.to_pylist())
        except UnicodeDecodeError as not_utf8:
            raise TopicNameInvalid(topic=shown(not_utf8.object)) from None
        # Topics that had rows before are already checked.
        for name in [name for name in names if name not in self._memories]:
            if not is_topic_name(name):
                raise TopicNameInvalid(topic=name) if name else TopicNull
        return names

    def route(self, columns: RecordColumns, topics: RowTopics, states: Mapping[str, TopicSnapshot]) -> RoutedRows:
        """Return the rows with their destinations. `states`: the current state of each topic. Raises
        PartitionOutOfRange."""
        partitioner = RowPartitioner(columns, self._rule)
        if topics.index is None:
            destination = self._destinations_of(None, partitioner, states[topics.names[0]])
        else:
            destination = np.empty(columns.num_rows, dtype=np.int64)
            for index, name in enumerate(topics.names):
                rows = np.flatnonzero(topics.index == index)
                destination[rows] = self._destinations_of(rows, partitioner, states[name])
        return RoutedRows(columns, destination, self._destinations, self._topic_ids)

    def out_of_range(
        self, columns: RecordColumns, topics: RowTopics, states: Mapping[str, TopicSnapshot]
    ) -> npt.NDArray[np.bool_]:
        """Return bool[n]: True for rows that name a partition that their topic lacks. `route` would raise for them."""
        if columns.partition is None or columns.partition_is_set is None:
            return np.zeros(columns.num_rows, np.bool_)
        counts = np.array([len(self._memory(states[name]).destination) for name in topics.names], np.int64)
        count = counts[np.zeros(columns.num_rows, np.int64) if topics.index is None else topics.index]
        outside = (columns.partition < 0) | (columns.partition >= count)
        return outside & columns.partition_is_set

    def _destinations_of(self, rows: Int64s | None, partitioner: RowPartitioner, state: TopicSnapshot) -> Int64s:
        """Return int64[n]: the destinations of `rows` (None: all rows), all of which go to this topic."""
        memory = self._memory(state)
        partitions = partitioner.assign_partitions(
            rows,
            topic=state.name,
            partition_count=len(memory.destination),
            key_partition_count=memory.key_partition_count,
            available=memory.available,
            spreader=memory.spreader,
        )
        return memory.destination.take(partitions)

    def _memory(self, state: TopicSnapshot) -> _TopicMemory:
        memory = self._memories.get(state.name)
        if memory is None:
            spreader = self._rule.spreader(batch_size=self._batch_bytes, rng=self._rng)
            memory = self._memories[state.name] = _TopicMemory(spreader, state.partition_count)
        if memory.state is not state:
            self._see(memory, state)
        return memory

    def _see(self, memory: _TopicMemory, state: TopicSnapshot) -> None:
        memory.state = state
        memory.available = state.available
        new = range(len(memory.destination), state.partition_count)
        first = len(self._destinations)
        memory.destination = np.append(memory.destination, np.arange(first, first + len(new)))
        self._destinations += (TopicPartition(state.name, partition) for partition in new)
        self._topic_ids += [state.topic_id] * len(new)

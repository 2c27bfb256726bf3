"""Which partition of which topic each row goes to.

A write has one Router: it remembers, for each topic, whose turn it is of rows without a key, and how many partitions
the topic had when the write first saw it. Over those it spreads keys, so that one key keeps one partition for the whole
task though the topic grows meanwhile. The other rows need no such promise: a row may name a partition that is new, and
rows without a key go to new ones, too.
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
from kafka_sink.kafka.producer.metadata import TopicSnapshot
from kafka_sink.kafka.producer.routed_rows import RoutedRows
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.partitioner import PARTITIONERS, RowPartitioner, Spreader
from kafka_sink.text.topic_name import is_topic_name, shown

Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RowTopics:
    """The topics of one Arrow batch's rows: `index[i]` (int64[n]) is row i's place in `names`; None: all have the only
    one."""

    names: tuple[str, ...]
    index: Int64s | None


class _TopicMemory:
    """What a write knows of one topic: where the next row without a key goes, how many partitions it had when first
    seen, and what its last state gives rows to choose from, worked out once a state and not once an Arrow batch.

    `destination[p]` is partition p's index into the write's destinations: of as many partitions as were ever seen, as a
    broker that lags behind may tell of fewer than there are.
    """

    def __init__(self, spreader: Spreader, key_partition_count: int) -> None:
        self.spreader = spreader
        self.key_partition_count = key_partition_count
        self.destination = np.zeros(0, np.int64)
        self.available: tuple[int, ...] = ()
        self.state: TopicSnapshot | None = None


class Router:
    """`topic`: the topic of every row, or None where rows name theirs. `batch_bytes`: how much sticks to one partition.
    `partitioner`: a name in PARTITIONERS."""

    def __init__(
        self, *, topic: str | None, batch_bytes: int, rng: random.Random, partitioner: str = "murmur2"
    ) -> None:
        self._topic = topic
        self._batch_bytes = batch_bytes
        self._rng = rng
        self._rule = PARTITIONERS[partitioner]
        self._memories: dict[str, _TopicMemory] = {}
        # Of the whole write: what is known of a destination keeps its index from one Arrow batch to the next.
        self._destinations: list[TopicPartition] = []
        self._topic_ids: list[uuid.UUID | None] = []

    def topics_of(self, columns: RecordColumns) -> RowTopics:
        """The topics that the rows go to. Raises TopicNull, TopicNameInvalid."""
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
        # A topic that rows went to needs no second look.
        for name in [name for name in names if name not in self._memories]:
            if not is_topic_name(name):
                raise TopicNameInvalid(topic=name) if name else TopicNull
        return names

    def route(self, columns: RecordColumns, topics: RowTopics, states: Mapping[str, TopicSnapshot]) -> RoutedRows:
        """`states`: each topic of `topics` as it is now. Raises PartitionOutOfRange."""
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
        """bool[n]: the rows that name a partition which their topic does not have; `route` would raise for them."""
        if columns.partition is None or columns.partition_is_set is None:
            return np.zeros(columns.num_rows, np.bool_)
        counts = np.array([len(self._memory(states[name]).destination) for name in topics.names], np.int64)
        count = counts[np.zeros(columns.num_rows, np.int64) if topics.index is None else topics.index]
        outside = (columns.partition < 0) | (columns.partition >= count)
        return outside & columns.partition_is_set

    def _destinations_of(self, rows: Int64s | None, partitioner: RowPartitioner, state: TopicSnapshot) -> Int64s:
        """int64[n]: the destinations of `rows`, all of which (None: all there are) go to the topic."""
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

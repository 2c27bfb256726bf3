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

from kafka_sink.errors import TopicNull
from kafka_sink.producer.metadata import TopicSnapshot
from kafka_sink.producer.receipts import TopicPartition
from kafka_sink.producer.routed_rows import RoutedRows
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.partitioner import PARTITIONERS, RowPartitioner, Spreader


@dataclass(frozen=True, slots=True)
class RowTopics:
    """The topics of one Arrow batch's rows: `index[i]` (int64[n]) is row i's place in `names`; None: all have the only
    one."""

    names: tuple[str, ...]
    index: npt.NDArray[np.int64] | None


class _TopicMemory:
    """What a write knows of one topic: where the next row without a key goes, how many partitions it had when first
    seen, and what its last state gives rows to choose from, worked out once a state and not once an Arrow batch."""

    def __init__(self, spreader: Spreader, state: TopicSnapshot) -> None:
        self.spreader = spreader
        self.key_partition_count = state.partition_count
        # As many as were ever seen: a broker that lags behind may tell of fewer than there are.
        self.destinations: list[TopicPartition] = []
        self.available: tuple[int, ...] = ()
        self._state: TopicSnapshot | None = None
        self.see(state)

    def see(self, state: TopicSnapshot) -> None:
        if state is self._state:
            return
        self._state = state
        self.available = state.available
        new = range(len(self.destinations), state.partition_count)
        self.destinations.extend(TopicPartition(state.name, partition) for partition in new)


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

    def topics_of(self, columns: RecordColumns) -> RowTopics:
        """The topics that the rows go to. Raises TopicNull."""
        if self._topic is not None:
            return RowTopics((self._topic,), None)
        if columns.topic is None or columns.topic.null_count:
            raise TopicNull
        encoded = columns.topic.dictionary_encode()
        names = tuple(encoded.dictionary.to_pylist())
        if "" in names:
            raise TopicNull
        if len(names) == 1:
            return RowTopics(names, None)
        return RowTopics(names, encoded.indices.to_numpy().astype(np.int64, copy=False))

    def route(self, columns: RecordColumns, topics: RowTopics, states: Mapping[str, TopicSnapshot]) -> RoutedRows:
        """`states`: each topic of `topics` as it is now. Raises PartitionOutOfRange."""
        partitioner = RowPartitioner(columns, self._rule)
        destination = np.empty(columns.num_rows, dtype=np.int64)
        destinations: list[TopicPartition] = []
        topic_ids: list[uuid.UUID | None] = []
        for index, name in enumerate(topics.names):
            state, memory = states[name], self._memory(states[name])
            rows = None if topics.index is None else np.flatnonzero(topics.index == index)
            partitions = partitioner.assign_partitions(
                rows,
                topic=name,
                partition_count=len(memory.destinations),
                key_partition_count=memory.key_partition_count,
                available=memory.available,
                spreader=memory.spreader,
            )
            destination[slice(None) if rows is None else rows] = partitions + len(destinations)
            destinations += memory.destinations
            topic_ids += [state.topic_id] * len(memory.destinations)
        return RoutedRows(columns, destination, destinations, topic_ids)

    def _memory(self, state: TopicSnapshot) -> _TopicMemory:
        if state.name not in self._memories:
            spreader = self._rule.spreader(batch_size=self._batch_bytes, rng=self._rng)
            self._memories[state.name] = _TopicMemory(spreader, state)
        memory = self._memories[state.name]
        memory.see(state)
        return memory

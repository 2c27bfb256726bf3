"""Which partition of which topic each row goes to.

A write has one Router: it remembers, for each topic, the sticky partition of rows without a key. Partition counts come
from the topic states that the write froze, so one key keeps one partition for the whole task whatever the topic does.
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
from kafka_sink.records.partitioner import RowPartitioner, StickyPartitioner


@dataclass(frozen=True, slots=True)
class RowTopics:
    """The topics of one Arrow batch's rows: `index[i]` (int64[n]) is row i's place in `names`; None: all have the only
    one."""

    names: tuple[str, ...]
    index: npt.NDArray[np.int64] | None


@dataclass(frozen=True, slots=True)
class _Partitions:
    """What one state of a topic gives its rows to choose from: made once a state, for all Arrow batches that see it."""

    state: TopicSnapshot
    destinations: list[TopicPartition]
    available: tuple[int, ...]

    @classmethod
    def of(cls, state: TopicSnapshot) -> _Partitions:
        destinations = [TopicPartition(state.name, partition) for partition in range(state.partition_count)]
        return cls(state, destinations, state.available)


class Router:
    """`topic`: the topic of every row, or None where rows name theirs. `batch_bytes`: how much sticks to one
    partition."""

    def __init__(self, *, topic: str | None, batch_bytes: int, rng: random.Random) -> None:
        self._topic = topic
        self._batch_bytes = batch_bytes
        self._rng = rng
        self._sticky: dict[str, StickyPartitioner] = {}
        self._partitions: dict[str, _Partitions] = {}

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
        """`states` holds each topic of `topics`. Raises PartitionOutOfRange."""
        partitioner = RowPartitioner(columns)
        destination = np.empty(columns.num_rows, dtype=np.int64)
        destinations: list[TopicPartition] = []
        topic_ids: list[uuid.UUID | None] = []
        for index, name in enumerate(topics.names):
            state = states[name]
            of_topic = self._partitions_of(state)
            rows = None if topics.index is None else np.flatnonzero(topics.index == index)
            partitions = partitioner.assign_partitions(
                rows,
                topic=name,
                partition_count=state.partition_count,
                available=of_topic.available,
                sticky=self._sticky_for(name),
            )
            destination[slice(None) if rows is None else rows] = partitions + len(destinations)
            destinations += of_topic.destinations
            topic_ids += [state.topic_id] * state.partition_count
        return RoutedRows(columns, destination, destinations, topic_ids)

    def _partitions_of(self, state: TopicSnapshot) -> _Partitions:
        known = self._partitions.get(state.name)
        if known is None or known.state is not state:
            known = self._partitions[state.name] = _Partitions.of(state)
        return known

    def _sticky_for(self, topic: str) -> StickyPartitioner:
        if topic not in self._sticky:
            self._sticky[topic] = StickyPartitioner(batch_size=self._batch_bytes, rng=self._rng)
        return self._sticky[topic]

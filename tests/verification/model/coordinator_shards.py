"""The partitions of an internal topic that a broker coordinates, with their leader epochs and loaded states.

A broker that becomes leader of a partition first reads it from its own log. Until then it answers
COORDINATOR_LOAD_IN_PROGRESS. It forgets the state when it loses the leadership or dies.

Source: TransactionStateManager.loadTransactionsForTxnTopicPartition, CoordinatorRuntime (scheduleLoadOperation) in
Kafka.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kio.schema.errors import ErrorCode

from model.image import TopicIdPartition
from model.internal_topics import partition_for
from model.partition import Partition
from model.record_batches import Refused
from model.replica_manager import ReplicaManager
from model.settings import TransactionSettings
from model.timeline import Timeline

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Shard(Generic[T]):
    """`coordinator_epoch`: the leader epoch of the partition. `state`: None while it is being read."""

    key: TopicIdPartition
    coordinator_epoch: int
    state: T | None = None


@dataclass(slots=True)
class Shards(Generic[T]):
    """`load` makes a state from the log that the new leader has; `on_loaded` follows."""

    _topic: str
    _replicas: ReplicaManager
    _settings: TransactionSettings
    _timeline: Timeline
    _rng: random.Random
    _load: Callable[[Partition], T]
    _on_loaded: Callable[[Shard[T]], None]
    _shards: dict[TopicIdPartition, Shard[T]] = field(default_factory=dict)

    def follow_image(self) -> None:
        topic = self._replicas.image.topics.get(self._topic)
        led: dict[TopicIdPartition, int] = {}
        for number in range(len(topic.partitions) if topic is not None else 0):
            assert topic is not None
            partition = self._replicas.partitions.get(TopicIdPartition(topic.topic_id, number))
            if partition is not None and partition.is_leader:
                led[partition.key] = partition.leader_epoch
        for key in [key for key, shard in self._shards.items() if led.get(key) != shard.coordinator_epoch]:
            del self._shards[key]
        for key, leader_epoch in led.items():
            if key not in self._shards:
                self._begin_load(Shard(key, leader_epoch))

    def _begin_load(self, shard: Shard[T]) -> None:
        self._shards[shard.key] = shard

        def load() -> None:
            partition = self._replicas.partitions.get(shard.key)
            if self.is_current(shard) and partition is not None:
                shard.state = self._load(partition)
                self._on_loaded(shard)

        self._timeline.call_in(self._rng.randint(*self._settings.coordinator_load_ms), load)

    def is_current(self, shard: Shard[T]) -> bool:
        """Return True if the broker has coordinated the shard without interruption."""
        return self._shards.get(shard.key) is shard

    def get(self, name: str) -> tuple[Shard[T], T]:
        """The shard of a transactional id or group, and its state. Raises Refused."""
        key = partition_for(self._replicas.image, self._topic, name)
        shard = self._shards.get(key) if key is not None else None
        if shard is None:
            raise Refused(ErrorCode.not_coordinator, f"of {name}")
        if shard.state is None:
            raise Refused(ErrorCode.coordinator_load_in_progress, f"of {name}")
        return shard, shard.state

    def loaded(self) -> list[tuple[Shard[T], T]]:
        if any(shard.state is None for shard in self._shards.values()):
            raise Refused(ErrorCode.coordinator_load_in_progress, self._topic)
        return self.known()

    def known(self) -> list[tuple[Shard[T], T]]:
        return [(shard, shard.state) for shard in self._shards.values() if shard.state is not None]

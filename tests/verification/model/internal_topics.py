"""The topics in which coordinators keep their state: the leader of a key's partition there is its coordinator.

The first FindCoordinator creates them, as in Kafka. They are replicated like any topic. A broker that becomes leader of
a partition first loads it: until then it answers COORDINATOR_LOAD_IN_PROGRESS. It forgets the state
when it loses the leadership or dies.

Source: Topic, Utils.abs, TransactionStateManager (partitionFor, loadTransactionsForTxnTopicPartition),
GroupCoordinator.partitionFor, AutoTopicCreationManager, CoordinatorRuntime (scheduleLoadOperation) in Kafka.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from kio.schema.errors import ErrorCode

from model.controller import NO_LEADER, ClusterImage, Controller, TopicIdPartition
from model.record_batches import Refused
from model.replica_manager import ReplicaManager
from model.settings import TopicSettings
from model.timeline import Timeline

TRANSACTION_STATE = "__transaction_state"
CONSUMER_OFFSETS = "__consumer_offsets"
INTERNAL_TOPICS = frozenset({TRANSACTION_STATE, CONSUMER_OFFSETS})
_PARTITIONS, _REPLICATION_FACTOR = 4, 3
# From a broker that hears it is coordinator to one that answers as such.
_LOAD_MS = 1, 20


def java_hash(text: str) -> int:
    """String.hashCode, without its sign: Kafka's Utils.abs."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(encoded), 2):
        value = (31 * value + int.from_bytes(encoded[at : at + 2], "big")) & 0xFFFFFFFF
    signed = value - 2**32 if value >= 2**31 else value
    return abs(signed) if signed != -(2**31) else 0


def partition_for(image: ClusterImage, topic: str, name: str) -> TopicIdPartition | None:
    found = image.topics.get(topic)
    return TopicIdPartition(found.topic_id, java_hash(name) % len(found.partitions)) if found is not None else None


def coordinator_of(image: ClusterImage, topic: str, name: str) -> int:
    """Return the broker's node id, NO_LEADER if no live broker coordinates."""
    key = partition_for(image, topic, name)
    state = image.state_of(key) if key is not None else None
    return state.leader if state is not None and state.leader in image.alive else NO_LEADER


def create_internal_topic(controller: Controller, node_count: int, topic: str) -> None:
    if topic in controller.image.topics:
        return
    replication_factor = min(_REPLICATION_FACTOR, node_count)
    # transaction.state.log.min.isr is 2; __consumer_offsets has the brokers' default.
    min_insync_replicas = min(2, replication_factor) if topic == TRANSACTION_STATE else 1
    controller.create_topic(topic, _PARTITIONS, replication_factor, TopicSettings(min_insync_replicas))


T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Shard(Generic[T]):
    """`coordinator_epoch`: the leader epoch of the partition. `state`: None while it is being read."""

    key: TopicIdPartition
    coordinator_epoch: int
    state: T | None = None


@dataclass(slots=True)
class Shards(Generic[T]):
    """`new` makes a state, which is empty."""

    _topic: str
    _replicas: ReplicaManager
    _timeline: Timeline
    _rng: random.Random
    _new: Callable[[], T]
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
            if self.is_current(shard):
                shard.state = self._new()

        self._timeline.after(self._rng.randint(*_LOAD_MS), load)

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

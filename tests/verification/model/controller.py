"""The controller: topics, leaders and in-sync replicas of the whole cluster, in one place that never fails.

Every decision makes a new image, an immutable snapshot; `publish` takes it to the brokers, which act by the last one
that they have received. KRaft's quorum is no part of the model: the simulated faults are those of brokers and networks.

Source: ReplicationControlManager, PartitionChangeBuilder, ProducerIdControlManager, MetadataImage,
PartitionRegistration in Kafka; KIP-497 (AlterPartition).
"""

import random
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from model.settings import ClusterSettings, TopicSettings

NO_LEADER = -1


class TopicIdPartition(NamedTuple):
    topic_id: uuid.UUID
    partition: int


@dataclass(frozen=True, slots=True)
class PartitionState:
    """`partition_epoch` grows with every change, `leader_epoch` with every change of the leader."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    topic_id: uuid.UUID
    settings: TopicSettings
    partitions: tuple[PartitionState, ...]


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """`alive`: the brokers that the controller holds for alive, ascending. `topics` by name, in order of creation.
    `has_topic_ids`: brokers may tell topics' ids. Before that, an id only tells the model a topic from its namesake."""

    version: int = 0
    alive: tuple[int, ...] = ()
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    has_topic_ids: bool = True

    def topic_of(self, topic_id: uuid.UUID) -> TopicImage | None:
        return next((topic for topic in self.topics.values() if topic.topic_id == topic_id), None)

    def state_of(self, key: TopicIdPartition) -> PartitionState | None:
        topic = self.topic_of(key.topic_id)
        return topic.partitions[key.partition] if topic is not None else None

    def key_of(self, topic: str, partition: int) -> TopicIdPartition | None:
        found = self.topics.get(topic)
        has_it = found is not None and 0 <= partition < len(found.partitions)
        return TopicIdPartition(found.topic_id, partition) if found is not None and has_it else None


Change = Callable[[PartitionState], PartitionState]


class Controller:
    def __init__(
        self, node_ids: Sequence[int], rng: random.Random, settings: ClusterSettings, publish: Callable[[], None]
    ) -> None:
        self._node_ids = tuple(node_ids)
        self._rng = rng
        self.unclean_leader_election = settings.unclean_leader_election
        self._publish = publish
        self.producer_ids_given_out = 0
        self.image = ClusterImage(alive=tuple(sorted(node_ids)), has_topic_ids=settings.generation.has_topic_ids)

    def create_topic(self, name: str, partitions: int, replication_factor: int, settings: TopicSettings) -> uuid.UUID:
        if name in self.image.topics:
            raise ValueError(f"topic {name!r} exists")
        topic_id = uuid.UUID(int=self._rng.getrandbits(128), version=4)
        states = tuple(self._new_partition(number, replication_factor) for number in range(partitions))
        self._put(TopicImage(name, topic_id, settings, states))
        return topic_id

    def delete_topic(self, name: str) -> None:
        topics = dict(self.image.topics)
        del topics[name]
        self._decide(replace(self.image, topics=topics))

    def add_partitions(self, name: str, total: int) -> None:
        topic = self.image.topics[name]
        factor = len(topic.partitions[0].replicas)
        added = (self._new_partition(number, factor) for number in range(len(topic.partitions), total))
        self._put(replace(topic, partitions=(*topic.partitions, *added)))

    def assign_topic_ids(self) -> None:
        """Give every topic an id, as a controller does that is told to speak as Kafka 2.8 (KIP-516), in the last step
        of an upgrade. Brokers that have ids learn it later."""
        self._decide(replace(self.image, has_topic_ids=True))

    def _new_partition(self, number: int, replication_factor: int) -> PartitionState:
        count = len(self._node_ids)
        if not 0 < replication_factor <= count:
            raise ValueError(f"replication factor {replication_factor} on {count} brokers")
        replicas = tuple(self._node_ids[(number + place) % count] for place in range(replication_factor))
        isr = tuple(node_id for node_id in replicas if node_id in self.image.alive)
        state = PartitionState(replicas=replicas, isr=isr or replicas, leader=NO_LEADER, leader_epoch=-1)
        return self._elected(state, self.unclean_leader_election)

    def broker_lost(self, node_id: int) -> None:
        """Give its partitions other leaders. The broker leaves each ISR in which it is not the last member."""
        alive = tuple(other for other in self.image.alive if other != node_id)
        self._decide(self._changed(replace(self.image, alive=alive), self._without(node_id)))

    def _without(self, node_id: int) -> Change:
        def change(state: PartitionState) -> PartitionState:
            if node_id not in state.isr and state.leader != node_id:
                return state
            isr = tuple(other for other in state.isr if other != node_id) or state.isr
            state = replace(state, isr=isr, partition_epoch=state.partition_epoch + 1)
            return self._elected(state, self.unclean_leader_election) if state.leader == node_id else state

        return change

    def broker_ready(self, node_id: int) -> None:
        """Elect leaders for leaderless partitions: the broker is the last of the ISR, or elections are unclean."""
        self.image = replace(self.image, alive=tuple(sorted({*self.image.alive, node_id})))

        def change(state: PartitionState) -> PartitionState:
            if state.leader != NO_LEADER:
                return state
            return self._elected(state, self.unclean_leader_election)

        self._decide(self._changed(self.image, change))

    def elect(self, topic: str, partition: int, node_id: int | None, unclean: bool) -> None:
        def change(state: PartitionState) -> PartitionState:
            candidates = [node_id] if node_id is not None else state.replicas
            elected = self._elected(state, unclean, candidates)
            if elected.leader == NO_LEADER:
                raise ValueError(f"no leader for {topic}-{partition}: ISR {state.isr}, alive {self.image.alive}")
            return elected

        self._change_partition(self.image.topics[topic], partition, change)

    def _elected(self, state: PartitionState, unclean: bool, candidates: Iterable[int] | None = None) -> PartitionState:
        """Clean: a live member of the ISR. Unclean: else any live replica, and it alone is the ISR then."""
        live = [node for node in candidates or state.replicas if node in state.replicas and node in self.image.alive]
        clean = [node for node in live if node in state.isr]
        chosen = [*clean, *(live if unclean else ())]
        leader = chosen[0] if chosen else NO_LEADER
        if leader == state.leader and state.leader_epoch >= 0:
            return state
        return replace(
            state, leader=leader, isr=state.isr if leader in state.isr or leader == NO_LEADER else (leader,),
            leader_epoch=state.leader_epoch + 1, partition_epoch=state.partition_epoch + 1,
        )  # fmt: skip

    def alter_isr(
        self, key: TopicIdPartition, leader: int, leader_epoch: int, partition_epoch: int, isr: Iterable[int]
    ) -> PartitionState | None:
        """A leader's wish (AlterPartition): the new state, or None if the request is stale."""
        topic = self.image.topic_of(key.topic_id)
        if topic is None:
            return None
        state = topic.partitions[key.partition]
        if (state.leader, state.leader_epoch, state.partition_epoch) != (leader, leader_epoch, partition_epoch):
            return None
        wanted = set(isr)
        members = tuple(node_id for node_id in state.replicas if node_id in wanted)
        if any(node_id not in self.image.alive for node_id in members if node_id not in state.isr):
            return None
        altered = replace(state, isr=members, partition_epoch=partition_epoch + 1)
        self._change_partition(topic, key.partition, lambda _: altered)
        return altered

    def allocate_producer_ids(self, count: int) -> range:
        first = self.producer_ids_given_out
        self.producer_ids_given_out += count
        return range(first, first + count)

    def _change_partition(self, topic: TopicImage, partition: int, change: Change) -> None:
        partitions = list(topic.partitions)
        partitions[partition] = change(partitions[partition])
        self._put(replace(topic, partitions=tuple(partitions)))

    def _put(self, topic: TopicImage) -> None:
        self._decide(replace(self.image, topics={**self.image.topics, topic.name: topic}))

    def _changed(self, image: ClusterImage, change: Change) -> ClusterImage:
        """`image` with every partition changed. Elections read live brokers from `self.image`."""
        self.image = image
        topics = {
            name: replace(topic, partitions=tuple(map(change, topic.partitions)))
            for name, topic in image.topics.items()
        }
        return replace(image, topics=topics)

    def _decide(self, image: ClusterImage) -> None:
        self.image = replace(image, version=self.image.version + 1)
        self._publish()

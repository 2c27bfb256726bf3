"""What the controller has decided, as immutable snapshots: a broker acts by the last one it has received.

Source: MetadataImage, PartitionRegistration in Kafka (KRaft).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from model.settings import TopicSettings

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

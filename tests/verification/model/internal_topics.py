"""The topics in which coordinators keep their state: the leader of a key's partition there is its coordinator.

The first FindCoordinator creates them, as in Kafka. They are replicated like any topic.

Source: Topic, Utils.abs, TransactionStateManager.partitionFor, GroupCoordinator.partitionFor, AutoTopicCreationManager
in Kafka.
"""

from __future__ import annotations

from model.controller import Controller
from model.image import NO_LEADER, ClusterImage, TopicIdPartition
from model.settings import ClusterSettings, TopicSettings

TRANSACTION_STATE = "__transaction_state"
CONSUMER_OFFSETS = "__consumer_offsets"
INTERNAL_TOPICS = frozenset({TRANSACTION_STATE, CONSUMER_OFFSETS})
_REPLICATION_FACTOR = 3


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


def create_internal_topic(controller: Controller, settings: ClusterSettings, topic: str, node_count: int) -> None:
    if topic in controller.image.topics:
        return
    replication_factor = min(_REPLICATION_FACTOR, node_count)
    # transaction.state.log.min.isr is 2; __consumer_offsets has the brokers' default.
    min_insync_replicas = min(2, replication_factor) if topic == TRANSACTION_STATE else 1
    controller.create_topic(
        topic, settings.transactions.internal_topic_partitions, replication_factor, TopicSettings(min_insync_replicas)
    )

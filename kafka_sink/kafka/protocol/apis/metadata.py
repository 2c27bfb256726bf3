"""Metadata: brokers, topics, leaders, and the operations that are allowed on a topic."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.protocol.api import (
    MOST_BROKERS,
    MOST_PARTITIONS,
    MOST_PARTITIONS_OF_A_TOPIC,
    NOT_REPORTED,
    Api,
    Message,
    Request,
    check_number,
    check_topic_name,
    each_asked,
    read,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode

# The first version in which the client decides whether a missing topic is created (KAFKA-5291).
LOWEST_METADATA = 4
HAS_AUTHORIZED_OPERATIONS, HAS_TOPIC_IDS = 8, 10
_LAST_WITH_CLUSTER_OPERATIONS = 10  # KIP-700
NO_LEADER_EPOCH = -1


@dataclass(frozen=True, slots=True)
class MetadataRequest(Request):
    """`topics`: empty for the brokers only; None for every topic that the principal may describe. `describe`: also
    return replicas and the principal's allowed operations, which writes do not need."""

    api = Api("Metadata", 3, LOWEST_METADATA, 13, client_throttles_from=6)

    topics: tuple[str, ...] | None
    allow_auto_topic_creation: bool
    describe: bool = False

    def to_kio(self, kio: Any, version: int) -> Any:
        of_topic = {"topic_id": None} if version >= HAS_TOPIC_IDS else {}
        fields: dict[str, bool] = {}
        if version >= HAS_AUTHORIZED_OPERATIONS:
            fields["include_topic_authorized_operations"] = self.describe
            if version <= _LAST_WITH_CLUSTER_OPERATIONS:
                fields["include_cluster_authorized_operations"] = False
        topics = self.topics
        return kio.MetadataRequest(
            topics=topics and tuple(kio.MetadataRequestTopic(name=name, **of_topic) for name in topics),
            allow_auto_topic_creation=self.allow_auto_topic_creation,
            **fields,
        )

    def response(self, message: Message) -> MetadataResponse:
        return MetadataResponse(
            throttle_time_ms=message["throttle_time"],
            cluster_id=message["cluster_id"],
            controller_id=message["controller_id"],
            brokers=tuple(read(Broker, broker) for broker in message["brokers"]),
            topics=tuple(
                TopicMetadata(
                    error_code=topic["error_code"],
                    name=topic["name"],
                    topic_id=topic.get("topic_id"),
                    partitions=tuple(
                        PartitionMetadata(
                            error_code=partition["error_code"],
                            partition=partition["partition_index"],
                            leader_id=partition["leader_id"],
                            leader_epoch=partition.get("leader_epoch", NO_LEADER_EPOCH),
                            replica_nodes=partition["replica_nodes"] if self.describe else (),
                            isr_nodes=partition["isr_nodes"] if self.describe else (),
                        )
                        for partition in topic["partitions"]
                    ),
                    is_internal=topic["is_internal"],
                    authorized_operations=(
                        topic.get("topic_authorized_operations", NOT_REPORTED) if self.describe else NOT_REPORTED
                    ),
                )
                for topic in message["topics"]
            ),
            error_code=message.get("error_code", ErrorCode.NONE.value),
        )

    def check(self, response: MetadataResponse) -> None:
        """Raise ProtocolError unless each requested topic occurs once, with partitions 0..n-1 and valid addresses.

        The partition count decides where keys go. So a response with a missing partition must not be taken for a topic
        with fewer partitions.
        """
        answered = sorted(topic.name or "" for topic in response.topics)
        if answered != sorted(set(answered if self.topics is None else self.topics)):
            raise ProtocolError("a Metadata answer for other topics than asked")
        check_number("Metadata", "controller", response.controller_id)
        for topic in response.topics:
            if self.topics is None:
                check_topic_name("Metadata", topic.name)
            for partition in topic.partitions:
                check_number("Metadata", "leader", partition.leader_id)
                check_number("Metadata", "leader epoch", partition.leader_epoch)
                for node_id in partition.replica_nodes + partition.isr_nodes:
                    check_number("Metadata", "replica", node_id)
            if not topic.partitions and topic.error_code == ErrorCode.NONE:
                raise ProtocolError(f"a Metadata answer without partitions for topic {topic.name!r}")
            if sorted(partition.partition for partition in topic.partitions) != list(range(len(topic.partitions))):
                raise ProtocolError(f"a Metadata answer with missing or repeated partitions of topic {topic.name!r}")
        for broker in response.brokers:
            check_broker("Metadata", broker)

    def most(self) -> Mapping[str, int]:
        brokers = each_asked(MOST_BROKERS, "brokers")
        if self.topics is None:
            return brokers | each_asked(MOST_PARTITIONS, "partitions")
        count = len(self.topics)
        partitions = min(count * MOST_PARTITIONS_OF_A_TOPIC, MOST_PARTITIONS)
        return brokers | each_asked(count, "topics") | each_asked(partitions, "partitions")


@dataclass(frozen=True, slots=True)
class Broker:
    node_id: int
    host: str
    port: int
    rack: str | None = None


def check_broker(api: str, broker: Broker) -> None:
    """Raise ProtocolError unless a client could connect to `broker`."""
    if broker.node_id < 0 or not broker.host or not 0 < broker.port < 65536:
        raise ProtocolError(f"a {api} answer with an impossible broker: {broker}")


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """`leader_id` is -1 without a leader. `leader_epoch` is -1 if unknown. The node ids of the replicas, and of the
    in-sync replicas, are present if the request has `describe`. Before version 7 brokers give no leader epoch."""

    error_code: int
    partition: int
    leader_id: int
    leader_epoch: int
    replica_nodes: tuple[int, ...] = ()
    isr_nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """`topic_id` is None for a topic that does not exist, and if the brokers have no topic ids (before Kafka 2.8, or
    version 10). Partitions 0..n-1 are all present, in any order.
    `is_internal`: a topic of Kafka's own, like __consumer_offsets.
    `authorized_operations`: for `api.allows`, if the request has `describe`, from version 8 on."""

    error_code: int
    name: str
    topic_id: uuid.UUID | None
    partitions: tuple[PartitionMetadata, ...]
    authorized_operations: int = NOT_REPORTED
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class MetadataResponse:
    """`error_code` exists from version 13 on (KIP-1102: REBOOTSTRAP_REQUIRED). Before, it is 0."""

    throttle_time_ms: int
    cluster_id: str | None
    controller_id: int
    brokers: tuple[Broker, ...]
    topics: tuple[TopicMetadata, ...]
    error_code: int = 0


# --- the leader that another answer names -----------------------------------------------------------------------------

# The leader of a partition, in the answer of a broker that does not lead it (KIP-951): to Produce from version 10 on,
# to Fetch from version 16 on. Brokers before Kafka 3.7 name none.
# Source: org.apache.kafka.clients.producer.internals.Sender.completeBatch, AbstractFetch.handleFetchSuccess.
_OF_ANOTHER_LEADER = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


@dataclass(frozen=True, slots=True)
class NamedLeader:
    """`broker`: where it listens; None if the answer does not tell."""

    node_id: int
    epoch: int
    broker: Broker | None = None


def endpoints_of(message: Message) -> Mapping[int, Broker]:
    """Return the brokers that an answer describes, by id."""
    return {each["node_id"]: read(Broker, each) for each in message.get("node_endpoints", ())}


def named_leader(partition: Mapping[str, Any], endpoints: Mapping[int, Broker]) -> NamedLeader | None:
    """Return the leader that an answer names for one partition, or None. Only a broker that refuses to lead names
    another one."""
    named = partition.get("current_leader")
    if named is None or partition["error_code"] not in _OF_ANOTHER_LEADER:
        return None
    node_id, epoch = named["leader_id"], named["leader_epoch"]
    return None if node_id == -1 or epoch == -1 else NamedLeader(node_id, epoch, endpoints.get(node_id))


def check_leaders(api: str, leaders: Iterable[NamedLeader | None]) -> None:
    """Raise ProtocolError unless each leader can be one, by the rules for a Metadata answer."""
    for leader in leaders:
        if leader is not None:
            check_number(api, "leader", leader.node_id, least=0)
            check_number(api, "leader epoch", leader.epoch, least=0)
            if leader.broker is not None:
                check_broker(api, leader.broker)

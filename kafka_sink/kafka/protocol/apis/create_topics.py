"""CreateTopics: creates a topic, or checks if it could be created."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kafka_sink.kafka.new_topic import BROKERS_DEFAULT
from kafka_sink.kafka.protocol.api import Api, Versions, check_answered, each_asked


@dataclass(frozen=True, slots=True)
class CreateTopicsRequest:
    """One topic. `partition_count`, `replication_factor`: at least 1, or BROKERS_DEFAULT. `timeout_ms`: how
    long the broker waits for the creation. `validate_only`: only check. `settings`: (name, value) pairs."""

    topic: str
    partition_count: int
    timeout_ms: int
    validate_only: bool = False
    replication_factor: int = BROKERS_DEFAULT
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CreateTopicsResponse:
    throttle_time_ms: int
    error_code: int
    error_message: str | None


_LOWEST, _HIGHEST = 2, 7
# The first version in which brokers take their own defaults for the two counts (KIP-464, Kafka 2.4).
HAS_DEFAULTS = 4


def create_topics_versions(request: CreateTopicsRequest) -> Versions:
    by_default = BROKERS_DEFAULT in (request.partition_count, request.replication_factor)
    return HAS_DEFAULTS if by_default else _LOWEST, _HIGHEST


def kio_create_topics(kio: Any, version: int, request: CreateTopicsRequest) -> Any:
    topic = kio.CreatableTopic(
        name=request.topic,
        num_partitions=request.partition_count,
        replication_factor=request.replication_factor,
        assignments=(),
        configs=tuple(kio.CreatableTopicConfig(name=name, value=value) for name, value in request.settings),
    )
    return kio.CreateTopicsRequest(
        topics=(topic,), timeout=timedelta(milliseconds=request.timeout_ms), validate_only=request.validate_only
    )


def create_topics_response(request: CreateTopicsRequest, message: Mapping[str, Any]) -> CreateTopicsResponse:
    """Raise ProtocolError unless only the request's topic is answered, once."""
    check_answered("CreateTopics", [request.topic], [topic["name"] for topic in message["topics"]])
    (created,) = message["topics"]
    return CreateTopicsResponse(
        throttle_time_ms=message["throttle_time"],
        error_code=created["error_code"],
        error_message=created["error_message"],
    )


# A broker names all settings of a new topic: 40 in Kafka 4.
_MOST_CONFIGS = 1_000


API = Api(
    "CreateTopics",
    19,
    _LOWEST,
    _HIGHEST,
    CreateTopicsRequest,
    kio_create_topics,
    create_topics_response,
    versions_of=create_topics_versions,
    client_throttles_from=3,
    most=lambda request: each_asked(1, "topics") | each_asked(_MOST_CONFIGS, "configs"),
)

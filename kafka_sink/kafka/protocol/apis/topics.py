"""CreateTopics, and DescribeConfigs: settings of brokers and of topics (KIP-226)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kafka_sink.kafka.new_topic import BROKERS_DEFAULT
from kafka_sink.kafka.protocol.api import Api, Versions, check_answered, each_asked

# --- CreateTopics -----------------------------------------------------------------------------------------------------
# Creates a topic, or checks if it could be created.


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


CREATE_TOPICS = Api(
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


# --- DescribeConfigs --------------------------------------------------------------------------------------------------
# Settings of a broker, and of topics (KIP-226).


@dataclass(frozen=True, slots=True)
class DescribeConfigsRequest:
    """One setting of a broker. Must be sent to that broker, because no other knows the setting."""

    node_id: int
    name: str


@dataclass(frozen=True, slots=True)
class DescribeConfigsResponse:
    """`value`: as brokers write it; None if the broker does not show it or has no such setting."""

    throttle_time_ms: int
    error_code: int
    value: str | None


# ConfigResource.Type.BROKER
BROKER_RESOURCE = 4


def kio_describe_configs(kio: Any, version: int, request: DescribeConfigsRequest) -> Any:
    resource = kio.DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=str(request.node_id), configuration_keys=(request.name,)
    )
    return kio.DescribeConfigsRequest(resources=(resource,))


def describe_configs_response(request: DescribeConfigsRequest, message: Mapping[str, Any]) -> DescribeConfigsResponse:
    """Raise ProtocolError unless only the request's broker is answered, once."""
    results = message["results"]
    check_answered("DescribeConfigs", [str(request.node_id)], [result["resource_name"] for result in results])
    values = {config["name"]: config["value"] for config in results[0]["configs"]}
    return DescribeConfigsResponse(
        throttle_time_ms=message["throttle_time"], error_code=results[0]["error_code"], value=values.get(request.name)
    )


# ConfigResource.Type.TOPIC
TOPIC_RESOURCE = 2


@dataclass(frozen=True, slots=True)
class TopicConfigsRequest:
    """Sent to any broker, because all know. Requires the ACL TOPIC DESCRIBE_CONFIGS on each topic."""

    topics: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicConfigs:
    """`values`: as brokers write them, without settings that the broker's version lacks; empty after an error."""

    topic: str
    error_code: int
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicConfigsResponse:
    throttle_time_ms: int
    topics: tuple[TopicConfigs, ...]


def number_in(value: str | None) -> int | None:
    """Return the number in a setting, or None if it is no number or exceeds 64 bits."""
    number = int(value) if value is not None and re.fullmatch(r"-?[0-9]{1,19}", value) else None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def kio_topic_configs(kio: Any, version: int, request: TopicConfigsRequest) -> Any:
    return kio.DescribeConfigsRequest(
        resources=tuple(
            kio.DescribeConfigsResource(
                resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=request.names
            )
            for topic in request.topics
        )
    )


def topic_configs_response(request: TopicConfigsRequest, message: Mapping[str, Any]) -> TopicConfigsResponse:
    """Raise ProtocolError unless each of the request's topics is answered once, and no other topic."""
    results = message["results"]
    check_answered("DescribeConfigs", request.topics, [result["resource_name"] for result in results])
    return TopicConfigsResponse(
        throttle_time_ms=message["throttle_time"],
        topics=tuple(
            TopicConfigs(
                topic=result["resource_name"],
                error_code=result["error_code"],
                values={each["name"]: each["value"] for each in result["configs"] if each["value"] is not None},
            )
            for result in results
        ),
    )


DESCRIBE_CONFIGS = Api(
    "DescribeConfigs",
    32,
    1,
    4,
    DescribeConfigsRequest,
    kio_describe_configs,
    describe_configs_response,
    client_throttles_from=2,
    most=lambda request: each_asked(1, "results", "configs", "synonyms"),
)


TOPICS_API = Api(
    "DescribeConfigs",
    32,
    1,
    4,
    TopicConfigsRequest,
    kio_topic_configs,
    topic_configs_response,
    client_throttles_from=2,
    most=lambda request: (
        each_asked(len(request.topics), "results")
        | each_asked(len(request.topics) * len(request.names), "configs", "synonyms")
    ),
)

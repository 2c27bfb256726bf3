"""DescribeConfigs: settings of a broker, and of topics (KIP-226)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.kafka.protocol.api import Api, check_answered, each_asked


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


API = Api(
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

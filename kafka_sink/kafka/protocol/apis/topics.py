"""CreateTopics, and DescribeConfigs: settings of brokers and of topics."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kafka_sink.kafka.new_topic import BROKERS_DEFAULT
from kafka_sink.kafka.protocol.api import Api, Message, Request, Versions, check_answered, each_asked, read

# --- CreateTopics -----------------------------------------------------------------------------------------------------

# The first version in which brokers take their own defaults for the two counts (KIP-464, Kafka 2.4).
HAS_DEFAULTS = 4
# A broker names all settings of a new topic: 40 in Kafka 4.
_MOST_CONFIGS = 1_000


@dataclass(frozen=True, slots=True)
class CreateTopicsRequest(Request):
    """One topic. `partition_count`, `replication_factor`: at least 1, or BROKERS_DEFAULT. `timeout_ms`: how long the
    broker waits for the creation. `validate_only`: only check if it could be created. `settings`: (name, value)."""

    api = Api("CreateTopics", 19, 2, 7, client_throttles_from=3)

    topic: str
    partition_count: int
    timeout_ms: int
    validate_only: bool = False
    replication_factor: int = BROKERS_DEFAULT
    settings: tuple[tuple[str, str], ...] = ()

    def versions(self) -> Versions:
        by_default = BROKERS_DEFAULT in (self.partition_count, self.replication_factor)
        return HAS_DEFAULTS if by_default else self.api.min_version, self.api.max_version

    def to_kio(self, kio: Any, version: int) -> Any:
        topic = kio.CreatableTopic(
            name=self.topic,
            num_partitions=self.partition_count,
            replication_factor=self.replication_factor,
            assignments=(),
            configs=tuple(kio.CreatableTopicConfig(name=name, value=value) for name, value in self.settings),
        )
        return kio.CreateTopicsRequest(
            topics=(topic,), timeout=timedelta(milliseconds=self.timeout_ms), validate_only=self.validate_only
        )

    def response(self, message: Message) -> CreateTopicsResponse:
        """Raise ProtocolError unless only the request's topic is answered, once."""
        check_answered("CreateTopics", [self.topic], [topic["name"] for topic in message["topics"]])
        (created,) = message["topics"]
        return read(CreateTopicsResponse, created, throttle_time_ms=message["throttle_time"])

    def most(self) -> Mapping[str, int]:
        return each_asked(1, "topics") | each_asked(_MOST_CONFIGS, "configs")


@dataclass(frozen=True, slots=True)
class CreateTopicsResponse:
    throttle_time_ms: int
    error_code: int
    error_message: str | None


# --- DescribeConfigs --------------------------------------------------------------------------------------------------

# Its answers are of KIP-226: with synonyms.
_DESCRIBE_CONFIGS = Api("DescribeConfigs", 32, 1, 4, client_throttles_from=2)
# ConfigResource.Type
BROKER_RESOURCE, TOPIC_RESOURCE = 4, 2


@dataclass(frozen=True, slots=True)
class DescribeConfigsRequest(Request):
    """One setting of a broker. Must be sent to that broker, because no other knows the setting."""

    api = _DESCRIBE_CONFIGS

    node_id: int
    name: str

    def to_kio(self, kio: Any, version: int) -> Any:
        resource = kio.DescribeConfigsResource(
            resource_type=BROKER_RESOURCE, resource_name=str(self.node_id), configuration_keys=(self.name,)
        )
        return kio.DescribeConfigsRequest(resources=(resource,))

    def response(self, message: Message) -> DescribeConfigsResponse:
        """Raise ProtocolError unless only the request's broker is answered, once."""
        results = message["results"]
        check_answered("DescribeConfigs", [str(self.node_id)], [result["resource_name"] for result in results])
        values = {config["name"]: config["value"] for config in results[0]["configs"]}
        return DescribeConfigsResponse(
            throttle_time_ms=message["throttle_time"], error_code=results[0]["error_code"], value=values.get(self.name)
        )

    def most(self) -> Mapping[str, int]:
        return each_asked(1, "results", "configs", "synonyms")


@dataclass(frozen=True, slots=True)
class DescribeConfigsResponse:
    """`value`: as brokers write it; None if the broker does not show it or has no such setting."""

    throttle_time_ms: int
    error_code: int
    value: str | None


@dataclass(frozen=True, slots=True)
class TopicConfigsRequest(Request):
    """Sent to any broker, because all know. Requires the ACL TOPIC DESCRIBE_CONFIGS on each topic."""

    api = _DESCRIBE_CONFIGS

    topics: tuple[str, ...]
    names: tuple[str, ...]

    def to_kio(self, kio: Any, version: int) -> Any:
        return kio.DescribeConfigsRequest(
            resources=tuple(
                kio.DescribeConfigsResource(
                    resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=self.names
                )
                for topic in self.topics
            )
        )

    def response(self, message: Message) -> TopicConfigsResponse:
        """Raise ProtocolError unless each of the request's topics is answered once, and no other topic."""
        results = message["results"]
        check_answered("DescribeConfigs", self.topics, [result["resource_name"] for result in results])
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

    def most(self) -> Mapping[str, int]:
        count = len(self.topics)
        return each_asked(count, "results") | each_asked(count * len(self.names), "configs", "synonyms")


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

"""What a cluster says of a topic's settings, and of what the principal may do with topics and groups.

    DescribeConfigs ─> topics' settings             DescribeGroups ─> what is allowed with a group
    Metadata (`describe`, in `requests`) ─> replicas, those in sync, and what is allowed with a topic

Rows of `requests.APIS`, in the order of `transactions`: the request, the response, how the one becomes kio's, how kio's
message becomes the other.

Non-obvious:

* Allowed operations (KIP-430) are bits by AclOperation's codes; without one of them the number is the lowest there is,
  which stands for "not told", not for "none".
* DescribeGroups stays at version 5: from 6 on (KIP-1043) a group that does not exist is an error without operations,
  and before it is a dead group with them.

Source: KIP-430, KIP-226; org.apache.kafka.common.acl.AclOperation.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.protocol.transactions import Versions, check_answered

# ConfigResource.Type.TOPIC
TOPIC_RESOURCE = 2
NOT_TOLD = -(2**31)


class AclOperation(enum.IntEnum):
    """Kafka's spelling and codes of those that are asked for here."""

    READ = 3
    WRITE = 4
    DESCRIBE = 8


def allows(authorized_operations: int, operation: AclOperation) -> bool | None:
    """None where the broker did not tell."""
    return None if authorized_operations == NOT_TOLD else bool(authorized_operations >> operation & 1)


# --- DescribeConfigs of topics ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicConfigsRequest:
    """To any broker: all know. It takes the ACL TOPIC DESCRIBE_CONFIGS on each topic."""

    topics: tuple[str, ...]
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicConfigs:
    """`values`: as brokers write them, without those that a broker's version does not have; none with an error."""

    topic: str
    error_code: int
    values: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicConfigsResponse:
    throttle_time_ms: int
    topics: tuple[TopicConfigs, ...]


def number_in(value: str | None) -> int | None:
    """What a setting that is a number says; None where it is none, or not of 64 bits."""
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
    """Raises ProtocolError unless each of the request's topics is answered for, once, and no other."""
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


# --- DescribeGroups ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DescribeGroupRequest:
    """To the coordinator of the group, which need not exist. Changes nothing."""

    group_id: str


@dataclass(frozen=True, slots=True)
class DescribeGroupResponse:
    throttle_time_ms: int
    error_code: int
    authorized_operations: int


DESCRIBE_GROUPS_VERSIONS: Versions = (5, 5)


def kio_describe_group(kio: Any, version: int, request: DescribeGroupRequest) -> Any:
    return kio.DescribeGroupsRequest(groups=(request.group_id,), include_authorized_operations=True)


def describe_group_response(request: DescribeGroupRequest, message: Mapping[str, Any]) -> DescribeGroupResponse:
    """Raises ProtocolError unless the request's group is answered for, once and alone."""
    groups = message["groups"]
    if [group["group_id"] for group in groups] != [request.group_id]:
        raise ProtocolError("a DescribeGroups answer for another group than asked")
    return DescribeGroupResponse(
        throttle_time_ms=message["throttle_time"],
        error_code=groups[0]["error_code"],
        authorized_operations=groups[0]["authorized_operations"],
    )


Request = TopicConfigsRequest | DescribeGroupRequest
Response = TopicConfigsResponse | DescribeGroupResponse

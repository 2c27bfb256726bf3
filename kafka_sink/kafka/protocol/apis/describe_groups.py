"""DescribeGroups: the operations that are allowed on a group (KIP-430)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.protocol.api import Api, each_asked


@dataclass(frozen=True, slots=True)
class DescribeGroupRequest:
    """Sent to the coordinator of the group, which need not exist. Changes nothing."""

    group_id: str


@dataclass(frozen=True, slots=True)
class DescribeGroupResponse:
    throttle_time_ms: int
    error_code: int
    authorized_operations: int


def kio_describe_group(kio: Any, version: int, request: DescribeGroupRequest) -> Any:
    return kio.DescribeGroupsRequest(groups=(request.group_id,), include_authorized_operations=True)


def describe_group_response(request: DescribeGroupRequest, message: Mapping[str, Any]) -> DescribeGroupResponse:
    """Raise ProtocolError unless only the request's group is answered, once."""
    groups = message["groups"]
    if [group["group_id"] for group in groups] != [request.group_id]:
        raise ProtocolError("a DescribeGroups answer for another group than asked")
    return DescribeGroupResponse(
        throttle_time_ms=message["throttle_time"],
        error_code=groups[0]["error_code"],
        authorized_operations=groups[0]["authorized_operations"],
    )


# `group.max.size` has no limit by default. An answer of 16 MiB has room for 100,000 members with 160 bytes each.
_MOST_MEMBERS = 100_000


# Version 3 is the first that tells the operations.
API = Api(
    "DescribeGroups",
    15,
    3,
    5,
    DescribeGroupRequest,
    kio_describe_group,
    describe_group_response,
    most=lambda request: each_asked(1, "groups") | each_asked(_MOST_MEMBERS, "members"),
)

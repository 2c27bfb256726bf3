"""DeleteGroups: deletes groups that are not needed any more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.kafka.protocol.api import Api, check_answered, each_asked


@dataclass(frozen=True, slots=True)
class DeleteGroupsRequest:
    """Groups without members, all of one coordinator, with their offsets (KIP-229)."""

    group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeletedGroup:
    group_id: str
    error_code: int


@dataclass(frozen=True, slots=True)
class DeleteGroupsResponse:
    throttle_time_ms: int
    groups: tuple[DeletedGroup, ...]


def kio_delete_groups(kio: Any, version: int, request: DeleteGroupsRequest) -> Any:
    return kio.DeleteGroupsRequest(groups_names=request.group_ids)


def delete_groups_response(request: DeleteGroupsRequest, message: Mapping[str, Any]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        throttle_time_ms=message["throttle_time"],
        groups=tuple(DeletedGroup(each["group_id"], each["error_code"]) for each in message["results"]),
    )


def check_delete_groups_response(request: DeleteGroupsRequest, response: DeleteGroupsResponse) -> None:
    """Raise ProtocolError unless each group occurs once."""
    check_answered("DeleteGroups", request.group_ids, (group.group_id for group in response.groups))


API = Api(
    "DeleteGroups",
    42,
    0,
    2,
    DeleteGroupsRequest,
    kio_delete_groups,
    delete_groups_response,
    check_delete_groups_response,
    client_throttles_from=1,
    most=lambda request: each_asked(len(request.group_ids), "results"),
)

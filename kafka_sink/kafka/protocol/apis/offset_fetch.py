"""OffsetFetch: offsets of many groups at once (KIP-447: require_stable; KIP-709)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.kafka.protocol.api import Api, Versions, by_partition, check_answered, check_number, each_asked
from kafka_sink.kafka.protocol.error_codes import ErrorCode


@dataclass(frozen=True, slots=True)
class OffsetFetchRequest:
    """The offsets of one partition in many groups, all of one coordinator.

    While a transaction on an offset is open, the answer is UNSTABLE_OFFSET_COMMIT (KIP-447). Without `require_stable`
    it is the last committed offset. `beside`: another partition, whose metadata text is returned as of the same moment.
    """

    group_ids: tuple[str, ...]
    topic: str
    partition: int
    require_stable: bool = True
    beside: int | None = None


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """`error_code`: of the group, or else of its partitions. `offset` is -1 if the group has none. `beside`: the
    metadata text of the other requested partition."""

    group_id: str
    error_code: int
    offset: int
    metadata: str
    beside: str = ""


@dataclass(frozen=True, slots=True)
class OffsetFetchResponse:
    throttle_time_ms: int
    groups: tuple[GroupOffset, ...]


# The first version with `require_stable` (KIP-447), and the first that may ask for several groups (KIP-709).
REQUIRES_STABLE, MANY_GROUPS = 7, 8
_HIGHEST = 9


def offset_fetch_versions(request: OffsetFetchRequest) -> Versions:
    return MANY_GROUPS if len(request.group_ids) > 1 else REQUIRES_STABLE, _HIGHEST


def kio_offset_fetch(kio: Any, version: int, request: OffsetFetchRequest) -> Any:
    if version < MANY_GROUPS:
        (group_id,) = request.group_ids
        topic = kio.OffsetFetchRequestTopic(name=request.topic, partition_indexes=_partitions(request))
        return kio.OffsetFetchRequest(group_id=group_id, topics=(topic,), require_stable=request.require_stable)
    topics = (kio.OffsetFetchRequestTopics(name=request.topic, partition_indexes=_partitions(request)),)
    return kio.OffsetFetchRequest(
        groups=tuple(kio.OffsetFetchRequestGroup(group_id=group_id, topics=topics) for group_id in request.group_ids),
        require_stable=request.require_stable,
    )


def offset_fetch_response(request: OffsetFetchRequest, message: Mapping[str, Any]) -> OffsetFetchResponse:
    """Raise ProtocolError unless a group without an error has each requested partition once."""
    # A response of one group does not name it.
    one = {"group_id": request.group_ids[0], **message}
    return OffsetFetchResponse(
        throttle_time_ms=message["throttle_time"],
        groups=tuple(_group_offset(request, group) for group in message.get("groups", (one,))),
    )


def _group_offset(request: OffsetFetchRequest, group: Mapping[str, Any]) -> GroupOffset:
    group_id, error_code = group["group_id"], group["error_code"]
    if error_code != ErrorCode.NONE:
        return GroupOffset(group_id, error_code, -1, "")
    found = by_partition("OffsetFetch", request.topic, _partitions(request), group["topics"])
    error_code = next((each["error_code"] for each in found.values() if each["error_code"]), ErrorCode.NONE)
    partition = found[request.partition]
    beside = "" if request.beside is None else found[request.beside]["metadata"] or ""
    return GroupOffset(group_id, error_code, partition["committed_offset"], partition["metadata"] or "", beside)


def _partitions(request: OffsetFetchRequest) -> tuple[int, ...]:
    return (request.partition,) if request.beside is None else (request.partition, request.beside)


def check_offset_fetch_response(request: OffsetFetchRequest, response: OffsetFetchResponse) -> None:
    """Raise ProtocolError unless each group occurs once, with an offset or none."""
    check_answered("OffsetFetch", request.group_ids, (group.group_id for group in response.groups))
    for group in response.groups:
        check_number("OffsetFetch", "offset", group.offset)


def offset_fetch_most(request: OffsetFetchRequest) -> Mapping[str, int]:
    count = len(request.group_ids)
    return each_asked(count, "groups") | each_asked(count * len(_partitions(request)), "topics", "partitions")


API = Api(
    "OffsetFetch",
    9,
    REQUIRES_STABLE,
    _HIGHEST,
    OffsetFetchRequest,
    kio_offset_fetch,
    offset_fetch_response,
    check_offset_fetch_response,
    offset_fetch_versions,
    most=offset_fetch_most,
)

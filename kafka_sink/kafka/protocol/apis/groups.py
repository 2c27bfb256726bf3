"""Coordinators, and the offsets of consumer groups."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.protocol.api import (
    Api,
    PartitionResult,
    Versions,
    by_partition,
    by_topic,
    check_answered,
    check_number,
    each_asked,
    only_partition,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

# --- FindCoordinator --------------------------------------------------------------------------------------------------
# The coordinators of transactional ids or groups (KIP-699).


class CoordinatorKind(enum.IntEnum):
    """The kind of a FindCoordinator key: Kafka's CoordinatorType."""

    GROUP = 0
    TRANSACTION = 1


@dataclass(frozen=True, slots=True)
class FindCoordinatorRequest:
    """`keys`: group ids or transactional ids, each once."""

    kind: CoordinatorKind
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FoundCoordinator:
    """The coordinator of `key`, with its address. After an error, node id and port are -1."""

    key: str
    error_code: int
    error_message: str | None
    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class FindCoordinatorResponse:
    throttle_time_ms: int
    coordinators: tuple[FoundCoordinator, ...]


# From this version on, a request may have several keys (KIP-699).
MANY_KEYS = 4
_LOWEST_COORDINATOR, _HIGHEST_COORDINATOR = 1, 6


def find_coordinator_versions(request: FindCoordinatorRequest) -> Versions:
    return MANY_KEYS if len(request.keys) > 1 else _LOWEST_COORDINATOR, _HIGHEST_COORDINATOR


def kio_find_coordinator(kio: Any, version: int, request: FindCoordinatorRequest) -> Any:
    if version < MANY_KEYS:
        (key,) = request.keys
        return kio.FindCoordinatorRequest(key_type=request.kind.value, key=key)
    return kio.FindCoordinatorRequest(key_type=request.kind.value, coordinator_keys=request.keys)


def find_coordinator_response(request: FindCoordinatorRequest, message: Mapping[str, Any]) -> FindCoordinatorResponse:
    # A response with one coordinator does not name the key.
    one = {"key": request.keys[0], **message}
    return FindCoordinatorResponse(
        throttle_time_ms=message["throttle_time"],
        coordinators=tuple(
            FoundCoordinator(
                key=found["key"],
                error_code=found["error_code"],
                error_message=found["error_message"],
                node_id=found["node_id"],
                host=found["host"],
                port=found["port"],
            )
            for found in message.get("coordinators", (one,))
        ),
    )


def check_find_coordinator_response(request: FindCoordinatorRequest, response: FindCoordinatorResponse) -> None:
    """Raise ProtocolError unless each key occurs once, with a broker or an error."""
    check_answered("FindCoordinator", request.keys, (found.key for found in response.coordinators))
    for found in response.coordinators:
        possible = found.node_id >= 0 and found.host and 0 < found.port < 65536
        if found.error_code == ErrorCode.NONE and not possible:
            raise ProtocolError(f"a FindCoordinator answer with an impossible broker: {found}")


FIND_COORDINATOR = Api(
    "FindCoordinator",
    10,
    _LOWEST_COORDINATOR,
    _HIGHEST_COORDINATOR,
    FindCoordinatorRequest,
    kio_find_coordinator,
    find_coordinator_response,
    check_find_coordinator_response,
    find_coordinator_versions,
    client_throttles_from=2,
    most=lambda request: each_asked(len(request.keys), "coordinators"),
)


# --- OffsetCommit -----------------------------------------------------------------------------------------------------
# Commits offsets of a group without members.
#
# Source: org.apache.kafka.clients.admin.internals.AlterConsumerGroupOffsetsHandler.


@dataclass(frozen=True, slots=True)
class OffsetCommitRequest:
    """One offset with a metadata text, outside of any transaction. The group has no members."""

    group_id: str
    topic: str
    partition: int
    offset: int
    metadata: str


@dataclass(frozen=True, slots=True)
class OffsetCommitResponse:
    throttle_time_ms: int
    error_code: int


def kio_offset_commit(kio: Any, version: int, request: OffsetCommitRequest) -> Any:
    partition = kio.OffsetCommitRequestPartition(
        partition_index=request.partition, committed_offset=request.offset, committed_metadata=request.metadata
    )
    return _of_no_member(
        kio, request.group_id, (kio.OffsetCommitRequestTopic(name=request.topic, partitions=(partition,)),)
    )


def _of_no_member(kio: Any, group_id: str, topics: tuple[Any, ...]) -> Any:
    """No member and no generation, as for a group whose offsets are committed manually."""
    return kio.OffsetCommitRequest(group_id=group_id, generation_id_or_member_epoch=-1, member_id="", topics=topics)


def offset_commit_response(request: OffsetCommitRequest, message: Mapping[str, Any]) -> OffsetCommitResponse:
    """Raise ProtocolError unless only the request's partition is answered, once."""
    partition = only_partition("OffsetCommit", request.topic, request.partition, message["topics"])
    return OffsetCommitResponse(throttle_time_ms=message["throttle_time"], error_code=partition["error_code"])


@dataclass(frozen=True, slots=True)
class ProgressCommitRequest:
    """How far a reader is in each partition: the offset of the next record."""

    group_id: str
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class ProgressCommitResponse:
    """A refusal of the whole group is the result of each partition."""

    throttle_time_ms: int
    results: tuple[PartitionResult, ...]


def kio_progress_commit(kio: Any, version: int, request: ProgressCommitRequest) -> Any:
    topics = tuple(
        kio.OffsetCommitRequestTopic(
            name=topic,
            partitions=tuple(
                kio.OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=request.offsets[TopicPartition(topic, partition)],
                    committed_metadata="",
                )
                for partition in partitions
            ),
        )
        for topic, partitions in by_topic(request.offsets).items()
    )
    return _of_no_member(kio, request.group_id, topics)


def progress_commit_response(request: ProgressCommitRequest, message: Mapping[str, Any]) -> ProgressCommitResponse:
    return ProgressCommitResponse(
        throttle_time_ms=message["throttle_time"],
        results=tuple(
            PartitionResult(topic["name"], partition["partition_index"], partition["error_code"])
            for topic in message["topics"]
            for partition in topic["partitions"]
        ),
    )


def check_progress_commit_response(request: ProgressCommitRequest, response: ProgressCommitResponse) -> None:
    """Raise ProtocolError unless each partition of the request is answered once."""
    answered = (TopicPartition(each.topic, each.partition) for each in response.results)
    check_answered("OffsetCommit", request.offsets.keys(), answered)


# Before version 5 the request says for how long the offset is kept. From version 10 on it names topics by id.
_VERSIONS = (5, 9)
OFFSET_COMMIT = Api(
    "OffsetCommit",
    8,
    *_VERSIONS,
    OffsetCommitRequest,
    kio_offset_commit,
    offset_commit_response,
    most=lambda request: each_asked(1, "topics", "partitions"),
)
PROGRESS_API = Api(
    "OffsetCommit",
    8,
    *_VERSIONS,
    ProgressCommitRequest,
    kio_progress_commit,
    progress_commit_response,
    check_progress_commit_response,
    most=lambda request: each_asked(len(request.offsets), "topics", "partitions"),
)


# --- OffsetFetch ------------------------------------------------------------------------------------------------------
# Offsets of many groups at once (KIP-447: require_stable; KIP-709).


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
_HIGHEST_FETCH = 9


def offset_fetch_versions(request: OffsetFetchRequest) -> Versions:
    return MANY_GROUPS if len(request.group_ids) > 1 else REQUIRES_STABLE, _HIGHEST_FETCH


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


OFFSET_FETCH = Api(
    "OffsetFetch",
    9,
    REQUIRES_STABLE,
    _HIGHEST_FETCH,
    OffsetFetchRequest,
    kio_offset_fetch,
    offset_fetch_response,
    check_offset_fetch_response,
    offset_fetch_versions,
    most=offset_fetch_most,
)


# --- DescribeGroups ---------------------------------------------------------------------------------------------------
# The operations that are allowed on a group (KIP-430).


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
DESCRIBE_GROUPS = Api(
    "DescribeGroups",
    15,
    3,
    5,
    DescribeGroupRequest,
    kio_describe_group,
    describe_group_response,
    most=lambda request: each_asked(1, "groups") | each_asked(_MOST_MEMBERS, "members"),
)


# --- DeleteGroups -----------------------------------------------------------------------------------------------------
# Deletes groups that are not needed any more.


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


DELETE_GROUPS = Api(
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

"""Coordinators, consumer groups, and their offsets. Those that are written to have no members."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.protocol.api import (
    Api,
    ErrorResponse,
    Message,
    PartitionsResponse,
    Request,
    Versions,
    by_partition,
    by_topic,
    check_answered,
    check_number,
    check_partitions,
    each_asked,
    only_partition,
    partition_results,
    partitions_of,
    read,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

# --- FindCoordinator --------------------------------------------------------------------------------------------------

# From this version on, a request may have several keys (KIP-699).
MANY_KEYS = 4


class CoordinatorKind(enum.IntEnum):
    """The kind of a FindCoordinator key: Kafka's CoordinatorType."""

    GROUP = 0
    TRANSACTION = 1


@dataclass(frozen=True, slots=True)
class FindCoordinatorRequest(Request):
    """`keys`: group ids or transactional ids, each once."""

    api = Api("FindCoordinator", 10, 1, 6, client_throttles_from=2)

    kind: CoordinatorKind
    keys: tuple[str, ...]

    def versions(self) -> Versions:
        return MANY_KEYS if len(self.keys) > 1 else self.api.min_version, self.api.max_version

    def to_kio(self, kio: Any, version: int) -> Any:
        if version < MANY_KEYS:
            (key,) = self.keys
            return kio.FindCoordinatorRequest(key_type=self.kind.value, key=key)
        return kio.FindCoordinatorRequest(key_type=self.kind.value, coordinator_keys=self.keys)

    def response(self, message: Message) -> FindCoordinatorResponse:
        # A response with one coordinator does not name the key.
        one = {"key": self.keys[0], **message}
        return FindCoordinatorResponse(
            throttle_time_ms=message["throttle_time"],
            coordinators=tuple(read(FoundCoordinator, found) for found in message.get("coordinators", (one,))),
        )

    def check(self, response: FindCoordinatorResponse) -> None:
        """Raise ProtocolError unless each key occurs once, with a broker or an error."""
        check_answered("FindCoordinator", self.keys, (found.key for found in response.coordinators))
        for found in response.coordinators:
            possible = found.node_id >= 0 and found.host and 0 < found.port < 65536
            if found.error_code == ErrorCode.NONE and not possible:
                raise ProtocolError(f"a FindCoordinator answer with an impossible broker: {found}")

    def most(self) -> Mapping[str, int]:
        return each_asked(len(self.keys), "coordinators")


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


# --- OffsetCommit -----------------------------------------------------------------------------------------------------

# Before version 5 the request says for how long the offset is kept. From version 10 on it names topics by id.
_OFFSET_COMMIT = Api("OffsetCommit", 8, 5, 9)


def _of_no_member(kio: Any, group_id: str, topics: tuple[Any, ...]) -> Any:
    """No member and no generation, as AlterConsumerGroupOffsetsHandler commits the offsets of a group."""
    return kio.OffsetCommitRequest(group_id=group_id, generation_id_or_member_epoch=-1, member_id="", topics=topics)


@dataclass(frozen=True, slots=True)
class OffsetCommitRequest(Request):
    """One offset with a metadata text, outside of any transaction."""

    api = _OFFSET_COMMIT

    group_id: str
    topic: str
    partition: int
    offset: int
    metadata: str

    def to_kio(self, kio: Any, version: int) -> Any:
        partition = kio.OffsetCommitRequestPartition(
            partition_index=self.partition, committed_offset=self.offset, committed_metadata=self.metadata
        )
        topic = kio.OffsetCommitRequestTopic(name=self.topic, partitions=(partition,))
        return _of_no_member(kio, self.group_id, (topic,))

    def response(self, message: Message) -> ErrorResponse:
        """Raise ProtocolError unless only the request's partition is answered, once."""
        partition = only_partition("OffsetCommit", self.topic, self.partition, message["topics"])
        return ErrorResponse(message["throttle_time"], partition["error_code"])

    def most(self) -> Mapping[str, int]:
        return each_asked(1, "topics", "partitions")


@dataclass(frozen=True, slots=True)
class ProgressCommitRequest(Request):
    """How far a reader is in each partition: the offset of the next record."""

    api = _OFFSET_COMMIT

    group_id: str
    offsets: Mapping[TopicPartition, int]

    def to_kio(self, kio: Any, version: int) -> Any:
        topics = tuple(
            kio.OffsetCommitRequestTopic(
                name=topic,
                partitions=tuple(
                    kio.OffsetCommitRequestPartition(
                        partition_index=partition,
                        committed_offset=self.offsets[TopicPartition(topic, partition)],
                        committed_metadata="",
                    )
                    for partition in partitions
                ),
            )
            for topic, partitions in by_topic(self.offsets).items()
        )
        return _of_no_member(kio, self.group_id, topics)

    def response(self, message: Message) -> ProgressCommitResponse:
        return ProgressCommitResponse(message["throttle_time"], partition_results(message["topics"]))

    def check(self, response: ProgressCommitResponse) -> None:
        """Raise ProtocolError unless each partition of the request is answered once."""
        check_partitions("OffsetCommit", self.offsets, response.results)

    def most(self) -> Mapping[str, int]:
        return each_asked(len(self.offsets), "topics", "partitions")


class ProgressCommitResponse(PartitionsResponse):
    """A refusal of the whole group is the result of each partition."""

    __slots__ = ()


# --- OffsetFetch ------------------------------------------------------------------------------------------------------

# The first version with `require_stable` (KIP-447), and the first that may ask for several groups (KIP-709).
REQUIRES_STABLE, MANY_GROUPS = 7, 8


@dataclass(frozen=True, slots=True)
class OffsetFetchRequest(Request):
    """The offsets of one partition in many groups, all of one coordinator.

    While a transaction on an offset is open, the answer is UNSTABLE_OFFSET_COMMIT (KIP-447). Without `require_stable`
    it is the last committed offset. `beside`: another partition, whose metadata text is returned as of the same moment.
    """

    api = Api("OffsetFetch", 9, REQUIRES_STABLE, 9)

    group_ids: tuple[str, ...]
    topic: str
    partition: int
    require_stable: bool = True
    beside: int | None = None

    @property
    def _partitions(self) -> tuple[int, ...]:
        return (self.partition,) if self.beside is None else (self.partition, self.beside)

    def versions(self) -> Versions:
        return MANY_GROUPS if len(self.group_ids) > 1 else REQUIRES_STABLE, self.api.max_version

    def to_kio(self, kio: Any, version: int) -> Any:
        if version < MANY_GROUPS:
            (group_id,) = self.group_ids
            topic = kio.OffsetFetchRequestTopic(name=self.topic, partition_indexes=self._partitions)
            return kio.OffsetFetchRequest(group_id=group_id, topics=(topic,), require_stable=self.require_stable)
        topics = (kio.OffsetFetchRequestTopics(name=self.topic, partition_indexes=self._partitions),)
        return kio.OffsetFetchRequest(
            groups=tuple(kio.OffsetFetchRequestGroup(group_id=group_id, topics=topics) for group_id in self.group_ids),
            require_stable=self.require_stable,
        )

    def response(self, message: Message) -> OffsetFetchResponse:
        """Raise ProtocolError unless a group without an error has each requested partition once."""
        # A response of one group does not name it.
        one = {"group_id": self.group_ids[0], **message}
        return OffsetFetchResponse(
            throttle_time_ms=message["throttle_time"],
            groups=tuple(map(self._group_offset, message.get("groups", (one,)))),
        )

    def _group_offset(self, group: Message) -> GroupOffset:
        group_id, error_code = group["group_id"], group["error_code"]
        if error_code != ErrorCode.NONE:
            return GroupOffset(group_id, error_code, -1, "")
        found = by_partition("OffsetFetch", self.topic, self._partitions, group["topics"])
        error_code = next((each["error_code"] for each in found.values() if each["error_code"]), ErrorCode.NONE)
        partition = found[self.partition]
        beside = "" if self.beside is None else found[self.beside]["metadata"] or ""
        return GroupOffset(group_id, error_code, partition["committed_offset"], partition["metadata"] or "", beside)

    def check(self, response: OffsetFetchResponse) -> None:
        """Raise ProtocolError unless each group occurs once, with an offset or none."""
        check_answered("OffsetFetch", self.group_ids, (group.group_id for group in response.groups))
        for group in response.groups:
            check_number("OffsetFetch", "offset", group.offset)

    def most(self) -> Mapping[str, int]:
        count = len(self.group_ids)
        return each_asked(count, "groups") | each_asked(count * len(self._partitions), "topics", "partitions")


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


@dataclass(frozen=True, slots=True)
class GroupOffsetsRequest(Request):
    """The stable offsets of many partitions in one group: those that an open transaction is about to replace are
    UNSTABLE_OFFSET_COMMIT until it ends (KIP-447). The group need not exist."""

    api = OffsetFetchRequest.api

    group_id: str
    partitions: tuple[TopicPartition, ...]

    def versions(self) -> Versions:
        # Later ones only add that several groups are asked for.
        return REQUIRES_STABLE, REQUIRES_STABLE

    def to_kio(self, kio: Any, version: int) -> Any:
        topics = tuple(
            kio.OffsetFetchRequestTopic(name=topic, partition_indexes=partitions)
            for topic, partitions in by_topic(self.partitions).items()
        )
        return kio.OffsetFetchRequest(group_id=self.group_id, topics=topics, require_stable=True)

    def response(self, message: Message) -> GroupOffsetsResponse:
        return GroupOffsetsResponse(
            throttle_time_ms=message["throttle_time"],
            error_code=message["error_code"],
            offsets=tuple(
                read(
                    CommittedOffset, each, offset=each["committed_offset"], leader_epoch=each["committed_leader_epoch"]
                )
                for each in partitions_of(message["topics"])
            ),
        )

    def check(self, response: GroupOffsetsResponse) -> None:
        """Raise ProtocolError unless a group without an error has each partition once, with an offset or none."""
        if response.error_code == ErrorCode.NONE:
            check_partitions("OffsetFetch", self.partitions, response.offsets)
        for each in response.offsets:
            check_number("OffsetFetch", "offset", each.offset)
            check_number("OffsetFetch", "leader epoch", each.leader_epoch)

    def most(self) -> Mapping[str, int]:
        return each_asked(len(self.partitions), "topics", "partitions")


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """`offset` is -1 if the group has none. `leader_epoch`: of the last record before it, -1 if the group does not say
    so."""

    topic: str
    partition: int
    error_code: int
    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class GroupOffsetsResponse:
    """`error_code`: of the whole group. Then there may be no offsets."""

    throttle_time_ms: int
    error_code: int
    offsets: tuple[CommittedOffset, ...]


# --- DescribeGroups ---------------------------------------------------------------------------------------------------

# `group.max.size` has no limit by default. An answer of 16 MiB has room for 100,000 members with 160 bytes each.
_MOST_MEMBERS = 100_000


@dataclass(frozen=True, slots=True)
class DescribeGroupRequest(Request):
    """Asks for the operations that are allowed on a group (KIP-430), and for its state. Sent to its coordinator. The
    group need not exist."""

    # Version 3 is the first that reports operations. From 6 on (KIP-1043) a group that does not exist is an error.
    api = Api("DescribeGroups", 15, 3, 5)

    group_id: str

    def to_kio(self, kio: Any, version: int) -> Any:
        return kio.DescribeGroupsRequest(groups=(self.group_id,), include_authorized_operations=True)

    def response(self, message: Message) -> DescribeGroupResponse:
        """Raise ProtocolError unless only the request's group is answered, once."""
        groups = message["groups"]
        if [group["group_id"] for group in groups] != [self.group_id]:
            raise ProtocolError("a DescribeGroups answer for another group than asked")
        return read(DescribeGroupResponse, groups[0], throttle_time_ms=message["throttle_time"])

    def most(self) -> Mapping[str, int]:
        return each_asked(1, "groups") | each_asked(_MOST_MEMBERS, "members")


@dataclass(frozen=True, slots=True)
class DescribeGroupResponse:
    """`group_state`: as Kafka names it, `Dead` for a group that does not exist, or that has another protocol than the
    classic one (KIP-848)."""

    throttle_time_ms: int
    error_code: int
    authorized_operations: int
    group_state: str = ""


# --- DeleteGroups -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeleteGroupsRequest(Request):
    """Deletes groups, all of one coordinator, with their offsets (KIP-229)."""

    api = Api("DeleteGroups", 42, 0, 2, client_throttles_from=1)

    group_ids: tuple[str, ...]

    def to_kio(self, kio: Any, version: int) -> Any:
        return kio.DeleteGroupsRequest(groups_names=self.group_ids)

    def response(self, message: Message) -> DeleteGroupsResponse:
        return DeleteGroupsResponse(
            throttle_time_ms=message["throttle_time"],
            groups=tuple(read(DeletedGroup, each) for each in message["results"]),
        )

    def check(self, response: DeleteGroupsResponse) -> None:
        """Raise ProtocolError unless each group occurs once."""
        check_answered("DeleteGroups", self.group_ids, (group.group_id for group in response.groups))

    def most(self) -> Mapping[str, int]:
        return each_asked(len(self.group_ids), "results")


@dataclass(frozen=True, slots=True)
class DeletedGroup:
    group_id: str
    error_code: int


@dataclass(frozen=True, slots=True)
class DeleteGroupsResponse:
    throttle_time_ms: int
    groups: tuple[DeletedGroup, ...]

"""Commits offsets to a consumer group that has no members, as Kafka's Admin.alterConsumerGroupOffsets does, and reads
those that a group has committed, as Admin.listConsumerGroupOffsets.

    loading, moved, no answer ─> again, until COMMIT_PATIENCE_MS or max.block.ms (`kafka.coordinators`)
    the group is refused, or some partitions ─> an error that says what to do; the other partitions are committed

Source: org.apache.kafka.clients.admin.internals.AlterConsumerGroupOffsetsHandler and ListConsumerGroupOffsetsHandler;
validateOffsetCommit of ClassicGroup, ConsumerGroup and ShareGroup in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_sink.errors import (
    CoordinatorRefused,
    CoordinatorUnavailable,
    GroupCommitFailed,
    GroupNotReadable,
    named_principal,
)
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.protocol.api import PartitionResult
from kafka_sink.kafka.protocol.apis.groups import (
    CommittedOffset,
    CoordinatorKind,
    DescribeGroupRequest,
    DescribeGroupResponse,
    GroupOffsetsRequest,
    GroupOffsetsResponse,
    ProgressCommitRequest,
    ProgressCommitResponse,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_name, error_text
from kafka_sink.kafka.protocol.needs import READING, Guarantee, Need
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

# The stream waits meanwhile, and its next commit has newer offsets. A coordinator that shuts down in order moves within
# 2 s, and a new cluster takes as long to create __consumer_offsets.
COMMIT_PATIENCE_MS = 5_000

STARTING_GROUP = Guarantee(
    "startingGroup",
    (*READING.needs, Need(GroupOffsetsRequest("", ()), "2.5", "reads committed offsets, stable ones only (KIP-447)")),
)
# In the others a classic group has no members.
_WITH_MEMBERS = ("PreparingRebalance", "CompletingRebalance", "Stable")


@dataclass(frozen=True, slots=True)
class CommittedOffsets:
    """`found`: of the partitions of which the group has committed one. `has_members`: whether consumers of the classic
    protocol are members of the group."""

    found: Mapping[TopicPartition, CommittedOffset]
    has_members: bool


def committed_offsets(client: AdminClient, group_id: str, partitions: Sequence[TopicPartition]) -> CommittedOffsets:
    """Return which offsets the group has committed. Waits for transactions that are about to replace one. Raises
    BrokerUnsupported, GroupNotReadable, CoordinatorUnavailable, BrokersUnreachable."""
    client.require(STARTING_GROUP)
    asked = [GroupOffsetsRequest(group_id, tuple(partitions)), DescribeGroupRequest(group_id)]
    if not client.caller.takes(asked[1], client.caller.deadline_ms()):
        del asked[1]
    try:
        offsets, *described = client.ask_all([(CoordinatorKind.GROUP, group_id, request) for request in asked])
    except CoordinatorRefused as error:
        raise GroupNotReadable(group_id=group_id, code=error.code, name=error.name) from None
    assert isinstance(offsets, GroupOffsetsResponse)
    for code in (offsets.error_code, *(each.error_code for each in offsets.offsets)):
        if code != ErrorCode.NONE:
            raise GroupNotReadable(group_id=group_id, code=code, name=error_name(code))
    return CommittedOffsets(
        {TopicPartition(each.topic, each.partition): each for each in offsets.offsets if each.offset >= 0},
        any(isinstance(each, DescribeGroupResponse) and each.group_state in _WITH_MEMBERS for each in described),
    )


def commit_group_offsets(client: AdminClient, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Commit how far a reader is: the offset of the next record of each partition. Raises GroupCommitFailed."""
    request = ProgressCommitRequest(group_id, offsets)
    principal = client.config.security.principal
    try:
        with client.within(COMMIT_PATIENCE_MS):
            (answer,) = client.ask_all([(CoordinatorKind.GROUP, group_id, request)])
    except CoordinatorRefused as error:
        raise _failed(group_id, error_text(error.code), remedy_of(error.code, group_id, "", principal)) from None
    except CoordinatorUnavailable as error:
        waited_ms = min(COMMIT_PATIENCE_MS, client.config.api_timeout_ms)
        raise _failed(
            group_id,
            f"its coordinator gave no definite answer within {waited_ms} ms; last: {error.last_error}",
            "check the brokers, and that every partition of __consumer_offsets has a leader",
        ) from None
    assert isinstance(answer, ProgressCommitResponse)
    refusal = refusal_of(group_id, answer.results, principal)
    if refusal is not None:
        raise refusal


def refusal_of(group_id: str, results: Sequence[PartitionResult], principal: str | None) -> GroupCommitFailed | None:
    """Return the error of the first partition that was refused, or None. It tells how many were."""
    refused = [each for each in results if each.error_code]
    if not refused:
        return None
    first = refused[0]
    others = f" and {len(refused) - 1} of {len(results) - 1} others" if len(results) > 1 else ""
    return _failed(
        group_id,
        f"{error_text(first.error_code)} for {first.topic}-{first.partition}{others}",
        remedy_of(first.error_code, group_id, first.topic, principal),
    )


def remedy_of(code: int, group_id: str, topic: str, principal: str | None) -> str:
    match code:
        case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.REBALANCE_IN_PROGRESS:
            return (
                "set groupId to a group that no consumer is a member of: consumers are members of this one, and only "
                "they may commit"
            )
        case ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return f"add the ACL GROUP {group_id} READ (it implies DESCRIBE) for {named_principal(principal)}"
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return f"add the ACL TOPIC {topic} READ (it implies DESCRIBE) for {named_principal(principal)}"
        case ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return f"if topic {topic} was deleted, leave it out of the query"
        case ErrorCode.GROUP_ID_NOT_FOUND:
            return "set groupId to another name: this one is the name of a group of another type, such as a share group"
        case ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
            return "raise max.message.bytes of __consumer_offsets: the coordinator writes a commit as one batch"
        case _:
            return "look at the log of the group's coordinator"


def _failed(group_id: str, reason: str, remedy: str) -> GroupCommitFailed:
    return GroupCommitFailed(group_id=group_id, reason=reason, remedy=remedy)

"""OffsetCommit: commits offsets of a group without members.

Source: org.apache.kafka.clients.admin.internals.AlterConsumerGroupOffsetsHandler.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.kafka.protocol.api import Api, PartitionResult, by_topic, check_answered, each_asked, only_partition
from kafka_sink.kafka.protocol.topic_partition import TopicPartition


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
API = Api(
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

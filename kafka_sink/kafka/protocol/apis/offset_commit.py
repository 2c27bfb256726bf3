"""OffsetCommit: commits an offset of a group without members."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.kafka.protocol.api import Api, only_partition


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
    # No member and no generation, as for a group whose offsets are committed manually.
    return kio.OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=(kio.OffsetCommitRequestTopic(name=request.topic, partitions=(partition,)),),
    )


def offset_commit_response(request: OffsetCommitRequest, message: Mapping[str, Any]) -> OffsetCommitResponse:
    """Raise ProtocolError unless only the request's partition is answered, once."""
    partition = only_partition("OffsetCommit", request.topic, request.partition, message["topics"])
    return OffsetCommitResponse(throttle_time_ms=message["throttle_time"], error_code=partition["error_code"])


# Before version 5 the request says for how long the offset is kept.
API = Api("OffsetCommit", 8, 5, 9, OffsetCommitRequest, kio_offset_commit, offset_commit_response)

"""TxnOffsetCommit: commits an offset as part of a transaction (KIP-447, KIP-890)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.kafka.protocol.api import Api, Versions, each_asked, only_partition


@dataclass(frozen=True, slots=True)
class TxnOffsetCommitRequest:
    """One offset with a metadata text, visible once the transaction commits. The group has no members."""

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    topic: str
    partition: int
    offset: int
    metadata: str
    transaction_version: int


@dataclass(frozen=True, slots=True)
class TxnOffsetCommitResponse:
    throttle_time_ms: int
    error_code: int


def txn_offset_commit_versions(request: TxnOffsetCommitRequest) -> Versions:
    """Return the one version that adds the group to the transaction, or those that need AddOffsetsToTxn before."""
    return (5, 5) if request.transaction_version >= 2 else (3, 4)


def kio_txn_offset_commit(kio: Any, version: int, request: TxnOffsetCommitRequest) -> Any:
    partition = kio.TxnOffsetCommitRequestPartition(
        partition_index=request.partition, committed_offset=request.offset, committed_metadata=request.metadata
    )
    return kio.TxnOffsetCommitRequest(
        transactional_id=request.transactional_id,
        group_id=request.group_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        topics=(kio.TxnOffsetCommitRequestTopic(name=request.topic, partitions=(partition,)),),
    )


def txn_offset_commit_response(request: TxnOffsetCommitRequest, message: Mapping[str, Any]) -> TxnOffsetCommitResponse:
    """Raise ProtocolError unless only the request's partition is answered, once."""
    partition = only_partition("TxnOffsetCommit", request.topic, request.partition, message["topics"])
    return TxnOffsetCommitResponse(throttle_time_ms=message["throttle_time"], error_code=partition["error_code"])


API = Api(
    "TxnOffsetCommit",
    28,
    3,
    5,
    TxnOffsetCommitRequest,
    kio_txn_offset_commit,
    txn_offset_commit_response,
    versions_of=txn_offset_commit_versions,
    most=lambda request: each_asked(1, "topics", "partitions"),
)

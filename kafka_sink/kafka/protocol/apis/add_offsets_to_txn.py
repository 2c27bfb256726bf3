"""AddOffsetsToTxn: adds a group's offsets to a transaction of version 1 (KIP-98)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.kafka.protocol.api import Api


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxnRequest:
    """Sent before the first TxnOffsetCommit of `group_id` in a transaction of version 1."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxnResponse:
    throttle_time_ms: int
    error_code: int


def kio_add_offsets_to_txn(kio: Any, version: int, request: AddOffsetsToTxnRequest) -> Any:
    return kio.AddOffsetsToTxnRequest(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        group_id=request.group_id,
    )


def add_offsets_to_txn_response(request: AddOffsetsToTxnRequest, message: Mapping[str, Any]) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(throttle_time_ms=message["throttle_time"], error_code=message["error_code"])


API = Api(
    "AddOffsetsToTxn",
    25,
    0,
    4,
    AddOffsetsToTxnRequest,
    kio_add_offsets_to_txn,
    add_offsets_to_txn_response,
    client_throttles_from=1,
)

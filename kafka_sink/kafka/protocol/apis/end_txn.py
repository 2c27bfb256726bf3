"""EndTxn: commits or aborts a transaction (KIP-98, KIP-890)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.protocol.api import Api, Versions
from kafka_sink.kafka.protocol.error_codes import ErrorCode


@dataclass(frozen=True, slots=True)
class EndTxnRequest:
    """Commits (`committed`) or aborts the transaction. `transaction_version`: 1 or 2, as when it was begun."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    transaction_version: int


@dataclass(frozen=True, slots=True)
class EndTxnResponse:
    """`producer_id`, `producer_epoch`: the ids to continue with after a transaction of version 2; otherwise -1."""

    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int


def end_txn_versions(request: EndTxnRequest) -> Versions:
    """Return the one version that bumps the epoch, or the versions that do not."""
    return (5, 5) if request.transaction_version >= 2 else (0, 4)


def kio_end_txn(kio: Any, version: int, request: EndTxnRequest) -> Any:
    return kio.EndTxnRequest(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        committed=request.committed,
    )


def end_txn_response(request: EndTxnRequest, message: Mapping[str, Any]) -> EndTxnResponse:
    return EndTxnResponse(
        throttle_time_ms=message["throttle_time"],
        error_code=message["error_code"],
        producer_id=message.get("producer_id", -1),
        producer_epoch=message.get("producer_epoch", -1),
    )


def check_end_txn_response(request: EndTxnRequest, response: EndTxnResponse) -> None:
    """Raise ProtocolError if a success of version 2 has no ids to continue with."""
    has_ids = response.producer_id >= 0 and response.producer_epoch >= 0
    if response.error_code == ErrorCode.NONE and request.transaction_version >= 2 and not has_ids:
        raise ProtocolError("an EndTxn answer with neither an error nor the producer's next id and epoch")


API = Api(
    "EndTxn",
    26,
    0,
    5,
    EndTxnRequest,
    kio_end_txn,
    end_txn_response,
    check_end_txn_response,
    end_txn_versions,
    client_throttles_from=1,
)

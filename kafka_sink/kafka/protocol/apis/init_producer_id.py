"""InitProducerId: returns a producer id and epoch, which fence earlier ones (KIP-98, KIP-360)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.protocol.api import Api, Versions
from kafka_sink.kafka.protocol.error_codes import ErrorCode


@dataclass(frozen=True, slots=True)
class InitProducerIdRequest:
    """`transaction_timeout_ms` has an effect only with a transactional id."""

    transaction_timeout_ms: int
    transactional_id: str | None = None


@dataclass(frozen=True, slots=True)
class InitProducerIdResponse:
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int


# The first version whose broker keeps a transactional id's last epoch, by which a fence can be told from a lost
# request (KIP-360).
LOWEST_TRANSACTIONAL = 3
# Every release so far refuses version 6 (KIP-939, prepared transactions).
_HIGHEST = 5


def init_producer_id_versions(request: InitProducerIdRequest) -> Versions:
    return 0 if request.transactional_id is None else LOWEST_TRANSACTIONAL, _HIGHEST


def kio_init_producer_id(kio: Any, version: int, request: InitProducerIdRequest) -> Any:
    return kio.InitProducerIdRequest(
        transactional_id=request.transactional_id,
        transaction_timeout=timedelta(milliseconds=request.transaction_timeout_ms),
    )


def init_producer_id_response(request: InitProducerIdRequest, message: Mapping[str, Any]) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=message["throttle_time"],
        error_code=message["error_code"],
        producer_id=message["producer_id"],
        producer_epoch=message["producer_epoch"],
    )


def check_init_producer_id_response(request: InitProducerIdRequest, response: InitProducerIdResponse) -> None:
    """Raise ProtocolError for a success without an id: batches would silently be sent without idempotence."""
    if response.error_code == ErrorCode.NONE and (response.producer_id < 0 or response.producer_epoch < 0):
        raise ProtocolError("an InitProducerId answer with neither an error nor a producer id")


API = Api(
    "InitProducerId",
    22,
    0,
    _HIGHEST,
    InitProducerIdRequest,
    kio_init_producer_id,
    init_producer_id_response,
    check_init_producer_id_response,
    init_producer_id_versions,
    client_throttles_from=1,
)

"""SaslHandshake: the mechanisms that a broker offers (KIP-43)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.kafka.protocol.api import Api


@dataclass(frozen=True, slots=True)
class SaslHandshakeRequest:
    mechanism: str


@dataclass(frozen=True, slots=True)
class SaslHandshakeResponse:
    """`mechanisms`: those that the broker's listener offers."""

    error_code: int
    mechanisms: tuple[str, ...]
    throttle_time_ms: int = 0


def kio_sasl_handshake(kio: Any, version: int, request: SaslHandshakeRequest) -> Any:
    return kio.SaslHandshakeRequest(mechanism=request.mechanism)


def sasl_handshake_response(request: SaslHandshakeRequest, message: Mapping[str, Any]) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(message["error_code"], tuple(message["mechanisms"]))


API = Api("SaslHandshake", 17, 1, 1, SaslHandshakeRequest, kio_sasl_handshake, sasl_handshake_response)

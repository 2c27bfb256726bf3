"""SaslAuthenticate: one message of a mechanism's exchange (KIP-152, KIP-368)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_sink.kafka.protocol.api import Api


@dataclass(frozen=True, slots=True)
class SaslAuthenticateRequest:
    auth_bytes: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SaslAuthenticateResponse:
    """`session_lifetime_ms`: the time until the client must authenticate again (KIP-368); 0: never, and before version
    1."""

    error_code: int
    error_message: str | None
    auth_bytes: bytes = field(repr=False)
    session_lifetime_ms: int
    throttle_time_ms: int = 0


def kio_sasl_authenticate(kio: Any, version: int, request: SaslAuthenticateRequest) -> Any:
    return kio.SaslAuthenticateRequest(auth_bytes=request.auth_bytes)


def sasl_authenticate_response(
    request: SaslAuthenticateRequest, message: Mapping[str, Any]
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=message["error_code"],
        error_message=message["error_message"],
        auth_bytes=bytes(message["auth_bytes"]),
        session_lifetime_ms=message.get("session_lifetime", 0),
    )


API = Api("SaslAuthenticate", 36, 0, 2, SaslAuthenticateRequest, kio_sasl_authenticate, sasl_authenticate_response)

"""What a connection exchanges before other requests: versions (KIP-35, KIP-511, KIP-584), then SASL (KIP-43, KIP-152,
KIP-368).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_sink.kafka.protocol.api import Api

# --- ApiVersions ------------------------------------------------------------------------------------------------------
# The versions that a broker speaks, and the features of its cluster (KIP-35, KIP-511, KIP-584).


@dataclass(frozen=True, slots=True)
class ApiVersionsRequest:
    """Name and version of the client, for the brokers' metrics: letters, digits, '.' and '-'. From version 3 on."""

    client_software_name: str
    client_software_version: str


@dataclass(frozen=True, slots=True)
class ApiVersionsResponse:
    """`ranges`: API key -> (lowest, highest) version that the broker speaks. `finalized_features`: feature -> level."""

    throttle_time_ms: int
    error_code: int
    ranges: Mapping[int, tuple[int, int]]
    finalized_features: Mapping[str, int]


# The first version that names the client (KIP-511).
NAMES_THE_CLIENT = 3


def kio_api_versions(kio: Any, version: int, request: ApiVersionsRequest) -> Any:
    if version < NAMES_THE_CLIENT:
        return kio.ApiVersionsRequest()
    return kio.ApiVersionsRequest(
        client_software_name=request.client_software_name, client_software_version=request.client_software_version
    )


def api_versions_response(request: ApiVersionsRequest, message: Mapping[str, Any]) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        throttle_time_ms=message["throttle_time"],
        error_code=message["error_code"],
        ranges={api["api_key"]: (api["min_version"], api["max_version"]) for api in message["api_keys"]},
        finalized_features={
            feature["name"]: feature["max_version_level"] for feature in message.get("finalized_features", ())
        },
    )


API_VERSIONS = Api(
    "ApiVersions", 18, 0, 3, ApiVersionsRequest, kio_api_versions, api_versions_response, client_throttles_from=2
)


# --- SaslHandshake ----------------------------------------------------------------------------------------------------
# The mechanisms that a broker offers (KIP-43).


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


SASL_HANDSHAKE = Api("SaslHandshake", 17, 1, 1, SaslHandshakeRequest, kio_sasl_handshake, sasl_handshake_response)


# --- SaslAuthenticate -------------------------------------------------------------------------------------------------
# One message of a mechanism's exchange (KIP-152, KIP-368).


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


SASL_AUTHENTICATE = Api(
    "SaslAuthenticate", 36, 0, 2, SaslAuthenticateRequest, kio_sasl_authenticate, sasl_authenticate_response
)

"""ApiVersions: the versions that a broker speaks, and the features of its cluster (KIP-35, KIP-511, KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.kafka.protocol.api import Api


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


API = Api("ApiVersions", 18, 0, 3, ApiVersionsRequest, kio_api_versions, api_versions_response, client_throttles_from=2)

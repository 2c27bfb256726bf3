"""What a connection exchanges before other requests: ApiVersions, then SaslHandshake and SaslAuthenticate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_sink.kafka.protocol.api import NONE, Api, Message, Request, Versions, read

# The first version that names the client (KIP-511), and the first that names the broker it means (KIP-1242, Kafka 4.4).
NAMES_THE_CLIENT, NAMES_THE_BROKER = 3, 5


@dataclass(frozen=True, slots=True)
class ApiVersionsRequest(Request):
    """Asks for the versions that a broker speaks (KIP-35), and the features of its cluster (KIP-584). Name and version
    of the client are for the brokers' metrics: letters, digits, '.' and '-'.

    `cluster_id`, `node_id`: the broker that the client means, both or none. In version 5, any other broker refuses the
    request with REBOOTSTRAP_REQUIRED (KafkaApis.handleApiVersionsRequest)."""

    api = Api("ApiVersions", 18, 0, NAMES_THE_BROKER, client_throttles_from=2)

    client_software_name: str
    client_software_version: str
    cluster_id: str | None = None
    node_id: int = NONE

    def versions(self) -> Versions:
        """Without a broker to name, a newer version has nothing more to say, and older brokers would refuse it."""
        return 0, NAMES_THE_CLIENT if self.cluster_id is None else NAMES_THE_BROKER

    def to_kio(self, kio: Any, version: int) -> Any:
        if version < NAMES_THE_CLIENT:
            return kio.ApiVersionsRequest()
        broker = {"cluster_id": self.cluster_id, "node_id": self.node_id} if version >= NAMES_THE_BROKER else {}
        return kio.ApiVersionsRequest(
            client_software_name=self.client_software_name,
            client_software_version=self.client_software_version,
            **broker,
        )

    def response(self, message: Message) -> ApiVersionsResponse:
        return ApiVersionsResponse(
            throttle_time_ms=message["throttle_time"],
            error_code=message["error_code"],
            ranges={api["api_key"]: (api["min_version"], api["max_version"]) for api in message["api_keys"]},
            finalized_features={
                feature["name"]: feature["max_version_level"] for feature in message.get("finalized_features", ())
            },
        )


@dataclass(frozen=True, slots=True)
class ApiVersionsResponse:
    """`ranges`: API key -> (lowest, highest) version that the broker speaks. `finalized_features`: feature -> level."""

    throttle_time_ms: int
    error_code: int
    ranges: Mapping[int, tuple[int, int]]
    finalized_features: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SaslHandshakeRequest(Request):
    """Chooses a mechanism (KIP-43)."""

    api = Api("SaslHandshake", 17, 1, 1)

    mechanism: str

    def to_kio(self, kio: Any, version: int) -> Any:
        return kio.SaslHandshakeRequest(mechanism=self.mechanism)

    def response(self, message: Message) -> SaslHandshakeResponse:
        return SaslHandshakeResponse(message["error_code"], tuple(message["mechanisms"]))


@dataclass(frozen=True, slots=True)
class SaslHandshakeResponse:
    """`mechanisms`: those that the broker's listener offers."""

    error_code: int
    mechanisms: tuple[str, ...]
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class SaslAuthenticateRequest(Request):
    """One message of a mechanism's exchange (KIP-152)."""

    api = Api("SaslAuthenticate", 36, 0, 2)

    auth_bytes: bytes = field(repr=False)

    def to_kio(self, kio: Any, version: int) -> Any:
        return kio.SaslAuthenticateRequest(auth_bytes=self.auth_bytes)

    def response(self, message: Message) -> SaslAuthenticateResponse:
        session_lifetime_ms = message.get("session_lifetime", 0)
        return read(SaslAuthenticateResponse, message, session_lifetime_ms=session_lifetime_ms)


@dataclass(frozen=True, slots=True)
class SaslAuthenticateResponse:
    """`session_lifetime_ms`: the time until the client must authenticate again (KIP-368); 0: never, and before version
    1."""

    error_code: int
    error_message: str | None
    auth_bytes: bytes = field(repr=False)
    session_lifetime_ms: int
    throttle_time_ms: int = 0

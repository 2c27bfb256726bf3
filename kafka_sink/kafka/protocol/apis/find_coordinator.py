"""FindCoordinator: the coordinators of transactional ids or groups (KIP-699)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.protocol.api import Api, Versions, check_answered, each_asked
from kafka_sink.kafka.protocol.error_codes import ErrorCode


class CoordinatorKind(enum.IntEnum):
    """The kind of a FindCoordinator key: Kafka's CoordinatorType."""

    GROUP = 0
    TRANSACTION = 1


@dataclass(frozen=True, slots=True)
class FindCoordinatorRequest:
    """`keys`: group ids or transactional ids, each once."""

    kind: CoordinatorKind
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FoundCoordinator:
    """The coordinator of `key`, with its address. After an error, node id and port are -1."""

    key: str
    error_code: int
    error_message: str | None
    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class FindCoordinatorResponse:
    throttle_time_ms: int
    coordinators: tuple[FoundCoordinator, ...]


# From this version on, a request may have several keys (KIP-699).
MANY_KEYS = 4
_LOWEST, _HIGHEST = 1, 6


def find_coordinator_versions(request: FindCoordinatorRequest) -> Versions:
    return MANY_KEYS if len(request.keys) > 1 else _LOWEST, _HIGHEST


def kio_find_coordinator(kio: Any, version: int, request: FindCoordinatorRequest) -> Any:
    if version < MANY_KEYS:
        (key,) = request.keys
        return kio.FindCoordinatorRequest(key_type=request.kind.value, key=key)
    return kio.FindCoordinatorRequest(key_type=request.kind.value, coordinator_keys=request.keys)


def find_coordinator_response(request: FindCoordinatorRequest, message: Mapping[str, Any]) -> FindCoordinatorResponse:
    # A response with one coordinator does not name the key.
    one = {"key": request.keys[0], **message}
    return FindCoordinatorResponse(
        throttle_time_ms=message["throttle_time"],
        coordinators=tuple(
            FoundCoordinator(
                key=found["key"],
                error_code=found["error_code"],
                error_message=found["error_message"],
                node_id=found["node_id"],
                host=found["host"],
                port=found["port"],
            )
            for found in message.get("coordinators", (one,))
        ),
    )


def check_find_coordinator_response(request: FindCoordinatorRequest, response: FindCoordinatorResponse) -> None:
    """Raise ProtocolError unless each key occurs once, with a broker or an error."""
    check_answered("FindCoordinator", request.keys, (found.key for found in response.coordinators))
    for found in response.coordinators:
        possible = found.node_id >= 0 and found.host and 0 < found.port < 65536
        if found.error_code == ErrorCode.NONE and not possible:
            raise ProtocolError(f"a FindCoordinator answer with an impossible broker: {found}")


API = Api(
    "FindCoordinator",
    10,
    _LOWEST,
    _HIGHEST,
    FindCoordinatorRequest,
    kio_find_coordinator,
    find_coordinator_response,
    check_find_coordinator_response,
    find_coordinator_versions,
    client_throttles_from=2,
    most=lambda request: each_asked(len(request.keys), "coordinators"),
)

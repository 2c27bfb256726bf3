"""FindCoordinator: the coordinators of transactional ids or groups (KIP-699)."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.protocol.api import Api, check_answered
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


def kio_find_coordinator(kio: Any, version: int, request: FindCoordinatorRequest) -> Any:
    return kio.FindCoordinatorRequest(key_type=request.kind.value, coordinator_keys=request.keys)


def find_coordinator_response(request: FindCoordinatorRequest, message: Mapping[str, Any]) -> FindCoordinatorResponse:
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
            for found in message["coordinators"]
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
    4,
    6,
    FindCoordinatorRequest,
    kio_find_coordinator,
    find_coordinator_response,
    check_find_coordinator_response,
)

"""FindCoordinator: which broker coordinates a group or a transactional id. The first who asks has the topic made.

Source: KafkaApis.handleFindCoordinatorRequest in Kafka; KIP-699 (several keys, from version 4).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from model.broker import Broker
from model.connection import Connection
from model.image import NO_LEADER
from model.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE, coordinator_of
from model.replica_manager import ReplicaManager
from model.settings import FIND_COORDINATOR
from model.wire import Request, kio_module

_TOPICS = {0: CONSUMER_OFFSETS, 1: TRANSACTION_STATE}
_SEVERAL_KEYS = 4


@dataclass(frozen=True, slots=True, eq=False)
class FindCoordinatorApi:
    """`create_topic` makes an internal topic, unless it is there."""

    _broker: Broker
    _replicas: ReplicaManager
    _create_topic: Callable[[str], None]

    def find_coordinator(self, connection: Connection, request: Request) -> None:
        refusal = self._broker.next_refusal(FIND_COORDINATOR)
        key_type = int(getattr(request.message, "key_type", 0))
        if request.version < _SEVERAL_KEYS:
            code, node_id, host, port = self._find(key_type, request.message.key, refusal)
            self._broker.answer(
                connection, request, "FindCoordinatorResponse",
                error_code=code, error_message=None, node_id=node_id, host=host, port=port,
            )  # fmt: skip
            return
        kio_version = kio_module(FIND_COORDINATOR, request.version, "response")
        coordinators = []
        for key in request.message.coordinator_keys:
            code, node_id, host, port = self._find(key_type, key, refusal)
            coordinators.append(
                kio_version.Coordinator(
                    key=key, node_id=node_id, host=host, port=port, error_code=code, error_message=None
                )
            )
        self._broker.answer(connection, request, "FindCoordinatorResponse", coordinators=tuple(coordinators))

    def _find(self, key_type: int, key: str, refusal: ErrorCode) -> tuple[ErrorCode, int, str, int]:
        topic = _TOPICS.get(key_type)
        if refusal is not ErrorCode.none or topic is None:
            code = refusal if refusal is not ErrorCode.none else ErrorCode.invalid_request
            return code, NO_LEADER, "", -1
        if topic not in self._replicas.image.topics:
            self._create_topic(topic)
        node_id = coordinator_of(self._replicas.image, topic, key)
        if node_id == NO_LEADER:
            return ErrorCode.coordinator_not_available, NO_LEADER, "", -1
        return ErrorCode.none, node_id, *self._broker.address_of(node_id)

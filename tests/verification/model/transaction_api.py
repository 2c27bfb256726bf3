"""A transactional producer's requests to its coordinator: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn.

Source: KafkaApis (handleInitProducerIdRequest, handleAddPartitionsToTxnRequest, handleAddOffsetsToTxnRequest,
handleEndTxnRequest) in Kafka; KIP-588 (PRODUCER_FENCED), KIP-890 (EndTxn 5 ends transactions of version 2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from model.broker import Broker, Handlers
from model.connection import Connection
from model.internal_topics import CONSUMER_OFFSETS, partition_for
from model.replica_manager import ReplicaManager
from model.settings import ADD_OFFSETS_TO_TXN, ADD_PARTITIONS_TO_TXN, END_TXN, INIT_PRODUCER_ID
from model.transaction_coordinator import TransactionCoordinator
from model.wire import Request, kio_module

# The first version of each API whose clients know PRODUCER_FENCED; before, it was INVALID_PRODUCER_EPOCH.
_KNOWS_FENCED = {INIT_PRODUCER_ID: 4, ADD_PARTITIONS_TO_TXN: 2, ADD_OFFSETS_TO_TXN: 2, END_TXN: 2}
_VERSION_2_END = 5


@dataclass(frozen=True, slots=True, eq=False)
class TransactionApi:
    """`new_producer_id`: for producers without a transactional id."""

    _broker: Broker
    _replicas: ReplicaManager
    _coordinator: TransactionCoordinator
    _new_producer_id: Callable[[], int]

    @property
    def handlers(self) -> Handlers:
        return {
            INIT_PRODUCER_ID: self._init_producer_id,
            ADD_PARTITIONS_TO_TXN: self._add_partitions,
            ADD_OFFSETS_TO_TXN: self._add_offsets,
            END_TXN: self._end_transaction,
        }

    def _init_producer_id(self, connection: Connection, request: Request) -> None:
        def answer(code: ErrorCode, producer_id: int, producer_epoch: int) -> None:
            self._broker.answer(
                connection, request, "InitProducerIdResponse",
                error_code=_as_clients_know(code, request), producer_id=producer_id, producer_epoch=producer_epoch,
            )  # fmt: skip

        message = request.message
        producer_id, producer_epoch = getattr(message, "producer_id", -1), getattr(message, "producer_epoch", -1)
        refusal = self._broker.next_refusal(INIT_PRODUCER_ID)
        if refusal is ErrorCode.none and (producer_id == -1) != (producer_epoch == -1):
            refusal = ErrorCode.invalid_request
        if refusal is not ErrorCode.none:
            answer(refusal, -1, -1)
        elif message.transactional_id is None:
            answer(ErrorCode.none, self._new_producer_id(), 0)
        else:
            expected = (producer_id, producer_epoch) if producer_id != -1 else None
            timeout_ms = round(message.transaction_timeout.total_seconds() * 1_000)
            self._coordinator.init_producer_id(message.transactional_id, timeout_ms, expected, answer)

    def _add_partitions(self, connection: Connection, request: Request) -> None:
        message = request.message
        topics = message.v3_and_below_topics
        partitions = [(topic.name, number) for topic in topics for number in topic.partitions]
        unknown = [partition for partition in partitions if not self._replicas.image.has_partition(*partition)]

        def answer(code: ErrorCode) -> None:
            codes = dict.fromkeys(partitions, code)
            if unknown and code is ErrorCode.none:
                codes = dict.fromkeys(partitions, ErrorCode.operation_not_attempted)
                codes |= dict.fromkeys(unknown, ErrorCode.unknown_topic_or_partition)
            self._answer_add_partitions(connection, request, codes)

        refusal = self._broker.next_refusal(ADD_PARTITIONS_TO_TXN)
        if refusal is not ErrorCode.none or unknown:
            answer(refusal)
            return
        self._coordinator.add_partitions(
            message.v3_and_below_transactional_id, message.v3_and_below_producer_id,
            message.v3_and_below_producer_epoch, partitions, answer,
        )  # fmt: skip

    def _answer_add_partitions(
        self, connection: Connection, request: Request, codes: dict[tuple[str, int], ErrorCode]
    ) -> None:
        kio_version = kio_module(ADD_PARTITIONS_TO_TXN, request.version, "response")
        topics: dict[str, list[Any]] = {}
        for (topic, number), code in codes.items():
            result = kio_version.AddPartitionsToTxnPartitionResult(
                partition_index=number, partition_error_code=_as_clients_know(code, request)
            )
            topics.setdefault(topic, []).append(result)
        results = tuple(
            kio_version.AddPartitionsToTxnTopicResult(name=topic, results_by_partition=tuple(partitions))
            for topic, partitions in topics.items()
        )
        self._broker.answer(connection, request, "AddPartitionsToTxnResponse", results_by_topic_v3_and_below=results)

    def _add_offsets(self, connection: Connection, request: Request) -> None:
        def answer(code: ErrorCode) -> None:
            self._broker.answer(
                connection, request, "AddOffsetsToTxnResponse", error_code=_as_clients_know(code, request)
            )

        message = request.message
        refusal = self._broker.next_refusal(ADD_OFFSETS_TO_TXN)
        key = partition_for(self._replicas.image, CONSUMER_OFFSETS, message.group_id)
        if refusal is not ErrorCode.none:
            answer(refusal)
        elif key is None:
            answer(ErrorCode.coordinator_not_available)
        else:
            partitions = [(CONSUMER_OFFSETS, key.partition)]
            self._coordinator.add_partitions(
                message.transactional_id, message.producer_id, message.producer_epoch, partitions, answer
            )

    def _end_transaction(self, connection: Connection, request: Request) -> None:
        def answer(code: ErrorCode, producer_id: int, producer_epoch: int) -> None:
            self._broker.answer(
                connection, request, "EndTxnResponse",
                error_code=_as_clients_know(code, request), producer_id=producer_id, producer_epoch=producer_epoch,
            )  # fmt: skip

        message = request.message
        refusal = self._broker.next_refusal(END_TXN)
        if refusal is not ErrorCode.none:
            answer(refusal, -1, -1)
            return
        transaction_version = 2 if request.version >= _VERSION_2_END else 0
        self._coordinator.end_transaction(
            message.transactional_id, message.producer_id, message.producer_epoch, message.committed,
            transaction_version, answer,
        )  # fmt: skip


def _as_clients_know(code: ErrorCode, request: Request) -> ErrorCode:
    is_old = request.version < _KNOWS_FENCED[request.api_key]
    return ErrorCode.invalid_producer_epoch if code is ErrorCode.producer_fenced and is_old else code

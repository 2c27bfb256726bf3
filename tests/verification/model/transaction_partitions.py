"""A leader asks a transaction's coordinator about partitions before it appends the first batch (KIP-890).

Version 1: the leader checks that they are in the transaction. Version 2: it adds them, so clients need not.

Source: AddPartitionsToTxnManager in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from model.image import NO_LEADER
from model.inter_broker import InterBroker
from model.internal_topics import TRANSACTION_STATE, coordinator_of
from model.replica_manager import ReplicaManager
from model.transaction_coordinator import TransactionCoordinator
from model.transaction_metadata import TopicPartition

Codes = Mapping[TopicPartition, ErrorCode]


@dataclass(frozen=True, slots=True)
class TransactionalWrite:
    """`adds`: version 2, by the version of the client's request. `knows_abortable`: its client knows
    TRANSACTION_ABORTABLE."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    adds: bool
    knows_abortable: bool


@dataclass(frozen=True, slots=True, eq=False)
class TransactionPartitions:
    """Of one broker. `coordinators`: of every broker."""

    _replicas: ReplicaManager
    _coordinators: Mapping[int, TransactionCoordinator]
    _inter_broker: InterBroker

    def add_or_verify(
        self, write: TransactionalWrite, partitions: Collection[TopicPartition], on_done: Callable[[Codes], None]
    ) -> None:
        def answered(codes: Codes) -> None:
            on_done({partition: _as_producers_know(code, write) for partition, code in codes.items()})

        node_id = coordinator_of(self._replicas.image, TRANSACTION_STATE, write.transactional_id)
        if node_id == NO_LEADER:
            answered(dict.fromkeys(partitions, ErrorCode.coordinator_not_available))
            return
        coordinator = self._coordinators[node_id]

        def request(answer: Callable[[Codes], None]) -> None:
            ids = (write.transactional_id, write.producer_id, write.producer_epoch)
            if write.adds:
                coordinator.add_partitions(*ids, partitions, lambda code: answer(dict.fromkeys(partitions, code)))
            else:
                answer(coordinator.verify_partitions(*ids, partitions))

        self._inter_broker.ask(request, answered)


def _as_producers_know(code: ErrorCode, write: TransactionalWrite) -> ErrorCode:
    if code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if code is ErrorCode.transaction_abortable and not write.knows_abortable:
        return ErrorCode.invalid_txn_state
    return code

"""Operators' requests on transactions: DescribeTransactions, ListTransactions, DescribeProducers, WriteTxnMarkers.

Only WriteTxnMarkers changes anything: it ends a transaction on a partition without its coordinator. Operators end
hanging transactions in this way.

Source: KafkaApis (handleDescribeTransactionsRequest, handleListTransactionsRequest, handleDescribeProducersRequest,
handleWriteTxnMarkersRequest) in Kafka; KIP-664, KIP-994 and KIP-1152 (ListTransactions' filters).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from model.broker import Broker, Handlers
from model.connection import Connection
from model.control_batches import EndTransactionMarker
from model.image import TopicIdPartition
from model.record_batches import Refused
from model.replica_manager import ReplicaManager
from model.settings import DESCRIBE_PRODUCERS, DESCRIBE_TRANSACTIONS, LIST_TRANSACTIONS, WRITE_TXN_MARKERS
from model.timeline import Timeline
from model.transaction_coordinator import TransactionCoordinator, TransactionFilters
from model.transaction_metadata import TopicPartition, TransactionMetadata, TransactionState
from model.wire import Request, kio_module

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STATES = frozenset(state.value for state in TransactionState)


@dataclass(frozen=True, slots=True, eq=False)
class TransactionAdminApi:
    _broker: Broker
    _replicas: ReplicaManager
    _coordinator: TransactionCoordinator
    _timeline: Timeline

    @property
    def handlers(self) -> Handlers:
        return {
            DESCRIBE_TRANSACTIONS: self._describe_transactions,
            LIST_TRANSACTIONS: self._list_transactions,
            DESCRIBE_PRODUCERS: self._describe_producers,
            WRITE_TXN_MARKERS: self._write_markers,
        }

    def _describe_transactions(self, connection: Connection, request: Request) -> None:
        refusal = self._broker.next_refusal(DESCRIBE_TRANSACTIONS)
        states = []
        for transactional_id in request.message.transactional_ids:
            code, metadata = refusal, None
            if code is ErrorCode.none:
                try:
                    metadata = self._coordinator.describe(transactional_id)
                except Refused as refused:
                    code = refused.code
            states.append(_described(request, transactional_id, code, metadata))
        self._broker.answer(connection, request, "DescribeTransactionsResponse", transaction_states=tuple(states))

    def _list_transactions(self, connection: Connection, request: Request) -> None:
        message = request.message
        kio_version = kio_module(LIST_TRANSACTIONS, request.version, "response")
        filters = TransactionFilters(
            states=message.state_filters,
            producer_ids=message.producer_id_filters,
            duration_ms=getattr(message, "duration_filter", -1),
            pattern=getattr(message, "transactional_id_pattern", None) or "",
        )
        code = self._broker.next_refusal(LIST_TRANSACTIONS)
        entries = []
        try:
            entries = self._coordinator.list(filters) if code is ErrorCode.none else []
        except Refused as refused:
            code = refused.code
        states = tuple(
            kio_version.TransactionState(
                transactional_id=entry.transactional_id,
                producer_id=entry.metadata.producer_id,
                transaction_state=entry.metadata.state.value,
            )
            for entry in entries
        )
        unknown = tuple(state for state in message.state_filters if state not in _STATES)
        self._broker.answer(
            connection, request, "ListTransactionsResponse",
            error_code=code, unknown_state_filters=unknown, transaction_states=states,
        )  # fmt: skip

    def _describe_producers(self, connection: Connection, request: Request) -> None:
        kio_version = kio_module(DESCRIBE_PRODUCERS, request.version, "response")
        refusal = self._broker.next_refusal(DESCRIBE_PRODUCERS)
        topics = tuple(
            kio_version.TopicResponse(
                name=topic.name,
                partitions=tuple(
                    self._producers_of(kio_version, (topic.name, index), refusal) for index in topic.partition_indexes
                ),
            )
            for topic in request.message.topics
        )
        self._broker.answer(connection, request, "DescribeProducersResponse", topics=topics)

    def _producers_of(self, kio_version: Any, partition: TopicPartition, code: ErrorCode) -> Any:
        producers: tuple[Any, ...] = ()
        key = self._key(partition)
        if code is ErrorCode.none and key is None:
            code = ErrorCode.unknown_topic_or_partition
        replica = self._replicas.partitions.get(key) if key is not None else None
        if code is ErrorCode.none and (replica is None or not replica.is_leader):
            code = ErrorCode.not_leader_or_follower
        if code is ErrorCode.none and replica is not None:
            producers = tuple(
                kio_version.ProducerState(
                    producer_id=producer_id,
                    producer_epoch=entry.producer_epoch,
                    last_sequence=entry.batches[-1].last_sequence if entry.batches else -1,
                    last_timestamp=entry.last_timestamp_ms,
                    coordinator_epoch=entry.coordinator_epoch,
                    current_txn_start_offset=entry.transaction_start_offset,
                )
                for producer_id, entry in replica.active_producers(self._timeline.now_ms).items()
            )
        return kio_version.PartitionResponse(
            partition_index=partition[1], error_code=code, error_message=None, active_producers=producers
        )

    def _key(self, partition: TopicPartition) -> TopicIdPartition | None:
        image = self._replicas.image
        if not image.has_partition(*partition):
            return None
        return TopicIdPartition(image.topics[partition[0]].topic_id, partition[1])

    def _write_markers(self, connection: Connection, request: Request) -> None:
        wanted = [
            (number, marker, (topic.name, index))
            for number, marker in enumerate(request.message.markers)
            for topic in marker.topics
            for index in topic.partition_indexes
        ]
        codes: dict[tuple[int, TopicPartition], ErrorCode] = {}

        def written(number: int, partition: TopicPartition, code: ErrorCode) -> None:
            codes[number, partition] = code
            if len(codes) == len(wanted):
                self._answer_markers(connection, request, codes)

        refusal = self._broker.next_refusal(WRITE_TXN_MARKERS)
        if not wanted:
            self._answer_markers(connection, request, codes)
        for number, marker, partition in wanted:
            key = self._key(partition)
            if refusal is not ErrorCode.none or key is None or key not in self._replicas.partitions:
                missing = ErrorCode.unknown_topic_or_partition
                written(number, partition, refusal if refusal is not ErrorCode.none else missing)
                continue
            end = EndTransactionMarker(
                marker.producer_id, marker.producer_epoch, marker.transaction_result, marker.coordinator_epoch,
                getattr(marker, "transaction_version", 0),
            )  # fmt: skip
            self._replicas.append_marker(key, end, partial(written, number, partition))

    def _answer_markers(
        self, connection: Connection, request: Request, codes: dict[tuple[int, TopicPartition], ErrorCode]
    ) -> None:
        kio_version = kio_module(WRITE_TXN_MARKERS, request.version, "response")
        results = []
        for number, marker in enumerate(request.message.markers):
            topics = tuple(
                kio_version.WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=tuple(
                        kio_version.WritableTxnMarkerPartitionResult(
                            partition_index=index, error_code=codes[number, (topic.name, index)]
                        )
                        for index in topic.partition_indexes
                    ),
                )
                for topic in marker.topics
            )
            results.append(kio_version.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics))
        self._broker.answer(connection, request, "WriteTxnMarkersResponse", markers=tuple(results))


def _described(request: Request, transactional_id: str, code: ErrorCode, metadata: TransactionMetadata | None) -> Any:
    kio_version = kio_module(DESCRIBE_TRANSACTIONS, request.version, "response")
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions) if metadata is not None else ():
        topics.setdefault(topic, []).append(partition)
    return kio_version.TransactionState(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state=metadata.state.value if metadata is not None else "",
        transaction_timeout=timedelta(milliseconds=metadata.timeout_ms if metadata is not None else 0),
        transaction_start_time=_EPOCH + timedelta(milliseconds=metadata.start_ms if metadata is not None else 0),
        producer_id=metadata.producer_id if metadata is not None else 0,
        producer_epoch=metadata.producer_epoch if metadata is not None else 0,
        topics=tuple(
            kio_version.TopicData(topic=topic, partitions=tuple(partitions)) for topic, partitions in topics.items()
        ),
    )

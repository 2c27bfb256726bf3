"""Produce: batches to the leaders' logs. Transactional batches are first verified by the coordinator.

Non-obvious: a producer of version 2 begins its next transaction while the one before is still being completed. The
leader asks again for a while, with a verification of its own each time: the marker that it waits for ends the last one.

Source: KafkaApis.handleProduceRequest, ReplicaManager.handleProduceAppend, AddPartitionsToTxnConfig in Kafka; KIP-890,
KIP-951 (the new leader in the answer).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from model.broker import Broker, Connection
from model.controller import TopicIdPartition
from model.partition import Appended
from model.producer_state import Verification
from model.record_batches import RecordBatch, Refused, parse_batch
from model.replica_manager import Codes, ReplicaManager
from model.settings import PRODUCE
from model.timeline import Timeline
from model.transaction_coordinator import Codes as TransactionCodes
from model.transaction_coordinator import TopicPartition, TransactionalWrite, TransactionCoordinator
from model.wire import Request, by_topic

# The first versions whose clients know TRANSACTION_ABORTABLE, and expect brokers to add partitions.
_KNOWS_ABORTABLE, _ADDS_PARTITIONS = 11, 12
# While the transaction before is being completed, a coordinator is asked every so often, for so long.
_RETRY_MS, _RETRY_MAX_MS = 20, 100
# What keeps a leader from asking a coordinator, in a code that producers retry without new metadata.
_COORDINATOR_IS_AWAY = frozenset(
    {
        ErrorCode.coordinator_load_in_progress, ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)  # fmt: skip
# What is refused without a word on where the log starts; what the log's own rules refuse comes with it.
_WITHOUT_LOG_START = frozenset(
    {
        ErrorCode.unknown_topic_or_partition, ErrorCode.not_leader_or_follower, ErrorCode.message_too_large,
        ErrorCode.corrupt_message, ErrorCode.invalid_required_acks,
    }
)  # fmt: skip


@dataclass(slots=True)
class ProduceResult:
    """Of one partition. `topic`: its name or its id, whichever the request used."""

    topic: Any
    partition: int
    name: str
    key: TopicIdPartition | None
    records: bytes
    code: ErrorCode
    appended: Appended | None = None
    log_start_offset: int = -1
    verification: Verification | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ProduceApi:
    _broker: Broker
    _replicas: ReplicaManager
    _transactions: TransactionCoordinator
    _timeline: Timeline

    def produce(self, connection: Connection, request: Request) -> None:
        refusal = self._broker.next_refusal(PRODUCE)
        results = [
            self._resolved(topic_data, data, refusal)
            for topic_data in request.message.topic_data
            for data in topic_data.partition_data
        ]
        self._verify_and_append(connection, request, results, self._timeline.now_ms + _RETRY_MAX_MS)

    def _resolved(self, topic_data: Any, data: Any, refusal: ErrorCode) -> ProduceResult:
        image = self._replicas.image
        by_id = hasattr(topic_data, "topic_id")
        reference = topic_data.topic_id if by_id else topic_data.name
        topic = image.topic_of(reference) if by_id else image.topics.get(reference)
        result = ProduceResult(reference, data.index, "", None, data.records or b"", refusal)
        if topic is None:
            result.code = ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
        elif not 0 <= data.index < len(topic.partitions):
            result.code = ErrorCode.unknown_topic_or_partition
        elif refusal is ErrorCode.none:
            result.name = topic.name
            result.key = TopicIdPartition(topic.topic_id, data.index)
        return result

    def _verify_and_append(
        self, connection: Connection, request: Request, results: list[ProduceResult], retry_until_ms: int
    ) -> None:
        try:
            unverified = self._begin_verification(request, results)
        except Refused as refused:
            for result in results:
                result.code = refused.code
            unverified = {}
        if not unverified:
            self._append_all(connection, request, results)
            return
        life = self._replicas.lives

        def again() -> None:
            if self._replicas.is_alive and self._replicas.lives == life:
                self._verify_and_append(connection, request, results, retry_until_ms)

        def verified(codes: TransactionCodes) -> None:
            adds = request.version >= _ADDS_PARTITIONS
            is_concurrent = ErrorCode.concurrent_transactions in codes.values()
            if adds and is_concurrent and self._timeline.now_ms < retry_until_ms:
                self._timeline.after(_RETRY_MS, again)
                return
            for partition, code in codes.items():
                is_for_later = code in _COORDINATOR_IS_AWAY or (code is ErrorCode.concurrent_transactions and not adds)
                unverified[partition].code = ErrorCode.not_enough_replicas if is_for_later else code
            self._append_all(connection, request, results)

        write = _transactional_write(request, unverified.values())
        self._transactions.add_or_verify(write, list(unverified), verified)

    def _begin_verification(
        self, request: Request, results: Iterable[ProduceResult]
    ) -> dict[TopicPartition, ProduceResult]:
        """What a coordinator is to be asked about. Raises Refused for the whole request."""
        batches = [(result, batch) for result in results if (batch := _batch_of(result)) is not None]
        transactional = [(result, batch) for result, batch in batches if batch.is_transactional]
        if not transactional:
            return {}
        # A transaction without a name is taken for one that its client has no right to, wherever it was to be written.
        if request.message.transactional_id is None:
            raise Refused(ErrorCode.transactional_id_authorization_failed, "no transactional id")
        transactional = [(result, batch) for result, batch in transactional if result.code is ErrorCode.none]
        if len({(batch.producer_id, batch.producer_epoch) for _, batch in transactional}) > 1:
            raise Refused(ErrorCode.invalid_producer_id_mapping, "batches of several producers")
        if not self._replicas.generation.verifies_transactions:
            return {}
        unverified = {}
        for result, batch in transactional:
            partition = self._replicas.partitions.get(result.key) if result.key is not None else None
            if batch.producer_id < 0 or partition is None or not partition.is_leader:
                continue
            try:
                result.verification = partition.verify(
                    batch.producer_id, batch.producer_epoch, batch.base_sequence,
                    request.version >= _ADDS_PARTITIONS,
                )  # fmt: skip
            except Refused as refused:
                result.code = refused.code
            if result.verification is not None:
                unverified[result.name, result.partition] = result
        return unverified

    def _append_all(self, connection: Connection, request: Request, results: list[ProduceResult]) -> None:
        acks = request.message.acks
        for result in results:
            if result.code is ErrorCode.none and result.key is not None:
                try:
                    result.appended = self._replicas.append(result.key, result.records, acks, result.verification)
                    result.log_start_offset = self._log_start_offset(result.key)
                except Refused as refused:
                    result.code = refused.code
                    if refused.code not in _WITHOUT_LOG_START and _batch_of(result) is not None:
                        result.log_start_offset = self._log_start_offset(result.key)
        required_offsets = {
            result.key: result.appended.next_offset
            for result in results
            if result.appended is not None and result.key is not None
        }
        for key in required_offsets:
            self._replicas.appended(key)
        if acks == 0:
            self._broker.leave_unanswered(connection, any(result.code is not ErrorCode.none for result in results))
            return
        if acks == 1:
            self._answer(connection, request, results)
            return

        def on_complete(codes: Codes) -> None:
            for result in results:
                if result.appended is not None and result.key is not None:
                    result.code = codes[result.key]
            self._answer(connection, request, results)

        timeout_ms = round(request.message.timeout.total_seconds() * 1_000)
        self._replicas.await_commit(required_offsets, timeout_ms, on_complete)

    def _log_start_offset(self, key: TopicIdPartition) -> int:
        return self._replicas.partitions[key].log.start_offset

    def _answer(self, connection: Connection, request: Request, results: list[ProduceResult]) -> None:
        # Brokers answer in the order of their hash maps: the reverse is an order that no client may rely on.
        topics = by_topic(
            ((result.topic, self._told(result)) for result in reversed(results)), listed="partition_responses"
        )
        named = {data["current_leader"]["leader_id"] for each in topics for data in each["partition_responses"]
                 if "current_leader" in data}  # fmt: skip
        self._broker.answer(
            connection, request, responses=[{**each, "topic_id": each["name"]} for each in topics],
            node_endpoints=[self._broker.described(node) for node in sorted(named & {*self._replicas.image.alive})],
        )  # fmt: skip

    def _told(self, result: ProduceResult) -> dict[str, Any]:
        told: dict[str, Any] = {
            "index": result.partition, "error_code": result.code, "log_append_time": None,
            "base_offset": result.appended.base_offset if result.appended is not None else -1,
            "log_start_offset": result.log_start_offset, "record_errors": (), "error_message": None,
        }  # fmt: skip
        if result.code is ErrorCode.not_leader_or_follower:
            state = self._replicas.image.state_of(result.key) if result.key is not None else None
            if state is not None:
                told["current_leader"] = {"leader_id": state.leader, "leader_epoch": state.leader_epoch}
        return told


def _transactional_write(request: Request, results: Iterable[ProduceResult]) -> TransactionalWrite:
    """The batches are of one producer."""
    batch = next(batch for result in results if (batch := _batch_of(result)) is not None)
    return TransactionalWrite(
        str(request.message.transactional_id), batch.producer_id, batch.producer_epoch,
        adds=request.version >= _ADDS_PARTITIONS, knows_abortable=request.version >= _KNOWS_ABORTABLE,
    )  # fmt: skip


def _batch_of(result: ProduceResult) -> RecordBatch | None:
    """None for bytes that the log will refuse."""
    try:
        return parse_batch(result.records)
    except Refused:
        return None

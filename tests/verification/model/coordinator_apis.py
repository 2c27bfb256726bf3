"""Requests to coordinators: FindCoordinator; InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn of
transactional producers; OffsetCommit, TxnOffsetCommit and OffsetFetch by the names of topics; and operators'
DescribeTransactions, ListTransactions, DescribeProducers and WriteTxnMarkers.

WriteTxnMarkers ends a transaction on a partition without its coordinator. Operators end hanging transactions in this
way.

Source: KafkaApis in Kafka; KIP-588 (PRODUCER_FENCED), KIP-664, KIP-699 (several keys), KIP-709 (several groups),
KIP-848, KIP-890 (EndTxn 5 ends transactions of version 2), KIP-994 and KIP-1152 (ListTransactions' filters).
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from model import settings as api
from model import transaction_coordinator as transactions
from model.broker import Broker, Connection, Handlers
from model.controller import NO_LEADER
from model.group_coordinator import Codes, Fetched, GroupCoordinator, Member, OffsetToCommit
from model.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE, coordinator_of, partition_for
from model.record_batches import EndTransactionMarker, Refused
from model.replica_manager import ReplicaManager
from model.transaction_coordinator import TransactionCoordinator, TransactionEntry, TransactionMetadata
from model.wire import Request, by_topic

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STATES = frozenset(state.value for state in transactions.TransactionState)
_UNDESCRIBED = {
    "transaction_state": "", "transaction_timeout": timedelta(0), "transaction_start_time": _EPOCH, "producer_id": 0,
    "producer_epoch": 0, "topics": (),
}  # fmt: skip
# By type of the key.
_TOPICS = {0: CONSUMER_OFFSETS, 1: TRANSACTION_STATE}
# The first version of each API whose clients know PRODUCER_FENCED; before, it was INVALID_PRODUCER_EPOCH.
_KNOWS_FENCED = {api.INIT_PRODUCER_ID: 4, api.ADD_PARTITIONS_TO_TXN: 2, api.ADD_OFFSETS_TO_TXN: 2, api.END_TXN: 2}
# The first versions of FindCoordinator with several keys, of OffsetFetch with several groups, of OffsetCommit that know
# GROUP_ID_NOT_FOUND, and of EndTxn that ends transactions of version 2.
_SEVERAL_KEYS, _SEVERAL_GROUPS, _KNOWS_GROUP_ID_NOT_FOUND, _VERSION_2_END = 4, 8, 9, 5
# Those of TxnOffsetCommit that know TRANSACTION_ABORTABLE, and that expect brokers to add the group.
_KNOWS_ABORTABLE, _ADDS_PARTITIONS = 4, 5


@dataclass(frozen=True, slots=True, eq=False)
class CoordinatorApis:
    """`create_topic` makes an internal topic, unless it is there: the first who looks for a coordinator has it made."""

    _broker: Broker
    _replicas: ReplicaManager
    _transactions: TransactionCoordinator
    _groups: GroupCoordinator
    _create_topic: Callable[[str], None]

    @property
    def handlers(self) -> Handlers:
        return {
            api.FIND_COORDINATOR: self._find_coordinator, api.INIT_PRODUCER_ID: self._init_producer_id,
            api.ADD_PARTITIONS_TO_TXN: self._add_partitions, api.ADD_OFFSETS_TO_TXN: self._add_offsets,
            api.END_TXN: self._end_transaction, api.OFFSET_COMMIT: self._commit, api.TXN_OFFSET_COMMIT: self._commit,
            api.OFFSET_FETCH: self._fetch_offsets, api.DESCRIBE_TRANSACTIONS: self._describe_transactions,
            api.LIST_TRANSACTIONS: self._list_transactions, api.DESCRIBE_PRODUCERS: self._describe_producers,
            api.WRITE_TXN_MARKERS: self._write_markers,
        }  # fmt: skip

    def _find_coordinator(self, connection: Connection, request: Request) -> None:
        key_type = int(getattr(request.message, "key_type", 0))
        if request.version < _SEVERAL_KEYS:
            self._broker.answer(connection, request, **self._found(key_type, request.message.key))
        else:
            found = [self._found(key_type, key) for key in request.message.coordinator_keys]
            self._broker.answer(connection, request, coordinators=found)

    def _found(self, key_type: int, key: str) -> dict[str, Any]:
        topic, code, node_id, address = _TOPICS.get(key_type), ErrorCode.invalid_request, NO_LEADER, ("", -1)
        if topic is not None:
            if topic not in self._replicas.image.topics:
                self._create_topic(topic)
            node_id = coordinator_of(self._replicas.image, topic, key)
            code = ErrorCode.coordinator_not_available if node_id == NO_LEADER else ErrorCode.none
        if node_id != NO_LEADER:
            address = self._broker.address_of(node_id)
        fields = {"key": key, "error_code": code, "error_message": None}
        return {**fields, "node_id": node_id, "host": address[0], "port": address[1]}

    # --- a transactional producer -------------------------------------------------------------------------------------

    def _answer_producer(
        self, connection: Connection, request: Request, code: ErrorCode, producer_id: int = -1, producer_epoch: int = -1
    ) -> None:
        ids = {"producer_id": producer_id, "producer_epoch": producer_epoch}
        self._broker.answer(connection, request, error_code=_as_clients_know(code, request), **ids)

    def _init_producer_id(self, connection: Connection, request: Request) -> None:
        answer = partial(self._answer_producer, connection, request)
        message = request.message
        producer_id, producer_epoch = getattr(message, "producer_id", -1), getattr(message, "producer_epoch", -1)
        refusal = self._broker.next_refusal(api.INIT_PRODUCER_ID)
        if refusal is ErrorCode.none and (producer_id == -1) != (producer_epoch == -1):
            refusal = ErrorCode.invalid_request
        if refusal is not ErrorCode.none:
            answer(refusal)
        elif message.transactional_id is None:
            answer(ErrorCode.none, self._broker.new_producer_id(), 0)
        else:
            expected = (producer_id, producer_epoch) if producer_id != -1 else None
            timeout_ms = round(message.transaction_timeout.total_seconds() * 1_000)
            self._transactions.init_producer_id(message.transactional_id, timeout_ms, expected, answer)

    def _add_partitions(self, connection: Connection, request: Request) -> None:
        message = request.message
        partitions = [(topic.name, each) for topic in message.v3_and_below_topics for each in topic.partitions]
        unknown = [each for each in partitions if self._replicas.image.key_of(*each) is None]

        def answer(code: ErrorCode) -> None:
            codes = dict.fromkeys(partitions, _as_clients_know(code, request))
            if unknown and code is ErrorCode.none:
                codes = dict.fromkeys(partitions, ErrorCode.operation_not_attempted)
                codes |= dict.fromkeys(unknown, ErrorCode.unknown_topic_or_partition)
            told = (
                (topic, {"partition_index": each, "partition_error_code": code})
                for (topic, each), code in codes.items()
            )
            results = by_topic(told, listed="results_by_partition")
            self._broker.answer(connection, request, results_by_topic_v3_and_below=results)

        if unknown:
            answer(ErrorCode.none)
            return
        self._transactions.add_partitions(
            message.v3_and_below_transactional_id, message.v3_and_below_producer_id,
            message.v3_and_below_producer_epoch, partitions, answer,
        )  # fmt: skip

    def _add_offsets(self, connection: Connection, request: Request) -> None:
        answer = partial(self._answer_producer, connection, request)
        message = request.message
        key = partition_for(self._replicas.image, CONSUMER_OFFSETS, message.group_id)
        if key is None:
            answer(ErrorCode.coordinator_not_available)
        else:
            partitions = [(CONSUMER_OFFSETS, key.partition)]
            self._transactions.add_partitions(
                message.transactional_id, message.producer_id, message.producer_epoch, partitions, answer
            )

    def _end_transaction(self, connection: Connection, request: Request) -> None:
        message = request.message
        self._transactions.end_transaction(
            message.transactional_id, message.producer_id, message.producer_epoch, message.committed,
            2 if request.version >= _VERSION_2_END else 0, partial(self._answer_producer, connection, request),
        )  # fmt: skip

    # --- offsets of groups --------------------------------------------------------------------------------------------

    def _commit(self, connection: Connection, request: Request) -> None:
        message = request.message
        offsets: dict[transactions.TopicPartition, OffsetToCommit] = {}
        codes: Codes = {}
        for name, each in ((topic.name, each) for topic in message.topics for each in topic.partitions):
            key = (name, each.partition_index)
            if self._replicas.image.key_of(*key) is None:
                codes[key] = ErrorCode.unknown_topic_or_partition
            else:
                leader_epoch = getattr(each, "committed_leader_epoch", -1)
                offsets[key] = OffsetToCommit(each.committed_offset, leader_epoch, each.committed_metadata)

        def committed(others: Codes) -> None:
            told = (
                (topic, {"partition_index": number, "error_code": code})
                for (topic, number), code in (codes | others).items()
            )
            self._broker.answer(connection, request, topics=by_topic(told))

        is_outside = request.api_key == api.OFFSET_COMMIT
        generation = getattr(message, "generation_id_or_member_epoch" if is_outside else "generation_id", -1)
        member = Member(getattr(message, "member_id", ""), generation, getattr(message, "group_instance_id", None))
        if not offsets:
            committed({})
        elif is_outside:
            knows_not_found = request.version >= _KNOWS_GROUP_ID_NOT_FOUND
            self._groups.commit(message.group_id, member, offsets, knows_not_found, committed)
        else:
            write = transactions.TransactionalWrite(
                message.transactional_id, message.producer_id, message.producer_epoch,
                adds=request.version >= _ADDS_PARTITIONS, knows_abortable=request.version >= _KNOWS_ABORTABLE,
            )  # fmt: skip
            self._groups.commit_in_transaction(message.group_id, member, offsets, write, committed)

    def _fetch_offsets(self, connection: Connection, request: Request) -> None:
        has_several = request.version >= _SEVERAL_GROUPS
        asked = request.message.groups if has_several else (request.message,)
        answered: dict[int, dict[str, Any]] = {}

        def fetched(number: int, code: ErrorCode, offsets: Fetched) -> None:
            answered[number] = {
                "group_id": asked[number].group_id, "topics": by_topic(map(_told_offset, offsets.items())),
                "error_code": code,
            }  # fmt: skip
            if len(answered) == len(asked):
                groups = [answered[place] for place in range(len(asked))]
                self._broker.answer(connection, request, **({"groups": groups} if has_several else groups[0]))

        for number, group in enumerate(asked):
            partitions = None
            if group.topics is not None:
                partitions = [(topic.name, index) for topic in group.topics for index in topic.partition_indexes]
            is_stable = getattr(request.message, "require_stable", False)
            self._groups.fetch(group.group_id, partitions, is_stable, partial(fetched, number))

    # --- operators ----------------------------------------------------------------------------------------------------

    def _describe_transactions(self, connection: Connection, request: Request) -> None:
        states = []
        for transactional_id in request.message.transactional_ids:
            try:
                states.append(_described(transactional_id, self._transactions.describe(transactional_id)))
            except Refused as refused:
                states.append({**_UNDESCRIBED, "error_code": refused.code, "transactional_id": transactional_id})
        self._broker.answer(connection, request, transaction_states=states)

    def _list_transactions(self, connection: Connection, request: Request) -> None:
        message = request.message
        code, entries = ErrorCode.none, list[TransactionEntry]()
        try:
            entries = self._transactions.list(
                message.state_filters, getattr(message, "transactional_id_pattern", None) or ""
            )
        except Refused as refused:
            code = refused.code
        states = [
            {
                "transactional_id": entry.transactional_id, "producer_id": entry.metadata.producer_id,
                "transaction_state": entry.metadata.state.value,
            }
            for entry in entries
        ]  # fmt: skip
        unknown = [state for state in message.state_filters if state not in _STATES]
        self._broker.answer(
            connection, request, error_code=code, unknown_state_filters=unknown, transaction_states=states
        )

    def _describe_producers(self, connection: Connection, request: Request) -> None:
        topics = by_topic(
            (topic.name, self._producers_of(topic.name, index))
            for topic in request.message.topics
            for index in topic.partition_indexes
        )
        self._broker.answer(connection, request, topics=topics)

    def _producers_of(self, topic: str, partition: int) -> dict[str, Any]:
        key = self._replicas.image.key_of(topic, partition)
        replica = self._replicas.partitions.get(key) if key is not None else None
        is_led = replica is not None and replica.is_leader
        missing = ErrorCode.unknown_topic_or_partition if key is None else ErrorCode.not_leader_or_follower
        code = ErrorCode.none if is_led else missing
        active = replica.active_producers() if is_led and replica is not None else {}
        producers = [
            {
                "producer_id": producer_id, "producer_epoch": entry.producer_epoch,
                "last_sequence": entry.batches[-1].last_sequence if entry.batches else -1,
                "last_timestamp": entry.last_timestamp_ms, "coordinator_epoch": entry.coordinator_epoch,
                "current_txn_start_offset": entry.transaction_start_offset,
            }
            for producer_id, entry in active.items()
        ]  # fmt: skip
        return {"partition_index": partition, "error_code": code, "error_message": None, "active_producers": producers}

    def _write_markers(self, connection: Connection, request: Request) -> None:
        markers = request.message.markers
        wanted = [
            (number, topic.name, index)
            for number, marker in enumerate(markers)
            for topic in marker.topics
            for index in topic.partition_indexes
        ]
        codes: dict[tuple[int, str, int], ErrorCode] = {}

        def written(place: tuple[int, str, int], code: ErrorCode) -> None:
            codes[place] = code
            if len(codes) < len(wanted):
                return
            told: list[list[tuple[str, Any]]] = [[] for _ in markers]
            for number, topic, index in wanted:
                told[number].append((topic, {"partition_index": index, "error_code": codes[number, topic, index]}))
            results = [
                {"producer_id": marker.producer_id, "topics": by_topic(each)}
                for marker, each in zip(markers, told, strict=True)
            ]
            self._broker.answer(connection, request, markers=results)

        for place in wanted:
            marker, key = markers[place[0]], self._replicas.image.key_of(*place[1:])
            if key is None or key not in self._replicas.partitions:
                written(place, ErrorCode.unknown_topic_or_partition)
                continue
            end = EndTransactionMarker(
                marker.producer_id, marker.producer_epoch, marker.transaction_result, marker.coordinator_epoch,
                getattr(marker, "transaction_version", 0),
            )  # fmt: skip
            self._replicas.append_marker(key, end, partial(written, place))


def _as_clients_know(code: ErrorCode, request: Request) -> ErrorCode:
    is_old = request.version < _KNOWS_FENCED[request.api_key]
    return ErrorCode.invalid_producer_epoch if code is ErrorCode.producer_fenced and is_old else code


def _told_offset(fetched: tuple[transactions.TopicPartition, tuple[ErrorCode, Any]]) -> tuple[str, dict[str, Any]]:
    (topic, partition), (code, committed) = fetched
    offset, leader_epoch, metadata = committed[:3] if committed is not None else (-1, -1, "")
    told = {"partition_index": partition, "committed_offset": offset, "committed_leader_epoch": leader_epoch}
    return topic, {**told, "metadata": metadata, "error_code": code}


def _described(transactional_id: str, metadata: TransactionMetadata) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.none, "transactional_id": transactional_id, "transaction_state": metadata.state.value,
        "transaction_timeout": timedelta(milliseconds=metadata.timeout_ms),
        "transaction_start_time": _EPOCH + timedelta(milliseconds=metadata.start_ms),
        "producer_id": metadata.producer_id, "producer_epoch": metadata.producer_epoch,
        "topics": by_topic(sorted(metadata.partitions), topic="topic"),
    }  # fmt: skip

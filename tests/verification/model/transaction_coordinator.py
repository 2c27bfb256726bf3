"""The transaction coordinator on one broker: transactional ids, their producers, and the end of their transactions.

Every change is written to `__transaction_state` with acks=all before it becomes visible. During this write the id is
busy, and other requests get CONCURRENT_TRANSACTIONS. The next leader of the id's partition reads the changes there, and
completes the transactions that were decided but not completed.

It sends the markers of an ended transaction to its partitions' leaders, until each leader has one: the transaction
waits for a partition without a leader, and deleted partitions are skipped. A leader asks it about partitions before it
appends the first batch (KIP-890). Version 1: it checks that they are in the transaction. Version 2: it adds them, so
clients need not.

Not modelled: that a failed attempt to fence a producer is remembered (it is tried again, from the same epoch);
KIP-939's prepared transactions.

Source: TransactionCoordinator, TransactionStateManager, TransactionMarkerChannelManager,
TransactionMarkerRequestCompletionHandler, AddPartitionsToTxnManager in Kafka; KIP-98, KIP-360, KIP-890, KAFKA-20734.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from model.controller import NO_LEADER, TopicIdPartition
from model.internal_topics import TRANSACTION_STATE, Shard, Shards, coordinator_of
from model.partition import Partition
from model.record_batches import EndTransactionMarker, Refused, decode_state, encode_state
from model.replica_manager import ReplicaManager
from model.settings import ClusterSettings, TransactionSettings
from model.timeline import InterBroker, Timeline, Timer
from model.transaction_metadata import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    ONGOING,
    PREPARE_COMMIT,
    PREPARED,
    TopicPartition,
    TransactionMetadata,
    TransactionState,
    check_expected,
    check_producer,
    completed,
    ended,
    fenced,
    has_expired,
    has_timed_out,
    initialised,
    with_partitions,
)

# Final answers of a leader: this coordinator, or this transaction, is outdated.
_FENCED = frozenset({ErrorCode.invalid_producer_epoch, ErrorCode.transaction_coordinator_fenced})


@dataclass(slots=True, eq=False)
class Sending:
    """`is_wanted`: True while the transaction waits for these markers. `on_written`: called for each partition."""

    marker: EndTransactionMarker
    is_wanted: Callable[[], bool]
    on_written: Callable[[TopicPartition], None]


@dataclass(frozen=True, slots=True, eq=False)
class TransactionMarkers:
    """Of the coordinators on one broker. `brokers`: every broker's replicas."""

    _replicas: ReplicaManager
    _brokers: Mapping[int, ReplicaManager]
    _inter_broker: InterBroker
    _settings: TransactionSettings
    _timeline: Timeline

    def send(self, sending: Sending, partition: TopicPartition) -> None:
        if not sending.is_wanted():
            return
        topic = self._replicas.image.topics.get(partition[0])
        if topic is None:
            sending.on_written(partition)
            return
        state = topic.partitions[partition[1]]
        if state.leader not in self._replicas.image.alive:
            self._retry(sending, partition)
        else:
            key = TopicIdPartition(topic.topic_id, partition[1])
            leader = self._brokers[state.leader]

            def request(answer: Callable[[ErrorCode], None]) -> None:
                leader.append_marker(key, sending.marker, answer)

            self._inter_broker.ask(request, partial(self._answered, sending, partition))

    def _answered(self, sending: Sending, partition: TopicPartition, code: ErrorCode) -> None:
        if not sending.is_wanted() or code in _FENCED:
            return
        if code is ErrorCode.none:
            sending.on_written(partition)
        else:
            self._retry(sending, partition)

    def _retry(self, sending: Sending, partition: TopicPartition) -> None:
        self._timeline.after(self._settings.marker_retry_ms, lambda: self.send(sending, partition))


# What went wrong with the log, as clients hear of it.
COORDINATOR_CODES = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas_after_append: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
}

OnCode = Callable[[ErrorCode], None]
# Code, producer id and epoch.
OnProducer = Callable[[ErrorCode, int, int], None]


@dataclass(slots=True, eq=False)
class TransactionEntry:
    """`is_busy`: a change is being written down, or the markers are."""

    transactional_id: str
    metadata: TransactionMetadata
    is_busy: bool = False


@dataclass(slots=True)
class TransactionShard:
    entries: dict[str, TransactionEntry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TransactionFilters:
    """Of ListTransactions; what is empty filters nothing. `pattern` must match the whole id. `duration_ms`: at least so
    long open; negative: any."""

    states: Collection[str] = ()
    producer_ids: Collection[int] = ()
    duration_ms: int = -1
    pattern: str = ""


class TransactionCoordinator:
    def __init__(
        self, replicas: ReplicaManager, brokers: Mapping[int, ReplicaManager], inter_broker: InterBroker,
        settings: ClusterSettings, timeline: Timeline, rng: random.Random, new_producer_id: Callable[[], int],
    ) -> None:  # fmt: skip
        self._replicas = replicas
        self._settings = settings.transactions
        self._timeline = timeline
        self._new_producer_id = new_producer_id
        self._markers = TransactionMarkers(replicas, brokers, inter_broker, settings.transactions, timeline)
        self._shards = Shards(
            TRANSACTION_STATE, replicas, settings.transactions, timeline, rng, _load, self._continue_with
        )
        self._sweep: Timer | None = None
        replicas.listeners.append(self._shards.follow_image)

    # --- requests -----------------------------------------------------------------------------------------------------

    def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: tuple[int, int] | None, on_done: OnProducer
    ) -> None:
        """`expected`: producer id and epoch that the producer believes to have, if it says so."""

        def refuse(code: ErrorCode) -> None:
            on_done(code, NO_PRODUCER_ID, NO_EPOCH)

        def answer(code: ErrorCode) -> None:
            metadata = entry.metadata
            on_done(code, metadata.producer_id, metadata.producer_epoch) if code is ErrorCode.none else refuse(code)

        try:
            if not transactional_id:
                raise Refused(ErrorCode.invalid_request, "an empty transactional id")
            if not 0 < timeout_ms <= self._settings.transaction_max_timeout_ms:
                raise Refused(ErrorCode.invalid_transaction_timeout, f"{timeout_ms} ms")
            shard, state = self._shards.get(transactional_id)
            entry = self._entry(state, transactional_id) or self._new_entry(state, transactional_id, timeout_ms)
            self._check_idle(entry)
            check_expected(entry.metadata, expected)
            if entry.metadata.state is ONGOING:
                target = self._fenced(entry)
            else:
                target = initialised(entry.metadata, timeout_ms, expected, self._new_producer_id, self._timeline.now_ms)
        except Refused as refused:
            refuse(refused.code)
            return
        if target.state in PREPARED:
            # The producer comes again when the transaction of the one before is gone.
            self._end(
                shard, entry, target,
                lambda code: refuse(ErrorCode.concurrent_transactions if code is ErrorCode.none else code),
            )  # fmt: skip
        else:
            self._write(shard, entry, target, answer)

    def add_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Collection[TopicPartition],
        on_done: OnCode,
    ) -> None:  # fmt: skip
        try:
            shard, entry = self._known(transactional_id)
            # First of all: the producer may be the one that this transaction's end is about to make (KIP-890).
            self._check_idle(entry)
            check_producer(entry.metadata, producer_id, producer_epoch)
        except Refused as refused:
            on_done(refused.code)
            return
        target = with_partitions(entry.metadata, partitions, self._timeline.now_ms)
        if target is entry.metadata:
            on_done(ErrorCode.none)
        else:
            self._write(shard, entry, target, on_done)

    def verify_partitions(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """For a leader that is sent a batch: whether the partitions are in this transaction."""
        try:
            _, entry = self._known(transactional_id)
            check_producer(entry.metadata, producer_id, producer_epoch)
        except Refused as refused:
            return dict.fromkeys(partitions, refused.code)
        return {
            partition: ErrorCode.none if partition in entry.metadata.partitions else ErrorCode.transaction_abortable
            for partition in partitions
        }

    def end_transaction(
        self, transactional_id: str, producer_id: int, producer_epoch: int, is_commit: bool, transaction_version: int,
        on_done: OnProducer,
    ) -> None:  # fmt: skip
        """`on_done` gets what the producer goes on with, before the markers are written."""

        def answer(code: ErrorCode) -> None:
            if code is not ErrorCode.none:
                on_done(code, NO_PRODUCER_ID, NO_EPOCH)
            elif target.next_producer_id != NO_PRODUCER_ID:
                on_done(code, target.next_producer_id, 0)
            else:
                on_done(code, target.producer_id, target.producer_epoch)

        try:
            shard, entry = self._known(transactional_id)
            self._check_idle(entry)
            target = ended(
                entry.metadata, producer_id, producer_epoch, is_commit, transaction_version, self._new_producer_id,
                self._timeline.now_ms,
            )  # fmt: skip
        except Refused as refused:
            on_done(refused.code, NO_PRODUCER_ID, NO_EPOCH)
            return
        if target is entry.metadata:
            answer(ErrorCode.none)
        else:
            self._end(shard, entry, target, answer)

    def describe(self, transactional_id: str) -> TransactionMetadata:
        """Raises Refused."""
        if not transactional_id:
            raise Refused(ErrorCode.invalid_request, "an empty transactional id")
        _, state = self._shards.get(transactional_id)
        entry = self._entry(state, transactional_id)
        if entry is None:
            raise Refused(ErrorCode.transactional_id_not_found, transactional_id)
        return entry.metadata

    def list(self, filters: TransactionFilters) -> list[TransactionEntry]:
        """Of the ids coordinated here. Raises Refused."""
        try:
            pattern = re.compile(filters.pattern)
        except re.error as error:
            raise Refused(ErrorCode.invalid_regular_expression, str(error)) from error
        now_ms = self._timeline.now_ms
        return [
            entry
            for entry in self._entries()
            if (not filters.states or entry.metadata.state.value in filters.states)
            and (not filters.producer_ids or entry.metadata.producer_id in filters.producer_ids)
            # What never began has, for Kafka, been open since 1970.
            and (entry.metadata.start_ms < 0 or now_ms - entry.metadata.start_ms > filters.duration_ms)
            and (not filters.pattern or pattern.fullmatch(entry.transactional_id))
        ]

    # --- entries ------------------------------------------------------------------------------------------------------

    def _entry(self, state: TransactionShard, transactional_id: str) -> TransactionEntry | None:
        entry = state.entries.get(transactional_id)
        if entry is None or entry.is_busy:
            return entry
        expiration_ms = self._settings.transactional_id_expiration_ms
        interval_ms = self._settings.transaction_remove_expired_cleanup_interval_ms
        if has_expired(entry.metadata, expiration_ms, interval_ms, self._timeline.now_ms):
            del state.entries[transactional_id]
            return None
        return entry

    def _new_entry(self, state: TransactionShard, transactional_id: str, timeout_ms: int) -> TransactionEntry:
        metadata = TransactionMetadata(self._new_producer_id(), timeout_ms, self._timeline.now_ms)
        entry = state.entries[transactional_id] = TransactionEntry(transactional_id, metadata)
        return entry

    def _known(self, transactional_id: str) -> tuple[Shard[TransactionShard], TransactionEntry]:
        """Raises Refused."""
        if not transactional_id:
            raise Refused(ErrorCode.invalid_request, "an empty transactional id")
        shard, state = self._shards.get(transactional_id)
        entry = self._entry(state, transactional_id)
        if entry is None:
            raise Refused(ErrorCode.invalid_producer_id_mapping, f"{transactional_id} is unknown")
        return shard, entry

    def _check_idle(self, entry: TransactionEntry) -> None:
        if entry.is_busy:
            raise Refused(ErrorCode.concurrent_transactions, entry.metadata.state.value)

    def _entries(self) -> Iterator[TransactionEntry]:
        for _, state in self._shards.loaded():
            for transactional_id in list(state.entries):
                entry = self._entry(state, transactional_id)
                if entry is not None:
                    yield entry

    # --- writing down -------------------------------------------------------------------------------------------------

    def _write(
        self, shard: Shard[TransactionShard], entry: TransactionEntry, target: TransactionMetadata, on_done: OnCode
    ) -> None:
        """The id is busy until `on_done`, which finds `entry` changed or as it was."""
        entry.is_busy = True

        def written(code: ErrorCode) -> None:
            code = COORDINATOR_CODES.get(code, code)
            entry.is_busy = False
            if code is ErrorCode.none:
                entry.metadata = target
                self._plan_sweep()
            on_done(code)

        records = encode_state({(entry.transactional_id,): _to_json(target)}, self._timeline.now_ms)
        self._replicas.append_as_coordinator(shard.key, records, self._settings.request_timeout_ms, written)

    def _end(
        self, shard: Shard[TransactionShard], entry: TransactionEntry, target: TransactionMetadata, on_done: OnCode
    ) -> None:
        """`on_done` comes with the decision, the markers after it."""

        def decided(code: ErrorCode) -> None:
            if code is ErrorCode.none:
                # The answer is on its way before the first marker is.
                entry.is_busy = True
            on_done(code)
            if code is ErrorCode.none:
                self._send_markers(shard, entry)

        self._write(shard, entry, target, decided)

    def _fenced(self, entry: TransactionEntry) -> TransactionMetadata:
        server_version = self._replicas.generation.transaction_version or 0
        return fenced(entry.metadata, server_version, self._new_producer_id, self._timeline.now_ms)

    def _continue_with(self, shard: Shard[TransactionShard]) -> None:
        """Of a partition just read."""
        assert shard.state is not None
        for entry in list(shard.state.entries.values()):
            if entry.metadata.state in PREPARED:
                self._send_markers(shard, entry)
        self._plan_sweep()

    def _send_markers(self, shard: Shard[TransactionShard], entry: TransactionEntry) -> None:
        entry.is_busy = True
        decided = entry.metadata
        remaining = set(decided.partitions)
        marker = EndTransactionMarker(
            decided.producer_id, decided.producer_epoch, decided.state is PREPARE_COMMIT, shard.coordinator_epoch,
            decided.transaction_version,
        )  # fmt: skip

        def written(partition: TopicPartition) -> None:
            remaining.discard(partition)
            entry.metadata = replace(entry.metadata, partitions=frozenset(remaining))
            if not remaining:
                self._complete(shard, entry)

        sending = Sending(marker, lambda: self._shards.is_current(shard) and bool(remaining), written)
        if not remaining:
            self._complete(shard, entry)
        for partition in sorted(decided.partitions):
            self._markers.send(sending, partition)

    def _complete(self, shard: Shard[TransactionShard], entry: TransactionEntry) -> None:
        def written(code: ErrorCode) -> None:
            if code is ErrorCode.coordinator_not_available:
                entry.is_busy = True
                self._timeline.after(self._settings.marker_retry_ms, again)

        def again() -> None:
            if self._shards.is_current(shard):
                self._complete(shard, entry)

        self._write(shard, entry, completed(entry.metadata, self._timeline.now_ms), written)

    # --- timeouts -----------------------------------------------------------------------------------------------------

    def _plan_sweep(self) -> None:
        """Sweeps come at fixed times; none is planned that could find nothing."""
        if self._sweep is not None or not any(self._open_transactions()):
            return
        interval_ms = self._settings.transaction_abort_timed_out_cleanup_interval_ms
        self._sweep = self._timeline.after(interval_ms - self._timeline.now_ms % interval_ms, self._abort_timed_out)

    def _open_transactions(self) -> Iterator[tuple[Shard[TransactionShard], TransactionEntry]]:
        for shard, state in self._shards.known():
            for entry in list(state.entries.values()):
                if entry.metadata.state is ONGOING:
                    yield shard, entry

    def _abort_timed_out(self) -> None:
        self._sweep = None
        now_ms = self._timeline.now_ms
        for shard, entry in self._open_transactions():
            if not entry.is_busy and has_timed_out(entry.metadata, now_ms):
                self._end(shard, entry, self._fenced(entry), lambda _: None)
        self._plan_sweep()


def _load(partition: Partition) -> TransactionShard:
    """The last word on each id, committed or not: a leader's log is the truth."""
    shard = TransactionShard()
    for batch in partition.log.batches:
        for _, key, value in decode_state(batch):
            transactional_id = str(key[0])
            shard.entries[transactional_id] = TransactionEntry(transactional_id, _from_json(value))
    return shard


def _to_json(metadata: TransactionMetadata) -> dict[str, Any]:
    return asdict(metadata) | {"state": metadata.state.value, "partitions": sorted(metadata.partitions)}


def _from_json(fields: dict[str, Any]) -> TransactionMetadata:
    partitions = frozenset((topic, number) for topic, number in fields["partitions"])
    return TransactionMetadata(**fields | {"state": TransactionState(fields["state"]), "partitions": partitions})


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

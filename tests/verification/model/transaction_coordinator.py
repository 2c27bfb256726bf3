"""The transaction coordinator on one broker: transactional ids, their producers, and the end of their transactions.

    EMPTY ──> ONGOING ──> PREPARE_COMMIT ──> COMPLETE_COMMIT ──> ONGOING ...
                 └──────> PREPARE_ABORT  ──> COMPLETE_ABORT  ──> ONGOING ...

First how each request changes the state of one id, as functions that return the metadata to write or raise Refused.
InitProducerId goes from any state without an open transaction back to EMPTY. Version 1 (EndTxn up to 4) keeps the
epoch, so only the state tells a repeated EndTxn from one of the next transaction; version 2 (EndTxn 5, KIP-890) raises
the epoch with every end, so a repeated EndTxn comes with the epoch before.

Every change is written to `__transaction_state` with acks=all before it becomes visible. During this write the id is
busy, and other requests get CONCURRENT_TRANSACTIONS. Nobody reads it: coordinators do not die here.

It sends the markers of an ended transaction to its partitions' leaders, until each leader has one: the transaction
waits for a partition without a leader, and deleted partitions are skipped. A leader asks it about partitions before it
appends the first batch (KIP-890). Version 1: it checks that they are in the transaction. Version 2: it adds them, so
clients need not.

Not modelled: ids that expire, and epochs that are used up; that a failed attempt to fence a producer is remembered (it
is tried again, from the same epoch); KIP-939's prepared transactions.

Source: TransactionCoordinator, TransactionStateManager, TransactionMarkerChannelManager,
TransactionMarkerRequestCompletionHandler, AddPartitionsToTxnManager in Kafka; KIP-98, KIP-360, KIP-890, KAFKA-20734,
KAFKA-19367 (one raise when a coordinator ends a transaction by itself).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial

from kio.schema.errors import ErrorCode

from model.controller import NO_LEADER
from model.internal_topics import TRANSACTION_STATE, Shard, Shards, coordinator_of
from model.record_batches import EndTransactionMarker, Refused, encode_state
from model.replica_manager import INTERNAL_TIMEOUT_MS, ReplicaManager
from model.settings import ClusterSettings
from model.timeline import InterBroker, Timeline, Timer

NO_PRODUCER_ID = NO_EPOCH = -1
_MARKER_RETRY_MS = 20

TopicPartition = tuple[str, int]


class TransactionState(Enum):
    """The values are the names that DescribeTransactions tells."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState
PREPARED = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
COMPLETED = frozenset({COMPLETE_COMMIT, COMPLETE_ABORT})


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """`start_ms`: -1 before the first transaction. `transaction_version`: by which the last one was ended."""

    producer_id: int
    timeout_ms: int
    last_update_ms: int
    producer_epoch: int = NO_EPOCH
    last_producer_epoch: int = NO_EPOCH
    state: TransactionState = EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    transaction_version: int = 0


class End(Enum):
    """The result of an EndTxn."""

    PREPARE = "writes down the decision"
    NOTHING = "is done already: NONE"
    CONCURRENT = "is being done: CONCURRENT_TRANSACTIONS"
    INVALID = "cannot be: INVALID_TXN_STATE"


# (state, commit?) -> what it does; a pair that is not here is INVALID.
END_VERSION_1 = {
    (ONGOING, True): End.PREPARE, (ONGOING, False): End.PREPARE,
    (PREPARE_COMMIT, True): End.CONCURRENT, (PREPARE_ABORT, False): End.CONCURRENT,
    (COMPLETE_COMMIT, True): End.NOTHING, (COMPLETE_ABORT, False): End.NOTHING,
}  # fmt: skip
# (state, commit?, sent again, with the epoch before?) -> what it does. An abort of nothing only raises the epoch.
END_VERSION_2 = {
    (ONGOING, True, False): End.PREPARE, (ONGOING, False, False): End.PREPARE,
    (EMPTY, False, False): End.PREPARE,
    (COMPLETE_COMMIT, False, False): End.PREPARE, (COMPLETE_ABORT, False, False): End.PREPARE,
    (PREPARE_COMMIT, True, True): End.CONCURRENT, (PREPARE_ABORT, False, True): End.CONCURRENT,
    (COMPLETE_COMMIT, True, True): End.NOTHING, (COMPLETE_ABORT, False, True): End.NOTHING,
}  # fmt: skip


def initialised(
    now: TransactionMetadata, timeout_ms: int, expected: tuple[int, int] | None, now_ms: int
) -> TransactionMetadata:
    """By InitProducerId, of anything but an open transaction. `expected`: producer id and epoch that the producer
    believes to have (KIP-360)."""
    if now.state in PREPARED:
        raise Refused(ErrorCode.concurrent_transactions, now.state.value)
    empty = replace(
        now, state=EMPTY, timeout_ms=timeout_ms, partitions=frozenset(), start_ms=-1, last_update_ms=now_ms
    )  # fmt: skip
    if expected is not None and now.producer_epoch not in (NO_EPOCH, expected[1]):
        if expected[1] != now.last_producer_epoch:
            raise Refused(ErrorCode.producer_fenced, f"epoch {expected[1]}, now {now.producer_epoch}")
        # The answer to the same request was lost.
        return empty
    last_epoch = NO_EPOCH if expected is None else now.producer_epoch
    return replace(empty, producer_epoch=now.producer_epoch + 1, last_producer_epoch=last_epoch)


def check_expected(now: TransactionMetadata, expected: tuple[int, int] | None) -> None:
    """Raises Refused for a producer that is another one by now."""
    if expected is not None and now.producer_epoch != NO_EPOCH and expected[0] != now.producer_id:
        raise Refused(ErrorCode.producer_fenced, f"producer id {expected[0]}, now {now.producer_id}")


def check_producer(now: TransactionMetadata, producer_id: int, producer_epoch: int) -> None:
    """Of a request that goes on with a transaction or begins one."""
    if now.producer_id != producer_id:
        raise Refused(ErrorCode.invalid_producer_id_mapping, f"{producer_id}, now {now.producer_id}")
    if now.producer_epoch != producer_epoch:
        raise Refused(ErrorCode.producer_fenced, f"epoch {producer_epoch}, now {now.producer_epoch}")
    if now.state in PREPARED:
        raise Refused(ErrorCode.concurrent_transactions, now.state.value)


def with_partitions(now: TransactionMetadata, added: Iterable[TopicPartition], now_ms: int) -> TransactionMetadata:
    """The same object if they are all in the transaction already."""
    partitions = now.partitions.union(added)
    if now.state is ONGOING and partitions == now.partitions:
        return now
    start_ms = now.start_ms if now.state is ONGOING else now_ms
    return replace(now, state=ONGOING, partitions=partitions, start_ms=start_ms, last_update_ms=now_ms)


def ended(
    now: TransactionMetadata, producer_id: int, producer_epoch: int, is_commit: bool, transaction_version: int,
    now_ms: int,
) -> TransactionMetadata:  # fmt: skip
    """By a client's EndTxn. The same object if there is nothing to do."""
    if now.producer_id != producer_id:
        raise Refused(ErrorCode.invalid_producer_id_mapping, f"{producer_id}, now {now.producer_id}")
    is_repeated, is_same = now.producer_epoch == producer_epoch + 1, now.producer_epoch == producer_epoch
    is_valid = is_same
    if transaction_version >= 2 and now.state in PREPARED | COMPLETED:
        is_valid = is_repeated or (is_same and now.state in COMPLETED)
    if not is_valid:
        raise Refused(ErrorCode.producer_fenced, f"epoch {producer_epoch}, now {now.producer_epoch}")
    if transaction_version >= 2:
        what = END_VERSION_2.get((now.state, is_commit, is_repeated), End.INVALID)
    else:
        what = END_VERSION_1.get((now.state, is_commit), End.INVALID)
    if what is End.INVALID:
        raise Refused(ErrorCode.invalid_txn_state, f"{'commit' if is_commit else 'abort'} in {now.state.value}")
    if what is End.CONCURRENT:
        raise Refused(ErrorCode.concurrent_transactions, now.state.value)
    return now if what is End.NOTHING else _prepared(now, is_commit, transaction_version, now_ms)


def fenced(now: TransactionMetadata, transaction_version: int, now_ms: int) -> TransactionMetadata:
    """The coordinator aborts an open transaction by itself: a new producer is there, or its time is over. The epoch
    grows once either way, and the old producer has lost it."""
    if transaction_version < 2:
        now = replace(now, producer_epoch=now.producer_epoch + 1, last_producer_epoch=NO_EPOCH)
    return _prepared(now, False, transaction_version, now_ms)


def _prepared(now: TransactionMetadata, is_commit: bool, transaction_version: int, now_ms: int) -> TransactionMetadata:
    raised = now
    if transaction_version >= 2:
        raised = replace(now, producer_epoch=now.producer_epoch + 1, last_producer_epoch=now.producer_epoch)
    return replace(
        raised, state=PREPARE_COMMIT if is_commit else PREPARE_ABORT, last_update_ms=now_ms,
        start_ms=now.start_ms if now.state is ONGOING else now_ms, transaction_version=transaction_version,
    )  # fmt: skip


def completed(now: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Every marker is written."""
    state = COMPLETE_COMMIT if now.state is PREPARE_COMMIT else COMPLETE_ABORT
    return replace(now, state=state, partitions=frozenset(), last_update_ms=now_ms)


def has_timed_out(now: TransactionMetadata, now_ms: int) -> bool:
    """The time counts from the first partition."""
    return now.state is ONGOING and now.start_ms + now.timeout_ms < now_ms


# Final answers of a leader: this coordinator, or this transaction, is outdated.
_FENCED = frozenset({ErrorCode.invalid_producer_epoch, ErrorCode.transaction_coordinator_fenced})


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


class TransactionCoordinator:
    def __init__(
        self, replicas: ReplicaManager, brokers: Mapping[int, ReplicaManager],
        coordinators: Mapping[int, TransactionCoordinator], inter_broker: InterBroker, settings: ClusterSettings,
        timeline: Timeline, rng: random.Random, new_producer_id: Callable[[], int],
    ) -> None:  # fmt: skip
        """`brokers`, `coordinators`: of every broker."""
        self._replicas = replicas
        self._settings = settings
        self._timeline = timeline
        self._new_producer_id = new_producer_id
        self._brokers, self._coordinators, self._inter_broker = brokers, coordinators, inter_broker
        self._shards = Shards(TRANSACTION_STATE, replicas, timeline, rng, TransactionShard)
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
            entry = state.entries.get(transactional_id) or self._new_entry(state, transactional_id, timeout_ms)
            self._check_idle(entry)
            check_expected(entry.metadata, expected)
            if entry.metadata.state is ONGOING:
                target = self._fenced(entry)
            else:
                target = initialised(entry.metadata, timeout_ms, expected, self._timeline.now_ms)
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

    def add_or_verify(
        self, write: TransactionalWrite, partitions: Collection[TopicPartition], on_done: Callable[[Codes], None]
    ) -> None:
        """For the leader on this broker, by the coordinator of the transaction, wherever that is."""

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

    def end_transaction(
        self, transactional_id: str, producer_id: int, producer_epoch: int, is_commit: bool, transaction_version: int,
        on_done: OnProducer,
    ) -> None:  # fmt: skip
        """`on_done` gets what the producer goes on with, before the markers are written."""

        def answer(code: ErrorCode) -> None:
            if code is not ErrorCode.none:
                on_done(code, NO_PRODUCER_ID, NO_EPOCH)
            else:
                on_done(code, target.producer_id, target.producer_epoch)

        try:
            shard, entry = self._known(transactional_id)
            self._check_idle(entry)
            target = ended(
                entry.metadata, producer_id, producer_epoch, is_commit, transaction_version, self._timeline.now_ms
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
        entry = state.entries.get(transactional_id)
        if entry is None:
            raise Refused(ErrorCode.transactional_id_not_found, transactional_id)
        return entry.metadata

    def list(self, states: Collection[str], pattern: str) -> list[TransactionEntry]:
        """Of the ids coordinated here those in one of `states` that `pattern` matches; what is empty filters nothing.
        Raises Refused."""
        return [
            entry
            for _, state in self._shards.loaded()
            for entry in state.entries.values()
            if (not states or entry.metadata.state.value in states)
            and (not pattern or re.fullmatch(pattern, entry.transactional_id))
        ]

    # --- entries ------------------------------------------------------------------------------------------------------

    def _new_entry(self, state: TransactionShard, transactional_id: str, timeout_ms: int) -> TransactionEntry:
        metadata = TransactionMetadata(self._new_producer_id(), timeout_ms, self._timeline.now_ms)
        entry = state.entries[transactional_id] = TransactionEntry(transactional_id, metadata)
        return entry

    def _known(self, transactional_id: str) -> tuple[Shard[TransactionShard], TransactionEntry]:
        """Raises Refused."""
        if not transactional_id:
            raise Refused(ErrorCode.invalid_request, "an empty transactional id")
        shard, state = self._shards.get(transactional_id)
        entry = state.entries.get(transactional_id)
        if entry is None:
            raise Refused(ErrorCode.invalid_producer_id_mapping, f"{transactional_id} is unknown")
        return shard, entry

    def _check_idle(self, entry: TransactionEntry) -> None:
        if entry.is_busy:
            raise Refused(ErrorCode.concurrent_transactions, entry.metadata.state.value)

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

        records = encode_state({(entry.transactional_id,): target.state.value}, self._timeline.now_ms)
        self._replicas.append_as_coordinator(shard.key, records, INTERNAL_TIMEOUT_MS, written)

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
        return fenced(entry.metadata, server_version, self._timeline.now_ms)

    def _send_markers(self, shard: Shard[TransactionShard], entry: TransactionEntry) -> None:
        entry.is_busy = True
        decided = entry.metadata
        remaining = set(decided.partitions)
        marker = EndTransactionMarker(
            decided.producer_id, decided.producer_epoch, decided.state is PREPARE_COMMIT, shard.coordinator_epoch,
            decided.transaction_version,
        )  # fmt: skip

        def send(partition: TopicPartition) -> None:
            """Until the leader has it, as long as the transaction waits for it. Deleted partitions are skipped."""
            if not self._shards.is_current(shard) or not remaining:
                return
            image = self._replicas.image
            key = image.key_of(*partition)
            state = image.state_of(key) if key is not None else None
            if key is None or state is None:
                written(partition)
            elif state.leader not in image.alive:
                again(partition)
            else:
                append = partial(self._brokers[state.leader].append_marker, key, marker)
                self._inter_broker.ask(append, partial(answered, partition))

        def again(partition: TopicPartition) -> None:
            self._timeline.after(_MARKER_RETRY_MS, send, partition)

        def answered(partition: TopicPartition, code: ErrorCode) -> None:
            if not self._shards.is_current(shard) or not remaining or code in _FENCED:
                return
            if code is ErrorCode.none:
                written(partition)
            else:
                again(partition)

        def written(partition: TopicPartition) -> None:
            remaining.discard(partition)
            entry.metadata = replace(entry.metadata, partitions=frozenset(remaining))
            if not remaining:
                self._complete(shard, entry)

        if not remaining:
            self._complete(shard, entry)
        for partition in sorted(decided.partitions):
            send(partition)

    def _complete(self, shard: Shard[TransactionShard], entry: TransactionEntry) -> None:
        def written(code: ErrorCode) -> None:
            if code is ErrorCode.coordinator_not_available:
                entry.is_busy = True
                self._timeline.after(_MARKER_RETRY_MS, again)

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


def _as_producers_know(code: ErrorCode, write: TransactionalWrite) -> ErrorCode:
    if code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if code is ErrorCode.transaction_abortable and not write.knows_abortable:
        return ErrorCode.invalid_txn_state
    return code

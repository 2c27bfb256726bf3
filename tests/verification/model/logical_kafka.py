"""Kafka's transactions as a value that answers requests: no bytes, no network, no replication, no clock.

Enumerating crashes needs many worlds, quickly. The model of brokers (`broker.py`, the coordinators) has everything
else. Each rule here was measured on real brokers (repeated EndTxn with the same ids, by version) or comes from Kafka's
TransactionCoordinator. A transaction's markers are written at the moment of its decision. Between the two, real brokers
answer with retriable errors, and clients ask again.

Leaders know producers, not transactions: rows of a later epoch join the open transaction of a producer id, and one
marker ends it all. A leader may miss a marker while its coordinator considers the transaction complete (KAFKA-20734).
Then rows of an aborted attempt end as the next attempt does, or committed rows end as an aborted attempt does.

Brokers do not fence OffsetFetch: a stale group coordinator, which was replaced while paused, answers it with old data
until it learns of its replacement. A stale transaction coordinator does the same for DescribeTransactions, and for an
EndTxn that it refuses. Writes go to the current coordinator.

Not modelled: an open transaction of another producer hides later rows from readers.

Effects are those of `kafka_sink.commit.requests`, and `Produce`, which stands for a task's acknowledged rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from kafka_sink.commit.requests import Effect, ToCoordinator, ToEveryBroker, ToLeaders
from kafka_sink.kafka.protocol.api import ErrorResponse, PartitionResult, PartitionsResponse
from kafka_sink.kafka.protocol.apis.groups import (
    DeletedGroup,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    GroupOffset,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka_sink.kafka.protocol.apis.transaction_state import (
    ActiveProducer,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
    ProducersOfPartition,
    TransactionDescription,
)
from kafka_sink.kafka.protocol.apis.transactions import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

NO_OFFSET = -1
NOTHING = NO_OFFSET, ""
# Short.MAX_VALUE - 1: a producer id with this epoch gets no further one.
LAST_EPOCH = 32_766
# Of the commit topic, where markers and decisions are.
PARTITION = 0
EMPTY, ONGOING, COMMITTED, ABORTED = "Empty", "Ongoing", "CompleteCommit", "CompleteAbort"


Offsets = dict[tuple[str, int], tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Produce:
    """A task's rows, which the leader acknowledged in the task's transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partition: int
    rows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Produced:
    """A leader's answer: `base_offset` is the first row's."""

    error_code: int
    base_offset: int = -1


@dataclass(slots=True)
class _Transaction:
    producer_id: int
    producer_epoch: int
    state: str = EMPTY
    # The ids before this one's, whose EndTxn would be a repetition (KIP-890's previous producer id and last epoch).
    ended: tuple[int, int] | None = None
    timed_out: bool = False
    start_ms: int = -1
    partitions: set[int] = field(default_factory=set)
    offsets: dict[str, tuple[int, str]] = field(default_factory=dict)
    groups: set[str] = field(default_factory=set)

    def copy(self) -> _Transaction:
        return replace(self, partitions=set(self.partitions), offsets=dict(self.offsets), groups=set(self.groups))


Transactions = dict[str, _Transaction]
# By partition.
Producers = dict[int, tuple[ActiveProducer, ...]]


@dataclass(slots=True)
class _Producer:
    """A leader's entry of a producer id (ProducerStateEntry), with what came last. `start_offset`: of what is open, and
    `rows` are in it, of whatever epochs; `committed`: those whose coordinator has committed them. `epoch_of_rows`: that
    of the last rows; a marker may have raised `producer_epoch` since, and `last_sequence` is -1 then."""

    producer_epoch: int = -1
    epoch_of_rows: int = -1
    start_offset: int = NO_OFFSET
    rows: list[str] = field(default_factory=list)
    committed: list[str] = field(default_factory=list)
    last_sequence: int = -1


@dataclass(slots=True)
class _Leader:
    """`producers`: by producer id."""

    end_offset: int = 0
    producers: dict[int, _Producer] = field(default_factory=lambda: defaultdict(_Producer))


T = TypeVar("T")


@dataclass(slots=True)
class _History(Generic[T]):
    """States as they were before each change, and those that stale brokers answer the next requests from."""

    before: list[T] = field(default_factory=list)
    stale: list[T] = field(default_factory=list)

    def stand_still(self, changes: int, requests: int) -> None:
        """Send the next `requests` to brokers that have been replaced. These lack the last `changes`."""
        self.stale = self.before[-changes:][:1] * requests


class LogicalKafka:
    """`transaction_version`: 1 or 2. `visible`: what a read_committed reader has seen, in order. `last_epoch`: the
    last epoch of a producer id. `remembers`: True to keep earlier states, for stale coordinators and leaders."""

    def __init__(self, transaction_version: int, last_epoch: int = LAST_EPOCH, *, remembers: bool = False) -> None:
        self._version = transaction_version
        self._remembers = remembers
        self._last_epoch = last_epoch
        self._transactions: dict[str, _Transaction] = {}
        # By group and partition.
        self._offsets: Offsets = {}
        self._offset_history: _History[Offsets] = _History()
        # Of transaction coordinators, for requests that need no write; and of what leaders know of producers.
        self.transaction_history: _History[Transactions] = _History()
        self.producer_history: _History[Producers] = _History()
        self._marked: tuple[Offsets, Transactions] = {}, {}
        self._next_producer_id = 1000
        # By partition.
        self._leaders: dict[int, _Leader] = defaultdict(_Leader)
        self._lost_markers: set[tuple[int, bool]] = set()
        self.now_ms = 0
        self.visible: list[str] = []
        self.aborted: list[str] = []

    # --- what a test does to it ---------------------------------------------------------------------------------------

    def time_out(self, transactional_id: str | None = None) -> bool:
        """An open transaction, or every one, has been so for too long. Whether there was one."""
        names = list(self._transactions) if transactional_id is None else [transactional_id]
        open_ones = [each for name in names if (each := self._transactions.get(name)) and each.state == ONGOING]
        for transaction in open_ones:
            self._end(transaction, committed=False)
            transaction.ended = (transaction.producer_id, transaction.producer_epoch)
            transaction.producer_epoch += 1
            transaction.timed_out = True
        return bool(open_ones)

    def abort_manually(self, transactional_id: str) -> None:
        """Abort a transaction as an operator does with `kafka-transactions.sh`."""
        if transactional_id in self._transactions:
            self._InitProducerIdRequest(InitProducerIdRequest(60_000, transactional_id))

    def lose_marker(self, partition: int, *, committed: bool = True) -> None:
        """The next marker of a commit, or of an abort, to the partition, which has no leader for a moment, is dropped
        (KAFKA-20734)."""
        self._lost_markers.add((partition, committed))

    def stand_still(self, changes: int, reads: int) -> None:
        """Send the next `reads` OffsetFetch requests to stale group coordinators."""
        self._offset_history.stand_still(changes, reads)

    def hidden(self) -> list[str]:
        """Return the committed rows that no reader sees."""
        return [
            row
            for leader in self._leaders.values()
            for producer in leader.producers.values()
            for row in producer.committed
        ]

    def forget_offsets(self, group_ids: Container[str] | None = None) -> None:
        """Of those groups, or of all: deleted with their groups (DeleteGroups), with what transactions are about to
        write to them; or expired."""
        self._forget([key for key in self._offsets if group_ids is None or key[0] in group_ids])
        for transaction in self._transactions.values():
            kept = {name: each for name, each in transaction.offsets.items() if group_ids and name not in group_ids}
            transaction.offsets = kept

    def delete_offsets(self, group_ids: Container[str]) -> None:
        """Those of markers and decisions, and not the barriers beside them (OffsetDelete)."""
        self._forget([key for key in self._offsets if key[0] in group_ids and key[1] == PARTITION])

    def mark(self) -> None:
        """Remember offsets and transactions as they are now."""
        self._marked = self._offsets, {name: each.copy() for name, each in self._transactions.items()}

    def roll_back_to_mark(self) -> None:
        self.roll_offsets_back_to_mark()
        self.roll_transactions_back_to_mark()

    def roll_offsets_back_to_mark(self) -> None:
        self._offset_history.before.append(self._marked[0])
        self.roll_offsets_back(1)

    def roll_transactions_back_to_mark(self) -> None:
        self.transaction_history.before.append(self._marked[1])
        self.roll_transactions_back(1)

    def remember(self) -> None:
        """Keep earlier states from now on."""
        self._remembers = True

    def roll_offsets_back(self, changes: int, group_ids: Container[str] | None = None) -> None:
        """Lose the last `changes` of offsets, of those groups or of all, as an unclean election of __consumer_offsets
        does. What transactions are about to write is in the same log, and is lost too."""
        earlier = self._offset_history.before[-changes:] if changes else []
        if not earlier:
            return

        def is_hit(group_id: str) -> bool:
            return group_ids is None or group_id in group_ids

        kept = {key: offset for key, offset in self._offsets.items() if not is_hit(key[0])}
        self._offsets = kept | {key: offset for key, offset in earlier[0].items() if is_hit(key[0])}
        for transaction in self._transactions.values():
            transaction.offsets = {name: each for name, each in transaction.offsets.items() if not is_hit(name)}

    def roll_transactions_back(self, changes: int) -> None:
        """Lose the last `changes` of transactions, as an unclean election of __transaction_state does. Leaders and
        group coordinators keep theirs: what has ended there has ended."""
        earlier = self.transaction_history.before[-changes:] if changes else []
        if not earlier:
            return
        before, self._transactions = self._transactions, {name: each.copy() for name, each in earlier[0].items()}
        for name, each in self._transactions.items():
            now = before.get(name)
            is_open = now is not None and now.state == ONGOING and now.producer_id == each.producer_id
            each.offsets = dict(now.offsets) if now is not None and is_open else {}

    def _forget(self, keys: Sequence[tuple[str, int]]) -> None:
        self._offset_history.before.append(self._offsets)
        self._offsets = {key: offset for key, offset in self._offsets.items() if key not in keys}

    def forget_transactional_ids(self) -> None:
        """All that are not in use, as after `transactional.id.expiration.ms`."""
        for name in [name for name, each in self._transactions.items() if each.state != ONGOING]:
            del self._transactions[name]

    def holding_back(self) -> list[str]:
        """The open transactions that have written something: readers see nothing behind it. (On version 1 a late
        AddOffsetsToTxn opens one that has not; the broker ends it in time.)"""
        return [
            name
            for name, each in self._transactions.items()
            if each.state == ONGOING and (each.partitions or each.offsets)
        ]

    def transactional_ids(self) -> set[str]:
        return set(self._transactions)

    # --- requests -----------------------------------------------------------------------------------------------------

    def execute(self, effect: Effect | Produce) -> Any:
        match effect:
            case ToCoordinator(request=EndTxnRequest() | DescribeTransactionsRequest()) if (
                self.transaction_history.stale and (answer := self._by_one_that_stood_still(effect)) is not None
            ):
                return answer
        if not self._remembers:
            return self._execute(effect)
        before = {name: each.copy() for name, each in self._transactions.items()}
        producers_before = self._all_producers()
        answer = self._execute(effect)
        if before != self._transactions:
            self.transaction_history.before.append(before)
        if producers_before != self._all_producers():
            self.producer_history.before.append(producers_before)
        return answer

    def _by_one_that_stood_still(self, effect: ToCoordinator) -> Any:
        """Answer as a stale coordinator; None if the request needs a write, which a stale coordinator cannot do."""
        now, self._transactions = self._transactions, self.transaction_history.stale.pop()
        before = {name: replace(each) for name, each in self._transactions.items()}
        try:
            if isinstance(effect.request, EndTxnRequest):
                found = self._transactions.get(effect.request.transactional_id)
                asked = (effect.request.producer_id, effect.request.producer_epoch)
                if found and found.state == ONGOING and asked == (found.producer_id, found.producer_epoch):
                    return None
            return self._execute(effect)
        finally:
            assert before == self._transactions
            self._transactions = now

    def _execute(self, effect: Effect | Produce) -> Any:
        match effect:
            case Produce():
                return self._produce(effect)
            case ToCoordinator(request=request):
                return getattr(self, f"_{type(request).__name__}")(request)
            case ToEveryBroker(request=ListTransactionsRequest()):
                return [self._list()]
            case ToLeaders(request=DescribeProducersRequest(partitions=partitions)):
                stale = self.producer_history.stale
                known = stale.pop() if stale else self._all_producers()
                return DescribeProducersResponse(
                    0, tuple(ProducersOfPartition(topic, n, 0, None, known.get(n, ())) for topic, n in partitions)
                )
            case ToLeaders(request=WriteTxnMarkersRequest() as marker):
                return PartitionsResponse(
                    0, tuple(PartitionResult(topic, n, self._write_marker(marker, n)) for topic, n in marker.partitions)
                )
        raise AssertionError(effect)

    def _produce(self, produce: Produce) -> Produced:
        code, transaction = self._current(produce.transactional_id, produce.producer_id, produce.producer_epoch)
        if transaction is None:
            return Produced(ErrorCode.INVALID_PRODUCER_EPOCH if code == ErrorCode.PRODUCER_FENCED else code)
        self._open(transaction)
        transaction.partitions.add(produce.partition)
        leader = self._leaders[produce.partition]
        producer, base_offset = leader.producers[produce.producer_id], leader.end_offset
        if produce.producer_epoch < producer.producer_epoch:
            return Produced(ErrorCode.INVALID_PRODUCER_EPOCH)
        if produce.producer_epoch == producer.epoch_of_rows:
            # A coordinator that went back gave the ids out again: the leader takes the rows for those that it has.
            return Produced(ErrorCode.NONE, 0)
        producer.producer_epoch = producer.epoch_of_rows = produce.producer_epoch
        if producer.start_offset == NO_OFFSET:
            producer.start_offset = base_offset
        producer.rows += produce.rows
        producer.last_sequence = len(produce.rows) - 1
        leader.end_offset += len(produce.rows)
        return Produced(ErrorCode.NONE, base_offset)

    def _InitProducerIdRequest(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        assert request.transactional_id is not None
        transaction = self._transactions.get(request.transactional_id)
        if transaction is None:
            self._next_producer_id += 1
            transaction = self._transactions[request.transactional_id] = _Transaction(self._next_producer_id, -1)
        if transaction.state == ONGOING:
            self._end(transaction, committed=False)
        self._bump(transaction)
        transaction.state, transaction.ended, transaction.timed_out = EMPTY, None, False
        return InitProducerIdResponse(0, ErrorCode.NONE, transaction.producer_id, transaction.producer_epoch)

    def _EndTxnRequest(self, request: EndTxnRequest) -> EndTxnResponse:
        transaction = self._transactions.get(request.transactional_id)
        if transaction is None or not self._knows(transaction, request.producer_id):
            return EndTxnResponse(0, ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1, -1)
        code = self._end_txn_code(transaction, request)
        ids = (transaction.producer_id, transaction.producer_epoch) if self._version == 2 else (-1, -1)
        return EndTxnResponse(0, code, *ids)

    def _end_txn_code(self, transaction: _Transaction, request: EndTxnRequest) -> int:
        same_end = transaction.state == (COMMITTED if request.committed else ABORTED)
        asked = (request.producer_id, request.producer_epoch)
        if asked == (transaction.producer_id, transaction.producer_epoch):
            if transaction.state == ONGOING:
                # The markers of version 2 have the next epoch.
                self._end(transaction, committed=request.committed, raised_by=self._version - 1)
                if self._version == 2:
                    transaction.ended = asked
                    self._bump(transaction)
                return ErrorCode.NONE
            if self._version == 1:
                return ErrorCode.NONE if same_end else ErrorCode.INVALID_TXN_STATE
            return ErrorCode.INVALID_TXN_STATE if request.committed else ErrorCode.NONE
        if self._version == 2 and asked == transaction.ended and transaction.state != ONGOING:
            return ErrorCode.NONE if same_end and not transaction.timed_out else ErrorCode.INVALID_TXN_STATE
        return ErrorCode.PRODUCER_FENCED

    def _AddOffsetsToTxnRequest(self, request: AddOffsetsToTxnRequest) -> ErrorResponse:
        code, transaction = self._current(request.transactional_id, request.producer_id, request.producer_epoch)
        if transaction is not None:
            self._open(transaction)
            transaction.groups.add(request.group_id)
        return ErrorResponse(0, code)

    def _TxnOffsetCommitRequest(self, request: TxnOffsetCommitRequest) -> ErrorResponse:
        code, transaction = self._current(request.transactional_id, request.producer_id, request.producer_epoch)
        if transaction is not None and self._version == 1 and request.group_id not in transaction.groups:
            # Verified with the transaction's coordinator since Kafka 3.6 (KIP-890, part 1).
            return ErrorResponse(0, ErrorCode.INVALID_TXN_STATE)
        if transaction is not None:
            self._open(transaction)
            transaction.offsets[request.group_id] = (request.offset, request.metadata)
        return ErrorResponse(0, code)

    def _OffsetCommitRequest(self, request: OffsetCommitRequest) -> ErrorResponse:
        self._change_offsets({(request.group_id, request.partition): (request.offset, request.metadata)})
        return ErrorResponse(0, ErrorCode.NONE)

    def _OffsetFetchRequest(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        stale = self._offset_history.stale
        is_stale, offsets = bool(stale), stale.pop() if stale else self._offsets
        groups = []
        for group_id in request.group_ids:
            # What was open then has ended since, or is of a time when nothing was.
            pending = (
                request.require_stable
                and not is_stale
                and any(group_id in each.offsets for each in self._transactions.values() if each.state == ONGOING)
            )
            code = ErrorCode.UNSTABLE_OFFSET_COMMIT if pending else ErrorCode.NONE
            offset, metadata = NOTHING if pending else offsets.get((group_id, request.partition), NOTHING)
            beside = NOTHING if request.beside is None else offsets.get((group_id, request.beside), NOTHING)
            groups.append(GroupOffset(group_id, code, offset, metadata, beside[1]))
        return OffsetFetchResponse(0, tuple(groups))

    def _DeleteGroupsRequest(self, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
        """With the offsets of open transactions."""
        deleted = []
        for group_id in request.group_ids:
            gone = [key for key in self._offsets if key[0] == group_id]
            pending = [each for each in self._transactions.values() if each.offsets.pop(group_id, None)]
            self._offsets = {key: offset for key, offset in self._offsets.items() if key[0] != group_id}
            code = ErrorCode.NONE if gone or pending else ErrorCode.GROUP_ID_NOT_FOUND
            deleted.append(DeletedGroup(group_id, code))
        return DeleteGroupsResponse(0, tuple(deleted))

    def groups(self) -> set[str]:
        """Those that have an offset."""
        return {group_id for group_id, _ in self._offsets}

    def _change_offsets(self, changes: Offsets) -> None:
        self._offset_history.before.append(self._offsets)
        self._offsets = self._offsets | changes

    def _DescribeTransactionsRequest(self, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        return DescribeTransactionsResponse(0, tuple(map(self._described, request.transactional_ids)))

    def _described(self, transactional_id: str) -> TransactionDescription:
        found = self._transactions.get(transactional_id)
        if found is None:
            code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            return TransactionDescription(transactional_id, code, "", 0, -1, -1, -1, ())
        return TransactionDescription(
            transactional_id, ErrorCode.NONE, found.state, 60_000, found.start_ms, found.producer_id,
            found.producer_epoch, tuple(TopicPartition("t", partition) for partition in sorted(found.partitions)),
        )  # fmt: skip

    def _list(self) -> ListTransactionsResponse:
        listed = (ListedTransaction(name, each.producer_id, each.state) for name, each in self._transactions.items())
        return ListTransactionsResponse(0, ErrorCode.NONE, tuple(listed))

    def _all_producers(self) -> Producers:
        return {
            partition: tuple(
                ActiveProducer(ident, each.producer_epoch, each.start_offset, last_sequence=each.last_sequence)
                for ident, each in leader.producers.items()
            )
            for partition, leader in self._leaders.items()
        }

    def _write_marker(self, marker: WriteTxnMarkersRequest, partition: int) -> int:
        """Behind the coordinators' back. (Of a transaction that is not hanging: the tests do not send that.)"""
        producer = self._leaders[partition].producers.get(marker.producer_id)
        if producer is not None and producer.producer_epoch > marker.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        self._end_on(partition, marker.producer_id, marker.producer_epoch, committed=marker.committed)
        return ErrorCode.NONE

    def _end_on(self, partition: int, producer_id: int, producer_epoch: int, *, committed: bool) -> None:
        """End everything that the producer has open there, as one marker does."""
        leader = self._leaders[partition]
        producer = leader.producers[producer_id]
        if producer_epoch > producer.producer_epoch:
            producer.producer_epoch, producer.last_sequence = producer_epoch, -1
        (self.visible if committed else self.aborted).extend(producer.rows)
        leader.end_offset += 1
        producer.start_offset, producer.rows, producer.committed = NO_OFFSET, [], []

    # --- rules --------------------------------------------------------------------------------------------------------

    def _current(self, transactional_id: str, producer_id: int, producer_epoch: int) -> tuple[int, _Transaction | None]:
        """The transaction, if the ids are its own; else what is answered."""
        found = self._transactions.get(transactional_id)
        if found is None or found.producer_id != producer_id:
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, None
        if found.producer_epoch != producer_epoch:
            return ErrorCode.PRODUCER_FENCED, None
        return ErrorCode.NONE, found

    def _bump(self, transaction: _Transaction) -> None:
        if transaction.producer_epoch < self._last_epoch:
            transaction.producer_epoch += 1
            return
        self._next_producer_id += 1
        transaction.producer_id, transaction.producer_epoch = self._next_producer_id, 0

    def _knows(self, transaction: _Transaction, producer_id: int) -> bool:
        before = transaction.ended[0] if transaction.ended else None
        return producer_id in (transaction.producer_id, before)

    def _open(self, transaction: _Transaction) -> None:
        if transaction.state != ONGOING:
            transaction.state, transaction.start_ms = ONGOING, self.now_ms

    def _end(self, transaction: _Transaction, *, committed: bool, raised_by: int = 0) -> None:
        transaction.state = COMMITTED if committed else ABORTED
        for partition in sorted(transaction.partitions):
            if (partition, committed) in self._lost_markers:
                self._lost_markers.remove((partition, committed))
                producer = self._leaders[partition].producers[transaction.producer_id]
                producer.committed = list(producer.rows) if committed else producer.committed
                continue
            epoch = transaction.producer_epoch + raised_by
            self._end_on(partition, transaction.producer_id, epoch, committed=committed)
        if committed and transaction.offsets:
            self._change_offsets({(group_id, PARTITION): offset for group_id, offset in transaction.offsets.items()})
        transaction.partitions = set()
        transaction.offsets = {}
        transaction.groups = set()

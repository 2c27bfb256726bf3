"""A coordinator's state of one transactional id, and how each request changes it: pure, states as tables.

    EMPTY ──> ONGOING ──> PREPARE_COMMIT ──> COMPLETE_COMMIT ──> ONGOING ...
                 └──────> PREPARE_ABORT  ──> COMPLETE_ABORT  ──> ONGOING ...

Each request returns the metadata to write, or raises Refused with the error code of the answer. InitProducerId goes
from any state without an open transaction back to EMPTY.

Two protocols in one table each: version 1 (EndTxn up to 4) keeps the epoch, so only the state tells a repeated EndTxn
from one of the next transaction; version 2 (EndTxn 5, KIP-890) raises the epoch with every end, so a repeated EndTxn
comes with the epoch before.

Source: TransactionCoordinator (prepareInitProducerIdTransit, handleAddPartitionsToTransaction, endTransaction,
endTransactionWithTV1), TransactionMetadata in Kafka; KIP-98, KIP-360, KIP-890, KAFKA-19367 (one raise when a
coordinator ends a transaction by itself).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from kio.schema.errors import ErrorCode

from model.record_batches import Refused

NO_PRODUCER_ID = NO_EPOCH = -1
MAX_EPOCH = 2**15 - 1

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
    """`next_producer_id`: the producer's next id, once its epochs are used up. `start_ms`: -1 before the first
    transaction. `transaction_version`: the version by which the last transaction was ended."""

    producer_id: int
    timeout_ms: int
    last_update_ms: int
    producer_epoch: int = NO_EPOCH
    last_producer_epoch: int = NO_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    state: TransactionState = EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    transaction_version: int = 0

    @property
    def is_epoch_exhausted(self) -> bool:
        """The last epoch is kept for fencing: no producer ever gets it."""
        return self.producer_epoch >= MAX_EPOCH - 1


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
    now: TransactionMetadata, timeout_ms: int, expected: tuple[int, int] | None, new_producer_id: Callable[[], int],
    now_ms: int,
) -> TransactionMetadata:  # fmt: skip
    """By InitProducerId, of anything but an open transaction. `expected`: producer id and epoch that the producer
    believes to have (KIP-360)."""
    if now.state in PREPARED:
        raise Refused(ErrorCode.concurrent_transactions, now.state.value)
    empty = replace(
        now, state=EMPTY, timeout_ms=timeout_ms, partitions=frozenset(), start_ms=-1, last_update_ms=now_ms,
        previous_producer_id=now.producer_id,
    )  # fmt: skip
    if now.is_epoch_exhausted and (expected is None or expected[1] == now.producer_epoch):
        last_epoch = NO_EPOCH if expected is None else now.producer_epoch
        return replace(empty, producer_id=new_producer_id(), producer_epoch=0, last_producer_epoch=last_epoch)
    if expected is not None and now.producer_epoch not in (NO_EPOCH, expected[1]):
        if expected[1] != now.last_producer_epoch:
            raise Refused(ErrorCode.producer_fenced, f"epoch {expected[1]}, now {now.producer_epoch}")
        # The answer to the same request was lost.
        return empty
    last_epoch = NO_EPOCH if expected is None else now.producer_epoch
    return replace(empty, producer_epoch=now.producer_epoch + 1, last_producer_epoch=last_epoch)


def check_expected(now: TransactionMetadata, expected: tuple[int, int] | None) -> None:
    """Raises Refused for a producer that is another one by now."""
    if expected is None or now.producer_epoch == NO_EPOCH or expected[0] == now.producer_id:
        return
    if expected[0] != now.previous_producer_id or expected[1] < MAX_EPOCH - 1:
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
    new_producer_id: Callable[[], int], now_ms: int,
) -> TransactionMetadata:  # fmt: skip
    """By a client's EndTxn. The same object if there is nothing to do."""
    if transaction_version >= 2:
        is_repeated = _is_repeated_end(now, producer_id, producer_epoch)
        what = END_VERSION_2.get((now.state, is_commit, is_repeated), End.INVALID)
    else:
        _check_ender(now, producer_id, producer_epoch)
        what = END_VERSION_1.get((now.state, is_commit), End.INVALID)
    if what is End.INVALID:
        raise Refused(ErrorCode.invalid_txn_state, f"{'commit' if is_commit else 'abort'} in {now.state.value}")
    if what is End.CONCURRENT:
        raise Refused(ErrorCode.concurrent_transactions, now.state.value)
    if what is End.NOTHING:
        return now
    return _prepared(now, is_commit, transaction_version, new_producer_id, now_ms)


def _check_ender(now: TransactionMetadata, producer_id: int, producer_epoch: int) -> None:
    if now.producer_id != producer_id:
        raise Refused(ErrorCode.invalid_producer_id_mapping, f"{producer_id}, now {now.producer_id}")
    if now.producer_epoch != producer_epoch:
        raise Refused(ErrorCode.producer_fenced, f"epoch {producer_epoch}, now {now.producer_epoch}")


def _is_repeated_end(now: TransactionMetadata, producer_id: int, producer_epoch: int) -> bool:
    """Raises Refused for an epoch that is neither this transaction's nor the one before's."""
    is_over_the_edge = (
        now.previous_producer_id == producer_id and producer_epoch == MAX_EPOCH - 1 and now.producer_epoch == 0
    )
    if now.producer_id != producer_id and not is_over_the_edge:
        raise Refused(ErrorCode.invalid_producer_id_mapping, f"{producer_id}, now {now.producer_id}")
    is_epoch_before = now.producer_epoch == producer_epoch + 1
    is_same_epoch = now.producer_epoch == producer_epoch
    if now.state in COMPLETED:
        is_valid = is_epoch_before or is_over_the_edge or is_same_epoch
    else:
        is_valid = is_epoch_before if now.state in PREPARED else is_same_epoch
    if not is_valid:
        raise Refused(ErrorCode.producer_fenced, f"epoch {producer_epoch}, now {now.producer_epoch}")
    return is_epoch_before or is_over_the_edge


def fenced(
    now: TransactionMetadata, transaction_version: int, new_producer_id: Callable[[], int], now_ms: int
) -> TransactionMetadata:
    """The coordinator aborts an open transaction by itself: a new producer is there, or its time is over. The epoch
    grows once either way, and the old producer has lost it."""
    if transaction_version >= 2:
        return _prepared(now, False, transaction_version, new_producer_id, now_ms)
    fenced_epoch = min(now.producer_epoch + 1, MAX_EPOCH)
    without_epoch = replace(now, producer_epoch=fenced_epoch, last_producer_epoch=NO_EPOCH)
    return _prepared(without_epoch, False, transaction_version, new_producer_id, now_ms)


def _prepared(
    now: TransactionMetadata, is_commit: bool, transaction_version: int, new_producer_id: Callable[[], int], now_ms: int
) -> TransactionMetadata:
    raised = now
    if transaction_version >= 2:
        producer_epoch = min(now.producer_epoch + 1, MAX_EPOCH)
        next_producer_id = new_producer_id() if now.is_epoch_exhausted else NO_PRODUCER_ID
        raised = replace(
            now, producer_epoch=producer_epoch, last_producer_epoch=now.producer_epoch,
            next_producer_id=next_producer_id,
        )  # fmt: skip
    return replace(
        raised,
        state=PREPARE_COMMIT if is_commit else PREPARE_ABORT,
        start_ms=now.start_ms if now.state is ONGOING else now_ms,
        last_update_ms=now_ms,
        transaction_version=transaction_version,
    )


def completed(now: TransactionMetadata, now_ms: int) -> TransactionMetadata:
    """Every marker is written. A producer whose epoch was spent goes on as another."""
    done = replace(
        now, state=COMPLETE_COMMIT if now.state is PREPARE_COMMIT else COMPLETE_ABORT, partitions=frozenset(),
        last_update_ms=now_ms, next_producer_id=NO_PRODUCER_ID,
    )  # fmt: skip
    if now.next_producer_id == NO_PRODUCER_ID:
        return replace(done, previous_producer_id=now.producer_id)
    return replace(done, producer_id=now.next_producer_id, producer_epoch=0, previous_producer_id=now.producer_id)


def has_timed_out(now: TransactionMetadata, now_ms: int) -> bool:
    """The time counts from the first partition."""
    return now.state is ONGOING and now.start_ms + now.timeout_ms < now_ms


def has_expired(now: TransactionMetadata, expiration_ms: int, check_interval_ms: int, now_ms: int) -> bool:
    """Whether a check has found the id unused for so long: computed when somebody asks, which nobody can tell from
    forgetting it in time."""
    last_check_ms = now_ms - now_ms % check_interval_ms
    return (now.state is EMPTY or now.state in COMPLETED) and last_check_ms - now.last_update_ms >= expiration_ms

"""The requests of the two-phase commit: the effects that its steps yield, and the meaning of the coordinators' answers.

Steps are generators without I/O. A step yields effects, which may go out together, and receives the answers in the same
order. `runner` carries effects out with a client, and a simulation does it with a model.

Any answer but success raises an error, except an answer to EndTxn. After a lost answer PRODUCER_FENCED may mean success
or failure, so the caller decides (`check_definite`).

Brokers do not fence OffsetFetch: a replaced group coordinator answers with old data until it learns of its successor.
A marker or decision that is found was committed. A read alone does not prove that it is the latest, or that there is
none. Epochs prove that, because they come from writes. Otherwise a barrier proves it: the reader commits a text of its
own next to the group's offset, and the answer must have both. Both are in one log, so a coordinator that has the text
has all earlier commits too.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

from kafka_sink.commit.handover import Sink
from kafka_sink.commit.markers import NO_OFFSET, Decision, Ids, Marker
from kafka_sink.errors import DriverFenced
from kafka_sink.kafka.protocol.apis.groups import (
    CoordinatorKind,
    GroupOffset,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka_sink.kafka.protocol.apis.transaction_state import DescribeTransactionsRequest, TransactionDescription
from kafka_sink.kafka.protocol.apis.transactions import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    transaction_refused,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode, meaning


@dataclass(frozen=True, slots=True)
class ToCoordinator:
    """`request` goes to the coordinator of `key`."""

    kind: CoordinatorKind
    key: str
    request: Any


@dataclass(frozen=True, slots=True)
class ToEveryBroker:
    """`request` goes to each broker. The answer is the list of the brokers' answers."""

    request: Any


@dataclass(frozen=True, slots=True)
class ToLeaders:
    """`request` goes to the leaders of its partitions. Each leader gets its own partitions. The answers are merged."""

    request: Any


@dataclass(frozen=True, slots=True)
class BrokerSetting:
    """Answered with the text of a broker's setting, or None if the principal may not read it."""

    name: str


@dataclass(frozen=True, slots=True)
class Pause:
    """No request: time for the brokers to finish work that they have confirmed. Answered with None."""

    milliseconds: int


# Brokers write the markers 1 to 4 ms after a commit's answer, at most 150 ms (measured). The pauses double from 2 ms to
# 16,384 ms, 33 s in total: about the time until a dead broker is replaced.
PAUSES_MS = tuple(2**n for n in range(1, 15))

Effect = ToCoordinator | ToEveryBroker | ToLeaders | BrokerSetting | Pause
Result = TypeVar("Result")
Steps = Generator[Sequence[Effect], Sequence[Any], Result]


def at_once(*several: Steps[Any]) -> Steps[list[Any]]:
    """Run several steps side by side: their next effects go out together. Return their results in order.

    Raises the first error of a step, and then closes the other steps.
    """
    results: list[Any] = [None] * len(several)
    waiting: dict[int, Sequence[Effect]] = {}
    answers: dict[int, Sequence[Any] | None] = dict.fromkeys(range(len(several)))
    try:
        while answers:
            waiting.clear()
            for place, of_steps in answers.items():
                try:
                    steps = several[place]
                    waiting[place] = next(steps) if of_steps is None else steps.send(of_steps)
                except StopIteration as ended:
                    results[place] = ended.value
            if not waiting:
                break
            found = iter((yield [effect for effects in waiting.values() for effect in effects]))
            answers = {place: [next(found) for _ in effects] for place, effects in waiting.items()}
    finally:
        for steps in several:
            steps.close()
    return results


# --- requests to coordinators -----------------------------------------------------------------------------------------

# Partitions of the commit topic: the first for offsets of markers and decisions, the second for barriers.
PARTITION, BARRIER_PARTITION = 0, 1


def init_producer_id(sink: Sink, transactional_id: str) -> ToCoordinator:
    """Ask for the next ids of a transactional id. This fences earlier ids, and aborts their open transaction."""
    request = InitProducerIdRequest(transaction_timeout_ms=sink.timeout_ms, transactional_id=transactional_id)
    return ToCoordinator(CoordinatorKind.TRANSACTION, transactional_id, request)


def end_txn(
    sink: Sink, transactional_id: str, ids: Ids, *, committed: bool, version: int | None = None
) -> ToCoordinator:
    """`version`: the version of the transaction; None if it is the cluster's current version."""
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=ids.producer_id,
        producer_epoch=ids.producer_epoch,
        committed=committed,
        transaction_version=sink.transaction_version if version is None else version,
    )
    return ToCoordinator(CoordinatorKind.TRANSACTION, transactional_id, request)


def describe_transaction(transactional_id: str) -> ToCoordinator:
    """Ask the coordinator for the transaction's current ids, state and start time."""
    return ToCoordinator(
        CoordinatorKind.TRANSACTION, transactional_id, DescribeTransactionsRequest((transactional_id,))
    )


def _fetch_offset(sink: Sink, group_id: str, *, stable: bool = True, beside: int | None = None) -> ToCoordinator:
    """Ask for a group's offset, which has a marker or a decision.

    `stable`: the broker refuses while a transaction may change the offset. `beside`: a second partition to read.
    """
    request = OffsetFetchRequest((group_id,), sink.names.commit_topic, PARTITION, stable, beside)
    return ToCoordinator(CoordinatorKind.GROUP, group_id, request)


def _write_barrier(sink: Sink, group_id: str, barrier: str) -> ToCoordinator:
    request = OffsetCommitRequest(group_id, sink.names.commit_topic, BARRIER_PARTITION, 0, barrier)
    return ToCoordinator(CoordinatorKind.GROUP, group_id, request)


def write_offset(sink: Sink, transactional_id: str, ids: Ids, group_id: str, offset: int, text: str) -> Steps[None]:
    """Put a group's offset into the transaction of `transactional_id`. Raises AttemptFenced, TransactionRefused."""
    if sink.transaction_version < 2:
        add = AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=ids.producer_id,
            producer_epoch=ids.producer_epoch,
            group_id=group_id,
        )
        (added,) = yield [ToCoordinator(CoordinatorKind.TRANSACTION, transactional_id, add)]
        check_answer(added.error_code, "AddOffsetsToTxn", transactional_id)
    write = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group_id,
        producer_id=ids.producer_id,
        producer_epoch=ids.producer_epoch,
        topic=sink.names.commit_topic,
        partition=PARTITION,
        offset=offset,
        metadata=text,
        transaction_version=sink.transaction_version,
    )
    (written,) = yield [ToCoordinator(CoordinatorKind.GROUP, group_id, write)]
    # After any other code the transaction has no marker, and EndTxn would commit it without one.
    check_answer(written.error_code, "TxnOffsetCommit", transactional_id)


def check_answer(error_code: int, api: str, transactional_id: str) -> None:
    """Raise AttemptFenced or TransactionRefused unless `error_code` is NONE."""
    if error_code != ErrorCode.NONE:
        raise transaction_refused(transactional_id, api, error_code)


def is_definite(error_code: int) -> bool:
    """Return True if a retry of EndTxn cannot change this answer. Either way only the marker proves the outcome."""
    return error_code == ErrorCode.NONE or meaning(error_code).fenced


def check_definite(error_code: int, transactional_id: str, api: str = "EndTxn") -> None:
    """Raise TransactionRefused if `error_code` is neither success nor a fence."""
    if not is_definite(error_code):
        check_answer(error_code, api, transactional_id)


def _offsets(sink: Sink, group_ids: Sequence[str], *, stable: bool, barrier: str | None) -> Steps[list[GroupOffset]]:
    """Return the offsets of the groups. Raises TransactionRefused.

    `stable`: wait until no open transaction may change an offset. `barrier`: a text that no earlier step has written;
    with it the offsets are at least as new as this call.
    """
    if barrier is not None:
        return (yield from _behind_barrier(sink, group_ids, barrier, stable=stable))
    if not group_ids:
        return []
    answers = yield [_fetch_offset(sink, group_id, stable=stable) for group_id in group_ids]
    return _groups_of(answers)


def _behind_barrier(sink: Sink, group_ids: Sequence[str], barrier: str, *, stable: bool) -> Steps[list[GroupOffset]]:
    found: dict[str, GroupOffset] = {}
    for pause_ms in (0, *PAUSES_MS):
        missing = [group_id for group_id in group_ids if group_id not in found]
        if not missing:
            return [found[group_id] for group_id in group_ids]
        if pause_ms:
            yield [Pause(pause_ms)]
        written = yield [_write_barrier(sink, group_id, barrier) for group_id in missing]
        for group_id, answer in zip(missing, written, strict=True):
            check_answer(answer.error_code, "OffsetCommit", group_id)
        answers = yield [_fetch_offset(sink, group_id, stable=stable, beside=BARRIER_PARTITION) for group_id in missing]
        # Without the barrier the answer is stale, or another run has written its own barrier.
        found |= {group.group_id: group for group in _groups_of(answers) if group.beside == barrier}
    raise transaction_refused(missing[0], "OffsetFetch", ErrorCode.NOT_COORDINATOR)


def _groups_of(answers: Sequence[OffsetFetchResponse]) -> list[GroupOffset]:
    """Return the groups of all answers. Raises TransactionRefused."""
    found = [group for answer in answers for group in answer.groups]
    for group in found:
        check_answer(group.error_code, "OffsetFetch", group.group_id)
    return found


def read_decision(sink: Sink, *, stable: bool = True, barrier: str | None = None) -> Steps[Decision | None]:
    """Return the sink's last decision, or None if it or a part of it is missing.

    `stable`: wait for a decision that is being written. Without a `barrier` the decision may be an earlier one, or the
    groups may have parts of two decisions. Raises UnreadableState in that case, and TransactionRefused.
    """
    reads = count()

    def read(parts: Sequence[int]) -> Steps[list[GroupOffset]]:
        # A new barrier for each read, because each read must be later than the one before.
        behind = None if barrier is None else f"{barrier}.{next(reads)}"
        return _offsets(sink, [sink.names.decision(part) for part in parts], stable=stable, barrier=behind)

    (first,) = yield from read([0])
    while parts := Decision.parts(first.group_id, first.offset, first.metadata):
        more = yield from read(range(1, parts))
        # Another driver may have decided between two reads. It writes the first part first: if the first part is
        # unchanged, the other parts belong to it.
        (again,) = (yield from read([0])) if more else (first,)
        if (again.offset, again.metadata) == (first.offset, first.metadata):
            if any(group.offset == NO_OFFSET for group in more):
                return None
            return Decision.read([(group.group_id, group.offset, group.metadata) for group in (first, *more)])
        first = again
    return None


def read_markers(
    sink: Sink, slots: Sequence[int], *, stable: bool = True, barrier: str | None = None
) -> Steps[dict[int, Marker]]:
    """Return the markers that are found, by slot. Raises TransactionRefused, UnreadableState.

    `stable=False`: do not wait for pending commits. A marker that is found is visible. A missing marker may become
    visible later. Without a `barrier` a stale coordinator may answer with an earlier marker or with none.
    """
    groups = yield from _offsets(sink, [sink.names.slot(slot) for slot in slots], stable=stable, barrier=barrier)
    markers = (Marker.read(group.group_id, group.offset, group.metadata) for group in groups)
    return {slot: marker for slot, marker in zip(slots, markers, strict=True) if marker is not None}


def read_text(sink: Sink, group_id: str, *, barrier: str) -> Steps[tuple[int, str]]:
    """Return the last offset of a group and its metadata, NO_OFFSET and an empty text if it has none. Raises
    TransactionRefused."""
    (group,) = yield from _offsets(sink, [group_id], stable=True, barrier=barrier)
    return group.offset, group.metadata


def described(transactional_ids: Sequence[str]) -> Steps[list[TransactionDescription]]:
    """Return the coordinators' descriptions of the transactions. Raises TransactionRefused."""
    if not transactional_ids:
        return []
    answers = yield [describe_transaction(transactional_id) for transactional_id in transactional_ids]
    found: list[TransactionDescription] = [description for answer in answers for description in answer.transactions]
    for description in found:
        # Brokers delete an id after a week without use. Such an id has no open transaction.
        if description.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            check_answer(description.error_code, "DescribeTransactions", description.transactional_id)
    return found


def check_generation(sink: Sink, generation: Ids) -> Steps[None]:
    """Raise DriverFenced if another run has Inited the driver's id since, or TransactionRefused."""
    for pause_ms in (*PAUSES_MS, None):
        (driver,) = yield from described([sink.names.driver])
        current = Ids.of(driver)
        if current == generation:
            return
        # Epochs never decrease: an earlier epoch comes from a stale coordinator, so ask again.
        is_later = current.producer_id == generation.producer_id and current.producer_epoch > generation.producer_epoch
        if is_later or pause_ms is None:
            raise DriverFenced(sink=sink.names.sink, generation=str(generation), current=str(current))
        yield [Pause(pause_ms)]

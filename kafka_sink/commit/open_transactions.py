"""A sink's transactions, as an operator sees and ends them. Without I/O, as `planning`.

    look             each transactional id's state, and the transactions that leaders have open      changes nothing
    describe_sink    one sink: open transactions and their age, the decision, hanging transactions   changes nothing
    finish_manually  commits the transactions that the decision names ─> writes COMMIT for committed, hanging ones
    abort_manually   takes the sink over ─> aborts open transactions that no decision names

Finishing does not take the sink over: a decision is final, and its commit, every plan and this command send the same
EndTxn with the pinned ids. If a running driver has gone on, the epochs differ, and the request changes nothing. The
same is true for the markers (`hanging.write_commit_markers`).

Aborting takes the sink over: a running driver may be about to decide, and a micro-batch with an aborted slot can never
become visible whole. So `abort_manually` first fences the driver with InitProducerId; after that nobody can change the
decision. Kafka cannot tell if a driver is running. So the user must confirm that the abort may stop a query.

A transaction hangs if its coordinator has ended it and a leader still has it open. Coordinators are asked before
leaders, so that a transaction that ends in between does not look hanging. It is known to be committed in two cases: the
decision pins its ids and the slot's marker is visible, or the coordinator remembers it as the last committed one.
Otherwise the outcome is unknown and it is left alone: a wrong marker would show aborted rows or remove committed rows.

Offsets are read without require_stable. Otherwise a look at a sink would wait for its open transactions.

Source: KIP-664 (kafka-transactions.sh find-hanging and abort); docs/design/exactly-once.md.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka_sink.commit import ending, planning
from kafka_sink.commit.handover import Sink, command, visible_of
from kafka_sink.commit.hanging import Hanging, write_commit_markers
from kafka_sink.commit.markers import Decision, Ids, Marker
from kafka_sink.commit.requests import (
    PAUSES_MS,
    Pause,
    Steps,
    ToEveryBroker,
    ToLeaders,
    check_answer,
    describe_transaction,
    described,
    read_decision,
    read_markers,
)
from kafka_sink.errors import DecisionPending
from kafka_sink.kafka.protocol.apis.transaction_state import (
    DescribeProducersRequest,
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionDescription,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_name
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

# States of Kafka's TransactionState that block readers: undecided, and decided without all markers written.
ONGOING = "Ongoing"
ENDING = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")
OPEN = (ONGOING, *ENDING)
COMMITTED = "CompleteCommit"
# Groups store their offsets here, and so the slots' markers.
OFFSETS_TOPIC = "__consumer_offsets"

# Suffix of the transactional id of a sink's driver.
DRIVER = ".driver"
# DOTALL, because transactional ids of other programs may have any character.
_OF_A_SINK = re.compile(r"(.+)\.(?:[0-9]{1,10}|driver)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class OpenProducer:
    """A transaction that a leader has open. read_committed readers of the partition stop at `start_offset`."""

    topic: str
    partition: int
    ids: Ids
    start_offset: int
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class Seen:
    """The result of `look`.

    `transactions`: all descriptions, by transactional id. `producers`: the transactions that leaders have open.
    `refused`: the partitions that could not be read, with the name of the error.
    """

    transactions: Mapping[str, TransactionDescription]
    producers: tuple[OpenProducer, ...]
    refused: Mapping[TopicPartition, str]

    def busy_sinks(self) -> list[str]:
        """Return the sinks that have an open transaction, found by the form of the transactional ids."""
        producer_ids = {each.ids.producer_id for each in self.producers}
        busy = [
            name for name, each in self.transactions.items() if each.state in OPEN or each.producer_id in producer_ids
        ]
        return sorted({sink for name in busy if (sink := sink_named(name)) is not None})

    def sinks(self) -> list[str]:
        """Return all sinks that a driver has ever taken over, until the brokers expire the driver's transactional
        id."""
        return sorted(name.removesuffix(DRIVER) for name in self.transactions if name.endswith(DRIVER))

    def of(self, sink: Sink) -> dict[str, TransactionDescription]:
        """Return the sink's own transactions: the driver's first, then by slot."""
        names = sink.names
        slots = sorted(filter(names.is_slot, self.transactions), key=names.slot_of)
        return {name: self.transactions[name] for name in (names.driver, *slots) if name in self.transactions}


@dataclass(frozen=True, slots=True)
class Held:
    """A partition that an open transaction blocks.

    `start_offset` is None if the leader was not asked, or has no open transaction there.
    """

    topic: str
    partition: int
    start_offset: int | None


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """`slot`: None for the driver's transaction. `is_decided`: a decision exists, so it must be committed."""

    transactional_id: str
    slot: int | None
    ids: Ids
    state: str
    start_time_ms: int
    timeout_ms: int
    holds: tuple[Held, ...]
    is_decided: bool

    @property
    def is_prepared(self) -> bool:
        """True if the transaction has its marker. The task adds the marker after all rows are acknowledged."""
        return self.slot is not None and any(each.topic == OFFSETS_TOPIC for each in self.holds)

    @property
    def rows_held(self) -> tuple[Held, ...]:
        """The blocked partitions that have its rows."""
        return tuple(each for each in self.holds if each.topic != OFFSETS_TOPIC)


@dataclass(frozen=True, slots=True)
class SinkTransactions:
    """The transactions of one sink.

    `markers`: the markers of the decision's slots. `hanging`: hanging transactions that are known to be committed.
    `unknown`: hanging transactions with an unknown outcome.
    """

    sink: Sink
    transactions: Mapping[str, TransactionDescription]
    decision: Decision | None
    markers: Mapping[int, Marker]
    open: tuple[OpenTransaction, ...]
    hanging: tuple[Hanging, ...]
    unknown: tuple[Hanging, ...]
    refused: Mapping[TopicPartition, str]

    @property
    def decided(self) -> tuple[OpenTransaction, ...]:
        """The open transactions that must be committed."""
        return tuple(each for each in self.open if each.is_decided)

    @property
    def undecided(self) -> tuple[OpenTransaction, ...]:
        """The open transactions that no decision names."""
        return tuple(each for each in self.open if not each.is_decided)

    @property
    def is_forgotten(self) -> bool:
        """True if a decision was made and its groups were deleted or have expired."""
        driver = self.transactions.get(self.sink.names.driver)
        return self.decision is None and driver is not None and driver.state == COMMITTED

    @property
    def missing(self) -> tuple[int, ...]:
        """The slots that the decision pins and that are not visible."""
        decision = self.decision
        if decision is None:
            return ()
        there = visible_of(decision, self.markers).keys() | decision.resting
        return tuple(slot for slot, ids in enumerate(decision.pinned) if slot not in there and ids is not None)

    @property
    def lost(self) -> tuple[int, ...]:
        """The `missing` slots that lost their markers. They may be visible."""
        return tuple(slot for slot in self.missing if slot not in self.markers)


# --- looking ----------------------------------------------------------------------------------------------------------


def look(prefix: str, partitions: Sequence[TopicPartition]) -> Steps[Seen]:
    """Describe every transactional id that begins with `prefix`, and the open transactions on `partitions`.

    Raises TransactionRefused.
    """
    (listings,) = yield [ToEveryBroker(ListTransactionsRequest(transactional_id_prefix=prefix))]
    found = yield from described(_listed(prefix, listings))
    transactions = {each.transactional_id: each for each in found if each.error_code == ErrorCode.NONE}
    # Ask leaders after coordinators: a transaction that a coordinator has ended and a leader has open is hanging.
    if not partitions:
        return Seen(transactions, (), {})
    (answer,) = yield [ToLeaders(DescribeProducersRequest(tuple(partitions)))]
    producers = tuple(
        OpenProducer(
            of.topic, of.partition, Ids.of(each), each.current_txn_start_offset,
            each.coordinator_epoch,
        )
        for of in answer.partitions
        for each in of.producers
        if each.current_txn_start_offset >= 0
    )  # fmt: skip
    refused = {
        TopicPartition(of.topic, of.partition): error_name(of.error_code)
        for of in answer.partitions
        if of.error_code != ErrorCode.NONE
    }
    return Seen(transactions, producers, refused)


def open_now(prefix: str) -> Steps[Mapping[str, TransactionDescription]]:
    """Return the transactions that coordinators have open, by transactional id, without asking leaders.

    `prefix`: the ids begin with it. Raises TransactionRefused.
    """
    (listings,) = yield [ToEveryBroker(ListTransactionsRequest(states=OPEN, transactional_id_prefix=prefix))]
    names = _listed(prefix, listings)
    if not names:
        return {}
    answers = yield [describe_transaction(name) for name in names]
    found = [description for answer in answers for description in answer.transactions]
    # Leave out transactions that have ended since, or that this principal may not describe.
    return {each.transactional_id: each for each in found if each.error_code == ErrorCode.NONE and each.state in OPEN}


def _listed(prefix: str, listings: Iterable[ListTransactionsResponse]) -> list[str]:
    for listing in listings:
        check_answer(listing.error_code, "ListTransactions", prefix)
    return sorted({each.transactional_id for listing in listings for each in listing.transactions})


def sink_named(transactional_id: str) -> str | None:
    """Return the sink of a slot's or a driver's transactional id, or None if the id has another form."""
    found = _OF_A_SINK.fullmatch(transactional_id)
    return None if found is None else found[1]


def describe_sink(sink: Sink, seen: Seen) -> Steps[SinkTransactions]:
    """Return the part of `seen` that belongs to `sink`, with its decision and markers.

    Raises TransactionRefused, UnreadableState.
    """
    transactions = seen.of(sink)
    decision = yield from read_decision(sink, stable=False)
    if decision is not None and decision.is_nothing:
        decision = None
    slots = range(len(decision.pinned)) if decision is not None else ()
    markers = yield from read_markers(sink, slots, stable=False)
    visible = {} if decision is None else visible_of(decision, markers)
    pinned = _pinned(sink, decision)
    resting = frozenset(map(sink.names.slot, decision.resting if decision is not None else ()))
    hanging: list[Hanging] = []
    unknown: list[Hanging] = []
    for each in _hanging(transactions, pinned, seen.producers):
        is_visible = each.ids in pinned and sink.names.slot_of(each.transactional_id) in visible
        is_last = _is_the_last_committed(sink, transactions.get(each.transactional_id), each.ids)
        (hanging if is_visible or is_last else unknown).append(each)
    return SinkTransactions(
        sink, transactions, decision, markers, _open(sink, transactions, pinned.keys(), resting, seen.producers),
        tuple(hanging), tuple(unknown), seen.refused,
    )  # fmt: skip


def _pinned(sink: Sink, decision: Decision | None) -> dict[Ids, str]:
    slots = enumerate(decision.pinned) if decision is not None else ()
    return {ids: sink.names.slot(slot) for slot, ids in slots if ids is not None}


def _open(
    sink: Sink,
    transactions: Mapping[str, TransactionDescription],
    pinned: Container[Ids],
    resting: Container[str],
    producers: Iterable[OpenProducer],
) -> tuple[OpenTransaction, ...]:
    """`resting`: slots whose pinned transaction has ended. What is open under its ids is another one."""
    offsets = {(each.topic, each.partition, each.ids.producer_id): each.start_offset for each in producers}
    return tuple(
        OpenTransaction(
            transactional_id=name,
            slot=None if name == sink.names.driver else sink.names.slot_of(name),
            ids=Ids.of(each),
            state=each.state,
            start_time_ms=each.start_time_ms,
            timeout_ms=each.timeout_ms,
            holds=tuple(Held(*at, offsets.get((*at, each.producer_id))) for at in sorted(each.partitions)),
            is_decided=each.state == "PrepareCommit"
            or (each.state == ONGOING and Ids.of(each) in pinned and name not in resting),
        )
        for name, each in transactions.items()
        if each.state in OPEN
    )


def _hanging(
    transactions: Mapping[str, TransactionDescription], pinned: Mapping[Ids, str], producers: Iterable[OpenProducer]
) -> list[Hanging]:
    """Return the sink's transactions that leaders have open and coordinators have ended."""
    owners = {each.producer_id: name for name, each in transactions.items()}
    # A transactional id gets a new producer id when the epochs are used up. The decision may pin the old one.
    owners = {ids.producer_id: name for ids, name in pinned.items()} | owners
    return [
        Hanging(each.topic, each.partition, name, each.ids, each.start_offset, each.coordinator_epoch)
        for each in producers
        if (name := owners.get(each.ids.producer_id)) and _is_over(transactions.get(name), each.ids)
    ]


def _is_over(description: TransactionDescription | None, ids: Ids) -> bool:
    """Return True if the coordinator has ended the transaction of these ids and has finished writing its markers."""
    if description is None or description.producer_id != ids.producer_id:
        return True
    epoch = description.producer_epoch
    if description.state in ENDING:
        # Version 2 has raised the epoch by then.
        return ids.producer_epoch < epoch - 1
    # With the same epoch and another state, the transaction began after the coordinator answered.
    is_complete = description.state.startswith("Complete")
    return ids.producer_epoch < epoch or (is_complete and ids.producer_epoch == epoch)


def _is_the_last_committed(sink: Sink, description: TransactionDescription | None, ids: Ids) -> bool:
    """Return True if these are the ids of the transaction that the coordinator remembers as committed.

    Slots and driver begin each transaction with InitProducerId, so an epoch identifies one transaction.
    """
    if description is None or description.state != COMMITTED or description.producer_id != ids.producer_id:
        return False
    raised_by = 1 if sink.transaction_version >= 2 else 0
    return description.producer_epoch == ids.producer_epoch + raised_by


# --- ending -----------------------------------------------------------------------------------------------------------


def finish_manually(
    sink: Sink, partitions: Sequence[TopicPartition]
) -> Steps[tuple[SinkTransactions, dict[Hanging, str]]]:
    """Commit the transactions that the decision names, and end committed hanging transactions on `partitions`.

    Returns the remaining transactions, and the reasons of leaders that refused markers. Raises TransactionRefused,
    UnreadableState.
    """
    decision = yield from read_decision(sink, stable=False)
    if decision is not None:
        yield from ending.finish(sink, decision)
    found = yield from _look_again(sink, partitions)
    for pause_ms in PAUSES_MS:
        if not any(each.state in ENDING for each in found.open):
            break
        yield [Pause(pause_ms)]
        found = yield from _look_again(sink, partitions)
    if not found.hanging:
        return found, {}
    reasons = yield from write_commit_markers(found.hanging)
    refused = {each: reason for each, reason in zip(found.hanging, reasons, strict=True) if reason}
    found = yield from _look_again(sink, partitions)
    return found, refused


def _look_again(sink: Sink, partitions: Sequence[TopicPartition]) -> Steps[SinkTransactions]:
    seen = yield from look(f"{sink.names.sink}.", partitions)
    return (yield from describe_sink(sink, seen))


def abort_manually(sink: Sink) -> Steps[Sequence[TransactionDescription]]:
    """Take the sink over, and abort open transactions that no decision names. Return them, as described before.

    Raises DecisionPending (nothing was aborted), DriverFenced, TransactionRefused, UnreadableState, InvalidOption.
    """
    generation = yield from planning.take_over(sink)
    decision = yield from read_decision(sink, barrier=f"abort {generation}")
    listed = yield from ending.list_open(sink)
    found = yield from ending.open_ones(listed)
    # `repair` has nothing to commit in a slot that rests.
    resting = () if decision is None else decision.resting
    may_be_decided = [each for each in found if sink.names.slot_of(each.transactional_id) not in resting]
    decided = [] if decision is None else [each for each in may_be_decided if ending.is_decided(sink, decision, each)]
    if decision is not None and decided:
        raise DecisionPending(
            sink=sink.names.sink,
            micro_batch_id=decision.micro_batch_id,
            slots=[sink.names.slot_of(each.transactional_id) for each in decided],
            command=command(sink, "repair"),
        )
    return (yield from ending.abort_open(sink, generation, found))

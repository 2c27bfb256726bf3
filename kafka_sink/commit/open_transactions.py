"""What an operator sees of a sink's transactions, and ends manually. Without any I/O, as `two_phase`.

    look    ─> each transactional id's state, and what the leaders of partitions have open      changes nothing
    describe_sink ─> of one sink: what is open and since when, what the decision says, what hangs     changes nothing
    finish_manually  commits what the decision names ─> ends with COMMIT what hangs
    abort_manually   takes the sink over ─> aborts what is open and no decision names

Why finishing does not take the sink over. A decision cannot be taken back: what it names is committed by its commit,
by every plan, and by whoever else sends EndTxn with the ids that are pinned, with the same outcome each time. A driver
that lives is not disturbed by it, and one that has gone on has other epochs, so that it does nothing. The same holds
for the markers (`hanging.write_commit_markers`).

Why aborting does. A driver that lives may be about to decide: with a slot aborted between its look at the slots and its
decision, a micro-batch is decided that cannot become visible whole. So it is fenced first, by InitProducerId of its id,
and stops loudly at its next step (DriverFenced); then the decision is read, which nobody can change any more, and then
what it does not name is aborted. Whether a driver lives cannot be asked of Kafka: nothing is open between two
micro-batches, and what is open may be a dead one's. So who aborts must say that it may stop a query.

What hangs. A leader that has open what its coordinator says is over: coordinators are asked first and leaders after, so
that a transaction which ends in between is not taken for one. Whether it was committed is known where the decision pins
its ids and the marker of its slot is there, or where its coordinator remembers it as the last that it committed. Of
anything else nothing is known, and it is left alone: to commit rows that were aborted is as wrong as the other way.

Non-obvious: offsets are read as they are now (not require_stable), or looking at a sink with an open transaction would
wait for that transaction's end.

Source: KIP-664 (kafka-transactions.sh find-hanging and abort); docs/design/exactly-once.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kafka_sink.commit import two_phase
from kafka_sink.commit.effects import PAUSES_MS, Pause, Steps, ToEveryBroker, ToLeaders
from kafka_sink.commit.exchanges import describe_transaction, described, read_decision, read_markers
from kafka_sink.commit.handover import Sink, command
from kafka_sink.commit.hanging import Hanging, write_commit_markers
from kafka_sink.commit.markers import Decision, Ids, Marker
from kafka_sink.errors import DecisionPending, TransactionRefused
from kafka_sink.kafka.protocol.apis.describe_producers import (
    DescribeProducersRequest,
)
from kafka_sink.kafka.protocol.apis.describe_transactions import (
    TransactionDescription,
)
from kafka_sink.kafka.protocol.apis.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_name
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

# States of Kafka's TransactionState in which readers wait for an end: not decided, and decided but not told to all.
ONGOING = "Ongoing"
ENDING = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")
OPEN = (ONGOING, *ENDING)
COMMITTED = "CompleteCommit"
# Where groups keep their offsets, the slots' markers among them.
OFFSETS_TOPIC = "__consumer_offsets"

# What the transactional id of a sink's driver ends with.
DRIVER = ".driver"
# Also of other programs, whose names may have any character.
_OF_A_SINK = re.compile(r"(.+)\.(?:[0-9]{1,10}|driver)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class OpenProducer:
    """What a leader has open. `start_offset`: from here on read_committed readers of the partition see nothing."""

    topic: str
    partition: int
    ids: Ids
    start_offset: int
    coordinator_epoch: int


@dataclass(frozen=True, slots=True)
class Seen:
    """`transactions`: by transactional id, all there are. `producers`: open on the partitions that could be looked at;
    `refused`: the others, with why."""

    transactions: Mapping[str, TransactionDescription]
    producers: tuple[OpenProducer, ...]
    refused: Mapping[TopicPartition, str]

    def busy_sinks(self) -> list[str]:
        """The sinks that have something open, told by the form of transactional ids."""
        producer_ids = {each.ids.producer_id for each in self.producers}
        busy = [
            name for name, each in self.transactions.items() if each.state in OPEN or each.producer_id in producer_ids
        ]
        return sorted({sink for name in busy if (sink := sink_named(name)) is not None})

    def sinks(self) -> list[str]:
        """All that a driver has ever taken over, as long as its coordinator remembers."""
        return sorted(name.removesuffix(DRIVER) for name in self.transactions if name.endswith(DRIVER))

    def of(self, sink: Sink) -> dict[str, TransactionDescription]:
        """The sink's own, the driver's first, then by slot."""
        names = sink.names
        slots = sorted(filter(names.is_slot, self.transactions), key=lambda name: int(name.rpartition(".")[2]))
        return {name: self.transactions[name] for name in (names.driver, *slots) if name in self.transactions}


@dataclass(frozen=True, slots=True)
class Held:
    """A partition that an open transaction holds back; `start_offset` is None where its leader was not asked, or had
    nothing open."""

    topic: str
    partition: int
    start_offset: int | None


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """`slot`: None for the driver's. `is_decided`: the decision names it, so that it must be committed."""

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
        """Whether its marker is in it, which goes in when all rows are acknowledged."""
        return self.slot is not None and any(each.topic == OFFSETS_TOPIC for each in self.holds)

    @property
    def rows_held(self) -> tuple[Held, ...]:
        """The partitions that hold its rows."""
        return tuple(each for each in self.holds if each.topic != OFFSETS_TOPIC)


@dataclass(frozen=True, slots=True)
class SinkTransactions:
    """`markers`: of the decision's slots. `hanging`: those that are known to be committed; `unknown`: the others."""

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
        """Open, and to be committed."""
        return tuple(each for each in self.open if each.is_decided)

    @property
    def undecided(self) -> tuple[OpenTransaction, ...]:
        """Open, and nobody has decided to commit them."""
        return tuple(each for each in self.open if not each.is_decided)

    @property
    def is_forgotten(self) -> bool:
        """A decision was made that brokers have no more: its groups were deleted, or have expired."""
        driver = self.transactions.get(self.sink.names.driver)
        return self.decision is None and driver is not None and driver.state == COMMITTED

    @property
    def missing(self) -> tuple[int, ...]:
        """Slots that the decision names and that are not visible."""
        decision = self.decision
        if decision is None:
            return ()
        return tuple(
            slot
            for slot, ids in enumerate(decision.pinned)
            if not _shows(decision, self.markers.get(slot)) and ids is not None
        )

    @property
    def lost(self) -> tuple[int, ...]:
        """Those of them that have lost their markers: they may be visible."""
        return tuple(slot for slot in self.missing if slot not in self.markers)


def _shows(decision: Decision, marker: Marker | None) -> bool:
    return marker is not None and (marker.micro_batch_id, marker.query_id) == (
        decision.micro_batch_id,
        decision.query_id,
    )


# --- looking ----------------------------------------------------------------------------------------------------------


def look(sink: Sink, prefix: str, partitions: Sequence[TopicPartition]) -> Steps[Seen]:
    """Every transactional id that begins with `prefix`, and what is open on `partitions`. Raises TransactionRefused."""
    (listings,) = yield [ToEveryBroker(ListTransactionsRequest(transactional_id_prefix=prefix))]
    found = yield from described(sink, _listed(prefix, listings))
    transactions = {each.transactional_id: each for each in found if each.error_code == ErrorCode.NONE}
    # After the coordinators: what was over there and is still open here hangs.
    if not partitions:
        return Seen(transactions, (), {})
    (answer,) = yield [ToLeaders(DescribeProducersRequest(tuple(partitions)))]
    producers = tuple(
        OpenProducer(
            of.topic, of.partition, Ids(each.producer_id, each.producer_epoch), each.current_txn_start_offset,
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
    """What coordinators have open, by transactional id that begins with `prefix`; leaders are not asked. Raises
    TransactionRefused."""
    (listings,) = yield [ToEveryBroker(ListTransactionsRequest(states=OPEN, transactional_id_prefix=prefix))]
    names = _listed(prefix, listings)
    if not names:
        return {}
    answers = yield [describe_transaction(name) for name in names]
    found = [description for answer in answers for description in answer.transactions]
    # One that has ended since, or that this principal may not describe, is not there.
    return {each.transactional_id: each for each in found if each.error_code == ErrorCode.NONE and each.state in OPEN}


def _listed(prefix: str, listings: Iterable[ListTransactionsResponse]) -> list[str]:
    for listing in listings:
        if listing.error_code != ErrorCode.NONE:
            code, name = listing.error_code, error_name(listing.error_code)
            raise TransactionRefused(transactional_id=prefix, api="ListTransactions", code=code, name=name)
    return sorted({each.transactional_id for listing in listings for each in listing.transactions})


def sink_named(transactional_id: str) -> str | None:
    """The sink of a slot's or a driver's transactional id; None for one of another form."""
    found = _OF_A_SINK.fullmatch(transactional_id)
    return None if found is None else found[1]


def describe_sink(sink: Sink, seen: Seen) -> Steps[SinkTransactions]:
    """What was seen, as far as it is of `sink`. Raises TransactionRefused, UnreadableState."""
    transactions = seen.of(sink)
    decision = yield from read_decision(sink, stable=False)
    if decision is not None and decision.is_nothing:
        decision = None
    slots = range(len(decision.pinned)) if decision is not None else ()
    markers = yield from read_markers(sink, slots, stable=False)
    pinned = _pinned(sink, decision)
    hanging: list[Hanging] = []
    unknown: list[Hanging] = []
    for each in _hanging(sink, transactions, pinned, seen.producers):
        is_visible = decision is not None and each.ids in pinned and _shows(decision, markers.get(_slot(each)))
        is_last = _is_the_last_committed(sink, transactions.get(each.transactional_id), each.ids)
        (hanging if is_visible or is_last else unknown).append(each)
    return SinkTransactions(
        sink, transactions, decision, markers, _open(sink, transactions, pinned, seen.producers), tuple(hanging),
        tuple(unknown), seen.refused,
    )  # fmt: skip


def _pinned(sink: Sink, decision: Decision | None) -> dict[Ids, str]:
    slots = enumerate(decision.pinned) if decision is not None else ()
    return {ids: sink.names.slot(slot) for slot, ids in slots if ids is not None}


def _slot(hanging: Hanging) -> int:
    return int(hanging.transactional_id.rpartition(".")[2])


def _ids(description: TransactionDescription) -> Ids:
    return Ids(description.producer_id, description.producer_epoch)


def _open(
    sink: Sink,
    transactions: Mapping[str, TransactionDescription],
    pinned: Mapping[Ids, str],
    producers: Iterable[OpenProducer],
) -> tuple[OpenTransaction, ...]:
    offsets = {(each.topic, each.partition, each.ids.producer_id): each.start_offset for each in producers}
    return tuple(
        OpenTransaction(
            transactional_id=name,
            slot=None if name == sink.names.driver else int(name.rpartition(".")[2]),
            ids=_ids(each),
            state=each.state,
            start_time_ms=each.start_time_ms,
            timeout_ms=each.timeout_ms,
            holds=tuple(Held(*at, offsets.get((*at, each.producer_id))) for at in sorted(each.partitions)),
            is_decided=each.state == "PrepareCommit" or (each.state == ONGOING and _ids(each) in pinned),
        )
        for name, each in transactions.items()
        if each.state in OPEN
    )


def _hanging(
    sink: Sink,
    transactions: Mapping[str, TransactionDescription],
    pinned: Mapping[Ids, str],
    producers: Iterable[OpenProducer],
) -> list[Hanging]:
    """What leaders have open of the sink's, and coordinators have not."""
    owners = {each.producer_id: name for name, each in transactions.items()}
    # A producer id that is spent is none of its transactional id's any more, and may be pinned.
    owners = {ids.producer_id: name for ids, name in pinned.items()} | owners
    return [
        Hanging(each.topic, each.partition, name, each.ids, each.start_offset, each.coordinator_epoch)
        for each in producers
        if (name := owners.get(each.ids.producer_id)) and _is_over(transactions.get(name), each.ids)
    ]


def _is_over(description: TransactionDescription | None, ids: Ids) -> bool:
    """Whether the coordinator has nothing open of these ids, nor is about to tell leaders of their end."""
    if description is None or description.producer_id != ids.producer_id:
        return True
    epoch = description.producer_epoch
    if description.state in ENDING:
        # Version 2 has raised the epoch by then.
        return ids.producer_epoch < epoch - 1
    # One that has the same epoch and is not over was begun after the coordinator was asked.
    is_complete = description.state.startswith("Complete")
    return ids.producer_epoch < epoch or (is_complete and ids.producer_epoch == epoch)


def _is_the_last_committed(sink: Sink, description: TransactionDescription | None, ids: Ids) -> bool:
    """Whether these are the ids of the transaction that the coordinator remembers as committed. A slot's and the
    driver's begin each transaction with InitProducerId, so that an epoch stands for one of them."""
    if description is None or description.state != COMMITTED or description.producer_id != ids.producer_id:
        return False
    raised_by = 1 if sink.transaction_version >= 2 else 0
    return description.producer_epoch == ids.producer_epoch + raised_by


# --- ending -----------------------------------------------------------------------------------------------------------


def finish_manually(
    sink: Sink, partitions: Sequence[TopicPartition]
) -> Steps[tuple[SinkTransactions, dict[Hanging, str]]]:
    """Commits what the decision names, and ends what hangs on `partitions` and was committed. What is left afterwards,
    and why leaders refused markers. Raises TransactionRefused, UnreadableState."""
    decision = yield from read_decision(sink, stable=False)
    if decision is not None:
        yield from two_phase.finish(sink, decision)
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
    seen = yield from look(sink, f"{sink.names.sink}.", partitions)
    found = yield from describe_sink(sink, seen)
    return found


def abort_manually(sink: Sink) -> Steps[Sequence[TransactionDescription]]:
    """Takes the sink over, and aborts what is open and no decision names. What that was.

    Raises DecisionPending (nothing was aborted), DriverFenced, TransactionRefused, UnreadableState, InvalidOption.
    """
    generation = yield from two_phase.take_over(sink)
    decision = yield from read_decision(sink, barrier=f"abort {generation}")
    listed = yield from two_phase.list_open(sink)
    found = yield from two_phase.open_ones(sink, listed)
    decided = [] if decision is None else [each for each in found if two_phase.is_decided(sink, decision, each)]
    if decision is not None and decided:
        raise DecisionPending(
            sink=sink.names.sink,
            micro_batch_id=decision.micro_batch_id,
            slots=[int(each.transactional_id.rpartition(".")[2]) for each in decided],
            command=command(sink, "repair"),
        )
    aborted = yield from two_phase.abort_open(sink, generation, found)
    return aborted

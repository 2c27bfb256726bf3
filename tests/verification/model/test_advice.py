"""The advice of every error of exactly-once, carried out literally: no row is lost or doubled, unless the same sentence
says so.

A case is a situation, the sentence of the error that it follows, and what is visible after that.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from exchange import Died, Exchange
from kafka_sink import errors
from kafka_sink.commit import attempt, deciding, planning
from kafka_sink.commit.handover import SlotPrepared
from kafka_sink.commit.markers import Marker, Names
from kafka_sink.commit.requests import PARTITION, ToCoordinator
from kafka_sink.errors import ExactlyOnceError
from kafka_sink.kafka.protocol.apis.groups import CoordinatorKind, OffsetCommitRequest
from kafka_sink.kafka.protocol.apis.transactions import EndTxnRequest
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from model.logical_kafka import Produce

# The advice is about an ACL, a setting, a file or a command, and changes no row.
NO_ROWS = {
    errors.AnotherCheckpoint, errors.AnotherName, errors.DecisionPending, errors.HangingTransaction,
    errors.LeaderDisagrees, errors.QuotaOutlastsTransaction, errors.RateOutlastsTransaction, errors.ReceiptNotWritten,
    errors.TransactionRefused, errors.VerificationRefused,
}  # fmt: skip


class Stream:
    """A query whose micro-batch `n` has the rows `n/slot`. `query_id`: another one after a new checkpoint."""

    def __init__(self, version: int) -> None:
        self.exchange = Exchange(version, is_new=True)
        self.exchange.kafka.remember()
        self.query_id = "q"
        self.suffix = ""

    @property
    def kafka(self) -> Any:
        return self.exchange.kafka

    def prepared(self, number: int, rows: Sequence[int] = (0, 1), *, allowed: bool = False, **lives: Any) -> Any:
        exchange = self.exchange
        found = exchange.run(planning.plan(exchange.sink, allow_lost_state=allowed))
        touched = exchange.touched(3)
        exchange.run(planning.end_what_hangs(exchange.sink, found, touched, allow_lost_state=allowed))
        number_written = lives.get("as_number", number)
        return found, [self._task(found, number_written, number, slot, allowed) for slot in rows]

    def write(self, number: int, rows: Sequence[int] = (0, 1), *, allowed: bool = False, **lives: Any) -> None:
        found, done = self.prepared(number, rows, allowed=allowed, **lives)
        micro_batch_id = lives.get("as_number", number)
        steps = deciding.commit(
            self.exchange.sink, found, done, micro_batch_id=micro_batch_id, now_ms=0, allow_lost_state=allowed
        )
        self.exchange.run(steps)

    def _task(self, found: Any, number: int, of: int, slot: int, allowed: bool) -> SlotPrepared:
        sink = self.exchange.sink
        begun = self.exchange.run(
            attempt.begin(
                sink, found, slot=slot, micro_batch_id=number, query_id=self.query_id, allow_lost_state=allowed
            )
        )
        row, first = f"{of}/{slot}{self.suffix}", {}
        if begun.visible is None:
            produce = Produce(
                sink.names.slot(slot), begun.ids.producer_id, begun.ids.producer_epoch, slot, (f"{of}/{slot}",)
            )
            first[TopicPartition("t", slot)] = self.kafka.execute(produce).base_offset
            self.exchange.run(attempt.prepare(sink, begun, Marker(number, self.query_id, row)))
        return SlotPrepared(slot, begun.ids, self.query_id, row, begun.visible, tuple(self.exchange.touched(3)), first)

    def new_prefix(self) -> None:
        self.exchange.sink = replace(self.exchange.sink, names=Names("new", "pykafka-commits"))

    def new_checkpoint(self) -> None:
        self.query_id = "another"

    def torn(self, number: int) -> None:
        """Slot 0 is visible, and the transaction of slot 1 timed out after the decision."""
        found, done = self.prepared(number)
        ended = 0

        def dies(request: Any) -> None:
            nonlocal ended
            ended += isinstance(request, EndTxnRequest)
            if ended > 2:
                raise Died

        self.exchange.answer = dies
        with pytest.raises(Died):
            self.exchange.commit(found, done, number)
        self.exchange.answer = lambda request: None
        self.kafka.time_out("orders.1")

    def reset_offsets(self, group_id: str) -> None:
        request = OffsetCommitRequest(group_id, "pykafka-commits", PARTITION, 0, "")
        self.kafka.execute(ToCoordinator(CoordinatorKind.GROUP, group_id, request))


Case = Callable[[Stream], Iterator[Any]]
BOTH = {"0/0": 1, "0/1": 1}
RESTART = "Restart the query if it has stopped."


def unreadable(group_id: str, number: int) -> Case:
    def case(stream: Stream) -> Iterator[Any]:
        for each in range(number + 1):
            stream.write(each)
        stream.reset_offsets(group_id)
        yield errors.UnreadableState, lambda: stream.write(number)
        yield f"delete the group (kafka-consumer-groups.sh --delete --group {group_id}) and run again"
        stream.kafka.forget_offsets([group_id])
        if group_id == "orders.decision" and number:
            yield errors.StateExpired, lambda: stream.write(number)
            yield "If micro-batch 1 cannot be in the topics already, start once with allowLostState=true"
        else:
            stream.write(number)
        yield {f"{each}/{slot}": 1 for each in range(number + 1) for slot in (0, 1)}

    return case


def went_back(stream: Stream, *, allowed: bool) -> Iterator[Any]:
    stream.write(0)
    stream.exchange.run(planning.plan(stream.exchange.sink))
    stream.kafka.mark()
    stream.write(1)
    stream.kafka.roll_offsets_back_to_mark()
    yield errors.StateWentBack, lambda: stream.write(1)
    if allowed:
        yield "start once with allowLostState=true, which would write rows twice that are there"
        stream.write(1, allowed=True)
        yield {"0/0": 1, "0/1": 1, "1/0": 2, "1/1": 2}
    else:
        yield "If they are there, start behind them, with a new checkpoint and a new transactionalIdPrefix"
        stream.new_prefix()
        stream.new_checkpoint()
        stream.write(2, as_number=0)
        yield {f"{each}/{slot}": 1 for each in range(3) for slot in (0, 1)}


def markers_lost(stream: Stream, *, same: bool) -> Iterator[Any]:
    stream.write(0)
    stream.write(0)
    stream.kafka.forget_offsets(["orders.1"])
    yield errors.MarkersLost, lambda: stream.write(0 if same else 1)
    if same:
        yield "If they are, start behind them, with a new checkpoint."
        stream.new_checkpoint()
        stream.write(1, as_number=0)
    else:
        yield "If they are there, start once with allowLostState=true."
        stream.write(1, allowed=True)
    yield {"0/0": 1, "0/1": 1, "1/0": 1, "1/1": 1}


def torn(stream: Stream, *, again: bool) -> Iterator[Any]:
    stream.torn(0)
    stream.suffix = "?"
    yield errors.TornBatch, lambda: stream.write(0)
    if again:
        yield "Make the query give the same rows again"
        stream.suffix = ""
        stream.write(0)
        yield BOTH
    else:
        yield "the visible ones a second time: allowLostState=true for one start, with a new transactionalIdPrefix"
        stream.new_prefix()
        stream.write(0, allowed=True)
        yield {"0/0": 2, "0/1": 1}


def data_missing(stream: Stream, *, again: bool) -> Iterator[Any]:
    stream.torn(0)
    yield errors.CommittedDataMissing, lambda: stream.write(1)
    if again:
        yield "To write what is missing restore the checkpoint to before 0"
        stream.write(0)
        stream.write(1)
        yield {"0/0": 1, "0/1": 1, "1/0": 1, "1/1": 1}
    else:
        yield "to leave those rows out for good set allowLostState=true for one start"
        stream.write(1, allowed=True)
        yield {"0/0": 1, "1/0": 1, "1/1": 1}


def expired(stream: Stream) -> Iterator[Any]:
    stream.write(0)
    stream.kafka.forget_offsets()
    yield errors.StateExpired, lambda: stream.write(1)
    yield "If micro-batch 1 cannot be in the topics already, start once with allowLostState=true."
    stream.write(1, allowed=True)
    yield {"0/0": 1, "0/1": 1, "1/0": 1, "1/1": 1}


def fingerprints_lost(stream: Stream) -> Iterator[Any]:
    """A decision of an earlier release has no digests."""
    stream.write(0)
    marker = Marker(0, "q", "")
    request = OffsetCommitRequest("orders.0", "pykafka-commits", PARTITION, 0, marker.text)
    stream.kafka.execute(ToCoordinator(CoordinatorKind.GROUP, "orders.0", request))
    yield errors.FingerprintsLost, lambda: stream.write(0)
    yield "start once with allowLostState=true: these slots are not written again"
    stream.write(0, allowed=True)
    yield BOTH


def written_otherwise(stream: Stream) -> Iterator[Any]:
    stream.write(0)
    yield errors.WrittenOtherwise, lambda: stream.write(2)
    yield "go on from micro-batch 2 with allowLostState=true for one start"
    stream.write(2, allowed=True)
    yield {"0/0": 1, "0/1": 1, "2/0": 1, "2/1": 1}


def checkpoint_behind(stream: Stream, *, newest: bool) -> Iterator[Any]:
    stream.write(0)
    stream.write(1)
    yield errors.CheckpointBehind, lambda: stream.write(0)
    if newest:
        yield "Use the newest checkpoint."
        stream.write(2)
        yield {f"{each}/{slot}": 1 for each in range(3) for slot in (0, 1)}
    else:
        yield "A new transactionalIdPrefix would write those micro-batches a second time."
        stream.new_prefix()
        stream.write(0)
        yield {"0/0": 2, "0/1": 2, "1/0": 1, "1/1": 1}


def other_rows(stream: Stream) -> Iterator[Any]:
    stream.write(0)
    stream.suffix = "?"
    yield errors.NonDeterministicReplay, lambda: stream.write(0)
    yield "restart with the query that wrote it first"
    stream.suffix = ""
    stream.write(0)
    yield BOTH


def restarted(error: type[ExactlyOnceError], begin: Callable[[Stream], Callable[[], Any]]) -> Case:
    """`begin` does what goes wrong, and returns what raises the error."""

    def case(stream: Stream) -> Iterator[Any]:
        yield error, begin(stream)
        yield RESTART
        stream.write(0)
        yield BOTH

    return case


def timed_out(stream: Stream) -> Callable[[], Any]:
    found, done = stream.prepared(0)
    stream.kafka.time_out("orders.1")
    return lambda: stream.exchange.commit(found, done)


def replaced(stream: Stream) -> Callable[[], Any]:
    """Spark keeps the result of the first attempt, and a second one has begun."""
    found, done = stream.prepared(0)
    stream._task(found, 0, 0, 1, False)
    return lambda: stream.exchange.commit(found, done)


def rows_gone(stream: Stream) -> Callable[[], Any]:
    found, done = stream.prepared(0)
    stream.kafka._end_on(0, done[0].ids.producer_id, done[0].ids.producer_epoch, committed=False)
    return lambda: stream.exchange.commit(found, done)


def aborted_rows(stream: Stream) -> Callable[[], Any]:
    stream.prepared(0)
    stream.kafka.lose_marker(0, committed=False)
    found, done = stream.prepared(0)
    return lambda: stream.exchange.commit(found, done)


def fenced(stream: Stream) -> Iterator[Any]:
    found, done = stream.prepared(0)
    stream.write(0)
    yield errors.DriverFenced, lambda: stream.exchange.commit(found, done)
    yield "Stop one of the two"
    stream.write(1)
    yield {"0/0": 1, "0/1": 1, "1/0": 1, "1/1": 1}


def attempt_fenced(stream: Stream) -> Callable[[], Any]:
    sink, exchange = stream.exchange.sink, stream.exchange
    found = exchange.run(planning.plan(sink))
    begun = exchange.run(attempt.begin(sink, found, slot=0, micro_batch_id=0, query_id="q"))
    stream._task(found, 0, 0, 0, False)
    return lambda: exchange.run(attempt.prepare(sink, begun, Marker(0, "q", "0/0")))


def outcome_unknown(stream: Stream) -> Iterator[Any]:
    found, done = stream.prepared(0)

    def times_out(request: Any) -> None:
        if isinstance(request, EndTxnRequest) and request.transactional_id == "orders.1":
            stream.kafka.time_out("orders.1")

    stream.exchange.answer = times_out
    yield errors.CommitOutcomeUnknown, lambda: stream.exchange.commit(found, done)
    yield "Restart the query: that commits the slots that still can be committed, and writes the missing slots again"
    stream.exchange.answer = lambda request: None
    stream.write(0)
    yield BOTH


CASES: dict[str, Case] = {
    "a marker that was reset": unreadable("orders.0", 0),
    "a later marker that was reset": unreadable("orders.1", 1),
    "a decision that was reset": unreadable("orders.decision", 0),
    "a later decision that was reset": unreadable("orders.decision", 1),
    "offsets went back": lambda stream: went_back(stream, allowed=False),
    "offsets went back, and allowLostState": lambda stream: went_back(stream, allowed=True),
    "markers are lost of the same micro-batch": lambda stream: markers_lost(stream, same=True),
    "markers are lost of the one before": lambda stream: markers_lost(stream, same=False),
    "a micro-batch in part, with the same rows": lambda stream: torn(stream, again=True),
    "a micro-batch in part, under a new name": lambda stream: torn(stream, again=False),
    "rows are missing, and written": lambda stream: data_missing(stream, again=True),
    "rows are missing, and left out": lambda stream: data_missing(stream, again=False),
    "nothing is known any more": expired,
    "fingerprints are lost": fingerprints_lost,
    "written at least once in between": written_otherwise,
    "an older checkpoint, and the newest": lambda stream: checkpoint_behind(stream, newest=True),
    "an older checkpoint, under a new name": lambda stream: checkpoint_behind(stream, newest=False),
    "other rows": other_rows,
    "timed out": restarted(errors.TransactionTimedOut, timed_out),
    "a stage that ran again": restarted(errors.AttemptReplaced, replaced),
    "rows are gone": restarted(errors.PreparedRowsGone, rows_gone),
    "aborted rows are open": restarted(errors.AbortedRowsOpen, aborted_rows),
    "two drivers": fenced,
    "two attempts": restarted(errors.AttemptFenced, attempt_fenced),
    "the outcome is unknown": outcome_unknown,
}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", CASES)
def test_advice_that_is_followed_literally_does_what_it_says(name: str, version: int) -> None:
    stream = Stream(version)
    said = ""
    for step in CASES[name](stream):
        match step:
            case (error, run):
                with pytest.raises(ExactlyOnceError) as raised:
                    run()
                assert type(raised.value) is error
                said = str(raised.value.in_transaction())
            case str():
                assert step in said
            case _:
                assert Counter(stream.kafka.visible) == step


def test_the_advice_of_every_error_of_exactly_once_is_followed() -> None:
    followed = set()
    for case in CASES.values():
        stream = Stream(2)
        for step in case(stream):
            if isinstance(step, tuple):
                followed.add(step[0])
                with pytest.raises(step[0]):
                    step[1]()
    raised = {
        each
        for each in map(errors.__dict__.get, errors.__all__)
        if isinstance(each, type) and issubclass(each, ExactlyOnceError) and each is not ExactlyOnceError
    }
    assert raised - NO_ROWS == followed

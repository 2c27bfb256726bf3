"""A task in virtual time: writes rows through a kept producer, as `write.Write` and `client.lease` do.

The client's thread waits; a generator here yields instead, until when it would wait at most (None: for ever), and goes
on when the producer notifies it or the time is over. What it decides in between is the client's, line by line.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping, Sequence

from kafka_sink.errors import (
    BrokersUnreachable,
    BufferExhausted,
    KafkaSinkError,
    PartitionOutOfRange,
    ProducerClosed,
    RecordTooLarge,
    TopicAuthorizationFailed,
    TopicNameInvalid,
    TopicNotFound,
    TopicRecreated,
)
from kafka_sink.kafka.client import GATHER_MS, LOOK_AGAIN_S
from kafka_sink.kafka.metadata import TopicSnapshot
from kafka_sink.kafka.producer.acknowledgements import Acknowledgements
from kafka_sink.kafka.producer.core import codec_of
from kafka_sink.kafka.producer.routed_rows import RoutedRows
from kafka_sink.kafka.producer.router import Router
from kafka_sink.kafka.producer.topic_check import TopicCheck
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_id import ids_differ
from kafka_sink.records.columns import RecordColumns
from simulation.outcome import EPOCH_MS, Row, WriteOutcome, arrow_batch
from simulation.producer import SimulatedProducer
from simulation.scheduler import Scheduler, Timer

Waits = Generator[int | None, None, None]


class VirtualWrite:
    """`write.Write`, with generators where it waits."""

    def __init__(
        self, producer: SimulatedProducer, scheduler: Scheduler, rng: random.Random, outcome: WriteOutcome
    ) -> None:
        self._producer = producer
        self._scheduler = scheduler
        self._config = producer.config
        self._outcome = outcome
        self._codec = codec_of(self._config)
        self._router = Router(topic=None, batch_bytes=self._config.batch_size, rng=rng, partitioner=outcome.partitioner)
        self._receipts = Acknowledgements()
        self._may_ask_again = True
        self._states: Mapping[str, TopicSnapshot] = {}

    def append(self, rows: list[Row]) -> Waits:
        self._may_ask_again = True
        now_ms, started_ms = self._scheduler.now_ms, self._producer.waiting_clock_ms()
        self._outcome.rows.update((row.row_id, row) for row in rows)
        self._outcome.now_ms.update((row.row_id, EPOCH_MS + now_ms) for row in rows)
        columns = RecordColumns.from_arrow(arrow_batch(rows), now_ms=EPOCH_MS + now_ms)
        topics = self._router.topics_of(columns)
        names = frozenset(topics.names)
        try:
            yield from self._resolve(names, started_ms)
            routed = self._router.route(columns, topics, self._states)
        except PartitionOutOfRange as out_of_range:
            if out_of_range.partition < 0 or not self._may_ask_again:
                raise
            self._may_ask_again = False
            yield from self._resolve(names, started_ms, ask_again=True)
            routed = self._router.route(columns, topics, self._states)
        for row, destination in zip(rows, routed.destination.tolist(), strict=True):
            self._outcome.routed[row.row_id] = routed.destinations[destination]
        for name in names:
            self._outcome.key_partitions.setdefault(name, self._states[name].partition_count)
        self._check_sizes(routed)
        yield from self._place(routed, started_ms)

    def _resolve(self, names: frozenset[str], started_ms: int, *, ask_again: bool = False) -> Waits:
        yield from self._await_topics(names, started_ms, ask_again=ask_again)
        for name, state in self._states.items():
            first_id = self._outcome.topic_ids.get(name) or state.topic_id
            self._outcome.topic_ids[name] = first_id
            if ids_differ(first_id, state.topic_id):
                raise TopicRecreated(topic=name, old_topic_id=str(first_id), new_topic_id=str(state.topic_id))

    def _await_topics(self, names: frozenset[str], started_ms: int, *, ask_again: bool) -> Waits:
        producer, metadata = self._producer, self._producer.metadata
        with producer.lock:
            known = metadata.snapshot.topics
            new = [name for name in sorted(names) if name not in self._outcome.topic_ids or name not in known]
            needed_answer = metadata.want(names, self._scheduler.now_ms)
            if not new:
                needed_answer = 0
            if ask_again:
                needed_answer = metadata.request_update()
        while True:
            snapshot = metadata.snapshot
            answered = metadata.answered >= needed_answer
            missing = [name for name in new if name not in snapshot.topics or name in snapshot.errors]
            if answered and not missing:
                self._states = {name: snapshot.topics[name] for name in sorted(names)}
                return
            if producer.sender.failure is not None:
                raise producer.sender.failure
            if answered:
                _raise_hopeless(missing, snapshot.errors)
            remaining_ms = started_ms + self._config.max_block_ms - producer.waiting_clock_ms()
            if answered and (patience_ends_ms := producer.metadata.patience_ends_ms(missing)) is not None:
                remaining_ms = min(remaining_ms, patience_ends_ms - self._scheduler.now_ms)
            if remaining_ms <= 0:
                raise self._not_known_in_time(missing if answered else [])
            producer.wakeup()
            yield self._scheduler.now_ms + remaining_ms

    def _not_known_in_time(self, missing: Sequence[str]) -> KafkaSinkError:
        if missing:
            return TopicNotFound(topic=missing[0], waited_ms=self._config.max_block_ms)
        return BrokersUnreachable(
            bootstrap_servers=self._config.bootstrap_servers_text,
            waited_ms=self._config.max_block_ms,
            last_error=self._producer.network.last_error,
        )

    def _check_sizes(self, rows: RoutedRows) -> None:
        largest = rows.largest()
        if largest is not None and largest[1] > self._config.max_request_size:
            raise RecordTooLarge(
                topic=largest[0].topic,
                size_bytes=largest[1],
                max_bytes=self._config.max_request_size,
                limit="kafka.max.request.size",
            )

    def _place(self, rows: RoutedRows, started_ms: int) -> Waits:
        producer = self._producer
        if not producer.sender.has_room(self._scheduler.now_ms):
            yield from self._await_room()
            started_ms = producer.waiting_clock_ms()
        blocked_since_ms, most_available = started_ms, producer.accumulator.pool.available_bytes
        while True:
            seen = producer.changes
            left_before = rows.unplaced_count()
            placed_all = producer.accumulator.try_append(rows, self._receipts, self._codec, self._scheduler.now_ms)
            if producer.accumulator.take_wakeup():
                producer.wakeup()
            if placed_all:
                return
            available = producer.accumulator.pool.available_bytes
            if rows.unplaced_count() < left_before or available > most_available:
                blocked_since_ms, most_available = producer.waiting_clock_ms(), available
            remaining_ms = blocked_since_ms + self._config.max_block_ms - producer.waiting_clock_ms()
            deadline_ms = self._scheduler.now_ms + remaining_ms
            if remaining_ms <= 0:
                raise BufferExhausted(
                    needed_bytes=rows.needed_bytes(producer.accumulator.pool.buffer_bytes),
                    buffer_memory=self._config.buffer_memory,
                    waited_ms=self._config.max_block_ms,
                )
            while producer.changes == seen and self._scheduler.now_ms < deadline_ms:
                yield deadline_ms
            gathered_ms = min(self._scheduler.now_ms + GATHER_MS, deadline_ms)
            while producer.accumulator.pool.exhausted and self._scheduler.now_ms < gathered_ms:
                yield gathered_ms

    def _await_room(self) -> Waits:
        producer = self._producer
        producer.waits_for_room += 1
        with producer.lock:
            producer.accumulator.begin_flush()
        producer.wakeup()
        try:
            while not producer.sender.has_room(self._scheduler.now_ms):
                if producer.sender.failure is not None:
                    raise producer.sender.failure
                yield self._scheduler.now_ms + int(LOOK_AGAIN_S * 1_000)
        finally:
            producer.accumulator.end_flush()

    def finish(self) -> Waits:
        producer, acknowledgements = self._producer, self._receipts
        with producer.lock:
            producer.accumulator.begin_flush()
        producer.wakeup()
        try:
            while not (acknowledgements.settled or not producer.usable):
                yield None
        finally:
            producer.accumulator.end_flush()
        if acknowledgements.failure is not None:
            raise acknowledgements.failure
        if not acknowledgements.settled:
            raise producer.sender.failure or ProducerClosed(reason="its sender thread is gone")
        yield from self._check_topics()
        self._outcome.acknowledgements = acknowledgements.partitions()

    def _check_topics(self) -> Waits:
        producer = self._producer
        if not self._receipts.takers_by_name:
            return
        check = TopicCheck(self._outcome.topic_ids, self._receipts.takers_by_name)
        deadline_ms = producer.waiting_clock_ms() + self._config.max_block_ms
        producer.sender.topic_check = check
        producer.wakeup()
        while not check.settled and producer.usable and (left_ms := deadline_ms - producer.waiting_clock_ms()) > 0:
            yield self._scheduler.now_ms + left_ms
        producer.sender.topic_check = None
        if check.recreated is not None:
            raise check.recreated
        if producer.sender.failure is not None:
            raise producer.sender.failure
        if not check.settled:
            raise self._not_known_in_time([])


def _raise_hopeless(missing: Sequence[str], errors: Mapping[str, int]) -> None:
    for name in missing:
        if errors.get(name) == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise TopicAuthorizationFailed(topic=name)
        if errors.get(name) == ErrorCode.INVALID_TOPIC_EXCEPTION:
            raise TopicNameInvalid(topic=name)


class VirtualTask:
    """Runs the generator of a writer's whole life; `notified` is what the producer calls."""

    def __init__(self, scheduler: Scheduler, life: Callable[[VirtualTask], Waits]) -> None:
        self.producer: SimulatedProducer | None = None
        self.is_writing = False
        self.done = False
        self._scheduler = scheduler
        self._life = life(self)
        self._timer: Timer | None = None
        self._notified = False
        self._running = False
        scheduler.after(0, self.resume)

    def notified(self) -> None:
        """Goes on at the next opportunity."""
        self._notified = True
        self._plan(self._scheduler.now_ms)

    def take_turn(self) -> None:
        """Goes on now, if it was notified: the producer has released the lock."""
        if self._notified:
            self.resume()

    def resume(self) -> None:
        if self.done or self._running:
            return
        self._running, self._notified = True, False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            deadline_ms = self._step()
        finally:
            self._running = False
        if self._notified:
            self._plan(self._scheduler.now_ms)
        elif deadline_ms is not None:
            self._plan(deadline_ms)

    def _step(self) -> int | None:
        try:
            if self.producer is None:
                return next(self._life)
            with self.producer.lock.running("writer"):
                return next(self._life)
        except StopIteration:
            self.done = True
            return None

    def _plan(self, at_ms: int) -> None:
        if self.done or (self._timer is not None and self._timer.at_ms <= at_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._scheduler.at(at_ms, self.resume)

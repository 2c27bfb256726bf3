"""A producer in virtual time: the shipped code, wired as `kafka_sink.kafka.client.Producer` wires it; and a task that
writes rows through a kept producer, as `write.Write` and `client.lease` do.

Each thread of the client is a process here: `run_once`, `poll`, `handle`, and then a planned event instead of a wait.
The shipped code is unchanged, but watched:

* the pool remembers which buffers are out, and overwrites returned buffers: code that still reads one reads nonsense;
* each request to the NetworkClient is checked: all go to one cluster, a retried batch has the same bytes and comes
  after the backoff and not too often, requests keep to `max.request.size` and to throttles, and no connection has more
  of them in flight than `max.in.flight.requests.per.connection`;
* the lock is never contended, but threads take turns when it is released: sometimes the other one goes on.

Where the task's thread waits, a generator yields instead, until when it would wait at most (None: for ever), and goes
on when the producer notifies it or the time is over. What it decides in between is the client's, line by line.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from kafka_sink import errors
from kafka_sink.errors import KafkaSinkError, ProducerClosed
from kafka_sink.kafka.client import GATHER_MS, LOOK_AGAIN_S
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.connections import network_settings
from kafka_sink.kafka.metadata import TopicSnapshot
from kafka_sink.kafka.net.network_client import NetworkClient
from kafka_sink.kafka.producer.acknowledgements import Acknowledgements
from kafka_sink.kafka.producer.buffer_pool import OUTSIDE, Buffer, BufferPool
from kafka_sink.kafka.producer.checks import TopicCheck
from kafka_sink.kafka.producer.router import RoutedRows, Router
from kafka_sink.kafka.producer.sender import Sender, codec_of
from kafka_sink.kafka.producer.sequences import Sequences
from kafka_sink.kafka.protocol.api import Request
from kafka_sink.kafka.protocol.apis.produce import ProducePartition, ProduceRequest
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_partition import ids_differ
from kafka_sink.records.columns import RecordColumns
from model.timeline import Timeline, Timer
from simulation.network import Network, SimulatedTransport
from simulation.outcome import EPOCH_MS, PoolState, Row, WriteOutcome, arrow_batch

SPOILED = 0xDD
# The package's own version depends on how it is installed, and its length would make a seed another run.
SOFTWARE_VERSION = "0.0.0"
# Turns of the Sender thread before the clock moves, without a new batch: wake-ups of writers are among them. With new
# batches it may go on for long, where a network takes no time and a throttle has just ended.
MAX_IDLE_TURNS = 200
# Where a record batch says whose it is: producer id, epoch, base sequence, count (DefaultRecordBatch). The first part
# of a batch that was split has its sequence and fewer records.
_IDENTITY = struct.Struct(">qhii")
_IDENTITY_OFFSET = 43


class Violation(AssertionError):
    """A violation of a rule that can be seen only during the run."""


class WatchedPool(BufferPool):
    """`peak_bytes`: the most that was out at once, by its own count of the buffers themselves."""

    def __init__(self, *, total_bytes: int, buffer_bytes: int) -> None:
        super().__init__(total_bytes=total_bytes, buffer_bytes=buffer_bytes)
        self._out: dict[int, Buffer] = {}
        self.peak_bytes = 0
        self.allocations = 0
        self.refusals = 0
        self.overdrafts = 0

    @property
    def out_bytes(self) -> int:
        return sum(buffer.size for buffer in self._out.values())

    def try_allocate(self, size_bytes: int) -> Buffer | None:
        buffer = super().try_allocate(size_bytes)
        if buffer is None:
            self.refusals += 1
            return None
        self._note(buffer)
        self.allocations += 1
        return buffer

    def overdraw(self, size_bytes: int) -> Buffer:
        """Rows that are in memory already and change their shape; `peak_bytes` leaves them out, as the bound does."""
        buffer = super().overdraw(size_bytes)
        self.overdrafts += 1
        self._out[id(buffer)] = buffer
        return buffer

    def _note(self, buffer: Buffer) -> None:
        pooled = [out for out in self._out.values() if out.start != OUTSIDE]
        if any(out.start < buffer.start + buffer.size and buffer.start < out.start + out.size for out in pooled):
            raise Violation("the pool gave out the same memory twice")
        self._out[id(buffer)] = buffer
        self.peak_bytes = max(self.peak_bytes, buffer.size + sum(out.size for out in pooled))

    def deallocate(self, buffer: Buffer) -> None:
        if self._out.pop(id(buffer), None) is None:
            raise Violation("a buffer came back to the pool that was not out")
        buffer.view[:] = bytes([SPOILED]) * buffer.size
        super().deallocate(buffer)


@dataclass(slots=True)
class SentBatch:
    """What was last sent under one number, how often, and when."""

    digest: bytes
    attempts: int
    sent_ms: int
    node_id: int


class WatchedNetworkClient(NetworkClient):
    """Looks at each request as it is handed over. `sent_batches` by producer id, epoch, topic, partition, base
    sequence and count."""

    def __init__(self, transport: SimulatedTransport, *, config: ProducerConfig, **kwargs: Any) -> None:
        super().__init__(transport, **kwargs)
        self._config = config
        self._wires = transport
        self.sent_batches: dict[tuple[Any, ...], SentBatch] = {}
        self.resent = 0

    def send(self, node_id: int, request: Request, now_ms: int, *args: Any, **kwargs: Any) -> None:
        if self.delay_ms(node_id, now_ms):
            raise Violation(f"a request to broker {node_id}, which throttles for {self.delay_ms(node_id, now_ms)} ms")
        node = self._nodes[node_id]
        if node.connection is not None and (found := self._wires.cluster_id(node.key)) != self.cluster_id:
            raise Violation(f"a request to broker {node_id}, which belongs to another cluster: {found}")
        if isinstance(request, ProduceRequest):
            self._check_size(request)
            for data in request.partitions:
                self._look_at(data, node_id, now_ms)
        super().send(node_id, request, now_ms, *args, **kwargs)
        if self.in_flight_count(node_id) > self._config.max_in_flight_requests_per_connection:
            raise Violation(f"{self.in_flight_count(node_id)} requests in flight to broker {node_id}")

    def _check_size(self, request: ProduceRequest) -> None:
        size_bytes = sum(len(data.records) for data in request.partitions)
        if len(request.partitions) > 1 and size_bytes > self._config.max_request_size:
            raise Violation(f"{size_bytes} bytes of record batches in one request")

    def _look_at(self, data: ProducePartition, node_id: int, now_ms: int) -> None:
        producer_id, epoch, sequence, count = _IDENTITY.unpack_from(data.records, _IDENTITY_OFFSET)
        if producer_id < 0:
            return
        digest = hashlib.blake2b(data.records, digest_size=8).digest()
        identity = (producer_id, epoch, data.topic, data.partition, data.topic_id, sequence, count)
        before = self.sent_batches.get(identity)
        if before is None:
            self.sent_batches[identity] = SentBatch(digest, 1, now_ms, node_id)
            return
        self.resent += 1
        where = f"{data.topic}-{data.partition}, sequence {sequence}"
        if before.digest != digest:
            raise Violation(f"other bytes under the same number: {where}")
        if before.attempts > self._config.retries:
            raise Violation(f"sent again after {before.attempts} attempts: {where}")
        # The backoff has 20 % of jitter. A new leader is asked at once (KIP-951).
        if node_id == before.node_id and now_ms - before.sent_ms < int(0.8 * self._config.retry_backoff_ms):
            raise Violation(f"sent again after {now_ms - before.sent_ms} ms: {where}")
        before.attempts += 1
        before.sent_ms, before.node_id = now_ms, node_id


class TurnTakingLock:
    """A lock that nobody else ever holds. `others[role]` is what may run when the thread of `role` releases it."""

    def __init__(self, rng: random.Random, rate: float) -> None:
        self.others: dict[str, Callable[[], None]] = {}
        self.turns = 0
        self._rng = rng
        self._rate = rate
        self._running: list[str] = []
        self._depth = 0

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *raised: object) -> None:
        self._depth -= 1
        if self._depth or len(self._running) != 1 or self._rng.random() >= self._rate:
            return
        other = self.others.get(self._running[0])
        if other is not None:
            self.turns += 1
            other()

    @contextmanager
    def running(self, role: str) -> Iterator[None]:
        self._running.append(role)
        try:
            yield
        finally:
            self._running.pop()


class SimulatedProducer:
    def __init__(
        self, name: str, config: ProducerConfig, *, scheduler: Timeline, network: Network, rng: random.Random,
        notify: Callable[[], None], turn_rate: float, first_sequence: int,
    ) -> None:  # fmt: skip
        """`notify` is called where the client wakes up writers that wait. `first_sequence`: a leader that knows nothing
        of a producer takes any, so the wrap need not be 2^31 records away."""
        self.name = name
        self.config = config
        self.changes = 0
        self.waits_for_room = 0
        # Its thread does nothing before this: a collection of garbage, a machine that is busy.
        self.paused_until_ms = 0
        self.used_at_ms = 0
        self._scheduler = scheduler
        self._notify_writer = notify
        self._closing: KafkaSinkError | None = None
        self.ended = False
        self._timer: Timer | None = None
        self._wait_ms = 0
        # When it last waited, and the batches that there had been by then.
        self._waited_at = (-1, 0)
        self._idle_turns = 0
        self.lock = TurnTakingLock(rng, turn_rate)
        self.lock.others["writer"] = self._turn_in_between
        self.transport = SimulatedTransport(network, name, lambda: self._plan(0))
        self.network = WatchedNetworkClient(
            self.transport, clock_ms=scheduler.clock_ms, rng=rng,
            settings=replace(network_settings(config), client_software_version=SOFTWARE_VERSION),
            resolve=network.resolve, config=config,
        )  # fmt: skip
        self.sender = Sender(config, network=self.network, lock=self.lock, rng=rng)
        self.accumulator, self.metadata = self.sender.accumulator, self.sender.metadata
        self.pool = WatchedPool(total_bytes=config.buffer_memory, buffer_bytes=config.batch_size)
        self.accumulator.pool = self.pool
        self.sender.sequences = Sequences(idempotent=config.enable_idempotence, first_sequence=first_sequence)
        self._plan(0)

    @property
    def usable(self) -> bool:
        return self.sender.failure is None and self._closing is None

    def wakeup(self) -> None:
        self.network.wakeup()

    def waiting_clock_ms(self) -> int:
        return self._scheduler.now_ms - self.throttled_ms()

    def throttled_ms(self) -> int:
        return self.network.throttled_ms(self._scheduler.now_ms)

    def close(self) -> None:
        self._closing = ProducerClosed(reason="its write ended before every row was acknowledged")
        self._plan(0)

    def rest(self) -> None:
        with self.lock:
            self.metadata.want_nothing()
        self.used_at_ms = self._scheduler.now_ms

    def pool_state(self) -> PoolState:
        return PoolState(
            producer=self.name, total_bytes=self.pool.total_bytes, available_bytes=self.pool.available_bytes,
            out_bytes=self.pool.out_bytes, peak_bytes=self.pool.peak_bytes, in_flight=self.network.has_in_flight,
        )  # fmt: skip

    def _plan(self, delay_ms: int) -> None:
        if self.ended:
            return
        at_ms = max(self._scheduler.now_ms + delay_ms, self.paused_until_ms)
        if self._timer is not None:
            if not self._timer.cancelled and self._timer.at_ms <= at_ms:
                return
            self._timer.cancel()
        self._timer = self._scheduler.at(at_ms, self._run)

    def _turn_in_between(self) -> None:
        if self._scheduler.now_ms >= self.paused_until_ms:
            self._run()

    def _run(self) -> None:
        """From where the last poll waits to where the next one does."""
        if self.ended:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with self.lock.running("sender"):
            self._poll()
            while self._closing is None and self.sender.failure is None:
                self._wait_ms = self.sender.run_once(self._scheduler.now_ms)
                if not self._poll():
                    self._wait()
                    return
            self._end()

    def _poll(self) -> bool:
        answers = self.network.poll(self._wait_ms)
        if self.network.failure is not None:
            self.sender.fail(self.network.failure)
        if answers or self.sender.failure is not None:
            self.sender.handle(answers, self._scheduler.now_ms)
            self._notify()
        return bool(answers) or self.transport.told_something

    def _wait(self) -> None:
        waits_at = (self._scheduler.now_ms, self.pool.allocations)
        self._idle_turns = self._idle_turns + 1 if self._waited_at == waits_at else 0
        self._waited_at = waits_at
        if self._idle_turns > MAX_IDLE_TURNS:
            raise Violation(f"the sender thread of {self.name} spins: {self._idle_turns} turns in one millisecond")
        self._plan(self.transport.asked_wait_ms)

    def _end(self) -> None:
        self.ended = True
        self.sender.fail(self._closing or ProducerClosed(reason="its sender thread ended"))
        self._notify()
        self.sender.handle(self.network.close(), self._scheduler.now_ms)

    def _notify(self) -> None:
        with self.lock:
            self.changes += 1
            self._notify_writer()


Waits = Generator[int | None, None, None]


class VirtualWrite:
    """`write.Write`, with generators where it waits."""

    def __init__(
        self, producer: SimulatedProducer, scheduler: Timeline, rng: random.Random, outcome: WriteOutcome
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
        except errors.PartitionOutOfRange as out_of_range:
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
                raise errors.TopicRecreated(topic=name, old_topic_id=str(first_id), new_topic_id=str(state.topic_id))

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
            return errors.TopicNotFound(topic=missing[0], waited_ms=self._config.max_block_ms)
        return errors.BrokersUnreachable(
            bootstrap_servers=self._config.bootstrap_servers_text,
            waited_ms=self._config.max_block_ms,
            last_error=self._producer.network.last_error,
        )

    def _check_sizes(self, rows: RoutedRows) -> None:
        largest = rows.largest()
        if largest is not None and largest[1] > self._config.max_request_size:
            raise errors.RecordTooLarge(
                topic=largest[0].topic, size_bytes=largest[1], max_bytes=self._config.max_request_size,
                limit="kafka.max.request.size",
            )  # fmt: skip

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
                raise errors.BufferExhausted(
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


def _raise_hopeless(missing: Sequence[str], codes: Mapping[str, int]) -> None:
    for name in missing:
        if codes.get(name) == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise errors.TopicAuthorizationFailed(topic=name)
        if codes.get(name) == ErrorCode.INVALID_TOPIC_EXCEPTION:
            raise errors.TopicNameInvalid(topic=name)


class VirtualTask:
    """Runs the generator of a writer's whole life; `notified` is what the producer calls."""

    def __init__(self, scheduler: Timeline, life: Callable[[VirtualTask], Waits]) -> None:
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

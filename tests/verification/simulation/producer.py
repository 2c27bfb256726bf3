"""A producer in virtual time: the shipped code, wired as `kafka_sink.kafka.client.Producer` wires it.

Each thread of the client is a process here: `run_once`, `poll`, `handle`, and then a planned event instead of a wait.
The shipped code is unchanged, but watched:

* the pool remembers which buffers are out, and overwrites returned buffers: code that still reads one reads nonsense;
* each request to the NetworkClient is checked: all go to one cluster, a retried batch has the same bytes and comes
  after the backoff and not too often, requests keep to `max.request.size` and to throttles, and no connection has more
  of them in flight than `max.in.flight.requests.per.connection`;
* the lock is never contended, but threads take turns when it is released: sometimes the other one goes on.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from kafka_sink.errors import KafkaSinkError, ProducerClosed
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.connections import network_settings
from kafka_sink.kafka.metrics import Metrics
from kafka_sink.kafka.net.network_client import NetworkClient
from kafka_sink.kafka.producer.buffer_pool import OUTSIDE, Buffer, BufferPool
from kafka_sink.kafka.producer.core import wire
from kafka_sink.kafka.producer.sequences import Sequences
from kafka_sink.kafka.protocol.apis.produce import ProducePartition, ProduceRequest
from kafka_sink.kafka.protocol.requests import Request
from simulation.network import Network
from simulation.outcome import PoolState
from simulation.scheduler import Scheduler, Timer

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


class WatchedNetworkClient(NetworkClient):
    """Looks at each request as it is handed over. `sent_batches` by producer id, epoch, topic, partition, base
    sequence and count."""

    def __init__(self, *args: Any, config: ProducerConfig, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._config = config
        self.sent_batches: dict[tuple[Any, ...], SentBatch] = {}
        self.resent = 0

    def send(self, node_id: int, request: Request, now_ms: int, *args: Any, **kwargs: Any) -> None:
        if self.delay_ms(node_id, now_ms):
            raise Violation(f"a request to broker {node_id}, which throttles for {self.delay_ms(node_id, now_ms)} ms")
        connection = self._nodes[node_id].connection
        if connection is not None and connection.cluster_id != self.cluster_id:
            raise Violation(f"a request to broker {node_id}, which belongs to another cluster: {connection.cluster_id}")
        if isinstance(request, ProduceRequest):
            self._check_size(request)
            for data in request.partitions:
                self._look_at(data, now_ms)
        super().send(node_id, request, now_ms, *args, **kwargs)
        if self.in_flight_count(node_id) > self._config.max_in_flight_requests_per_connection:
            raise Violation(f"{self.in_flight_count(node_id)} requests in flight to broker {node_id}")

    def _check_size(self, request: ProduceRequest) -> None:
        size_bytes = sum(len(data.records) for data in request.partitions)
        if len(request.partitions) > 1 and size_bytes > self._config.max_request_size:
            raise Violation(f"{size_bytes} bytes of record batches in one request")

    def _look_at(self, data: ProducePartition, now_ms: int) -> None:
        producer_id, epoch, sequence, count = _IDENTITY.unpack_from(data.records, _IDENTITY_OFFSET)
        if producer_id < 0:
            return
        digest = hashlib.blake2b(data.records, digest_size=8).digest()
        identity = (producer_id, epoch, data.topic, data.partition, data.topic_id, sequence, count)
        before = self.sent_batches.get(identity)
        if before is None:
            self.sent_batches[identity] = SentBatch(digest, 1, now_ms)
            return
        self.resent += 1
        where = f"{data.topic}-{data.partition}, sequence {sequence}"
        if before.digest != digest:
            raise Violation(f"other bytes under the same number: {where}")
        if before.attempts > self._config.retries:
            raise Violation(f"sent again after {before.attempts} attempts: {where}")
        # The backoff has 20 % of jitter.
        if now_ms - before.sent_ms < int(0.8 * self._config.retry_backoff_ms):
            raise Violation(f"sent again after {now_ms - before.sent_ms} ms: {where}")
        before.attempts += 1
        before.sent_ms = now_ms


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
        self, name: str, config: ProducerConfig, *, scheduler: Scheduler, network: Network, rng: random.Random,
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
        self.transport = network.transport(name, self._wake_up)
        self.metrics = Metrics()
        self.network = WatchedNetworkClient(
            self.transport, clock_ms=scheduler.clock_ms, rng=rng, metrics=self.metrics,
            settings=replace(network_settings(config), client_software_version=SOFTWARE_VERSION),
            resolve=network.resolve, config=config,
        )  # fmt: skip
        core = wire(config, network=self.network, lock=self.lock, metrics=self.metrics, rng=rng)
        self.accumulator, self.metadata, self.sender = core.accumulator, core.metadata, core.sender
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

    def _wake_up(self) -> None:
        self._plan(0)

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

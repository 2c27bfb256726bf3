"""The shell around the producer: the Sender thread, the lock and the waits.

    with lease_producer(config) as producer:        # a kept one, or a new one
        write = Write(producer, topic="orders")     # `write.py`
        for arrow_batch in batches:
            write.append(arrow_batch)               # routes, encodes, waits for metadata or memory if needed
        offsets = write.finish()                    # returns when every row is acknowledged, or raises

Spark reuses a worker process for the next task. So a worker keeps its producers (`spark/kept_clients.py`), with what is
expensive to create: connections, metadata, producer id, buffers. A producer serves one write at a time. A failed
producer is not reused. A producer is also not reused if its cluster may have been replaced or restored, because another
producer may have the same producer id there.
"""

from __future__ import annotations

import logging
import random
import threading
import uuid
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from kafka_sink.errors import (
    BrokersUnreachable,
    BufferExhausted,
    KafkaSinkError,
    ProducerClosed,
    TopicAuthorizationFailed,
    TopicNameInvalid,
    TopicNotFound,
)
from kafka_sink.errors.exhaustion import exhausted
from kafka_sink.kafka.admin.driver import Guest
from kafka_sink.kafka.clock import monotonic_ms, wall_clock_ms
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.connections import connect
from kafka_sink.kafka.metadata import MetadataSnapshot, TopicSnapshot
from kafka_sink.kafka.producer.acknowledgements import Acknowledgements
from kafka_sink.kafka.producer.checks import Probe, TopicCheck
from kafka_sink.kafka.producer.router import RoutedRows
from kafka_sink.kafka.producer.sender import Sender
from kafka_sink.kafka.producer.throttling import Throttled
from kafka_sink.kafka.producer.transaction_manager import Transaction
from kafka_sink.kafka.protocol.api import ClientResponse
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.waits import Outage, limit_text, time_of_day, without_throttles
from kafka_sink.records.compression import Codec
from kafka_sink.records.kernel import KERNEL, warn_of_loss

if TYPE_CHECKING:
    from kafka_sink.kafka.admin.client import AdminClient

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 5.0
# 1/16 of 64 MiB, which ends the wait early, is freed in this time at 80 MB/s.
GATHER_MS = 50
# A cluster cannot be stopped, restored and written to by others in less time. After a longer rest, a producer checks
# its connections, and waits at most this long for the answer.
RESTED_MS = 1_000
# After a longer rest, a producer releases its memory.
IDLE_MEMORY_MS = 10_000
# How often a waiting writer checks if a throttling broker has room again.
LOOK_AGAIN_S = 0.5
# How often the Sender thread looks if its brokers are away.
OUTAGE_LOOK_MS = 500


class Producer:
    """A producer with its own connections, memory and producer id, and a running Sender thread."""

    def __init__(self, config: ProducerConfig, cluster_id: str | None = None) -> None:
        """`cluster_id`: the only cluster to write to; None for any cluster."""
        self.config = config
        self.used_at_ms = monotonic_ms()
        # Guards all shared state. Notified whenever the Sender thread has processed responses.
        self._changed = threading.Condition()
        self._changes = 0
        self._closing: KafkaSinkError | None = None
        rng = random.Random()
        self.outage = Outage(asks_alone=False)
        self._outage_due_ms = 0
        self._network = connect(config, rng=rng, cluster_id=cluster_id)
        self._guest = Guest(self._network, monotonic_ms)
        try:
            self._sender = Sender(config, network=self._network, lock=self._changed, rng=rng)
            self._accumulator, self._metadata = self._sender.accumulator, self._sender.metadata
            # Between writes the memory may be released.
            self._is_writing = False
            self._thread = threading.Thread(target=self._run, name=f"pykafka-sender-{config.client_id}", daemon=True)
            self._thread.start()
        except BaseException:
            # No Sender thread runs that would close it.
            self._network.close()
            raise

    @property
    def usable(self) -> bool:
        """True if another write may begin: nothing has failed and the Sender thread runs (no thread survives a
        fork)."""
        return self._sender.failure is None and self._closing is None and self._thread.is_alive()

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster, or None while unknown."""
        return self._network.cluster_id

    @cached_property
    def admin(self) -> AdminClient:
        """A client for other requests, over the connections of this producer. For the thread that uses the producer.
        It ends with the producer. Each of its methods may also raise the error that ended the producer."""
        from kafka_sink.kafka.admin.client import AdminClient

        return AdminClient(self.config, driver=self._guest)

    def may_go_on(self, cluster_id: str | None = None) -> bool:
        """Return True if another write may begin in the same cluster as the last write.

        The producer must have been connected all the time. After a rest, a broker must answer over an existing
        connection. If `cluster_id` is given, the cluster must have this id.
        """
        network, connects = self._network, self._network.connects
        has_rested = monotonic_ms() - self.used_at_ms > RESTED_MS
        if self.usable and connects and not network.interruptions and has_rested and not self._probe():
            return False
        was_connected = not network.interruptions and network.connects == connects
        return self.usable and was_connected and cluster_id in (None, self.cluster_id)

    def _probe(self) -> bool:
        probe = Probe()
        with self._changed:
            self._sender.probe = probe
            self._network.wakeup()
            self._changed.wait_for(lambda: probe.is_settled or not self.usable, RESTED_MS / 1000)
            self._sender.probe = None
            return probe.is_answered

    def begin(self, transaction: Transaction | None = None) -> None:
        """Begin a write. `transaction`: contains all its rows. The caller has begun it and will end it."""
        warn_of_loss(KERNEL)
        self._is_writing = True
        with self._changed:
            self._sender.begin_write(monotonic_ms(), transaction)

    def close(self) -> None:
        """End the thread and the connections, and free the memory. Unacknowledged rows fail with ProducerClosed."""
        self._closing = ProducerClosed(reason="its write ended before every row was acknowledged")
        self._network.wakeup()
        self._thread.join(CLOSE_TIMEOUT_S)

    # --- the Sender thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._closing is None and self._sender.failure is None:
                self._turn()
        except Exception as defect:
            # Waiting writers must get this error.
            named = exhausted(defect)
            self._closing = named or ProducerClosed(reason=f"its sender thread failed: {defect!r}")
            if named is None:
                # A bug in this project: the thread's excepthook prints the traceback to stderr.
                raise
        finally:
            try:
                self._sender.fail(self._closing or ProducerClosed(reason="its sender thread ended"))
            finally:
                # Also if there is no memory for more.
                self._guest.end(self._sender.failure or self._closing)
                self._notify()
                # Closing the connections returns the batches in flight and their memory.
                self._take(self._network.close())

    def _turn(self) -> None:
        if not self._is_writing and monotonic_ms() - self.used_at_ms > IDLE_MEMORY_MS:
            self._accumulator.give_back_memory()
        # The guest first: it has few requests, and a node takes a few at a time.
        wait_ms = min(self._guest.run_once(monotonic_ms()), self._sender.run_once(monotonic_ms()))
        # Not kept for the next turn's wait: a response refers to its request, and so to the buffers that were sent.
        answers = self._network.poll(wait_ms)
        if self._network.failure is not None:
            self._sender.fail(self._network.failure)
        self._look_for_outage(monotonic_ms())
        if answers or self._sender.failure is not None:
            self._take(answers)
            self._notify()
        if (throttled := self._sender.throttling_report(monotonic_ms())) is not None:
            _log_throttling(throttled, self.config)

    def _look_for_outage(self, now_ms: int) -> None:
        """Fail a write that no broker has ever answered, once waiting is hopeless. Log a wait that lasts."""
        if now_ms < self._outage_due_ms or not (self._is_writing or self._guest.is_asked):
            return
        self._outage_due_ms = now_ms + OUTAGE_LOOK_MS
        contact = self._network.contact(now_ms)
        first = self.outage.first_wait(contact, now_ms)
        if first is not None and first.left_ms <= 0:
            self._sender.fail(self._unreachable(first.waited_ms, is_first=True))
        elif contact.away_since_ms is not None and self.outage.is_log_due(now_ms - contact.away_since_ms, now_ms):
            limit = "kafka.max.block.ms", self.config.max_block_ms
            left_ms = self._sender.delivery_left_ms(now_ms)
            if left_ms is None:
                left_ms = max(0, contact.away_since_ms + self.config.max_block_ms - now_ms)
            else:
                limit = "kafka.delivery.timeout.ms", self.config.delivery_timeout_ms
            if first is not None:
                left_ms = min(left_ms, first.left_ms)
            log.warning(
                "no broker of %s answers for %.0f s, last: %s. The write waits until %s (%s), then its task fails.",
                self.config.bootstrap_servers_text,
                (now_ms - contact.away_since_ms) / 1_000,
                self._network.last_error or "no answer",
                time_of_day(wall_clock_ms() + left_ms),
                limit_text(first, *limit),
            )

    def _take(self, answers: list[ClientResponse]) -> None:
        now_ms = monotonic_ms()
        self._sender.handle(self._guest.take(answers, now_ms), now_ms)

    def _notify(self) -> None:
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    # --- waiting, on the writer's thread ------------------------------------------------------------------------------

    def waiting_clock_ms(self) -> int:
        """Return the clock for `max.block.ms`: monotonic, and slower while a broker throttles, because a throttle is an
        answer."""
        now_ms = monotonic_ms()
        return without_throttles(now_ms, self._network.throttled_ms(now_ms))

    def throttled_ms(self) -> int:
        """Return how long (ms) brokers have throttled this producer, in all its writes."""
        return self._network.throttled_ms(monotonic_ms())

    def await_topics(
        self, names: frozenset[str], seen_before: Collection[str], started_ms: int, *, ask_again: bool = False
    ) -> Mapping[str, TopicSnapshot]:
        """Return the current snapshot of each topic. Request it if necessary, and wait at most `max.block.ms`.

        `started_ms`: a time of `waiting_clock_ms`, from which the wait is measured. The wait is shorter for a topic
        that does not exist according to the cluster (`Metadata.patience_ends_ms`).

        A topic is requested if it is unknown. A topic that is not in `seen_before` is also requested if its metadata is
        older than `metadata.max.age.ms` or the cluster has denied it since. With `ask_again`, every topic is requested.
        All other topics in use are refreshed without waiting.

        Raises BrokersUnreachable, TopicNotFound, TopicAuthorizationFailed, TopicNameInvalid, or the error that ended
        the producer.
        """
        with self._changed:
            # A topic that was idle for a long time is unknown again.
            known = self._metadata.snapshot.topics
            new = [name for name in sorted(names) if name not in seen_before or name not in known]
            needed_answer = self._metadata.want(names, monotonic_ms())
            if not new:
                needed_answer = 0
            if ask_again:
                needed_answer = self._metadata.request_update()
            while True:
                snapshot = self._metadata.snapshot
                answered = self._metadata.answered >= needed_answer
                missing = [name for name in new if name not in snapshot.topics or name in snapshot.errors]
                if answered and not missing:
                    return {name: snapshot.topics[name] for name in names}
                self._raise_failure()
                if answered:
                    _raise_hopeless(missing, snapshot)
                remaining_ms = started_ms + self.config.max_block_ms - self.waiting_clock_ms()
                if answered and (patience_ends_ms := self._metadata.patience_ends_ms(missing)) is not None:
                    remaining_ms = min(remaining_ms, patience_ends_ms - monotonic_ms())
                if remaining_ms <= 0:
                    raise self._not_known_in_time(missing if answered else [], started_ms)
                self._network.wakeup()
                self._changed.wait(remaining_ms / 1000)

    def _not_known_in_time(self, missing: Sequence[str], started_ms: int) -> KafkaSinkError:
        """`missing`: the topics that do not exist according to the cluster; empty if the cluster did not answer."""
        if missing:
            return TopicNotFound(topic=missing[0], waited_ms=self.waiting_clock_ms() - started_ms)
        return self._unreachable(self.config.max_block_ms)

    def _unreachable(self, waited_ms: int, *, is_first: bool = False) -> BrokersUnreachable:
        return BrokersUnreachable(
            bootstrap_servers=self.config.bootstrap_servers_text,
            waited_ms=waited_ms,
            last_error=self._network.last_error,
            is_first=is_first,
        )

    def place(self, rows: RoutedRows, acknowledgements: Acknowledgements, codec: Codec, started_ms: int) -> None:
        """Put all rows into batches. First wait, without limit, for throttling brokers. Then wait for memory.

        The wait for memory ends `max.block.ms` after the last progress: `started_ms` (a time of `waiting_clock_ms`), a
        row placed, or more free memory than before. So a slow broker does not fail the write.

        Raises BufferExhausted, or the error that ended the producer.
        """
        if self._await_room():
            started_ms = self.waiting_clock_ms()
        blocked_since_ms, most_available = started_ms, self._accumulator.pool.available_bytes
        while True:
            seen = self._changes
            left_before = rows.unplaced_count()
            placed_all = self._accumulator.try_append(rows, acknowledgements, codec, monotonic_ms())
            if self._accumulator.take_wakeup():
                self._network.wakeup()
            if placed_all:
                return
            now_ms, available = self.waiting_clock_ms(), self._accumulator.pool.available_bytes
            placed_some = rows.unplaced_count() < left_before
            if placed_some or available > most_available:
                blocked_since_ms, most_available = now_ms, available
            remaining_ms = blocked_since_ms + self.config.max_block_ms - now_ms
            if remaining_ms <= 0:
                raise BufferExhausted(
                    needed_bytes=rows.needed_bytes(self._accumulator.pool.buffer_bytes),
                    buffer_memory=self.config.buffer_memory,
                    waited_ms=self.config.max_block_ms,
                )
            self._await_memory(seen, remaining_ms)

    def _await_room(self) -> bool:
        """Wait while throttling brokers have enough bytes waiting: rows that wait in Spark cannot expire. Return True
        if it waited.

        Meanwhile queued batches are sent without lingering. Raises the error that ended the producer.
        """
        with self._changed:
            if self._sender.has_room(monotonic_ms()):
                return False
            self._accumulator.begin_flush()
            self._network.wakeup()
            try:
                while not self._sender.has_room(monotonic_ms()):
                    self._raise_failure()
                    self._changed.wait(LOOK_AGAIN_S)
            finally:
                self._accumulator.end_flush()
        return True

    def _await_memory(self, seen: int, timeout_ms: int) -> None:
        """Wait for new responses since `seen` was read, and then up to GATHER_MS while the pool is short of memory. The
        second wait forms larger groups of rows: placing one batch at a time takes 10 % more CPU."""
        pool = self._accumulator.pool
        with self._changed:
            self._changed.wait_for(lambda: self._changes != seen, timeout_ms / 1000)
            self._changed.wait_for(lambda: not pool.exhausted, min(GATHER_MS, timeout_ms) / 1000)

    def pause(self, until_ms: int) -> None:
        """Wait until `until_ms`, to limit the rate of a write. Raises the error that ends the producer meanwhile."""
        with self._changed:
            while (remaining_ms := until_ms - monotonic_ms()) > 0:
                self._raise_failure()
                self._changed.wait(remaining_ms / 1000)

    def flush(self, acknowledgements: Acknowledgements) -> None:
        """Send everything now and wait for the results. Each batch's `delivery.timeout.ms` limits the wait."""
        with self._changed:
            self._accumulator.begin_flush()
            self._network.wakeup()
            try:
                self._changed.wait_for(lambda: acknowledgements.settled or not self.usable)
            finally:
                self._accumulator.end_flush()
            if acknowledgements.failure is not None:
                raise acknowledgements.failure
            if not acknowledgements.settled:
                raise self._sender.failure or self._closing or ProducerClosed(reason="its sender thread is gone")

    def check_topics(self, topic_ids: Mapping[str, uuid.UUID | None], acknowledgements: Acknowledgements) -> None:
        """Ask the brokers that took rows by topic name for the topics' ids, and compare with `topic_ids`. Wait at most
        `max.block.ms`.

        Raises TopicRecreated, BrokersUnreachable, or the error that ended the producer.
        """
        if not acknowledgements.takers_by_name:
            return
        check, started_ms = TopicCheck(topic_ids, acknowledgements.takers_by_name), self.waiting_clock_ms()
        with self._changed:
            self._sender.topic_check = check
            self._network.wakeup()
            deadline_ms = self.waiting_clock_ms() + self.config.max_block_ms
            while not check.settled and self.usable and (left_ms := deadline_ms - self.waiting_clock_ms()) > 0:
                self._changed.wait(left_ms / 1000)
            self._sender.topic_check = None
            if check.recreated is not None:
                raise check.recreated
            self._raise_failure()
            if not check.settled:
                raise self._not_known_in_time([], started_ms)

    def rest(self) -> None:
        """End the write. Until the next write the producer requests nothing from the cluster."""
        with self._changed:
            self._metadata.want_nothing()
            self._sender.end_write()
        self.used_at_ms = monotonic_ms()
        self._is_writing = False

    def _raise_failure(self) -> None:
        if self._sender.failure is not None:
            raise self._sender.failure


def _raise_hopeless(missing: Sequence[str], snapshot: MetadataSnapshot) -> None:
    """Raise an error about a topic that waiting does not fix."""
    for name in missing:
        code = snapshot.errors.get(name)
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise TopicAuthorizationFailed(topic=name)
        if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
            raise TopicNameInvalid(topic=name)


def _log_throttling(throttled: Throttled, config: ProducerConfig) -> None:
    rate = "" if throttled.bytes_per_s is None else f" They take {throttled.bytes_per_s:,.0f} bytes/s."
    log.warning(
        "brokers throttle this task by a quota of its user or of client id %r, for %.0f s so far.%s The task holds %s "
        "bytes for them, which need at least %.0f s more. No row is lost: the task waits as long as needed, and this "
        "time does not count for delivery.timeout.ms. For a higher rate, raise the quota (producer_byte_rate, "
        "request_percentage).",
        config.client_id,
        throttled.throttled_ms / 1_000,
        rate,
        f"{throttled.waiting_bytes:,}",
        throttled.rest_ms / 1_000,
    )

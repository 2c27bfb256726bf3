"""The shell around the producer: the Sender thread, the lock, the waiting, and the producers a worker keeps.

    with lease(config) as producer:             # a kept one, or a new one
        write = producer.begin(topic="orders")
        for arrow_batch in batches:
            write.append(arrow_batch)           # routes, encodes, waits for metadata or memory if it must
        receipts = write.finish()               # returns when the leaders have acknowledged every row, or raises

Spark runs one worker process per running task and uses it again for the next, so what is expensive to make
(connections, metadata, producer id, buffers) outlives a task here, in a module that workers import. A producer serves
one write at a time; one that failed is not used again.
"""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_sink.config import VERSION, ProducerConfig
from kafka_sink.doctor.first_aid import look_at_hosts
from kafka_sink.errors import (
    BadRow,
    BrokersUnreachable,
    BufferExhausted,
    DeadLetterTopicNamed,
    KafkaSinkError,
    PartitionOutOfRange,
    ProducerClosed,
    RecordTooLarge,
    TopicAuthorizationFailed,
    TopicNameInvalid,
    TopicNotFound,
    TopicRecreated,
)
from kafka_sink.metrics import Figures, Metrics
from kafka_sink.net.network_client import NetworkClient, NetworkSettings
from kafka_sink.net.selector import Selector
from kafka_sink.producer.bad_row_tally import BadRowPolicy, BadRowReceipt, BadRowTally
from kafka_sink.producer.core import codec_of, wire
from kafka_sink.producer.judgement import SizeLimits
from kafka_sink.producer.metadata import MetadataSnapshot, TopicSnapshot
from kafka_sink.producer.receipts import PartitionReceipt, Receipts
from kafka_sink.producer.routed_rows import RoutedRows
from kafka_sink.producer.router import Router, RowTopics
from kafka_sink.producer.runs import PackedRuns, Runs
from kafka_sink.producer.topic_check import TopicCheck
from kafka_sink.producer.transaction_manager import Transaction
from kafka_sink.protocol.error_codes import ErrorCode
from kafka_sink.records.bad_rows import GOOD, Reason, Reasons, columns_for_fingerprint, judge_values, plain
from kafka_sink.records.columns import RecordColumns, plain_bytes
from kafka_sink.records.compression import Codec
from kafka_sink.records.dead_letters import BadRows, LeftOut, Origin, dead_letters
from kafka_sink.records.fingerprint import Fingerprint
from kafka_sink.security import authenticator, tls_context

Int64s = npt.NDArray[np.int64]

# An Arrow batch is routed and encoded in slices of about this many bytes: the copy that encoding makes stays in the
# processor's cache and out of the memory bound, while a slice still fills several batches.
SLICE_BYTES = 4 * 1024 * 1024
CLOSE_TIMEOUT_S = 5.0


def monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def _timed(count: Callable[[int], None]) -> Iterator[None]:
    """Tells `count` how many nanoseconds the block took."""
    started_ns = time.monotonic_ns()
    try:
        yield
    finally:
        count(time.monotonic_ns() - started_ns)


class Producer:
    """A producer of its own connections, memory and producer id, with its Sender thread running. `metrics` counts all
    it does; a write has the figures of its own time."""

    def __init__(self, config: ProducerConfig) -> None:
        self.config = config
        self.used_at_ms = monotonic_ms()
        # The lock of all shared state; notified whenever the Sender thread has handled answers.
        self._changed = threading.Condition()
        self._changes = 0
        self._closing: KafkaSinkError | None = None
        rng = random.Random()
        self.metrics = Metrics()
        self._network = NetworkClient(
            Selector(
                metrics=self.metrics,
                send_buffer_bytes=config.send_buffer_bytes,
                receive_buffer_bytes=config.receive_buffer_bytes,
                tls=tls_context(config.security),
            ),
            clock_ms=monotonic_ms,
            rng=rng,
            settings=network_settings(config),
            metrics=self.metrics,
            authenticate=authenticator(config.security),
        )
        core = wire(config, network=self._network, lock=self._changed, metrics=self.metrics, rng=rng)
        self._accumulator, self._metadata, self._sender = core.accumulator, core.metadata, core.sender
        self._in_transaction = False
        self._thread = threading.Thread(target=self._run, name=f"pykafka-sender-{config.client_id}", daemon=True)
        self._thread.start()

    @property
    def usable(self) -> bool:
        """Whether another write may begin: nothing failed, and the thread lives (it does not survive a fork)."""
        return self._sender.failure is None and self._closing is None and self._thread.is_alive()

    def begin(
        self,
        *,
        topic: str | None,
        partitioner: str = "murmur2",
        transaction: Transaction | None = None,
        fingerprint: Fingerprint | None = None,
        bad_rows: BadRowPolicy | None = None,
    ) -> Write:
        """A write of rows to `topic`, or, when None, to the topic that each row names. `partitioner`: the option.
        `transaction`: the one all of its rows are in; the caller has opened it, and will end it. `fingerprint` takes
        all of its rows in. `bad_rows`: what becomes of those that cannot be written; None: the first one ends the
        write."""
        if transaction is not None:
            with self._changed:
                self._sender.begin_transaction(transaction)
            self._in_transaction = True
        return Write(self, topic=topic, partitioner=partitioner, fingerprint=fingerprint, bad_rows=bad_rows)

    def close(self) -> None:
        """Ends the thread, the connections and the memory; what was not acknowledged fails with ProducerClosed."""
        self._closing = ProducerClosed(reason="its write ended before every row was acknowledged")
        self._network.wakeup()
        self._thread.join(CLOSE_TIMEOUT_S)

    # --- the Sender thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while self._closing is None and self._sender.failure is None:
                self._turn()
        except Exception as defect:
            # A bug of ours. Whoever waits must learn of it; the traceback goes to stderr by the thread's excepthook.
            self._closing = ProducerClosed(reason=f"its sender thread failed: {defect!r}")
            raise
        finally:
            self._sender.fail(self._closing or ProducerClosed(reason="its sender thread ended"))
            self._notify()
            # What was on the wire comes back with its connections closed, and its memory with it.
            self._sender.handle(self._network.close(), monotonic_ms())

    def _turn(self) -> None:
        wait_ms = self._sender.run_once(monotonic_ms())
        # Not kept while waiting in the next turn: an answer holds its request, and so the buffers that were sent.
        answers = self._network.poll(wait_ms)
        if self._network.failure is not None:
            self._sender.fail(self._network.failure)
        if answers or self._sender.failure is not None:
            self._sender.handle(answers, monotonic_ms())
            self._notify()

    def _notify(self) -> None:
        with self._changed:
            self._changes += 1
            self._changed.notify_all()

    # --- waiting, on the writer's thread ------------------------------------------------------------------------------

    def await_topics(
        self, names: frozenset[str], seen_before: Collection[str], started_ms: int, *, ask_again: bool = False
    ) -> Mapping[str, TopicSnapshot]:
        """The current snapshot of each topic, waiting until `max.block.ms` after `started_ms` if that takes a request.

        It does for a topic that is not known, and for one that is not in `seen_before` when what is known is older than
        `metadata.max.age.ms` or the cluster has since denied it; with `ask_again`, for each of them. Topics in use are
        otherwise refreshed without waiting.

        Raises BrokersUnreachable, TopicNotFound, TopicAuthorizationFailed, TopicNameInvalid, or the error that ended
        the producer.
        """
        with self._changed:
            # One that was idle for long is not known any more.
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
                remaining_ms = started_ms + self.config.max_block_ms - monotonic_ms()
                if remaining_ms <= 0:
                    raise self._not_known_in_time(missing if answered else [])
                self._network.wakeup()
                with _timed(self.metrics.waited_for_metadata):
                    self._changed.wait(remaining_ms / 1000)

    def _not_known_in_time(self, missing: Sequence[str]) -> KafkaSinkError:
        """`missing`: the topics that the cluster said it does not have; empty if it said nothing."""
        if missing:
            return TopicNotFound(topic=missing[0], waited_ms=self.config.max_block_ms)
        return BrokersUnreachable(
            bootstrap_servers=self.config.bootstrap_servers_text,
            waited_ms=self.config.max_block_ms,
            last_error=self._network.last_error,
        )

    def place(self, rows: RoutedRows, receipts: Receipts, codec: Codec, started_ms: int) -> None:
        """Puts all rows into batches, waiting for memory until `max.block.ms` after `started_ms`, or after the last
        time that a row could be placed or more memory was free than before: a slow broker is not an absent one.

        Raises BufferExhausted, or the error that ended the producer.
        """
        blocked_since_ms, most_available = started_ms, self._accumulator.pool.available_bytes
        while True:
            seen = self._changes
            left_before = rows.unplaced_count()
            placed_all = self._accumulator.try_append(rows, receipts, codec, monotonic_ms())
            self._network.wakeup()
            if placed_all:
                return
            now_ms, available = monotonic_ms(), self._accumulator.pool.available_bytes
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
            self._await_change(seen, remaining_ms)

    def _await_change(self, seen: int, timeout_ms: int) -> None:
        """Until the Sender thread has handled answers since `seen` was read, so that none is missed in between."""
        with self._changed, _timed(self.metrics.waited_for_memory):
            self._changed.wait_for(lambda: self._changes != seen, timeout_ms / 1000)

    def flush(self, receipts: Receipts) -> None:
        """Sends everything now and waits until it is answered; each batch's `delivery.timeout.ms` bounds the wait."""
        with self._changed:
            self._accumulator.begin_flush()
            self._network.wakeup()
            try:
                with _timed(self.metrics.flushed):
                    self._changed.wait_for(lambda: receipts.settled or not self.usable)
            finally:
                self._accumulator.end_flush()
            if receipts.failure is not None:
                raise receipts.failure
            if not receipts.settled:
                raise self._sender.failure or ProducerClosed(reason="its sender thread is gone")

    def check_topics(self, topic_ids: Mapping[str, uuid.UUID | None], receipts: Receipts) -> None:
        """Asks the brokers that took rows by name whether `topic_ids` are what these were for, up to `max.block.ms`.

        Raises TopicRecreated, BrokersUnreachable, or the error that ended the producer.
        """
        if not receipts.takers_by_name:
            return
        check = TopicCheck(topic_ids, receipts.takers_by_name)
        with self._changed:
            self._sender.topic_check = check
            self._network.wakeup()
            self._changed.wait_for(lambda: check.settled or not self.usable, self.config.max_block_ms / 1000)
            self._sender.topic_check = None
            if check.recreated is not None:
                raise check.recreated
            self._raise_failure()
            if not check.settled:
                raise self._not_known_in_time([])

    def rest(self) -> None:
        """Its write is over; until the next one it asks the cluster for nothing."""
        with self._changed:
            self._metadata.want_nothing()
            if self._in_transaction:
                self._sender.end_transaction()
        self._in_transaction = False
        self.used_at_ms = monotonic_ms()

    def _raise_failure(self) -> None:
        if self._sender.failure is not None:
            raise self._sender.failure


class Write:
    """The rows of one task on their way through a producer."""

    def __init__(
        self,
        producer: Producer,
        *,
        topic: str | None,
        partitioner: str,
        fingerprint: Fingerprint | None,
        bad_rows: BadRowPolicy | None = None,
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._bad_rows = bad_rows
        self._tally = None if bad_rows is None else BadRowTally(bad_rows)
        self._limits = SizeLimits(
            producer.config.max_request_size, None if bad_rows is None else bad_rows.dead_letter_topic
        )
        self._fingerprint = fingerprint
        self._codec = codec_of(producer.config)
        self._router = Router(
            topic=topic, batch_bytes=producer.config.batch_size, rng=random.Random(), partitioner=partitioner
        )
        self._receipts = Receipts()
        # The id under which this write saw each topic first.
        self._topic_ids: dict[str, uuid.UUID | None] = {}
        self._may_ask_again = True
        self._began = producer.metrics.begin_task(monotonic_ms())
        self.record_count = 0

    def keep_runs(self) -> None:
        """From its first row on, which must come later, `runs` has where each record batch went."""
        self._receipts.runs = Runs()

    def append(self, arrow_batch: pa.RecordBatch) -> None:
        """Hands rows over for sending. Returns once they are copied out of `arrow_batch`, not when they are delivered.

        Raises BadRow, ClusterError, or the DeliveryError of an earlier row.
        """
        # Once an Arrow batch: rows that go on naming a partition which does not exist must not become a storm.
        self._may_ask_again = True
        rows_a_slice = max(1, SLICE_BYTES * arrow_batch.num_rows // max(1, plain_bytes(arrow_batch)))
        for start in range(0, arrow_batch.num_rows, rows_a_slice):
            self._append_slice(arrow_batch.slice(start, rows_a_slice))

    def _append_slice(self, arrow_batch: pa.RecordBatch) -> None:
        started_ms = monotonic_ms()
        try:
            columns = RecordColumns.from_arrow(arrow_batch, now_ms=wall_clock_ms())
            rows = self._route(columns, started_ms)
            self._check_sizes(rows, self._limits.least)
        except BadRow:
            if self._bad_rows is None:
                raise
            self._append_sorted(arrow_batch, self._bad_rows, started_ms)
            return
        self._producer.place(rows, self._receipts, self._codec, started_ms)
        if self._fingerprint is not None:
            self._fingerprint.update(columns)
        self.record_count += columns.num_rows

    def _route(self, columns: RecordColumns, started_ms: int) -> RoutedRows:
        topics = self._topics_of(columns)
        names = frozenset(topics.names)
        try:
            return self._router.route(columns, topics, self._resolve(names, started_ms))
        except PartitionOutOfRange as out_of_range:
            if out_of_range.partition < 0 or not self._may_ask_again:
                raise
        # The topic may have grown since the last answer.
        self._may_ask_again = False
        return self._router.route(columns, topics, self._resolve(names, started_ms, ask_again=True))

    def _topics_of(self, columns: RecordColumns) -> RowTopics:
        topics = self._router.topics_of(columns)
        if self._bad_rows is not None and self._bad_rows.dead_letter_topic in topics.names:
            raise DeadLetterTopicNamed(topic=self._bad_rows.dead_letter_topic or "")
        return topics

    def _resolve(
        self, names: frozenset[str], started_ms: int, *, ask_again: bool = False
    ) -> Mapping[str, TopicSnapshot]:
        policy = self._bad_rows
        if policy is not None and policy.dead_letter_topic is not None:
            # Also before there is a dead letter: that the topic is missing is to be known on the first day.
            names |= {policy.dead_letter_topic}
        states = self._producer.await_topics(names, self._topic_ids, started_ms, ask_again=ask_again)
        if policy is not None and (unknown := self._limits.unknown(names)):
            self._limits.learn(unknown, policy.max_message_bytes(unknown))
        for name, state in states.items():
            first_id = self._topic_ids.setdefault(name, state.topic_id)
            if first_id != state.topic_id:
                raise TopicRecreated(topic=name, old_topic_id=str(first_id), new_topic_id=str(state.topic_id))
        return states

    def _check_sizes(self, rows: RoutedRows, max_bytes: int) -> None:
        largest = rows.largest()
        if largest is None:
            return
        topic_partition, size_bytes = largest
        self._producer.metrics.largest_record(size_bytes)
        if size_bytes > max_bytes:
            raise RecordTooLarge(
                topic=topic_partition.topic,
                size_bytes=size_bytes,
                max_bytes=max_bytes,
                limit="kafka.max.request.size",
            )

    # --- bad rows -----------------------------------------------------------------------------------------------------

    def _append_sorted(self, arrow_batch: pa.RecordBatch, policy: BadRowPolicy, started_ms: int) -> None:
        """`_append_slice` where rows are bad, or may be: the others go on, these as the policy has it."""
        batch = plain(arrow_batch)
        reasons, sizes = self._judge(batch, started_ms)
        bad = np.flatnonzero(reasons)
        if bad.size and self._tally is not None:
            self._tally.add(reasons[bad], self.record_count + bad)
        self._place(batch.filter(pa.array(reasons == GOOD)), self._topics_of, started_ms)
        if bad.size and policy.dead_letter_topic is not None:
            rows = BadRows(batch.take(pa.array(bad)), reasons[bad], self.record_count + bad, sizes[bad])
            letters = self._fitting_letters(rows, policy.origin, policy.dead_letter_topic, started_ms)
            its_topic = RowTopics((policy.dead_letter_topic,), None)
            self._place(letters, lambda _: its_topic, started_ms)
        if self._fingerprint is not None:
            self._fingerprint.update(columns_for_fingerprint(arrow_batch, now_ms=wall_clock_ms()))
        self.record_count += arrow_batch.num_rows

    def _judge(self, batch: pa.RecordBatch, started_ms: int) -> tuple[Reasons, Int64s]:
        """uint8[n]: which rows of a `plain` batch are bad; int64[n]: the bytes of those that are too large.

        Raises ClusterError: a topic that is not known is the cluster's matter.
        """
        reasons = judge_values(batch, topic_option=self._topic is not None)
        sizes = np.zeros(batch.num_rows, np.int64)
        place = np.flatnonzero(reasons == GOOD)
        columns = RecordColumns.from_arrow(batch.take(pa.array(place)), now_ms=wall_clock_ms())
        topics = self._topics_of(columns)
        states = self._resolve(frozenset(topics.names), started_ms)
        outside = self._router.out_of_range(columns, topics, states)
        if self._may_ask_again and columns.partition is not None and (columns.partition[outside] >= 0).any():
            # As `_route` does.
            self._may_ask_again = False
            states = self._resolve(frozenset(topics.names), started_ms, ask_again=True)
            outside = self._router.out_of_range(columns, topics, states)
        too_large, sizes[place] = self._limits.too_large(columns, topics.names, topics.index, self._codec)
        reasons[place[too_large]] = Reason.RecordTooLarge
        reasons[place[outside]] = Reason.PartitionOutOfRange
        return reasons, sizes

    def _fitting_letters(self, bad: BadRows, origin: Origin, topic: str, started_ms: int) -> pa.RecordBatch:
        """The dead letters, without what makes them too large for `topic`. Raises RecordTooLarge where that does not
        take what they have to say."""
        self._resolve(frozenset(), started_ms)
        left_out = np.full(bad.rows.num_rows, LeftOut.NOTHING, np.uint8)
        for leave_out in (LeftOut.VALUE, LeftOut.ALL, None):
            letters = dead_letters(bad, origin, left_out)
            columns = RecordColumns.from_arrow(letters, now_ms=wall_clock_ms())
            too_large, sizes = self._limits.too_large(columns, (topic,), None, self._codec)
            if not too_large.any():
                break
            if leave_out is None:
                limit = "kafka.max.request.size or max.message.bytes of deadLetterTopic"
                size_bytes, max_bytes = int(sizes[too_large].max()), self._limits.of(topic)
                raise RecordTooLarge(topic=topic, size_bytes=size_bytes, max_bytes=max_bytes, limit=limit)
            left_out[too_large] = leave_out
        return letters

    def _place(
        self, batch: pa.RecordBatch, topics_of: Callable[[RecordColumns], RowTopics], started_ms: int
    ) -> None:
        """Rows that were judged."""
        if not batch.num_rows:
            return
        columns = RecordColumns.from_arrow(batch, now_ms=wall_clock_ms())
        topics = topics_of(columns)
        rows = self._router.route(columns, topics, self._resolve(frozenset(topics.names), started_ms))
        self._check_sizes(rows, self._limits.max_request_size)
        self._producer.place(rows, self._receipts, self._codec, started_ms)

    @property
    def bad_rows(self) -> BadRowReceipt:
        """What became of them so far; with badRows=fail nothing."""
        return BadRowReceipt() if self._tally is None else self._tally.receipt()

    def figures(self) -> Figures:
        """What the producer did since the write began, under Kafka's metric names."""
        return self._producer.metrics.snapshot(monotonic_ms()).since(self._began)

    def finish(self) -> tuple[PartitionReceipt, ...]:
        """Waits for the acknowledgement of every row. Returns a receipt a partition; raises DeliveryError.

        Brokers that know topics by name only have acknowledged rows though their topic was made again meanwhile, and
        took the first ones away with the old one: so they are asked which topic it is, after the last row.
        """
        self._producer.flush(self._receipts)
        self._producer.check_topics(self._topic_ids, self._receipts)
        return self._receipts.partitions()

    @property
    def runs(self) -> PackedRuns | None:
        """Of the rows that are acknowledged; None where they were not to be kept."""
        return None if self._receipts.runs is None else self._receipts.runs.packed()

    @property
    def topic_ids(self) -> dict[str, str | None]:
        """Topic -> its id; None where the brokers have none."""
        return {topic: None if topic_id is None else str(topic_id) for topic, topic_id in self._topic_ids.items()}


def _raise_hopeless(missing: Sequence[str], snapshot: MetadataSnapshot) -> None:
    """Errors about a topic that waiting does not mend."""
    for name in missing:
        code = snapshot.errors.get(name)
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise TopicAuthorizationFailed(topic=name)
        if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
            raise TopicNameInvalid(topic=name)


def network_settings(config: ProducerConfig) -> NetworkSettings:
    """What the network takes from a producer's configuration."""
    return NetworkSettings(
        client_id=config.client_id,
        client_software_version=VERSION,
        bootstrap_servers=config.bootstrap_servers,
        reconnect_backoff_ms=config.reconnect_backoff_ms,
        reconnect_backoff_max_ms=config.reconnect_backoff_max_ms,
        request_timeout_ms=config.request_timeout_ms,
        connections_max_idle_ms=config.connections_max_idle_ms,
        socket_connection_setup_timeout_ms=config.socket_connection_setup_timeout_ms,
        socket_connection_setup_timeout_max_ms=config.socket_connection_setup_timeout_max_ms,
        max_in_flight=config.max_in_flight_requests_per_connection,
    )


def partition_count(config: ProducerConfig, topic: str) -> int:
    """How many partitions `topic` has now, asked of the cluster over connections that are closed again.

    Raises BrokersUnreachable, TopicNotFound, TopicAuthorizationFailed or TopicNameInvalid, the first two after
    `max.block.ms`. Where brokers make topics that are asked for, they make this one, as they do for a write.
    """
    producer = Producer(config)
    try:
        return producer.await_topics(frozenset({topic}), (), monotonic_ms())[topic].partition_count
    except KafkaSinkError as error:
        error.of_principal(config.security.principal)
        look_at_hosts(error, config)
        raise
    finally:
        producer.close()


# --- the producers this process keeps ---------------------------------------------------------------------------------

_kept: dict[tuple[int, ProducerConfig], Producer] = {}
_kept_lock = threading.Lock()


@contextmanager
def lease(config: ProducerConfig) -> Iterator[Producer]:
    """A producer for one write, the kept one of this process and configuration if there is one.

    Kept again afterwards unless the write raised. The process id is part of the key: a forked child inherits the dict
    but not the threads, and must not write to its parent's sockets.
    """
    key = (os.getpid(), config)
    with _kept_lock:
        _close_idle()
        producer = _kept.pop(key, None)
    if producer is None or not producer.usable:
        producer = Producer(config)
    try:
        yield producer
    except BaseException as error:
        # Whatever it was, an interrupt too: rows of this write are under way, and no other write may inherit them.
        producer.close()
        if isinstance(error, KafkaSinkError):
            error.of_principal(config.security.principal)
            look_at_hosts(error, config)
        raise
    producer.rest()
    with _kept_lock:
        surplus = _kept.get(key)
        _kept[key] = producer
    if surplus is not None:
        surplus.close()


def _close_idle() -> None:
    now_ms = monotonic_ms()
    for key, producer in list(_kept.items()):
        if key[0] == os.getpid() and now_ms - producer.used_at_ms > producer.config.connections_max_idle_ms:
            del _kept[key]
            producer.close()

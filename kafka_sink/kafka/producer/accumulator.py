"""Record batches that are being filled or wait to be sent: one queue per partition, within a bounded pool.

    writer thread   try_append:  check out ─> encode, close ─> check in    (the lock is held at both ends only)
    Sender thread   ready ─> drain ─> (sent, answered) ─> deallocate, or requeue for a retry

A checked-out batch belongs to its writer: `drain` skips its partition until check-in. A writer that waits for memory
has nothing checked out, so it blocks no other thread. Rows that did not fit stay in its RoutedRows.

There may be thousands of partitions, so no Arrow batch may cost a look at each of them. Open batches are therefore
columns (`Filling`). The Sender thread looks only at partitions with a full batch, a second batch, a retry, or a batch
that has lingered long enough. These partitions take turns: a drained partition goes to the end.

The Sender thread takes the interpreter lock from the writer, so it is woken only for what it has not seen: a newly
opened batch (a full batch always has one behind it), a batch that got no memory, or a checked-out batch that it
skipped.

Source: Kafka's RecordAccumulator (ready conditions, drain order) and BufferPool.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.config import LEAST_BUFFER_BYTES, even_batch_size
from kafka_sink.kafka.metadata import NO_LEADER, MetadataSnapshot
from kafka_sink.kafka.producer.acknowledgements import Acknowledgements
from kafka_sink.kafka.producer.buffer_pool import BufferPool
from kafka_sink.kafka.producer.producer_batch import NO_COMPRESSION, NO_SEQUENCE, BatchState, Filling, ProducerBatch
from kafka_sink.kafka.producer.router import Int64s, RoutedRows
from kafka_sink.kafka.producer.sequences import Sequences
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.records.compression import Codec
from kafka_sink.records.kernel import KERNEL


@dataclass(frozen=True, slots=True)
class ReadyNodes:
    """The result of `ready`.

    `led`: partitions that have something to send, by node id of their leader, in the order of their turns.
    `next_check_ms`: when to look again (ms), or None if nothing waits.
    `leaderless`: topics with something to send to a partition without a known leader.
    """

    led: Mapping[int, deque[TopicPartition]]
    next_check_ms: int | None
    leaderless: frozenset[str]


class RecordAccumulator:
    """`lock` guards queues, pool, metadata and all Acknowledgements. It is passed in (a no-op in a test)."""

    def __init__(
        self,
        *,
        lock: AbstractContextManager[object],
        buffer_memory: int,
        batch_size: int,
        linger_ms: int,
        max_request_size: int,
    ) -> None:
        self._lock = lock
        self._batch_size = even_batch_size(batch_size)
        self._linger_ms = linger_ms
        self._max_request_size = max_request_size
        self._queues: dict[TopicPartition, deque[ProducerBatch]] = {}
        # Topics whose leaders refused a batch for its size -> the most bytes of a batch before compression.
        self._limits: dict[str, int] = {}
        # Partitions that may have something to send, in the order of their turns. `ready` removes those that do not.
        self._pressing: dict[TopicPartition, None] = {}
        # Batches that have not lingered long enough, oldest first. Some may have been sent since.
        self._lingering: deque[ProducerBatch] = deque()
        # The result of the next `take_wakeup`.
        self._is_awaited = False
        self._flushing = 0
        self._failure: KafkaSinkError | None = None
        self.pool = BufferPool(total_bytes=buffer_memory, buffer_bytes=self._batch_size)
        self._filling = self._no_filling()

    def _no_filling(self) -> Filling:
        return Filling([], Acknowledgements(), self.pool.memory, sums_records=False)

    def give_back_memory(self) -> None:
        """Call between two writes: it releases the memory of the acknowledged batches."""
        with self._lock:
            self.pool.give_back()
            self._filling = self._no_filling()

    # --- the writer's side --------------------------------------------------------------------------------------------

    def try_append(self, rows: RoutedRows, acknowledgements: Acknowledgements, codec: Codec, now_ms: int) -> bool:
        """Append as many of `rows` as memory allows. Return True when all are appended. Never waits.

        `codec` belongs to the calling thread. Raises the error that ended the producer, if it has ended.
        """
        while (waiting := rows.unplaced()).size:
            with self._lock:
                filling, places = self._check_out(rows, waiting, acknowledgements, codec, now_ms)
            if not places.size:
                return False
            without_room, full = _fill(rows, filling, places, codec)
            with self._lock:
                filling.release(without_room)
                self._check_in(filling, places, full)
        return True

    def take_wakeup(self) -> bool:
        """Return True, once, if the Sender thread should look at something that it has not seen or has skipped."""
        with self._lock:
            is_awaited, self._is_awaited = self._is_awaited, False
            return is_awaited

    def _check_out(
        self, rows: RoutedRows, waiting: Int64s, acknowledgements: Acknowledgements, codec: Codec, now_ms: int
    ) -> tuple[Filling, Int64s]:
        """Check out the open batches of the destinations `waiting` to this writer. Return the places of those
        batches."""
        if self._failure is not None:
            raise self._failure
        filling = self._filling_for(rows, acknowledgements, codec)
        self._open_batches(filling, rows, waiting[~filling.is_open[waiting]], now_ms)
        places = waiting[filling.is_open[waiting]]
        filling.checked_out[places] = True
        return filling, places

    def _filling_for(self, rows: RoutedRows, acknowledgements: Acknowledgements, codec: Codec) -> Filling:
        """Return the Filling of the last call if it belongs to the same write, or else a new one. Each write counts its
        own rows, so a batch holds rows of one write only."""
        filling = self._filling
        if filling.acknowledgements is not acknowledgements or filling.destinations is not rows.destinations:
            filling.settle(np.flatnonzero(filling.is_open & ~filling.checked_out))
            # Compression changes the records' CRC, so it is not worth summing.
            sums_records = KERNEL.sums_records and codec.id == NO_COMPRESSION
            filling = Filling(rows.destinations, acknowledgements, self.pool.memory, sums_records=sums_records)
            self._filling = filling
        filling.grow()
        return filling

    def _open_batches(self, filling: Filling, rows: RoutedRows, destinations: Int64s, now_ms: int) -> None:
        """Open a batch for each of `destinations` while memory lasts. A batch begins with the destination's next row
        and goes to the end of the destination's queue."""
        if not destinations.size:
            return
        self._make_queues(filling, destinations)
        next_row = rows.next_row[destinations]
        needed_bytes, timestamp_ms = self._needed_bytes(rows, next_row), rows.timestamp_ms(next_row).tolist()
        places: list[int] = []
        batches: list[ProducerBatch] = []
        limits: list[int] = []
        topic_partitions, topic_ids, acknowledgements = rows.destinations, rows.topic_ids, filling.acknowledgements
        # With thousands of waiting partitions it is slow to request the same refused size for each of them.
        refused_bytes: int | None = None
        for place, needed, timestamp in zip(destinations.tolist(), needed_bytes, timestamp_ms, strict=True):
            if refused_bytes is not None and needed >= refused_bytes:
                continue
            buffer = self.pool.try_allocate(needed)
            if buffer is None:
                refused_bytes = needed
                continue
            topic_partition = topic_partitions[place]
            batch = ProducerBatch(topic_partition, topic_ids[place], buffer, acknowledgements, timestamp, now_ms)
            filling.queues[place].append(batch)
            places.append(place)
            batches.append(batch)
            limit = self._limits.get(topic_partition.topic) if self._limits else None
            limits.append(buffer.size if limit is None else min(buffer.size, max(limit, needed)))
        self._lingering += batches
        # Also if a batch got no memory: all queued batches are urgent then.
        self._is_awaited = True
        filling.acknowledgements.opened(len(batches))
        filling.adopt(places, batches, limits)

    def _needed_bytes(self, rows: RoutedRows, next_row: Int64s) -> Sequence[int]:
        """Return the least bytes of a batch that begins with the row, for each of the rows `next_row`. If every row
        fits into every buffer, which is nearly always true, a common upper bound is enough."""
        if rows.largest_bytes <= self.pool.buffer_bytes and not self._limits:
            return [rows.largest_bytes] * len(next_row)
        # A new batch starts at its row, so the row's size in a batch of its own is exact.
        sizes: list[int] = rows.lone_batch_bytes(next_row).tolist()
        return sizes

    def _check_in(self, filling: Filling, places: Int64s, full: list[ProducerBatch]) -> None:
        """`full`: the batches at `places` that were closed."""
        filling.checked_out[places] = False
        for batch in full:
            batch.being_closed = False
            self._pressing[batch.topic_partition] = None
        still_open = places[filling.is_open[places]]
        if self._failure is not None:
            # `fail` ran while the writer encoded rows, and left these batches to the writer.
            for batch in full + filling.settle(still_open):
                batch.step("fail")
                self.pool.deallocate(batch.buffer)
        elif filling is not self._filling:
            # Another write has begun meanwhile, so no writer will fill these batches again.
            filling.settle(still_open)

    def _make_queues(self, filling: Filling, destinations: Int64s) -> None:
        """Give each of `destinations` a queue, and adapt the buffer size to the number of queues."""
        new = destinations[~filling.has_queue[destinations]]
        for place in new.tolist():
            filling.queues[place] = self._queues.setdefault(filling.destinations[place], deque())
        filling.has_queue[new] = True
        if new.size:
            self._fit_buffers(len(self._queues))

    def _fit_buffers(self, partitions_seen: int) -> None:
        """Halve the buffer size until memory suffices for two buffers per partition: one being filled, one in
        flight."""
        size = self._batch_size
        while size // 2 >= LEAST_BUFFER_BYTES and size * 2 * partitions_seen > self.pool.total_bytes:
            size //= 2
        if size != self.pool.buffer_bytes:
            self.pool.shrink_buffers(size)

    def limit_batches(self, topic: str, size_bytes: int) -> int:
        """Limit the batches of `topic` after a leader refused one for its size. A new batch gets at most `size_bytes`,
        but always its first row. Returns the limit, which an earlier call may have set lower. Call under the lock."""
        self._limits[topic] = min(size_bytes, self._limits.get(topic, size_bytes))
        return self._limits[topic]

    def begin_flush(self) -> None:
        """Until `end_flush`, every queued batch is ready at once. Call under the lock."""
        self._flushing += 1

    def end_flush(self) -> None:
        self._flushing -= 1

    # --- the Sender's side, under the lock ----------------------------------------------------------------------------

    def ready(self, snapshot: MetadataSnapshot, now_ms: int) -> ReadyNodes:
        """Return the partitions whose first batch is due, by leader. A first batch is due if it is full, another is
        behind it, it has lingered, memory is short, or a flush runs. A batch that waits for its retry is not due,
        unless another node leads now than the one that refused it (KIP-951)."""
        led: dict[int, deque[TopicPartition]] = {}
        leaderless: set[str] = set()
        waits_ms = self._note_lingered(now_ms)
        if self._urgent:
            self._pressing.update((topic_partition, None) for topic_partition, queue in self._queues.items() if queue)
        for topic_partition in list(self._pressing):
            queue, leader = self._queues[topic_partition], snapshot.leader(*topic_partition)
            wait_ms = self._wait_ms(queue, leader, now_ms) if queue else None
            if wait_ms is None or (wait_ms > 0 and not queue[0].attempts):
                del self._pressing[topic_partition]
            elif wait_ms > 0:
                waits_ms.append(wait_ms)
            elif queue[0].checked_out:
                self._is_awaited = True
            elif leader == NO_LEADER:
                leaderless.add(topic_partition.topic)
            else:
                led.setdefault(leader, deque()).append(topic_partition)
        return ReadyNodes(led, min(waits_ms, default=None), frozenset(leaderless))

    def _note_lingered(self, now_ms: int) -> list[int]:
        """Mark partitions whose first batch has lingered as pressing. Return how long (ms) the next one still
        lingers."""
        lingering = self._lingering
        while lingering:
            batch = lingering[0]
            wait_ms = batch.created_ms + self._linger_ms - now_ms
            if batch.state is BatchState.OPEN:
                if wait_ms > 0:
                    return [wait_ms]
                self._pressing.setdefault(batch.topic_partition, None)
            lingering.popleft()
        return []

    @property
    def _urgent(self) -> bool:
        return self._flushing > 0 or self.pool.exhausted

    def _wait_ms(self, queue: deque[ProducerBatch], leader: int, now_ms: int) -> int:
        first = queue[0]
        if first.attempts:
            return max(0, first.retry_at_ms - now_ms) if leader in (NO_LEADER, first.node_id) else 0
        if self._urgent or len(queue) > 1 or first.full:
            return 0
        return max(0, first.created_ms + self._linger_ms - now_ms)

    def drain(
        self, node_id: int, led: deque[TopicPartition], sequences: Sequences, max_in_flight: int, now_ms: int
    ) -> list[ProducerBatch]:
        """Take at most one batch of each of the partitions `led` out of the queues, `max_request_size` bytes in all.

        `led` is what `ready` found for the node. A first batch larger than `max_request_size` goes alone. Rotates
        `led`, so that the next call begins where this call stopped and no partition starves.
        """
        drained: list[ProducerBatch] = []
        size_bytes = 0
        for _ in range(len(led)):
            topic_partition = led[0]
            queue = self._queues[topic_partition]
            if queue and self._may_go(queue, node_id, sequences, max_in_flight, now_ms):
                first = queue[0]
                if drained and size_bytes + first.size_bytes > self._max_request_size:
                    break
                drained.append(queue.popleft())
                size_bytes += first.size_bytes
                # Move the partition to the end of the line.
                del self._pressing[topic_partition]
                self._pressing[topic_partition] = None
            led.rotate(-1)
        # One call for all: one call per batch takes ten times as long. Batches of earlier writes are already settled.
        still_open = [batch.place for batch in drained if batch.filling is not None]
        if still_open:
            self._filling.settle(np.array(still_open))
        return drained

    def _may_go(
        self, queue: deque[ProducerBatch], node_id: int, sequences: Sequences, max_in_flight: int, now_ms: int
    ) -> bool:
        first = queue[0]
        if first.checked_out:
            self._is_awaited = True
            return False
        return self._wait_ms(queue, node_id, now_ms) == 0 and sequences.may_send(first, max_in_flight)

    def requeue(self, batch: ProducerBatch) -> None:
        """Put a batch that will be retried back into its queue, before all batches with a later sequence."""
        queue = self._queues[batch.topic_partition]
        # Retried batches are at the head of the queue, oldest first. When connections break, requests of one partition
        # may return in any order.
        earlier = 0
        while earlier < len(queue) and queue[earlier].base_sequence != NO_SEQUENCE and _before(queue[earlier], batch):
            earlier += 1
        queue.insert(earlier, batch)
        self._pressing[batch.topic_partition] = None

    def deallocate(self, batch: ProducerBatch) -> None:
        """Return the memory of a batch to the pool, once no request carries the batch."""
        self.pool.deallocate(batch.buffer)

    def queued(self) -> Iterator[ProducerBatch]:
        """Yield every batch that is not in flight."""
        for queue in self._queues.values():
            yield from queue

    def fail(self, error: KafkaSinkError) -> None:
        """End the accumulator: every queued batch fails with `error`, and every later append raises it."""
        self._failure = error
        for queue in self._queues.values():
            for batch in queue:
                batch.acknowledgements.failed(error)
                if not batch.checked_out:
                    batch.settle()
                    batch.step("fail")
                    self.pool.deallocate(batch.buffer)
            queue.clear()
        self._pressing.clear()
        self._lingering.clear()


def _before(one: ProducerBatch, other: ProducerBatch) -> bool:
    """Return True if `one` has the earlier sequence. Works across the wrap: fewer than 2^30 records lie between
    them."""
    return (other.base_sequence - one.base_sequence) % 2**31 < 2**30


def _fill(rows: RoutedRows, filling: Filling, places: Int64s, codec: Codec) -> tuple[Int64s, list[ProducerBatch]]:
    """Encode as many next rows as fit into the batch of each of `places`, in one call. Close the full batches.

    Return the places of the full batches, and these batches. Runs without the lock: the batches are checked out.
    """
    rows.encoder.fill(places, rows.next_row, rows.end_row, filling.open_batches)
    without_room = places[rows.next_row[places] < rows.end_row[places]]
    if not without_room.size:
        return without_room, []
    full = filling.take_out(without_room, to_close=True)
    for batch in full:
        batch.full = True
        batch.close(codec)
    return without_room, full

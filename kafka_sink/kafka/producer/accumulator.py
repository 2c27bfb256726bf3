"""Record batches being filled and waiting to be sent: a queue a partition, within a bounded pool.

    writer thread   try_append:  check out ─> encode, close ─> check in    (the lock is held at both ends only)
    Sender thread   ready ─> drain ─> (sent, answered) ─> deallocate, or requeue for a retry

A batch that is checked out belongs to its writer: drain passes over its partition until it is checked in. A writer that
finds no memory keeps nothing checked out while it waits, so it holds up nobody; what did not fit stays in its
RoutedRows.

With thousands of partitions nothing may cost a look at each of them once an Arrow batch: open batches are columns
(filling.py), and the Sender's side looks only at partitions that have a full batch, one behind another, a retry, or
one that has lingered long enough. Those take turns: who was drained goes to the end. And the Sender thread, which takes
the interpreter from the writer, is woken only for what it does not know of: a batch that was opened (behind one that is
full there is another), or that there was no memory for, or one that it passed over while it was checked out.

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
from kafka_sink.kafka.producer.acknowledgements import Acknowledgements
from kafka_sink.kafka.producer.buffer_pool import BufferPool
from kafka_sink.kafka.producer.filling import Filling
from kafka_sink.kafka.producer.metadata import NO_LEADER, MetadataSnapshot
from kafka_sink.kafka.producer.producer_batch import NO_COMPRESSION, BatchState, ProducerBatch
from kafka_sink.kafka.producer.producer_id import NO_SEQUENCE
from kafka_sink.kafka.producer.routed_rows import Int64s, RoutedRows
from kafka_sink.kafka.producer.sequences import Sequences
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.records.compression import Codec
from kafka_sink.records.kernel import KERNEL


@dataclass(frozen=True, slots=True)
class ReadyNodes:
    """What `ready` found: the partitions that have something to send, by node id of their leader and in the order of
    their turns; when to look again (ms; None: nothing is waiting); and the topics of which a partition without a known
    leader has something to send."""

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
        # Topics whose leaders refused a batch for its size -> bytes that one may have before compression.
        self._limits: dict[str, int] = {}
        # Partitions that may have something to send now, in the order of their turns; `ready` strikes off who has not.
        self._pressing: dict[TopicPartition, None] = {}
        # Batches that have not lingered long enough, oldest first; some have been sent since.
        self._lingering: deque[ProducerBatch] = deque()
        # What `take_wakeup` answers.
        self._is_awaited = False
        self._flushing = 0
        self._failure: KafkaSinkError | None = None
        self.pool = BufferPool(total_bytes=buffer_memory, buffer_bytes=self._batch_size)
        self._filling = self._no_filling()

    def _no_filling(self) -> Filling:
        return Filling([], Acknowledgements(), self.pool.memory, sums_records=False)

    def give_back_memory(self) -> None:
        """Between two writes: of what was acknowledged nothing is left."""
        with self._lock:
            self.pool.give_back()
            self._filling = self._no_filling()

    # --- the writer's side --------------------------------------------------------------------------------------------

    def try_append(self, rows: RoutedRows, acknowledgements: Acknowledgements, codec: Codec, now_ms: int) -> bool:
        """Places as many of `rows` as there is memory for; True when none is left. Never waits.

        `codec` is the calling thread's own. Raises the error that ended the producer, if one did.
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
        """Whether the Sender thread should look, for something that it has not seen, or passed over; once."""
        with self._lock:
            is_awaited, self._is_awaited = self._is_awaited, False
            return is_awaited

    def _check_out(
        self, rows: RoutedRows, waiting: Int64s, acknowledgements: Acknowledgements, codec: Codec, now_ms: int
    ) -> tuple[Filling, Int64s]:
        """The places, of those of the destinations `waiting`, whose batch is this writer's to fill until checked in."""
        if self._failure is not None:
            raise self._failure
        filling = self._filling_for(rows, acknowledgements, codec)
        self._open_batches(filling, rows, waiting[~filling.is_open[waiting]], now_ms)
        places = waiting[filling.is_open[waiting]]
        filling.checked_out[places] = True
        return filling, places

    def _filling_for(self, rows: RoutedRows, acknowledgements: Acknowledgements, codec: Codec) -> Filling:
        """That of the last call, if it was of the same write. Each write's acknowledgements count its own rows, so its
        batches hold no others."""
        filling = self._filling
        if filling.acknowledgements is not acknowledgements or filling.destinations is not rows.destinations:
            filling.settle(np.flatnonzero(filling.is_open & ~filling.checked_out))
            # Compressed, the records have another CRC.
            sums_records = KERNEL.sums_records and codec.id == NO_COMPRESSION
            filling = Filling(rows.destinations, acknowledgements, self.pool.memory, sums_records=sums_records)
            self._filling = filling
        filling.grow()
        return filling

    def _open_batches(self, filling: Filling, rows: RoutedRows, destinations: Int64s, now_ms: int) -> None:
        """A batch for each of `destinations` that memory is found for: it begins with the destination's next row and
        stands behind the others of its queue."""
        if not destinations.size:
            return
        self._make_queues(filling, destinations)
        next_row = rows.next_row[destinations]
        needed_bytes, timestamp_ms = self._needed_bytes(rows, next_row), rows.timestamp_ms(next_row).tolist()
        places: list[int] = []
        batches: list[ProducerBatch] = []
        limits: list[int] = []
        topic_partitions, topic_ids, acknowledgements = rows.destinations, rows.topic_ids, filling.acknowledgements
        # With thousands of partitions that wait, asking for each what one of them was refused would take its time.
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
        # Also where there was no memory for one: whatever is queued is urgent then.
        self._is_awaited = True
        filling.acknowledgements.opened(len(batches))
        filling.adopt(places, batches, limits)

    def _needed_bytes(self, rows: RoutedRows, next_row: Int64s) -> Sequence[int]:
        """What a batch that begins with it takes at least, for each of the rows `next_row`. Where any row fits into any
        buffer, which is nearly always so, it does not matter how much exactly."""
        if rows.largest_bytes <= self.pool.buffer_bytes and not self._limits:
            return [rows.largest_bytes] * len(next_row)
        # A new batch starts at its row, so the row's size in a batch of its own is exact here.
        sizes: list[int] = rows.lone_batch_bytes(next_row).tolist()
        return sizes

    def _check_in(self, filling: Filling, places: Int64s, full: list[ProducerBatch]) -> None:
        """`full`: those of the batches at `places` that were closed."""
        filling.checked_out[places] = False
        for batch in full:
            batch.being_closed = False
            self._pressing[batch.topic_partition] = None
        still_open = places[filling.is_open[places]]
        if self._failure is not None:
            # `fail` ran while the rows were encoded and left the batches to their writer.
            for batch in full + filling.settle(still_open):
                batch.step("fail")
                self.pool.deallocate(batch.buffer)
        elif filling is not self._filling:
            # Another write has begun meanwhile, and nobody will fill these again.
            filling.settle(still_open)

    def _make_queues(self, filling: Filling, destinations: Int64s) -> None:
        """Each of `destinations` has a queue afterwards, and buffers have the size that goes with their number."""
        new = destinations[~filling.has_queue[destinations]]
        for place in new.tolist():
            filling.queues[place] = self._queues.setdefault(filling.destinations[place], deque())
        filling.has_queue[new] = True
        if new.size:
            self._fit_buffers(len(self._queues))

    def _fit_buffers(self, partitions_seen: int) -> None:
        """Halves the buffers until every partition can have one being filled and one on the wire."""
        size = self._batch_size
        while size // 2 >= LEAST_BUFFER_BYTES and size * 2 * partitions_seen > self.pool.total_bytes:
            size //= 2
        if size != self.pool.buffer_bytes:
            self.pool.shrink_buffers(size)

    def limit_batches(self, topic: str, size_bytes: int) -> int:
        """A batch of `topic` was refused for its size: one that is opened from now on gets `size_bytes` or fewer, but
        always its first row. Returns the limit, which may be lower from before. Under the lock."""
        self._limits[topic] = min(size_bytes, self._limits.get(topic, size_bytes))
        return self._limits[topic]

    def begin_flush(self) -> None:
        """Until `end_flush`, whatever is queued is ready at once. Under the lock."""
        self._flushing += 1

    def end_flush(self) -> None:
        self._flushing -= 1

    # --- the Sender's side, under the lock ----------------------------------------------------------------------------

    def ready(self, snapshot: MetadataSnapshot, now_ms: int) -> ReadyNodes:
        """The partitions whose first batch should go now, by the node that leads them: it is full, another is behind
        it, it has lingered, memory is short, or somebody flushes; and it does not wait for a retry."""
        led: dict[int, deque[TopicPartition]] = {}
        leaderless: set[str] = set()
        waits_ms = self._note_lingered(now_ms)
        if self._urgent:
            self._pressing.update((topic_partition, None) for topic_partition, queue in self._queues.items() if queue)
        for topic_partition in list(self._pressing):
            queue = self._queues[topic_partition]
            wait_ms = self._wait_ms(queue, now_ms) if queue else None
            if wait_ms is None or (wait_ms > 0 and not queue[0].attempts):
                del self._pressing[topic_partition]
            elif wait_ms > 0:
                waits_ms.append(wait_ms)
            elif queue[0].checked_out:
                self._is_awaited = True
            else:
                leader = snapshot.leader(*topic_partition)
                if leader == NO_LEADER:
                    leaderless.add(topic_partition.topic)
                else:
                    led.setdefault(leader, deque()).append(topic_partition)
        return ReadyNodes(led, min(waits_ms, default=None), frozenset(leaderless))

    def _note_lingered(self, now_ms: int) -> list[int]:
        """Partitions whose first batch has lingered press from now on. Returns how long (ms) the next one has to."""
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

    def _wait_ms(self, queue: deque[ProducerBatch], now_ms: int) -> int:
        first = queue[0]
        if first.attempts:
            return max(0, first.retry_at_ms - now_ms)
        if self._urgent or len(queue) > 1 or first.full:
            return 0
        return max(0, first.created_ms + self._linger_ms - now_ms)

    def drain(
        self, led: deque[TopicPartition], sequences: Sequences, max_in_flight: int, now_ms: int
    ) -> list[ProducerBatch]:
        """Takes at most one batch of each of the partitions `led`, which `ready` found for a node, out of the queues,
        `max_request_size` bytes in all (a first batch larger than that goes alone). Turns `led` on, so that the next
        call begins where this one stopped, and none starves."""
        drained: list[ProducerBatch] = []
        size_bytes = 0
        for _ in range(len(led)):
            topic_partition = led[0]
            queue = self._queues[topic_partition]
            if queue and self._may_go(queue, sequences, max_in_flight, now_ms):
                first = queue[0]
                if drained and size_bytes + first.size_bytes > self._max_request_size:
                    break
                drained.append(queue.popleft())
                size_bytes += first.size_bytes
                # To the end of the line.
                del self._pressing[topic_partition]
                self._pressing[topic_partition] = None
            led.rotate(-1)
        # In one call: one by one they take ten times as long. Those of an earlier write were settled when this began.
        still_open = [batch.place for batch in drained if batch.filling is not None]
        if still_open:
            self._filling.settle(np.array(still_open))
        return drained

    def _may_go(self, queue: deque[ProducerBatch], sequences: Sequences, max_in_flight: int, now_ms: int) -> bool:
        first = queue[0]
        if first.checked_out:
            self._is_awaited = True
            return False
        return self._wait_ms(queue, now_ms) == 0 and sequences.may_send(first, max_in_flight)

    def requeue(self, batch: ProducerBatch) -> None:
        """Puts a batch that will be sent again back in its place: before all with a later sequence."""
        queue = self._queues[batch.topic_partition]
        # Those stand at the head of the queue, oldest first; but when connections break, the requests of one partition
        # may come back in any order.
        earlier = 0
        while earlier < len(queue) and queue[earlier].base_sequence != NO_SEQUENCE and _before(queue[earlier], batch):
            earlier += 1
        queue.insert(earlier, batch)
        self._pressing[batch.topic_partition] = None

    def deallocate(self, batch: ProducerBatch) -> None:
        """Gives back the memory of a batch that no request carries any more."""
        self.pool.deallocate(batch.buffer)

    def queued(self) -> Iterator[ProducerBatch]:
        """Every batch that is not on the wire."""
        for queue in self._queues.values():
            yield from queue

    def fail(self, error: KafkaSinkError) -> None:
        """The producer ends here: every queued batch fails with `error`, and so does every later append."""
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
    """Whether `one` has the earlier sequence; right across the wrap, as fewer than 2^30 records lie between them."""
    return (other.base_sequence - one.base_sequence) % 2**31 < 2**30


def _fill(rows: RoutedRows, filling: Filling, places: Int64s, codec: Codec) -> tuple[Int64s, list[ProducerBatch]]:
    """Encodes into the batch of each of `places` as many of its destination's next rows as fit, in one call, and closes
    those that have no room for the next one; returns their places and them. Without the lock: they are checked out."""
    rows.encoder.fill(places, rows.next_row, rows.end_row, filling.open_batches)
    without_room = places[rows.next_row[places] < rows.end_row[places]]
    if not without_room.size:
        return without_room, []
    full = filling.take_out(without_room, to_close=True)
    for batch in full:
        batch.full = True
        batch.close(codec)
    return without_room, full

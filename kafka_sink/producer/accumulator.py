"""Record batches being filled and waiting to be sent: a queue a partition, within a bounded pool.

    writer thread   try_append:  check out ─> encode ─> check in       (the lock is held at both ends, never while
    encoding) Sender thread   ready ─> drain ─> (sent, answered) ─> deallocate, or requeue for a retry

A batch that is checked out belongs to its writer: drain passes over its partition until it is checked in. A writer that
finds no memory keeps nothing checked out while it waits, so it holds up nobody; what did not fit stays in its
RoutedRows.

Source: Kafka's RecordAccumulator (ready conditions, drain order) and BufferPool.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from kafka_sink.errors import KafkaSinkError
from kafka_sink.producer.buffer_pool import BufferPool
from kafka_sink.producer.metadata import NO_LEADER, MetadataSnapshot
from kafka_sink.producer.producer_batch import BatchState, ProducerBatch
from kafka_sink.producer.receipts import Receipts, TopicPartition
from kafka_sink.producer.routed_rows import Int64s, RoutedRows
from kafka_sink.producer.sequences import NO_SEQUENCE, Sequences
from kafka_sink.records.compression import Codec
from kafka_sink.records.open_batches import OpenBatches

# Below this a batch carries too few rows for its 61 bytes of header and its share of a request to be worth it.
LEAST_BUFFER_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class ReadyNodes:
    """What `ready` found: who can be sent to, when to look again (ms; None: nothing is waiting), and whether
    something waits for a partition without a known leader."""

    node_ids: frozenset[int]
    next_check_ms: int | None
    leader_unknown: bool


class RecordAccumulator:
    """`lock` guards the queues, the pool, the metadata and every Receipts; it is handed in (a no-op in a test)."""

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
        self._batch_size = batch_size
        self._linger_ms = linger_ms
        self._max_request_size = max_request_size
        self._queues: dict[TopicPartition, deque[ProducerBatch]] = {}
        # Topics whose leaders refused a batch for its size -> bytes that one may have before compression.
        self._limits: dict[str, int] = {}
        self._drain_start: dict[int, int] = {}
        self._flushing = 0
        self._failure: KafkaSinkError | None = None
        self.pool = BufferPool(total_bytes=buffer_memory, buffer_bytes=batch_size)

    # --- the writer's side --------------------------------------------------------------------------------------------

    def try_append(self, rows: RoutedRows, receipts: Receipts, codec: Codec, now_ms: int) -> bool:
        """Places as many of `rows` as there is memory for; True when none is left. Never waits.

        `codec` is the calling thread's own. Raises the error that ended the producer, if one did.
        """
        while (waiting := rows.unplaced()).size:
            with self._lock:
                destinations, batches = self._check_out(rows, waiting, receipts, now_ms)
            if not batches:
                return False
            _fill(rows, destinations, batches, codec)
            with self._lock:
                self._check_in(batches)
        return True

    def _check_out(
        self, rows: RoutedRows, waiting: Int64s, receipts: Receipts, now_ms: int
    ) -> tuple[Int64s, list[ProducerBatch]]:
        if self._failure is not None:
            raise self._failure
        destinations: list[int] = []
        batches: list[ProducerBatch] = []
        # With thousands of partitions this loop runs every few rows: it makes no call where a batch is open.
        is_open, queues, topic_partitions = BatchState.OPEN, self._queues, rows.destinations
        for destination in waiting.tolist():
            queue = queues.get(topic_partitions[destination])
            last = queue[-1] if queue else None
            if last is not None and last.state is is_open and not last.checked_out and last.receipts is receipts:
                batch = last
            elif (new := self._new_batch(rows, destination, receipts, now_ms)) is not None:
                batch = new
            else:
                continue
            batch.checked_out = True
            destinations.append(destination)
            batches.append(batch)
        return np.array(destinations, dtype=np.int64), batches

    def _new_batch(
        self, rows: RoutedRows, destination: int, receipts: Receipts, now_ms: int
    ) -> ProducerBatch | None:
        """A batch that begins with the destination's next row, behind the others of its queue; None when there is no
        memory for one."""
        topic_partition = rows.destinations[destination]
        queue = self._queue(topic_partition)
        row = rows.next_row[destination]
        # A new batch starts at this row, so the row's size in a batch of its own is exact here.
        buffer = self.pool.try_allocate(max(self._buffer_bytes(topic_partition.topic), rows.lone_batch_bytes(row)))
        if buffer is None:
            return None
        batch = ProducerBatch(
            topic_partition,
            rows.topic_ids[destination],
            buffer,
            receipts,
            base_timestamp=rows.timestamp_ms(row),
            created_ms=now_ms,
        )
        queue.append(batch)
        receipts.opened()
        return batch

    def _check_in(self, batches: list[ProducerBatch]) -> None:
        for batch in batches:
            batch.checked_out = False
        if self._failure is not None:
            # `fail` ran while the rows were encoded and left the batches to their writer.
            for batch in batches:
                batch.step("fail")
                self.pool.deallocate(batch.buffer)

    def _queue(self, topic_partition: TopicPartition) -> deque[ProducerBatch]:
        queue = self._queues.get(topic_partition)
        if queue is None:
            queue = self._queues[topic_partition] = deque()
            self._fit_buffers(len(self._queues))
        return queue

    def _fit_buffers(self, partitions_seen: int) -> None:
        """Halves the buffers until every partition can have one being filled and one on the wire."""
        size = self._batch_size
        while size // 2 >= LEAST_BUFFER_BYTES and size * 2 * partitions_seen > self.pool.total_bytes:
            size //= 2
        if size != self.pool.buffer_bytes:
            self.pool.shrink_buffers(size)

    def _buffer_bytes(self, topic: str) -> int:
        """Bytes of a new batch of `topic`."""
        return min(self.pool.buffer_bytes, self._limits.get(topic, self.pool.buffer_bytes))

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
        """The nodes that lead a partition whose first batch should go now: it is full, another is behind it, it has
        lingered, memory is short, or somebody flushes; and it does not wait for a retry."""
        node_ids: set[int] = set()
        next_check_ms: int | None = None
        leader_unknown = False
        urgent = self._flushing > 0 or self.pool.exhausted
        for (topic, partition), queue in self._queues.items():
            if not queue or queue[0].checked_out:
                continue
            wait_ms = self._wait_ms(queue, urgent, now_ms)
            if wait_ms > 0:
                next_check_ms = wait_ms if next_check_ms is None else min(next_check_ms, wait_ms)
                continue
            leader = snapshot.leader(topic, partition)
            if leader == NO_LEADER:
                leader_unknown = True
            else:
                node_ids.add(leader)
        return ReadyNodes(frozenset(node_ids), next_check_ms, leader_unknown)

    def _wait_ms(self, queue: deque[ProducerBatch], urgent: bool, now_ms: int) -> int:
        first = queue[0]
        if first.attempts:
            return max(0, first.retry_at_ms - now_ms)
        if urgent or len(queue) > 1 or first.full:
            return 0
        return max(0, first.created_ms + self._linger_ms - now_ms)

    def drain(
        self, snapshot: MetadataSnapshot, node_id: int, sequences: Sequences, max_in_flight: int, now_ms: int
    ) -> list[ProducerBatch]:
        """Takes at most one batch a partition that `node_id` leads out of the queues, `max_request_size` bytes in all
        (a first batch larger than that goes alone). Starts where the last call stopped, so that none starves."""
        led = [tp for tp, queue in self._queues.items() if queue and snapshot.leader(*tp) == node_id]
        if not led:
            return []
        start = self._drain_start.get(node_id, 0) % len(led)
        drained: list[ProducerBatch] = []
        size_bytes = 0
        for turn in range(len(led)):
            queue = self._queues[led[(start + turn) % len(led)]]
            first = queue[0]
            if first.checked_out or first.retry_at_ms > now_ms or not sequences.may_send(first, max_in_flight):
                continue
            if drained and size_bytes + first.size_bytes > self._max_request_size:
                self._drain_start[node_id] = start + turn
                break
            drained.append(queue.popleft())
            size_bytes += first.size_bytes
        return drained

    def requeue(self, batch: ProducerBatch) -> None:
        """Puts a batch that will be sent again back in its place: before all with a later sequence."""
        queue = self._queues[batch.topic_partition]
        # Those stand at the head of the queue, oldest first; but when connections break, the requests of one partition
        # may come back in any order.
        earlier = 0
        while earlier < len(queue) and queue[earlier].base_sequence != NO_SEQUENCE and _before(queue[earlier], batch):
            earlier += 1
        queue.insert(earlier, batch)

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
                batch.receipts.failed(error)
                if not batch.checked_out:
                    batch.step("fail")
                    self.pool.deallocate(batch.buffer)
            queue.clear()


def _before(one: ProducerBatch, other: ProducerBatch) -> bool:
    """Whether `one` has the earlier sequence; right across the wrap, as fewer than 2^30 records lie between them."""
    return (other.base_sequence - one.base_sequence) % 2**31 < 2**30


def _fill(rows: RoutedRows, destinations: Int64s, batches: list[ProducerBatch], codec: Codec) -> None:
    """Encodes into each batch as many of its destination's next rows as fit, all batches in one call, and closes those
    that have no room for the next one. Without the lock: the batches are checked out."""
    next_row, end_row = rows.next_row[destinations], rows.end_row[destinations]
    count = len(batches)
    open_batches = OpenBatches(
        buffers=[batch.buffer for batch in batches],
        base_timestamp=np.fromiter((batch.base_timestamp for batch in batches), np.int64, count),
        end=np.fromiter((batch.end for batch in batches), np.int64, count),
        record_count=np.fromiter((batch.record_count for batch in batches), np.int64, count),
        max_timestamp=np.fromiter((batch.max_timestamp for batch in batches), np.int64, count),
    )
    rows.encoder.fill(next_row, end_row, open_batches)
    for batch, end, record_count, max_timestamp in zip(
        batches,
        open_batches.end.tolist(),
        open_batches.record_count.tolist(),
        open_batches.max_timestamp.tolist(),
        strict=True,
    ):
        batch.end, batch.record_count, batch.max_timestamp = end, record_count, max_timestamp
    for index in np.flatnonzero(next_row < end_row).tolist():
        batches[index].full = True
        batches[index].close(codec)
    rows.next_row[destinations] = next_row

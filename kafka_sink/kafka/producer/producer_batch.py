"""A record batch: a writer fills and closes it, the Sender numbers it and sends it until it is acknowledged.

    OPEN ──close──> CLOSED ──send──> IN_FLIGHT ──acknowledge, split──> DONE
                      ^                  │
                      └─────retry────────┘          fail: from any state but DONE to DONE

From the first send on the bytes never change. A broker that has the batch recognises a copy only by producer id, epoch
and sequence. So it would silently drop different bytes under the same number.

The rows, and after `close` their compressed form, are in one buffer from the pool. The first 61 bytes of the buffer are
reserved for the header. While a batch is being filled, its numbers are columns of its write's Filling.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

import numpy as np
import numpy.typing as npt

from kafka_sink.kafka.producer.acknowledgements import Acknowledgements
from kafka_sink.kafka.producer.buffer_pool import Buffer
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.records.compression import Codec, Decompressor
from kafka_sink.records.kernel import KERNEL, OpenBatches
from kafka_sink.records.record_batch import HEADER_BYTES, TRANSACTIONAL_BIT, crc32c

Int64s = npt.NDArray[np.int64]

# RecordBatch.NO_SEQUENCE
NO_SEQUENCE = -1


@dataclass(frozen=True, slots=True)
class ProducerIdAndEpoch:
    """The producer of a batch. `is_transactional` is a field here because the three must agree: a batch with a
    transaction's ids but without the transactional bit would silently be written outside of the transaction."""

    producer_id: int
    producer_epoch: int
    is_transactional: bool = False


# The values in batches of a producer without idempotence (RecordBatch.NO_PRODUCER_ID, NO_PRODUCER_EPOCH).
NO_PRODUCER = ProducerIdAndEpoch(-1, -1)

NO_COMPRESSION = 0
NO_NODE = -1


class BatchState(Enum):
    OPEN = auto()
    CLOSED = auto()
    IN_FLIGHT = auto()
    DONE = auto()

    # Enum's own hash is a Python function and slow. Each step of each batch looks its state up in the table.
    __hash__ = object.__hash__


TRANSITIONS: dict[tuple[BatchState, str], BatchState] = {
    (BatchState.OPEN, "close"): BatchState.CLOSED,
    (BatchState.CLOSED, "send"): BatchState.IN_FLIGHT,
    (BatchState.IN_FLIGHT, "retry"): BatchState.CLOSED,
    (BatchState.IN_FLIGHT, "acknowledge"): BatchState.DONE,
    (BatchState.IN_FLIGHT, "split"): BatchState.DONE,
    (BatchState.OPEN, "fail"): BatchState.DONE,
    (BatchState.CLOSED, "fail"): BatchState.DONE,
    (BatchState.IN_FLIGHT, "fail"): BatchState.DONE,
}


@dataclass(slots=True, eq=False, repr=False)
class ProducerBatch:
    """Rows of one write for one partition: `buffer` has them from HEADER_BYTES to `end`."""

    topic_partition: TopicPartition
    topic_id: uuid.UUID | None
    buffer: Buffer
    acknowledgements: Acknowledgements
    base_timestamp: int
    created_ms: int
    # While the batch is open, and its place there.
    filling: Filling | None = None
    place: int = field(init=False)
    # Known once settled. `max_timestamp`: in ms. `records_crc`: None if the encoder computed no CRC.
    end: int = HEADER_BYTES
    record_count: int = field(init=False)
    max_timestamp: int = field(init=False)
    records_crc: int | None = None
    # The writer found no room for the next row. Then: the writer is compressing the batch.
    full: bool = False
    being_closed: bool = False
    # Known once closed: the uncompressed size of the records. If the write keeps runs, also their CRC-32C.
    records_bytes: int = field(init=False)
    checksum: int | None = None
    state: BatchState = BatchState.OPEN
    base_sequence: int = NO_SEQUENCE
    attempts: int = 0
    # When the last attempt was sent, and when the next one goes.
    last_attempt_ms: int = 0
    retry_at_ms: int = field(init=False)
    # An attempt ended without a response, or with a response that leaves the outcome open.
    may_be_written: bool = False
    # The node that the batch was last sent to.
    node_id: int = NO_NODE
    # How long this node or the leader has throttled since the batch was created. It does not count as waiting, because
    # the broker has answered.
    throttled_ms: int = 0
    last_error: str = ""
    _codec_id: int = NO_COMPRESSION

    def settle(self) -> None:
        """Copy the numbers from the Filling into the batch, which takes no more rows. A second call does nothing."""
        if self.filling is not None:
            self.filling.settle(np.array([self.place]))

    @property
    def checked_out(self) -> bool:
        """True while a writer encodes into the batch or closes it without the lock. No other thread may touch it."""
        return self.being_closed or (self.filling is not None and bool(self.filling.checked_out[self.place]))

    @property
    def size_bytes(self) -> int:
        """Bytes on the wire: exact once closed, the uncompressed size before."""
        return self.end if self.filling is None else self.filling.size_bytes(self.place)

    def waited_ms(self, now_ms: int) -> int:
        """Return the time (ms) that `delivery.timeout.ms` limits."""
        return now_ms - self.created_ms - self.throttled_ms

    @property
    def in_flight(self) -> bool:
        return self.state is BatchState.IN_FLIGHT

    def step(self, event: str) -> None:
        """Move to the state that TRANSITIONS gives. Raises KeyError for a pair that is missing there, a bug of the
        caller."""
        self.state = TRANSITIONS[self.state, event]

    def close(self, codec: Codec) -> None:
        """Take no more rows, and compress the records in place. Records that compression would enlarge stay
        uncompressed; the batch's header says so, whatever codec the producer is set to."""
        self.settle()
        self.step("close")
        self.records_bytes = self.end - HEADER_BYTES
        records = self.buffer.view[HEADER_BYTES : self.end]
        if self.acknowledgements.runs is not None:
            self.checksum = crc32c(records) if self.records_crc is None else self.records_crc
        if codec.id == NO_COMPRESSION:
            return
        compressed = codec.compress(records)
        if len(compressed) < len(records):
            self.end = HEADER_BYTES + len(compressed)
            self.buffer.view[HEADER_BYTES : self.end] = memoryview(compressed)
            self._codec_id = codec.id
            self.records_crc = None

    def records(self) -> bytes:
        """Return the records as they were before `close` compressed them."""
        records = self.buffer.view[HEADER_BYTES : self.end]
        if self._codec_id == NO_COMPRESSION:
            return bytes(records)
        return bytes(Decompressor().decompress(self._codec_id, records, self.records_bytes))

    def number(self, producer: ProducerIdAndEpoch, base_sequence: int) -> None:
        """Write the header with its CRC. This happens once, unless the batch is known not to be written
        (`Sequences.leave_out`). Without a producer id, the header has no sequence; `base_sequence` only records the
        order.
        """
        self.base_sequence = base_sequence
        producer_id = producer.producer_id
        KERNEL.write_header(
            self.buffer.view[: self.end],
            self.records_crc,
            self._codec_id | TRANSACTIONAL_BIT if producer.is_transactional else self._codec_id,
            self.base_timestamp,
            self.max_timestamp,
            producer_id,
            producer.producer_epoch,
            NO_SEQUENCE if producer_id == NO_PRODUCER.producer_id else base_sequence,
            self.record_count,
        )

    @property
    def wire_bytes(self) -> memoryview:
        """The complete record batch, without a copy. Valid until the buffer is returned to the pool."""
        return self.buffer.view[: self.end]


class Filling:
    """The open batches of one write, as columns. The rows of an Arrow batch are encoded into them.

    With thousands of partitions an Arrow batch has only a few rows for each. A Python statement per batch would cost
    more than the rows. So while a batch is open, its numbers are in arrays here, with one place per destination of the
    write. A batch that is full or leaves its queue is settled: the numbers move into the batch, and its place becomes
    empty. Guarded by the accumulator's lock. Checked-out places belong to their writer instead.

    `destinations`: the write's, as in its RoutedRows; place d is for `destinations[d]`. The list may grow.
    `queues[d]`: the partition's queue, valid if `has_queue[d]`. `is_open[d]`: a batch at d takes rows.
    `checked_out[d]`: a writer uses the batch without the lock. `open_batches`: the batches' numbers, including
    positions in the pool's `memory`. `sums_records`: the numbers include the CRC.
    """

    def __init__(
        self,
        destinations: Sequence[TopicPartition],
        acknowledgements: Acknowledgements,
        memory: npt.NDArray[np.uint8],
        *,
        sums_records: bool,
    ) -> None:
        self.destinations = destinations
        self.acknowledgements = acknowledgements
        self.queues: list[deque[ProducerBatch]] = []
        self.has_queue = np.zeros(0, np.bool_)
        self._batches: list[ProducerBatch | None] = []
        self.is_open = np.zeros(0, np.bool_)
        self.checked_out = np.zeros(0, np.bool_)
        nothing = np.zeros(0, np.int64)
        crc = nothing if sums_records else None
        self.open_batches = OpenBatches(memory, nothing, nothing, nothing, nothing, nothing, crc)
        self.grow()

    def grow(self) -> None:
        """Add places for destinations that are new since the last call. No place may be checked out."""
        more = len(self.destinations) - len(self._batches)
        if more <= 0:
            return
        self._batches += [None] * more
        self.queues += [deque()] * more
        self.has_queue = np.append(self.has_queue, np.zeros(more, np.bool_))
        self.is_open = np.append(self.is_open, np.zeros(more, np.bool_))
        self.checked_out = np.append(self.checked_out, np.zeros(more, np.bool_))
        old, new = self.open_batches, np.zeros(more, np.int64)
        self.open_batches = OpenBatches(
            old.memory,
            base_timestamp=np.append(old.base_timestamp, new),
            end=np.append(old.end, new),
            limit=np.append(old.limit, new),
            record_count=np.append(old.record_count, new),
            max_timestamp=np.append(old.max_timestamp, new),
            records_crc=None if old.records_crc is None else np.append(old.records_crc, new),
        )

    def adopt(self, places: Sequence[int], batches: Sequence[ProducerBatch], limits: Sequence[int]) -> None:
        """Take over the numbers of new, empty batches. `limits`: how many bytes of its buffer each batch may use."""
        columns = self.open_batches
        where = np.array(places, np.int64)
        columns.base_timestamp[where] = columns.max_timestamp[where] = [batch.base_timestamp for batch in batches]
        start = np.array([batch.buffer.start for batch in batches], np.int64)
        columns.end[where] = start + HEADER_BYTES
        columns.limit[where] = start + np.array(limits, np.int64)
        columns.record_count[where] = 0
        if columns.records_crc is not None:
            columns.records_crc[where] = 0
        self.is_open[where] = True
        for place, batch in zip(places, batches, strict=True):
            self._batches[place] = batch
            batch.filling, batch.place = self, place

    def size_bytes(self, place: int) -> int:
        """Return the current size in bytes of the batch at `place`, header and records."""
        batch = self._batches[place]
        assert batch is not None
        return int(self.open_batches.end[place]) - batch.buffer.start

    def take_out(self, places: Int64s, *, to_close: bool = False) -> list[ProducerBatch]:
        """Return the batches at `places` (int64[k]), and move their numbers into them. Each place must have a batch.
        The places stay occupied until `release`. `to_close`: the writer will close the batches without the lock."""
        columns = self.open_batches
        numbers = (columns.end, columns.record_count, columns.max_timestamp)
        crcs = [None] * len(places) if columns.records_crc is None else columns.records_crc[places].tolist()
        batches = []
        for place, end, record_count, max_timestamp, crc in zip(
            places.tolist(), *(number[places].tolist() for number in numbers), crcs, strict=True
        ):
            batch = self._batches[place]
            assert batch is not None
            self._batches[place] = None
            batch.being_closed = to_close
            batch.end = end - batch.buffer.start
            batch.record_count = record_count
            batch.max_timestamp = max_timestamp
            batch.records_crc = crc
            batch.filling = None
            batches.append(batch)
        return batches

    def release(self, places: Int64s) -> None:
        """Free `places` (int64[k]), whose batches were taken out, for new batches."""
        self.is_open[places] = self.checked_out[places] = False

    def settle(self, places: Int64s) -> list[ProducerBatch]:
        """Take out the batches at `places` (int64[k]) and free the places. Return the batches."""
        batches = self.take_out(places)
        self.release(places)
        return batches

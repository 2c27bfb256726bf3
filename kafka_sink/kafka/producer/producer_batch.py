"""One record batch: a writer fills and closes it, the Sender numbers it and sends it until it is acknowledged.

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
from enum import Enum, auto
from typing import Protocol

import numpy as np
import numpy.typing as npt

from kafka_sink.kafka.producer.acknowledgements import Acknowledgements
from kafka_sink.kafka.producer.buffer_pool import Buffer
from kafka_sink.kafka.producer.producer_id import NO_PRODUCER, NO_SEQUENCE, ProducerIdAndEpoch
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.records.checksum import crc32c
from kafka_sink.records.compression import Codec
from kafka_sink.records.kernel import KERNEL
from kafka_sink.records.record_batch import HEADER_BYTES, TRANSACTIONAL_BIT

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


class OpenNumbers(Protocol):
    """Holds the numbers of the batches that are being filled, as columns. Implemented by Filling."""

    checked_out: npt.NDArray[np.bool_]

    def size_bytes(self, place: int) -> int: ...
    def settle(self, places: npt.NDArray[np.int64]) -> object: ...


class ProducerBatch:
    """Rows of one write for one partition: `buffer` has them from HEADER_BYTES to `end`.

    `full`: the writer found no room for the next row. `being_closed`: the writer is compressing the batch.
    `end`, `record_count`, `max_timestamp` (ms): valid once settled.
    `records_crc`: valid once settled; None if the encoder computed no CRC.
    `records_bytes`: uncompressed size of the records, known once closed.
    `checksum`: CRC-32C of the uncompressed records, known once closed, if the write keeps runs.
    `may_be_written`: an attempt ended without a response, or with a response that leaves the outcome open.
    `node_id`: the node that the batch was last sent to.
    `throttled_ms`: how long this node or the leader has throttled since the batch was created. It does not count as
    waiting, because the broker has answered.
    """

    __slots__ = (
        "_codec_id",
        "acknowledgements",
        "attempts",
        "base_sequence",
        "base_timestamp",
        "being_closed",
        "buffer",
        "checksum",
        "created_ms",
        "end",
        "filling",
        "full",
        "last_attempt_ms",
        "last_error",
        "max_timestamp",
        "may_be_written",
        "node_id",
        "place",
        "record_count",
        "records_bytes",
        "records_crc",
        "retry_at_ms",
        "state",
        "throttled_ms",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID | None,
        buffer: Buffer,
        acknowledgements: Acknowledgements,
        base_timestamp: int,
        created_ms: int,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.buffer = buffer
        self.acknowledgements = acknowledgements
        self.base_timestamp = base_timestamp
        self.max_timestamp = base_timestamp
        self.created_ms = created_ms
        self.end = HEADER_BYTES
        self.record_count = 0
        self.records_bytes = 0
        self.records_crc: int | None = None
        self.checksum: int | None = None
        self.full = False
        self.being_closed = False
        self.state = BatchState.OPEN
        self.base_sequence = NO_SEQUENCE
        self.attempts = 0
        self.last_attempt_ms = 0
        self.may_be_written = False
        self.node_id = NO_NODE
        self.throttled_ms = 0
        self.retry_at_ms = 0
        self.last_error = ""
        self._codec_id = NO_COMPRESSION
        self.filling: OpenNumbers | None = None
        self.place = 0

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
        if self.filling is not None:
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

    def records(self, codec: Codec) -> bytes:
        """Return the records as they were before `close` compressed them with `codec`."""
        records = self.buffer.view[HEADER_BYTES : self.end]
        return bytes(records) if self._codec_id == NO_COMPRESSION else codec.decompress(records, self.records_bytes)

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

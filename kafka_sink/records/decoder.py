"""A record set, as a Fetch answer carries it, to Arrow record batches.

    record set ─> scan: a row of a table for each batch, CRCs compared ─> unwanted batches emptied
               ─> decompress, one batch at a time ─> measure: rows and bytes, up to a limit ─> fill: Arrow buffers

Scope: consecutive batches of message format 2, of which the last may be cut off. Rows are the records of the range
that is wanted, except those of control batches and, for readers of committed records, of aborted transactions.
batch_table.py has the table, kernel.py the functions that do the work per record.

Memory: the record set is never copied. Beside it are one Arrow batch and the decompressed records that it is made of:
up to `most_bytes` of records, and one batch of Kafka's of up to `most_batch_bytes`.

Source: CompletedFetch of Java's consumer, DefaultRecordBatch, ByteBufferLogInputStream.
"""

from __future__ import annotations

import itertools
import struct
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from typing_extensions import Buffer

from kafka_sink.records.arrow_rows import ArrowRows
from kafka_sink.records.batch_table import (
    CODEC_BITS,
    CONTROL_BIT,
    BatchTooLarge,
    Column,
    CorruptBatch,
    Fault,
    Int64s,
    OldFormat,
    State,
    TimestampOutOfRange,
    TooManyHeaders,
    Total,
    Undecodable,
    new_table,
)
from kafka_sink.records.compression import Content, DamagedRecords, Decompressor, TooManyBytes
from kafka_sink.records.kernel import KERNEL, SLOW_READING, Kernel, warn_of_loss
from kafka_sink.records.record_batch import (
    COVERED_AT,
    CRC_AT,
    HEADER_BYTES,
    MAGIC_AT,
    TRANSACTIONAL_BIT,
    AbortedTransaction,
    crc32c,
    headers,
)
from kafka_sink.records.record_walk import Wrong, first_unreadable_timestamp, read_record

# Batches of a scan. Usual batches reach the limit of bytes first.
SCANNED_BATCHES = 256
# Of a control batch: a marker has some 20 bytes.
MOST_MARKER_BYTES = 4 * 1024
# Arrow's `binary` has 32-bit offsets.
MOST_BYTES = 2**31 - 1
NO_PRODUCER_ID = -1
# The key of a control record: version, and type.
_CONTROL_KEY = struct.Struct(">hh")
_ABORT = 0


class AbortedTransactions:
    """The list of aborted transactions in a Fetch answer, after the batches so far. Every batch of the record set must
    pass it, in order.

    A transaction is aborted from its first offset up to its abort marker, a control batch of its producer.
    Source: CompletedFetch (consumeAbortedTransactionsUpTo, containsAbortMarker), ControlRecordType; KIP-98.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._ahead = deque(sorted(aborted, key=lambda each: each.first_offset))
        self._producer_ids: set[int] = set()

    def __bool__(self) -> bool:
        """False if no batch from here on can be aborted."""
        return bool(self._ahead or self._producer_ids)

    def begin(self, last_offset: int) -> None:
        """Open the transactions that begin up to the last offset of the next batch."""
        while self._ahead and self._ahead[0].first_offset <= last_offset:
            self._producer_ids.add(self._ahead.popleft().producer_id)

    def end(self, producer_id: int) -> None:
        """The next batch is an abort marker."""
        self._producer_ids.discard(producer_id)

    def has(self, producer_id: int) -> bool:
        """The next batch is transactional and of this producer: is it aborted?"""
        return producer_id in self._producer_ids


def is_abort_marker(records: memoryview) -> bool:
    """Return whether the records of a control batch, at least one, begin with an abort marker. Raises Wrong if they
    cannot be read."""
    record = read_record(records, 0, len(records))
    if record.key_length < _CONTROL_KEY.size:
        raise Wrong(Fault.RECORD)
    version, kind = _CONTROL_KEY.unpack_from(records, record.key_at)
    if version < 0:
        raise Wrong(Fault.RECORD)
    return bool(kind == _ABORT)


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one Arrow batch, and of one batch of Kafka's.

    `most_rows`, and `most_bytes` of their records: a record that is larger has an Arrow batch of its own.
    `most_batch_bytes`: the records of one batch after decompression; `most_headers`: of one batch; more are an error.
    All are from 1 to MOST_BYTES.
    """

    most_rows: int = 64 * 1024
    most_bytes: int = 16 * 1024 * 1024
    most_batch_bytes: int = 128 * 1024 * 1024
    most_headers: int = 1_000_000

    def __post_init__(self) -> None:
        for limit in (self.most_rows, self.most_bytes, self.most_batch_bytes, self.most_headers):
            if not 1 <= limit <= MOST_BYTES:
                raise ValueError(f"a limit is from 1 to {MOST_BYTES}, not {limit}")


DEFAULT_LIMITS = Limits()


class RecordSetDecoder:
    """Iterates over the rows of a record set, as Arrow batches with at least one row each.

    `records`: any contiguous bytes; they must stay as they are. Wanted are records with `first_offset` <= offset <
    `end_offset`. `columns`: names of arrow_rows.TYPES, at least one. `aborted`: of the Fetch answer; none for a reader
    that also wants uncommitted records. Raises an `Undecodable` at the batch that cannot be decoded.

    `next_offset`: rows below it were returned, or do not exist. At the end of the iteration it is the offset to fetch
    next: after the last whole batch, even if that has no rows, or `end_offset`. `used_bytes` and `batch_count`: the
    whole batches that were read so far. 0 bytes at the end: not one batch is whole.
    """

    def __init__(
        self,
        records: Buffer,
        *,
        first_offset: int,
        end_offset: int,
        columns: Sequence[str],
        aborted: Iterable[AbortedTransaction] = (),
        check_crcs: bool = True,
        limits: Limits = DEFAULT_LIMITS,
        kernel: Kernel = KERNEL,
    ) -> None:
        if kernel.loss is not None:
            warn_of_loss(kernel, SLOW_READING)
        self._records = memoryview(records).cast("B")
        self._first_offset, self._end_offset = first_offset, end_offset
        self._columns = tuple(columns)
        self._aborted = AbortedTransactions(aborted)
        self._check_crcs = check_crcs
        self._limits = limits
        self._kernel = kernel
        self._state = np.zeros(len(State), np.int64)
        # Batches that are scanned, and not yet ready.
        self._scanned = new_table(0)
        self._is_scanned = first_offset >= end_offset
        # All offsets before it were scanned, or are in no batch.
        self._scanned_to = first_offset
        self._ready = _ReadyBatches(self._records)
        self._decompressor = Decompressor()
        self.batch_count = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        while True:
            self._make_ready()
            if not self._ready:
                raise StopIteration
            rows = self._decode()
            if rows is not None:
                return rows

    @property
    def used_bytes(self) -> int:
        return int(self._state[State.POSITION])

    @property
    def next_offset(self) -> int:
        offset = self._ready.next_offset
        if offset is None and len(self._scanned):
            offset = int(self._scanned[0, Column.BASE_OFFSET])
        if offset is None:
            offset = int(self._state[State.NEXT_OFFSET])
        return min(max(offset, self._first_offset), self._end_offset)

    def _make_ready(self) -> None:
        """Scan and decompress until there are as many records as an Arrow batch may have, or no more."""
        while not self._has_enough() and (len(self._scanned) or self._scan()):
            if _all_attributes(self._scanned) & CODEC_BITS:
                self._make_some_ready()
            else:
                self._ready.add(self._scanned)
                self._scanned = self._scanned[:0]

    def _has_enough(self) -> bool:
        limits, ready = self._limits, self._ready
        return ready.record_count >= limits.most_rows or ready.size_bytes >= limits.most_bytes

    def _make_some_ready(self) -> None:
        """Decompress batches up to those that make enough."""
        table = self._scanned
        count = 0
        for numbers in table.tolist():
            if numbers[Column.RECORD_COUNT] and numbers[Column.ATTRIBUTES] & CODEC_BITS:
                source = self._ready.add_source(self._decompressed(numbers))
                table[count, Column.SOURCE : Column.END + 1] = source
            self._ready.add(table[count : count + 1])
            count += 1
            if self._has_enough():
                break
        self._scanned = table[count:]

    def _scan(self) -> bool:
        """Read headers of more batches. Return whether there are any."""
        if self._is_scanned:
            return False
        table = new_table(SCANNED_BATCHES)
        count = self._kernel.scan_batches(
            self._records, self._state, self._end_offset, self._limits.most_bytes, self._check_crcs, table
        )
        if self._state[State.FAULT] == Fault.OLD_FORMAT and self._is_cut_off(self.used_bytes):
            # Whether that is an older format or damage, only the whole batch shows.
            self._state[State.FAULT] = Fault.NONE
            self._is_scanned = True
        if self._is_contradicted(table[:count]):
            self._state[State.FAULT] = Fault.OFFSETS
        if self._state[State.FAULT]:
            raise self._fault_of_header(table[:count])
        self._scanned_to = int(self._state[State.NEXT_OFFSET])
        self._is_scanned |= (
            count == 0 or self.used_bytes == len(self._records) or self._state[State.NEXT_OFFSET] >= self._end_offset
        )
        if count == 0:
            return False
        self._scanned = table[:count]
        self.batch_count += count
        if self._aborted:
            self._drop_aborted()
        # Offsets ascend, so the first batch shows whether any is before the range.
        if _all_attributes(self._scanned) & CONTROL_BIT or self._scanned[0, Column.LAST_OFFSET] < self._first_offset:
            self._drop_unwanted()
        return True

    def _drop_unwanted(self) -> None:
        """Empty control batches, and those before the range."""
        is_before = self._scanned[:, Column.LAST_OFFSET] < self._first_offset
        _empty(self._scanned, (self._scanned[:, Column.ATTRIBUTES] & CONTROL_BIT != 0) | is_before)

    def _drop_aborted(self) -> None:
        """Empty the batches of aborted transactions, as CompletedFetch skips them."""
        is_dropped = np.zeros(len(self._scanned), np.bool_)
        for place, numbers in enumerate(self._scanned.tolist()):
            producer_id, attributes = numbers[Column.PRODUCER_ID], numbers[Column.ATTRIBUTES]
            if producer_id == NO_PRODUCER_ID:
                continue
            self._aborted.begin(numbers[Column.LAST_OFFSET])
            if attributes & CONTROL_BIT and numbers[Column.RECORD_COUNT]:
                if self._is_abort_marker(numbers):
                    self._aborted.end(producer_id)
            elif attributes & TRANSACTIONAL_BIT and self._aborted.has(producer_id):
                is_dropped[place] = True
        _empty(self._scanned, is_dropped)

    def _is_abort_marker(self, numbers: Sequence[int]) -> bool:
        try:
            if numbers[Column.ATTRIBUTES] & CODEC_BITS:
                return is_abort_marker(memoryview(self._decompressed(numbers, MOST_MARKER_BYTES)))
            return is_abort_marker(self._records[numbers[Column.START] : numbers[Column.END]])
        except Wrong as wrong:
            fault = wrong.fault
        except BatchTooLarge:
            fault = Fault.RECORD
        raise CorruptBatch(numbers[Column.BASE_OFFSET], fault, numbers[Column.LAST_OFFSET] + 1)

    def _decompressed(self, numbers: Sequence[int], most_bytes: int | None = None) -> Content:
        base_offset, attributes = numbers[Column.BASE_OFFSET], numbers[Column.ATTRIBUTES]
        following = numbers[Column.LAST_OFFSET] + 1
        compressed = self._records[numbers[Column.START] : numbers[Column.END]]
        if most_bytes is None:
            most_bytes = self._limits.most_batch_bytes
        try:
            return self._decompressor.decompress(attributes & CODEC_BITS, compressed, most_bytes)
        except TooManyBytes:
            raise BatchTooLarge(base_offset, most_bytes, following) from None
        except DamagedRecords as error:
            raise CorruptBatch(base_offset, None, following) from error

    def _decode(self) -> pa.RecordBatch | None:
        """Return rows of the batches that are ready, or None if they have none."""
        sources, table = self._ready.sources, self._ready.table()
        wanted = (self._first_offset, self._end_offset)
        limits = self._limits
        totals = np.zeros(len(Total), np.int64)
        checks_timestamps = "timestamp" in self._columns
        self._kernel.measure_records(
            sources, table, *wanted, limits.most_rows, limits.most_bytes, checks_timestamps, totals
        )
        measured = totals.tolist()
        if measured[Total.FAULT]:
            raise self._fault_of_records(table, measured)
        if measured[Total.HEADERS] > limits.most_headers:
            self._check_headers(table, totals)
        rows = ArrowRows(self._columns, measured)
        self._kernel.fill_columns(sources, table, *wanted, measured[Total.RECORDS], rows.row_count, rows.buffers)
        self._ready.drop_read(measured[Total.RECORDS])
        return rows.record_batch() if rows.row_count else None

    def _fault_of_header(self, before: Int64s) -> Undecodable:
        """The error for the batch at the position of the scan. `before`: the batches that this scan has read."""
        fault, at = Fault(self._state[State.FAULT]), self.used_bytes
        found = list(itertools.islice(headers(self._records[at:]), 2))
        base_offset, expected = self._base_offset(at), self._after(before)
        following = found[1].base_offset if len(found) > 1 else None
        if fault is Fault.OLD_FORMAT:
            if not self._is_flipped_format(at):
                return OldFormat(base_offset, self._records[at + MAGIC_AT])
            fault = Fault.MAGIC
        elif fault is Fault.OFFSETS and base_offset < int(self._state[State.NEXT_OFFSET]) and len(before):
            # One of two is wrong: the one that a gap is before, because a base offset that is too high leaves one.
            earlier = self._after(before[:-1])
            if earlier < before[-1, Column.BASE_OFFSET]:
                expected, following = earlier, base_offset
        if fault is Fault.OFFSETS and not expected <= base_offset < self._end_offset:
            base_offset = expected
        return CorruptBatch(
            base_offset, fault, following if following is not None and following > base_offset else None
        )

    def _check_headers(self, table: Int64s, totals: Int64s) -> None:
        """Raise TooManyHeaders if one of these batches has more than it may have. Together they may."""
        limits = self._limits
        for number in range(len(table)):
            self._kernel.measure_records(
                self._ready.sources, table[number : number + 1].copy(), self._first_offset, self._end_offset,
                limits.most_rows, limits.most_bytes, False, totals,
            )  # fmt: skip
            if totals[Total.HEADERS] > limits.most_headers:
                batch = table[number].tolist()
                raise TooManyHeaders(batch[Column.BASE_OFFSET], limits.most_headers, batch[Column.LAST_OFFSET] + 1)

    def _fault_of_records(self, table: Int64s, totals: Sequence[int]) -> Undecodable:
        fault, batch = Fault(totals[Total.FAULT]), table[totals[Total.FAULT_BATCH]]
        base_offset, last_offset = int(batch[Column.BASE_OFFSET]), int(batch[Column.LAST_OFFSET])
        if fault is Fault.TIMESTAMP:
            source = memoryview(self._ready.sources[int(batch[Column.SOURCE])]).cast("B")
            offset, timestamp_ms = first_unreadable_timestamp(source, batch, self._first_offset)
            return TimestampOutOfRange(base_offset, offset, timestamp_ms)
        return CorruptBatch(base_offset, fault, last_offset + 1)

    def _is_contradicted(self, scanned: Int64s) -> bool:
        """Return whether the next batch contradicts the one that ends the range behind a gap. No CRC covers a base
        offset, so only that shows that it is too high."""
        at, next_offset = self.used_bytes, int(self._state[State.NEXT_OFFSET])
        if self._state[State.FAULT] or next_offset < self._end_offset:
            return False
        found = list(itertools.islice(headers(self._records[at:]), 2))
        if self._after(scanned) < self._end_offset:
            return len(found) > 1 and found[1].base_offset < found[0].next_offset
        has_gap = len(scanned) and self._after(scanned[:-1]) < scanned[-1, Column.BASE_OFFSET]
        return bool(has_gap and found and found[0].base_offset < next_offset)

    def _after(self, scanned: Int64s) -> int:
        """Return the offset after these batches of a scan."""
        return int(scanned[-1, Column.LAST_OFFSET]) + 1 if len(scanned) else self._scanned_to

    def _base_offset(self, at: int) -> int:
        return int.from_bytes(self._records[at : at + 8], "big", signed=True)

    def _is_cut_off(self, at: int) -> bool:
        """Return whether the batch at `at` is cut off behind others."""
        header = next(headers(self._records[at:]), None)
        return at > 0 and header is not None and not header.is_whole

    def _is_flipped_format(self, at: int) -> bool:
        """Return whether a batch that names an older format has the CRC of format 2."""
        header = next(headers(self._records[at:]), None)
        if header is None or not header.is_whole or header.size < HEADER_BYTES:
            return False
        batch = self._records[at : at + header.size]
        return bool(crc32c(batch[COVERED_AT:]) == int.from_bytes(batch[CRC_AT:COVERED_AT], "big"))


def _all_attributes(table: Int64s) -> int:
    """Return the bits that any of the batches has."""
    return int(np.bitwise_or.reduce(table[:, Column.ATTRIBUTES]))


def _empty(table: Int64s, which: np.typing.NDArray[np.bool_]) -> None:
    """Leave these batches without a record to read; they still advance the offset."""
    table[which, Column.RECORD_COUNT] = 0
    table[which, Column.END] = table[which, Column.START]


class _ReadyBatches:
    """Batches whose records can be read: their rows of the table, and the sources that these name."""

    def __init__(self, records: memoryview) -> None:
        # The record set, and the decompressed records of batches, in their order.
        self._sources: list[Buffer] = [records]
        self._tables: list[Int64s] = []
        self.record_count = 0
        self.size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._tables)

    @property
    def sources(self) -> tuple[Buffer, ...]:
        return tuple(self._sources)

    @property
    def next_offset(self) -> int | None:
        return int(self._tables[0][0, Column.NEXT_OFFSET]) if self._tables else None

    def add_source(self, records: Content) -> tuple[int, int, int]:
        """Keep the decompressed records of the next batch. Return its columns SOURCE, START and END."""
        self._sources.append(records)
        return len(self._sources) - 1, 0, len(records)

    def add(self, table: Int64s) -> None:
        self._tables.append(table)
        if len(table) == 1:
            numbers = table[0].tolist()
            self.record_count += numbers[Column.RECORD_COUNT]
            self.size_bytes += numbers[Column.END] - numbers[Column.START]
        else:
            sums = table.sum(axis=0).tolist()
            self.record_count += sums[Column.RECORD_COUNT]
            self.size_bytes += sums[Column.END] - sums[Column.START]

    def table(self) -> Int64s:
        """Return all batches as one table, which stays this object's."""
        if len(self._tables) > 1:
            self._tables = [np.concatenate(self._tables)]
        return self._tables[0]

    def drop_read(self, record_count: int) -> None:
        """Forget the batches that have no records left, and what was decompressed for them.

        `record_count`: the records that were read since the last call.
        """
        table, are_all = self.table(), record_count == self.record_count
        self._tables, self.record_count, self.size_bytes = [], 0, 0
        if are_all:
            del self._sources[1:]
            return
        rest = table[np.flatnonzero(table[:, Column.RECORD_COUNT])[0] :]
        named = rest[:, Column.SOURCE]
        first = int(named[named > 0].min(initial=len(self._sources)))
        del self._sources[1:first]
        named[named > 0] -= first - 1
        self.add(rest)

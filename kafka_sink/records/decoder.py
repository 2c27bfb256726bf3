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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from typing_extensions import Buffer

from kafka_sink.records.aborted_transactions import (
    NO_PRODUCER_ID,
    AbortedTransaction,
    AbortedTransactions,
    is_abort_marker,
)
from kafka_sink.records.arrow_rows import ArrowRows
from kafka_sink.records.batch_table import (
    CODEC_BITS,
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    Column,
    Fault,
    Int64s,
    State,
    Total,
    new_table,
)
from kafka_sink.records.decompression import DamagedRecords, TooManyBytes, decompress
from kafka_sink.records.kernel import KERNEL, SLOW_READING, Kernel, warn_of_loss
from kafka_sink.records.record_walk import Wrong
from kafka_sink.records.undecodable import BatchTooLarge, CorruptBatch, OldFormat, TimestampOutOfRange, Undecodable

# Batches of a scan. Usual batches reach the limit of bytes first.
SCANNED_BATCHES = 256
# Arrow's `binary` has 32-bit offsets.
MOST_BYTES = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one Arrow batch, and of one batch of Kafka's.

    `most_rows`, and `most_bytes` of their records: a record that is larger has an Arrow batch of its own.
    `most_batch_bytes`: the records of one batch after decompression; more are an error. All are from 1 to MOST_BYTES.
    """

    most_rows: int = 64 * 1024
    most_bytes: int = 16 * 1024 * 1024
    most_batch_bytes: int = 128 * 1024 * 1024

    def __post_init__(self) -> None:
        for limit in (self.most_rows, self.most_bytes, self.most_batch_bytes):
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
        # Scanned, and not yet ready: the compressed ones and those after them.
        self._scanned = new_table(0)
        self._is_scanned = first_offset >= end_offset
        self._ready = _ReadyBatches(self._records)
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
        limits = self._limits
        while self._ready.record_count < limits.most_rows and self._ready.size_bytes < limits.most_bytes:
            if not len(self._scanned) and not self._scan():
                return
            compressed = np.flatnonzero(_is_compressed(self._scanned))
            if not len(compressed) or compressed[0] > 0:
                count = int(compressed[0]) if len(compressed) else len(self._scanned)
                self._ready.add(self._scanned[:count])
                self._scanned = self._scanned[count:]
            else:
                batch, self._scanned = self._scanned[:1], self._scanned[1:]
                self._ready.add_decompressed(batch, self._decompressed(batch[0]))

    def _scan(self) -> bool:
        """Read headers of more batches. Return whether there are any."""
        if self._is_scanned:
            return False
        table = new_table(SCANNED_BATCHES)
        count = self._kernel.scan_batches(
            self._records, self._state, self._end_offset, self._limits.most_bytes, self._check_crcs, table
        )
        if self._state[State.FAULT]:
            raise self._fault_of_header()
        self._is_scanned = count == 0 or self._state[State.NEXT_OFFSET] >= self._end_offset
        self._scanned = table[:count]
        self.batch_count += count
        if self._aborted:
            self._drop_aborted()
        unwanted = (self._scanned[:, Column.ATTRIBUTES] & CONTROL_BIT != 0) | (
            self._scanned[:, Column.LAST_OFFSET] < self._first_offset
        )
        if unwanted.any():
            _empty(self._scanned, unwanted)
        return count > 0

    def _drop_aborted(self) -> None:
        """Empty the batches of aborted transactions, as CompletedFetch skips them."""
        for row in self._scanned:
            producer_id, attributes = int(row[Column.PRODUCER_ID]), int(row[Column.ATTRIBUTES])
            if producer_id == NO_PRODUCER_ID:
                continue
            self._aborted.begin(int(row[Column.LAST_OFFSET]))
            if attributes & CONTROL_BIT and row[Column.RECORD_COUNT]:
                if self._is_abort_marker(row):
                    self._aborted.end(producer_id)
            elif attributes & TRANSACTIONAL_BIT and self._aborted.has(producer_id):
                _empty(row[np.newaxis], np.ones(1, np.bool_))

    def _is_abort_marker(self, row: Int64s) -> bool:
        if row[Column.ATTRIBUTES] & CODEC_BITS:
            records = memoryview(self._decompressed(row))
        else:
            records = self._records[row[Column.START] : row[Column.END]]
        try:
            return is_abort_marker(records)
        except Wrong as wrong:
            raise CorruptBatch(int(row[Column.BASE_OFFSET]), wrong.fault) from None

    def _decompressed(self, row: Int64s) -> bytes:
        base_offset = int(row[Column.BASE_OFFSET])
        compressed = self._records[row[Column.START] : row[Column.END]]
        most_bytes = self._limits.most_batch_bytes
        try:
            return decompress(int(row[Column.ATTRIBUTES]) & CODEC_BITS, compressed, most_bytes)
        except TooManyBytes:
            raise BatchTooLarge(base_offset, most_bytes) from None
        except DamagedRecords as error:
            raise CorruptBatch(base_offset, None) from error

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
            raise _fault_of_records(table, measured)
        rows = ArrowRows(self._columns, measured)
        self._kernel.fill_columns(sources, table, *wanted, measured[Total.RECORDS], rows.row_count, rows.buffers)
        self._ready.drop_read()
        return rows.record_batch() if rows.row_count else None

    def _fault_of_header(self) -> Undecodable:
        """The error for the batch at the position of the scan."""
        fault, position = Fault(self._state[State.FAULT]), self.used_bytes
        base_offset = int.from_bytes(self._records[position : position + 8], "big", signed=True)
        if fault is Fault.OLD_FORMAT:
            return OldFormat(base_offset, self._records[position + 16])
        return CorruptBatch(base_offset, fault)


def _fault_of_records(table: Int64s, totals: Sequence[int]) -> Undecodable:
    fault, base_offset = Fault(totals[Total.FAULT]), int(table[totals[Total.FAULT_BATCH], Column.BASE_OFFSET])
    return TimestampOutOfRange(base_offset) if fault is Fault.TIMESTAMP else CorruptBatch(base_offset, fault)


def _is_compressed(table: Int64s) -> Int64s:
    """Return the nonzero number of each batch that must be decompressed."""
    compressed: Int64s = (table[:, Column.ATTRIBUTES] & CODEC_BITS) * (table[:, Column.RECORD_COUNT] > 0)
    return compressed


def _empty(table: Int64s, which: np.typing.NDArray[np.bool_]) -> None:
    """Leave these batches without a record to read; they still advance the offset."""
    table[which, Column.RECORD_COUNT] = 0
    table[which, Column.END] = table[which, Column.START]


class _ReadyBatches:
    """Batches whose records can be read: their rows of the table, and the bytes that these are about."""

    def __init__(self, records: memoryview) -> None:
        self.sources: tuple[Buffer, ...] = (records,)
        self._tables: list[Int64s] = []
        self.record_count = 0
        self.size_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._tables)

    @property
    def next_offset(self) -> int | None:
        return int(self._tables[0][0, Column.NEXT_OFFSET]) if self._tables else None

    def add(self, table: Int64s) -> None:
        """Add batches whose records are in the record set."""
        self._tables.append(table)
        self._count(table)

    def add_decompressed(self, table: Int64s, records: bytes) -> None:
        """Add one batch."""
        table[0, Column.SOURCE], table[0, Column.START], table[0, Column.END] = len(self.sources), 0, len(records)
        self.sources = (*self.sources, records)
        self.add(table)

    def table(self) -> Int64s:
        """Return all batches as one table, which stays this object's."""
        if len(self._tables) > 1:
            self._tables = [np.concatenate(self._tables)]
        return self._tables[0]

    def drop_read(self) -> None:
        """Forget the batches that have no records left, and what was decompressed for them."""
        table = self.table()
        unread = np.flatnonzero(table[:, Column.RECORD_COUNT])
        rest = table[unread[0] :] if len(unread) else table[:0]
        # The record set is the first source. Others are in the order of their batches.
        used = rest[:, Column.SOURCE]
        first = int(used[used > 0].min(initial=len(self.sources)))
        self.sources = (self.sources[0], *self.sources[first:])
        used[used > 0] -= first - 1
        self._tables = [rest] if len(rest) else []
        self.record_count = self.size_bytes = 0
        self._count(rest)

    def _count(self, table: Int64s) -> None:
        self.record_count += int(table[:, Column.RECORD_COUNT].sum())
        self.size_bytes += int((table[:, Column.END] - table[:, Column.START]).sum())

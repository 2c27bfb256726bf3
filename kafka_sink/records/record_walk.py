"""The decoder's three functions without a compiler: a plain loop over records, in Python.

Scope: the same functions as in `_decoder.c`, with the same arguments, the same rows and the same faults. batch_table.py
describes table, totals and faults. Each record says where the next one begins, so there is no way to read them by
column: a record takes some microseconds. The kernel takes hundredths of that.

Source: DefaultRecordBatch, DefaultRecord.readFrom, ByteUtils.readVarint.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from crc32c import crc32c
from typing_extensions import Buffer

from kafka_sink.records.batch_table import LOG_APPEND_TIME_BIT, Column, Fault, Int64s, State, Total
from kafka_sink.records.record_batch import HEADER_BYTES, MAGIC

# validity (None: no nulls), offsets, data
BinaryBuffers = tuple[pa.Buffer | None, pa.Buffer, pa.Buffer]
# validity (None: no nulls), offsets of the rows in the headers, keys, values
HeaderBuffers = tuple[pa.Buffer | None, pa.Buffer, BinaryBuffers, BinaryBuffers]
# key, value, offset, timestamp, timestamp type, headers; None: not wanted
ColumnBuffers = tuple[
    BinaryBuffers | None,
    BinaryBuffers | None,
    pa.Buffer | None,
    pa.Buffer | None,
    pa.Buffer | None,
    HeaderBuffers | None,
]
Field = memoryview | None

VARINT_BYTES = 5
VARLONG_BYTES = 10
MICROS_PER_MILLI = 1000
_INT64_MAX = 2**63 - 1

# record_batch.py has the layout.
_HEADER = struct.Struct(">qi4xBIHiqqq2x4xi")
_LENGTH_END = 12
_MAGIC_END = 17
_CRC_END = 21


class Wrong(Exception):
    """A fault was found while records were read."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault


# --- scan -------------------------------------------------------------------------------------------------------------


def scan_batches(
    records: Buffer, state: Int64s, end_offset: int, most_bytes: int, checks_crc: bool, table: Int64s
) -> int:
    """Write a row of `table` for each whole batch from the position of `state` on. Return the number of rows.

    Moves `state` behind them. Stops at the first batch from `end_offset` on, when the table is full, and after
    `most_bytes` (at least one batch is read).
    """
    data = _bytes(records)
    position, next_offset = int(state[State.POSITION]), int(state[State.NEXT_OFFSET])
    first, count = position, 0
    try:
        while count < len(table) and position - first < most_bytes:
            size = _batch_size(data, position)
            if size == 0:
                break
            if _base_offset(data, position) >= end_offset:
                next_offset = max(next_offset, end_offset)
                break
            batch = data[position : position + size]
            row = _row(batch, checks_crc)
            if row[Column.BASE_OFFSET] < next_offset:
                raise Wrong(Fault.OFFSETS)
            table[count] = (*row, 0, position + HEADER_BYTES, position + size)
            count += 1
            next_offset = row[Column.LAST_OFFSET] + 1
            position += size
    except Wrong as wrong:
        state[State.FAULT] = wrong.fault
    state[State.POSITION], state[State.NEXT_OFFSET] = position, next_offset
    return count


def _bytes(buffer: Buffer) -> memoryview:
    return memoryview(buffer).cast("B")


def _base_offset(data: memoryview, position: int) -> int:
    return int.from_bytes(data[position : position + 8], "big", signed=True)


def _batch_size(data: memoryview, position: int) -> int:
    """Return the bytes of the batch at `position`, or 0 if it is cut off."""
    left = len(data) - position
    if left < _MAGIC_END:
        return 0
    magic = data[position + _MAGIC_END - 1]
    if magic != MAGIC:
        raise Wrong(Fault.OLD_FORMAT if magic < MAGIC else Fault.MAGIC)
    length = int.from_bytes(data[position + 8 : position + _LENGTH_END], "big", signed=True)
    if length < HEADER_BYTES - _LENGTH_END:
        raise Wrong(Fault.SIZE)
    return length + _LENGTH_END if length <= left - _LENGTH_END else 0


def _row(batch: memoryview, checks_crc: bool) -> tuple[int, ...]:
    """Return the columns of the table up to RECORD_COUNT."""
    fields: tuple[int, ...] = _HEADER.unpack_from(batch)
    base_offset, _, _, crc, attributes, delta, base_timestamp, max_timestamp, producer_id, count = fields
    if checks_crc and crc32c(batch[_CRC_END:]) != crc:
        raise Wrong(Fault.CRC)
    if base_offset < 0 or delta < 0 or base_offset >= _INT64_MAX - delta:
        raise Wrong(Fault.OFFSETS)
    if count < 0 or (count == 0 and len(batch) > HEADER_BYTES):
        raise Wrong(Fault.COUNT)
    last_offset = base_offset + delta
    return base_offset, last_offset, base_offset, attributes, base_timestamp, max_timestamp, producer_id, count


# --- records ----------------------------------------------------------------------------------------------------------


class Record(NamedTuple):
    """`headers`: where the first header begins. `end`: one past the record's last byte."""

    timestamp_delta: int
    offset_delta: int
    key: Field
    value: Field
    header_count: int
    headers: int
    end: int


def read_varint(data: memoryview, at: int, end: int, most_bytes: int = VARINT_BYTES) -> tuple[int, int]:
    """Return the varint at `at`, and one past its last byte."""
    zigzag = shift = 0
    for place in range(at, min(end, at + most_bytes)):
        byte = data[place]
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            if zigzag >> (32 if most_bytes == VARINT_BYTES else 64):
                break
            return (zigzag >> 1) ^ -(zigzag & 1), place + 1
        shift += 7
    raise Wrong(Fault.RECORD)


def _read_field(data: memoryview, at: int, end: int) -> tuple[Field, int]:
    length, at = read_varint(data, at, end)
    if length < -1 or length > end - at:
        raise Wrong(Fault.RECORD)
    return (None, at) if length < 0 else (data[at : at + length], at + length)


def read_record(data: memoryview, at: int, end: int) -> Record:
    """Return the record at `at`. Raises Wrong if its lengths do not fit it."""
    length, at = read_varint(data, at, end)
    if length < 1 or length > end - at:
        raise Wrong(Fault.RECORD)
    end = at + length
    timestamp_delta, at = read_varint(data, at + 1, end, VARLONG_BYTES)
    offset_delta, at = read_varint(data, at, end)
    key, at = _read_field(data, at, end)
    value, at = _read_field(data, at, end)
    header_count, at = read_varint(data, at, end)
    if header_count < 0 or (header_count == 0 and at != end):
        raise Wrong(Fault.RECORD)
    return Record(timestamp_delta, offset_delta, key, value, header_count, at, end)


def _read_headers(data: memoryview, record: Record) -> Iterator[tuple[memoryview, Field]]:
    at = record.headers
    for _ in range(record.header_count):
        key, at = _read_field(data, at, record.end)
        if key is None:
            raise Wrong(Fault.RECORD)
        value, at = _read_field(data, at, record.end)
        yield key, value
    if at != record.end:
        raise Wrong(Fault.RECORD)


class _Batch:
    """The records of a row of the table that are left to read."""

    def __init__(self, sources: Sequence[memoryview], row: Int64s) -> None:
        numbers: list[int] = row.tolist()
        self.data = sources[numbers[Column.SOURCE]]
        self.at, self.end = numbers[Column.START], numbers[Column.END]
        self.left = numbers[Column.RECORD_COUNT]
        self.next_offset = numbers[Column.NEXT_OFFSET]
        self._base_offset, self._last_offset = numbers[Column.BASE_OFFSET], numbers[Column.LAST_OFFSET]
        self._base_timestamp, self._max_timestamp = numbers[Column.BASE_TIMESTAMP], numbers[Column.MAX_TIMESTAMP]
        self.has_append_time = bool(numbers[Column.ATTRIBUTES] & LOG_APPEND_TIME_BIT)

    def next(self) -> tuple[Record, int]:
        """Return the next record and its offset."""
        if self.at == self.end:
            raise Wrong(Fault.COUNT)
        record = read_record(self.data, self.at, self.end)
        offset = self._base_offset + record.offset_delta
        if not self.next_offset <= offset <= self._last_offset:
            raise Wrong(Fault.OFFSETS)
        self.at, self.next_offset = record.end, offset + 1
        self.left -= 1
        return record, offset

    def micros(self, record: Record) -> int:
        """Return Spark's microseconds of Kafka's milliseconds."""
        millis = self._max_timestamp if self.has_append_time else self._base_timestamp + record.timestamp_delta
        micros = millis * MICROS_PER_MILLI
        if not -_INT64_MAX - 1 <= micros <= _INT64_MAX:
            raise Wrong(Fault.TIMESTAMP)
        return micros


# --- measure ----------------------------------------------------------------------------------------------------------


def measure_records(
    sources: tuple[Buffer, ...],
    table: Int64s,
    first_offset: int,
    end_offset: int,
    most_rows: int,
    most_bytes: int,
    checks_timestamps: bool,
    totals: Int64s,
) -> None:
    """Write into `totals` (batch_table.Total) what the records of the table's batches need, up to a limit.

    Wanted are records with `first_offset` <= offset < `end_offset`: at most `most_rows`, and no more than `most_bytes`
    of records unless it is one record.
    """
    views = [_bytes(source) for source in sources]
    counted = [0] * len(Total)
    size_bytes = 0
    for place, row in enumerate(table):
        batch = _Batch(views, row)
        try:
            while batch.left > 0:
                start = batch.at
                record, offset = batch.next()
                if first_offset <= offset < end_offset:
                    size = batch.at - start
                    rows = counted[Total.ROWS]
                    if rows >= most_rows or (rows > 0 and size_bytes + size > most_bytes):
                        totals[:] = counted
                        return
                    _count(batch, record, counted, checks_timestamps)
                    size_bytes += size
                counted[Total.RECORDS] += 1
            if batch.at != batch.end:
                raise Wrong(Fault.COUNT)
        except Wrong as wrong:
            counted[Total.FAULT], counted[Total.FAULT_BATCH] = wrong.fault, place
            break
    totals[:] = counted


def _count(batch: _Batch, record: Record, counted: list[int], checks_timestamps: bool) -> None:
    for key, value in _read_headers(batch.data, record):
        counted[Total.HEADER_KEY_BYTES] += len(key)
        counted[Total.NULL_HEADER_VALUES] += value is None
        counted[Total.HEADER_VALUE_BYTES] += len(value or b"")
    if checks_timestamps:
        batch.micros(record)
    counted[Total.ROWS] += 1
    counted[Total.HEADERS] += record.header_count
    counted[Total.NULL_HEADERS] += record.header_count == 0
    counted[Total.NULL_KEYS] += record.key is None
    counted[Total.KEY_BYTES] += len(record.key or b"")
    counted[Total.NULL_VALUES] += record.value is None
    counted[Total.VALUE_BYTES] += len(record.value or b"")


# --- fill -------------------------------------------------------------------------------------------------------------


def fill_columns(
    sources: tuple[Buffer, ...],
    table: Int64s,
    first_offset: int,
    end_offset: int,
    record_count: int,
    row_count: int,
    columns: ColumnBuffers,
) -> None:
    """Write the rows of the table's next `record_count` records into `columns`, and move the table behind them.

    `row_count`, and the sizes of the buffers: as measured for the same records and range.
    """
    views = [_bytes(source) for source in sources]
    rows: list[tuple[Record, int, int, int, list[tuple[memoryview, Field]]]] = []
    wants_timestamps, wants_headers = columns[3] is not None, columns[5] is not None
    left = record_count
    for numbers in table:
        batch = _Batch(views, numbers)
        while batch.left > 0 and left > 0:
            record, offset = batch.next()
            left -= 1
            if first_offset <= offset < end_offset:
                micros = batch.micros(record) if wants_timestamps else 0
                headers = list(_read_headers(batch.data, record)) if wants_headers else []
                rows.append((record, offset, micros, int(batch.has_append_time), headers))
        numbers[Column.START], numbers[Column.RECORD_COUNT] = batch.at, batch.left
        numbers[Column.NEXT_OFFSET] = batch.next_offset
        if batch.left > 0:
            break
    key, value, offset_column, timestamp, timestamp_type, header_columns = columns
    _put_fields(key, [record.key for record, *_ in rows])
    _put_fields(value, [record.value for record, *_ in rows])
    _put_numbers(offset_column, np.int64, [offset for _, offset, *_ in rows])
    _put_numbers(timestamp, np.int64, [micros for _, _, micros, *_ in rows])
    _put_numbers(timestamp_type, np.int32, [kind for *_, kind, _ in rows])
    if header_columns is not None:
        validity, offsets, header_key, header_value = header_columns
        lists = [headers for *_, headers in rows]
        _put_validity(validity, [bool(each) for each in lists])
        _put_numbers(offsets, np.int32, np.cumsum([0, *map(len, lists)]).tolist())
        _put_fields(header_key, [key for each in lists for key, _ in each])
        _put_fields(header_value, [value for each in lists for _, value in each])


def _put_fields(buffers: BinaryBuffers | None, fields: Sequence[Field]) -> None:
    if buffers is None:
        return
    validity, offsets, data = buffers
    _put_validity(validity, [field is not None for field in fields])
    _put_numbers(offsets, np.int32, np.cumsum([0, *(len(field or b"") for field in fields)]).tolist())
    _bytes(data)[:] = b"".join(field for field in fields if field is not None)


def _put_validity(validity: pa.Buffer | None, is_valid: Sequence[bool]) -> None:
    if validity is not None:
        _bytes(validity)[:] = np.packbits(np.array(is_valid, np.bool_), bitorder="little").tobytes()


def _put_numbers(buffer: pa.Buffer | None, dtype: type[np.signedinteger], numbers: Sequence[int]) -> None:
    if buffer is not None:
        _bytes(buffer)[:] = np.array(numbers, dtype).tobytes()

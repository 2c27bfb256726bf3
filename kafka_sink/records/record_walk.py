"""The decoder's three functions without a compiler: a plain loop over records, in Python.

Scope: the same functions as in `_decoder.c`, with the same arguments, the same rows and the same faults. batch_table.py
describes table, totals and faults. Each record says where the next one begins, so there is no way to read them by
column: a record takes some microseconds. The kernel takes hundredths of that.

Source: DefaultRecordBatch, DefaultRecord.readFrom, ByteUtils.readVarint.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import Buffer

from kafka_sink.records.batch_table import LOG_APPEND_TIME_BIT, Column, Fault, Int64s, State, Total
from kafka_sink.records.record_batch import HEADER_BYTES, MAGIC, crc32c

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

ATTRIBUTES_BYTES = 1
NULL_LENGTH = -1
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

    Moves `state` behind them. Stops where all before `end_offset` was read, when the table is full, and after
    `most_bytes` (at least one batch is read).
    """
    data = _bytes(records)
    position, next_offset = int(state[State.POSITION]), int(state[State.NEXT_OFFSET])
    first, count = position, 0
    try:
        while count < len(table) and position - first < most_bytes and next_offset < end_offset:
            size = _batch_size(data, position)
            if size and not _begins_before(data, position, end_offset):
                next_offset = end_offset
                break
            row = _row(data[position : position + size], checks_crc) if size else None
            if _begins_before(data, position, next_offset):
                raise Wrong(Fault.OFFSETS)
            if row is None:
                break
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


def _begins_before(data: memoryview, position: int, offset: int) -> bool:
    """Return whether a batch at `position` begins before `offset`, as far as its header is there."""
    if len(data) - position < _MAGIC_END or data[position + _MAGIC_END - 1] != MAGIC:
        return False
    return int.from_bytes(data[position : position + 8], "big", signed=True) < offset


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
    """Where the parts of a record are. A null has the length -1. `headers_at`: the first header. `end`: one past the
    record's last byte."""

    timestamp_delta: int
    offset_delta: int
    key_at: int
    key_length: int
    value_at: int
    value_length: int
    header_count: int
    headers_at: int
    end: int


def read_varint(data: memoryview, at: int, most_bytes: int = VARINT_BYTES) -> tuple[int, int]:
    """Return the varint at `at`, and one past its last byte. Raises IndexError behind the data."""
    zigzag = shift = 0
    for place in range(at, at + most_bytes):
        byte = data[place]
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            if zigzag >> (32 if most_bytes == VARINT_BYTES else 64):
                break
            return (zigzag >> 1) ^ -(zigzag & 1), place + 1
        shift += 7
    raise Wrong(Fault.RECORD)


def _read_length(data: memoryview, at: int) -> tuple[int, int]:
    """Return the length of a key or value, and where its bytes begin."""
    byte = data[at]
    length, at = ((byte >> 1) ^ -(byte & 1), at + 1) if byte < 0x80 else read_varint(data, at)
    if length < NULL_LENGTH:
        raise Wrong(Fault.RECORD)
    return length, at


def read_record(data: memoryview, at: int, end: int) -> Record:
    """Return the record at `at`, of a batch that ends at `end`. Raises Wrong if its lengths do not fit it.

    Parts may be read behind the record's end at first. They are then compared with it: positions only grow.
    """
    try:
        length, at = read_varint(data, at)
        if not 1 <= length <= end - at:
            raise Wrong(Fault.RECORD)
        end = at + length
        timestamp_delta, at = read_varint(data, at + ATTRIBUTES_BYTES, VARLONG_BYTES)
        offset_delta, at = read_varint(data, at)
        key_length, key_at = _read_length(data, at)
        value_length, value_at = _read_length(data, key_at + max(key_length, 0))
        header_count, headers_at = read_varint(data, value_at + max(value_length, 0))
    except IndexError:
        raise Wrong(Fault.RECORD) from None
    if header_count < 0 or headers_at > end or (header_count == 0 and headers_at != end):
        raise Wrong(Fault.RECORD)
    return Record(
        timestamp_delta, offset_delta, key_at, key_length, value_at, value_length, header_count, headers_at, end
    )


def _read_headers(data: memoryview, record: Record) -> Iterator[tuple[int, int, int, int]]:
    """Yield where each header's key and value begin, and their lengths: at, length, at, length."""
    at, end = record.headers_at, record.end
    try:
        for _ in range(record.header_count):
            key_length, key_at = _read_length(data, at)
            value_length, value_at = _read_length(data, key_at + max(key_length, 0))
            at = value_at + max(value_length, 0)
            if key_length == NULL_LENGTH or at > end:
                raise Wrong(Fault.RECORD)
            yield key_at, key_length, value_at, value_length
    except IndexError:
        raise Wrong(Fault.RECORD) from None
    if at != end:
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

    def millis(self, record: Record) -> int:
        return self._max_timestamp if self.has_append_time else self._base_timestamp + record.timestamp_delta

    def micros(self, record: Record) -> int:
        """Return Spark's microseconds of Kafka's milliseconds."""
        micros = self.millis(record) * MICROS_PER_MILLI
        if not -_INT64_MAX - 1 <= micros <= _INT64_MAX:
            raise Wrong(Fault.TIMESTAMP)
        return micros


def first_unreadable_timestamp(source: memoryview, row: Int64s, first_offset: int) -> tuple[int, int]:
    """Return offset and timestamp (ms) of the batch's first wanted record whose microseconds do not fit into 64 bits.
    The batch has one."""
    numbers = row.copy()
    numbers[Column.SOURCE] = 0
    batch = _Batch([source], numbers)
    while True:
        record, offset = batch.next()
        try:
            batch.micros(record)
        except Wrong:
            if offset >= first_offset:
                return offset, batch.millis(record)


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
    totals[:] = 0
    keys, values, header_keys, header_values = _Lengths(), _Lengths(), _Lengths(), _Lengths()
    without_headers = record_count = size_bytes = 0
    for place, row in enumerate(table):
        batch = _Batch(views, row)
        is_full = False
        try:
            while batch.left > 0:
                start = batch.at
                record, offset = batch.next()
                if first_offset <= offset < end_offset:
                    size = batch.at - start
                    rows = len(keys.found)
                    is_full = rows >= most_rows or (rows > 0 and size_bytes + size > most_bytes)
                    if is_full:
                        break
                    if record.header_count == 0:
                        without_headers += 1
                    else:
                        for _, key_length, _, value_length in _read_headers(batch.data, record):
                            header_keys.found.append(key_length)
                            header_values.found.append(value_length)
                    if checks_timestamps:
                        batch.micros(record)
                    size_bytes += size
                    keys.found.append(record.key_length)
                    values.found.append(record.value_length)
                record_count += 1
            else:
                if batch.at != batch.end:
                    raise Wrong(Fault.COUNT)
        except Wrong as wrong:
            totals[Total.FAULT], totals[Total.FAULT_BATCH] = wrong.fault, place
            break
        if is_full:
            break
    totals[: Total.FAULT] = (
        record_count, len(keys.found), keys.nulls, keys.size_bytes, values.nulls, values.size_bytes, without_headers,
        len(header_keys.found), header_keys.size_bytes, header_values.nulls, header_values.size_bytes,
    )  # fmt: skip


class _Lengths:
    """The lengths of a column's values."""

    def __init__(self) -> None:
        self.found: list[int] = []

    @property
    def nulls(self) -> int:
        return self.found.count(NULL_LENGTH)

    @property
    def size_bytes(self) -> int:
        return sum(self.found) + self.nulls


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
    key, value, offset_column, timestamp, timestamp_type, header_columns = columns
    keys, values, header_keys, header_values = _Fields(), _Fields(), _Fields(), _Fields()
    offsets: list[int] = []
    micros: list[int] = []
    types: list[int] = []
    header_counts: list[int] = []
    left = record_count
    for numbers in table:
        batch = _Batch(views, numbers)
        while batch.left > 0 and left > 0:
            record, offset = batch.next()
            left -= 1
            if not first_offset <= offset < end_offset:
                continue
            offsets.append(offset)
            types.append(batch.has_append_time)
            keys.add(batch.data, record.key_at, record.key_length)
            values.add(batch.data, record.value_at, record.value_length)
            if timestamp is not None:
                micros.append(batch.micros(record))
            if header_columns is not None:
                header_counts.append(record.header_count)
                for key_at, key_length, value_at, value_length in _read_headers(batch.data, record):
                    header_keys.add(batch.data, key_at, key_length)
                    header_values.add(batch.data, value_at, value_length)
        numbers[Column.START], numbers[Column.RECORD_COUNT] = batch.at, batch.left
        numbers[Column.NEXT_OFFSET] = batch.next_offset
        if batch.left > 0:
            break
    keys.put(key)
    values.put(value)
    _put_numbers(offset_column, np.int64, offsets)
    _put_numbers(timestamp, np.int64, micros)
    _put_numbers(timestamp_type, np.int32, types)
    if header_columns is not None:
        validity, header_offsets, header_key, header_value = header_columns
        _put_validity(validity, np.array(header_counts) > 0)
        _put_numbers(header_offsets, np.int32, np.cumsum([0, *header_counts]))
        header_keys.put(header_key)
        header_values.put(header_value)


class _Fields:
    """A binary column while its values are found."""

    def __init__(self) -> None:
        self._lengths: list[int] = []
        self._data = bytearray()

    def add(self, data: memoryview, at: int, length: int) -> None:
        self._lengths.append(length)
        if length > 0:
            self._data += data[at : at + length]

    def put(self, buffers: BinaryBuffers | None) -> None:
        """Write the column, if it is wanted."""
        if buffers is None:
            return
        validity, offsets, data = buffers
        lengths = np.array(self._lengths, np.int64)
        _put_validity(validity, lengths != NULL_LENGTH)
        _put_numbers(offsets, np.int32, np.cumsum([0, *np.maximum(lengths, 0)]))
        _bytes(data)[:] = self._data


def _put_validity(validity: pa.Buffer | None, is_valid: npt.NDArray[np.bool_]) -> None:
    if validity is not None:
        _bytes(validity)[:] = np.packbits(is_valid, bitorder="little").tobytes()


def _put_numbers(buffer: pa.Buffer | None, dtype: type[np.signedinteger[Any]], numbers: Sequence[int] | Int64s) -> None:
    if buffer is not None:
        _bytes(buffer)[:] = np.array(numbers, dtype).tobytes()

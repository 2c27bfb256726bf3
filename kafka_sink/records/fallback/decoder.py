"""Record batches to Arrow columns: a plain loop over records, in Python.

The same functions as in `_decoder.c`, with the same arguments, the same rows and the same faults. batch_table.py
describes table, totals and faults. A record takes some microseconds, the kernel takes hundredths of that.

Source: DefaultRecordBatch.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from typing_extensions import Buffer

from kafka_sink.records.arrow_rows import BinaryBuffers, ColumnBuffers
from kafka_sink.records.batch_table import Column, Fault, Int64s, State, Total
from kafka_sink.records.record_batch import COVERED_AT, CRC_AT, HEADER_BYTES, LENGTH_END, MAGIC, MAGIC_AT, crc32c
from kafka_sink.records.record_size import NULL_LENGTH
from kafka_sink.records.record_walk import BatchWalk, Wrong, read_headers

_INT64_MAX = 2**63 - 1

# record_batch.py has the layout.
_HEADER = struct.Struct(">qi4xBIHiqqq2x4xi")


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
    if len(data) - position < CRC_AT or data[position + MAGIC_AT] != MAGIC:
        return False
    return int.from_bytes(data[position : position + 8], "big", signed=True) < offset


def _batch_size(data: memoryview, position: int) -> int:
    """Return the bytes of the batch at `position`, or 0 if it is cut off."""
    left = len(data) - position
    if left < CRC_AT:
        return 0
    magic = data[position + MAGIC_AT]
    if magic != MAGIC:
        raise Wrong(Fault.OLD_FORMAT if magic < MAGIC else Fault.MAGIC)
    length = int.from_bytes(data[position + 8 : position + LENGTH_END], "big", signed=True)
    if length < HEADER_BYTES - LENGTH_END:
        raise Wrong(Fault.SIZE)
    return length + LENGTH_END if length <= left - LENGTH_END else 0


def _row(batch: memoryview, checks_crc: bool) -> tuple[int, ...]:
    """Return the columns of the table up to RECORD_COUNT."""
    fields: tuple[int, ...] = _HEADER.unpack_from(batch)
    base_offset, _, _, crc, attributes, delta, base_timestamp, max_timestamp, producer_id, count = fields
    if checks_crc and crc32c(batch[COVERED_AT:]) != crc:
        raise Wrong(Fault.CRC)
    if base_offset < 0 or delta < 0 or base_offset >= _INT64_MAX - delta:
        raise Wrong(Fault.OFFSETS)
    if count < 0 or (count == 0 and len(batch) > HEADER_BYTES):
        raise Wrong(Fault.COUNT)
    last_offset = base_offset + delta
    return base_offset, last_offset, base_offset, attributes, base_timestamp, max_timestamp, producer_id, count


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
        batch = BatchWalk(views, row)
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
                        for _, key_length, _, value_length in read_headers(batch.data, record):
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
        batch = BatchWalk(views, numbers)
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
                for key_at, key_length, value_at, value_length in read_headers(batch.data, record):
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

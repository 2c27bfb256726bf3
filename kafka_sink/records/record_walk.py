"""The records of a batch, one after the other, in Python: where each part of a record is, and what is wrong with it.

Each record says where the next one begins, so there is no way to read them by column. The kernel reads all rows.
Beside it this walk reads control records, and names the record that an error is about.

Source: DefaultRecord.readFrom, ByteUtils.readVarint.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kafka_sink.records.batch_table import LOG_APPEND_TIME_BIT, Column, Fault, Int64s
from kafka_sink.records.record_size import ATTRIBUTES_BYTES, NULL_LENGTH

VARINT_BYTES = 5
VARLONG_BYTES = 10
MICROS_PER_MILLI = 1000
_INT64_MAX = 2**63 - 1


class Wrong(Exception):
    """A fault was found while records were read."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault


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


def read_varint(data: memoryview | bytes, at: int, most_bytes: int = VARINT_BYTES) -> tuple[int, int]:
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


def read_length(data: memoryview | bytes, at: int) -> tuple[int, int]:
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
        key_length, key_at = read_length(data, at)
        value_length, value_at = read_length(data, key_at + max(key_length, 0))
        header_count, headers_at = read_varint(data, value_at + max(value_length, 0))
    except IndexError:
        raise Wrong(Fault.RECORD) from None
    if header_count < 0 or headers_at > end or (header_count == 0 and headers_at != end):
        raise Wrong(Fault.RECORD)
    return Record(
        timestamp_delta, offset_delta, key_at, key_length, value_at, value_length, header_count, headers_at, end
    )


def read_headers(data: memoryview, record: Record) -> Iterator[tuple[int, int, int, int]]:
    """Yield where each header's key and value begin, and their lengths: at, length, at, length."""
    at, end = record.headers_at, record.end
    try:
        for _ in range(record.header_count):
            key_length, key_at = read_length(data, at)
            value_length, value_at = read_length(data, key_at + max(key_length, 0))
            at = value_at + max(value_length, 0)
            if key_length == NULL_LENGTH or at > end:
                raise Wrong(Fault.RECORD)
            yield key_at, key_length, value_at, value_length
    except IndexError:
        raise Wrong(Fault.RECORD) from None
    if at != end:
        raise Wrong(Fault.RECORD)


class BatchWalk:
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
    batch = BatchWalk([source], numbers)
    while True:
        record, offset = batch.next()
        try:
            batch.micros(record)
        except Wrong:
            if offset >= first_offset:
                return offset, batch.millis(record)

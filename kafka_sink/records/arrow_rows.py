"""The Arrow columns of decoded records: their types, memory of the size that was measured, and the arrays over it.

Scope: the types are those that Spark's Kafka source gives, in the form in which Spark takes Arrow data. Topic and
partition are the same in all rows of a record set, so they are not made here: a caller slices a constant array.

Source: KafkaRecordToRowConverter. A record without headers has null instead of an empty list. Header keys are what
Java makes of bytes that are no UTF-8: U+FFFD for each part that is wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa

from kafka_sink.records.batch_table import Total

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

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TYPES: Mapping[str, pa.DataType] = MappingProxyType({
    "key": pa.binary(),
    "value": pa.binary(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestampType": pa.int32(),
    "headers": HEADERS,
})  # fmt: skip

_NO_COLUMNS: ColumnBuffers = (None, None, None, None, None, None)


class ArrowRows:
    """Memory for rows, which `fill_columns` writes, and the record batch that it then is.

    `totals`: of `measure_records`. `columns`: names of TYPES, in the order of the result.
    """

    def __init__(self, columns: Sequence[str], totals: Sequence[int]) -> None:
        self._columns = columns
        self.row_count = rows = totals[Total.ROWS]
        self._totals = totals
        self.buffers = _NO_COLUMNS if rows == 0 else self._allocate(rows, frozenset(columns), totals)

    @staticmethod
    def _allocate(rows: int, wanted: Collection[str], totals: Sequence[int]) -> ColumnBuffers:
        return (
            _binary(rows, totals[Total.NULL_KEYS], totals[Total.KEY_BYTES]) if "key" in wanted else None,
            _binary(rows, totals[Total.NULL_VALUES], totals[Total.VALUE_BYTES]) if "value" in wanted else None,
            pa.allocate_buffer(8 * rows) if "offset" in wanted else None,
            pa.allocate_buffer(8 * rows) if "timestamp" in wanted else None,
            pa.allocate_buffer(4 * rows) if "timestampType" in wanted else None,
            _headers(rows, totals) if "headers" in wanted else None,
        )

    def record_batch(self) -> pa.RecordBatch:
        """Return the rows, at least one. All buffers must have been written."""
        rows, totals = self.row_count, self._totals
        key, value, offset, timestamp, timestamp_type, headers = self.buffers
        arrays = {
            "key": key and _array(TYPES["key"], rows, key, totals[Total.NULL_KEYS]),
            "value": value and _array(TYPES["value"], rows, value, totals[Total.NULL_VALUES]),
            "offset": offset and pa.Array.from_buffers(TYPES["offset"], rows, [None, offset], null_count=0),
            "timestamp": timestamp and pa.Array.from_buffers(TYPES["timestamp"], rows, [None, timestamp], null_count=0),
            "timestampType": timestamp_type
            and pa.Array.from_buffers(TYPES["timestampType"], rows, [None, timestamp_type], null_count=0),
            "headers": headers and _header_lists(rows, headers, totals),
        }
        return pa.RecordBatch.from_arrays([arrays[name] for name in self._columns], names=list(self._columns))


def _validity(rows: int, nulls: int) -> pa.Buffer | None:
    return pa.allocate_buffer((rows + 7) // 8) if nulls else None


def _binary(rows: int, nulls: int, size_bytes: int) -> BinaryBuffers:
    return _validity(rows, nulls), pa.allocate_buffer(4 * (rows + 1)), pa.allocate_buffer(size_bytes)


def _headers(rows: int, totals: Sequence[int]) -> HeaderBuffers:
    entries = totals[Total.HEADERS]
    return (
        _validity(rows, totals[Total.NULL_HEADERS]),
        pa.allocate_buffer(4 * (rows + 1)),
        _binary(entries, 0, totals[Total.HEADER_KEY_BYTES]),
        _binary(entries, totals[Total.NULL_HEADER_VALUES], totals[Total.HEADER_VALUE_BYTES]),
    )


def _array(arrow_type: pa.DataType, rows: int, buffers: BinaryBuffers, nulls: int) -> pa.Array:
    return pa.Array.from_buffers(arrow_type, rows, list(buffers), null_count=nulls)


def _header_lists(rows: int, buffers: HeaderBuffers, totals: Sequence[int]) -> pa.Array:
    validity, offsets, key, value = buffers
    entries = totals[Total.HEADERS]
    keys = _strings(_array(pa.binary(), entries, key, 0))
    values = _array(pa.binary(), entries, value, totals[Total.NULL_HEADER_VALUES])
    structs = pa.StructArray.from_arrays([keys, values], fields=list(HEADERS.value_type))
    return pa.Array.from_buffers(
        HEADERS, rows, [validity, offsets], null_count=totals[Total.NULL_HEADERS], children=[structs]
    )


def _strings(texts: pa.Array) -> pa.Array:
    try:
        return texts.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([text.decode("utf-8", "replace") for text in texts.to_pylist()], pa.string())

"""Rows as lists say them, the same rows as checked columns of some choice of Arrow types, and the bytes they are.

A case is a list of rows, made into an Arrow batch with rows cut off at both ends, so that offsets are not 0.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from hypothesis import strategies as st

from kafka_sink.records.columns import RecordColumns

Int64s = npt.NDArray[np.int64]
Header = tuple[bytes, bytes | None]


@dataclass(frozen=True)
class Row:
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] | None
    timestamp_ms: int


def varint(value: int) -> bytes:
    rest = ((value << 1) ^ (value >> 63)) & (2**64 - 1)
    encoded = bytearray()
    while rest & ~0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*encoded, rest])


def field(data: bytes | None) -> bytes:
    return varint(-1) if data is None else varint(len(data)) + data


def scalar_record(row: Row, offset_delta: int, timestamp_delta: int) -> bytes:
    """DefaultRecord.writeTo."""
    headers = row.headers or ()
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta) + field(row.key) + field(row.value)
    body += varint(len(headers)) + b"".join(field(key) + field(value) for key, value in headers)
    return varint(len(body)) + body


# Valid UTF-8, so that every type can hold it; the long ones need two and three bytes of length.
TEXT = st.one_of(st.text(max_size=12), st.sampled_from([63, 64, 130, 8192]).map(lambda n: "x" * n)).map(str.encode)
MAYBE_TEXT = st.one_of(st.none(), TEXT)
TIMESTAMPS_MS = st.integers(0, 253_402_300_799_999)  # to year 9999: all that Spark has from 1970 on
ROWS = st.lists(
    st.builds(
        Row, key=MAYBE_TEXT, value=MAYBE_TEXT, timestamp_ms=TIMESTAMPS_MS,
        headers=st.none() | st.lists(st.tuples(TEXT, MAYBE_TEXT), max_size=3).map(tuple),
    ),
    max_size=12,
)  # fmt: skip
BYTES_TYPES = st.sampled_from([pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view()])
HEADERS_TYPES = st.sampled_from([
    pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
    pa.list_(pa.struct([("key", pa.large_string()), ("value", pa.binary())])),
])  # fmt: skip
ABSENT = st.none()
CUT_OFF = Row(b"cut", b"off", ((b"cut", b"off"), (b"off", None)), 0)


@dataclass(frozen=True)
class Case:
    rows: list[Row]
    columns: RecordColumns


def _bytes_array(values: list[bytes | None], arrow_type: pa.DataType) -> pa.Array:
    return pa.array(values, pa.binary()).cast(arrow_type)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rows: list[Row] = draw(ROWS)
    before, after = draw(st.integers(0, 3)), draw(st.integers(0, 3))
    stored = [CUT_OFF] * before + rows + [CUT_OFF] * after
    value_type = draw(BYTES_TYPES)
    key_type = draw(st.one_of(ABSENT, BYTES_TYPES))
    headers_type = draw(st.one_of(ABSENT, HEADERS_TYPES))
    columns: dict[str, pa.Array] = {
        "value": _bytes_array([row.value for row in stored], value_type),
        "timestamp": pa.array([row.timestamp_ms * 1000 for row in stored], pa.timestamp("us", "UTC")),
    }
    if key_type is not None:
        columns["key"] = _bytes_array([row.key for row in stored], key_type)
    if headers_type is not None:
        columns["headers"] = pa.array([as_arrow(row.headers) for row in stored], headers_type)
    absent: dict[str, Any] = {name: None for name in ("key", "headers") if name not in columns}
    expected = [replace(row, **absent) for row in rows]
    batch = pa.RecordBatch.from_pydict(columns).slice(before, len(rows))
    return Case(expected, RecordColumns.from_arrow(batch, now_ms=0))


def as_arrow(headers: tuple[Header, ...] | None) -> list[dict[str, Any]] | None:
    return None if headers is None else [{"key": key.decode(), "value": value} for key, value in headers]


def scalar_fnv1a(key: bytes) -> int:
    """Go's hash/fnv, New32a."""
    hashed = 0x811C9DC5
    for byte in key:
        hashed = (hashed ^ byte) * 0x01000193 & 0xFFFFFFFF
    return hashed


def int64s(values: list[int]) -> Int64s:
    return np.array(values, np.int64)

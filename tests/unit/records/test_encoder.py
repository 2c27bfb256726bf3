"""The vectorised encoder against a scalar DefaultRecord, and whole batches read by kafka-python.

A case is a list of rows, made into an Arrow batch of some choice of types with rows cut off at both ends (so
that offsets are not 0), put into a wire order and into batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from kafka_sink.records import encoder
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.compression import codec_for
from kafka_sink.records.encoder import RecordEncoder
from kafka_sink.records.record_batch import HEADER_BYTES, write_header

Int64s = npt.NDArray[np.int64]
Header = tuple[bytes, bytes | None]


# --- the scalar reference -----------------------------------------------------------------------------------


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


# --- cases --------------------------------------------------------------------------------------------------


# Valid UTF-8, so that every type can hold it; the long ones need two and three bytes of length.
TEXT = st.one_of(st.text(max_size=12), st.sampled_from([63, 64, 130, 8192]).map(lambda n: "x" * n)).map(str.encode)
MAYBE_TEXT = st.one_of(st.none(), TEXT)
TIMESTAMPS_MS = st.integers(-62_135_596_800_000, 253_402_300_799_999)  # years 1 to 9999: all that Spark has
ROWS = st.lists(
    st.builds(
        Row,
        key=MAYBE_TEXT,
        value=MAYBE_TEXT,
        headers=st.one_of(st.none(), st.lists(st.tuples(TEXT, MAYBE_TEXT), max_size=3).map(tuple)),
        timestamp_ms=TIMESTAMPS_MS,
    ),
    max_size=12,
)
BYTES_TYPES = st.sampled_from([pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view()])
HEADERS_TYPES = st.sampled_from(
    [
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        pa.large_list(pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])),
        pa.list_(pa.struct([("key", pa.large_string()), ("value", pa.binary())])),
    ]
)
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
    expected = [
        Row(
            key=row.key if key_type is not None else None,
            value=row.value,
            headers=row.headers if headers_type is not None else None,
            timestamp_ms=row.timestamp_ms,
        )
        for row in rows
    ]
    batch = pa.RecordBatch.from_pydict(columns).slice(before, len(rows))
    return Case(expected, RecordColumns.from_arrow(batch, now_ms=0))


def as_arrow(headers: tuple[Header, ...] | None) -> list[dict[str, Any]] | None:
    return None if headers is None else [{"key": key.decode(), "value": value} for key, value in headers]


def int64s(values: list[int]) -> Int64s:
    return np.array(values, np.int64)


def split(data: npt.NDArray[np.uint8], offsets: Int64s) -> list[bytes]:
    return [data[a:b].tobytes() for a, b in pairwise(offsets)]


@st.composite
def deltas(draw: st.DrawFn, n: int) -> tuple[list[int], list[int]]:
    offset_delta = draw(st.lists(st.integers(0, 2**31 - 1), min_size=n, max_size=n))
    timestamp_delta = draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=n, max_size=n))
    return offset_delta, timestamp_delta


# --- records ------------------------------------------------------------------------------------------------


@given(st.data(), cases())
def test_equals_the_scalar_encoder_and_its_own_sizes(data: st.DataObject, case: Case) -> None:
    n = len(case.rows)
    order = data.draw(st.permutations(range(n)))
    chosen = data.draw(st.one_of(st.slices(n), st.lists(st.integers(0, max(0, n - 1)), unique=True, max_size=n)))
    positions = list(range(n))[chosen] if isinstance(chosen, slice) else [p for p in chosen if p < n]
    rows = chosen if isinstance(chosen, slice) else int64s(positions)
    offset_delta, timestamp_delta = data.draw(deltas(len(positions)))

    record_encoder = RecordEncoder(case.columns, int64s(order))
    encoded, offsets = record_encoder.encode(rows, int64s(offset_delta), int64s(timestamp_delta))
    sizes = record_encoder.sizes(rows, int64s(offset_delta), int64s(timestamp_delta))

    expected = [
        scalar_record(case.rows[order[position]], offset, timestamp)
        for position, offset, timestamp in zip(positions, offset_delta, timestamp_delta, strict=True)
    ]
    assert encoded.dtype == np.uint8
    assert (sizes.dtype, offsets.dtype) == (np.int64, np.int64)
    assert encoded.tobytes() == b"".join(expected)
    assert split(encoded, offsets) == expected
    assert sizes.tolist() == [len(record) for record in expected]


@given(cases())
def test_size_of_a_batch_of_one_row(case: Case) -> None:
    sizes = RecordEncoder(case.columns, np.arange(len(case.rows))).lone_batch_sizes()
    assert sizes.tolist() == [61 + len(scalar_record(row, 0, 0)) for row in case.rows]


@pytest.mark.parametrize("value_bytes", [0, 57, 58, 8183, 8184, 1_048_502, 1_048_503])
def test_lone_batch_size_is_what_a_broker_would_count(value_bytes: int) -> None:
    """On both sides of each length varint's bounds (64, 8192) and of max.request.size (1 MiB)."""
    columns = RecordColumns.from_arrow(
        pa.RecordBatch.from_pydict({"value": pa.array([b"v" * value_bytes], pa.binary())}), now_ms=5
    )
    record_encoder = RecordEncoder(columns, int64s([0]))
    batch = whole_batch(record_encoder, slice(0, 1), int64s([5]), "none")
    assert MemoryRecords(batch).next_batch().size_in_bytes == len(batch)
    assert record_encoder.lone_batch_sizes().tolist() == [len(batch)]


def test_order_leaves_rows_out_and_runs_are_runs_of_the_arrow_batch() -> None:
    columns = RecordColumns.from_arrow(
        pa.RecordBatch.from_pydict({"value": pa.array([b"%d" % i for i in range(10)], pa.binary())}), now_ms=0
    )
    record_encoder = RecordEncoder(columns, int64s([7, 8, 9, 1, 0]))
    zeros = np.zeros(5, np.int64)
    assert len(record_encoder) == 5
    for rows, expected in ((slice(0, 3), [7, 8, 9]), (slice(0, 5), [7, 8, 9, 1, 0]), (slice(3, 5), [1, 0])):
        n = len(expected)
        assert split(*record_encoder.encode(rows, zeros[:n], zeros[:n])) == [
            scalar_record(Row(None, b"%d" % i, None, 0), 0, 0) for i in expected
        ]


def test_a_header_count_of_two_bytes() -> None:
    row = Row(None, b"v", tuple((b"k%d" % i, b"v") for i in range(64)), 0)
    headers_type = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.RecordBatch.from_pydict(
        {"value": pa.array([b"v"], pa.binary()), "headers": pa.array([as_arrow(row.headers)], headers_type)}
    )
    record_encoder = RecordEncoder(RecordColumns.from_arrow(batch, now_ms=0), int64s([0]))
    encoded, _ = record_encoder.encode(slice(0, 1), int64s([0]), int64s([0]))
    assert encoded.tobytes() == scalar_record(row, 0, 0)
    assert record_encoder.lone_batch_sizes().tolist() == [61 + len(encoded)]


@pytest.mark.parametrize(
    ("total", "part_type", "expected"),
    [
        (2**31 - 1, pa.binary(), pa.binary()),
        (2**31, pa.binary(), pa.large_binary()),
        (1, pa.large_binary(), pa.large_binary()),
    ],
)
def test_offsets_are_of_64_bits_where_32_do_not_reach(
    total: int, part_type: pa.DataType, expected: pa.DataType
) -> None:
    joined = encoder._join(total, (int64s([0]),), pa.array([b"v"], part_type), b"\0")
    assert joined.type == expected
    assert joined.to_pylist() == [b"\0v\0"]


@given(st.data(), cases())
def test_beyond_32_bit_offsets_the_bytes_are_the_same(data: st.DataObject, case: Case) -> None:
    """The switch to 64-bit offsets, with the limit put low instead of the data made huge."""
    n = len(case.rows)
    order = int64s(data.draw(st.permutations(range(n))))
    delta = np.arange(n)
    expected, _ = RecordEncoder(case.columns, order).encode(slice(0, n), delta, delta)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encoder, "BINARY_BYTES_MAX", 100)
        encoded, offsets = RecordEncoder(case.columns, order).encode(slice(0, n), delta, delta)
    assert encoded.tobytes() == expected.tobytes()
    assert offsets[-1] == len(expected)


# --- whole batches ------------------------------------------------------------------------------------------


def whole_batch(record_encoder: RecordEncoder, rows: slice, timestamp_ms: Int64s, codec_name: str) -> bytes:
    """A record batch of `rows`, as a producer would make it; `timestamp_ms` are theirs."""
    codec = codec_for(codec_name)
    records, _ = record_encoder.encode(rows, np.arange(len(timestamp_ms)), timestamp_ms - timestamp_ms[0])
    batch = bytearray(HEADER_BYTES) + codec.compress(memoryview(records))
    write_header(
        memoryview(batch),
        codec_id=codec.id,
        is_transactional=False,
        base_timestamp=int(timestamp_ms[0]),
        max_timestamp=int(timestamp_ms.max()),
        producer_id=77,
        producer_epoch=3,
        base_sequence=11,
        record_count=len(timestamp_ms),
    )
    return bytes(batch)


@pytest.mark.parametrize("codec_name", ["none", "zstd"])
@given(data=st.data(), case=cases())
def test_kafka_python_reads_whole_batches_back(codec_name: str, data: st.DataObject, case: Case) -> None:
    n = len(case.rows)
    destination = np.array(data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)), np.int32)
    order = np.argsort(destination, kind="stable")
    record_encoder = RecordEncoder(case.columns, order)
    ends = np.cumsum(np.bincount(destination, minlength=3)).tolist()
    for partition, (first, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        if first == end:
            continue
        rows = slice(first, end)
        batch = whole_batch(record_encoder, rows, case.columns.timestamp_ms[order][rows], codec_name)
        (read,) = [MemoryRecords(batch).next_batch()]
        assert read.validate_crc()
        expected = [row for row, d in zip(case.rows, destination, strict=True) if d == partition]
        assert [
            (
                record.key,
                record.value,
                record.timestamp,
                record.offset,
                [(k.encode(), v) for k, v in record.headers],
            )
            for record in read
        ] == [
            (row.key, row.value, row.timestamp_ms, offset, list(row.headers or ()))
            for offset, row in enumerate(expected)
        ]


def test_ten_thousand_rows_in_one_call() -> None:
    """The size of Spark's Arrow batches: offset deltas of one, two and three bytes in one batch."""
    random = np.random.default_rng(5)
    rows = [
        Row(
            key=None if i % 7 == 0 else b"%d" % i,
            value=None if i % 11 == 0 else random.bytes(int(random.integers(0, 200))),
            headers=((b"n", b"%d" % i),) * (i % 3),
            timestamp_ms=1_700_000_000_000 + int(random.integers(-(10**7), 10**7)),
        )
        for i in range(10_000)
    ]
    batch = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([row.key for row in rows], pa.binary()),
            "value": pa.array([row.value for row in rows], pa.binary()),
            "headers": pa.array(
                [as_arrow(row.headers) for row in rows],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
            "timestamp": pa.array([row.timestamp_ms for row in rows], pa.timestamp("ms")),
        }
    )
    order = random.permutation(10_000)
    columns = RecordColumns.from_arrow(batch, now_ms=0)
    timestamp_delta = columns.timestamp_ms[order] - rows[order[0]].timestamp_ms
    encoded, _ = RecordEncoder(columns, order).encode(slice(None), np.arange(10_000), timestamp_delta)
    assert encoded.tobytes() == b"".join(
        scalar_record(rows[i], offset, delta)
        for offset, (i, delta) in enumerate(zip(order, timestamp_delta.tolist(), strict=True))
    )

"""The vectorised encoder against a scalar DefaultRecord, and whole batches read by kafka-python.

A case (record_cases.py) is put into a wire order and into batches.
"""

from __future__ import annotations

from itertools import pairwise

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
from kafka_sink.records.record_size import lone_batch_sizes, payload_sizes
from record_cases import Case, Row, as_arrow, cases, int64s, scalar_record

Int64s = npt.NDArray[np.int64]


def split(data: npt.NDArray[np.uint8], offsets: Int64s) -> list[bytes]:
    return [data[a:b].tobytes() for a, b in pairwise(offsets)]


@st.composite
def deltas(draw: st.DrawFn, n: int) -> tuple[list[int], list[int]]:
    offset_delta = draw(st.lists(st.integers(0, 2**31 - 1), min_size=n, max_size=n))
    timestamp_delta = draw(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=n, max_size=n))
    return offset_delta, timestamp_delta


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
    assert len(record_encoder) == n
    assert (sizes.dtype, offsets.dtype) == (np.int64, np.int64)
    assert encoded.tobytes() == b"".join(expected)
    assert split(encoded, offsets) == expected
    assert sizes.tolist() == [len(record) for record in expected]


@given(cases())
def test_size_of_a_batch_of_one_row(case: Case) -> None:
    sizes = lone_batch_sizes(payload_sizes(case.columns)).tolist()
    assert sizes == [61 + len(scalar_record(row, 0, 0)) for row in case.rows]


def test_a_header_count_of_two_bytes() -> None:
    row = Row(None, b"v", tuple((b"k%d" % i, b"v") for i in range(64)), 0)
    headers_type = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.RecordBatch.from_pydict(
        {"value": pa.array([b"v"], pa.binary()), "headers": pa.array([as_arrow(row.headers)], headers_type)}
    )
    record_encoder = RecordEncoder(RecordColumns.from_arrow(batch, now_ms=0), int64s([0]))
    encoded, _ = record_encoder.encode(slice(0, 1), int64s([0]), int64s([0]))
    assert encoded.tobytes() == scalar_record(row, 0, 0)
    assert lone_batch_sizes(record_encoder.payload_sizes)[0] == 61 + len(encoded)


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


def whole_batch(record_encoder: RecordEncoder, rows: slice, timestamp_ms: Int64s, codec_name: str) -> bytes:
    """A record batch of `rows`, as a producer would make it; `timestamp_ms` are theirs."""
    codec = codec_for(codec_name)
    records, _ = record_encoder.encode(rows, np.arange(len(timestamp_ms)), timestamp_ms - timestamp_ms[0])
    batch = bytearray(HEADER_BYTES) + codec.compress(memoryview(records))
    times = (int(timestamp_ms[0]), int(timestamp_ms.max()))
    write_header(memoryview(batch), None, codec.id, *times, 77, 3, 11, len(timestamp_ms))
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
            (record.key, record.value, record.timestamp, record.offset, [(k.encode(), v) for k, v in record.headers])
            for record in read
        ] == [
            (row.key, row.value, row.timestamp_ms, offset, list(row.headers or ()))
            for offset, row in enumerate(expected)
        ]

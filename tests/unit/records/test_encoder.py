"""Records against scalar transcriptions of Kafka's classes and by kafka-python; cut into runs, left out, told apart."""

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from kafka_sink.records import encoder
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.encoder import RecordEncoder
from kafka_sink.records.record_batch import HEADER_BYTES, write_header
from kafka_sink.records.record_runs import RecordRun, cut_records, records_at, without_records
from kafka_sink.records.record_size import byte_lengths, field_sizes, lone_batch_sizes, payload_sizes
from kafka_sink.records.sent_rows import SentRow, rows_before
from kafka_sink.records.varint import varint_rows, varint_sizes, varints_at
from record_cases import ROWS, Case, Row, as_arrow, cases, int64s, scalar_record, varint

# Around every length there is: 2^6 is the first number of two bytes, -2^6 the last of one.
INT64 = st.integers(-(2**63), 2**63 - 1) | st.builds(
    lambda bits, sign, off: sign * 2**bits + off, st.integers(0, 62), st.sampled_from([1, -1]), st.integers(-1, 1)
)
BASE_TIMESTAMP = 1_700_000_000_000


@given(st.data(), cases())
def test_equals_the_scalar_encoder_and_its_own_sizes(data: st.DataObject, case: Case) -> None:
    n = len(case.rows)
    order = data.draw(st.permutations(range(n)))
    chosen = data.draw(st.one_of(st.slices(n), st.lists(st.integers(0, max(0, n - 1)), unique=True, max_size=n)))
    positions = list(range(n))[chosen] if isinstance(chosen, slice) else [p for p in chosen if p < n]
    rows = chosen if isinstance(chosen, slice) else int64s(positions)
    offset_delta, timestamp_delta = (
        data.draw(st.lists(st.integers(least, most), min_size=len(positions), max_size=len(positions)))
        for least, most in ((0, 2**31 - 1), (-(2**63), 2**63 - 1))
    )
    record_encoder = RecordEncoder(case.columns, int64s(order))
    encoded, offsets = record_encoder.encode(rows, int64s(offset_delta), int64s(timestamp_delta))
    sizes = record_encoder.sizes(rows, int64s(offset_delta), int64s(timestamp_delta))
    expected = [
        scalar_record(case.rows[order[position]], offset, timestamp)
        for position, offset, timestamp in zip(positions, offset_delta, timestamp_delta, strict=True)
    ]
    assert (encoded.dtype, sizes.dtype, offsets.dtype) == (np.uint8, np.int64, np.int64)
    assert len(record_encoder) == n and encoded.tobytes() == b"".join(expected)
    assert [encoded[a:b].tobytes() for a, b in pairwise(offsets)] == expected
    assert sizes.tolist() == [len(record) for record in expected]
    alone = lone_batch_sizes(payload_sizes(case.columns)).tolist()
    assert alone == [61 + len(scalar_record(row, 0, 0)) for row in case.rows]


def test_a_header_count_of_two_bytes() -> None:
    row = Row(None, b"v", tuple((b"k%d" % i, b"v") for i in range(64)), 0)
    headers = pa.array([as_arrow(row.headers)], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    batch = pa.RecordBatch.from_pydict({"value": pa.array([b"v"], pa.binary()), "headers": headers})
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


def test_known_bytes() -> None:
    """KafkaProtobuf's and ByteUtilsTest's own examples."""
    known = {
        0: "00", -1: "01", 1: "02", 63: "7e", -64: "7f", 64: "8001", -65: "8101", 8191: "fe7f", 8192: "808001",
        2**31 - 1: "feffffff0f", -(2**31): "ffffffff0f", 2**63 - 1: "feffffffffffffffff01",
        -(2**63): "ffffffffffffffffff01",
    }  # fmt: skip
    data, offsets = varint_rows(int64s(list(known)))
    assert [data[a:b].tobytes().hex() for a, b in pairwise(offsets)] == list(known.values())
    assert varint_sizes(int64s(list(known))).tolist() == [len(text) // 2 for text in known.values()]


@given(st.lists(st.tuples(INT64, INT64, INT64), max_size=50))
def test_columns_interleave_row_by_row_and_are_read_back_from_their_places(rows: list[tuple[int, int, int]]) -> None:
    columns = np.array(rows, np.int64).reshape(len(rows), 3)
    data, offsets = varint_rows(*columns.T)
    expected = [b"".join(map(varint, row)) for row in rows]
    assert [data[a:b].tobytes() for a, b in pairwise(offsets)] == expected
    assert varint_sizes(columns[:, 1]).tolist() == [len(varint(row[1])) for row in rows]
    sizes = [len(varint(number)) for row in rows for number in row]
    read, read_sizes = varints_at(data, np.cumsum([0, *sizes])[:-1])
    assert (read.tolist(), read_sizes.tolist()) == (columns.ravel().tolist(), sizes)


@pytest.mark.parametrize("arrow_type", [pa.binary(), pa.large_binary()])
def test_lengths_of_a_slice_tell_null_from_empty(arrow_type: pa.DataType) -> None:
    array = pa.array([b"before", b"", None, b"abc", b"after"], arrow_type).slice(1, 3)
    assert byte_lengths(array).tolist() == [0, -1, 3]
    # A length varint each: of two bytes from 64 on.
    assert field_sizes(byte_lengths(array)).tolist() == [1, 1, 4]
    assert field_sizes(byte_lengths(pa.array([b"x" * 63, b"x" * 64]))).tolist() == [64, 66]


def records_of(rows: list[Row]) -> list[bytes]:
    """The records of a batch of `rows`."""
    return [scalar_record(row, i, row.timestamp_ms - BASE_TIMESTAMP) for i, row in enumerate(rows)]


def run_read(run: RecordRun) -> list[Row]:
    batch = bytearray(HEADER_BYTES) + run.data
    write_header(memoryview(batch), None, 0, run.base_timestamp, run.max_timestamp, 1, 0, 0, run.record_count)
    (decoded,) = list(MemoryRecords(bytes(batch)))
    assert decoded.validate_crc()
    records = list(decoded)
    assert [record.offset for record in records] == list(range(run.record_count))
    assert records[0].timestamp == run.base_timestamp
    assert max(record.timestamp for record in records) == run.max_timestamp
    return [
        Row(record.key, record.value, tuple((key.encode(), value) for key, value in record.headers), record.timestamp)
        for record in records
    ]


@given(ROWS.filter(len), st.integers(1, 3_000))
def test_the_runs_are_the_records_in_order_and_each_is_as_long_as_it_may_be(rows: list[Row], run_bytes: int) -> None:
    records = records_of(rows)
    runs = cut_records(b"".join(records), BASE_TIMESTAMP, run_bytes)
    expected = [Row(row.key, row.value, row.headers or (), row.timestamp_ms) for row in rows]
    assert [row for run in runs for row in run_read(run)] == expected
    first = 0
    for run in runs:
        last = first + run.record_count
        size = sum(map(len, records[first:last]))
        assert size <= run_bytes or run.record_count == 1
        assert last == len(rows) or size + len(records[last]) > run_bytes
        first = last


def test_places_of_more_than_one_byte_are_told_anew() -> None:
    rows = [Row(None, b"%d" % n, (), BASE_TIMESTAMP + 7 * n) for n in range(20_000)]
    records = b"".join(records_of(rows))
    runs = cut_records(records, BASE_TIMESTAMP, len(records) // 2 + 20)
    assert [len(run.data) < len(records) for run in runs] == [True, True]
    assert [row for run in runs for row in run_read(run)] == rows


def records_of_case(case: Case, rows: Any) -> bytes:
    """With times from the first row's on."""
    times = case.columns.timestamp_ms[rows]
    numbers = np.arange(len(rows))
    data, _ = RecordEncoder(case.columns, int64s(rows)).encode(slice(None), numbers, times - times[0])
    return data.tobytes()


def rows_read(case: Case, records: bytes, base_timestamp: int, places: list[int]) -> list[Any]:
    bodies = records_at(records, base_timestamp, places)
    batch = rows_before([SentRow("t", 3, timestamp_ms, body) for timestamp_ms, body in bodies], added_headers=0)
    times = batch["timestamp"].cast("int64").to_pylist()
    return [
        (time, row["key"], row["value"], [(entry["key"], entry["value"]) for entry in row["headers"]])
        for time, row in zip(times, batch.drop_columns(["timestamp"]).to_pylist(), strict=True)
    ]


def given_rows(case: Case, rows: list[int]) -> list[Any]:
    columns = case.columns
    found = []
    for row in rows:
        headers = []
        if columns.headers is not None:
            of_row = slice(columns.headers.row_offsets[row], columns.headers.row_offsets[row + 1])
            keys, contents = columns.headers.key[of_row].to_pylist(), columns.headers.value[of_row].to_pylist()
            headers = list(zip(keys, contents, strict=True))
        key = None if columns.key is None else columns.key[row].as_py()
        found.append((int(columns.timestamp_ms[row]), key, columns.value[row].as_py(), headers))
    return found


@given(cases(), st.data())
def test_what_is_left_out_and_what_is_left_are_the_rows_that_were_encoded(case: Case, data: st.DataObject) -> None:
    rows = list(range(len(case.rows)))
    if not rows:
        return
    places = data.draw(st.sets(st.sampled_from(rows)))
    base = int(case.columns.timestamp_ms[0])
    records = records_of_case(case, rows)
    assert rows_read(case, records, base, sorted(places)) == given_rows(case, sorted(places))
    left = without_records(records, base, places)
    kept = [row for row in rows if row not in places]
    if not kept:
        assert left is None
        return
    assert left is not None
    times = case.columns.timestamp_ms[kept]
    assert left.data == records_of_case(case, kept)
    assert (left.record_count, left.base_timestamp, left.max_timestamp) == (len(kept), times[0], times.max())

"""Records against scalar transcriptions of Kafka's classes and by kafka-python; a batch's header, and its fields that
no CRC covers, flipped: no row is left out in silence."""

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import crc32c
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from kafka_sink.records.batch_table import CorruptBatch, Fault, Undecodable
from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.dead_letters import SentRow, rows_before
from kafka_sink.records.decoder import RecordSetDecoder
from kafka_sink.records.fallback import encoder
from kafka_sink.records.fallback.encoder import RecordEncoder, byte_lengths, field_sizes, payload_sizes
from kafka_sink.records.kernel import Kernel
from kafka_sink.records.record_batch import (
    HEADER_BYTES,
    TRANSACTIONAL_BIT,
    first_offset,
    headers,
    is_damaged_length,
    outline,
    write_header,
)
from kafka_sink.records.record_runs import RecordRun, cut_records, records_at, without_records
from kafka_sink.records.record_size import lone_batch_sizes, varint_rows, varint_sizes, varints_at
from kernels import COMPILED, KERNELS, needs_kernel
from record_cases import ROWS, Case, Row, as_arrow, cases, int64s, scalar_record, varint
from record_sets import plain, rows_of

if COMPILED is not None:
    from kafka_sink.records import _kernel

BOTH = pytest.mark.parametrize("kernel", KERNELS)

RECORDS = [(1_700_000_000_123, b"k", b"v"), (1_700_000_000_007, None, b"w" * 300)]
ROWS_A_BATCH, BATCH_COUNT = 20, 5
END = ROWS_A_BATCH * BATCH_COUNT
BATCHES = [bytes(plain(*(b"v" * 9,) * ROWS_A_BATCH, base_offset=ROWS_A_BATCH * batch)) for batch in range(BATCH_COUNT)]


@BOTH
@pytest.mark.parametrize("knows_crc", [False, True])
@pytest.mark.parametrize("is_transactional", [False, True])
def test_same_bytes_as_kafka_python(kernel: Kernel, is_transactional: bool, knows_crc: bool) -> None:
    producer = (2**40 + 1, 32767, 2**31 - 1)
    builder = DefaultRecordBatchBuilder(2, 0, is_transactional, *producer, 1 << 20)
    for offset, (timestamp, key, value) in enumerate(RECORDS):
        builder.append(offset, timestamp, key, value, [])
    expected = builder.build()
    # Whatever stood in the header's place is overwritten.
    ours = bytearray(b"\xff" * HEADER_BYTES + expected[HEADER_BYTES:])
    crc = crc32c.crc32c(bytes(expected[HEADER_BYTES:])) if knows_crc else None
    attributes, base = TRANSACTIONAL_BIT if is_transactional else 0, RECORDS[0][0]
    kernel.write_header(memoryview(ours), crc, attributes, base, base, *producer, len(RECORDS))
    # partition_leader_epoch, which the broker assigns and no CRC covers: -1 as in Java, 0 in kafka-python.
    assert ours[12:16] == b"\xff\xff\xff\xff"
    assert ours == expected[:12] + ours[12:16] + expected[16:]


@BOTH
def test_codec_and_fields_read_back(kernel: Kernel) -> None:
    buffer = bytearray(HEADER_BYTES + 7)
    codec_id, base_timestamp, max_timestamp, no_producer = 4, -5, -1, (-1, -1, -1)
    attributes = codec_id | TRANSACTIONAL_BIT
    kernel.write_header(memoryview(buffer), None, attributes, base_timestamp, max_timestamp, *no_producer, 9)
    batch = MemoryRecords(bytes(buffer)).next_batch()
    expected = {
        "size_in_bytes": len(buffer), "magic": 2, "base_offset": 0, "compression_type": 4, "timestamp_type": 0,
        "is_transactional": True, "is_control_batch": False, "first_timestamp": -5, "max_timestamp": -1,
        "producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "last_offset_delta": 8, "records_count": 9,
    }  # fmt: skip
    assert batch.validate_crc() and {name: getattr(batch, name) for name in expected} == expected


@BOTH
@given(st.one_of(st.integers(0, 3_000), st.sampled_from([2**16, 2**20 + 1])), st.integers(0, 2**32), st.booleans())
def test_the_crc_is_right_whatever_the_length(kernel: Kernel, size: int, seed: int, knows_crc: bool) -> None:
    buffer = bytearray(HEADER_BYTES) + random.Random(seed).randbytes(size)
    crc = crc32c.crc32c(buffer[HEADER_BYTES:]) if knows_crc else None
    kernel.write_header(memoryview(buffer), crc, 0, 1, 2, 3, 4, 5, 6)
    assert int.from_bytes(buffer[17:21], "big") == crc32c.crc32c(buffer[21:])


@needs_kernel
def test_what_is_no_record_batch_is_refused() -> None:
    numbers, whole = (0, 1, 2, 3, 4, 5, 6), bytearray(HEADER_BYTES)
    for batch, crc, arguments, error in (
        (bytearray(HEADER_BYTES - 1), None, numbers, ValueError), (bytearray(0), None, numbers, ValueError),
        (bytes(HEADER_BYTES), None, numbers, BufferError), (whole, None, (*numbers[:-1], 2**63), OverflowError),
        (whole, -1, numbers, OverflowError), (whole, None, (*numbers[:-1], None), TypeError),
        (whole, None, numbers[:-1], TypeError),
    ):  # fmt: skip
        with pytest.raises(error, match="61 bytes" if error is ValueError else None):
            _kernel.write_header(memoryview(batch), crc, *arguments)


# --- the offset after a record set ------------------------------------------------------------------------------------


def next_offset(records: bytes) -> int | None:
    found = outline(memoryview(records), 0, 2**63 - 1)
    return None if found is None else found.following


@given(st.lists(st.integers(1, 5), max_size=4), st.integers(0, 200))
def test_the_next_offset_is_behind_the_last_whole_batch(sizes: list[int], cut_bytes: int) -> None:
    batches, following = b"", 7
    for size in sizes:
        batches += bytes(plain(*(b"v",) * size, base_offset=following))
        following += size
    more = bytes(plain(b"cut off", base_offset=following))
    assert next_offset(batches + more[: min(cut_bytes, len(more) - 1)]) == (following if sizes else None)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(("key", "value"), [(None, None), (b"k", b"v" * 100)])
def test_a_record_of_an_older_format_counts_as_a_batch(magic: int, key: bytes | None, value: bytes | None) -> None:
    builder = LegacyRecordBatchBuilder(magic, 0, 1_000_000)
    for offset in range(5):
        assert builder.append(offset, timestamp=1, key=key, value=value) is not None
    records = bytes(builder.build())
    first = len(records) // 5
    assert [next_offset(records[:end]) for end in (len(records), len(records) - 1, first)] == [5, 4, 1]
    assert {next_offset(records[:end]) for end in range(first)} == {None}


@given(st.binary(max_size=200))
def test_any_bytes_have_a_next_offset_or_none(records: bytes) -> None:
    found = next_offset(records)
    assert found is None or isinstance(found, int)
    assert first_offset(memoryview(records)) in (None, int.from_bytes(records[:8], "big", signed=True))


@pytest.mark.parametrize("magic", [0, 1])
def test_a_batch_that_is_cut_off_or_of_an_older_format_tells_no_beginning(magic: int) -> None:
    records = bytearray(bytes(plain(b"a", base_offset=70)))
    assert first_offset(memoryview(records + bytes(plain(b"c", base_offset=90)))) == 70
    assert {first_offset(memoryview(records)[:end]) for end in range(len(records))} == {None}
    records[16] = magic
    assert first_offset(memoryview(records)) is None


def flipped(which: int, byte: int, bit: int, batches: Sequence[bytes] = BATCHES) -> bytes:
    damaged = [bytearray(each) for each in batches]
    damaged[which][byte] ^= 1 << bit
    return b"".join(damaged)


def read(kernel: Kernel, records: bytes, end: int = END) -> list[int]:
    reading = RecordSetDecoder(records, first_offset=0, end_offset=end, columns=("offset",), kernel=kernel)
    return [each["offset"] for each in rows_of(reading)]


def corrupt(kernel: Kernel, records: bytes) -> CorruptBatch:
    with pytest.raises(CorruptBatch) as raised:
        read(kernel, records)
    return raised.value


@BOTH
@pytest.mark.parametrize("which", range(BATCH_COUNT - 1))
@pytest.mark.parametrize("byte", [0, 5, 6, 7])
def test_a_base_offset_that_the_next_batch_contradicts(kernel: Kernel, byte: int, which: int) -> None:
    for bit in range(8):
        error = corrupt(kernel, flipped(which, byte, bit))
        assert error.fault is Fault.OFFSETS
        # Where the offsets are still those of the log.
        assert error.base_offset in (which * ROWS_A_BATCH, which * ROWS_A_BATCH + ROWS_A_BATCH)


@BOTH
def test_the_next_batch_shows_it_also_behind_the_end(kernel: Kernel) -> None:
    with pytest.raises(CorruptBatch, match="at offset 20 has offsets that do not ascend"):
        read(kernel, flipped(1, 6, 7, BATCHES[:3]), 60)


@BOTH
def test_a_gap_that_compaction_left_is_none_to_complain_of(kernel: Kernel) -> None:
    kept = BATCHES[0] + BATCHES[2] + BATCHES[4]
    for records in (kept, kept + BATCHES[4][:5]):
        assert read(kernel, records, 75) == [*range(20), *range(40, 60)]


@BOTH
@pytest.mark.parametrize("byte", [0, 8, 16, 30])
def test_no_batch_behind_the_range_stops_a_read_before_it(kernel: Kernel, byte: int) -> None:
    """Else nobody could read around a damaged batch."""
    for bit in range(8):
        assert read(kernel, flipped(2, byte, bit), 40) == list(range(40))


@BOTH
@pytest.mark.parametrize("byte", range(12, 16))
def test_the_leader_epoch_of_a_batch_has_no_part_in_a_read(kernel: Kernel, byte: int) -> None:
    for bit in range(8):
        assert read(kernel, flipped(2, byte, bit)) == list(range(END))


@BOTH
def test_a_flipped_format_is_damage_and_not_an_older_format(kernel: Kernel) -> None:
    for bit in range(8):
        error = corrupt(kernel, flipped(2, 16, bit))
        assert (error.fault, error.base_offset) == (Fault.MAGIC, 40)


@BOTH
@pytest.mark.parametrize("byte", range(8, 12))
def test_a_length_is_an_error_or_cuts_the_record_set_off(kernel: Kernel, byte: int) -> None:
    """Who reads on meets it again, as the first batch."""
    for bit in range(8):
        records = flipped(2, byte, bit)
        try:
            found = read(kernel, records)
        except Undecodable as error:
            assert error.base_offset == 40
        else:
            *_, last = headers(memoryview(records))
            assert (found, last.base_offset, last.is_whole) == (list(range(40)), 40, False)
            assert is_damaged_length(memoryview(records), last)


@pytest.mark.parametrize("left", [1, 16, 17, 60, 61, 200])
def test_a_batch_that_is_cut_off_in_peace_has_no_damaged_length(left: int) -> None:
    records = memoryview(BATCHES[0] + BATCHES[1][:left])
    *_, last = headers(records)
    assert not is_damaged_length(records, last)


@BOTH
def test_where_the_log_is_right_again_is_told(kernel: Kernel) -> None:
    for records in (flipped(1, 6, 1), flipped(1, 40, 1), flipped(1, 16, 0)):
        error = corrupt(kernel, records)
        assert (error.base_offset, error.next_offset) == (20, 40)
    assert corrupt(kernel, flipped(4, 40, 1)).next_offset is None


# --- the outline that the fetcher goes by -----------------------------------------------------------------------------


def test_an_outline_shows_the_gap_before_the_last_batch() -> None:
    """The fetcher goes by it."""
    found, longer = (outline(memoryview(flipped(1, 6, 0, BATCHES[:count])), 0, 1_000) for count in (2, 3))
    assert found is not None and longer is not None
    assert (found.gap, found.following, found.is_followed, found.ascends) == ((20, 276), 296, False, True)
    assert not longer.ascends


def test_an_outline_ends_with_the_last_whole_batch_that_is_wanted() -> None:
    records = b"".join(bytes(plain(b"v", base_offset=offset)) for offset in range(3))
    for bytes_there, end, following, is_cut_off in ((len(records), 2, 2, False), (len(records) - 1, 9, 2, True)):
        found = outline(memoryview(records)[:bytes_there], 0, end)
        assert found is not None
        assert (found.following, found.ascends, found.is_followed) == (following, True, True)
        assert (found.cut_off is not None) == is_cut_off


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
    assert encoded.tobytes() == b"".join(expected)
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

"""Record sets to rows, for both kernels: what is delivered, left out, the next fetch, bounds, errors; abort markers."""

import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatchBuilder

from kafka_sink.records.arrow_rows import TYPES
from kafka_sink.records.batch_table import (
    BatchTooLarge,
    CorruptBatch,
    Fault,
    OldFormat,
    TimestampOutOfRange,
    TooManyHeaders,
    Undecodable,
)
from kafka_sink.records.compression import codec_for
from kafka_sink.records.decoder import DEFAULT_LIMITS, MOST_BYTES, Limits, RecordSetDecoder, is_abort_marker
from kafka_sink.records.kernel import Kernel, Loss, fallback
from kafka_sink.records.record_batch import HEADER_BYTES, AbortedTransaction
from kafka_sink.records.record_walk import Wrong
from kernels import COMPILED, KERNELS, needs_kernel
from record_cases import Row, scalar_record, varint
from record_sets import (
    COLUMNS,
    CONTROL,
    LOG_APPEND_TIME,
    NO_END,
    TRANSACTIONAL,
    Batch,
    Case,
    cases,
    marker,
    plain,
    row,
    rows_of,
)

BOTH = pytest.mark.parametrize("kernel", KERNELS)
LIMITS = st.builds(Limits, st.sampled_from([1, 2, 5, 1000]), st.sampled_from([1, 60, 300, MOST_BYTES]))
HEADER = (b"k", b"v")


def decoder(kernel: Kernel, *batches: Batch | bytes, **given: Any) -> RecordSetDecoder:
    wanted: dict[str, Any] = {"first_offset": 0, "end_offset": NO_END, "columns": COLUMNS, **given}
    return RecordSetDecoder(b"".join(map(bytes, batches)), kernel=kernel, **wanted)


def values(*arguments: Any, column: str = "value", **given: Any) -> list[Any]:
    return [each[column] for each in rows_of(decoder(*arguments, **given))]


def found(reading: RecordSetDecoder) -> tuple[list[int], int]:
    """The offsets of the rows, and the next one."""
    return [each["offset"] for each in rows_of(reading)], reading.next_offset


def state(reading: RecordSetDecoder) -> tuple[int, int, int]:
    return reading.next_offset, reading.used_bytes, reading.batch_count


def transactional(producer_id: int, *values: bytes, base_offset: int, **fields: Any) -> Batch:
    return plain(*values, base_offset=base_offset, producer_id=producer_id, attributes=TRANSACTIONAL, **fields)


def wanted(case: Case) -> dict[str, Any]:
    return {
        "first_offset": case.first_offset, "end_offset": case.end_offset, "columns": case.columns,
        "aborted": case.aborted,
    }  # fmt: skip


@BOTH
@given(case=cases(), limits=LIMITS)
def test_every_record_set_gives_the_rows_that_javas_consumer_gives(kernel: Kernel, case: Case, limits: Limits) -> None:
    reading = decoder(kernel, bytes(case), **wanted(case), limits=limits)
    batches = list(reading)
    assert rows_of(batches) == case.expected()
    assert all(1 <= batch.num_rows <= limits.most_rows for batch in batches)
    assert all(batch.schema.names == list(case.columns) for batch in batches)
    assert all(field.type == TYPES[field.name] for batch in batches for field in batch.schema)
    assert reading.next_offset == case.next_offset


@needs_kernel
@given(case=cases(), limits=LIMITS)
def test_both_kernels_stop_at_the_same_rows(case: Case, limits: Limits) -> None:
    one, other = (decoder(kernel, bytes(case), **wanted(case), limits=limits) for kernel in (fallback(), COMPILED))
    for expected, batch in zip(one, other, strict=True):
        assert batch.equals(expected)
        assert state(other)[:2] == state(one)[:2]
    assert state(other) == state(one)


@BOTH
def test_all_columns_of_a_row(kernel: Kernel) -> None:
    given = [
        (0, row(b"value", b"key", 1_700_000_000_123, (b"trace", b"\xff"), (b"trace", None))),
        (2, row(None, None, -1)),
        (3, row(b"", b"", 0, (b"", b""))),
    ]
    (batch,) = decoder(kernel, Batch(rows=given, base_offset=40, base_timestamp=1_700_000_000_000))
    assert rows_of([batch]) == [
        {"key": b"key", "value": b"value", "offset": 40, "timestamp": 1_700_000_000_123_000, "timestampType": 0,
         "headers": [("trace", b"\xff"), ("trace", None)]},
        {"key": None, "value": None, "offset": 42, "timestamp": -1_000, "timestampType": 0, "headers": None},
        {"key": b"", "value": b"", "offset": 43, "timestamp": 0, "timestampType": 0, "headers": [("", b"")]},
    ]  # fmt: skip
    assert batch.schema == pa.schema([
        ("key", pa.binary()), ("value", pa.binary()), ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ])  # fmt: skip


@BOTH
def test_with_append_time_each_record_has_the_time_of_its_batch(kernel: Kernel) -> None:
    given = [(0, row(timestamp_ms=5)), (1, row(timestamp_ms=6))]
    batch = Batch(rows=given, attributes=LOG_APPEND_TIME, base_timestamp=5, max_timestamp=99)
    assert [values(kernel, batch, column=name) for name in ("timestamp", "timestampType")] == [[99_000] * 2, [1] * 2]


@BOTH
def test_header_keys_that_are_no_utf8_are_replaced_as_java_does(kernel: Kernel) -> None:
    given = Batch(rows=[(0, row(b"v", None, 0, (b"a\xffb", b"\xff"))), (1, row(b"w", None, 0, (b"\xc3\xa9", None)))])
    assert values(kernel, given, column="headers") == [[("a�b", b"\xff")], [("é", None)]]


@BOTH
def test_numbers_may_be_longer_than_they_need_to_be(kernel: Kernel) -> None:
    """ByteUtils.readVarint takes them."""
    zero, one = b"\x80\x80\x80\x80\x00", b"\x82\x80\x00"
    body = b"\0" + b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00" + zero + one + b"k" + one + b"v" + zero
    batch = plain(b"v", records=varint(len(body)) + body)
    assert rows_of(decoder(kernel, batch)) == rows_of(decoder(kernel, Batch(rows=[(0, row(b"v", b"k"))])))


@BOTH
@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_what_kafka_python_writes_is_read(kernel: Kernel, codec: int) -> None:
    builder = DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 20)
    rows = [(1_700_000_000_000 + i, b"k" * (i % 5), b"v" * i, [("h", b"w")]) for i in range(50)]
    for offset, (timestamp, key, value, headers) in enumerate(rows):
        builder.append(offset, timestamp, key, value, headers)
    read = rows_of(decoder(kernel, bytes(builder.build())))
    assert [(each["timestamp"] // 1000, each["key"], each["value"], each["headers"]) for each in read] == rows


@BOTH
def test_the_record_set_is_any_contiguous_memory_and_is_not_copied(kernel: Kernel) -> None:
    data = bytes(plain(b"a", b"b")) + bytes(plain(b"c", base_offset=2))
    received = bytearray(b"an answer" + data + b"its end")
    view = memoryview(received)[9 : 9 + len(data)]
    wanted: dict[str, Any] = {"first_offset": 0, "end_offset": NO_END, "columns": ["value"], "kernel": kernel}
    for records in (view, view.toreadonly(), np.frombuffer(data, np.uint8), pa.py_buffer(data)):
        assert [each["value"] for each in rows_of(RecordSetDecoder(records, **wanted))] == [b"a", b"b", b"c"]
    reading = RecordSetDecoder(view, **wanted)
    received[-8] ^= 1
    with pytest.raises(CorruptBatch):
        list(reading)


@BOTH
@pytest.mark.parametrize("first", range(9))
def test_rows_are_those_of_the_range(kernel: Kernel, first: int) -> None:
    given = [plain(b"0", b"1", b"2"), plain(b"3", base_offset=3), plain(b"4", b"5", b"6", b"7", base_offset=4)]
    for end in range(10):
        reading = decoder(kernel, *given, first_offset=first, end_offset=end, columns=["offset"])
        assert found(reading) == (list(range(first, min(end, 8))), min(max(first, 8), end))


@BOTH
def test_a_batch_without_records_moves_the_offset(kernel: Kernel) -> None:
    """Compaction leaves the header, with its last offset."""
    empty = Batch(base_offset=10, last_offset_delta=9, base_timestamp=-1)
    for reading in (decoder(kernel, empty), decoder(kernel, empty, first_offset=15)):
        assert (list(reading), reading.next_offset, reading.batch_count) == ([], 20, 1)
    assert found(decoder(kernel, plain(b"a", base_offset=9), empty, plain(b"b", base_offset=20))) == ([9, 20], 21)


@BOTH
@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_control_batches_give_no_rows_and_move_the_offset(kernel: Kernel, codec: str) -> None:
    given = [plain(b"a"), marker(1, 1, producer_id=7, codec=codec), plain(b"b", base_offset=2), marker(0, 3, 8)]
    for aborted in ([], [AbortedTransaction(8, 3)]):
        assert found(decoder(kernel, *given, aborted=aborted)) == ([0, 2], 4)
    # Whatever is in it, if nothing was aborted.
    assert found(decoder(kernel, plain(b"v", attributes=CONTROL, records=b"\xff"), *given[2:])) == ([2], 4)


@BOTH
def test_a_control_batch_that_compaction_has_emptied_ends_no_transaction(kernel: Kernel) -> None:
    emptied = Batch(base_offset=2, last_offset_delta=0, attributes=CONTROL | TRANSACTIONAL, producer_id=1)
    given = [transactional(1, b"a", b"b", base_offset=0), emptied, transactional(1, b"c", base_offset=3)]
    for aborted, left in ([], [0, 1, 3]), ([AbortedTransaction(1, 0)], []):
        assert found(decoder(kernel, *given, marker(0, 4, 1), aborted=aborted)) == (left, 5)


@BOTH
def test_rows_of_aborted_transactions_are_left_out(kernel: Kernel) -> None:
    given = [
        transactional(1, b"aborted", base_offset=0), transactional(2, b"committed", base_offset=1),
        plain(b"none", base_offset=2, producer_id=1), transactional(1, b"aborted", base_offset=3, codec="zstd"),
        marker(0, 4, producer_id=1), transactional(1, b"next", base_offset=5), marker(1, 6, producer_id=2),
        marker(1, 7, producer_id=1), transactional(2, b"later aborted", base_offset=8),
    ]  # fmt: skip
    aborted = [AbortedTransaction(2, 8), AbortedTransaction(1, 0)]
    assert found(decoder(kernel, *given, aborted=aborted)) == ([1, 2, 5], 9)
    assert len(values(kernel, *given)) == 6


@BOTH
def test_a_transaction_is_aborted_from_its_first_offset_on(kernel: Kernel) -> None:
    given = [transactional(1, b"committed", base_offset=0), marker(1, 1, 1), transactional(1, b"gone", base_offset=2)]
    assert values(kernel, *given, aborted=[AbortedTransaction(1, 2)]) == [b"committed"]


@BOTH
def test_an_abort_marker_before_the_range_ends_its_transaction(kernel: Kernel) -> None:
    given = [marker(0, 4, producer_id=1), transactional(1, b"next", base_offset=5)]
    assert values(kernel, *given, first_offset=5, aborted=[AbortedTransaction(1, 2)]) == [b"next"]


@BOTH
@pytest.mark.parametrize("key", [None, b"\0\0\0", struct.pack(">hh", -1, 0)])
def test_a_marker_that_cannot_be_read_is_an_error(kernel: Kernel, key: bytes | None) -> None:
    wrong = marker(0, 3, 1, rows=[(0, Row(key, b"", None, 0))])
    with pytest.raises(CorruptBatch, match="offset 3 "):
        list(decoder(kernel, wrong, aborted=[AbortedTransaction(1, 0)]))
    assert list(decoder(kernel, wrong)) == []


@BOTH
@pytest.mark.parametrize("left", [1, 8, 12, 16, 17, 60, 61, 68])
def test_a_batch_that_is_cut_off_is_left_for_the_next_fetch(kernel: Kernel, left: int) -> None:
    whole, cut = plain(b"a", b"b"), bytes(plain(b"c", base_offset=2))
    assert left < len(cut)
    reading = decoder(kernel, whole, cut[:left])
    assert (*found(reading), reading.used_bytes, reading.batch_count) == ([0, 1], 2, len(bytes(whole)), 1)
    alone = decoder(kernel, cut[:left], first_offset=2)
    assert (*found(alone), alone.used_bytes) == ([], 2, 0)


@BOTH
@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_an_arrow_batch_has_no_more_rows_and_bytes_than_it_may(kernel: Kernel, codec: str) -> None:
    size = len(scalar_record(row(b"v" * 50), 0, 0))
    given = [plain(*[b"v" * 50] * 4, base_offset=4 * i, codec=codec) for i in range(3)]

    def sizes(**limits: int) -> list[int]:
        return [batch.num_rows for batch in decoder(kernel, *given, limits=Limits(**limits))]

    assert sizes(most_rows=5) == [5, 5, 2]
    assert sizes(most_bytes=3 * size) == [3] * 4
    assert sizes(most_bytes=3 * size - 1) == [2] * 6
    assert sizes(most_bytes=1) == [1] * 12


@BOTH
@pytest.mark.parametrize(("codec", "after_the_third"), [("none", 7), ("zstd", 3)])
def test_the_next_offset_follows_the_rows_step_by_step(kernel: Kernel, codec: str, after_the_third: int) -> None:
    """A batch is passed by when the one after it is at hand. That is later if it must be decompressed."""
    given = [
        plain(b"a", b"b", b"c", codec=codec), Batch(base_offset=3, last_offset_delta=1),
        plain(b"d", base_offset=7, codec=codec),
    ]  # fmt: skip
    for most_rows, seen in (
        (2, [([0, 1], 2), ([2, 7], 8)]), (1, [([0], 1), ([1], 2), ([2], after_the_third), ([7], 8)]),
    ):  # fmt: skip
        reading = decoder(kernel, *given, columns=["offset"], limits=Limits(most_rows=most_rows))
        assert [(batch.column(0).to_pylist(), reading.next_offset) for batch in reading] == seen


@BOTH
def test_more_batches_than_are_scanned_at_a_time(kernel: Kernel) -> None:
    assert found(decoder(kernel, *(plain(b"v", base_offset=i) for i in range(2500)))) == (list(range(2500)), 2500)


def test_limits_are_what_arrow_can_hold_and_kafka_sends() -> None:
    for wrong in ({"most_rows": 0}, {"most_bytes": 2**31}, {"most_batch_bytes": -1}):
        with pytest.raises(ValueError, match="a limit is from 1"):
            Limits(**wrong)
    # A batch of message.max.bytes of the largest topics, and an Arrow batch below what Arrow can hold.
    assert DEFAULT_LIMITS.most_batch_bytes >= 100 * 1024 * 1024
    assert DEFAULT_LIMITS.most_bytes < MOST_BYTES


def wrong_record(body: bytes) -> Batch:
    return plain(b"v", base_offset=7, records=varint(len(body)) + body)


# attributes, deltas of time and offset
BEGIN = b"\0\0\0"
CORRUPT: dict[str, tuple[Batch | bytes, Fault]] = {
    "CRC": (plain(b"v", base_offset=7, crc=1), Fault.CRC),
    "magic 3": (plain(b"v", base_offset=7, magic=3), Fault.MAGIC),
    "magic -1": (plain(b"v", base_offset=7, magic=-1), Fault.MAGIC),
    "length of 48": (plain(b"v", base_offset=7, length=48), Fault.SIZE),
    "length below 0": (plain(b"v", base_offset=7, length=-1), Fault.SIZE),
    "last offset below the first": (plain(b"v", base_offset=7, last_offset_delta=-1), Fault.OFFSETS),
    "record count below 0": (plain(b"v", base_offset=7, record_count=-1), Fault.COUNT),
    "fewer records than counted": (plain(b"v", b"w", base_offset=7, record_count=3), Fault.COUNT),
    "more records than counted": (plain(b"v", b"w", base_offset=7, record_count=1), Fault.COUNT),
    "records of none": (plain(b"v", b"w", base_offset=7, record_count=0), Fault.COUNT),
    "no records of one": (Batch(base_offset=7, record_count=1), Fault.COUNT),
    "offset behind the last": (plain(b"v", b"w", base_offset=7, last_offset_delta=0), Fault.OFFSETS),
    "offset twice": (Batch(rows=[(0, row()), (0, row())], base_offset=7, last_offset_delta=5), Fault.OFFSETS),
    "offset below the first": (Batch(rows=[(-1, row())], base_offset=7, last_offset_delta=5), Fault.OFFSETS),
    "record longer than the batch": (plain(b"v", base_offset=7, records=varint(100) + BEGIN + b"\1\1\0"), Fault.RECORD),
    "record of no bytes": (plain(b"v", base_offset=7, records=varint(0)), Fault.RECORD),
    "record of -1 bytes": (plain(b"v", base_offset=7, records=varint(-1)), Fault.RECORD),
    "record of attributes": (wrong_record(b"\0"), Fault.RECORD),
    "key longer than the record": (wrong_record(BEGIN + varint(9) + b"k" + b"\1\0"), Fault.RECORD),
    "key of -2 bytes": (wrong_record(BEGIN + varint(-2) + b"\1\0"), Fault.RECORD),
    "key of 2^31 - 1 bytes": (wrong_record(BEGIN + varint(2**31 - 1) + b"\1\0"), Fault.RECORD),
    "value longer than the record": (wrong_record(BEGIN + b"\1" + varint(2) + b"v"), Fault.RECORD),
    "no header count": (wrong_record(BEGIN + b"\1\1"), Fault.RECORD),
    "headers of -1": (wrong_record(BEGIN + b"\1\1" + varint(-1)), Fault.RECORD),
    "more headers than there are": (wrong_record(BEGIN + b"\1\1" + varint(2) + b"\0\0"), Fault.RECORD),
    "headers of 2^31 - 1": (wrong_record(BEGIN + b"\1\1" + varint(2**31 - 1)), Fault.RECORD),
    "header without a key": (wrong_record(BEGIN + b"\1\1" + varint(1) + b"\1\1"), Fault.RECORD),
    "bytes behind the headers": (wrong_record(BEGIN + b"\1\1" + varint(1) + b"\0\0x"), Fault.RECORD),
    "bytes behind no headers": (wrong_record(BEGIN + b"\1\1\0x"), Fault.RECORD),
    "number of 6 bytes": (wrong_record(BEGIN + b"\x80\x80\x80\x80\x80\0" + b"\1\0"), Fault.RECORD),
    "number of 33 bits": (wrong_record(BEGIN + b"\x80\x80\x80\x80\x10" + b"\1\0"), Fault.RECORD),
    "number of 65 bits": (wrong_record(b"\0" + b"\x80" * 9 + b"\2" + b"\0\1\1\0"), Fault.RECORD),
    "number that does not end": (wrong_record(b"\0" + b"\xff" * 5), Fault.RECORD),
}  # fmt: skip


@BOTH
@pytest.mark.parametrize(("corrupt", "fault"), CORRUPT.values(), ids=CORRUPT)
def test_a_corrupt_batch_is_an_error_with_its_offset(kernel: Kernel, corrupt: Batch, fault: Fault) -> None:
    """Whatever columns are wanted."""
    for columns in (["offset"], ["value", "headers"], COLUMNS):
        given: dict[str, Any] = {"limits": Limits(most_rows=1), "columns": columns}
        with pytest.raises(CorruptBatch, match="the record batch at offset 7 ") as raised:
            list(decoder(kernel, plain(b"before", base_offset=3), corrupt, **given))
        assert (raised.value.base_offset, raised.value.fault) == (7, fault)


@BOTH
@pytest.mark.parametrize("base_offset", [-1, -(2**63), 2**63 - 2])
def test_offsets_that_do_not_exist(kernel: Kernel, base_offset: int) -> None:
    with pytest.raises(CorruptBatch) as raised:
        list(decoder(kernel, plain(b"v", base_offset=base_offset, last_offset_delta=1), end_offset=2**63 - 1))
    assert raised.value.base_offset == max(base_offset, 0)


@BOTH
@pytest.mark.parametrize("second", [0, 1, 2])
def test_batches_whose_offsets_do_not_ascend(kernel: Kernel, second: int) -> None:
    with pytest.raises(CorruptBatch) as raised:
        list(decoder(kernel, plain(b"a", b"b", b"c"), plain(b"d", base_offset=second)))
    assert (raised.value.base_offset, raised.value.fault) == (3, Fault.OFFSETS)


@BOTH
@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_an_error_with_offset_and_format(kernel: Kernel, magic: int) -> None:
    with pytest.raises(OldFormat, match=f"message format {magic}") as raised:
        list(decoder(kernel, plain(b"v", base_offset=12, magic=magic, length=22)))
    assert (raised.value.base_offset, raised.value.magic) == (12, magic)


@BOTH
def test_crcs_are_compared_unless_they_are_not_to_be(kernel: Kernel) -> None:
    wrong = plain(b"v", crc=1)
    with pytest.raises(CorruptBatch):
        list(decoder(kernel, wrong))
    assert values(kernel, wrong, check_crcs=False) == [b"v"]


@BOTH
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_batch_that_is_too_large_when_decompressed(kernel: Kernel, codec: str) -> None:
    batch = plain(bytes(100_000), base_offset=7, codec=codec)
    size = len(scalar_record(row(bytes(100_000)), 0, 0))
    with pytest.raises(BatchTooLarge, match=f"offset 7 has more than {size - 1} bytes") as raised:
        list(decoder(kernel, batch, limits=Limits(most_batch_bytes=size - 1)))
    assert (raised.value.base_offset, raised.value.next_offset, raised.value.most_bytes) == (7, 8, size - 1)
    assert len(values(kernel, batch, limits=Limits(most_batch_bytes=size))) == 1
    # It is no limit of plain batches.
    assert len(values(kernel, plain(bytes(1000)), limits=Limits(most_batch_bytes=10))) == 1


@needs_kernel
@given(case=cases(), data=st.data(), checks=st.booleans())
def test_both_kernels_find_the_same_in_damaged_bytes(case: Case, data: st.DataObject, checks: bool) -> None:
    """With CRCs that fit the damage, or unchecked, so that more than the CRC is seen."""
    damaged = bytearray(bytes(case))
    for _ in range(data.draw(st.integers(1, 4))):
        if damaged:
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    outcomes = [outcome(kernel, bytes(damaged), case, checks) for kernel in (fallback(), COMPILED)]
    assert outcomes[0] == outcomes[1]


def outcome(kernel: Kernel, records: bytes, case: Case, checks: bool) -> tuple[object, ...]:
    limits = Limits(most_rows=3, most_batch_bytes=100_000)
    reading = decoder(kernel, records, **wanted(case), check_crcs=checks, limits=limits)
    seen: list[object] = []
    try:
        for batch in reading:
            seen += [rows_of([batch]), reading.next_offset]
    except Undecodable as error:
        seen.append((type(error), str(error)))
    return (*seen, *state(reading))


def test_slow_reading_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    lost = replace(fallback(), loss=Loss("it was not built", "install a C compiler"))
    assert [values(lost, plain(b"v")) for _ in range(3)] == [[b"v"]] * 3
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "not built. The same rows are read, but" in record.getMessage() and "C compiler" in record.getMessage()


def with_headers(*counts: int, base_offset: int = 0, codec: str = "none") -> Batch:
    rows = [(number, row(b"v", None, 0, *[HEADER] * count)) for number, count in enumerate(counts)]
    return Batch(rows=rows, base_offset=base_offset, codec=codec)


@BOTH
@pytest.mark.parametrize("columns", [("value", "headers"), ("value",)])
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_headers_of_a_batch_are_bounded(kernel: Kernel, columns: tuple[str, ...], codec: str) -> None:
    given: dict[str, Any] = {"columns": columns, "limits": Limits(most_headers=10)}
    right = [with_headers(5, 5, base_offset=base, codec=codec) for base in (0, 2, 4)]
    assert len(values(kernel, *right, **given)) == 6
    for counts in ((11,), (5, 6), (0, 10, 1)):
        with pytest.raises(TooManyHeaders) as raised:
            list(decoder(kernel, *right, with_headers(*counts, base_offset=6, codec=codec), **given))
        error = raised.value
        assert (error.base_offset, error.next_offset, error.most_headers) == (6, 6 + len(counts), 10)


@BOTH
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_marker_is_not_decompressed_into_more_than_a_marker_has(kernel: Kernel, codec: str) -> None:
    """Nobody looks at it unless a transaction was aborted."""
    aborted, behind = (AbortedTransaction(1, 0),), plain(b"a", base_offset=5)
    right = marker(0, 3, 1, codec=codec)
    assert found(decoder(kernel, right, behind, aborted=aborted)) == ([5], 6)
    records = bytes(marker(0, 3, 1))[HEADER_BYTES:] + bytes(1024 * 1024)
    bomb = replace(right, stored=bytes(codec_for(codec).compress(memoryview(records))))
    with pytest.raises(CorruptBatch) as raised:
        list(decoder(kernel, bomb, behind, aborted=aborted))
    assert (raised.value.base_offset, raised.value.next_offset) == (3, 4)


@BOTH
@pytest.mark.parametrize("nanoseconds", [1_714_564_800_000_000_000, -(2**62)])
def test_a_timestamp_that_spark_cannot_hold_is_named(kernel: Kernel, nanoseconds: int) -> None:
    rows = [row(b"a", None, 1), row(b"b", None, nanoseconds), row(b"c", None, nanoseconds)]
    batch, before = Batch(rows=list(enumerate(rows)), base_offset=40), plain(b"x", base_offset=30)
    of_broker = replace(batch, attributes=LOG_APPEND_TIME, max_timestamp=nanoseconds)
    for read, first, offset in ([before, batch], 0, 41), ([batch], 41, 41), ([batch], 42, 42), ([of_broker], 0, 40):
        with pytest.raises(TimestampOutOfRange) as raised:
            list(decoder(kernel, *read, columns=("timestamp",), first_offset=first))
        assert (raised.value.offset, raised.value.timestamp_ms) == (offset, nanoseconds)
    assert len(values(kernel, batch, columns=("value", "offset"))) == 3
    last_ms = (2**63 - 1) // 1000
    held = Batch(rows=[(0, row(timestamp_ms=last_ms)), (1, row(timestamp_ms=-last_ms))])
    assert values(kernel, held, column="timestamp") == [last_ms * 1000, -last_ms * 1000]


def marker_record(key: bytes | None) -> memoryview:
    return memoryview(scalar_record(Row(key, bytes(6), None, 0), 0, 0))


@pytest.mark.parametrize(("kind", "is_one"), [(0, True), (1, False), (2, False), (-1, False)])
@pytest.mark.parametrize("version", [0, 1, 2**15 - 1])
def test_only_the_marker_of_an_abort_is_one(version: int, kind: int, is_one: bool) -> None:
    """Other kinds are of snapshots and leaders, or not known yet: they mean nothing here."""
    assert is_abort_marker(marker_record(struct.pack(">hh", version, kind))) is is_one
    assert is_abort_marker(marker_record(struct.pack(">hh", version, kind) + b"later fields")) is is_one
    cut_off = [marker_record(bytes(4))[:size] for size in range(len(marker_record(bytes(4))))]
    for wrong in (*map(marker_record, [None, b"", b"\0\0\0", struct.pack(">hh", -1, kind)]), *cut_off):
        with pytest.raises(Wrong):
            is_abort_marker(wrong)

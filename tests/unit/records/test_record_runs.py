"""Runs of records read by kafka-python, under a header that says what the runs say of themselves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from kafka_sink.records.record_batch import HEADER_BYTES, write_header
from kafka_sink.records.record_runs import RecordRun, cut_records
from record_cases import ROWS, Row, scalar_record

BASE_TIMESTAMP = 1_700_000_000_000


def encoded(rows: list[Row]) -> list[bytes]:
    """The records of a batch of `rows`."""
    return [scalar_record(row, i, row.timestamp_ms - BASE_TIMESTAMP) for i, row in enumerate(rows)]


def read(run: RecordRun) -> list[Row]:
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
    records = encoded(rows)
    runs = cut_records(b"".join(records), BASE_TIMESTAMP, run_bytes)
    expected = [Row(row.key, row.value, row.headers or (), row.timestamp_ms) for row in rows]
    assert [row for run in runs for row in read(run)] == expected
    first = 0
    for run in runs:
        last = first + run.record_count
        size = sum(map(len, records[first:last]))
        assert size <= run_bytes or run.record_count == 1
        assert last == len(rows) or size + len(records[last]) > run_bytes
        first = last


def test_places_of_more_than_one_byte_are_told_anew() -> None:
    rows = [Row(None, b"%d" % n, (), BASE_TIMESTAMP + 7 * n) for n in range(20_000)]
    records = b"".join(encoded(rows))
    runs = cut_records(records, BASE_TIMESTAMP, len(records) // 2 + 20)
    assert [len(run.data) < len(records) for run in runs] == [True, True]
    assert [row for run in runs for row in read(run)] == rows

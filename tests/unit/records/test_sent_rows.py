"""Rows that were encoded, told apart again: against the encoder, on both kernels, and the records of other clients."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.records.encoder import RecordEncoder
from kafka_sink.records.record_runs import records_at, without_records
from kafka_sink.records.sent_rows import SentRow, rows_before
from record_cases import Case, cases, int64s


def encoded(case: Case, rows: Any) -> bytes:
    """With times from the first row's on."""
    times = case.columns.timestamp_ms[rows]
    numbers = np.arange(len(rows))
    data, _ = RecordEncoder(case.columns, int64s(rows)).encode(slice(None), numbers, times - times[0])
    return data.tobytes()


def read(case: Case, records: bytes, base_timestamp: int, places: list[int]) -> list[Any]:
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
    records = encoded(case, rows)
    assert read(case, records, base, sorted(places)) == given_rows(case, sorted(places))
    left = without_records(records, base, places)
    kept = [row for row in rows if row not in places]
    if not kept:
        assert left is None
        return
    assert left is not None
    times = case.columns.timestamp_ms[kept]
    assert left.data == encoded(case, kept)
    assert (left.record_count, left.base_timestamp, left.max_timestamp) == (len(kept), times[0], times.max())

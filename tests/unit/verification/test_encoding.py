"""The checksums of the two encoders, which share no code, are the same for the same records, and for no others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.records.encoder import RecordEncoder
from kafka_sink.verification.encoding import RunChecksum
from record_cases import ROWS, Case, Row, cases, scalar_record


def checksum(rows: list[Row], base_timestamp: int) -> int:
    found = RunChecksum(base_timestamp)
    for row in rows:
        headers = [(name.decode(), value) for name, value in row.headers or ()]
        found.add(row.key, row.value, headers, row.timestamp_ms)
    assert found.count == len(rows)
    return found.crc


@given(cases(), st.integers(0, 2**41))
def test_the_sinks_own_encoder_makes_the_same_records(case: Case, base_timestamp: int) -> None:
    count = len(case.rows)
    encoder = RecordEncoder(case.columns, np.arange(count))
    deltas = np.array([row.timestamp_ms - base_timestamp for row in case.rows], np.int64)
    data, _ = encoder.encode(slice(0, count), np.arange(count), deltas)
    assert checksum(case.rows, base_timestamp) == crc32c(data.tobytes())


CHANGES = {
    "key": lambda row: replace(row, key=b"" if row.key is None else row.key + b"."),
    "value": lambda row: replace(row, value=b"" if row.value is None else None),
    "header": lambda row: replace(row, headers=(*(row.headers or ()), (b"h", None))),
    "time": lambda row: replace(row, timestamp_ms=row.timestamp_ms + 1),
}


@pytest.mark.parametrize("changed", CHANGES)
@given(rows=ROWS.filter(len), data=st.data())
def test_any_change_is_another_checksum(changed: str, rows: list[Row], data: st.DataObject) -> None:
    which = data.draw(st.integers(0, len(rows) - 1))
    other = [CHANGES[changed](row) if number == which else row for number, row in enumerate(rows)]
    assert checksum(other, 0) != checksum(rows, 0)


def test_the_order_counts() -> None:
    one, other = Row(b"a", b"1", (), 5), Row(b"b", b"2", (), 5)
    assert checksum([one, other], 5) != checksum([other, one], 5)
    records = scalar_record(one, 0, 0) + scalar_record(other, 1, 0)
    assert checksum([one, other], 5) == crc32c(records)

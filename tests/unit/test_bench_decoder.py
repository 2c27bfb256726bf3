"""That the benchmark decodes the rows it says it decodes. How fast is nobody's test."""

from __future__ import annotations

import pytest

import bench_decoder
from bench_decoder import CASES, RECORD_SET_BYTES, Case
from kafka_sink.records.decoder import RecordSetDecoder


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_record_set_is_as_large_as_an_answer_and_has_what_is_wanted(case: Case) -> None:
    made = bench_decoder.record_set(case, 0)
    assert 0.9 * RECORD_SET_BYTES < len(made.data) <= RECORD_SET_BYTES
    for batch in RecordSetDecoder(made.data, first_offset=0, end_offset=made.row_count, columns=case.columns):
        assert all(len(value) == case.value_bytes for value in batch.column("value").to_pylist())
        assert ("headers" in case.columns) == case.has_headers
        assert not case.has_headers or batch.column("headers").null_count == 0


def test_figures_are_of_all_rows() -> None:
    (figure, *_) = bench_decoder.measure([Case(1024)], rounds=1)
    assert figure.case == "1,024 bytes, none, all"
    assert figure.records_per_s == pytest.approx(1e9 / figure.ns_per_record)
    # A record has 8 bytes of key and some ten of numbers beside its value.
    assert 1024 + 8 < figure.bytes_per_s / figure.records_per_s < 1024 + 30

"""That benchmarks move the rows that they say they move, and count what they say. How fast is nobody's test."""

import dataclasses
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import bench_decoder
import process_tree
import slot_model
from bench_core import Case, CorePath
from bench_spark import OURS, PAIRS, figure, ratio_table
from code_blocks import ROOT
from frame import Application
from kafka_sink.options.config import sink_config
from kafka_sink.records.decoder import RecordSetDecoder
from spark_sessions import Cost


@pytest.mark.parametrize(("partition_count", "buffer_memory"), [(4, 64 * 1024), (4, 64 << 20), (50, 1 << 20)])
def test_a_round_encodes_every_row_and_gives_all_memory_back(partition_count: int, buffer_memory: int) -> None:
    config = sink_config({"kafka.bootstrap.servers": "localhost:9092"}).producer
    config = dataclasses.replace(config, buffer_memory=buffer_memory, batch_size=16 * 1024)
    path = CorePath(Case(100, partition_count), 1_000, config)
    for _ in range(2):
        rate = path.round(20_000)
        assert path.record_count == 24_000  # three times the eight Arrow batches
        assert rate == path.record_count / path.cpu_s
        # A record: 108 bytes of key and value, 4 of lengths, 2 of attributes and header count, 2 to 6 of deltas.
        assert 24_000 * 116 <= path.wire_bytes - path.batch_count * 61 <= 24_000 * 120
        assert path.batch_count >= 24_000 * 116 // (16 * 1024)
        assert path.held_bytes == 0


@pytest.mark.parametrize("case", bench_decoder.CASES, ids=str)
def test_a_record_set_is_as_large_as_an_answer_and_has_what_is_wanted(case: bench_decoder.Case) -> None:
    made = bench_decoder.record_set(case, 0)
    assert 0.9 * bench_decoder.RECORD_SET_BYTES < len(made.data) <= bench_decoder.RECORD_SET_BYTES
    for batch in RecordSetDecoder(made.data, first_offset=0, end_offset=made.row_count, columns=case.columns):
        assert all(len(value) == case.value_bytes for value in batch.column("value").to_pylist())
        assert ("headers" in case.columns) == case.has_headers
        assert not case.has_headers or batch.column("headers").null_count == 0


def test_the_page_has_the_formulas_of_slots_and_their_symbols() -> None:
    page = (ROOT / "docs" / "design" / "performance.md").read_text(encoding="utf-8")
    formulas, symbols = slot_model.tables()
    assert formulas in page
    assert symbols in page
    letters = {word for each in slot_model.FORMULAS for word in each.text.replace("(", " ").split() if len(word) == 1}
    assert {each for each in letters if each.isalpha()} <= slot_model.SYMBOLS.keys()


def test_an_application_that_ends_is_not_waited_for(tmp_path: Path) -> None:
    application = Application(tmp_path / "log", str, "text")
    assert application.ask("upper") == "TEXT"
    with pytest.raises(SystemExit, match=r"status 1; the log is .*/log"):
        application.ask("no method of a text")
    assert "no method of a text" in (tmp_path / "log").read_text()


def test_the_cpu_time_of_grandchildren_counts_when_they_have_ended() -> None:
    """What Spark's workers used, which a daemon started and waited for."""
    before_s, child_before = process_tree.cpu_s(os.getpid()), time.process_time()
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    subprocess.run([sys.executable, "-I", "-c", parent], check=True)
    own_s = time.process_time() - child_before
    assert process_tree.cpu_s(os.getpid()) - before_s - own_s > 0.25


def test_figures_are_medians_and_a_ratio_compares_within_a_round() -> None:
    """The machine was ten times as slow in the second round, for both."""
    ours = [Cost(1.0, 1.0), Cost(10.0, 10.0), Cost(1.0, 1.5)]
    theirs = [Cost(2.0, 4.0), Cost(20.0, 40.0), Cost(3.0, 2.0)]
    found = figure(OURS["none"], ours, rows=2_000_000)
    assert (found.rows_per_s, found.slowest_rows_per_s, found.fastest_rows_per_s) == (2e6, 2e5, 2e6)
    assert found.cpu_s_per_million_rows == 0.75
    table = ratio_table({PAIRS[0].ours: ours, PAIRS[0].theirs: theirs}, 1_000_000)
    assert "2.00 x | >= 1.5 x | 0.25 x    | <= 0.7 x | -3.00" in table

"""A receipt's runs, summed by topic."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from kafka_sink import receipt_file
from kafka_sink.monitoring.micro_batch import Run, Totals
from kafka_sink.monitoring.receipts import ReceiptTotals

RUN = Run("a query", "run", 7)


def leave(folder: Path, *runs: tuple[str | None, int, int]) -> Path:
    path = folder / receipt_file.relative_path(RUN.query_id, RUN.batch_id)
    path.parent.mkdir(parents=True)
    rows = [{"topic": topic, "record_count": count, "batch_bytes": size} for topic, count, size in runs]
    pq.write_table(receipt_file.columns_of(rows), path)
    return path


def test_runs_add_up_by_topic(tmp_path: Path) -> None:
    leave(tmp_path, ("t", 2, 50), ("u", 5, 70), ("t", 1, 10), (None, 9, 0))
    assert ReceiptTotals(str(tmp_path)).topics_of(RUN) == {"t": Totals(3, 2, 60), "u": Totals(5, 1, 70)}


def test_of_a_micro_batch_without_rows_nothing_was_written(tmp_path: Path) -> None:
    leave(tmp_path, (None, 0, 0))
    assert ReceiptTotals(str(tmp_path)).topics_of(RUN) == {}


def test_no_receipt_says_nothing_and_one_that_is_none_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    totals = ReceiptTotals(str(tmp_path))
    assert totals.topics_of(RUN) == {}
    assert not caplog.text
    leave(tmp_path, ("t", 1, 1)).write_bytes(b"no parquet")
    assert totals.topics_of(RUN) == {}
    assert "the receipt of micro-batch 7 of query a query" in caplog.text

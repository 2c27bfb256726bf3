"""A receipt's runs, summed by topic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from kafka_sink.monitoring.micro_batch import BadRows, Run, Totals, Written
from kafka_sink.monitoring.receipts import NOTHING_KNOWN, ReceiptTotals
from kafka_sink.verification import receipt_file

RUN = Run("a query", "run", 7)


def leave(folder: Path, *runs: tuple[str | None, int, int], retries: int = 0, dropped: int = 0) -> Path:
    path = folder / receipt_file.relative_path(RUN.query_id, RUN.batch_id)
    path.parent.mkdir(parents=True)
    rows: list[dict[str, Any]] = [
        {"topic": topic, "rows": 9, "record_count": count, "batch_bytes": size, "retries": retries, "dropped": 0}
        for topic, count, size in runs
    ]
    rows[0]["dropped"] = dropped
    pq.write_table(receipt_file.columns_of(rows), path)
    return path


def test_retries_and_bad_rows_are_there_and_throttles_are_not_known(tmp_path: Path) -> None:
    leave(tmp_path, ("t", 2, 50), ("t", 1, 10), retries=2, dropped=4)
    written = ReceiptTotals(str(tmp_path)).written_in(RUN)
    assert written == Written({"t": Totals(3, 2, 60, 6)}, {BadRows("dropped", ""): 4}, throttled_ms=None)


def test_no_receipt_says_nothing_and_one_that_is_none_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    totals = ReceiptTotals(str(tmp_path))
    assert totals.written_in(RUN) == NOTHING_KNOWN
    assert not caplog.text
    leave(tmp_path, ("t", 1, 1)).write_bytes(b"no parquet")
    assert totals.written_in(RUN) == NOTHING_KNOWN
    assert "the receipt of micro-batch 7 of query a query" in caplog.text

"""What an export tells of its receipt file, which may be another write's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka_sink.exporting import writing
from kafka_sink.exporting.columns import ColumnArguments, Framing
from kafka_sink.exporting.result import ExportResult
from kafka_sink.exporting.writing import ExportSettings, export_batch
from kafka_sink.options.config import sink_config
from kafka_sink.verification.receipt_file import columns_of, relative_path

NAMED = {"receiptName": "orders-1"}
VERSION = {"deliveryGuarantee": "exactly-once", "txnAppId": "orders", "txnVersion": "5"}


def file(rows: int) -> pa.Table:
    run = {"topic": "t", "partition": 0, "base_offset": 10, "record_count": rows, "batch_bytes": 90, "dropped": 0}
    return columns_of([{"rows": rows, **run}])


class Writer:
    """Of the DataFrame API what an export calls; `save` leaves `table` where the options say, or nothing."""

    def __init__(self, path: Path, table: pa.Table | bytes | None) -> None:
        self._path, self._table = path, table
        self.options = self.format = self.mode = lambda *args, **more: self

    def save(self) -> None:
        put(self._path, self._table)


def put(path: Path, table: pa.Table | bytes | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(table, bytes):
        path.write_bytes(table)
    elif table is not None:
        pq.write_table(table, path)


@pytest.fixture
def export(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """An export that finds `before` in its receipt's place, and whose write leaves `after` there."""

    @contextmanager
    def unwatched(*args: Any, **more: Any) -> Iterator[str]:
        yield "pykafka"

    def run(said: dict[str, str], *, before: pa.Table | bytes | None, after: pa.Table | bytes | None) -> ExportResult:
        name, number = ("txnAppId:orders", 5) if said is VERSION else ("orders-1", 0)
        path = tmp_path / relative_path(name, number)
        put(path, before)
        config = sink_config({"kafka.bootstrap.servers": "a:1", "topic": "t", "receiptsPath": str(tmp_path), **said})
        records = SimpleNamespace(write=Writer(path, after))
        ready = SimpleNamespace(records=records, config=config, is_remote=False)
        monkeypatch.setattr(writing, "made_ready", lambda *args: ready)
        monkeypatch.setattr(writing, "watched", unwatched)
        monkeypatch.setattr(writing, "active", lambda spark: nullcontext())
        frame: Any = SimpleNamespace(isStreaming=False, sparkSession=None)
        settings = ExportSettings(options={}, co_partition=False, order_by=(), validate=False, token=None)
        return export_batch(frame, ColumnArguments(), Framing(topic="t"), settings, progress=False)

    return run


@pytest.mark.parametrize("before", [None, file(7)])
def test_a_file_that_this_write_left_is_told(export: Any, before: pa.Table | None) -> None:
    receipt = export(NAMED, before=before, after=file(12))
    assert (receipt.rows, receipt.partitions[0].record_count) == (12, 12)
    assert receipt.path is not None and not receipt.was_written_before


@pytest.mark.parametrize(("before", "after"), [(file(7), None), (file(7), file(7)), (b"no receipt", file(7))])
def test_an_old_file_of_a_users_name_is_not_taken_for_this_write(
    export: Any, caplog: pytest.LogCaptureFixture, before: pa.Table | bytes, after: pa.Table | None
) -> None:
    """At-least-once only logs where it cannot write its receipt."""
    receipt = export(NAMED, before=before, after=after)
    assert (receipt.rows, receipt.partitions, receipt.path, receipt.was_written_before) == (None, (), None, False)
    assert "there is no receipt of them" in receipt.summary
    assert "may be an earlier write's" in caplog.text


def test_a_version_that_was_written_is_told(export: Any) -> None:
    """Also where a run before it left a file of rows that were aborted."""
    for before in (None, file(7)):
        receipt = export(VERSION, before=before, after=file(12))
        assert (receipt.rows, receipt.was_written_before) == (12, False)
        Path(receipt.path).unlink()


def test_the_file_of_a_version_that_is_passed_over_is_named_and_not_told(export: Any) -> None:
    receipt = export(VERSION, before=None, after=None)
    assert (receipt.rows, receipt.path, receipt.was_written_before) == (None, None, True)
    # Its rows may have been aborted: its run died before the decision, and a later version came.
    receipt = export(VERSION, before=file(7), after=None)
    assert (receipt.rows, receipt.written, receipt.partitions, receipt.was_written_before) == (None, None, (), True)
    assert receipt.path.endswith("batch-00000000000000000005.parquet")
    assert receipt.summary.startswith("nothing was written: this txnVersion or a later one was written before; receipt")


@pytest.mark.parametrize(("before", "after"), [(b"no receipt", file(7)), (file(7), b"no receipt")])
def test_a_file_that_cannot_be_read_leaves_open_whether_the_version_was_passed_over(
    export: Any, before: Any, after: Any
) -> None:
    receipt = export(VERSION, before=before, after=after)
    assert (receipt.rows, receipt.partitions, receipt.was_written_before) == (None, (), None)
    assert "is written, now or before" in receipt.summary

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyarrow.fs import LocalFileSystem

from kafka_sink.verification import receipt_file
from kafka_sink.verification.receipts import Gap, Receipts, gaps

ROW = {
    "query_id": "q", "batch_id": 0, "kind": "stream", "guarantee": "at-least-once", "rows": 5, "slot": 0, "topic": "t",
    "partition": 0, "base_offset": 0, "record_count": 5, "checksum": 1, "base_timestamp": 0,
}  # fmt: skip


def put(folder: Path, *rows: dict[str, Any]) -> Path:
    """One file of a micro-batch of `rows`, which say what differs from ROW."""
    every = [ROW | row for row in rows]
    file = folder / receipt_file.relative_path(every[0]["query_id"] or "", every[0]["batch_id"] or 0)
    file.parent.mkdir(parents=True, exist_ok=True)
    total = sum(row["record_count"] for row in every)
    pq.write_table(receipt_file.columns_of([{"rows": total} | row for row in every]), file)
    return file


def receipts(folder: Path) -> Receipts:
    return Receipts(LocalFileSystem(), str(folder))


def test_runs_come_in_the_order_in_which_partitions_are_read(tmp_path: Path) -> None:
    put(tmp_path, {"base_offset": 50, "rows": 10}, {"partition": 1, "base_offset": 7, "rows": 10})
    put(tmp_path, {"batch_id": 1, "base_offset": 20})
    put(tmp_path, {"query_id": "p", "guarantee": "exactly-once", "base_offset": 60})
    put(tmp_path, {"query_id": "o", "topic": "s", "base_offset": 99})
    found = receipts(tmp_path)
    assert [(run.is_exactly_once, run.topic, run.partition, run.base_offset) for run in found.runs()] == [
        (False, "s", 0, 99), (False, "t", 0, 20), (False, "t", 0, 50), (False, "t", 1, 7), (True, "t", 0, 60),
    ]  # fmt: skip
    assert (found.files, found.run_count, found.row_count, found.topics) == (4, 5, 25, ["s", "t"])
    assert next(found.runs()).last_offset == 103
    assert (found.gaps, found.unreadable, found.unplaced()) == ([], [], [])


def test_records_without_offsets_are_told_apart_and_an_empty_micro_batch_has_none(tmp_path: Path) -> None:
    first = put(tmp_path, {"base_offset": None}, {"topic": None, "partition": None, "base_offset": None})
    table = receipt_file.read(LocalFileSystem(), str(first))
    position = table.schema.get_field_index("rows")
    pq.write_table(table.set_column(position, "rows", [[10, 10]]).cast(receipt_file.SCHEMA), first)
    put(tmp_path, {"batch_id": 1, "topic": None, "base_offset": None, "record_count": 0, "rows": 0})
    found = receipts(tmp_path)
    assert list(found.runs()) == []
    told = [(each.topic, each.partition, each.record_count) for each in found.unplaced()]
    assert told == [("t", 0, 5), (None, None, 5)]


def test_numbers_that_are_missing_are_a_streams_only(tmp_path: Path) -> None:
    for number in (3, 4, 7, 9):
        put(tmp_path, {"batch_id": number})
        put(tmp_path, {"batch_id": number, "query_id": "txnAppId:a", "kind": "version"})
    put(tmp_path, {"batch_id": 8, "query_id": "other"})
    assert receipts(tmp_path).gaps == [Gap("q", 5, 6), Gap("q", 8, 8)]
    assert gaps("q", [4]) == gaps("q", []) == []


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ({"rows": 6}, "5 records, but Spark delivered 6 rows"),
        ({"rows": 4}, "5 records, but Spark delivered 4 rows"),
        *(
            ({name: None}, f"its column {name!r} has nulls")
            for name in ("query_id", "batch_id", "kind", "guarantee", "checksum", "base_timestamp")
        ),
        ({"rows": 6, "dropped": 2}, "5 records and 2 that were left out, but Spark delivered 6 rows"),
    ],
)
def test_a_file_with_fewer_or_more_records_than_rows_is_no_proof(tmp_path: Path, row: dict[str, Any], why: str) -> None:
    put(tmp_path, {"batch_id": 1})
    changed = put(tmp_path, row)
    found = receipts(tmp_path)
    ((file, said),) = found.unreadable
    assert (file, why in said) == (str(changed), True)
    assert [run.batch_id for run in found.runs()] == [1]


def test_rows_that_were_left_out_as_bad_are_accounted_for(tmp_path: Path) -> None:
    put(tmp_path, {"rows": 12, "dropped": 2}, {"rows": 12, "base_offset": 5})
    put(tmp_path, {"batch_id": 1, "rows": 3, "dropped": 3, "record_count": 0, "topic": None, "base_offset": None})
    found = receipts(tmp_path)
    assert (found.unreadable, found.unplaced(), found.row_count, found.dropped_count) == ([], [], 15, 5)
    assert [run.record_count for run in found.runs()] == [5, 5]


def test_a_file_that_is_none_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    put(tmp_path, {"batch_id": 1})
    (tmp_path / "query_id=q" / "cut.parquet").write_bytes(b"PAR1")
    pq.write_table(receipt_file.columns_of([ROW]).drop_columns(["checksum"]), tmp_path / "old.parquet")
    pq.write_table(receipt_file.SCHEMA.empty_table(), tmp_path / "empty.parquet")
    found = receipts(tmp_path)
    assert sorted(Path(file).name for file, _ in found.unreadable) == ["cut.parquet", "empty.parquet", "old.parquet"]
    assert dict(found.unreadable)[str(tmp_path / "old.parquet")] == "it has no column 'checksum'"
    assert [run.batch_id for run in found.runs()] == [1]

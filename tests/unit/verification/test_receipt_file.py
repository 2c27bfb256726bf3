from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.fs import FileSystem, LocalFileSystem

from kafka_sink.verification import receipt_file
from kafka_sink.verification.receipt_file import SCHEMA, filesystem_of, paths_in, read, relative_path


def test_names_sort_as_numbers_do_and_folders_are_hives() -> None:
    names = [relative_path("q", number) for number in (0, 9, 10, 2**63 - 1)]
    assert names == sorted(names)
    assert names[1] == "query_id=q/batch-00000000000000000009.parquet"
    assert relative_path("txnAppId:a/..", 0).startswith("query_id=txnAppId%3Aa%2F../")


def test_what_is_on_its_way_is_no_receipt(tmp_path: Path) -> None:
    for name in ("query_id=a/b.parquet", "query_id=a/_b.parquet.77", "query_id=a/_b.parquet", "c.parquet", "d.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = paths_in(LocalFileSystem(), str(tmp_path))
    assert found == [str(tmp_path / "c.parquet"), str(tmp_path / "query_id=a" / "b.parquet")]
    assert paths_in(LocalFileSystem(), found[0]) == [found[0]]


def test_hadoops_name_of_s3_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Asked:
        @staticmethod
        def from_uri(uri: str) -> tuple[FileSystem, str]:
            asked.append(uri)
            return LocalFileSystem(), "/"

    monkeypatch.setattr("pyarrow.fs.FileSystem", Asked)
    for path in ("s3a://b/x", "s3://b/x", "/x"):
        filesystem_of(path)
    assert asked == ["s3://b/x", "s3://b/x", "/x"]


@pytest.mark.parametrize(("row_count", "text"), [(100_000, "x"), (1_000, "x" * 1_000)], ids=["rows", "texts"])
def test_a_small_file_of_many_equal_rows_is_refused_before_they_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row_count: int, text: str
) -> None:
    row = {field.name: text if pa.types.is_string(field.type) else 1 for field in SCHEMA}
    row["started_at"] = datetime.datetime.now(datetime.UTC)
    table = pa.Table.from_pylist([row], SCHEMA).take(pa.array([0] * row_count))
    file = str(tmp_path / "batch-1.parquet")
    pq.write_table(table, file)
    assert Path(file).stat().st_size < 100_000
    assert read(LocalFileSystem(), file).equals(table)
    monkeypatch.setattr(receipt_file, "MAX_BYTES", 1_000_000)
    with pytest.raises(pa.ArrowInvalid, match=r"its rows take [\d,]+ bytes in memory"):
        read(LocalFileSystem(), file)

"""Receipts: what is read of a folder of them, and files that are none, or hostile."""

import datetime
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow.fs import LocalFileSystem

from kafka_sink.verification import receipt_file
from kafka_sink.verification.parquet_pages import inflated_bytes
from kafka_sink.verification.receipt_file import SCHEMA, filesystem_of, paths_in, read, relative_path
from kafka_sink.verification.receipts import Gap, Receipts, gaps

ROW = {
    "query_id": "q", "batch_id": 0, "kind": "stream", "guarantee": "at-least-once", "rows": 5, "slot": 0, "topic": "t",
    "partition": 0, "base_offset": 0, "record_count": 5, "checksum": 1, "base_timestamp": 0,
}  # fmt: skip
STARTED = {"started_at": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), "duration_ms": 5}
WITH_ONE = pa.Table.from_pylist([ROW | STARTED], SCHEMA)


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
    asked: list[Any] = []
    from_uri = SimpleNamespace(from_uri=lambda uri: asked.append(uri) or (LocalFileSystem(), "/"))
    monkeypatch.setattr("pyarrow.fs.FileSystem", from_uri)
    for path in ("s3a://b/x", "s3://b/x", "/x"):
        filesystem_of(path)
    assert asked == ["s3://b/x", "s3://b/x", "/x"]


@pytest.mark.parametrize(("row_count", "text"), [(100_000, "x"), (1_000, "x" * 1_000)], ids=["rows", "texts"])
def test_a_small_file_of_many_equal_rows_is_refused_before_they_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row_count: int, text: str
) -> None:
    row = {field.name: text if pa.types.is_string(field.type) else 1 for field in SCHEMA}
    row["topic"] = "t"
    row["started_at"] = datetime.datetime.now(datetime.UTC)
    table = pa.Table.from_pylist([row], SCHEMA).take(pa.array([0] * row_count))
    file = str(tmp_path / "batch-1.parquet")
    pq.write_table(table, file)
    assert Path(file).stat().st_size < 100_000
    assert read(LocalFileSystem(), file).equals(table)
    monkeypatch.setattr(receipt_file, "MAX_BYTES", 1_000_000)
    with pytest.raises(pa.ArrowInvalid, match=r"its rows take [\d,]+ bytes in memory"):
        read(LocalFileSystem(), file)


def refusal_of(table: pa.Table, folder: Path, alter: Callable[[bytes], bytes] = bytes) -> str:
    file = folder / "batch-1.parquet"
    pq.write_table(table, file, compression="none")
    file.write_bytes(alter(file.read_bytes()))
    with pytest.raises(pa.ArrowInvalid) as refused:
        read(LocalFileSystem(), str(file))
    return str(refused.value)


@pytest.mark.parametrize(
    ("name", "values", "more"),
    [
        ("slot", pa.array([[0] * 200_000]), {}), ("topic", pa.array([{"t": "x"}]), {}),
        ("topic", pa.array([[("k", "v")]], pa.map_(pa.string(), pa.string())), {}),
        ("slot", pa.array([{"a": 1, "b": 2}]), {}), ("topic", pa.array(["t"]), {"topic": pa.array(["u"])}),
        ("slot", pa.array([0], pa.int32()), {"slot.more": pa.array([0])}),
    ],
    ids=["list", "struct", "map", "struct of two", "twice", "a name that begins so"],
)  # fmt: skip
def test_columns_that_are_nested_or_there_twice_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, values: pa.Array, more: dict[str, pa.Array]
) -> None:
    monkeypatch.setattr(pq.ParquetFile, "read", pytest.fail)
    table = WITH_ONE.set_column(SCHEMA.get_field_index(name), name, values)
    for other, column in more.items():
        table = table.append_column(other, column)
    assert refusal_of(table, tmp_path) == f"its column {name!r} is nested or there twice"


def test_a_long_text_is_counted_before_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipt_file, "MAX_BYTES", 1_000_000)
    monkeypatch.setattr(pq.ParquetFile, "read", pytest.fail)
    long = WITH_ONE.set_column(SCHEMA.get_field_index("topic"), "topic", pa.array(["x" * 2_000_000]))
    assert "bytes in memory" in refusal_of(long, tmp_path)


def test_a_footer_that_says_fewer_rows_than_columns_hides_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_one_row(parquet: bytes) -> bytes:
        """The first 1,000 (a varint in zigzag) of the footer, which is the file's number of rows."""
        start = len(parquet) - 8 - int.from_bytes(parquet[-8:-4], "little")
        return parquet[:start] + parquet[start:].replace(b"\xd0\x0f", b"\x82\x00", 1)

    monkeypatch.setattr(receipt_file, "MAX_BYTES", 100_000)
    monkeypatch.setattr(pq.ParquetFile, "read", pytest.fail)
    every = WITH_ONE.take(pa.array([0] * 1_000))
    assert "bytes in memory" in refusal_of(every, tmp_path, with_one_row)
    assert pq.read_metadata(tmp_path / "batch-1.parquet").num_rows == 1


def test_a_page_that_is_larger_than_the_footer_says_is_counted_before_it_is_inflated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """63 kB of such a file took 5.4 GB."""

    def of_a_megabyte(parquet: bytes) -> bytes:
        """Field 2 of the first page header, its uncompressed size; field 1 is in front of it."""
        place = parquet.index(b"\x15\x04\x15", 4) + 3
        return parquet[:place] + b"\xfe\xff\x7f" + parquet[place + 3 :]

    monkeypatch.setattr(receipt_file, "MAX_BYTES", 500_000)
    long = WITH_ONE.set_column(0, "query_id", pa.array(["q" * 10_000]))
    pq.write_table(long, tmp_path / "whole.parquet", compression="none")
    assert read(LocalFileSystem(), str(tmp_path / "whole.parquet")).equals(long)
    monkeypatch.setattr(pq.ParquetFile, "read", pytest.fail)
    assert "bytes in memory" in refusal_of(long, tmp_path, of_a_megabyte)


def test_a_footer_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipt_file, "MAX_FOOTER_BYTES", 20_000)
    wide = WITH_ONE
    for number in range(200):
        wide = wide.append_column(f"more-{number}", pa.array([number]))
    assert refusal_of(wide, tmp_path) == "its footer is larger than 20,000 bytes"


@given(st.binary(max_size=200))
def test_page_headers_are_sizes_or_an_error(data: bytes) -> None:
    with suppress(ValueError):
        assert inflated_bytes(memoryview(data)) >= 0


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
def test_pages_inflate_to_what_arrow_wrote(tmp_path: Path, codec: str) -> None:
    table = pa.table({"a": [f"{number:040}" for number in range(50_000)], "b": [*range(49_999), None]})
    file = tmp_path / "x.parquet"
    pq.write_table(table, file, compression=codec, data_page_version="2.0", data_page_size=64_000, row_group_size=9_000)
    content, metadata = file.read_bytes(), pq.read_metadata(file)
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for chunk in map(group.column, range(2)):
            first = chunk.dictionary_page_offset or chunk.data_page_offset
            sizes = inflated_bytes(memoryview(content)[first : first + chunk.total_compressed_size])
            # The footer's size has the headers too.
            assert 0 < chunk.total_uncompressed_size - sizes < 0.02 * chunk.total_uncompressed_size


def test_values_that_the_sink_does_not_write_are_refused(tmp_path: Path) -> None:
    for changed, why in (
        ({"record_count": -5}, "'record_count' has a value that cannot be"),
        ({"record_count": 2**40, "base_offset": None}, "'record_count' has a value that cannot be"),
        ({"record_count": 2**32}, "'record_count' has a value that cannot be"),
        ({"base_offset": 2**63 - 1}, "'base_offset' has a value that cannot be"),
        ({"partition": -1}, "'partition' has a value that cannot be"),
        ({"base_timestamp": -(2**63)}, "'base_timestamp' has a value that cannot be"),
        ({"duration_ms": 2**62}, "'duration_ms' has a value that cannot be"), ({"rows": None}, "'rows' has nulls"),
        ({"topic": None}, "'topic' has nulls"), ({"partition": None}, "'partition' has nulls"),
        ({"topic": "\x1b[2J"}, "it names a topic as Kafka does not allow"),
    ):  # fmt: skip
        assert why in refusal_of(pa.Table.from_pylist([ROW | STARTED, ROW | STARTED | changed], SCHEMA), tmp_path)

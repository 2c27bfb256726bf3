"""What an export tells of its receipt file, which may be another write's, and where that is; update mode."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kafka_sink.errors import InvalidArgument, InvalidOption, ReceiptsPathUnusable
from kafka_sink.exporting import writing
from kafka_sink.exporting.columns import ColumnArguments
from kafka_sink.exporting.result import MAX_SHOWN, ExportResult, dropped_of, partitions_of, place_of, rows_of, size_text
from kafka_sink.exporting.writing import ExportSettings, each_micro_batch, export_batch, in_update_mode, telling
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.options.config import SinkConfig, sink_config
from kafka_sink.records.receipt_file import columns_of, relative_path

PARTITIONS = (PartitionOffsets("t", 0, 9_000, 5, 9_004, 2, 60_000), PartitionOffsets("t", 2, 1, None, None, 1, 90))
NAMED = {"receiptName": "orders-1"}
VERSION = {"deliveryGuarantee": "exactly-once", "txnAppId": "orders", "txnVersion": "5"}
# Nobody is asked where the file is on the same machine.
NO_SPARK: Any = None
AT_LEAST_ONCE = {"kafka.bootstrap.servers": "a:1", "topic": "t"}
EXACTLY_ONCE = {**AT_LEAST_ONCE, "deliveryGuarantee": "exactly-once"}


def run(topic: str | None, partition: int | None, base_offset: int | None, count: int, **more: Any) -> dict[str, Any]:
    constant = {"rows": 12, "dropped": 0, "batch_bytes": 100}
    placed = {"topic": topic, "partition": partition, "base_offset": base_offset, "record_count": count}
    return constant | placed | more


def receipt(**fields: Any) -> ExportResult:
    return ExportResult(**{"topic": "t", "guarantee": "at-least-once", "duration_s": 1.25, "rows": 9_001, **fields})


def test_runs_become_partitions_in_their_order() -> None:
    runs = columns_of([
        run("u", 0, None, 2), run("t", 10, 3, 1), run("t", 2, 7, 4, dropped=2), run("t", 2, 20, 2),
        run("t", 2, None, 1), run(None, None, None, 0, dropped=1),
    ])  # fmt: skip
    assert partitions_of(runs) == (
        PartitionOffsets("t", 2, 7, 7, 21, 3, 300),
        PartitionOffsets("t", 10, 1, 3, 3, 1, 100),
        PartitionOffsets("u", 0, 2, None, None, 1, 100),
    )
    assert (rows_of(runs), dropped_of(runs)) == (12, 3)


def test_it_is_a_table() -> None:
    assert repr(receipt(partitions=PARTITIONS)).splitlines() == [
        "PARTITION     RECORDS    OFFSETS  BATCHES    BYTES",
        "t-0             9,000  5 - 9,004        2  60.0 kB",
        "t-2                 1    unknown        1     90 B",
        "2 partitions    9,001                   3  60.1 kB",
        "",
        "9,001 rows, at-least-once, in 1.25 s",
    ]


def test_it_says_what_became_of_bad_rows_and_where_the_file_is() -> None:
    told = receipt(dropped=3, dead_lettered=8, path="/data/r.parquet")
    assert told.written == 8_990
    assert told.summary == (
        "9,001 rows, at-least-once, in 1.25 s; 3 bad rows dropped; 8 bad rows in the dead-letter topic; "
        "receipt: /data/r.parquet"
    )
    # Rows without a receipt are not taken for lost or new.
    told = receipt(rows=None)
    assert told.written is None
    assert "all rows were written" in str(told) and "no receipt" in str(told)
    nothing = "nothing was written: this txnVersion or a later one was written before"
    assert str(receipt(rows=None, was_written_before=True)) == nothing
    assert "now or before" in str(receipt(rows=None, was_written_before=None))


def test_of_many_partitions_some_are_shown_and_all_are_counted() -> None:
    many = tuple(PartitionOffsets("t", n, 1, 0, 0, 1, 10) for n in range(MAX_SHOWN + 3))
    lines = repr(receipt(partitions=many)).splitlines()
    assert lines[MAX_SHOWN + 1].startswith("... 3 more")
    assert lines[MAX_SHOWN + 2].split()[:3] == ["43", "partitions", "43"]
    assert "more" not in repr(receipt(partitions=many[:MAX_SHOWN]))
    sizes = [size_text(size) for size in (0, 999, 1_000, 59_649, 3_000_000, 4_200_000_000, 7 * 10**12, 8 * 10**15)]
    assert sizes == ["0 B", "999 B", "1.0 kB", "59.6 kB", "3.0 MB", "4.2 GB", "7.0 TB", "8,000.0 TB"]


def test_what_a_name_or_a_path_has_prints_in_one_line() -> None:
    hostile = "\x1b[2J\r\nERROR\u202e"
    told = receipt(partitions=(PartitionOffsets(hostile, 0, 1, 0, 0, 1, 1),), path=hostile)
    assert len(repr(told).split("\n")) == 5
    for text in (*repr(told).split("\n"), told._repr_html_()):
        assert text.isprintable()
    assert repr(told).count(r"\x1b[2J\r\nERROR\u202e") == told._repr_html_().count(r"\x1b[2J\r\nERROR\u202e") == 2


def test_a_notebook_gets_a_table_in_which_nothing_is_markup() -> None:
    tags, text = set[str](), list[str]()

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            tags.add(tag)

        def handle_data(self, data: str) -> None:
            text.append(data)

    harmful = "<script>x</script>"
    Tags().feed(receipt(partitions=(PartitionOffsets(harmful, 0, 1, 0, 0, 1, 1),), path=harmful)._repr_html_())
    assert tags == {"table", "thead", "tbody", "tr", "th", "td", "p"}
    assert "".join(text).count(harmful) == 2


def file(rows: int) -> pa.Table:
    run = {"topic": "t", "partition": 0, "base_offset": 10, "record_count": rows, "batch_bytes": 90, "dropped": 0}
    return columns_of([{"rows": rows, **run}])


def put(path: Path, table: pa.Table | bytes | None) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(table, bytes):
        path.write_bytes(table)
    elif table is not None:
        pq.write_table(table, path)


class Writer:
    """Of the DataFrame API what an export calls; `save` leaves `table` where the options say, or nothing."""

    def __init__(self, path: Path, table: pa.Table | bytes | None) -> None:
        self.options = self.format = self.mode = lambda *args, **more: self
        self.save = lambda: put(path, table)


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
        records = SimpleNamespace(write=Writer(path, after), sparkSession=None)
        monkeypatch.setattr(writing, "made_ready", lambda *args: (records, config))
        monkeypatch.setattr(writing, "watched", unwatched)
        monkeypatch.setattr(writing, "active", lambda spark: nullcontext())
        frame: Any = SimpleNamespace(isStreaming=False, sparkSession=None)
        settings = ExportSettings(options={}, co_partition=False, order_by=(), validate=False, token=None)
        return export_batch(frame, ColumnArguments(topic="t"), settings, progress=False)

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


def test_the_file_of_a_version_that_is_passed_over_is_named_and_not_told(export: Any) -> None:
    for before in (None, file(7)):  # Of a run before it, whose rows were aborted.
        receipt = export(VERSION, before=before, after=file(12))
        assert (receipt.rows, receipt.was_written_before) == (12, False)
        Path(receipt.path).unlink()
    receipt = export(VERSION, before=None, after=None)
    assert (receipt.rows, receipt.path, receipt.was_written_before) == (None, None, True)
    # Its rows may have been aborted: its run died before the decision, and a later version came.
    receipt = export(VERSION, before=file(7), after=None)
    assert (receipt.rows, receipt.written, receipt.partitions, receipt.was_written_before) == (None, None, (), True)
    assert receipt.path.endswith("batch-00000000000000000005.parquet")
    assert receipt.summary.startswith("nothing was written: this txnVersion or a later one was written before; receipt")


@pytest.mark.parametrize(("before", "after"), [(b"no receipt", file(7)), (file(7), b"no receipt")])
def test_an_unreadable_file_leaves_open_if_a_version_was_passed_over(export: Any, before: Any, after: Any) -> None:
    receipt = export(VERSION, before=before, after=after)
    assert (receipt.rows, receipt.partitions, receipt.was_written_before) == (None, (), None)
    assert "is written, now or before" in receipt.summary


def config(**options: str) -> SinkConfig:
    return sink_config({"kafka.bootstrap.servers": "a:1", "topic": "t", **options})


def test_a_folder_nobody_asked_for_is_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with place_of(config(), is_remote=False) as place:
        assert place.is_temporary and Path(place.folder).is_dir()
        Path(place.folder, "x").touch()
    assert not Path(place.folder).exists()
    with place_of(config(), is_remote=True) as one, place_of(config(), is_remote=True) as other:
        assert one.is_temporary and one.folder != other.folder
        assert not Path(one.folder).exists()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(ReceiptsPathUnusable) as raised, place_of(config(), is_remote=False):
        pass
    assert (raised.value.path, raised.value.reason) == (str(tmp_path / "gone"), "No such file or directory")


def test_a_folder_that_was_asked_for_stays_and_two_exports_into_it_are_told_apart(tmp_path: Path) -> None:
    asked, runs = config(receiptsPath=str(tmp_path)), columns_of([{"topic": "t", "rows": 7, "record_count": 7}])
    with place_of(asked, is_remote=False) as one, place_of(asked, is_remote=False) as other:
        assert one.path != other.path and not one.is_temporary
        assert one.read(NO_SPARK).num_rows == 0
        put(Path(one.path), runs)
        assert one.read(NO_SPARK).equals(runs)
    assert tmp_path.is_dir()


class SparksWriter:
    """Of Spark's writers what is called here; keeps its options."""

    def __init__(self) -> None:
        self.given: dict[str, str] = {}
        self.saves: list[dict[str, str]] = []
        self.each: Any = None
        self.format = self.mode = lambda name: self

    def options(self, **more: str) -> SparksWriter:
        self.given |= more
        return self

    def foreachBatch(self, each: Any) -> SparksWriter:
        self.each = each
        return self

    def save(self) -> None:
        self.saves.append(self.given)
        self.given = {}


def written(options: dict[str, str], *numbers: int, query_id: str = "q-1") -> tuple[dict[str, str], Any, list[str]]:
    """The query's options, those of its writes, and what of a checkpoint with that id was read."""
    writer, rows, asked = SparksWriter(), SparksWriter(), list[str]()

    def text(path: str) -> Any:
        asked.append(path)
        return SimpleNamespace(collect=lambda: [SimpleNamespace(value=json.dumps({"id": query_id}))])

    made: Any = each_micro_batch(writer, in_update_mode(options))  # type: ignore[arg-type]
    frame = SimpleNamespace(write=rows, sparkSession=SimpleNamespace(read=SimpleNamespace(text=text)))
    for number in numbers:
        made.each(frame, number)
    return writer.given, rows.saves, asked


def test_at_least_once_needs_no_name_and_no_checkpoint() -> None:
    found = written({**AT_LEAST_ONCE, "queryName": "sums"}, 0, 1)
    assert found == ({"queryName": "sums"}, [AT_LEAST_ONCE, AT_LEAST_ONCE], [])


@pytest.mark.parametrize(("prefix", "name"), [({}, "pykafka"), ({"transactionalIdPrefix": "sums"}, "sums")])
def test_exactly_once_writes_under_the_querys_id_and_the_micro_batchs_number(prefix: dict[str, str], name: str) -> None:
    options = {**EXACTLY_ONCE, **prefix, "checkpointLocation": "/c"}
    given, saves, asked = written(options, 7, 8)
    assert given == {"checkpointLocation": "/c"}
    assert saves == [{**EXACTLY_ONCE, "txnAppId": f"{name}-q-1", "txnVersion": number} for number in ("7", "8")]
    assert asked == ["/c/metadata"], "once a start"
    assert written(options, 7, query_id="q-2")[1][0]["txnAppId"] == f"{name}-q-2", "a new checkpoint is another query"
    # A reader takes a pattern, in which a backslash makes a character stand for itself.
    assert written({**options, "checkpointLocation": "/c[1]{ü} *?"}, 7)[2] == [r"/c\[1\]\{ü\} \*\?/metadata"]


def test_what_has_no_name_or_too_long_a_one_is_told_before_the_query_starts() -> None:
    with pytest.raises(InvalidArgument) as refused:
        written(EXACTLY_ONCE)
    assert refused.value.argument == "checkpoint_location"
    with pytest.raises(InvalidOption, match="txnAppId"):
        written({**EXACTLY_ONCE, "checkpointLocation": "/c", "transactionalIdPrefix": "x" * 180})


def test_a_query_stays_what_it_is_and_raises_the_sinks_error() -> None:
    class Query:
        def __init__(self) -> None:
            self.id = "q"

        def awaitTermination(self, timeout: float | None = None) -> bool:
            raise RuntimeError(
                "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: kafka_sink.errors.TornBatch: torn"
            )

        def processAllAvailable(self) -> None:
            raise KeyError("x")

    query: Any = telling(Query())  # type: ignore[arg-type]
    assert isinstance(query, Query) and query.id == "q" and type(query).__name__ == "Query"
    with pytest.raises(Exception, match="torn") as raised:
        query.awaitTermination(1)
    assert str(raised.value) == "torn"
    assert type(raised.value).__name__ == "TornBatch" and isinstance(raised.value.__cause__, RuntimeError)
    with pytest.raises(KeyError):
        query.processAllAvailable()

"""What is counted of a micro-batch, by tasks, receipts and offsets; who is told; the line and bar that show it."""

import io
import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark import Accumulator, TaskContext

from kafka_sink.errors import ProducerClosed
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.kafka.statistics import ReadStatistics, WriteStatistics
from kafka_sink.monitoring import listener
from kafka_sink.monitoring.bar import ExportBar
from kafka_sink.monitoring.micro_batch import (
    OTHER,
    Attentive,
    BadRows,
    MicroBatch,
    Read,
    ReadTotals,
    Run,
    Totals,
    Written,
)
from kafka_sink.records import receipt_file
from kafka_sink.spark.tally import Sums

ONE = MicroBatch(
    query="orders", batch_id=42, input_row_count=1_200_000, duration_ms=1_250, write_ms=1_000, ended_s=1_700_000_000.0,
    written=Written({"b": Totals(800_000, 600, 64_000_000), "a": Totals(200_000, 200, 16_000_000)}),
)  # fmt: skip
RECEIPTS = (
    PartitionOffsets("t", 0, 2, 3, 4, 1, 50),
    PartitionOffsets("t", 1, 1, None, None, 1, 10),
    PartitionOffsets("u", 0, 5, 0, 4, 2, 70),
)
TOPICS = {"t": Totals(3, 2, 60), "u": Totals(5, 2, 70)}
RUN = Run("a query", "run", 7)


def test_a_line_says_what_was_read_and_what_the_leaders_have() -> None:
    assert str(ONE) == (
        "orders #42: 1,200,000 rows in, 1,000,000 acknowledged (80.0 MB, 800 batches) by a, b in 1.25 s, 800,000 rows/s"
    )
    assert ONE.total == Totals(1_000_000, 800, 80_000_000)
    assert ONE.rows_per_s == 800_000
    filtered = replace(ONE, written=Written(), duration_ms=0)
    assert filtered.total == Totals(0, 0, 0)
    assert "0 acknowledged (0.0 MB, 0 batches) by no topic in 0.00 s, 0 rows/s" in str(filtered)


def test_a_line_tells_what_is_no_matter_of_course() -> None:
    took = Written(
        {"a": Totals(10, 1, 100, 4), "b": Totals(10, 1, 100, 3)},
        {BadRows("dropped", "KeyNull"): 2, BadRows("dropped", "TopicNull"): 1, BadRows("dead_lettered", "KeyNull"): 5},
        throttled_ms=2_500,
    )
    assert str(replace(ONE, written=took, lag={"0": 5_000, "1": 1})).endswith(
        " rows/s; 7 sent again; 3 bad rows dropped; 5 bad rows dead-lettered; tasks throttled for 2.5 s; "
        "5,001 records behind"
    )


def test_a_line_tells_what_was_read_what_is_lost_and_which_logs_are_broken() -> None:
    read = Read({"clicks": ReadTotals(1_100_000, 95_000_000), "views": ReadTotals(100_000, 500_000)})
    assert str(replace(ONE, read=read)).endswith(" rows/s; 1,200,000 read (95.5 MB) from clicks, views")
    lossy = read.plus(Read({"views": ReadTotals(0, 0, 1_200)}))
    assert str(replace(ONE, read=lossy, lag={"0": 5})).endswith(
        " from clicks, views; 5 records behind; DATA LOSS: 1,200 offsets of views left out"
    )
    assert str(replace(ONE, broken_logs={"0": 2, "1": 1})).endswith(
        "; DATA LOSS: 3 partitions were deleted, created again or truncated"
    )
    assert str(replace(ONE, broken_logs={"0": 0})).endswith(" rows/s")


def test_a_line_is_one_whatever_names_have_and_names_a_few_topics() -> None:
    hostile = "\x1b[2J\r\nERROR\u202e"
    lossy = Read({hostile: ReadTotals(1, 1, 1)})
    line = str(replace(ONE, query=hostile, written=Written({hostile: Totals(1, 1, 1)}), read=lossy))
    assert line.isprintable() and line.count(r"\x1b[2J\r\nERROR\u202e") == 4
    many = Written({f"t{number:02}": Totals(1, 1, 1) for number in range(20)})
    assert "by t00, t01, t02, t03, t04, t05, t06, t07, others in" in str(replace(ONE, written=many))
    assert "by t, others in" in str(replace(ONE, written=Written({OTHER: Totals(1, 1, 1), "t": Totals(1, 1, 1)})))


def session(made: list[tuple[Accumulator[Any], Any]]) -> Any:
    """`made`: gets its accumulators, each with its param."""

    def accumulator(value: Any, param: Any) -> Accumulator[Any]:
        made.append((Accumulator(0, value, param), param))
        return made[-1][0]

    return SimpleNamespace(sparkContext=SimpleNamespace(accumulator=accumulator))


def make_tally() -> listener.StreamTally:
    return listener.StreamTally(session([]))


@pytest.fixture
def in_task(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The local properties of the task that this test is."""
    properties: dict[str, str] = {
        "sql.streaming.queryId": "query", "spark.jobGroup.id": "run", "streaming.sql.batchId": "7"
    }  # fmt: skip
    context = SimpleNamespace(getLocalProperty=properties.get)
    monkeypatch.setattr(TaskContext, "get", lambda: context)
    return properties


def event(batch_id: int = 7, rows: int = 8, name: str | None = "orders", start: str = '{"t":{"0":1}}') -> Any:
    durations = {"triggerExecution": 90, "addBatch": 60}
    return SimpleNamespace(
        progress=SimpleNamespace(
            runId="run", id="query", name=name, batchId=batch_id, numInputRows=rows, durationMs=durations,
            sources=[SimpleNamespace(startOffset=start, endOffset='{"t":{"0":5}}', latestOffset='{"t":{"0":9}}')],
        )
    )  # fmt: skip


def test_tasks_of_a_micro_batch_add_up_by_topic(in_task: dict[str, str]) -> None:
    tally = make_tally()
    tally.on_acknowledgement(RECEIPTS, None)
    assert tally.written_in(Run("query", "run", 7)) == Written(TOPICS)
    tally.on_acknowledgement(RECEIPTS[:1], None)
    assert tally.written_in(Run("query", "run", 7)).topics == {"t": Totals(5, 3, 110), "u": Totals(5, 2, 70)}
    for statistics in (ReadStatistics("t", 0, 5, 100), ReadStatistics("t", 1, 2, 30, 4), ReadStatistics("u", 0, 0, 10)):
        tally.on_read(statistics)
    assert tally.read_in(Run("query", "run", 7)) == Read({"t": ReadTotals(7, 130, 4), "u": ReadTotals(0, 10)})
    in_task["spark.jobGroup.id"] = "another run"
    tally.on_acknowledgement(RECEIPTS[:1], None)
    assert tally.written_in(Run("query", "another run", 7)).topics == {"t": Totals(2, 1, 50)}
    assert (tally.written_in(Run("query", "run", 8)), tally.read_in(Run("query", "run", 8))) == (Written(), Read())


def test_failed_tasks_and_batches_count_for_nothing(in_task: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[Accumulator[Any], Any]] = []
    tally = listener.StreamTally(session(made))
    tally.on_acknowledgement((), ProducerClosed(reason="of a test"))
    for name in ("streaming.sql.batchId", "sql.streaming.queryId"):
        del in_task[name]
        tally.on_acknowledgement(RECEIPTS, None)
        tally.on_read(ReadStatistics("t", 0, 1, 1))
    # Nor outside of a task.
    monkeypatch.setattr(TaskContext, "get", lambda: None)
    tally.on_acknowledgement(RECEIPTS, None)
    tally.on_read(ReadStatistics("t", 0, 1, 1))
    assert [accumulator.value for accumulator, _ in made] == [{}, {}]


def test_a_micro_batch_with_lost_offsets_or_broken_logs_is_told(in_task: dict[str, str]) -> None:
    tally, told = make_tally(), list[MicroBatch]()
    tally.on_read(ReadStatistics("t", 0, 0, 0, 4))
    listener.ProgressListener(tally, told.append).onQueryProgress(event(rows=0))
    assert [one.read for one in told] == [Read({"t": ReadTotals(0, 0, 4)})]
    told = list[MicroBatch]()
    listener.ProgressListener(make_tally(), told.append).onQueryProgress(event(rows=0, start='{"t":{"0":7}}'))
    assert [one.broken_logs for one in told] == [{"0": 1}]


def test_only_the_last_micro_batches_are_kept_and_a_sum_is_a_new_value() -> None:
    param, kept = Sums[Run, Written](listener.KEPT_MICRO_BATCHES), {}
    for batch_id in range(listener.KEPT_MICRO_BATCHES + 5):
        before = dict(kept)
        after = param.addInPlace(kept, {Run("query", "run", batch_id): Written({"t": Totals(1, 1, 1)})})
        assert kept == before
        kept = dict(after)
    assert [run.batch_id for run in kept] == list(range(5, listener.KEPT_MICRO_BATCHES + 5))
    again = param.addInPlace(kept, {Run("query", "run", 5): Written({"t": Totals(1, 1, 1)})})
    assert again[Run("query", "run", 5)].topics == {"t": Totals(2, 2, 2)}
    assert len(again) == listener.KEPT_MICRO_BATCHES
    assert param.zero(kept) == {}
    assert pickle.loads(pickle.dumps(again)) == again


def test_watchers_are_told_what_spark_and_leaders_say(
    in_task: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """One that cannot be told keeps the others from nothing."""

    class Away:
        def __call__(self, micro_batch: MicroBatch) -> None:
            raise ConnectionRefusedError("nobody there")

    tally, told = make_tally(), list[MicroBatch]()
    tally.on_acknowledgement(RECEIPTS, None)
    tally.on_read(ReadStatistics("in", 0, 8, 90))
    listener.ProgressListener(tally, Away(), told.append, clock_s=lambda: 12.5).onQueryProgress(event())
    assert "Away was not notified of micro-batch 7: nobody there" in caplog.text
    assert told == [
        MicroBatch(
            query="orders", batch_id=7, input_row_count=8, duration_ms=90, write_ms=60, ended_s=12.5,
            written=Written(TOPICS), read=Read({"in": ReadTotals(8, 90)}), lag={"0": 4}, broken_logs={"0": 0},
            source_metrics={"0": {"avgOffsetsBehindLatest": "4.0", "maxOffsetsBehindLatest": "4",
                                  "minOffsetsBehindLatest": "4"}},
        )
    ]  # fmt: skip


def test_what_a_task_took_is_counted_with_what_was_acknowledged(in_task: dict[str, str]) -> None:
    tally = make_tally()
    for _ in range(2):
        tally.on_acknowledgement(RECEIPTS[:1], None)
        tally.on_statistics(WriteStatistics({"t": 3}, 40, {"KeyNull": 1}, {"TopicNull": 2}))
        tally.on_statistics(WriteStatistics())
    assert tally.written_in(Run("query", "run", 7)) == Written(
        {"t": Totals(4, 2, 100, 6)},
        {BadRows("dropped", "KeyNull"): 2, BadRows("dead_lettered", "TopicNull"): 4},
        throttled_ms=80,
    )


def test_who_asks_is_told_that_a_query_runs_and_has_no_rows() -> None:
    attentive: list[tuple[object, ...]] = []

    class Idling(Attentive):
        def __call__(self, micro_batch: MicroBatch) -> None:
            attentive.append((micro_batch.query, "micro-batch"))

        def idle(self, query: str, seen_s: float) -> None:
            attentive.append((query, "idle", seen_s))

    told = list[MicroBatch]()
    watching: Any = listener.ProgressListener(make_tally(), told.append, Idling(), clock_s=lambda: 12.5)
    idle = SimpleNamespace(id="query")
    watching.onQueryIdle(idle)
    watching.onQueryStarted(SimpleNamespace(id="query", name="orders"))
    watching.onQueryIdle(idle)
    watching.onQueryProgress(event(rows=0))
    watching.onQueryProgress(event())
    watching.onQueryTerminated(SimpleNamespace(id="query", exception=None))
    # Its name is forgotten.
    watching.onQueryIdle(idle)
    assert attentive == [
        ("query", "idle", 12.5), ("orders", "idle", 12.5), ("orders", "idle", 12.5), ("orders", "micro-batch"),
        ("query", "idle", 12.5),
    ]  # fmt: skip
    assert len(told) == 1


def test_without_watchers_it_prints_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    listener.ProgressListener(make_tally(), listener.ProgressLine(file)).onQueryProgress(event())
    assert file.getvalue().startswith("orders #7: 8 rows in") and file.getvalue().endswith("\n")
    again = io.StringIO()
    line = listener.ProgressLine(again)
    monkeypatch.setattr(listener, "ProgressLine", lambda: line)
    listener.ProgressListener(make_tally()).onQueryProgress(event())
    assert again.getvalue() == file.getvalue()


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
    written = listener.ReceiptTotals(str(tmp_path)).written_in(RUN)
    assert written == Written({"t": Totals(3, 2, 60, 6)}, {BadRows("dropped", ""): 4}, throttled_ms=None)


def test_no_receipt_says_nothing_and_a_broken_one_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    totals = listener.ReceiptTotals(str(tmp_path))
    assert totals.written_in(RUN) == listener.NOTHING_KNOWN
    assert not caplog.text
    leave(tmp_path, ("t", 1, 1)).write_bytes(b"no parquet")
    assert totals.written_in(RUN) == listener.NOTHING_KNOWN
    assert "the receipt of micro-batch 7 of query a query" in caplog.text


def source(ended: str, latest: str) -> SimpleNamespace:
    return SimpleNamespace(endOffset=ended, latestOffset=latest)


def test_a_kafka_source_is_behind_by_its_offsets() -> None:
    for ended, latest, behind in (
        ('{"t":{"0":5,"1":7}}', '{"t":{"0":8,"1":7}}', 3), ("{'t': {'0': 5}}", "{'t': {'0': 6}}", 1),
        ('{"t":{"0":5},"u":{"0":1}}', '{"t":{"0":6},"u":{"0":3}}', 3), ('{"t":{"0":5}}', '{"t":{"0":5}}', 0),
        # A topic that was made again has fewer; a partition that is new has none that it ended at.
        ('{"t":{"0":5}}', '{"t":{"0":2,"1":9}}', 0),
    ):  # fmt: skip
        # Sources are named by their place in the query.
        found = listener.by_source([source('{"logOffset":3}', "null"), source(ended, latest)], listener.offsets_behind)
        assert {number: sum(offsets) for number, offsets in found.items()} == {"1": behind}


def test_metrics_have_the_keys_and_the_form_of_sparks_own_source() -> None:
    for ended, latest, expected in (
        ('{"t":{"0":5,"1":7}}', '{"t":{"0":8,"1":7}}', ("1.5", "3", "0")),
        ('{"t":{"0":5}}', '{"t":{"0":5}}', ("0.0", "0", "0")),
        ('{"t":{"0":5}}', '{"t":{}}', ()), ('{"logOffset":3}', "null", ()),
    ):  # fmt: skip
        names = [f"{kind}OffsetsBehindLatest" for kind in ("avg", "max", "min")]
        assert listener.source_metrics(source(ended, latest)) == dict(zip(names, expected, strict=bool(expected)))


def test_a_log_is_broken_if_it_ends_before_it_begins() -> None:
    for started, ended, broken in (
        ('{"t":{"0":5,"1":0}}', '{"t":{"0":5,"1":9}}', {"0": 0}),
        ('{"t":{"0":5,"1":7}}', '{"t":{"0":0,"1":6}}', {"0": 2}),  # created again, or truncated
        ('{"t":{"0":0},"u":{"0":0,"1":4}}', '{"t":{"0":0}}', {"0": 2}),  # deleted
        ('{"t":{"0":5}}', '{"t":{"0":5,"1":9},"u":{"0":1}}', {"0": 0}),  # new
        ("null", '{"t":{"0":5}}', {}), ("18", "3", {}), ('{"logOffset":3}', '{"logOffset":2}', {}),
    ):  # fmt: skip
        assert (
            listener.by_source([SimpleNamespace(startOffset=started, endOffset=ended)], listener.broken_logs) == broken
        )


def test_a_bar_shows_rows_of_how_many_and_megabytes_and_a_task_has_none() -> None:
    shown, made = io.StringIO(), list[tuple[Accumulator[Any], Any]]()
    receipts = PartitionOffsets("t", 0, 2, 3, 4, 1, 500_000), PartitionOffsets("t", 1, 1, None, None, 1, 700_000)
    of_tqdm: dict[str, Any] = {"ascii": True, "ncols": 90, "mininterval": 0, "total": 6, "desc": "export"}
    with ExportBar(session(made), file=shown, **of_tqdm) as bar:
        before = shown.getvalue()
        of_task = pickle.loads(pickle.dumps(bar))
        with pytest.raises(AssertionError, match="tasks have no bar"):
            of_task.__exit__(None, None, None)
        param = pickle.loads(pickle.dumps(made[0][1]))
        param.addInPlace({}, {TopicPartition("t", 0): receipts[0]})
        assert shown.getvalue() == before
        bar.on_acknowledgement(receipts, None)
        bar.on_acknowledgement((), ProducerClosed(reason="of a test"))
        bar.on_acknowledgement(receipts, None)
    last = shown.getvalue().replace("\n", "").split("\r")[-1]
    assert last.startswith("export: 100%|") and "6.00/6.00" in last and "MB=2.4" in last
    assert "50%" in shown.getvalue()
    assert bar.value[TopicPartition("t", 0)].record_count == 4

"""What is counted of a micro-batch, and who is told; that it travels is in integration/test_monitoring.py."""

from __future__ import annotations

import io
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import Accumulator, TaskContext

from kafka_sink.errors import ProducerClosed
from kafka_sink.kafka.consumer.statistics import ReadStatistics
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.producer.statistics import WriteStatistics
from kafka_sink.monitoring import listener
from kafka_sink.monitoring.listener import KEPT_MICRO_BATCHES, ProgressLine, ProgressListener, RecentParam, StreamTally
from kafka_sink.monitoring.micro_batch import Attentive, BadRows, MicroBatch, Read, ReadTotals, Run, Totals, Written

RECEIPTS = (
    PartitionOffsets("t", 0, 2, 3, 4, 1, 50),
    PartitionOffsets("t", 1, 1, None, None, 1, 10),
    PartitionOffsets("u", 0, 5, 0, 4, 2, 70),
)
TOPICS = {"t": Totals(3, 2, 60), "u": Totals(5, 2, 70)}


def accumulator(value: Any, param: Any) -> Accumulator[Any]:
    return Accumulator(0, value, param)


def make_tally(accumulators: list[Accumulator[Any]] | None = None) -> StreamTally:
    """`accumulators`: gets its own."""

    def made(value: Any, param: Any) -> Accumulator[Any]:
        one = accumulator(value, param)
        if accumulators is not None:
            accumulators.append(one)
        return one

    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(accumulator=made))
    return StreamTally(spark)


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
    in_task["spark.jobGroup.id"] = "another run"
    tally.on_acknowledgement(RECEIPTS[:1], None)
    assert tally.written_in(Run("query", "another run", 7)).topics == {"t": Totals(2, 1, 50)}
    assert tally.written_in(Run("query", "run", 8)) == Written()


def test_a_failed_task_and_what_is_no_stream_count_for_no_micro_batch(
    in_task: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    accumulators: list[Accumulator[Any]] = []
    tally = make_tally(accumulators)
    tally.on_acknowledgement((), ProducerClosed(reason="of a test"))
    for name in ("streaming.sql.batchId", "sql.streaming.queryId"):
        del in_task[name]
        tally.on_acknowledgement(RECEIPTS, None)
        tally.on_read(ReadStatistics("t", 0, 1, 1))
    # Nor outside of a task.
    monkeypatch.setattr(TaskContext, "get", lambda: None)
    tally.on_acknowledgement(RECEIPTS, None)
    tally.on_read(ReadStatistics("t", 0, 1, 1))
    assert [one.value for one in accumulators] == [{}, {}]


def test_what_tasks_have_read_adds_up_by_topic(in_task: dict[str, str]) -> None:
    tally = make_tally()
    for statistics in (ReadStatistics("t", 0, 5, 100), ReadStatistics("t", 1, 2, 30, 4), ReadStatistics("u", 0, 0, 10)):
        tally.on_read(statistics)
    assert tally.read_in(Run("query", "run", 7)) == Read({"t": ReadTotals(7, 130, 4), "u": ReadTotals(0, 10)})
    assert tally.written_in(Run("query", "run", 7)) == Written()
    assert tally.read_in(Run("query", "run", 8)) == Read()


def test_a_micro_batch_with_lost_offsets_or_broken_logs_is_told(in_task: dict[str, str]) -> None:
    tally, told = make_tally(), list[MicroBatch]()
    tally.on_read(ReadStatistics("t", 0, 0, 0, 4))
    ProgressListener(tally, told.append).onQueryProgress(event(rows=0))
    assert [one.read for one in told] == [Read({"t": ReadTotals(0, 0, 4)})]
    told = list[MicroBatch]()
    ProgressListener(make_tally(), told.append).onQueryProgress(event(rows=0, start='{"t":{"0":7}}'))
    assert [one.broken_logs for one in told] == [{"0": 1}]


def test_only_the_last_micro_batches_are_kept_and_a_sum_is_a_new_value() -> None:
    param, kept = RecentParam[Written](), {}
    for batch_id in range(KEPT_MICRO_BATCHES + 5):
        before = dict(kept)
        after = param.addInPlace(kept, {Run("query", "run", batch_id): Written({"t": Totals(1, 1, 1)})})
        assert kept == before
        kept = dict(after)
    assert [run.batch_id for run in kept] == list(range(5, KEPT_MICRO_BATCHES + 5))
    again = param.addInPlace(kept, {Run("query", "run", 5): Written({"t": Totals(1, 1, 1)})})
    assert again[Run("query", "run", 5)].topics == {"t": Totals(2, 2, 2)}
    assert len(again) == KEPT_MICRO_BATCHES
    assert param.zero(kept) == {}
    assert pickle.loads(pickle.dumps(again)) == again


def test_a_watcher_is_told_what_spark_and_the_leaders_say(in_task: dict[str, str]) -> None:
    tally, told = make_tally(), list[MicroBatch]()
    tally.on_acknowledgement(RECEIPTS, None)
    tally.on_read(ReadStatistics("in", 0, 8, 90))
    ProgressListener(tally, told.append, clock_s=lambda: 12.5).onQueryProgress(event())
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


class Idling(Attentive):
    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def __call__(self, micro_batch: MicroBatch) -> None:
        self.told.append((micro_batch.query, "micro-batch"))

    def idle(self, query: str, seen_s: float) -> None:
        self.told.append((query, "idle", seen_s))


def test_who_asks_is_told_that_a_query_runs_and_has_no_rows() -> None:
    idling, told = Idling(), list[MicroBatch]()
    watching = ProgressListener(make_tally(), told.append, idling, clock_s=lambda: 12.5)
    idle: Any = SimpleNamespace(id="query")
    watching.onQueryIdle(idle)
    watching.onQueryStarted(SimpleNamespace(id="query", name="orders"))  # type: ignore[arg-type]
    watching.onQueryIdle(idle)
    watching.onQueryProgress(event(rows=0))
    watching.onQueryProgress(event())
    watching.onQueryTerminated(SimpleNamespace(id="query", exception=None))  # type: ignore[arg-type]
    # Its name is forgotten.
    watching.onQueryIdle(idle)
    assert idling.told == [
        ("query", "idle", 12.5), ("orders", "idle", 12.5), ("orders", "idle", 12.5), ("orders", "micro-batch"),
        ("query", "idle", 12.5),
    ]  # fmt: skip
    assert len(told) == 1


def test_one_that_cannot_be_told_keeps_the_others_from_nothing(caplog: pytest.LogCaptureFixture) -> None:
    told = list[MicroBatch]()

    class Away:
        def __call__(self, micro_batch: MicroBatch) -> None:
            raise ConnectionRefusedError("nobody there")

    ProgressListener(make_tally(), Away(), told.append).onQueryProgress(event())
    assert len(told) == 1
    assert "Away was not notified of micro-batch 7: nobody there" in caplog.text


def test_without_watchers_it_prints_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    ProgressListener(make_tally(), ProgressLine(file)).onQueryProgress(event())
    assert file.getvalue().startswith("orders #7: 8 rows in") and file.getvalue().endswith("\n")
    again = io.StringIO()
    monkeypatch.setattr(listener, "ProgressLine", lambda: ProgressLine(again))
    ProgressListener(make_tally()).onQueryProgress(event())
    assert again.getvalue() == file.getvalue()

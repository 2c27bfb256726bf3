"""Watchers receive correct figures of real writes, in the examples of docs. confluent-kafka checks the figures."""

import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming import StreamingQuery

import kafka_sink
import waiting
from broker_admin import create_again, delete_records, limit
from code_blocks import run_python
from kafka_sink.broker import LocalKafka
from kafka_sink.monitoring.listener import ProgressLine, ProgressListener, ReceiptTotals, StreamTally
from kafka_sink.monitoring.micro_batch import BadRows, MicroBatch, Read, ReadTotals
from kafka_sink.monitoring.prometheus import Prometheus
from kafka_sink.monitoring.transactions import OpenTransactions, TransactionWatch
from kafka_sink.spark.tally import ReadTally, Tally
from spark_writes import Here, arriving, count_in, finish, numbers, save, start
from waiting import wait_until

# A worker cannot import it.
cloudpickle.register_pickle_by_value(waiting)  # type: ignore[no-untyped-call]

ROWS_A_FILE = 10


def streamed(spark: SparkSession, folder: Path, files: int) -> DataFrame:
    """Ten rows a file, two files a micro-batch; half of the rows are left."""
    frames = (numbers(spark, ROWS_A_FILE, first=file * ROWS_A_FILE) for file in range(files))
    return arriving(folder / "incoming", *frames, at_once=2).where("value % 2 = 0")


def by_batches(frame: DataFrame, write: Callable[[DataFrame, int], None], folder: Path, name: str = "each") -> None:
    """Run a query of foreachBatch to its end."""
    writer = frame.writeStream.queryName(name).foreachBatch(write)
    finish(writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start())


def test_a_bar_counts_the_rows_of_an_export(here: Here, capsys: pytest.CaptureFixture[str]) -> None:
    session, name = here.spark.newSession(), here.topic(2)
    frame = session.range(0, 1_000, 1, 4).selectExpr("cast(id AS STRING) AS value")
    replaced = {"localhost:9092": here.servers, "orders": name}
    given: dict[str, Any] = {"kafka_sink": kafka_sink, "spark": session, "df": frame}
    names = run_python("docs/operations.md", "Watching a write", 0, replaced, given)
    assert "100%" in capsys.readouterr().err
    counted = sum(receipt.record_count for receipt in names["bar"].value.values())
    assert counted == count_in(here.kafka, name) == 1_000


def test_a_listener_tells_each_micro_batch_once(here: Here) -> None:
    session, name, told, lines = here.spark.newSession(), here.topic(2), list[MicroBatch](), io.StringIO()
    textfile = here.folder / "pykafka.prom"
    replaced = {"/var/lib/node_exporter/pykafka.prom": str(textfile), "ProgressLine()": "*watchers"}
    watchers = (told.append, ProgressLine(lines))
    frame = streamed(session, here.folder, files=6)
    receipts_path, by_receipts = f"{here.folder}/receipts", list[MicroBatch]()
    listening: list[ProgressListener] = []
    streams = SimpleNamespace(addListener=listening.append)
    given = {"kafka_sink": kafka_sink, "spark": SessionWith(session, streams), "watchers": watchers}
    run_python("docs/cookbook.md", "Watch a stream with Prometheus and Grafana", 0, replaced, given)
    (listener,) = listening
    reader = ProgressListener(ReceiptTotals(receipts_path), by_receipts.append)
    session.streams.addListener(listener)
    session.streams.addListener(reader)
    try:
        finish(here.start(frame, name, {"queryName": "evens", "receiptsPath": receipts_path}))
        wait_until(lambda: len(told) >= 3 and len(by_receipts) >= 3, 30, "the listeners were told")
    finally:
        session.streams.removeListener(listener)
        session.streams.removeListener(reader)
    assert [(one.query, one.batch_id, one.input_row_count) for one in told] == [("evens", n, 20) for n in range(3)]
    assert [one.topics[name].row_count for one in told] == [10, 10, 10]
    assert [one.topics for one in by_receipts] == [one.topics for one in told]
    assert sum(one.total.row_count for one in told) == count_in(here.kafka, name)
    assert all(0 < one.write_ms <= one.duration_ms for one in told)
    assert len(lines.getvalue().splitlines()) == 3
    assert f'pykafka_rows_total{{query="evens",topic="{name}"}} 30.0' in textfile.read_text()


class SessionWith:
    """A session whose listeners are taken note of, so that a test can take them away again."""

    def __init__(self, session: SparkSession, streams: object) -> None:
        self._session, self.streams = session, streams

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


def test_sparks_progress_names_the_topic_where_it_is_observed(here: Here) -> None:
    name = here.topic(1)
    replaced = {
        "localhost:9092": here.servers, "orders": name, "/data/checkpoints/": f"{here.folder}/checkpoint/"
    }  # fmt: skip
    given: dict[str, Any] = {"spark": here.spark, "stream": streamed(here.spark, here.folder, files=1)}
    names = run_python("docs/operations.md", "What Spark's own progress says", 0, replaced, given)
    try:
        progress = names["progress"]
        assert progress.observedMetrics["pykafka"].topic == name
        # As docs say it: no topic, and how many rows the sink was given.
        assert "PythonTable@" in progress.sink.description and name not in progress.sink.description
        assert progress.sink.numOutputRows == ROWS_A_FILE // 2
    finally:
        names["query"].stop()


class Listening:
    """Listens to a session while the block runs. `told`: the micro-batches, recorded after the watchers saw them."""

    def __init__(self, session: SparkSession, *watchers: Any) -> None:
        self.told: list[MicroBatch] = []
        tally = StreamTally(session)
        kafka_sink.register(session, interceptors=[tally])
        self._session, self._listener = session, ProgressListener(tally, *watchers, self.told.append)

    def __enter__(self) -> list[MicroBatch]:
        self._session.streams.addListener(self._listener)
        return self.told

    def __exit__(self, *error: object) -> None:
        self._session.streams.removeListener(self._listener)


def test_bad_rows_are_counted_by_reason_and_outcome(here: Here) -> None:
    session, prometheus = here.spark.newSession(), here.folder / "pykafka.prom"
    name, letters = here.topic(2), here.topic(1)
    frame = streamed(session, here.folder, files=1).selectExpr("value", "if(value < 3, 99, 0) AS partition")
    with Listening(session, Prometheus(textfile=prometheus)) as told:
        for query, options in (("drops", {}), ("keeps", {"badRows": "deadLetter", "deadLetterTopic": letters})):
            given = {"badRows": "drop", "queryName": query, **options}
            finish(start(frame, here.kafka, name, here.folder / query, given))
        wait_until(lambda: len(told) >= 2, 30, "the listener was told")
    dropped, kept = told
    assert dropped.written.bad_rows == {BadRows("dropped", "PartitionOutOfRange"): 2}
    assert kept.written.bad_rows == {BadRows("dead_lettered", "PartitionOutOfRange"): 2}
    assert dropped.topics[name].row_count == kept.topics[name].row_count == 3
    assert kept.topics[letters].row_count == 2
    said = prometheus.read_text()
    assert 'bad_rows_total{outcome="dropped",query="drops",reason="PartitionOutOfRange"} 2.0' in said
    assert 'bad_rows_total{outcome="dead_lettered",query="keeps",reason="PartitionOutOfRange"} 2.0' in said


@pytest.mark.long
def test_a_quota_that_holds_tasks_back_is_counted(here: Here) -> None:
    session, name = here.spark.newSession(), here.topic(1)
    bytes_per_s, value_bytes = 50_000, 10_000
    limit(here.kafka, name, producer_byte_rate=bytes_per_s)
    # Brokers let ten seconds' worth pass before they throttle.
    count = 13 * bytes_per_s // value_bytes
    frame = here.arriving(numbers(session, count))
    slow = {"deliveryGuarantee": "exactly-once", "kafka.client.id": name, "kafka.batch.size": "65536"}
    slow |= {"kafka.max.request.size": "65536", "kafka.compression.type": "none"}
    with Listening(session) as told:
        rows = frame.selectExpr(f"lpad(value, {value_bytes}, '0') AS value")
        finish(here.start(rows, name, slow))
        wait_until(lambda: told, 30, "the listener was told")
    assert told[0].total.row_count == count
    assert told[0].written.throttled_ms is not None and told[0].written.throttled_ms > 1_000
    assert "; tasks throttled for " in str(told[0])


# --- reads ------------------------------------------------------------------------------------------------------------


def filled(session: SparkSession, kafka: LocalKafka, topic: str, rows: int) -> int:
    """Write rows to a topic. Return the bytes of their record batches, as the leaders acknowledged them."""
    tally = Tally(session)
    kafka_sink.register(session, interceptors=[tally])
    save(numbers(session, rows, tasks=2), kafka, topic)
    return sum(receipt.batch_bytes for receipt in tally.value.values())


def test_a_tally_counts_what_a_batch_has_read(here: Here) -> None:
    session, name = here.spark.newSession(), here.topic(2)
    byte_count = filled(session, here.kafka, name, 1_000)
    replaced = {"localhost:9092": here.servers, "orders": name}
    given: dict[str, Any] = {"kafka_sink": kafka_sink, "spark": session}
    names = run_python("docs/operations.md", "Watching a write", 1, replaced, given)
    read = names["tally"].value.values()
    assert names["row_count"] == sum(each.row_count for each in read) == 1_000
    assert sum(each.byte_count for each in read) == byte_count
    assert {each.left_out_count for each in read} == {0}


def test_offsets_that_tasks_leave_out_are_counted(here: Here) -> None:
    session, name = here.spark.newSession(), here.topic(1)
    filled(session, here.kafka, name, 100)
    tally = ReadTally(session)
    kafka_sink.register(session, interceptors=[tally])
    frame = (
        session.read.format("pykafka").options(**{"kafka.bootstrap.servers": here.servers}, subscribe=name)
        .option("failOnDataLoss", "false").option("reuseOffsets", "true").load()
    )  # fmt: skip
    # The first action plans for both.
    assert frame.count() == 100
    delete_records(here.kafka, name, 30)
    assert frame.count() == 70
    (both,) = tally.value.values()
    assert (both.row_count, both.left_out_count) == (170, 30)


def test_a_micro_batch_that_reads_and_writes_counts_each_once(here: Here) -> None:
    session, source, sink = here.spark.newSession(), here.topic(2), here.topic(2)
    byte_count = filled(session, here.kafka, source, 500)
    options = {"kafka.bootstrap.servers": here.servers, "subscribe": source}

    def copy(batch: DataFrame, batch_id: int) -> None:
        here.save(batch.sparkSession.read.format("pykafka").options(**options).load().select("value"), sink)

    with Listening(session) as told:
        by_batches(streamed(session, here.folder, files=4), copy, here.folder)
        wait_until(lambda: len(told) >= 2, 30, "the listener was told")
    assert [one.read for one in told] == [Read({source: ReadTotals(500, byte_count)})] * 2
    assert [one.topics[sink].row_count for one in told] == [500, 500]
    assert count_in(here.kafka, sink) == 1_000


@pytest.mark.long
def test_a_stream_from_topic_to_topic_counts_both_sides_once_and_what_it_lost(here: Here) -> None:
    session, textfile, lines = here.spark.newSession(), here.folder / "pykafka.prom", io.StringIO()
    source, sink = here.topic(1), here.topic(2)
    filled(session, here.kafka, source, 500)

    def copied(until: int, **options: str) -> tuple[StreamingQuery, str]:
        """Copy what is there, exactly once, in a stream that ends with its micro-batch `until`. Return the metrics."""
        given = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "200", **options}
        reader = session.readStream.format("pykafka").options(**{"kafka.bootstrap.servers": here.servers}, **given)
        once = {"deliveryGuarantee": "exactly-once", "queryName": "copies"}
        finish(query := here.start(reader.load().select("value"), sink, once))
        wait_until(lambda: told and told[-1].batch_id >= until, 30, "the listener was told")
        return query, textfile.read_text()

    with Listening(session, Prometheus(textfile=textfile), ProgressLine(lines)) as told:
        query, said = copied(2)
        assert f'pykafka_read_rows_total{{query="copies",topic="{source}"}} 500.0' in said
        assert f'pykafka_read_offsets_left_out_total{{query="copies",topic="{source}"}} 0.0' in said
        assert f" read (0.0 MB) from {source}" in lines.getvalue()
        if hasattr(DataSourceStreamReader, "reportLatestOffset"):
            assert [one.lag for one in told] == [{"0": 300}, {"0": 100}, {"0": 0}]
            assert [float(one.source_metrics["0"]["avgOffsetsBehindLatest"]) for one in told] == [300, 100, 0]
            names = run_python("docs/operations.md", "What Spark's own progress says", 1, {}, {"query": query})
            zeros = {"avg": 0.0, "max": 0, "min": 0}
            assert names["metrics"] == {f"{name}OffsetsBehindLatest": f"{zero}" for name, zero in zeros.items()}
            assert not query.lastProgress.sources[0].metrics, "Spark has them now: the docs say it has not"
        here.save(numbers(session, 50), source)
        delete_records(here.kafka, source, 530)
        _, said = copied(3, failOnDataLoss="false")
        assert f'pykafka_read_offsets_left_out_total{{query="copies",topic="{source}"}} 30.0' in said
        assert lines.getvalue().endswith(f"; DATA LOSS: 30 offsets of {source} left out\n")
        create_again(here.kafka, source)
        _, said = copied(4, failOnDataLoss="false")
        assert 'pykafka_source_broken_logs_total{query="copies",source="0"} 1.0' in said
        assert lines.getvalue().endswith("; DATA LOSS: 1 partitions were deleted, created again or truncated\n")
    assert [one.input_row_count for one in told] == [200, 200, 100, 20, 0]
    assert [one.read.total.row_count for one in told] == [one.total.row_count for one in told] == [200, 200, 100, 20, 0]
    assert [one.read.total.left_out_count for one in told] == [0, 0, 0, 30, 0]
    assert [one.broken_logs.get("0", 0) for one in told] == [0, 0, 0, 0, 1]
    assert all(set(one.read.topics) <= {source} and set(one.topics) <= {sink} for one in told)
    assert count_in(here.kafka, sink) == 520


def held(until: Path) -> kafka_sink.Interceptor:
    """Holds a task's second Arrow batch back until a file is there. A class of a function travels with its object."""

    class Held(kafka_sink.Interceptor):
        seen = 0

        def on_send(self, arrow_batch: pa.RecordBatch) -> pa.RecordBatch:
            self.seen += 1
            if self.seen == 2:
                wait_until(until.exists, 120, "leave to go on")
            return arrow_batch

    return Held()


def grows_older(seen: list[OpenTransactions], sink: str) -> bool:
    """It alone has one open, in the last two answers. A plan's transaction is over within a few requests."""
    last = seen[-2:]
    if len(last) < 2 or any(found.by_sink.keys() != {sink} for found in last):
        return False
    before, now = (found.by_sink[sink] for found in last)
    return (before.count, now.count) == (1, 1) and before.oldest_age_s < now.oldest_age_s


def test_a_micro_batch_that_is_stuck_is_seen_by_its_open_transaction(here: Here) -> None:
    session, name = here.spark.newSession(), here.topic(1)
    go, textfile = here.folder / "go", here.folder / "pykafka.prom"
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "2")
    kafka_sink.register(session, interceptors=[held(go)])
    options = {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": name, "kafka.linger.ms": "0"}
    frame = streamed(session, here.folder, files=1)
    query = here.start(frame, name, options)
    of_watch = {"kafka.bootstrap.servers": here.servers, "transactionalIdPrefix": name}
    seen: list[OpenTransactions] = []
    watcher: Any = SimpleNamespace(open_transactions=seen.append)
    try:
        with TransactionWatch(of_watch, watcher, Prometheus(textfile=textfile), every_s=0.05):
            wait_until(lambda: grows_older(seen, name) or query.exception(), 60, "an open transaction that grows older")
            wait_until(textfile.exists, 10, "the metrics")
            go.touch()
            assert query.awaitTermination(120)
            ended = len(seen)
            wait_until(lambda: len(seen) > ended + 1, 30, "another answer")
            assert seen[-1].by_sink == {}
    finally:
        go.touch()
        query.stop()
    said = textfile.read_text()
    assert "pykafka_open_transactions{" not in said
    assert f'transactions_seen_timestamp_seconds{{prefix="{name}"}}' in said


def test_docs_watch_transactions_as_they_say(kafka: LocalKafka) -> None:
    registry = CollectorRegistry()
    told = Prometheus(registry=registry)
    labels = {"prefix": "pykafka"}

    def asked() -> float | None:
        return registry.get_sample_value("pykafka_transactions_seen_timestamp_seconds", labels)

    query = SimpleNamespace(awaitTermination=lambda: wait_until(asked, 30, "an answer of the brokers"))
    given: dict[str, Any] = {"prometheus": told, "query": query}
    run_python("docs/operations.md", "Metrics", 0, {"localhost:9092": kafka.bootstrap_servers}, given)
    assert asked()

"""What watchers are told of real writes, by the examples of docs; confluent-kafka says whether it is true."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import kafka_sink
from code_blocks import run_python
from kafka_sink.broker import LocalKafka
from kafka_sink.monitoring.listener import ProgressLine, ProgressListener, StreamTally
from kafka_sink.monitoring.micro_batch import MicroBatch
from kafka_sink.monitoring.receipts import ReceiptTotals
from read_back import read_topic
from waiting import wait_until

ROWS_A_FILE = 10


def read_count(kafka: LocalKafka, topic: str) -> int:
    return len(list(read_topic(kafka.bootstrap_servers, topic, 30)))


def streamed(spark: SparkSession, folder: Path, files: int) -> DataFrame:
    for number in range(files):
        rows = spark.range(number * ROWS_A_FILE, (number + 1) * ROWS_A_FILE, 1, 1)
        rows.coalesce(1).write.mode("append").parquet(str(folder / "incoming"))
    return (
        spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", 2).parquet(str(folder / "incoming"))
        .where("id % 2 = 0").selectExpr("cast(id AS STRING) AS value")
    )  # fmt: skip


def test_a_bar_counts_the_rows_of_an_export(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    session, name = spark.newSession(), topic(2)
    frame = session.range(0, 1_000, 1, 4).selectExpr("cast(id AS STRING) AS value")
    replaced = {"localhost:9092": kafka.bootstrap_servers, "orders": name}
    given: dict[str, Any] = {"kafka_sink": kafka_sink, "spark": session, "df": frame}
    names = run_python("docs/operations.md", "Watching a write", 0, replaced, given)
    assert "100%" in capsys.readouterr().err
    counted = sum(receipt.record_count for receipt in names["bar"].value.values())
    assert counted == read_count(kafka, name) == 1_000


def test_a_listener_tells_each_micro_batch_once(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    session, name, told, lines = spark.newSession(), topic(2), list[MicroBatch](), io.StringIO()
    textfile = tmp_path / "pykafka.prom"
    replaced = {"/var/lib/node_exporter/pykafka.prom": str(textfile), "ProgressLine()": "*watchers"}
    watchers = (told.append, ProgressLine(lines))
    frame = streamed(session, tmp_path, files=6)
    receipts_path, by_receipts = f"{tmp_path}/receipts", list[MicroBatch]()
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": name, "receiptsPath": receipts_path
    }  # fmt: skip
    listening: list[ProgressListener] = []
    streams = SimpleNamespace(addListener=listening.append)
    given = {"kafka_sink": kafka_sink, "spark": SessionWith(session, streams), "watchers": watchers}
    run_python("docs/operations.md", "Watching a write", 1, replaced, given)
    (listener,) = listening
    reader = ProgressListener(ReceiptTotals(receipts_path), by_receipts.append)
    session.streams.addListener(listener)
    session.streams.addListener(reader)
    try:
        query = (
            frame.writeStream.format("pykafka").queryName("evens").options(**options)
            .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(120)
        wait_until(lambda: len(told) >= 3 and len(by_receipts) >= 3, 30, "the listeners were told")
    finally:
        session.streams.removeListener(listener)
        session.streams.removeListener(reader)
    assert [(one.query, one.batch_id, one.input_row_count) for one in told] == [("evens", n, 20) for n in range(3)]
    assert [one.topics[name].row_count for one in told] == [10, 10, 10]
    assert [one.topics for one in by_receipts] == [one.topics for one in told]
    assert sum(one.written.row_count for one in told) == read_count(kafka, name)
    assert all(0 < one.write_ms <= one.duration_ms for one in told)
    assert len(lines.getvalue().splitlines()) == 3
    assert f'pykafka_rows_total{{query="evens",topic="{name}"}} 30.0' in textfile.read_text()


class SessionWith:
    """A session whose listeners are taken note of, so that a test can take them away again."""

    def __init__(self, session: SparkSession, streams: object) -> None:
        self._session, self.streams = session, streams

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


def test_writes_of_foreachbatch_count_for_their_micro_batch(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    session, name, told = spark.newSession(), topic(1), list[MicroBatch]()
    tally = StreamTally(session)
    listener = ProgressListener(tally, told.append)
    kafka_sink.register(session, interceptors=[tally])
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": name}

    def save(batch: DataFrame, batch_id: int) -> None:
        batch.write.format("pykafka").mode("append").options(**options).save()

    session.streams.addListener(listener)
    try:
        query = (
            streamed(session, tmp_path, files=2).writeStream.foreachBatch(save)
            .option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(120)
        wait_until(lambda: len(told) >= 1, 30, "the listener was told")
    finally:
        session.streams.removeListener(listener)
    assert told[0].topics[name].row_count == read_count(kafka, name) == 10

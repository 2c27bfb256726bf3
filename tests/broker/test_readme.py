"""The README's examples are taken out of it and run: exactly-once for a stream, a batch, and update mode through
foreachBatch; rows that cannot be written; receipts; a look before a write. Only addresses, folders and the names of
topics are replaced."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

import kafka_sink
from kafka_sink import verify
from kafka_sink.broker import LocalKafka

README = Path(__file__).resolve().parents[2] / "README.md"
DEADLINE_S = 120
PARTITION_EOF = -191
ROWS = 60
FILES = 3


def examples(title: str = "Exactly once") -> list[str]:
    """The Python of the section, in its order."""
    _, _, section = README.read_text().partition(f"\n## {title}\n")
    assert section, "the README has no such section"
    return re.findall(r"```python\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)


def run(example: str, replaced: dict[str, str], frame: DataFrame) -> dict[str, Any]:
    """As a user would, with `df` and `spark` at hand; a stream until it has read all. Returns its variables."""
    for text, instead in replaced.items():
        assert text in example, f"{text} is not in the example"
        example = example.replace(text, instead)
    spark = frame.sparkSession
    variables: dict[str, Any] = {"df": frame, "spark": spark, "kafka_sink": kafka_sink}
    exec(compile(example, str(README), "exec"), variables)
    for query in spark.streams.active:
        query.processAllAvailable()
        query.stop()
    return variables


def committed(kafka: LocalKafka, topic: str) -> Counter[str]:
    consumer = Consumer({
        "bootstrap.servers": kafka.bootstrap_servers, "group.id": "readme", "enable.auto.commit": False,
        "isolation.level": "read_committed", "enable.partition.eof": True, "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 10,
    })  # fmt: skip
    partitions = consumer.list_topics(topic, DEADLINE_S).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    rows: Counter[str] = Counter()
    ended: set[int | None] = set()
    try:
        while len(ended) < len(partitions):
            message = consumer.poll(DEADLINE_S)
            assert message is not None, "the topic could not be read to its end"
            error = message.error()
            if error is None:
                rows[(message.value() or b"").decode()] += 1
            else:
                assert error.code() == PARTITION_EOF, error
                ended.add(message.partition())
    finally:
        consumer.close()
    return rows


def arriving(spark: SparkSession, folder: Path) -> DataFrame:
    """A stream of files, a micro-batch each."""
    folder.mkdir()
    for file in range(FILES):
        rows = range(file * ROWS // FILES, (file + 1) * ROWS // FILES)
        (folder / f"{file}.json").write_text("".join(f"{json.dumps({'value': str(row)})}\n" for row in rows))
    return spark.readStream.schema("value STRING").option("maxFilesPerTrigger", "1").json(str(folder))


ALL_ONCE = Counter(map(str, range(ROWS)))


def test_the_examples_are_a_stream_a_batch_and_update_mode() -> None:
    stream, batch, update = examples()
    assert "writeStream" in stream and "foreachBatch" not in stream
    assert "df.write." in batch
    assert 'outputMode("update").foreachBatch' in update and "txnAppId" in update and "txnVersion" in update
    for example in (stream, batch, update):
        assert '.option("deliveryGuarantee", "exactly-once")' in example


def test_the_stream(spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path) -> None:
    name, frame = topic(2), arriving(spark, tmp_path / "incoming")
    replaced = {"localhost:9092": kafka.bootstrap_servers, "payments": name, "/data/checkpoints": str(tmp_path)}
    for _ in range(2):
        run(examples()[0], replaced, frame)
        assert committed(kafka, name) == ALL_ONCE


def test_the_batch(spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str]) -> None:
    name, frame = topic(2), spark.range(0, ROWS, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    run(examples()[1], {"localhost:9092": kafka.bootstrap_servers, "orders": name}, frame)
    assert committed(kafka, name) == ALL_ONCE


def test_update_mode(spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path) -> None:
    name = topic(2)
    counts = arriving(spark, tmp_path / "incoming").groupBy().count()
    totals = counts.selectExpr("CAST(count AS STRING) AS value")
    replaced = {"localhost:9092": kafka.bootstrap_servers, "totals": name, "/data/checkpoints": str(tmp_path)}
    for _ in range(2):
        run(examples()[2], replaced, totals)
        assert committed(kafka, name) == Counter(str((file + 1) * ROWS // FILES) for file in range(FILES))


# --- what else it shows -----------------------------------------------------------------------------------------------


def test_a_look_before_a_write(spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str]) -> None:
    (example,) = examples("Before a write: will it work?")
    name = topic(2)
    frame = spark.range(0, ROWS, 1, 2).selectExpr("CAST(id AS STRING) AS value")
    report = run(example, {"localhost:9092": kafka.bootstrap_servers, "orders": name}, frame)["report"]
    assert report.ok and name in report._repr_html_()
    assert not committed(kafka, name)


def test_rows_that_cannot_be_written(spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str]) -> None:
    (example,) = examples("Rows that cannot be written")
    name, bad = topic(2), topic(1)
    frame = spark.range(0, ROWS, 1, 2).selectExpr(
        "CAST(id AS STRING) AS value", "CAST(IF(id = 7, -1, NULL) AS INT) AS partition"
    )
    replaced = {"localhost:9092": kafka.bootstrap_servers, "orders-bad": bad, '"orders"': f'"{name}"'}
    run(example, replaced, frame)
    assert committed(kafka, name) == ALL_ONCE - Counter(["7"])
    assert committed(kafka, bad) == Counter(["7"])


def test_receipts(
    spark: SparkSession,
    kafka: LocalKafka,
    topic: Callable[..., str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write, read = examples("Receipts: what was written, and is it still there?")
    name, frame = topic(2), arriving(spark, tmp_path / "incoming")
    replaced = {
        "localhost:9092": kafka.bootstrap_servers, "payments": name,
        "/data/receipts": f"{tmp_path}/receipts", "/data/checkpoints": str(tmp_path),
    }  # fmt: skip
    run(write, replaced, frame)
    written = run(read, {"/data/receipts": f"{tmp_path}/receipts"}, frame)["written"]
    assert written.groupBy().sum("record_count").collect()[0][0] == ROWS
    capsys.readouterr()
    line = ["--receipts", f"{tmp_path}/receipts", "--bootstrap-servers", kafka.bootstrap_servers]
    assert verify.main(line) == 0
    assert f"{ROWS} EQUAL" in capsys.readouterr().out

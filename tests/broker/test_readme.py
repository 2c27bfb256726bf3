"""The README's examples of exactly-once are taken out of it and run: a stream, a batch, and update mode through
foreachBatch. Only addresses, folders and the names of topics are replaced."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import DataFrame, SparkSession

from kafka_sink.broker import LocalKafka

README = Path(__file__).resolve().parents[2] / "README.md"
DEADLINE_S = 120
PARTITION_EOF = -191
ROWS = 60
FILES = 3


def examples() -> list[str]:
    """The Python of the section, in its order."""
    _, _, section = README.read_text().partition("\n## Exactly once\n")
    assert section, "the README has no such section"
    return re.findall(r"```python\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)


def run(example: str, replaced: dict[str, str], frame: DataFrame) -> None:
    """As a user would, with `df` at hand; a stream until it has read all there is."""
    for text, instead in replaced.items():
        assert text in example, f"{text} is not in the example"
        example = example.replace(text, instead)
    spark = frame.sparkSession
    exec(compile(example, str(README), "exec"), {"df": frame})
    for query in spark.streams.active:
        query.processAllAvailable()
        query.stop()


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

"""What most integration tests need: writes with real Spark that a test can pause in the middle, reads of the topic, and
`Here`: Spark, a cluster, new topics and a folder."""

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import kafka_sink
import waiting
from kafka_sink.broker import LocalKafka
from kafka_sink.errors import KafkaSinkError
from read_back import Placed, read_topic
from waiting import wait_until

# A worker cannot import it; what `held` takes of it travels by value.
cloudpickle.register_pickle_by_value(waiting)  # type: ignore[no-untyped-call]

DEADLINE_S = 120
# What Spark puts into one Arrow batch.
ARROW_BATCH_ROWS = 10_000
NOTHING: Mapping[str, str] = MappingProxyType({})


def pykafka(writer: Any, kafka: LocalKafka | str, topic: str | None, **options: str) -> Any:
    """A DataFrameWriter or DataStreamWriter with the format and options. Option names get the prefix `kafka.`."""
    servers = kafka if isinstance(kafka, str) else kafka.bootstrap_servers
    to_topic = {} if topic is None else {"topic": topic}
    prefixed = {f"kafka.{name.replace('_', '.')}": value for name, value in options.items()}
    return writer.format("pykafka").options(**{"kafka.bootstrap.servers": servers}, **to_topic, **prefixed)


def save(frame: DataFrame, kafka: LocalKafka | str, topic: str | None, **options: str) -> None:
    pykafka(frame.write.mode("append"), kafka, topic, **options).save()


def failure_of(frame: DataFrame, kafka: LocalKafka | str, topic: str | None, **options: str) -> str:
    """Return the error text that the user reads. The write must fail."""
    with pytest.raises(PySparkException) as failure:
        save(frame, kafka, topic, **options)
    return str(failure.value)


@contextmanager
def with_conf(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.unset(name)


def error_of(call: Callable[[], object]) -> KafkaSinkError:
    """Return our error behind Spark's. The call must fail with one."""
    with pytest.raises(PySparkException) as failure:
        call()
    error = kafka_sink.error_of(failure.value)
    assert error is not None, str(failure.value)
    return error


def numbers(spark: SparkSession, count: int, tasks: int = 1, first: int = 0) -> DataFrame:
    """Return the numbers from `first` on, as text in the column `value`."""
    return spark.range(first, first + count, 1, tasks).selectExpr("cast(id AS STRING) AS value")


def arriving(folder: Path, *frames: DataFrame, at_once: int = 1) -> DataFrame:
    """Return a stream of these frames, each a file in `folder`. `at_once`: files of a micro-batch."""
    for frame in frames:
        frame.coalesce(1).write.mode("append").parquet(str(folder))
    reader = frames[0].sparkSession.readStream.schema(frames[0].schema).option("maxFilesPerTrigger", at_once)
    return reader.parquet(str(folder))


def start(
    frame: DataFrame, kafka: LocalKafka | str, topic: str | None, home: Path, given: Mapping[str, str] = NOTHING,
    **options: str,
) -> StreamingQuery:  # fmt: skip
    """Start a query that ends with its input. Its checkpoint is in `home`. `given`: options by their whole names."""
    writer = pykafka(frame.writeStream, kafka, topic, **options).options(**given)
    query: StreamingQuery = (
        writer.option("checkpointLocation", str(home / "checkpoint")).trigger(availableNow=True).start()
    )
    return query


def finish(query: StreamingQuery) -> None:
    """Waits for a query that ends by itself; raises its error."""
    ended = query.awaitTermination(DEADLINE_S)
    if not ended:
        query.stop()
    assert ended, "the query did not end in time"


def held(frame: DataFrame, gate: Path, after_rows: int) -> DataFrame:
    """Return the rows of `frame`. Each task pauses after `after_rows` rows until the file `gate` exists."""
    path, deadline_s = str(gate), DEADLINE_S

    def hold(arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        passed = 0
        for arrow_batch in arrow_batches:
            if passed >= after_rows:
                wait_until(lambda: os.path.exists(path), deadline_s, f"{path} is there")
            yield arrow_batch
            passed += arrow_batch.num_rows

    hold.__module__ = "__main__"  # so that it travels by value: a worker cannot import this file
    return frame.mapInArrow(hold, frame.schema)


def end_offset(kafka: LocalKafka | str, topic: str, partition: int = 0) -> int:
    """Return the partition's end offset."""
    # Of all rows, those of open transactions too.
    settings = {"group.id": "ends", "isolation.level": "read_uncommitted"}
    servers = kafka if isinstance(kafka, str) else kafka.bootstrap_servers
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    try:
        return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=DEADLINE_S)[1])
    finally:
        consumer.close()


def wait_for_rows(kafka: LocalKafka, topic: str, *, more_than: int = 0, writing: Future[None] | None = None) -> None:
    """Wait until partition 0 has over `more_than` rows. If `writing` fails before that, raise its error."""

    def there() -> bool:
        if writing is not None and writing.done():
            writing.result()
        return end_offset(kafka, topic) > more_than

    wait_until(there, DEADLINE_S, f"rows in {topic}")


def numbers_in(kafka: LocalKafka, topic: str) -> list[int]:
    """Return the values of a topic with one partition as integers, in offset order."""
    return [int(record.value or b"") for _, _, record in read_topic(kafka.bootstrap_servers, topic, DEADLINE_S)]


def count_in(kafka: LocalKafka, topic: str) -> int:
    """Return how many committed records the topic has."""
    return sum(1 for _ in read_topic(kafka.bootstrap_servers, topic, DEADLINE_S))


@dataclass(frozen=True, slots=True)
class Here:
    """`topic(partitions=1, config=None)` makes a topic that nobody has used. Writes and streams are those of
    this module, to this cluster; streams have their files and their checkpoint in `folder`."""

    spark: SparkSession
    kafka: LocalKafka
    topic: Callable[..., str]
    folder: Path

    @property
    def servers(self) -> str:
        return self.kafka.bootstrap_servers

    def to(self, topic: str) -> dict[str, str]:
        """Return the options of a write to `topic`."""
        return {"kafka.bootstrap.servers": self.servers, "topic": topic}

    def numbers(self, count: int, tasks: int = 1, first: int = 0) -> DataFrame:
        return numbers(self.spark, count, tasks, first)

    def arriving(self, *frames: DataFrame, at_once: int = 1) -> DataFrame:
        return arriving(self.folder / "incoming", *frames, at_once=at_once)

    def save(self, frame: DataFrame, topic: str | None, **options: str) -> None:
        save(frame, self.kafka, topic, **options)

    def failure_of(self, frame: DataFrame, topic: str | None, **options: str) -> str:
        return failure_of(frame, self.kafka, topic, **options)

    def start(self, frame: DataFrame, topic: str, given: Mapping[str, str] = NOTHING, **options: str) -> StreamingQuery:
        return start(frame, self.kafka, topic, self.folder, given, **options)

    def records(self, topic: str) -> list[Placed]:
        """Return partition, offset and record of all that is committed in `topic`, as another client reads it."""
        return list(read_topic(self.servers, topic, DEADLINE_S))

    def values(self, topic: str) -> list[bytes]:
        return sorted(record.value or b"" for _, _, record in self.records(topic))

    def numbers_in(self, topic: str) -> list[int]:
        return numbers_in(self.kafka, topic)

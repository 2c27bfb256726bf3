"""What most integration tests need: Spark, a cluster, new topics and a folder, and what users do with them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import spark_writes
from kafka_sink.broker import LocalKafka
from read_back import Placed, read_topic


@dataclass(frozen=True, slots=True)
class Here:
    """`topic(partitions=1, config=None)` makes a topic that nobody has used. Writes and streams are those of
    `spark_writes`, to this cluster; streams have their files and their checkpoint in `folder`."""

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
        return spark_writes.numbers(self.spark, count, tasks, first)

    def arriving(self, *frames: DataFrame, at_once: int = 1) -> DataFrame:
        return spark_writes.arriving(self.folder / "incoming", *frames, at_once=at_once)

    def save(self, frame: DataFrame, topic: str | None, **options: str) -> None:
        spark_writes.save(frame, self.kafka, topic, **options)

    def failure_of(self, frame: DataFrame, topic: str | None, **options: str) -> str:
        return spark_writes.failure_of(frame, self.kafka, topic, **options)

    def start(
        self, frame: DataFrame, topic: str, given: Mapping[str, str] = spark_writes.NOTHING, **options: str
    ) -> StreamingQuery:
        return spark_writes.start(frame, self.kafka, topic, self.folder, given, **options)

    def records(self, topic: str) -> list[Placed]:
        """Return partition, offset and record of all that is committed in `topic`, as another client reads it."""
        return list(read_topic(self.servers, topic, spark_writes.DEADLINE_S))

    def values(self, topic: str) -> list[bytes]:
        return sorted(record.value or b"" for _, _, record in self.records(topic))

    def numbers_in(self, topic: str) -> list[int]:
        return spark_writes.numbers_in(self.kafka, topic)

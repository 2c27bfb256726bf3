"""Reads with Spark, by pykafka and by Spark's own source, whose jars are fetched once as for the benchmarks."""

import itertools
import json
from collections.abc import Mapping
from typing import Any

from chispa.schema_comparer import assert_schema_equality
from confluent_kafka import Producer
from pyspark.sql import DataFrame, Row, SparkSession

from broker_admin import producer
from kafka_sink.broker import LocalKafka
from kafka_sink.spark.source import KafkaDataSource
from spark_jars import spark_jars

PYKAFKA, JVM = "pykafka", "kafka"
DEADLINE_S = 60
NOON_MS = 1_714_564_800_000
names = (f"reads-{number}" for number in itertools.count())
# Of a topic: segments roll at a megabyte, and those before the last are compacted.
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": 0.0001, "segment.bytes": 1024 * 1024}


def add_jvm_source(spark: SparkSession) -> None:
    """Add `format("kafka")` to a running session."""
    for jar in spark_jars():
        spark.sql(f"ADD JAR '{jar}'")


def new_topic(kafka: LocalKafka, partitions: int = 1, **config: object) -> str:
    """Return its name. Its retention takes no records with old timestamps."""
    name = next(names)
    kafka.create_topic(name, partitions, config={"retention.ms": -1, **config})
    return name


def write(kafka: LocalKafka, topic: str, *counts: int, of: Producer | None = None) -> None:
    """So many numbers into each partition, a millisecond apart, with a header."""
    of = of or producer(kafka)
    for partition, count in enumerate(counts):
        for number in range(count):
            of.produce(topic, b"%d" % number, partition=partition, timestamp=NOON_MS + number, headers=[("a", b"1")])
    assert of.flush(DEADLINE_S) == 0


def written(kafka: LocalKafka, *counts: int) -> str:
    name = new_topic(kafka, len(counts))
    write(kafka, name, *counts)
    return name


def by_partition(name: str, *values: int) -> str:
    """Offsets or times as an option has them."""
    return json.dumps({name: {str(number): value for number, value in enumerate(values)}})


def options_of(kafka: LocalKafka | str, options: Mapping[str, str]) -> dict[str, str]:
    """Options that name the servers themselves keep them."""
    servers = kafka if isinstance(kafka, str) else kafka.bootstrap_servers
    return {"kafka.bootstrap.servers": servers, **options}


def frame(spark: SparkSession, source: str, kafka: LocalKafka | str, **options: str) -> DataFrame:
    return spark.read.format(source).options(**options_of(kafka, options)).load()


def assert_same(spark: SparkSession, kafka: LocalKafka, **options: str) -> list[Row]:
    """Compare what both sources read: columns, types, and each row. Return the rows, in order."""
    ours, theirs = (frame(spark, source, kafka, **options) for source in (PYKAFKA, JVM))
    assert_schema_equality(ours.schema, theirs.schema, ignore_nullable=True)
    found, expected = (sorted(each.collect(), key=place) for each in (ours, theirs))
    assert list(map(place, found)) == list(map(place, expected))
    for row, other in zip(found, expected, strict=True):
        assert row == other
    return found


def place(row: Row) -> tuple[str, int, int]:
    return row["topic"], row["partition"], row["offset"]


def reader_of(kafka: LocalKafka | str, *columns: str, **options: str) -> Any:
    """The reader itself, without Spark; all columns if none are named."""
    source = KafkaDataSource(options_of(kafka, options))
    schema = source.schema()
    return source.reader(type(schema)([schema[name] for name in columns or schema.names]))


def offsets_read(reader: Any, partitions: Any = None) -> list[int]:
    """The offsets of all ranges, in the order of the ranges. The reader needs the column."""
    parts = reader.partitions() if partitions is None else partitions
    return [offset for part in parts for batch in reader.read(part) for offset in batch.column("offset").to_pylist()]

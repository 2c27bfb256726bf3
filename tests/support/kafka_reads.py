"""Reads with Spark, by pykafka and by Spark's own source, whose jars are fetched once as for the benchmarks."""

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chispa.schema_comparer import assert_schema_equality
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import kafka_sink
from broker_admin import producer
from kafka_sink.broker import LocalKafka
from kafka_sink.errors import KafkaSinkError
from kafka_sink.spark.source import KafkaDataSource
from spark_jars import spark_jars

PYKAFKA, JVM = "pykafka", "kafka"
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


DEADLINE_S = 90
Offsets = dict[str, dict[str, int]]


def stream(spark: SparkSession, source: str, kafka: LocalKafka | str, **options: str) -> DataFrame:
    return spark.readStream.format(source).options(**options_of(kafka, options)).load()


@dataclass(slots=True)
class Read:
    """A stream that runs. `batches`: the rows of each micro-batch. One that Spark runs again must have the same rows.
    `after`: is called with the number of a micro-batch after its rows were taken, before Spark commits it."""

    query: StreamingQuery = field(init=False)
    batches: dict[int, list[Row]] = field(default_factory=dict)
    after: Callable[[int], None] = lambda number: None

    def take(self, frame: DataFrame, number: int) -> None:
        rows = frame.collect()
        assert sorted(self.batches.setdefault(number, rows)) == sorted(rows)
        self.after(number)

    @property
    def rows(self) -> list[Row]:
        """All rows, by partition and offset."""
        return sorted((row for rows in self.batches.values() for row in rows), key=place)

    def finish(self) -> list[Row]:
        """Wait for a stream that ends by itself. Return its rows. Raises its error."""
        assert self.query.awaitTermination(DEADLINE_S), self.query.status
        return self.rows

    def catch_up(self) -> list[Row]:
        """Return the rows after everything that is there was read. Raises the stream's error."""
        self.query.processAllAvailable()
        return self.rows

    def error(self) -> KafkaSinkError:
        """Wait until the stream fails. Return our error."""
        try:
            ended = self.query.awaitTermination(DEADLINE_S)
        except Exception as failure:
            error = kafka_sink.error_of(failure)
            assert error is not None, failure
            return error
        raise AssertionError(f"no error: ended={ended}, {self.query.status}")


def places(rows: list[Row]) -> list[tuple[int, int]]:
    """The partition and the offset of each row."""
    return [(row["partition"], row["offset"]) for row in rows]


@contextmanager
def running(frame: DataFrame, checkpoint: Path, into: Read | None = None, **trigger: Any) -> Iterator[Read]:
    """Run a stream until the end of the block. `trigger`: as of DataStreamWriter.trigger; none: as soon as it can."""
    read = Read() if into is None else into
    writer = frame.writeStream.foreachBatch(read.take).option("checkpointLocation", str(checkpoint))
    read.query = (writer.trigger(**trigger) if trigger else writer).start()
    try:
        yield read
    finally:
        read.query.stop()


def read_now(frame: DataFrame, checkpoint: Path, into: Read | None = None) -> Read:
    """Read what is there, with trigger(availableNow=True). Raises the stream's error."""
    with running(frame, checkpoint, into, availableNow=True) as read:
        read.finish()
    return read


@contextmanager
def both_ways(
    spark: SparkSession, kafka: LocalKafka, folder: Path, after: Callable[[], Callable[[int], None]] | None = None,
    **options: str,
) -> Iterator[tuple[Read, Read]]:  # fmt: skip
    """Two streams that run, with failOnDataLoss true and false, and their checkpoints in the folders of these names.
    `after()`: of each `Read`."""
    frames = (stream(spark, PYKAFKA, kafka, **options, failOnDataLoss=fail) for fail in ("true", "false"))
    strict, lenient = (Read(after=after()) if after else Read() for _ in range(2))
    with running(next(frames), folder / "true", strict), running(next(frames), folder / "false", lenient):
        yield strict, lenient


def copy_all(
    spark: SparkSession, source: str, kafka: LocalKafka, read_topic: str, write_topic: str, checkpoint: Path
) -> None:
    """Copy what is there, exactly-once and 20 rows a micro-batch, in a stream that ends. Raises its error."""
    reads = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "20", "kafka.isolation.level": "read_committed"}
    rows = stream(spark, source, kafka, subscribe=read_topic, **reads).select("value")
    writes = {"topic": write_topic, "deliveryGuarantee": "exactly-once", "checkpointLocation": str(checkpoint)}
    writer = rows.writeStream.format("pykafka").options(**options_of(kafka, writes))
    assert writer.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)


def logged(checkpoint: Path) -> list[Offsets]:
    """Where each micro-batch of the one source ends, by the offset log."""
    return [json.loads(each.read_text().splitlines()[2]) for each in _entries(checkpoint / "offsets")]


def committed(checkpoint: Path) -> list[int]:
    """The numbers of the micro-batches in the commit log."""
    return [int(each.name) for each in _entries(checkpoint / "commits")]


def assert_group_is_not_ahead(kafka: LocalKafka, group: str, checkpoint: Path, topic: str, partitions: int) -> bool:
    """The group shows no offset behind the last micro-batch that Spark has recorded. Return whether it is level."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": group})
    found = consumer.committed([TopicPartition(topic, number) for number in range(partitions)], DEADLINE_S)
    consumer.close()
    last = max(committed(checkpoint), default=None)
    ends = {} if last is None else json.loads((checkpoint / "offsets" / f"{last}").read_text().splitlines()[2])[topic]
    shown = {str(each.partition): each.offset for each in found}
    assert all(offset <= ends.get(partition, 0) for partition, offset in shown.items()), (shown, ends)
    return shown == ends


def _entries(folder: Path) -> list[Path]:
    return sorted((each for each in folder.glob("*") if each.name.isdigit()), key=lambda each: int(each.name))

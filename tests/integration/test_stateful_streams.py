"""Streams of `transformWithState`: rows, timers in a micro-batch without data, and a micro-batch that runs again."""

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

import kafka_sink
from broker_admin import producer, read_values, send
from exactly_once_runs import is_unrecorded
from kafka_reads import NOON_MS
from kafka_sink import errors
from kafka_sink.broker import LocalKafka
from spark_writes import DEADLINE_S, finish, pykafka, with_conf
from waiting import wait_until

pytestmark = pytest.mark.long

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


class Counting(StatefulProcessor):
    """Counts the rows of a key, and gives the count again when the key's timer expires, 1 s of time later."""

    def __init__(self, time_mode: str) -> None:
        self.time_mode = time_mode

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.state = handle.getValueState("count", "count INT")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        before = self.state.get()[0] if self.state.exists() else 0
        count = before + sum(1 for _ in rows)
        self.state.update((count,))
        # Either is of the micro-batch: a replay has to find the same.
        of_rows = self.time_mode == "eventTime"
        now = timerValues.getCurrentWatermarkInMs() if of_rows else timerValues.getCurrentProcessingTimeInMs()
        self.handle.registerTimer(now + 1_000)
        yield Row(value=f"{key[0]}: {count} at {now}")

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        (count,) = self.state.get()
        yield Row(value=f"{key[0]}: {count} in the end")

    def close(self) -> None:
        pass


def add_file(incoming: Path, number: int, *rows: str) -> None:
    """Add rows `<key> <second>`."""
    file = incoming / f"{number}.json"
    fields = [row.split() for row in rows]
    file.write_text("".join(f'{{"key": "{key}", "time": "2026-01-01T00:00:{time}Z"}}\n' for key, time in fields))
    os.utime(file, (number, number))


@pytest.fixture
def rocksdb(spark: SparkSession) -> Iterator[SparkSession]:
    with with_conf(spark, PROVIDER, ROCKSDB):
        yield spark


def counted(spark: SparkSession, incoming: Path, time_mode: str) -> DataFrame:
    rows = spark.readStream.schema("key STRING, time TIMESTAMP").option("maxFilesPerTrigger", 1).json(str(incoming))
    if time_mode == "eventTime":
        rows = rows.withWatermark("time", "1 second")
    return rows.groupBy("key").transformWithState(Counting(time_mode), "value STRING", "append", time_mode)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with two files of rows in `incoming`."""
    (tmp_path / "incoming").mkdir()
    add_file(tmp_path / "incoming", 1, "a 01", "b 01", "a 01")
    add_file(tmp_path / "incoming", 2, "c 40", "c 40")
    return tmp_path


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_rows_and_timers_of_event_time_are_written_and_a_replay_gives_the_same(
    rocksdb: SparkSession, kafka: LocalKafka, topic: Callable[..., str], work: Path, guarantee: str
) -> None:
    name, checkpoint = topic(2), work / "checkpoint"

    def run() -> Counter[bytes]:
        writer = pykafka(counted(rocksdb, work / "incoming", "eventTime").writeStream, kafka, name)
        writer = writer.option("checkpointLocation", str(checkpoint)).option("deliveryGuarantee", guarantee)
        finish(writer.trigger(availableNow=True).start())
        return read_values(kafka, name)

    written = run()
    counts = Counter(value.partition(b" at ")[0] for value in written.elements())
    assert counts == Counter([b"a: 2", b"b: 1", b"c: 2", b"a: 2 in the end", b"b: 1 in the end", b"c: 2 in the end"])
    # The timer of c expired in a third micro-batch, which has no rows of the source.
    assert sorted(int(file.name) for file in (checkpoint / "commits").glob("[0-9]*")) == [0, 1, 2]
    is_unrecorded(work)
    again = run()
    assert again.keys() == written.keys()
    assert (again == written) is (guarantee == "exactly-once")


def test_a_replay_has_the_processing_time_of_its_micro_batch(
    rocksdb: SparkSession, kafka: LocalKafka, topic: Callable[..., str], work: Path
) -> None:
    name, checkpoint = topic(2), work / "checkpoint"

    def run() -> Counter[bytes]:
        writer = pykafka(counted(rocksdb, work / "incoming", "processingTime").writeStream, kafka, name)
        writer = writer.option("checkpointLocation", str(checkpoint)).option("deliveryGuarantee", "exactly-once")
        query = writer.trigger(processingTime="1 hour").start()
        try:
            wait_until(
                lambda: query.exception() or (checkpoint / "commits" / "0").exists(), DEADLINE_S, "a micro-batch"
            )
        finally:
            query.stop()
        assert query.exception() is None
        return read_values(kafka, name)

    written = run()
    assert Counter(value.partition(b" at ")[0] for value in written.elements()) == Counter([b"a: 2", b"b: 1"])
    is_unrecorded(work)
    assert run() == written


class CountedByKey:
    """Counts the records of a topic by their key, in another topic, exactly once."""

    def __init__(self, spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], checkpoint: Path) -> None:
        self.spark, self.kafka, self.checkpoint = spark, kafka, checkpoint
        self.source, self.target = topic(2, {"retention.ms": -1}), topic(2)
        self.producer = producer(kafka)

    def add(self, *rows: tuple[str, int]) -> None:
        """Add records with a key and a second."""
        for key, second in rows:
            send(self.producer, self.source, [b""], key=key.encode(), timestamp=NOON_MS + 1_000 * second)

    def run(self, **options: str) -> Counter[bytes]:
        records = self.spark.readStream.format("pykafka").option(
            "kafka.bootstrap.servers", self.kafka.bootstrap_servers
        )
        records = records.options(subscribe=self.source, startingOffsets="earliest").load()
        timed = records.selectExpr("STRING(key) AS key", "timestamp AS time").withWatermark("time", "1 second")
        counts = timed.groupBy("key").transformWithState(Counting("eventTime"), "value STRING", "append", "eventTime")
        query = pykafka(counts.writeStream, self.kafka, self.target).options(
            deliveryGuarantee="exactly-once", **options
        )
        finish(query.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start())
        written = read_values(self.kafka, self.target).elements()
        return Counter(value.partition(b" at ")[0] for value in written)

    def refused(self) -> str:
        with pytest.raises(StreamingQueryException) as failure:
            self.run()
        assert isinstance(kafka_sink.error_of(failure.value), errors.WrittenOtherwise)
        return str(failure.value)

    def repartition(self, partitions: int, *, skips_failed: bool = False) -> None:
        manager = self.spark._streamingCheckpointManager
        manager.repartition(str(self.checkpoint), partitions, not skips_failed)


@pytest.mark.parametrize("log_format", ["1", "2"])
def test_from_topic_to_topic_and_on_after_its_state_was_repartitioned(
    rocksdb: SparkSession, kafka: LocalKafka, topic: Callable[..., str], work: Path, log_format: str
) -> None:
    """Spark's own micro-batch for that has no rows, so the sink has decided one less than the checkpoint has."""
    counted = CountedByKey(rocksdb, kafka, topic, work / "checkpoint")
    with with_conf(rocksdb, "spark.sql.streaming.offsetLog.formatVersion", log_format):
        counted.add(("a", 1), ("b", 1), ("a", 1))
        assert counted.run() == Counter([b"a: 2", b"b: 1", b"a: 2 in the end", b"b: 1 in the end"])
        is_unrecorded(work)
        assert counted.run() == Counter([b"a: 2", b"b: 1", b"a: 2 in the end", b"b: 1 in the end"])
        counted.repartition(3)
        counted.add(("a", 2), ("a", 90))
        assert "repartitioned" in counted.refused()
        assert counted.run(allowLostState="true")[b"a: 4"] == 1
        counted.add(("b", 200))
        assert max(counted.run().values()) == 1


def test_rows_that_a_repartition_makes_spark_read_again_are_not_doubled(
    rocksdb: SparkSession, kafka: LocalKafka, topic: Callable[..., str], work: Path
) -> None:
    """Spark skips the micro-batch that it has not recorded, with the offsets that the micro-batch ended at."""
    counted = CountedByKey(rocksdb, kafka, topic, work / "checkpoint")
    with with_conf(rocksdb, "spark.sql.streaming.noDataMicroBatches.enabled", "false"):
        counted.add(("a", 1), ("b", 1))
        counted.run()
        counted.add(("c", 90))
        written = counted.run()
        is_unrecorded(work)
        before = work / "before"
        shutil.copytree(counted.checkpoint, before)
        counted.repartition(3, skips_failed=True)
        assert "enforce_exactly_once_sink=False, restore the checkpoint" in counted.refused()
        shutil.rmtree(counted.checkpoint)
        shutil.copytree(before, counted.checkpoint)
        assert counted.run() == written
        assert max(written.values()) == 1


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

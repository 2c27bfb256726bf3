"""Streams of `transformWithState`: rows, timers in a micro-batch without data, and a micro-batch that runs again."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark import cloudpickle
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StatefulProcessor

from committed_rows import read_values
from kafka_sink.broker import LocalKafka
from spark_writes import DEADLINE_S, finish, pykafka
from waiting import wait_until

pytestmark = pytest.mark.long

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
SCHEMA = "value STRING"


class Counting(StatefulProcessor):
    """Counts the rows of a key, and gives the count again when the key's timer expires, 1 s of time later."""

    def __init__(self, time_mode: str) -> None:
        self.time_mode = time_mode

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.state = handle.getValueState("count", "count INT")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        before = self.state.get()[0] if self.state.exists() else 0
        count = before + sum(self.rows_of(each) for each in rows)
        self.state.update((count,))
        # Either is of the micro-batch: a replay has to find the same.
        of_rows = self.time_mode == "eventTime"
        now = timerValues.getCurrentWatermarkInMs() if of_rows else timerValues.getCurrentProcessingTimeInMs()
        self.handle.registerTimer(now + 1_000)
        yield self.row(f"{key[0]}: {count} at {now}")

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
        (count,) = self.state.get()
        yield self.row(f"{key[0]}: {count} in the end")

    def close(self) -> None:
        pass

    def rows_of(self, rows: Any) -> int:
        return 1

    def row(self, value: str) -> Any:
        return Row(value=value)


class CountingFrames(Counting):
    """The same with pandas."""

    def rows_of(self, rows: Any) -> int:
        return len(rows)

    def row(self, value: str) -> Any:
        return pd.DataFrame({"value": [value]})


def add_file(incoming: Path, number: int, *rows: str) -> None:
    """Add rows `<key> <second>`."""
    file = incoming / f"{number}.json"
    fields = [row.split() for row in rows]
    file.write_text("".join(f'{{"key": "{key}", "time": "2026-01-01T00:00:{time}Z"}}\n' for key, time in fields))
    os.utime(file, (number, number))


def drop_last_commit(checkpoint: Path) -> None:
    """As if the driver had been killed before Spark recorded its last micro-batch."""
    commits = checkpoint / "commits"
    last = max((file for file in commits.iterdir() if file.name.isdecimal()), key=lambda file: int(file.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)


@pytest.fixture
def rocksdb(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set(PROVIDER, ROCKSDB)
    try:
        yield spark
    finally:
        spark.conf.unset(PROVIDER)


def counted(spark: SparkSession, incoming: Path, call: str, time_mode: str) -> DataFrame:
    processor = CountingFrames(time_mode) if call == "transformWithStateInPandas" else Counting(time_mode)
    rows = spark.readStream.schema("key STRING, time TIMESTAMP").option("maxFilesPerTrigger", 1).json(str(incoming))
    if time_mode == "eventTime":
        rows = rows.withWatermark("time", "1 second")
    frame: DataFrame = getattr(rows.groupBy("key"), call)(processor, SCHEMA, "append", time_mode)
    return frame


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with two files of rows in `incoming`."""
    (tmp_path / "incoming").mkdir()
    add_file(tmp_path / "incoming", 1, "a 01", "b 01", "a 01")
    add_file(tmp_path / "incoming", 2, "c 40", "c 40")
    return tmp_path


@pytest.mark.parametrize(
    ("call", "guarantee"),
    [
        ("transformWithState", "exactly-once"),
        pytest.param("transformWithState", "at-least-once", marks=pytest.mark.long),
        pytest.param("transformWithStateInPandas", "exactly-once", marks=pytest.mark.long),
    ],
)
def test_rows_and_timers_of_event_time_are_written_and_a_replay_gives_the_same(
    rocksdb: SparkSession, kafka: LocalKafka, topic: Callable[..., str], work: Path, call: str, guarantee: str
) -> None:
    name, checkpoint = topic(2), work / "checkpoint"

    def run() -> Counter[bytes]:
        writer = pykafka(counted(rocksdb, work / "incoming", call, "eventTime").writeStream, kafka, name)
        writer = writer.option("checkpointLocation", str(checkpoint)).option("deliveryGuarantee", guarantee)
        finish(writer.trigger(availableNow=True).start())
        return read_values(kafka, name)

    written = run()
    counts = Counter(value.partition(b" at ")[0] for value in written.elements())
    assert counts == Counter([b"a: 2", b"b: 1", b"c: 2", b"a: 2 in the end", b"b: 1 in the end", b"c: 2 in the end"])
    # The timer of c expired in a third micro-batch, which has no rows of the source.
    assert sorted(int(file.name) for file in (checkpoint / "commits").glob("[0-9]*")) == [0, 1, 2]
    drop_last_commit(checkpoint)
    again = run()
    assert again.keys() == written.keys()
    assert (again == written) is (guarantee == "exactly-once")


def test_a_replay_has_the_processing_time_of_its_micro_batch(
    rocksdb: SparkSession, kafka: LocalKafka, topic: Callable[..., str], work: Path
) -> None:
    name, checkpoint = topic(2), work / "checkpoint"

    def run() -> Counter[bytes]:
        writer = pykafka(
            counted(rocksdb, work / "incoming", "transformWithState", "processingTime").writeStream, kafka, name
        )
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
    drop_last_commit(checkpoint)
    assert run() == written


cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

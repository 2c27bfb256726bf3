"""Streams that are read, with real Spark and a real broker, compared with Spark's own source: rows, micro-batches, and
checkpoints."""

import itertools
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import processes
from broker_admin import add_partitions, delete_records, delete_topic, producer
from effort import variants
from kafka_reads import (
    JVM,
    NOON_MS,
    PYKAFKA,
    Read,
    both_ways,
    by_partition,
    committed,
    logged,
    names,
    new_topic,
    places,
    read_now,
    running,
    stream,
    write,
    written,
)
from kafka_sink.broker import LocalKafka
from kafka_sink.errors import InvalidOption, LogBroken, OffsetsLost, RefusedOption, TopicToReadMissing, UnknownOption
from open_connections import connections_to
from spark_writes import error_of
from waiting import wait_until

DEADLINE_S = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalKafka]:
    # Records have old timestamps, also in topics that are made again.
    with LocalKafka(config={"log.retention.ms": -1}) as kafka:
        yield kafka


# --- the same as Spark's source ---------------------------------------------------------------------------------------

STARTS = {
    "earliest": ({"startingOffsets": "earliest"}, 160),
    "latest, which is the default": ({}, 30),
    "offsets": ({"startingOffsets": by_partition("{}", 10, -1, -2)}, 90 + 30),
    "timestamp": ({"startingTimestamp": str(NOON_MS + 20), "startingOffsetsByTimestampStrategy": "latest"}, 120),
}


@pytest.mark.parametrize("start", variants(*STARTS))
def test_rows_from_each_start(both: SparkSession, broker: LocalKafka, tmp_path: Path, start: str) -> None:
    name = written(broker, 100, 30, 0)
    given, count = STARTS[start]
    options = {option: value.replace("{}", name) for option, value in given.items()}
    ours, theirs = (
        stream(both, source, broker, subscribe=name, includeHeaders="true", **options) for source in (PYKAFKA, JVM)
    )
    with running(ours, tmp_path / PYKAFKA) as found, running(theirs, tmp_path / JVM) as expected:
        found.catch_up()
        expected.catch_up()
        write(broker, name, 10, 10, 10)
        assert found.catch_up() == expected.catch_up()
    assert len(found.rows) == count
    assert logged(tmp_path / PYKAFKA)[0] == logged(tmp_path / JVM)[0]
    assert logged(tmp_path / PYKAFKA)[-1] == logged(tmp_path / JVM)[-1]


LIMITS = {
    "most": {"maxOffsetsPerTrigger": "250"},
    "fewer than partitions": {"maxOffsetsPerTrigger": "3", "startingOffsets": by_partition("{}", 0, 0, 60, 690, 1_100)},
    "least and most": {"minOffsetsPerTrigger": "200", "maxOffsetsPerTrigger": "500"},
}


@pytest.mark.parametrize("limit", variants(*LIMITS))
def test_a_limit_makes_the_same_micro_batches(
    both: SparkSession, broker: LocalKafka, tmp_path: Path, limit: str
) -> None:
    name = written(broker, 0, 3, 70, 700, 1_111)
    options = {"startingOffsets": "earliest"} | {key: each.replace("{}", name) for key, each in LIMITS[limit].items()}
    ours, theirs = (
        read_now(stream(both, source, broker, subscribe=name, **options), tmp_path / source)
        for source in (PYKAFKA, JVM)
    )
    assert ours.rows == theirs.rows
    assert logged(tmp_path / PYKAFKA) == logged(tmp_path / JVM)
    assert len(logged(tmp_path / PYKAFKA)) >= 4


@pytest.mark.long
def test_micro_batches_have_about_as_many_bytes_as_they_may(
    spark: SparkSession, broker: LocalKafka, tmp_path: Path
) -> None:
    """Records of 100 bytes, and behind them of 10,000; and a partition with little."""
    name, of = new_topic(broker, 2), producer(broker)
    for partition, count, size in ((0, 20_000, 100), (0, 1_000, 10_000), (1, 300, 1_000)):
        for _ in range(count):
            of.produce(name, os.urandom(size), partition=partition)
        assert of.flush(DEADLINE_S) == 0
    options = {"subscribe": name, "startingOffsets": "earliest"}
    read = read_now(stream(spark, PYKAFKA, broker, **options, maxBytesPerTrigger="2m"), tmp_path / "bytes")
    expected = Counter([(0, n) for n in range(21_000)] + [(1, n) for n in range(300)])
    assert Counter(places(read.rows)) == expected
    sizes = [sum(len(row.value) for row in rows) for rows in read.batches.values()]
    # 12.3 MB in all.
    assert max(sizes) <= 4 * 2**20
    assert 4 <= len(sizes) <= 15
    cap = {"maxOffsetsPerPartitionPerTrigger": "8000"}
    read = read_now(stream(spark, PYKAFKA, broker, **options, **cap), tmp_path / "offsets")
    assert Counter(places(read.rows)) == expected
    assert [len(rows) for rows in read.batches.values()] == [8_300, 8_000, 5_000]


@pytest.mark.long
def test_a_stream_waits_for_the_least_or_the_time(both: SparkSession, broker: LocalKafka, tmp_path: Path) -> None:
    name = written(broker, 5)
    options = {"subscribe": name, "startingOffsets": "earliest", "minOffsetsPerTrigger": "10"}
    for source in (PYKAFKA, JVM):
        with running(stream(both, source, broker, **options), tmp_path / source) as read:
            # The first micro-batch waits for nothing.
            wait_until(lambda read=read: len(read.rows) >= 5, DEADLINE_S, "the first micro-batch")  # type: ignore[misc]
            before = len(read.rows)
            write(broker, name, 9)
            assert len(read.catch_up()) == before
            write(broker, name, 1)
            assert len(read.catch_up()) == before + 10
    with running(stream(both, PYKAFKA, broker, **options, maxTriggerDelay="2s"), tmp_path / "delayed") as read:
        read.catch_up()
        write(broker, name, 1)
        read.catch_up()
        wait_until(lambda: len(read.rows) == 26, DEADLINE_S, "the time has passed")


@pytest.mark.long
def test_available_now_ends_where_the_logs_ended(both: SparkSession, broker: LocalKafka, tmp_path: Path) -> None:
    name = written(broker, 100, 50)
    options = {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"}
    frame = stream(both, PYKAFKA, broker, **options)
    # After each micro-batch there is more.
    read = read_now(frame, tmp_path, Read(after=lambda number: write(broker, name, 30, 30)))
    assert sorted(places(read.rows)) == [(0, n) for n in range(100)] + [(1, n) for n in range(50)]
    assert len(read.batches) == 4
    assert committed(tmp_path) == [0, 1, 2, 3]
    read.after = lambda number: None
    again = read_now(frame, tmp_path, read)
    assert Counter(places(again.rows)) == Counter(
        [(0, n) for n in range(100 + 4 * 30)] + [(1, n) for n in range(50 + 4 * 30)]
    )


@pytest.mark.long
def test_once_reads_all_and_a_processing_time_reads_on(both: SparkSession, broker: LocalKafka, tmp_path: Path) -> None:
    name = written(broker, 100)
    frame = stream(both, PYKAFKA, broker, subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="40")
    with running(frame, tmp_path, once=True) as read:
        assert len(read.finish()) == 100
    assert len(read.batches) == 1
    write(broker, name, 50)
    with running(frame, tmp_path, read, processingTime="1 second"):
        assert len(read.catch_up()) == 150
    assert len(read.batches) == 3


def test_the_progress_says_what_was_read_and_what_is_there(
    both: SparkSession, broker: LocalKafka, tmp_path: Path
) -> None:
    name = written(broker, 100, 20)
    told = {}
    for source in (PYKAFKA, JVM):
        options = {"subscribe": name, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "50"}
        read = read_now(stream(both, source, broker, **options), tmp_path / source)
        told[source] = [
            (each.numInputRows, *(json.loads(of) for of in (source.startOffset, source.endOffset, source.latestOffset)))
            for progress in read.query.recentProgress
            if progress.numInputRows
            for each, source in [(progress, progress.sources[0])]
        ]
    assert told[PYKAFKA] == told[JVM]
    assert told[PYKAFKA][0][1:] == (None, {name: {"0": 41, "1": 8}}, {name: {"0": 100, "1": 20}})


@pytest.mark.parametrize("limit", variants({}, {"maxOffsetsPerTrigger": "7"}, {"maxPartitions": "1"}))
def test_transactions(both: SparkSession, broker: LocalKafka, tmp_path: Path, limit: dict[str, str]) -> None:
    """With a limit some micro-batches have no row: all that they read is aborted, or a marker."""
    name = new_topic(broker, 2)
    of = {ends: producer(broker, **{"transactional.id": f"{name}-{ends}"}) for ends in ("commit", "abort", "open")}
    options = {"subscribe": name, "startingOffsets": "earliest", "kafka.isolation.level": "read_committed", **limit}
    ours = stream(both, PYKAFKA, broker, **options)
    # It waits for as long where a micro-batch has no row.
    theirs = stream(both, JVM, broker, **options, **{"kafkaConsumer.pollTimeoutMs": "2000"})
    with running(ours, tmp_path / PYKAFKA) as found, running(theirs, tmp_path / JVM) as expected:
        for ends in ("commit", "abort"):
            of[ends].init_transactions(DEADLINE_S)
            of[ends].begin_transaction()
            write(broker, name, 20, 10, of=of[ends])
            getattr(of[ends], f"{ends}_transaction")(DEADLINE_S)
            # A coordinator answers before leaders have its markers.
            wait_until(lambda: len(found.catch_up()) == 30, DEADLINE_S, "the committed rows")
        of["open"].init_transactions(DEADLINE_S)
        of["open"].begin_transaction()
        write(broker, name, 5, 0, of=of["open"])
        write(broker, name, 3, 3)
        committed = {0: 20, 1: 10 + 3}
        wait_until(lambda: Counter(row.partition for row in found.catch_up()) == committed, DEADLINE_S, "newer rows")
        wait_until(lambda: expected.catch_up() == found.rows, DEADLINE_S, "the same of Spark's source")
        of["open"].abort_transaction(DEADLINE_S)
        wait_until(lambda: len(found.catch_up()) == 36, DEADLINE_S, "the rows behind the open transaction")
        wait_until(lambda: expected.catch_up() == found.rows, DEADLINE_S, "the same of Spark's source")


# --- topics and partitions come and go --------------------------------------------------------------------------------


class Gate:
    """Holds a stream after its micro-batch `number`, until the end of the block."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._is_there, self._opened = threading.Event(), threading.Event()

    def __call__(self, number: int) -> None:
        if number == self._number:
            self._is_there.set()
            assert self._opened.wait(DEADLINE_S)

    def __enter__(self) -> None:
        assert self._is_there.wait(DEADLINE_S)

    def __exit__(self, *_: object) -> None:
        self._opened.set()


def test_a_partition_that_is_added_is_read_from_its_start(
    both: SparkSession, broker: LocalKafka, tmp_path: Path
) -> None:
    name = written(broker, 10)
    frame = stream(both, PYKAFKA, broker, subscribe=name, maxOffsetsPerTrigger="7")
    with running(frame, tmp_path) as read:
        read.catch_up()
        add_partitions(broker, name, 3)
        write(broker, name, 1, 20, 20)
        wait_until(lambda: len(read.catch_up()) >= 41, DEADLINE_S, "rows of the new partitions")
    assert places(read.rows) == [(0, 10), *((p, n) for p in (1, 2) for n in range(20))]


@pytest.mark.long
def test_a_topic_that_begins_to_match_the_pattern_is_read_from_its_start(
    both: SparkSession, broker: LocalKafka, tmp_path: Path
) -> None:
    prefix = next(names)
    frame = stream(both, PYKAFKA, broker, subscribePattern=f"^{prefix}-")
    with running(frame, tmp_path) as read:
        read.catch_up()
        for topic in ("a", "b"):
            broker.create_topic(f"{prefix}-{topic}", 2)
            write(broker, f"{prefix}-{topic}", 10, 10)
        wait_until(lambda: len(read.catch_up()) == 40, DEADLINE_S, "rows of the new topics")
    assert logged(tmp_path)[0] == {}
    again = read_now(frame, tmp_path, read)
    assert len(again.rows) == 40


@pytest.mark.long
def test_records_that_are_deleted_before_they_are_read(both: SparkSession, broker: LocalKafka, tmp_path: Path) -> None:
    name = written(broker, 10)
    options = {"subscribe": name, "startingOffsets": "earliest"}
    with both_ways(both, broker, tmp_path, lambda: Gate(0), **options) as (strict, lenient):
        with strict.after, lenient.after:
            write(broker, name, 90)
            delete_records(broker, name, 60)
        error = strict.error()
        assert isinstance(error, OffsetsLost)
        assert (error.topic, error.first, error.end, error.cause) == (name, 10, 60, "deleted")
        assert places(lenient.catch_up()) == [(0, n) for n in (*range(10), *range(60, 100))]
    # It goes on with what is left when the user says so.
    read_now(stream(both, PYKAFKA, broker, **options, failOnDataLoss="false"), tmp_path / "true", strict)
    assert strict.rows == lenient.rows


@pytest.mark.long
def test_a_topic_that_is_deleted(both: SparkSession, broker: LocalKafka, tmp_path: Path) -> None:
    deleted, stays = written(broker, 10, 10), written(broker, 10)
    options = {"subscribe": f"{deleted},{stays}", "startingOffsets": "earliest"}
    with both_ways(both, broker, tmp_path, **options) as (strict, lenient):
        assert len(strict.catch_up()) == len(lenient.catch_up()) == 30
        delete_topic(broker, deleted)
        error = strict.error()
        assert isinstance(error, LogBroken)
        assert (error.topic, error.position, error.cause) == (deleted, 10, "topic_deleted")
        write(broker, stays, 5)
        wait_until(lambda: len(lenient.catch_up()) == 35, DEADLINE_S, "the other topic is read on")
        broker.create_topic(deleted, 1)
        write(broker, deleted, 7)
        wait_until(lambda: len(lenient.catch_up()) == 42, DEADLINE_S, "the new topic is read")
    assert logged(tmp_path / "false")[-1] == {deleted: {"0": 7}, stays: {"0": 15}}


@pytest.mark.long
@pytest.mark.parametrize("is_there_again", ["before the restart", "after the restart"])
def test_a_checkpoint_without_a_topic_goes_on_with_the_next_one(
    both: SparkSession, broker: LocalKafka, tmp_path: Path, is_there_again: str
) -> None:
    """The offset log ends with `{}`, where `format("kafka")` keeps the offsets of the topic that is gone."""
    prefix = next(names)
    name = f"{prefix}-a"
    broker.create_topic(name, 1)
    write(broker, name, 10)
    options = {"subscribePattern": f"^{prefix}-", "startingOffsets": "earliest", "failOnDataLoss": "false"}
    frame = stream(both, PYKAFKA, broker, **options)
    with running(frame, tmp_path) as read:
        assert len(read.catch_up()) == 10
        delete_topic(broker, name)
        wait_until(lambda: logged(tmp_path)[-1] == {}, DEADLINE_S, "the topic leaves the checkpoint")
    if is_there_again == "before the restart":
        broker.create_topic(name, 1)
        write(broker, name, 7)
    with running(frame, tmp_path, read):
        read.catch_up()
        if is_there_again == "after the restart":
            broker.create_topic(name, 1)
            write(broker, name, 7)
        wait_until(lambda: len(read.catch_up()) == 17, DEADLINE_S, "all rows of the next topic")
    assert places(read.rows) == sorted([*((0, n) for n in range(10)), *((0, n) for n in range(7))])
    assert logged(tmp_path)[-1] == {name: {"0": 7}}


@pytest.mark.long
def test_topics_that_are_created_again(both: SparkSession, broker: LocalKafka, tmp_path: Path) -> None:
    """With fewer, as many, and more records than the stream has read."""
    counts = {written(broker, 10): count for count in (3, 10, 30)}
    options = {"subscribe": ",".join(counts), "startingOffsets": "earliest"}
    with both_ways(both, broker, tmp_path, lambda: Gate(0), **options) as (strict, lenient):
        with strict.after, lenient.after:
            for name, count in counts.items():
                delete_topic(broker, name)
                broker.create_topic(name, 1)
                write(broker, name, count)
        error = strict.error()
        assert isinstance(error, LogBroken)
        assert (error.position, error.cause, error.goes_on_at) == (10, "topic_recreated", 0)
        assert "topic was deleted and created again" in str(error)
        wait_until(lambda: len(lenient.catch_up()) == 30 + 43, DEADLINE_S, "the new topics are read")
    again = [[(name, n) for n in range(count)] for name, count in counts.items()]
    old, *steps, new = lenient.batches.values()
    assert len(old) == 30
    assert steps == [[]]
    assert sorted((row.topic, row.offset) for row in new) == sorted(itertools.chain(*again))
    frame = stream(both, PYKAFKA, broker, **options, failOnDataLoss="false")
    assert len(read_now(frame, tmp_path / "false", lenient).rows) == 73


# --- a checkpoint goes from one source to the other -------------------------------------------------------------------


def fail_in(frame: DataFrame, checkpoint: Path, read: Read, number: int = 0) -> None:
    """Run until this micro-batch, whose rows are taken, which Spark has logged and not committed."""

    def fail(found: int) -> None:
        if found == number:
            raise ValueError("this micro-batch fails")

    read.after = fail
    with running(frame, checkpoint, read), pytest.raises(PySparkException):
        read.finish()
    read.after = lambda number: None


@pytest.mark.parametrize("first", [PYKAFKA, pytest.param(JVM, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "limit", [pytest.param({}, marks=pytest.mark.long), {"maxOffsetsPerTrigger": "35"}], ids=["all", "limited"]
)
def test_a_checkpoint_goes_to_and_fro(
    both: SparkSession, broker: LocalKafka, tmp_path: Path, first: str, limit: dict[str, str]
) -> None:
    name = written(broker, 50, 20, 0)
    read = Read()
    sources = [PYKAFKA, JVM] if first == PYKAFKA else [JVM, PYKAFKA]
    for source in sources * 2:
        frame = stream(both, source, broker, subscribe=name, startingOffsets="latest", **limit)
        with running(frame, tmp_path, read):
            # In the middle of what there is to read, unless there is no limit.
            read.catch_up()
            write(broker, name, 30, 20, 10)
            wait_until(lambda: read.rows, DEADLINE_S, "some rows")
        write(broker, name, 7, 0, 3)
    read_now(frame, tmp_path, read)
    assert Counter(places(read.rows)) == Counter(
        [(0, 50 + n) for n in range(4 * 37)] + [(1, 20 + n) for n in range(80)] + [(2, n) for n in range(52)]
    )


@pytest.mark.long
@pytest.mark.parametrize("first", [PYKAFKA, JVM])
def test_a_micro_batch_begun_by_one_source_is_finished_by_the_other(
    both: SparkSession, broker: LocalKafka, tmp_path: Path, first: str
) -> None:
    name = written(broker, 50, 20)
    read = Read()
    second = JVM if first == PYKAFKA else PYKAFKA
    ours, others = (
        stream(both, source, broker, subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="20")
        for source in (first, second)
    )
    for number, frame in enumerate([ours, others, ours]):
        fail_in(frame, tmp_path, read, number)
        assert committed(tmp_path) == list(range(number))
        assert len(logged(tmp_path)) == number + 1
        write(broker, name, 10)
    read_now(others, tmp_path, read)
    assert Counter(places(read.rows)) == Counter([(0, n) for n in range(80)] + [(1, n) for n in range(20)])


@pytest.mark.long
def test_rows_behind_a_first_micro_batch_that_fails_are_read(
    both: SparkSession, broker: LocalKafka, tmp_path: Path
) -> None:
    """The latest offsets are others when Spark asks again where the stream begins."""
    name = written(broker, 50, 20)
    frame = stream(both, PYKAFKA, broker, subscribe=name)
    read = Read()
    for _ in range(3):
        fail_in(frame, tmp_path, read)
        write(broker, name, 10, 5)
    with running(frame, tmp_path, read):
        assert places(read.catch_up()) == [(0, n) for n in range(50, 80)] + [(1, n) for n in range(20, 35)]
    assert logged(tmp_path)[0] == {name: {"0": 50, "1": 20}}


@pytest.mark.long
def test_a_first_micro_batch_that_fails_and_would_begin_later(
    both: SparkSession, broker: LocalKafka, tmp_path: Path
) -> None:
    """The first record that is new enough came later than older ones, which came after the stream began."""
    name = written(broker, 10)
    since = {"startingTimestamp": str(NOON_MS + 1_000), "startingOffsetsByTimestampStrategy": "latest"}
    read = Read()
    frame = stream(both, PYKAFKA, broker, subscribe=name, **since)
    fail_in(frame, tmp_path, read)
    write(broker, name, 1_100)
    with running(frame, tmp_path, read):
        assert places(read.catch_up()) == [(0, n) for n in range(10, 1_110)]


@pytest.mark.long
def test_a_first_micro_batch_that_fails_and_whose_records_are_deleted(
    both: SparkSession, broker: LocalKafka, tmp_path: Path
) -> None:
    name = written(broker, 10)
    frame = stream(both, PYKAFKA, broker, subscribe=name, startingOffsets="earliest")
    fail_in(frame, tmp_path, Read())
    write(broker, name, 10)
    delete_records(broker, name, 12)
    with running(frame, tmp_path, Read()) as again:
        error = again.error()
    assert isinstance(error, OffsetsLost)
    assert (error.first, error.end, error.cause) == (10, 12, "deleted")


# --- queries ----------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_two_topics_one_source_twice_and_a_join(both: SparkSession, broker: LocalKafka, tmp_path: Path) -> None:
    first, second = written(broker, 30), written(broker, 20)
    found = {}
    for source in (PYKAFKA, JVM):
        one, other = (
            stream(both, source, broker, subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="8")
            for name in (first, second)
        )
        union = read_now(one.union(other), tmp_path / source / "union")
        twice = read_now(one.union(one), tmp_path / source / "twice")
        joined = one.alias("a").join(other.alias("b"), F.expr("a.value = b.value AND a.timestamp = b.timestamp"))
        pairs = read_now(joined.select("a.topic", "a.partition", "b.offset"), tmp_path / source / "join")
        found[source] = [
            (len(read.rows), sum(each.numInputRows for each in read.query.recentProgress))
            for read in (union, twice, pairs)
        ]
    assert [rows for rows, _ in found[PYKAFKA]] == [50, 60, 20]
    assert found[PYKAFKA] == found[JVM]


@pytest.mark.long
def test_windows_and_duplicates_of_event_time(both: SparkSession, broker: LocalKafka, tmp_path: Path) -> None:
    name = written(broker, 100, 100)
    found = {}
    for source in (PYKAFKA, JVM):
        frame = stream(both, source, broker, subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger="60")
        once = frame.withWatermark("timestamp", "10 milliseconds").dropDuplicates(["value", "timestamp"])
        counts = once.groupBy(F.window("timestamp", "20 milliseconds")).count()
        placed = counts.selectExpr("'' AS topic", "0 AS partition", "window.start AS offset", "count")
        read = read_now(placed, tmp_path / source)
        found[source] = read.rows
    # The watermark has not passed the last window.
    assert [row["count"] for row in found[PYKAFKA]] == [20] * 4
    assert found[PYKAFKA] == found[JVM]


@pytest.mark.long
@pytest.mark.parametrize(
    ("trigger", "words"),
    [
        ({"continuous": "1 second"}, "does not support continuous processing"),
        ({"realTime": "5 minutes"}, "is not supported in Real-time Mode"),
    ],
)
def test_spark_refuses_other_triggers(
    spark: SparkSession, broker: LocalKafka, tmp_path: Path, trigger: dict[str, str], words: str
) -> None:
    writer = stream(spark, PYKAFKA, broker, subscribe=written(broker, 1)).writeStream.format("console")
    writer = writer.outputMode("update" if "realTime" in trigger else "append").trigger(**trigger)  # type: ignore[call-overload]
    with pytest.raises(PySparkException, match=words):
        writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination(DEADLINE_S)
    # Spark leaves that of a query in real-time mode.
    for planner in planners():
        os.kill(planner, signal.SIGTERM)


def planners() -> list[int]:
    """The processes that plan streams of this process's Spark."""
    own = processes.below(os.getpid(), processes.of_session(os.getsid(0)))
    return [each.process_id for each in processes.planners(own)]


@pytest.mark.long
def test_the_end_of_a_query_ends_its_planner(both: SparkSession, broker: LocalKafka, tmp_path: Path) -> None:
    name = written(broker, 10)
    # That of a test before may still be ending.
    wait_until(lambda: planners() == [], DEADLINE_S, "no planner")
    frame = stream(both, PYKAFKA, broker, subscribe=name, startingOffsets="earliest")
    for round_ in range(3):
        with running(frame, tmp_path / str(round_)) as read:
            read.catch_up()
            write(broker, name, 1)
            read.catch_up()
            (planner,) = planners()
            # It asks again and again over the same connections.
            assert list(connections_to(broker.bootstrap_servers).values()).count(planner) <= 2
        wait_until(lambda: planners() == [], DEADLINE_S, "the planner has ended")
    failing = stream(both, PYKAFKA, broker, subscribe="nobody-made-this")
    with running(failing, tmp_path / "failing") as read:
        assert isinstance(read.error(), TopicToReadMissing)
    wait_until(lambda: planners() == [], DEADLINE_S, "the planner has ended")


def test_a_user_gets_the_error_behind_sparks(both: SparkSession, broker: LocalKafka, tmp_path: Path) -> None:
    name = written(broker, 10)
    for number, (options, expected, words) in enumerate(
        [
            ({"subscribe": name, "endingOffsets": "latest"}, RefusedOption, "availableNow"),
            ({"subscribe": name, "minOffsetsPerTrigger": "3", "maxOffsetsPerTrigger": "2"}, InvalidOption, "at most"),
            ({"subscribe": name, "maxOffsetPerTrigger": "2"}, UnknownOption, "Did you mean 'maxOffsetsPerTrigger'"),
        ]
    ):
        checkpoint = tmp_path / str(number)
        error = error_of(lambda: read_now(stream(both, PYKAFKA, broker, **options), checkpoint))  # noqa: B023
        assert isinstance(error, expected), error
        assert words in str(error)
        assert "the records stay in Kafka" in str(error)

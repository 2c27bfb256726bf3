"""Every way a write can end, with real Spark and a real broker: what the user is told, and what is in the topic.

Beside `test_spark_write.py`, which has the endings that need nothing of the kind: success, wrong options and columns,
bad rows, an absent broker or topic, overwrite and complete mode. A write is held in its middle by `held`: its first
rows are acknowledged, and the next come when a file exists.
"""

import concurrent.futures
import os
import signal
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from kafka.partitioner.default import murmur2
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from broker_admin import delete_topic, topics
from effort import variants
from kafka_sink.broker import LocalKafka
from open_connections import connections_to
from read_back import read_topic
from spark_writes import (
    ARROW_BATCH_ROWS,
    DEADLINE_S,
    Here,
    end_offset,
    finish,
    held,
    numbers,
    numbers_in,
    pykafka,
    save,
    start,
    wait_for_rows,
    with_conf,
)
from waiting import wait_until

ROWS = 6 * ARROW_BATCH_ROWS
HELD_AFTER = 3 * ARROW_BATCH_ROWS
# So that a write to a leader that is gone ends in seconds.
SHORT_DELIVERY = {"delivery_timeout_ms": "6000", "request_timeout_ms": "2000"}


@contextmanager
def under_way(spark: SparkSession, write: Callable[[], None]) -> Iterator[Future[None]]:
    """`write` on a thread of its own."""

    def with_active_session() -> None:
        # A thread has none until PySpark makes one active in it, and without one Spark finds no Python data source.
        spark.createDataFrame([], "value STRING")
        write()

    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        yield thread.submit(with_active_session)


def told(write: Future[None]) -> str:
    """What the user reads when the write fails, which it must, and in time. PySpark wraps most errors of the JVM in
    one of its own, but not that of a job without an error in a task."""
    with pytest.raises((PySparkException, Py4JJavaError)) as failure:
        write.result(DEADLINE_S)
    return str(failure.value)


# --- it ends well -----------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_a_topic_of_2000_partitions(here: Here) -> None:
    name, partitions, each = here.topic(2_000), 2_000, 10
    frame = here.spark.range(0, partitions * each, 1, 2).selectExpr(
        "cast(id AS STRING) AS value", f"cast(id % {partitions} AS INT) AS partition"
    )
    here.save(frame, name)
    got: dict[int, list[int]] = {}
    for partition, _, record in here.records(name):
        got.setdefault(partition, []).append(int(record.value or b""))
    # Two tasks: each has half of a partition's rows, in order.
    assert {partition: sorted(values) for partition, values in got.items()} == {
        partition: list(range(partition, partitions * each, partitions)) for partition in range(partitions)
    }
    half = partitions * each // 2
    for values in got.values():
        assert [v for v in values if v < half] == sorted(v for v in values if v < half)
        assert [v for v in values if v >= half] == sorted(v for v in values if v >= half)
    delete_topic(here.kafka, name)


@pytest.mark.long
def test_rows_of_0_bytes_and_of_900_kb_in_turn_through_4_mib_of_memory(here: Here) -> None:
    name, count = here.topic(1), 20
    frame = here.spark.range(0, count, 1, 1).selectExpr(
        "if(id % 2 = 0, '', repeat(md5(cast(id AS STRING)), 28125)) AS value", "cast(id AS STRING) AS key"
    )
    here.save(frame, name, buffer_memory=str(4 * 1024 * 1024), compression_type="none")
    got = [(int(r.key or b""), r.value) for _, _, r in here.records(name)]
    expected = [(int(row.key), row.value.encode()) for row in frame.collect()]
    assert [len(value) for _, value in expected[:2]] == [0, 900_000]
    assert got == expected


@pytest.mark.long
def test_rows_name_50_topics(here: Here) -> None:
    names = [here.topic(1) for _ in range(50)]
    known = ", ".join(f"'{name}'" for name in names)
    frame = here.spark.range(0, 5_000, 1, 2).selectExpr(
        f"element_at(array({known}), cast(id % 50 AS INT) + 1) AS topic", "cast(id AS STRING) AS value"
    )
    here.save(frame, None)
    for index, name in enumerate(names):
        assert sorted(here.numbers_in(name)) == list(range(index, 5_000, 50))


@pytest.mark.long
def test_two_queries_with_different_options_in_one_application(here: Here) -> None:
    """... share the workers, and a third with a wrong option ends without them."""
    of_jvm, of_librdkafka = here.topic(7), here.topic(7)
    frame = here.arriving(here.numbers(500)).selectExpr("value AS key", "value")
    queries = [
        start(frame, here.kafka, of_jvm, here.folder / "1", client_id="one", acks="1", compression_type="none"),
        start(frame, here.kafka, of_librdkafka, here.folder / "2", {"partitioner": "consistent"}, client_id="two"),
    ]
    wrong = start(frame, here.kafka, of_jvm, here.folder / "3", compression_type="brotli")
    for query in queries:
        finish(query)
    with pytest.raises(PySparkException, match=r"kafka_sink\.errors\.InvalidOption.*'kafka\.compression\.type'"):
        finish(wrong)
    keys = [b"%d" % n for n in range(500)]
    assert places(here.kafka, of_jvm) == {key: (murmur2(key) & 0x7FFFFFFF) % 7 for key in keys}
    assert places(here.kafka, of_librdkafka) == {key: zlib.crc32(key) % 7 for key in keys}


def places(kafka: LocalKafka, topic: str) -> dict[bytes, int]:
    """The partition of each key; every key is there once."""
    got = [(record.key or b"", partition) for partition, _, record in read_topic(kafka.bootstrap_servers, topic, 60)]
    assert len(dict(got)) == len(got)
    return dict(got)


# --- it is ended from outside, in mid-write ---------------------------------------------------------------------------


def rows_before(found: list[int]) -> int:
    """How many rows a failed write has left beside the next one, which is there whole. Each of the two is in order.
    The write's error does not wait for its task, whose rows may come among those of the next write."""
    before = len(found) - ROWS
    assert is_interleaved(found, before, ROWS), ascending(found)
    return before


def is_interleaved(found: list[int], one: int, other: int) -> bool:
    """Whether `found` is 0, 1, ... one - 1 among 0, 1, ... other - 1."""
    # How many rows of `one` may have been found so far; of a number that both could be, either.
    so_far = {0}
    for place, number in enumerate(found):
        of_one = {count + 1 for count in so_far if number == count < one}
        so_far = of_one | {count for count in so_far if number == place - count < other}
    return one in so_far


def ascending(found: list[int]) -> list[tuple[int, int]]:
    """First and last number of each run without gaps."""
    starts = [0, *(place for place in range(1, len(found)) if found[place] != found[place - 1] + 1), len(found)]
    return [(found[start], found[end - 1]) for start, end in pairwise(starts)]


def test_an_upstream_failure_in_mid_write_fails_the_write_and_keeps_earlier_rows(here: Here) -> None:
    name = here.topic(1)
    frame = here.numbers(ROWS).selectExpr("if(value = '45000', raise_error('the source broke'), value) AS value")
    assert "the source broke" in here.failure_of(frame, name)
    here.save(here.numbers(ROWS), name)
    assert rows_before(here.numbers_in(name)) <= 45_000


def test_a_micro_batch_that_fails_upstream_is_written_again_after_a_restart(here: Here) -> None:
    name, mended = here.topic(1), here.folder / "mended"
    source = here.arriving(here.numbers(ROWS))
    mended_path = str(mended)

    def break_in_the_middle(arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, arrow_batch in enumerate(arrow_batches):
            if number == 3 and not os.path.exists(mended_path):
                raise ValueError("the source broke")
            yield arrow_batch

    frame = source.mapInArrow(break_in_the_middle, source.schema)
    with pytest.raises(PySparkException, match="the source broke"):
        finish(here.start(frame, name))
    mended.touch()
    finish(here.start(frame, name))
    assert rows_before(here.numbers_in(name)) < ROWS


@pytest.mark.long
def test_a_cancelled_job_ends_its_write_at_once_and_the_rows_before_it_stay(here: Here) -> None:
    name = here.topic(1)

    def write() -> None:
        here.spark.sparkContext.setJobGroup(name, "to be cancelled", interruptOnCancel=True)
        here.save(held(here.numbers(ROWS), here.folder / "never", HELD_AFTER), name)

    with under_way(here.spark, write) as writing:
        wait_for_rows(here.kafka, name, writing=writing)
        here.spark.sparkContext.cancelJobGroup(name)
        started = time.monotonic()
        assert "SPARK_JOB_CANCELLED" in told(writing)
        assert time.monotonic() - started < 30
    before = here.numbers_in(name)
    assert before == list(range(len(before)))
    assert len(before) <= HELD_AFTER
    here.save(here.numbers(10), name)
    assert here.numbers_in(name)[-10:] == list(range(10))


def test_a_query_stopped_in_mid_batch_writes_the_batch_again_after_a_restart(here: Here) -> None:
    name, gate = here.topic(1), here.folder / "gate"
    source = here.arriving(here.numbers(ROWS))
    frame = held(source, gate, HELD_AFTER)
    query = here.start(frame, name)
    wait_for_rows(here.kafka, name)
    query.stop()
    assert query.exception() is None
    assert query.lastProgress is None
    gate.touch()
    finish(here.start(frame, name))
    got = here.numbers_in(name)
    before = got[:-ROWS]
    assert before == list(range(len(before)))
    assert 0 < len(before) <= HELD_AFTER
    assert got[-ROWS:] == list(range(ROWS))


def test_a_worker_that_is_killed_fails_the_write_and_the_next_one_succeeds(here: Here) -> None:
    name, gate = here.topic(1), here.folder / "gate"
    connected_before = connections_to(here.servers)
    frame = held(here.numbers(ROWS), gate, HELD_AFTER)
    with under_way(here.spark, lambda: here.save(frame, name, client_id=name)) as writing:
        wait_for_rows(here.kafka, name, writing=writing)
        connected = connections_to(here.servers)
        workers = {connected[socket] for socket in connected.keys() - connected_before.keys()}
        assert len(workers) == 1
        os.kill(workers.pop(), signal.SIGKILL)
        gate.touch()  # Spark notices with the next rows that it has for the worker
        assert "Python worker exited unexpectedly" in told(writing)
    before = here.numbers_in(name)
    assert before == list(range(len(before)))
    assert len(before) <= HELD_AFTER
    here.save(here.numbers(ROWS), name, client_id=name)
    assert here.numbers_in(name) == before + list(range(ROWS))


# --- the cluster ends it ----------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("bad_rows", ["fail", pytest.param("drop", marks=pytest.mark.long)])
def test_a_broker_that_stays_away_is_an_error_in_time_and_the_next_write_succeeds(
    spark: SparkSession, own_kafka: LocalKafka, tmp_path: Path, bad_rows: str
) -> None:
    gate = tmp_path / "gate"
    own_kafka.create_topic("t", 1)
    save(numbers(spark, 10), own_kafka, "t", **SHORT_DELIVERY)
    frame = held(numbers(spark, ROWS), gate, HELD_AFTER)
    writer = pykafka(frame.write.mode("append"), own_kafka, "t", **SHORT_DELIVERY).option("badRows", bad_rows)
    with under_way(spark, writer.save) as writing:
        wait_for_rows(own_kafka, "t", more_than=10, writing=writing)
        own_kafka.kill(1)
        gate.touch()
        message = told(writing)
    assert "kafka_sink.errors.DeliveryTimeout" in message
    assert "records for t-0 were not acknowledged within" in message
    assert "Connection refused" in message
    assert "all its rows are sent again" in message
    own_kafka.start(1)
    before = numbers_in(own_kafka, "t")
    assert before == [*range(10), *range(len(before) - 10)]
    save(numbers(spark, ROWS), own_kafka, "t", **SHORT_DELIVERY)
    assert numbers_in(own_kafka, "t") == before + list(range(ROWS))


@pytest.mark.parametrize("made_again", variants(True, False))
def test_a_topic_that_is_deleted_in_mid_write_is_an_error_in_time(here: Here, made_again: bool) -> None:
    name, gate = here.topic(1), here.folder / "gate"
    frame = held(here.numbers(ROWS), gate, HELD_AFTER)
    with under_way(here.spark, lambda: here.save(frame, name, **SHORT_DELIVERY)) as writing:
        wait_for_rows(here.kafka, name, writing=writing)
        delete_topic(here.kafka, name)
        if made_again:
            here.kafka.create_topic(name, 1)
        gate.touch()
        message = told(writing)
    if made_again:
        assert "kafka_sink.errors.TopicRecreated" in message
        assert f"topic '{name}' was deleted and created again during the write" in message
        assert here.numbers_in(name) == []  # no row of the old topic went to the new
    else:
        assert "kafka_sink.errors.DeliveryTimeout" in message
        assert f"records for {name}-0 were not acknowledged within" in message
        assert "UNKNOWN_TOPIC" in message
        assert name not in topics(here.kafka)  # nor did it bring the topic back


@pytest.mark.long
def test_workers_that_spark_ends_after_a_minute_without_a_task_are_replaced(here: Here) -> None:
    name = here.topic(1)
    before = connections_to(here.servers)
    here.save(here.numbers(ROWS), name, client_id=name)
    opened = connections_to(here.servers).keys() - before.keys()
    assert opened
    make_workers_idle_for_a_minute(here.spark)
    # The worker sees the end of its socket and has to end by itself, beside a Sender thread that lives.
    wait_until(lambda: not opened & connections_to(here.servers).keys(), DEADLINE_S, "Spark ends idle workers")
    here.save(here.numbers(ROWS), name)
    assert here.numbers_in(name) == [*range(ROWS), *range(ROWS)]


def make_workers_idle_for_a_minute(spark: SparkSession) -> None:
    """Puts the time at which Spark last took a worker back a minute earlier. Spark looks at it every 10 s, and has no
    setting for the one or the other (PythonWorkerFactory's IDLE_WORKER_TIMEOUT_NS and MonitorThread)."""
    environment = spark.sparkContext._jsc.sc().env()
    # From the class and not from the object: Py4J would look through all methods of SparkEnv, which name classes that
    # are not there.
    spark_env = spark.sparkContext._jvm.java.lang.Class.forName("org.apache.spark.SparkEnv")
    field = spark_env.getDeclaredField("pythonWorkers")
    field.setAccessible(True)
    factories = field.get(environment).values().iterator()
    while factories.hasNext():
        factory = factories.next()
        last_activity = "org$apache$spark$api$python$PythonWorkerFactory$$lastActivityNs"
        getattr(factory, f"{last_activity}_$eq")(getattr(factory, last_activity)() - 60 * 10**9)


# --- modes that a Python sink does not have ---------------------------------------------------------------------------


def test_update_mode_is_refused_by_spark(spark: SparkSession, kafka: LocalKafka, tmp_path: Path) -> None:
    counts = spark.readStream.format("rate").load().groupBy("value").count()
    frame = counts.selectExpr("cast(count AS STRING) AS value")
    writer = pykafka(frame.writeStream.outputMode("update"), kafka, "t")
    with pytest.raises(PySparkException, match="pykafka does not support Update mode"):
        finish(writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start())


def test_a_continuous_trigger_is_refused(here: Here) -> None:
    name = here.topic(1)
    writer = pykafka(rate(here.spark).writeStream, here.kafka, name).option(
        "checkpointLocation", str(here.folder / "checkpoint")
    )
    with pytest.raises(PySparkException, match=r"kafka_sink\.errors\.ContinuousTriggerUnsupported"):
        finish(writer.trigger(continuous="1 second").start())
    assert end_offset(here.kafka, name) == 0


def test_a_micro_batch_query_beside_a_continuous_one_is_taken_for_what_it_is(here: Here) -> None:
    name = here.topic(1)
    source = here.arriving(here.numbers(10))
    continuous = rate(here.spark).writeStream.format("noop").trigger(continuous="1 second").start()
    try:
        finish(here.start(source, name))
        assert continuous.isActive
    finally:
        continuous.stop()
    assert here.numbers_in(name) == list(range(10))


def test_a_continuous_trigger_without_a_checkpoint_option_ends_by_sparks_limit(here: Here) -> None:
    """The commit of the first epoch is refused, which Spark only logs; those after it queue up behind."""
    name, limit = here.topic(1), "spark.sql.streaming.continuous.epochBacklogQueueSize"
    with with_conf(here.spark, limit, "2"):
        query = pykafka(rate(here.spark).writeStream, here.kafka, name).trigger(continuous="100 milliseconds").start()
        with pytest.raises(PySparkException, match="queue has exceeded its maximum"):
            finish(query)
    assert end_offset(here.kafka, name) == 0


def test_real_time_mode_is_refused_by_spark(here: Here) -> None:
    name, check = here.topic(1), "spark.sql.streaming.realTimeMode.allowlistCheck"
    writer = pykafka(rate(here.spark).writeStream.outputMode("update"), here.kafka, name)
    writer = writer.option("checkpointLocation", str(here.folder / "checkpoint")).trigger(realTime="5 minutes")
    with pytest.raises(PySparkException, match=r"PythonTable is not in the sink allowlist for Real-Time Mode"):
        writer.start()
    refused = pytest.raises(PySparkException, match="Sink pykafka does not support async progress tracking")
    with with_conf(here.spark, check, "false"), refused:
        writer.start()
    assert end_offset(here.kafka, name) == 0


def rate(spark: SparkSession) -> DataFrame:
    source = spark.readStream.format("rate").option("rowsPerSecond", 100).option("numPartitions", 1).load()
    return source.selectExpr("cast(value AS STRING) AS value")

"""All brokers are away: queries wait, and go on. Where none has ever answered, the first read fails early."""

import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from broker_admin import producer, read_values, send
from code_blocks import run_python
from effort import variants
from kafka_reads import PYKAFKA, committed
from kafka_reads import stream as stream_of
from kafka_sink import errors
from kafka_sink.broker import LocalKafka
from kafka_sink.errors import BrokersUnreachable
from kafka_sink.kafka.waits import FIRST_MS
from spark_writes import error_of
from waiting import wait_until

DEADLINE_S = 300
# A query that has never had an answer would have failed by then.
AWAY_S = FIRST_MS / 1_000 + 3
# Longer than any limit before there was a policy for outages: 60 s for plans and commits, 120 s for rows.
LONG_S = 150
# What docs/operations.md says that every wait outlasts.
PROMISED_S = 300


def batch(spark: SparkSession, options: dict[str, str], checkpoint: Path) -> None:
    spark.read.format("pykafka").options(**options).load().collect()


def stream(spark: SparkSession, options: dict[str, str], checkpoint: Path) -> None:
    frame = spark.readStream.format("pykafka").options(**options).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    query.awaitTermination(DEADLINE_S)


@pytest.mark.parametrize("read", variants(stream, batch))
def test_a_first_read_of_a_closed_port_fails_early(
    spark: SparkSession, tmp_path: Path, read: Callable[[SparkSession, dict[str, str], Path], None]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    options = {"kafka.bootstrap.servers": f"127.0.0.1:{port}", "subscribe": "t"}
    error = error_of(lambda: read(spark, options, tmp_path))
    assert isinstance(error, BrokersUnreachable)
    assert (error.is_first, error.step) == (True, "tcp")
    assert FIRST_MS <= error.waited_ms < 60_000


@contextmanager
def away(kafka: LocalKafka, seconds: float) -> Iterator[None]:
    """All brokers are away during the block, and at least for so long."""
    for node in kafka.node_ids:
        kafka.kill(node)
    until = time.monotonic() + seconds
    yield
    wait_until(lambda: time.monotonic() >= until, seconds + DEADLINE_S, "the outage")
    with ThreadPoolExecutor() as together:
        assert list(together.map(kafka.start, kafka.node_ids))


def start(frame: DataFrame, kafka: LocalKafka, folder: Path, guarantee: str) -> StreamingQuery:
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": "out", "deliveryGuarantee": guarantee}
    return frame.writeStream.format("pykafka").options(**options, checkpointLocation=str(folder)).start()


def assert_each_once(kafka: LocalKafka, guarantee: str, count: int) -> None:
    rows = read_values(kafka, "out")
    assert rows.keys() == {b"%d" % number for number in range(count)}
    if guarantee == "exactly-once":
        assert set(rows.values()) == {1}


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "case", variants((AWAY_S, "exactly-once"), (AWAY_S, "at-least-once"), (LONG_S, "exactly-once")), ids=str
)
def test_a_query_that_is_started_again_in_an_outage_goes_on(
    spark: SparkSession, own_kafka: LocalKafka, tmp_path: Path, case: tuple[float, str]
) -> None:
    (seconds, guarantee), kafka = case, own_kafka
    for topic in ("in", "out"):
        kafka.create_topic(topic, 1)
    frame = stream_of(spark, PYKAFKA, kafka, subscribe="in", startingOffsets="earliest").select("value")
    send(producer(kafka), "in", (b"%d" % number for number in range(10)))
    query = start(frame, kafka, tmp_path, guarantee)
    query.processAllAvailable()
    with away(kafka, seconds):
        query.stop()
        query = start(frame, kafka, tmp_path, guarantee)
    send(producer(kafka), "in", (b"%d" % number for number in range(10, 20)))
    query.processAllAvailable()
    query.stop()
    assert_each_once(kafka, guarantee, 20)


@pytest.mark.long
@pytest.mark.timeout(1_800)
def test_from_topic_to_topic_through_five_minutes_without_any_of_three_brokers(
    spark: SparkSession, tmp_path: Path
) -> None:
    first, more = 1_000, 200
    with LocalKafka(nodes=3, config={"default.replication.factor": 3, "min.insync.replicas": 2}) as kafka:
        for topic in ("in", "out"):
            kafka.create_topic(topic, 1, replication_factor=3)
        send(producer(kafka), "in", (b"%d" % number for number in range(first)))
        options = {"subscribe": "in", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "20"}
        query = start(stream_of(spark, PYKAFKA, kafka, **options).select("value"), kafka, tmp_path, "exactly-once")
        wait_until(lambda: len(committed(tmp_path)) >= 3, DEADLINE_S, "micro-batches before the outage")
        with away(kafka, PROMISED_S):
            before = len(committed(tmp_path))
        assert query.isActive and len(committed(tmp_path)) <= before + 1 < first // 20, query.exception()
        send(producer(kafka), "in", (b"%d" % number for number in range(first, first + more)))
        query.processAllAvailable()
        query.stop()
        assert_each_once(kafka, "exactly-once", first + more)


class Query:
    def __init__(self, ends: Exception | None) -> None:
        self.ends = ends

    def awaitTermination(self) -> bool:
        if self.ends is not None:
            raise self.ends
        return True


def test_the_loop_of_the_page_starts_a_query_again_after_an_outage_only() -> None:
    error = BrokersUnreachable(bootstrap_servers="b:9092", waited_ms=1, last_error="refused")
    ends: list[Exception | None] = [error, error, None]

    def start() -> Query:
        return Query(ends.pop(0))

    replaced = {"time.sleep(30)": "time.sleep(0)"}
    run_python("docs/operations.md", "Restart queries by themselves", 0, replaced, {"start": start})
    assert ends == []
    ends = [errors.TopicNotFound(topic="t", waited_ms=1)]
    with pytest.raises(errors.TopicNotFound):
        run_python("docs/operations.md", "Restart queries by themselves", 0, replaced, {"start": start})

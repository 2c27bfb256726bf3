"""Streams that are read from brokers to which things happen, with real Spark and real brokers, and applications that
are killed. What a stream gave is compared with what librdkafka reads."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from applications import run_application
from broker_admin import RackedKafka, admin, limit, producer, send
from chaos.brokers import restart_in_order, started_again, stopped, wait_until_whole
from committed_rows import leader
from kafka_reads import PYKAFKA
from kafka_sink.broker import LocalKafka
from kafka_sink.errors import LogBroken, OffsetsLost
from read_back import read_topic
from stream_reads import Read, committed, places, read_now, running, stream
from waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

DEADLINE_S = 180
PARTITIONS = 6
RACKS = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
SESSIONS = {"broker.session.timeout.ms": 9_000, "broker.heartbeat.interval.ms": 2_000}
RETENTION = {
    "log.retention.check.interval.ms": 500,
    "log.segment.delete.delay.ms": 500,
    "log.initial.task.delay.ms": 500,
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalKafka]:
    with RackedKafka(nodes=3, config={**RACKS, **SESSIONS, **RETENTION}) as kafka:
        yield kafka


@contextmanager
def producing(kafka: LocalKafka, topic: str, size: int = 100) -> Iterator[Callable[[int], None]]:
    """Write numbers until the end of the block, each once, to all partitions. Gives a call that waits for so many."""
    settings = {"enable.idempotence": True, "linger.ms": 20, "message.timeout.ms": 300_000}
    of = producer(kafka, **settings)
    ended, delivered = threading.Event(), []

    def note(error: object, message: object) -> None:
        assert error is None, error
        delivered.append(1)

    def write() -> None:
        number = 0
        while not ended.is_set():
            if len(of) < 5_000:
                of.produce(topic, b"%-*d" % (size, number), partition=number % PARTITIONS, on_delivery=note)
                number += 1
            of.poll(0 if number % 100 else 0.05)

    def wait_for(more: int) -> None:
        count = len(delivered) + more
        wait_until(lambda: len(delivered) >= count, DEADLINE_S, "records are delivered")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield wait_for
    finally:
        ended.set()
        thread.join()
        assert of.flush(DEADLINE_S) == 0


def new_topic(kafka: LocalKafka, name: str, partitions: int = PARTITIONS, **config: object) -> str:
    kafka.create_topic(name, partitions, replication_factor=3, config={"min.insync.replicas": 2, **config})
    return name


def assert_all_once(read: Read, kafka: LocalKafka, topic: str) -> None:
    there = read_topic(kafka.bootstrap_servers, topic, DEADLINE_S)
    expected = sorted((partition, offset, record.value) for partition, offset, record in there)
    assert [(row.partition, row.offset, bytes(row.value)) for row in read.rows] == expected


def test_leaders_move_and_brokers_end_and_pause(spark: SparkSession, cluster: LocalKafka, tmp_path: Path) -> None:
    name = new_topic(cluster, "moves")
    frame = stream(
        spark, PYKAFKA, cluster, subscribe=name, startingOffsets="earliest", **{"kafka.client.rack": "rack-2"}
    )
    with producing(cluster, name) as wait_for, running(frame, tmp_path) as read:
        wait_for(2_000)
        node = leader(cluster, name, 0)
        with started_again(cluster, node):
            cluster.kill(node)
            wait_for(2_000)
        wait_until_whole(cluster)
        wait_for(2_000)
        with stopped(cluster, leader(cluster, name, 1), 30):
            wait_for(2_000)
        wait_until_whole(cluster)
        for each in cluster.node_ids:
            restart_in_order(cluster, each)
            wait_until_whole(cluster)
            wait_for(500)
        assert read.query.isActive, read.query.exception()
    read_now(frame, tmp_path, read)
    assert_all_once(read, cluster, name)


def test_all_brokers_are_away_for_a_while(spark: SparkSession, tmp_path: Path) -> None:
    with LocalKafka() as kafka:
        kafka.create_topic("away", PARTITIONS)
        frame = stream(spark, PYKAFKA, kafka, subscribe="away", startingOffsets="earliest")
        with producing(kafka, "away") as wait_for, running(frame, tmp_path) as read:
            wait_for(2_000)
            kafka.kill(1)
            away = threading.Event()
            away.wait(40)
            kafka.start(1)
            wait_for(2_000)
            before = len(read.batches)
            wait_until(lambda: len(read.batches) > before + 1, DEADLINE_S, "micro-batches afterwards")
        read_now(frame, tmp_path, read)
        assert_all_once(read, kafka, "away")


def test_a_quota_makes_a_stream_slow(spark: SparkSession, cluster: LocalKafka, tmp_path: Path) -> None:
    name = new_topic(cluster, "throttled")
    limit(cluster, name, consumer_byte_rate=200_000)
    options = {"subscribe": name, "startingOffsets": "earliest", "kafka.client.id": name}
    small = {"kafka.max.partition.fetch.bytes": "65536", "maxOffsetsPerTrigger": "1500"}
    frame = stream(spark, PYKAFKA, cluster, **options, **small)
    with producing(cluster, name, size=1_000) as wait_for:
        wait_for(10_000)
    read = read_now(frame, tmp_path)
    assert_all_once(read, cluster, name)


def test_retention_overtakes_a_stream(spark: SparkSession, cluster: LocalKafka, tmp_path: Path) -> None:
    """With failOnDataLoss=false no row comes twice, and all that come are rows of the topic; with true it fails."""
    small = {"segment.bytes": 1024 * 1024, "retention.bytes": 1024 * 1024}
    name = new_topic(cluster, "overtaken", **small)
    options = {"subscribe": name, "startingOffsets": "earliest"}
    frames = {
        fail: stream(spark, PYKAFKA, cluster, **options, maxOffsetsPerTrigger="600", failOnDataLoss=fail)
        for fail in ("true", "false")
    }
    with running(frames["true"], tmp_path / "true") as strict, running(frames["false"], tmp_path / "false") as lenient:
        strict.catch_up()
        lenient.catch_up()
        with producing(cluster, name, size=5_000) as wait_for:
            error = strict.error()
            assert isinstance(error, OffsetsLost)
            assert error.cause == "deleted"
            wait_for(3_000)
            assert lenient.query.isActive, lenient.query.exception()
    # Without a limit, which would take it through the offsets that are gone in small steps.
    read_now(stream(spark, PYKAFKA, cluster, **options, failOnDataLoss="false"), tmp_path / "false", lenient)
    found = [(*place, int(row.value)) for place, row in zip(places(lenient.rows), lenient.rows, strict=True)]
    assert len(found) == len(set(found))
    left = {
        (partition, offset, int(record.value or b""))
        for partition, offset, record in read_topic(cluster.bootstrap_servers, name, DEADLINE_S)
    }
    assert left
    assert left <= set(found)
    assert len({number for _, _, number in found}) == len(found)
    # Up to the failure, all.
    by_partition = {
        p: [offset for partition, offset in places(strict.rows) if partition == p] for p in range(PARTITIONS)
    }
    for offsets in by_partition.values():
        assert offsets == list(range(len(offsets)))


@pytest.mark.parametrize("more", [5, 30], ids=["shorter", "longer"])
def test_an_unclean_election_truncates(spark: SparkSession, cluster: LocalKafka, tmp_path: Path, more: int) -> None:
    """The log is shorter than what the stream has read, or has grown over it with other records."""
    name = f"unclean-{more}"
    config = {"min.insync.replicas": 1, "unclean.leader.election.enable": "true"}
    cluster.create_topic(name, 1, replication_factor=2, config=config)
    wait_until_whole(cluster)
    first = leader(cluster, name, 0)
    (second,) = set(replicas(cluster, name)) - {first}
    write(cluster, name, b"both", 10, acks="all")
    frames = {
        fail: stream(spark, PYKAFKA, cluster, subscribe=name, startingOffsets="earliest", failOnDataLoss=fail)
        for fail in ("true", "false")
    }
    with (
        running(frames["true"], tmp_path / "true") as strict,
        running(frames["false"], tmp_path / "false") as lenient,
        started_again(cluster, first),
    ):
        with started_again(cluster, second):
            cluster.kill(second)
            write(cluster, name, b"lost", 10)
            wait_until(lambda: len(strict.rows) == len(lenient.rows) == 20, DEADLINE_S, "all is read")
            cluster.kill(first)
        wait_until(lambda: leader(cluster, name, 0) == second, DEADLINE_S, "the other replica leads")
        write(cluster, name, b"other", more)
        error = strict.error()
        assert isinstance(error, LogBroken)
        assert (error.position, error.cause, error.goes_on_at) == (20, "truncated", 10)
        assert "unclean.leader.election.enable=false" in str(error)
        wait_until(lambda: len(lenient.rows) == 20 + more, DEADLINE_S, "the other records are read")
    values = Counter(bytes(row.value) for row in lenient.rows)
    assert values == {b"both": 10, b"lost": 10, b"other": more}
    assert strict.rows == [row for row in lenient.rows if row.value != b"other"]
    wait_until_whole(cluster)


def replicas(kafka: LocalKafka, topic: str) -> list[int]:
    return list(admin(kafka).list_topics(topic, timeout=DEADLINE_S).topics[topic].partitions[0].replicas)


def write(kafka: LocalKafka, topic: str, value: bytes, count: int, acks: str = "1") -> None:
    send(producer(kafka, acks=acks, **{"message.timeout.ms": DEADLINE_S * 1_000}), topic, [value] * count)


def run(kafka: LocalKafka, topic: str, folder: Path, kill_in: object, *options: str) -> int:
    folder.mkdir(exist_ok=True)
    status, said = run_application(
        "stream_read_app.py", kafka.bootstrap_servers, topic, folder, kill_in, *options, folder=folder
    )
    assert status in (0, -signal.SIGKILL), said
    return status


def rows_in(folder: Path) -> list[tuple[int, int]]:
    return sorted(tuple(row) for file in folder.glob("*.json") for row in json.loads(file.read_text()))


@pytest.mark.parametrize("start", ["latest", "earliest"])
def test_an_application_is_killed_before_it_commits(
    kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path, start: str
) -> None:
    """In its first micro-batch, and in a later one; each time more is written before it runs again."""
    name, folder = topic(2), tmp_path / "rows"
    options = (f"startingOffsets={start}", "maxOffsetsPerTrigger=7")
    write(kafka, name, b"before", 20)
    for kill_in in (0, 0, 2):
        assert run(kafka, name, folder, kill_in, *options) == -signal.SIGKILL
        assert kill_in not in committed(folder / "checkpoint")
        write(kafka, name, b"after", 10)
    assert run(kafka, name, folder, "none", *options) == 0
    assert rows_in(folder) == [(0, n) for n in range(0 if start == "earliest" else 20, 50)]

"""Streams that are read from brokers to which things happen, with real Spark and real brokers. What a stream gave is
compared with what librdkafka reads. See also `test_outages.py`, and for elections `test_three_brokers_chaos.py`."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from broker_admin import RackedKafka, leader, producer
from chaos.brokers import restart_in_order, started_again, stopped, wait_until_whole
from kafka_reads import PYKAFKA, both_ways, places, read_now, running, stream
from kafka_sink.broker import LocalKafka
from kafka_sink.errors import OffsetsLost
from read_back import read_topic
from waiting import wait_until

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]

DEADLINE_S = 180
PARTITIONS = 6
RACKS = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
SESSIONS = {"broker.session.timeout.ms": 9_000, "broker.heartbeat.interval.ms": 2_000}
RETENTION = dict.fromkeys(
    ("log.retention.check.interval.ms", "log.segment.delete.delay.ms", "log.initial.task.delay.ms"), 500
)


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
    there = read_topic(cluster.bootstrap_servers, name, DEADLINE_S)
    expected = sorted((partition, offset, record.value) for partition, offset, record in there)
    assert [(row.partition, row.offset, bytes(row.value)) for row in read.rows] == expected


def test_retention_overtakes_a_stream(spark: SparkSession, cluster: LocalKafka, tmp_path: Path) -> None:
    """With failOnDataLoss=false no row comes twice, and all that come are rows of the topic; with true it fails."""
    small = {"segment.bytes": 1024 * 1024, "retention.bytes": 1024 * 1024}
    name = new_topic(cluster, "overtaken", **small)
    options = {"subscribe": name, "startingOffsets": "earliest"}
    with both_ways(spark, cluster, tmp_path, **options, maxOffsetsPerTrigger="600") as (strict, lenient):
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
    assert left and left <= set(found)
    assert len({number for _, _, number in found}) == len(found)
    # Up to the failure, all.
    for number in range(PARTITIONS):
        offsets = [offset for partition, offset in places(strict.rows) if partition == number]
        assert offsets == list(range(len(offsets)))

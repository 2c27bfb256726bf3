"""A cluster that is restored from a copy of its disk under a running stream: real Spark, and a real broker.

Topic ids, leader epochs and the cluster's id are the same afterwards, and the log grows past the stream's offset.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from kafka_reads import PYKAFKA
from kafka_sink.broker import LocalKafka
from kafka_sink.errors import LogBroken
from kafka_sink.errors.reading import LossCause
from replaced_cluster import restore, take_snapshot
from stream_reads import Read, running, stream

AT_SNAPSHOT, AT_RESTORE, NEW = 100, 150, 80

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def write(kafka: LocalKafka, count: int, writer: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "linger.ms": 50})
    for number in range(count):
        producer.produce("t", f"{writer} {number}".encode(), partition=0)
    assert producer.flush(60) == 0


def snapshot_of(kafka: LocalKafka) -> Path:
    kafka.create_topic("t", 1)
    write(kafka, AT_SNAPSHOT, "before")
    return take_snapshot(kafka)


def restored(kafka: LocalKafka, snapshot: Path) -> None:
    """Its writers go on at once, and past the stream's offset."""
    restore(kafka, snapshot)
    write(kafka, NEW, "after")


def until_idle(read: Read, count: int) -> None:
    """All is read, and the planner has looked at the logs again since."""
    for _ in range(3):
        assert len(read.catch_up()) == count


def test_a_stream_stops_instead_of_leaving_records_out(
    spark: SparkSession, own_kafka: LocalKafka, tmp_path: Path
) -> None:
    snapshot = snapshot_of(own_kafka)
    asked = stream(spark, PYKAFKA, own_kafka, subscribe="t", startingOffsets="earliest")
    with running(asked, tmp_path / "checkpoint") as read:
        until_idle(read, AT_SNAPSHOT)
        write(own_kafka, AT_RESTORE - AT_SNAPSHOT, "between")
        until_idle(read, AT_RESTORE)
        restored(own_kafka, snapshot)
        error = read.error()
    assert isinstance(error, LogBroken), error
    assert (error.topic, error.partition, error.position, error.cause) == ("t", 0, AT_RESTORE, LossCause.RESTORED)
    # The rows of the copy, those that went with the restore, and none of those that came after it.
    assert [row.offset for row in read.rows] == list(range(AT_RESTORE))
    assert all(bytes(row.value).startswith((b"before", b"between")) for row in read.rows)

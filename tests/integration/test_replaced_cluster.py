"""Another cluster behind the same address, or one that is restored from a copy of its disk. A kept producer must not
write under the former one's producer id, and a stream must not leave out what came since."""

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from broker_admin import producer as their_producer
from broker_admin import read_values, send
from kafka_reads import PYKAFKA, Read, running, stream
from kafka_sink.broker import LocalKafka
from kafka_sink.commit.commit_topic import ensure_commit_topic
from kafka_sink.errors import ClusterChanged, LogBroken
from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka.client import Producer
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.write import Write
from kafka_sink.options.config import sink_config
from kafka_sink.spark.kept_clients import lease_admin_client, lease_producer

ROWS = 100


def replace_data(kafka: LocalKafka, by: Callable[[Path], object]) -> None:
    """Of the one node, which is started again."""
    data = kafka.dir / "node-1" / "data"
    kafka.kill(1)
    shutil.rmtree(data)
    by(data)
    kafka.start(1)


def wipe(kafka: LocalKafka) -> None:
    """An empty cluster, with another id."""
    properties = str(kafka.dir / "node-1" / "server.properties")
    arguments = "format", f"--cluster-id={str(uuid.uuid4())[:22]}", "--config", properties
    replace_data(kafka, lambda data: kafka.run_tool("kafka.tools.StorageTool", *arguments))


def take_snapshot(kafka: LocalKafka) -> Path:
    kafka.kill(1)
    snapshot = shutil.copytree(kafka.dir / "node-1" / "data", kafka.dir / "snapshot")
    kafka.start(1)
    return Path(snapshot)


def restore(kafka: LocalKafka, snapshot: Path) -> None:
    """The ids of the cluster and of topics, and leader epochs, are as they were; all data is as of the snapshot."""
    replace_data(kafka, lambda data: shutil.copytree(snapshot, data))


def config(kafka: LocalKafka) -> ProducerConfig:
    waits = {"kafka.max.block.ms": "20000", "kafka.retry.backoff.ms": "50"}
    return sink_config({"kafka.bootstrap.servers": kafka.bootstrap_servers, **waits}).producer


def batch(topic: str, writer: str) -> pa.RecordBatch:
    """ROWS rows that name their topic."""
    return pa.record_batch({"value": [f"{writer}-{number:03}" for number in range(ROWS)], "topic": [topic] * ROWS})


def write(producer: Producer, topic: str, writer: str) -> None:
    rows = Write(producer, topic=None)
    rows.append(batch(topic, writer))
    assert sum(receipt.record_count for receipt in rows.finish()) == ROWS


def write_as_another_application(kafka: LocalKafka, topic: str) -> None:
    producer = Producer(config(kafka))
    write(producer, topic, "other")
    producer.close()


def assert_has_rows_of(kafka: LocalKafka, topic: str, *writers: str) -> None:
    expected = [each for writer in writers for each in batch(topic, writer)["value"].to_pylist()]
    assert sorted(each.decode() for each in read_values(kafka, topic).elements()) == sorted(expected)


@pytest.mark.parametrize("is_restored", [False, pytest.param(True, marks=pytest.mark.long)], ids=["new", "restored"])
def test_a_kept_producer_does_not_outlive_its_cluster(own_kafka: LocalKafka, is_restored: bool) -> None:
    """The cluster gives the other application the id that the kept producer had: a new one counts from the start, and
    one that is restored, with the same cluster id, gives ids out again."""
    for topic in ("a", "t"):
        own_kafka.create_topic(topic, 1)
    snapshot = take_snapshot(own_kafka) if is_restored else None
    with lease_producer(config(own_kafka)) as producer:
        write(producer, "a", "ours")
    if snapshot:
        restore(own_kafka, snapshot)
    else:
        wipe(own_kafka)
        own_kafka.create_topic("t", 1)
    write_as_another_application(own_kafka, "t")
    with lease_producer(config(own_kafka)) as producer:
        write(producer, "t", "ours")
    assert_has_rows_of(own_kafka, "t", "other", "ours")


@pytest.mark.long
def test_a_write_and_an_admin_client_stop_where_their_cluster_is_replaced(own_kafka: LocalKafka) -> None:
    """Rows that name a topic which the new cluster does not have yet: nothing else would be wrong with them."""
    own_kafka.create_topic("a", 1)
    with lease_admin_client(config(own_kafka)) as client:
        ensure_commit_topic(client, "commits")
        first = client.cluster_id
    belongs = pytest.raises(ClusterChanged, match="belongs to cluster")
    with belongs as failure, lease_producer(config(own_kafka)) as producer:
        rows = Write(producer, topic=None)
        rows.append(batch("a", "ours"))
        producer.flush(rows.acknowledgements)
        wipe(own_kafka)
        own_kafka.create_topic("t", 1)
        write_as_another_application(own_kafka, "t")
        rows.append(batch("t", "ours"))
        rows.finish()
    assert failure.value.expected != failure.value.found
    assert_has_rows_of(own_kafka, "t", "other")
    with lease_admin_client(config(own_kafka)) as client:
        ensure_commit_topic(client, "commits")
        assert client.cluster_id not in (None, first)
    with pytest.raises(ClusterChanged), lease_admin_client(config(own_kafka), first) as client:
        client.transaction_version()


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_stream_stops_instead_of_leaving_out_records_of_a_restored_cluster(
    spark: SparkSession, own_kafka: LocalKafka, tmp_path: Path
) -> None:
    """Its writers go on at once, and past the stream's offset."""
    own_kafka.create_topic("t", 1)
    send(their_producer(own_kafka), "t", [b"before"] * 100)
    snapshot = take_snapshot(own_kafka)

    def until_idle(read: Read, count: int) -> None:
        """All is read, and the planner has looked at the logs again since."""
        for _ in range(3):
            assert len(read.catch_up()) == count

    asked = stream(spark, PYKAFKA, own_kafka, subscribe="t", startingOffsets="earliest")
    with running(asked, tmp_path / "checkpoint") as read:
        until_idle(read, 100)
        send(their_producer(own_kafka), "t", [b"between"] * 50)
        until_idle(read, 150)
        restore(own_kafka, snapshot)
        send(their_producer(own_kafka), "t", [b"after"] * 80)
        error = read.error()
    assert isinstance(error, LogBroken), error
    assert (error.topic, error.partition, error.position, error.cause) == ("t", 0, 150, LossCause.RESTORED)
    # The rows of the copy, those that went with the restore, and none of those that came after it.
    assert [(row.offset, bytes(row.value)) for row in read.rows] == list(
        enumerate([b"before"] * 100 + [b"between"] * 50)
    )

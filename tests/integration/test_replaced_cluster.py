"""Another cluster behind the same address: a kept producer must not write under the former one's producer id."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kafka_sink.broker import LocalKafka
from kafka_sink.commit.commit_topic import ensure_commit_topic
from kafka_sink.errors import ClusterChanged
from kafka_sink.kafka.client import Producer
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kept import lease_admin_client, lease_producer
from kafka_sink.options.config import sink_config
from read_back import read_topic
from replaced_cluster import restore, take_snapshot, wipe

ROWS = 100


def config(kafka: LocalKafka) -> ProducerConfig:
    waits = {"kafka.max.block.ms": "20000", "kafka.retry.backoff.ms": "50"}
    return sink_config({"kafka.bootstrap.servers": kafka.bootstrap_servers, **waits}).producer


def values(writer: str) -> list[str]:
    return [f"{writer}-{number:03}" for number in range(ROWS)]


def write(producer: Producer, topic: str, writer: str) -> None:
    """One batch of ROWS rows that name their topic."""
    rows = producer.begin(topic=None)
    rows.append(pa.record_batch({"value": pa.array(values(writer)), "topic": pa.array([topic] * ROWS)}))
    assert sum(receipt.record_count for receipt in rows.finish()) == ROWS


def write_as_another_application(kafka: LocalKafka, topic: str) -> None:
    producer = Producer(config(kafka))
    write(producer, topic, "other")
    producer.close()


def read(kafka: LocalKafka, topic: str) -> list[str]:
    return sorted((record.value or b"").decode() for _, _, record in read_topic(kafka.bootstrap_servers, topic, 60))


def test_a_kept_producer_does_not_outlive_its_cluster(own_kafka: LocalKafka) -> None:
    """The new cluster gives the other application the id that the kept producer has of the old one."""
    own_kafka.create_topic("a", 1)
    with lease_producer(config(own_kafka)) as producer:
        write(producer, "a", "ours")
    wipe(own_kafka)
    own_kafka.create_topic("t", 1)
    write_as_another_application(own_kafka, "t")
    with lease_producer(config(own_kafka)) as producer:
        write(producer, "t", "ours")
    assert read(own_kafka, "t") == values("other") + values("ours")


@pytest.mark.long
def test_a_write_stops_where_its_cluster_is_replaced(own_kafka: LocalKafka) -> None:
    """Rows that name a topic which the new cluster does not have yet: nothing else would be wrong with them."""
    own_kafka.create_topic("a", 1)
    belongs = pytest.raises(ClusterChanged, match="belongs to cluster")
    with belongs as failure, lease_producer(config(own_kafka)) as producer:
        rows = producer.begin(topic=None)
        rows.append(pa.record_batch({"value": pa.array(values("ours")), "topic": pa.array(["a"] * ROWS)}))
        producer.flush(rows.acknowledgements)
        wipe(own_kafka)
        own_kafka.create_topic("t", 1)
        write_as_another_application(own_kafka, "t")
        rows.append(pa.record_batch({"value": pa.array(values("ours")), "topic": pa.array(["t"] * ROWS)}))
        rows.finish()
    assert failure.value.expected != failure.value.found
    assert read(own_kafka, "t") == values("other")


@pytest.mark.long
def test_a_kept_admin_client_does_not_outlive_its_cluster(own_kafka: LocalKafka) -> None:
    with lease_admin_client(config(own_kafka)) as client:
        ensure_commit_topic(client, "commits")
        first = client.cluster_id
    wipe(own_kafka)
    with lease_admin_client(config(own_kafka)) as client:
        ensure_commit_topic(client, "commits")
        assert client.cluster_id not in (None, first)
    with pytest.raises(ClusterChanged), lease_admin_client(config(own_kafka), first) as client:
        client.transaction_version()


@pytest.mark.long
def test_a_kept_producer_does_not_outlive_a_restore(own_kafka: LocalKafka) -> None:
    """The same cluster id, and ids of producers are given out again."""
    own_kafka.create_topic("a", 1)
    own_kafka.create_topic("t", 1)
    snapshot = take_snapshot(own_kafka)
    with lease_producer(config(own_kafka)) as producer:
        write(producer, "a", "ours")
    restore(own_kafka, snapshot)
    write_as_another_application(own_kafka, "t")
    with lease_producer(config(own_kafka)) as producer:
        write(producer, "t", "ours")
    assert read(own_kafka, "t") == values("other") + values("ours")

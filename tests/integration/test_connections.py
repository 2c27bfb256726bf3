"""How many connections clients hold to real brokers: one to each broker that they use, none to a bootstrap server."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from kafka_sink.broker import LocalKafka
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.client import Producer
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.kafka.protocol.apis.list_transactions import ListTransactionsRequest
from kafka_sink.kafka.reader import Reader
from kafka_sink.options.config import given_options, sink_config
from kafka_sink.options.reading import READING, read_config
from open_connections import opened_since, own_connections

PARTITIONS = 6


def config(servers: str) -> ProducerConfig:
    return sink_config({"kafka.bootstrap.servers": servers}).producer


def write(producer: Producer, topic: str) -> None:
    """A row for each partition."""
    rows = producer.begin(topic=topic)
    places = list(range(PARTITIONS))
    rows.append(pa.record_batch({"value": pa.array([b"v"] * PARTITIONS), "partition": pa.array(places, pa.int32())}))
    assert [receipt.record_count for receipt in rows.finish()] == [1] * PARTITIONS


def ports(servers: str) -> list[int]:
    return [int(server.rpartition(":")[2]) for server in servers.split(",")]


def connections_of_writes(servers: str, topic: str) -> list[Counter[int]]:
    """Remote port -> open connections of a producer after each of two writes."""
    before = own_connections(servers)
    producer = Producer(config(servers))
    try:
        found = []
        for _ in range(2):
            write(producer, topic)
            found.append(opened_since(before, servers))
        return found
    finally:
        producer.close()
        assert opened_since(before, servers) == {}


@pytest.fixture(scope="module")
def three() -> Iterator[LocalKafka]:
    with LocalKafka(nodes=3) as cluster:
        cluster.create_topic("t", PARTITIONS)
        yield cluster


def test_a_producer_of_one_broker_has_one_connection(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    (port,) = ports(kafka.bootstrap_servers)
    assert connections_of_writes(kafka.bootstrap_servers, topic(PARTITIONS)) == [{port: 1}] * 2


def test_a_bootstrap_server_with_another_name_is_left(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    """The broker advertises an address, so its name leads to no known broker."""
    (port,) = ports(kafka.bootstrap_servers)
    servers = f"localhost:{port}"
    assert servers != kafka.bootstrap_servers
    assert connections_of_writes(servers, topic(PARTITIONS)) == [{port: 1}] * 2


@pytest.mark.long
def test_a_producer_of_three_brokers_has_one_connection_to_each(three: LocalKafka) -> None:
    each_once = dict.fromkeys(ports(three.bootstrap_servers), 1)
    assert connections_of_writes(three.bootstrap_servers, "t") == [each_once] * 2


def test_an_admin_client_of_one_broker_has_one_connection(kafka: LocalKafka) -> None:
    before = own_connections(kafka.bootstrap_servers)
    client = AdminClient(config(kafka.bootstrap_servers))
    assert client.ask_brokers(ListTransactionsRequest()).keys() == {1}
    assert opened_since(before, kafka.bootstrap_servers) == dict.fromkeys(ports(kafka.bootstrap_servers), 1)
    client.close()
    assert opened_since(before, kafka.bootstrap_servers) == {}


def test_a_reader_of_one_broker_has_one_connection(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    name = topic(PARTITIONS)
    producer, client = Producer(config(kafka.bootstrap_servers)), AdminClient(config(kafka.bootstrap_servers))
    write(producer, name)
    topic_id = uuid.UUID(client.topic_ids((name,))[name])
    producer.close()
    client.close()
    before = own_connections(kafka.bootstrap_servers)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": name}
    reader = Reader(read_config(given_options(options, table=READING)).consumer)
    fetched = [
        record_set.next_offset
        for partition in range(PARTITIONS)
        for record_set in reader.fetch(
            FetchRange(name, topic_id, partition, first=0, end=1),
            fail_on_data_loss=True, goes_on=False, poll_timeout_ms=60_000,
        )
    ]  # fmt: skip
    assert fetched == [1] * PARTITIONS
    assert opened_since(before, kafka.bootstrap_servers) == dict.fromkeys(ports(kafka.bootstrap_servers), 1)
    reader.close()
    assert opened_since(before, kafka.bootstrap_servers) == {}

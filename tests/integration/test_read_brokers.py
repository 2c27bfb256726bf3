"""Reads at real brokers that throttle, and at replicas that are nearer than the leader."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest

from broker_admin import RackedKafka, limit, producer, send
from kafka_reads import reader_of
from kafka_sink.broker import LocalKafka
from kafka_sink.kafka.net import network_client
from kafka_sink.kafka.protocol.apis.fetch import FetchRequest
from kafka_sink.kafka.protocol.requests import Request

BYTES_PER_S = 50_000
# Brokers let ten seconds' worth pass before they throttle (quota.window.num).
FREE_BYTES = 10 * BYTES_PER_S
SECONDS = 4
VALUE_BYTES = 10_000


def values_of(kafka: LocalKafka, topic: str, **options: str) -> list[bytes]:
    reader = reader_of(kafka, "value", subscribe=topic, **options)
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    return [value.as_py() for batch in batches for value in batch.column("value")]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Sequence[tuple[int, Request]]:
    """Each Fetch, with the node that it went to."""
    found: list[tuple[int, Request]] = []
    send = network_client.NetworkClient.send

    def noted(self: network_client.NetworkClient, node_id: int, request: Request, *more: object) -> None:
        if isinstance(request, FetchRequest):
            found.append((node_id, request))
        send(self, node_id, request, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(network_client.NetworkClient, "send", noted)
    return found


@pytest.mark.long
def test_a_quota_makes_a_read_slow_and_loses_nothing(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    """A throttling broker answers without partitions. The time does not count for kafkaConsumer.pollTimeoutMs."""
    name = topic(1)
    limit(kafka, name, consumer_byte_rate=BYTES_PER_S)
    count = (FREE_BYTES + SECONDS * BYTES_PER_S) // VALUE_BYTES
    values = [b"%08d" % number + bytes(VALUE_BYTES - 8) for number in range(count)]
    send(producer(kafka, **{"batch.num.messages": 2}), name, values)
    began = time.monotonic()
    options = {"kafka.client.id": name, "kafkaConsumer.pollTimeoutMs": "3000"}
    assert values_of(kafka, name, **options, **{"kafka.max.partition.fetch.bytes": "65536"}) == values
    assert time.monotonic() - began > SECONDS / 2


@pytest.mark.long
def test_a_reader_of_a_rack_reads_from_the_replica_there(asked: Sequence[tuple[int, FetchRequest]]) -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    with RackedKafka(nodes=3, config={"replica.selector.class": selector}) as kafka:
        kafka.create_topic("racks", 1, replication_factor=3)
        values = [b"%d" % number for number in range(2_000)]
        send(producer(kafka, **{"batch.num.messages": 2}), "racks", values)
        for rack in (1, 2, 3):
            before = len(asked)
            assert values_of(kafka, "racks", **{"kafka.client.rack": f"rack-{rack}"}) == values
            assert asked[-1][0] == rack, asked[before:]

"""Brokers of Kafka 4.4 that compare the ids in ApiVersions with their own (KIP-1242), instead of an answer to Metadata
that the client compares. What another cluster at an address means is the same: test_bootstrap_servers.py."""

import struct
from typing import Any

import pytest

from kafka_sink.errors import ClusterChanged
from kafka_sink.kafka.net.transport import Received, Sent
from kafka_sink.kafka.protocol.apis.metadata import Broker
from network_world import (
    METADATA,
    SecureWorld,
    World,
    brokers,
    correlation_id,
    knowing,
    metadata_answer,
    versions_answer,
)

API_VERSIONS = 18
OF_4_4 = World.RANGES | {API_VERSIONS: (0, 5)}
OF_4_3 = World.RANGES | {API_VERSIONS: (0, 4)}


def asked(world: World, key: int) -> list[tuple[int, int]]:
    """The API and the version of each request on the connection."""
    return [struct.unpack_from(">hh", frame, 4) for frame in world.transport.outbox[key]]


def answer(world: World, key: int, ranges: dict[int, tuple[int, int]], error_code: int = 0) -> None:
    """To the last request, ApiVersions."""
    number = correlation_id(world.transport.outbox[key][-1])
    world.poll(Sent(key), Received(key, versions_answer(number, ranges, error_code)))


def refuse_version(world: World, key: int, highest: int) -> None:
    """In version 0, with the range to choose from (KIP-511)."""
    number = correlation_id(world.transport.outbox[key][-1])
    body = struct.pack(">ihihhh", number, 35, 1, API_VERSIONS, 0, highest)
    world.poll(Sent(key), Received(key, struct.pack(">i", len(body)) + body))


def compared(*ids: int, **changed: Any) -> World:
    """A client that knows these brokers, and a broker of Kafka 4.4 has named cluster-1."""
    world = knowing(*ids, bootstrap_servers=(("boot", 9092), ("b2", 9092)), **changed)
    key = world.open(ids[0], OF_4_4)
    assert asked(world, key) == [(API_VERSIONS, 3), (METADATA, 13)]
    return world


def dial_wrong(world: World, node_id: int, cluster_id: bytes, listed: list[Broker]) -> int:
    """A connection to a broker of Kafka 4.4 that is not the one that is meant."""
    key = world.connect(node_id)
    answer(world, key, {}, 129)
    answer(world, key, OF_4_4)
    number = correlation_id(world.transport.outbox[key][-1])
    world.poll(Sent(key), Received(key, metadata_answer(number, cluster_id, brokers=listed)))
    assert asked(world, key) == [(API_VERSIONS, 5), (API_VERSIONS, 4), (METADATA, 13)]
    assert key not in world.transport.open and not world.client.can_send(node_id, world.now_ms)
    return key


def test_a_broker_that_compares_ids_needs_no_request_for_metadata() -> None:
    world = compared(1, 2)
    key = world.connect(2)
    (frame,) = world.transport.outbox[key]
    assert frame.endswith(b"\x0acluster-1\0\0\0\2\0")
    assert not world.client.can_send(2, world.now_ms)
    answer(world, key, OF_4_4)
    assert world.client.can_send(2, world.now_ms)
    assert asked(world, key) == [(API_VERSIONS, 5)]
    assert (world.client.handshakes, world.client.interruptions) == (2, 0)


def test_its_throttle_counts_as_that_of_metadata() -> None:
    world = compared(1, 2)
    key = world.connect(2)
    number = correlation_id(world.transport.outbox[key][-1])
    throttled = versions_answer(number, OF_4_4)[:-5] + struct.pack(">ib", 700, 0)
    world.poll(Sent(key), Received(key, throttled))
    assert world.client.delay_ms(2, world.now_ms) == 700


@pytest.mark.parametrize("kind", ["older", "bootstrap server", "none"])
def test_others_are_asked_as_before(kind: str) -> None:
    """No round trip more than before KIP-1242."""
    if kind == "older":
        world = knowing(1, 2)
        world.open(1, OF_4_3)
    else:
        world = compared(1, 2, metadata_recovery_strategy="none" if kind == "none" else "rebootstrap")
        world.lose(world.key)
    key = world.open(-1 if kind == "bootstrap server" else 2, OF_4_3)
    assert asked(world, key) == [(API_VERSIONS, 3), (METADATA, 13)]


class SecureWorldOf44(SecureWorld):
    RANGES = SecureWorld.RANGES | {API_VERSIONS: (0, 5)}


def test_a_sasl_listener_compares_no_ids_so_it_is_asked_as_before() -> None:
    world = SecureWorldOf44()
    world.client.update_brokers(brokers(1))
    world.secure()
    assert asked(world, world.connect(1)) == [(API_VERSIONS, 3)]


def test_a_broker_that_is_older_than_the_last_one_costs_one_request_more_as_in_java() -> None:
    world = compared(1, 2, 3)
    key = world.connect(2)
    refuse_version(world, key, 4)
    answer(world, key, OF_4_3)
    assert not world.client.can_send(2, world.now_ms)
    world.identify(key)
    assert world.client.can_send(2, world.now_ms)
    assert asked(world, key) == [(API_VERSIONS, 5), (API_VERSIONS, 4), (METADATA, 13)]
    # The next one is asked as the last one speaks.
    assert asked(world, world.open(3, OF_4_3)) == [(API_VERSIONS, 3), (METADATA, 13)]


def test_another_cluster_at_a_brokers_address_is_a_connection_that_failed() -> None:
    world = compared(1, 3)
    dial_wrong(world, 3, b"cluster-2", brokers(1, 3))
    world.says("broker 3", "belongs to cluster 'cluster-2', not to cluster 'cluster-1'")
    assert world.client.failure is None and world.client.can_send(1, world.now_ms)
    assert world.client.delay_ms(3, world.now_ms)


def test_an_older_broker_of_another_cluster_is_found_by_its_answer() -> None:
    world = compared(1, 3)
    key = world.connect(3)
    refuse_version(world, key, 4)
    answer(world, key, OF_4_3)
    world.identify(key, b"cluster-2")
    world.says("belongs to cluster 'cluster-2'")
    assert key not in world.transport.open


def test_another_cluster_at_all_bootstrap_servers_ends_the_client() -> None:
    world = compared(1, 2)
    world.lose(world.key)
    dial_wrong(world, 2, b"cluster-2", [])
    assert world.client.failure is None
    world.dial(-1, b"cluster-2", OF_4_4)
    failure = world.client.failure
    assert isinstance(failure, ClusterChanged) and failure.broker.startswith("broker 2 b2:9092")


def test_another_broker_of_the_cluster_tells_where_the_brokers_are() -> None:
    """As after they were started again with each other's addresses. The other connections stay, unlike in Java."""
    world = compared(1, 2, 3)
    first = world.key
    dial_wrong(world, 2, b"cluster-1", [*brokers(1, 2), Broker(3, "moved", 9092)])
    world.says("broker 2", "another broker of the cluster answers there")
    assert world.client.failure is None and world.transport.open == {first}
    assert world.client.delay_ms(2, world.now_ms)
    world.connect(3)
    assert world.resolved[-1] == "moved"


def test_another_broker_of_the_cluster_at_a_bootstrap_server_is_no_other_cluster() -> None:
    world = compared(1, 2)
    world.lose(world.key)
    world.dial(-1, b"cluster-2", OF_4_4)
    dial_wrong(world, 2, b"cluster-1", brokers(1, 2))
    assert world.client.failure is None

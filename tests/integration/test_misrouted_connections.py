"""Requests on new connections to real brokers, and addresses that lead to another broker. Brokers of Kafka 4.4 compare
ids in ApiVersions (KIP-1242). What others do: unit/kafka/net/test_misrouted_connections.py."""

import random
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pytest

from kafka_sink.broker import LocalKafka
from kafka_sink.kafka.clock import monotonic_ms
from kafka_sink.kafka.connections import network_settings
from kafka_sink.kafka.net.network_client import NetworkClient
from kafka_sink.kafka.net.resolver import resolve
from kafka_sink.kafka.net.selector import Selector
from kafka_sink.kafka.net.transport import Address, Buffer
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest, MetadataResponse
from kafka_sink.options.config import sink_config

pytestmark = pytest.mark.long

DEADLINE_S = 60
METADATA, API_VERSIONS = 3, 18
BROKERS = MetadataRequest((), allow_auto_topic_creation=False)
COMPARED = [(API_VERSIONS, 5)]
REFUSED = [(API_VERSIONS, 5), (API_VERSIONS, 4), (METADATA, 13)]
T = TypeVar("T")


class Requests(Selector):
    """What is sent on each connection, as API and version."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[list[tuple[int, int]]] = []
        self._by_key: dict[int, list[tuple[int, int]]] = {}

    def connect(self, key: int, address: Address) -> None:
        self._by_key[key] = []
        self.sent.append(self._by_key[key])
        super().connect(key, address)

    def send(self, key: int, buffers: Sequence[Buffer], *, tell_at_once: bool = True) -> None:
        self._by_key[key].append(struct.unpack_from(">hh", b"".join(buffers), 4))
        super().send(key, buffers, tell_at_once=tell_at_once)


class Client:
    """Bootstrapped from node 1. `leads_to`: the port that a port leads to by now."""

    def __init__(self, kafka: LocalKafka) -> None:
        config = sink_config({"kafka.bootstrap.servers": kafka.bootstrap_servers.split(",")[0]}).producer
        self.requests, self.leads_to = Requests(), dict[int, int]()
        self.network = NetworkClient(
            self.requests, clock_ms=monotonic_ms, rng=random.Random(1), settings=network_settings(config),
            resolve=lambda host, port: resolve(host, self.leads_to.get(port, port)),
        )  # fmt: skip
        self.open(-1)
        self.network.send(-1, BROKERS, monotonic_ms())
        (response,) = self.until(lambda: self.network.poll(100))
        assert isinstance(response.response, MetadataResponse)
        self.network.update_brokers(response.response.brokers)

    def until(self, met: Callable[[], T]) -> T:
        deadline = time.monotonic() + DEADLINE_S
        while not (found := met()):
            assert time.monotonic() < deadline, self.network.last_error
        return found

    def open(self, node_id: int) -> list[tuple[int, int]]:
        """The handshake of a connection that carries requests then."""
        self.until(lambda: self.network.ready(node_id, monotonic_ms()) or self.network.poll(100))
        return self.requests.sent[-1]

    def fail(self, node_id: int) -> tuple[str, list[tuple[int, int]]]:
        """The error of a connection that fails, and what was sent on it."""
        self.network.last_error = ""
        assert not self.network.ready(node_id, monotonic_ms())
        self.until(lambda: self.network.poll(100) or self.network.last_error)
        assert not self.network.can_send(node_id, monotonic_ms())
        return self.network.last_error, self.requests.sent[-1]


@pytest.fixture(scope="module")
def of_4_4() -> Iterator[LocalKafka]:
    with LocalKafka(3, "4.4.0") as kafka:
        yield kafka


def port(kafka: LocalKafka, node_id: int) -> int:
    return int(kafka.bootstrap_servers.split(",")[node_id - 1].rpartition(":")[2])


def test_of_a_connection_to_a_broker_of_4_4(of_4_4: LocalKafka) -> None:
    client = Client(of_4_4)
    assert client.requests.sent[0][:2] == [(API_VERSIONS, 3), (METADATA, 13)]
    assert [client.open(node_id) for node_id in (2, 3)] == [COMPARED, COMPARED]
    for node_id in (2, 3):
        client.network.send(node_id, BROKERS, monotonic_ms())
        (response,) = client.until(lambda: client.network.poll(100))
        assert response.error is None
    client.network.close()


@pytest.mark.parametrize("version", ["3.9.2", "4.3.1"])
def test_of_a_connection_to_an_older_broker(version: str) -> None:
    with LocalKafka(3, version) as kafka:
        client = Client(kafka)
        highest = 12 if version == "3.9.2" else 13
        assert [client.open(node_id) for node_id in (2, 3)] == [[(API_VERSIONS, 3), (METADATA, highest)]] * 2
        client.network.close()


def test_another_cluster_at_a_brokers_address(of_4_4: LocalKafka) -> None:
    """Nothing but the handshake is sent there. The address works again once it leads to its broker."""
    with LocalKafka(1, "4.4.0") as other:
        client, theirs = Client(of_4_4), Client(other)
        client.leads_to = {port(of_4_4, 2): port(other, 1)}
        error, sent = client.fail(2)
        assert sent == REFUSED
        assert (
            f"belongs to cluster '{theirs.network.cluster_id}', not to cluster '{client.network.cluster_id}'" in error
        )
        assert client.network.failure is None and client.network.can_send(-1, monotonic_ms())
        client.leads_to = {}
        assert client.open(2) == COMPARED
        client.network.close()
        theirs.network.close()


def test_another_broker_of_the_cluster_at_a_brokers_address(of_4_4: LocalKafka) -> None:
    client = Client(of_4_4)
    client.leads_to = {port(of_4_4, 2): port(of_4_4, 3)}
    error, sent = client.fail(2)
    assert sent == REFUSED and "another broker of the cluster answers there" in error
    assert client.open(3) == COMPARED
    client.leads_to = {}
    assert client.open(2) == COMPARED
    client.network.close()

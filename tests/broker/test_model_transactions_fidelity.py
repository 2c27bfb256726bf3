"""The model's coordinators answer transactions as real brokers do, of both transaction versions."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from kafka_sink.broker import LocalKafka
from model.byte_client import ByteClient, decode_response, encode_request
from model.cluster import Cluster
from model.settings import INIT_PRODUCER_ID, KAFKA_3_9, KAFKA_4, ClusterSettings, Generation, TransactionSettings
from model.transaction_client import NOBODY, VERSION_1, VERSION_2, TransactionClient, Versions, transaction_client
from model.transaction_trace import LONG_SCENARIOS, SCENARIOS, TIMEOUT_MS, Trace
from model.wire import kio_module

DEADLINE_S = 20
POLL_S = 0.005
# Real brokers are told to look more often than every 10 s, and the model with them.
SWEEP_MS = 500
# What a producer can get: the one above is for fencing.
LAST_EPOCH = 2**15 - 2


class Kind(NamedTuple):
    """A broker, what the model has for it, and how its clients speak."""

    kafka_version: str
    generation: Generation
    versions: Versions


KINDS = {
    "4.3.1, version 2": Kind("4.3.1", KAFKA_4, VERSION_2),
    "4.3.1, version 1": Kind("4.3.1", KAFKA_4, VERSION_1),
    "3.9.2, version 1": Kind("3.9.2", KAFKA_3_9, VERSION_1),
}


@pytest.fixture(scope="module")
def brokers() -> Iterator[Callable[[str], LocalKafka]]:
    """One broker of each version, started when it is first asked for."""
    running: dict[str, LocalKafka] = {}

    def broker(kafka_version: str) -> LocalKafka:
        if kafka_version not in running:
            config = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": SWEEP_MS}
            running[kafka_version] = LocalKafka(kafka_version=kafka_version, config=config).__enter__()
        return running[kafka_version]

    yield broker
    for kafka in running.values():
        kafka.close()


def real_client(kafka: LocalKafka, versions: Versions) -> TransactionClient:
    address = address_of(kafka)

    def call(node_id: int, api_key: int, version: int, message: Any) -> Any:
        frame = encode_request(api_key, version, 1, message)
        with socket.create_connection(address, timeout=DEADLINE_S) as connection:
            connection.sendall(len(frame).to_bytes(4, "big") + frame)
            reader = connection.makefile("rb")
            size = int.from_bytes(reader.read(4), "big")
            assert size, f"{type(message).__name__} {version} ended the connection"
            return decode_response(api_key, version, reader.read(size))[1]

    # A client that is told to come again has nothing to wait for but time; on the model that is virtual.
    return TransactionClient(call, lambda topic, partition: 1, lambda: time.sleep(POLL_S), versions)


def model_client(kind: Kind, topic: str) -> tuple[TransactionClient, ByteClient]:
    settings = ClusterSettings(
        generation=kind.generation,
        transactions=TransactionSettings(transaction_abort_timed_out_cleanup_interval_ms=SWEEP_MS),
    )
    client = ByteClient(Cluster(node_ids=(0,), rng=random.Random(1), settings=settings))
    client.cluster.create_topic(topic, 2, 1)
    client.run(1_000)
    return transaction_client(client, kind.versions), client


def wait_until_led(client: TransactionClient, topic: str) -> None:
    """A new topic's leader does not know at once that it is."""
    deadline = time.monotonic() + DEADLINE_S
    for partition in range(2):
        while client.produce(None, NOBODY, topic, partition, base_sequence=-1, is_transactional=False):
            assert time.monotonic() < deadline
            # The broker does not tell when it has learned of it.
            time.sleep(POLL_S)


def spend_epochs(kafka: LocalKafka, transactional_id: str) -> None:
    """The same request, many times over one connection; brokers answer in order."""
    kio_version = kio_module(INIT_PRODUCER_ID, 4, "request")
    message = kio_version.InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout=timedelta(minutes=1)
    )
    frame = encode_request(INIT_PRODUCER_ID, 4, 1, message)
    with socket.create_connection(address_of(kafka), timeout=DEADLINE_S) as connection:
        reader = connection.makefile("rb")
        producer_epoch = 0
        while (left := LAST_EPOCH - 1 - producer_epoch) > 0:
            count = min(left, 1_000)
            connection.sendall((len(frame).to_bytes(4, "big") + frame) * count)
            for _ in range(count):
                answer = reader.read(int.from_bytes(reader.read(4), "big"))
            producer_epoch = decode_response(INIT_PRODUCER_ID, 4, answer)[1].producer_epoch


def address_of(kafka: LocalKafka) -> tuple[str, int]:
    host, port = kafka.bootstrap_servers.rsplit(":", 1)
    return host, int(port)


def compare(kafka: LocalKafka, kind: Kind, name: str, scenario: Callable[[Trace], None]) -> None:
    name = f"{name}-{kind.versions.end_txn}"
    kafka.create_topic(name, 2)
    client = real_client(kafka, kind.versions)
    wait_until_led(client, name)
    # A real broker times transactions out by its own clock, which only real time moves; the model's is virtual.
    wait_s = (TIMEOUT_MS + 2 * SWEEP_MS) / 1_000
    real = Trace(client, name, name, lambda: time.sleep(wait_s), lambda: spend_epochs(kafka, name))
    scenario(real)
    transactions, cluster = model_client(kind, name)
    wait_until_led(transactions, name)
    modelled = Trace(
        transactions, name, name, lambda: cluster.run(TIMEOUT_MS + 2 * SWEEP_MS),
        lambda: cluster.cluster.spend_epochs(name),
    )  # fmt: skip
    scenario(modelled)
    assert modelled.steps == real.steps


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_is_answered_alike(brokers: Callable[[str], LocalKafka], scenario: str, kind: Kind) -> None:
    compare(brokers(kind.kafka_version), kind, scenario, SCENARIOS[scenario])


@pytest.mark.parametrize("kind", ["4.3.1, version 2", "3.9.2, version 1"])
@pytest.mark.parametrize("scenario", LONG_SCENARIOS)
def test_a_spent_epoch_is_followed_alike(brokers: Callable[[str], LocalKafka], scenario: str, kind: str) -> None:
    compare(brokers(KINDS[kind].kafka_version), KINDS[kind], scenario, LONG_SCENARIOS[scenario])

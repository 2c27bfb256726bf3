"""The model's coordinators answer transactions as real brokers do, of both transaction versions."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from confluent_kafka.admin import AdminClient

from fidelity.kinds import (
    BROKER_CONFIG,
    DEADLINE_S,
    KINDS,
    SWEEP_MS,
    BrokerConnection,
    Kind,
    address_of,
    model_client,
    real_client,
    wait_until_led,
)
from fidelity.traces import make_trace, replay
from kafka_sink.broker import LocalKafka
from model.byte_client import decode_response, encode_request
from model.settings import INIT_PRODUCER_ID
from model.transaction_trace import LONG_SCENARIOS, SCENARIOS, TIMEOUT_MS, Trace
from model.wire import kio_module

pytestmark = pytest.mark.long

PARTITIONS = 2
# What a producer can get: the one above is for fencing.
LAST_EPOCH = 2**15 - 2


@pytest.fixture(scope="module")
def brokers() -> Iterator[Callable[[str], LocalKafka]]:
    """One broker of each version, started when it is first asked for."""
    running: dict[str, LocalKafka] = {}

    def broker(kafka_version: str) -> LocalKafka:
        if kafka_version not in running:
            running[kafka_version] = LocalKafka(kafka_version=kafka_version, config=BROKER_CONFIG).__enter__()
        return running[kafka_version]

    yield broker
    for kafka in running.values():
        kafka.close()


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


def compare(kafka: LocalKafka, kind: Kind, name: str, scenario: Callable[[Trace], None]) -> None:
    name = f"{name}-{kind.versions.end_txn}"
    kafka.create_topic(name, PARTITIONS)
    with contextlib.closing(BrokerConnection(address_of(kafka))) as connection:
        client = real_client(connection, kind.versions)
        wait_until_led(client, name, PARTITIONS)
        # A real broker times transactions out by its own clock, which only real time moves; the model's is virtual.
        wait_s = (TIMEOUT_MS + 2 * SWEEP_MS) / 1_000
        real = Trace(client, name, name, lambda: time.sleep(wait_s), lambda: spend_epochs(kafka, name))
        scenario(real)
    transactions, cluster = model_client(kind)
    cluster.cluster.create_topic(name, PARTITIONS, 1)
    wait_until_led(transactions, name, PARTITIONS)
    modelled = Trace(
        transactions, name, name, lambda: cluster.run(TIMEOUT_MS + 2 * SWEEP_MS),
        lambda: cluster.cluster.spend_epochs(name),
    )  # fmt: skip
    scenario(modelled)
    assert modelled.steps == real.steps


NEWEST, OLDER = "4.3.1, version 2", "4.3.1, version 1"
# Some scenarios use versions of requests that earlier brokers do not take. `make fidelity` compares those brokers.
OLD_BROKERS = pytest.param("3.9.2, version 1", marks=pytest.mark.long)


@pytest.mark.parametrize("kind", [NEWEST, OLDER, OLD_BROKERS])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_is_answered_alike(brokers: Callable[[str], LocalKafka], scenario: str, kind: str) -> None:
    compare(brokers(KINDS[kind].kafka_version), KINDS[kind], scenario, SCENARIOS[scenario])


@pytest.mark.parametrize("kind", [NEWEST, OLD_BROKERS])
@pytest.mark.parametrize("scenario", LONG_SCENARIOS)
def test_a_spent_epoch_is_followed_alike(brokers: Callable[[str], LocalKafka], scenario: str, kind: str) -> None:
    compare(brokers(KINDS[kind].kafka_version), KINDS[kind], scenario, LONG_SCENARIOS[scenario])


@pytest.mark.parametrize("seed", range(1, 21))
def test_a_random_trace_is_answered_alike(brokers: Callable[[str], LocalKafka], seed: int) -> None:
    kafka = brokers("4.3.1")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    difference = replay(make_trace(seed, "4.3.1"), kafka, admin)
    assert difference is None, str(difference)

"""The model's coordinators answer transactions as real brokers do, of both transaction versions."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from kafka_sink.broker import LocalKafka
from model.byte_client import ByteClient, decode_response, encode_request
from model.cluster import Cluster
from model.settings import KAFKA_3_9, KAFKA_4, ClusterSettings, Generation, TransactionSettings
from model.transaction_client import NOBODY, VERSION_1, VERSION_2, TransactionClient, Versions, transaction_client
from model.transaction_trace import SCENARIOS, TIMEOUT_MS, Trace

DEADLINE_S = 20
POLL_S = 0.005
# Real brokers are told to look more often than every 10 s, and the model with them.
SWEEP_MS = 500


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
    host, port = kafka.bootstrap_servers.rsplit(":", 1)

    def call(node_id: int, api_key: int, version: int, message: Any) -> Any:
        frame = encode_request(api_key, version, 1, message)
        with socket.create_connection((host, int(port)), timeout=DEADLINE_S) as connection:
            connection.sendall(len(frame).to_bytes(4, "big") + frame)
            reader = connection.makefile("rb")
            size = int.from_bytes(reader.read(4), "big")
            assert size, f"{type(message).__name__} {version} ended the connection"
            return decode_response(api_key, version, reader.read(size))[1]

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
            time.sleep(POLL_S)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_is_answered_alike(
    brokers: Callable[[str], LocalKafka], request: pytest.FixtureRequest, scenario: str, kind: Kind
) -> None:
    kafka = brokers(kind.kafka_version)
    name = f"{scenario}-{kind.versions.end_txn}"
    kafka.create_topic(name, 2)
    client = real_client(kafka, kind.versions)
    wait_until_led(client, name)
    real = Trace(client, name, name, lambda: time.sleep((TIMEOUT_MS + 2 * SWEEP_MS) / 1_000))
    SCENARIOS[scenario](real)
    transactions, cluster = model_client(kind, name)
    wait_until_led(transactions, name)
    modelled = Trace(transactions, name, name, lambda: cluster.run(TIMEOUT_MS + 2 * SWEEP_MS))
    SCENARIOS[scenario](modelled)
    assert modelled.steps == real.steps

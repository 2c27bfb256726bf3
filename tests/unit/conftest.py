"""Clients of tests without a broker, over scripted ones that answer at once, or when they are let."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from certificates import Authority
from kafka_sink.kafka.client import Producer
from live_producers import Make, config
from scripted_kafka import LiveNetwork, ScriptedKafka, connect_producers


@pytest.fixture(scope="session", autouse=True)
def few_authorities(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What the machine trusts takes 20 ms to read, for each client with TLS. Tests that verify a peer name its CA."""
    file = tmp_path_factory.mktemp("trusted") / "ca.pem"
    file.write_text(Authority().certificate)
    os.environ["SSL_CERT_FILE"], os.environ["SSL_CERT_DIR"] = str(file), os.devnull


@pytest.fixture
def kafka() -> ScriptedKafka:
    """One broker, which has every topic that it is asked for, of one partition."""
    made = ScriptedKafka(brokers=[0])
    made.partitions, made.topic_id = 1, uuid.uuid4()
    return made


@pytest.fixture
def network(kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch) -> LiveNetwork:
    """Every Producer made in the test talks to it; their Sender threads run."""
    return connect_producers(LiveNetwork(kafka), monkeypatch)


@pytest.fixture
def producing(network: LiveNetwork) -> Iterator[Make]:
    made: list[Producer] = []

    def make(**options: object) -> Producer:
        made.append(Producer(replace(config(1, **{"kafka.linger.ms": "20000"}), **options)))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for producer in made:
        producer.close()

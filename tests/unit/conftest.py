"""Clients of tests without a broker, over scripted ones that answer at once, or when they are let."""

import os
import uuid
from collections.abc import Iterator

import pytest

from certificates import Authority
from producer_core import Live
from scripted_kafka import ScriptedKafka, connect_producers


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
def network(kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    """Every Producer made in the test talks to it; their Sender threads run."""
    made = Live(kafka)
    connect_producers(made, monkeypatch)
    yield made
    for producer in made.producers:
        producer.close()

"""Producers of tests without a broker: their Sender threads run, and the network answers at once or when it is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kafka_sink import client
from kafka_sink.client import Producer
from kafka_sink.kept import Kept
from loopback_network import LoopbackNetwork, Make, config


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> LoopbackNetwork:
    """Every Producer made in the test talks to it."""
    network = LoopbackNetwork()
    monkeypatch.setattr(client, "NetworkClient", lambda *args, **kwargs: network)
    monkeypatch.setattr(client, "_kept", Kept())
    return network


@pytest.fixture
def producing(network: LoopbackNetwork) -> Iterator[Make]:
    made: list[Producer] = []

    def make(**options: object) -> Producer:
        made.append(Producer(replace(config(1, **{"kafka.linger.ms": "20000"}), **options)))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for producer in made:
        producer.close()

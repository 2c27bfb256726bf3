"""What plans, tasks and commits of exactly-once talk to."""

from collections.abc import Iterator

import pytest

from exchange import Exchange
from kafka_sink.kafka.clock import wall_clock_ms
from kafka_sink.spark import kept_clients
from scripted_kafka import LiveNetwork, ScriptedKafka, ScriptedNetwork, connect_clients


@pytest.fixture
def exchange() -> Exchange:
    """A sink named orders that has planned before, in a Kafka whose time is now."""
    made = Exchange()
    made.kafka.now_ms = wall_clock_ms()
    return made


@pytest.fixture
def clients(kafka: ScriptedKafka, network: LiveNetwork, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedNetwork]:
    """Where plans and commits ask; rows of tasks go over `network`."""
    yield connect_clients(ScriptedNetwork(kafka), monkeypatch)
    kept_clients.KEPT.close()

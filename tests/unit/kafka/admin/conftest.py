"""What is asked of scripted brokers, whose time only polls move."""

import pytest

from scripted_kafka import ScriptedKafka, ScriptedNetwork, connect_clients


@pytest.fixture
def kafka() -> ScriptedKafka:
    return ScriptedKafka()


@pytest.fixture
def network(kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch) -> ScriptedNetwork:
    """Every client made in the test has it; broker 1 is the bootstrap server."""
    return connect_clients(ScriptedNetwork(kafka, known={1}), monkeypatch)

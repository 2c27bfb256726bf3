"""The model answers random traces of producers and readers as a real broker does. `make fidelity` has more of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient

from fidelity.player import BROKER_CONFIG
from fidelity.traces import make_trace, replay
from kafka_sink.broker import LocalKafka

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def broker() -> Iterator[LocalKafka]:
    with LocalKafka(config=BROKER_CONFIG) as kafka:
        yield kafka


@pytest.mark.parametrize("seed", range(1, 21))
def test_a_random_trace_is_answered_alike(broker: LocalKafka, seed: int) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    difference = replay(make_trace(seed, broker.kafka_version), broker, admin)
    assert difference is None, str(difference)

"""Has the shipped clients talk to scripted brokers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_sink import kept
from kafka_sink.commit import runner
from kafka_sink.kafka import client
from kafka_sink.kafka.admin import client as admin
from kafka_sink.kafka.admin import driver
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.producer.core import ProducerCore, wire
from scripted_kafka.live import LiveNetwork
from scripted_kafka.network import ScriptedNetwork


def connect_clients(network: ScriptedNetwork, monkeypatch: pytest.MonkeyPatch) -> ScriptedNetwork:
    """Every AdminClient made in the test has this network, and its time is that of the brokers."""

    def connect(config: ProducerConfig, *, cluster_id: str | None, **settings: Any) -> ScriptedNetwork:
        network.expect(cluster_id)
        return network

    def now_ms() -> int:
        return network.kafka.now_ms

    monkeypatch.setattr(driver, "connect", connect)
    monkeypatch.setattr(kept, "KEPT", kept.Kept())
    for module in (admin, driver, kept):
        monkeypatch.setattr(module, "monotonic_ms", now_ms)
    sleep = SimpleNamespace(sleep=lambda seconds: network.kafka.pass_time(round(1_000 * seconds)))
    monkeypatch.setattr(runner, "time", sleep)
    return network


def connect_producers(network: LiveNetwork, monkeypatch: pytest.MonkeyPatch) -> LiveNetwork:
    """Every Producer made in the test has this network, which has the parts of the last one."""

    def connect(config: ProducerConfig, *, cluster_id: str | None, **settings: Any) -> LiveNetwork:
        network.expect(cluster_id)
        return network

    def wire_and_tell(config: ProducerConfig, *, lock: Any, **shared: Any) -> ProducerCore:
        network.core, network.lock = wire(config, lock=lock, **shared), lock
        return network.core

    monkeypatch.setattr(client, "connect", connect)
    monkeypatch.setattr(client, "wire", wire_and_tell)
    monkeypatch.setattr(kept, "KEPT", kept.Kept())
    return network

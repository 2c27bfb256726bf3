"""The seam of `NetworkClient` for code with threads: a poll waits for answers in real time, and can be woken. And what
has the shipped clients talk to scripted brokers."""

import threading
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
from kafka_sink.kafka.protocol.apis.produce import ProduceRequest
from kafka_sink.kafka.protocol.client_response import ClientResponse
from scripted_kafka.kafka import ScriptedKafka
from scripted_kafka.network import ScriptedNetwork


class LiveNetwork(ScriptedNetwork):
    """`arrived`: set by every Produce request. Between `hold` and `release` no Produce is answered. `core`: the parts
    of the newest Producer. `lock` guards them and is notified of answers."""

    core: ProducerCore
    lock: threading.Condition

    def __init__(self, kafka: ScriptedKafka) -> None:
        super().__init__(kafka, last_error="")
        self.arrived = threading.Event()
        self._something = threading.Condition()
        self._woken = False
        self._ready: list[ClientResponse] = []

    def send(self, node_id: int, request: Any, now_ms: int, token: object = None, expect_response: bool = True) -> None:
        with self._something:
            super().send(node_id, request, now_ms, token, expect_response)
            self._ready += self._answers()
        if isinstance(request, ProduceRequest):
            self.arrived.set()

    def poll(self, timeout_ms: int) -> list[ClientResponse]:
        with self._something:
            self._something.wait_for(lambda: self._ready or self._woken or self.failure, timeout_ms / 1000)
            self._woken = False
            ready, self._ready = self._ready, []
            return ready

    def wakeup(self) -> None:
        with self._something:
            self._woken = True
            self._something.notify()

    def hold(self) -> None:
        self.kafka.held.add(ProduceRequest)

    def release(self) -> None:
        with self._something:
            self.kafka.held.discard(ProduceRequest)
            self._ready += self._answers()
            self._something.notify()


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

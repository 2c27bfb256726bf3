"""The seam of `NetworkClient` for code with threads: a poll waits for answers in real time, and can be woken."""

from __future__ import annotations

import threading
from typing import Any

from kafka_sink.kafka.producer.core import ProducerCore
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

"""A cluster of one broker behind `client.NetworkClient`'s seam: answers at once, or when a test lets it."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from kafka_sink.client import Producer
from kafka_sink.config import ProducerConfig, sink_config
from kafka_sink.errors import KafkaSinkError
from kafka_sink.net.network_client import ClientResponse
from kafka_sink.protocol.requests import (
    Broker,
    InitProducerIdRequest,
    InitProducerIdResponse,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    ProduceRequest,
    ProduceResponse,
    ProduceResult,
    TopicMetadata,
)

NODE = 0

Make = Callable[..., Producer]


@dataclass
class LoopbackNetwork:
    """`partitions`, `topic_id` and `topic_error` of every topic may be changed at any time; while `holding`, no Produce
    is answered; `produce_code` answers every Produce from then on, `by_name` as a broker does that knows no topic ids
    in Produce. `produced` keeps what arrived: (topic id, partition)."""

    partitions: int = 1
    topic_id: uuid.UUID = field(default_factory=uuid.uuid4)
    produce_code: int = 0
    topic_error: int = 0
    by_name: bool = False
    # When a throttle began, and when it ends.
    throttled: tuple[int, int] | None = None
    produced: list[tuple[uuid.UUID | None, int]] = field(default_factory=list)
    metadata_requests: int = 0
    last_error: str = ""
    failure: KafkaSinkError | None = None
    cluster_id: str | None = "c"
    connects: int = 0
    interruptions: int = 0
    handshakes: int = 0
    _answers: list[ClientResponse] = field(default_factory=list)
    _held: list[tuple[ProduceRequest, object]] = field(default_factory=list)
    _holding: bool = False
    _something: threading.Condition = field(default_factory=threading.Condition)
    _woken: bool = False
    arrived: threading.Event = field(default_factory=threading.Event)

    def ready(self, node_id: int, now_ms: int) -> bool:
        return node_id == NODE

    def is_down(self, node_id: int) -> bool:
        return node_id != NODE

    def throttles(self, now_ms: int) -> dict[int, tuple[int, int]]:
        return {NODE: (self.throttled_ms(now_ms), self.throttled[1])} if self.throttled else {}

    def throttled_ms(self, now_ms: int) -> int:
        return min(now_ms, self.throttled[1]) - self.throttled[0] if self.throttled else 0

    def least_loaded_node(self, now_ms: int) -> int | None:
        return NODE

    def update_brokers(self, brokers: object) -> None:
        pass

    def hold(self) -> None:
        self._holding = True

    def release(self) -> None:
        with self._something:
            self._holding = False
            for request, token in self._held:
                self._answers.append(self._produce(request, token))
            self._held.clear()
            self._something.notify()

    def send(
        self, node_id: int, request: Any, now_ms: int, token: object = None, expect_response: bool = True
    ) -> None:
        if isinstance(request, MetadataRequest):
            self.metadata_requests += 1
            self._answer(request, token, self._metadata(request))
        elif isinstance(request, InitProducerIdRequest):
            self._answer(request, token, InitProducerIdResponse(0, 0, 7, 0))
        else:
            self.produced += [(partition.topic_id, partition.partition) for partition in request.partitions]
            self.arrived.set()
            if self._holding:
                self._held.append((request, token))
            else:
                self._answers.append(self._produce(request, token))

    def poll(self, timeout_ms: int) -> list[ClientResponse]:
        with self._something:
            self._something.wait_for(lambda: self._answers or self._woken, timeout_ms / 1000)
            self._woken = False
            answers, self._answers = self._answers, []
            return answers

    def wakeup(self) -> None:
        with self._something:
            self._woken = True
            self._something.notify()

    def close(self) -> list[ClientResponse]:
        return [ClientResponse(NODE, request, token, None, "closed", 0) for request, token in self._held]

    def _answer(self, request: Any, token: object, response: Any) -> None:
        self._answers.append(ClientResponse(NODE, request, token, response, None, 0))

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        count = 0 if self.topic_error else self.partitions
        partitions = tuple(PartitionMetadata(0, number, NODE, 0) for number in range(count))
        names = request.topics or ()
        topics = tuple(TopicMetadata(self.topic_error, name, self.topic_id, partitions) for name in names)
        return MetadataResponse(0, "c", NODE, (Broker(NODE, "localhost", 9092),), topics)

    def _produce(self, request: ProduceRequest, token: object) -> ClientResponse:
        # In another order than asked, as real brokers do.
        results = tuple(
            ProduceResult(
                p.topic if self.by_name else None, p.topic_id, p.partition, self.produce_code, None, 100, -1
            )
            for p in reversed(request.partitions)
        )
        return ClientResponse(NODE, request, token, ProduceResponse(0, results), None, 0)


def config(port: int, **options: str) -> ProducerConfig:
    return sink_config(
        {"kafka.bootstrap.servers": f"127.0.0.1:{port}", "kafka.max.block.ms": "300", **options}
    ).producer


def rows(count: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([b"v"] * count, pa.binary())})


def refresh(producer: Producer, network: LoopbackNetwork) -> None:
    """Until the producer has the state that the network has now."""
    version = producer._metadata.snapshot.version
    with producer._changed:
        producer._metadata.request_update()
        network.wakeup()
        assert producer._changed.wait_for(lambda: producer._metadata.snapshot.version > version, 5)

"""Producers with threads, and their arguments."""

import socket
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from kafka_sink.kafka import client
from kafka_sink.kafka.client import Producer
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.producer.core import ProducerCore, wire
from kafka_sink.kafka.protocol.apis.init_producer_id import InitProducerIdRequest
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest
from kafka_sink.kafka.protocol.apis.produce import ProducePartition, ProduceRequest
from kafka_sink.options.config import sink_config
from scripted_kafka import LiveNetwork, ScriptedKafka
from scripted_peers import Behaviour, scripted


def config(port: int, **options: str) -> ProducerConfig:
    return sink_config({"kafka.bootstrap.servers": f"127.0.0.1:{port}", **options}).producer


class Live(LiveNetwork):
    """And what makes Producers that have it."""

    def __init__(self, kafka: ScriptedKafka) -> None:
        super().__init__(kafka)
        self.producers: list[Producer] = []

    def producer(self, **options: Any) -> Producer:
        """`options`: fields of ProducerConfig. Rows linger for long."""
        self.producers.append(Producer(replace(config(1, **{"kafka.linger.ms": "20000"}), **options)))
        return self.producers[-1]


def let_wait(producer: Producer, max_block_ms: int) -> None:
    """As if it had been made with this `max.block.ms`. What comes before may take as long as a busy machine needs."""
    object.__setattr__(producer.config, "max_block_ms", max_block_ms)


def takes_rows(base_offset: int) -> Behaviour:
    """A broker that leads the one partition of t, and has every batch at this offset."""

    def behave(sock: socket.socket) -> None:
        port, topic_id = sock.getsockname()[1], uuid.UUID(int=9)
        brokers = [{"node_id": 7, "host": "127.0.0.1", "port": port}]
        topic = {"name": "t", "topic_id": topic_id, "partitions": [{"partition_index": 0, "leader_id": 7}]}
        said = [{"index": 0, "base_offset": base_offset, "error_code": 0}]
        produce = ProduceRequest(-1, 1, (ProducePartition("t", 0, topic_id, b""),))
        scripted([
            (MetadataRequest(("t",), False), {"brokers": brokers, "topics": [topic]}),
            (InitProducerIdRequest(1), {}),
            (produce, {"responses": [{"name": "t", "topic_id": topic_id, "partition_responses": said}]}),
        ])(sock)  # fmt: skip

    return behave


def rows(count: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([b"v"] * count, pa.binary())})


def in_background(call: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Run `call` in a thread. What it returned or raised is in the list when the thread ends."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(call())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, outcome


def refresh(network: LiveNetwork) -> None:
    """Wait until the last producer has the current state of the network."""
    metadata = network.core.metadata
    version = metadata.snapshot.version
    with network.lock:
        metadata.request_update()
        network.wakeup()
        assert network.lock.wait_for(lambda: metadata.snapshot.version > version, 30)


def watch_cores(monkeypatch: pytest.MonkeyPatch) -> list[ProducerCore]:
    """Collect the parts of each Producer that is made from now on."""
    cores: list[ProducerCore] = []

    def wire_and_tell(*given: Any, **shared: Any) -> ProducerCore:
        cores.append(wire(*given, **shared))
        return cores[-1]

    monkeypatch.setattr(client, "wire", wire_and_tell)
    return cores

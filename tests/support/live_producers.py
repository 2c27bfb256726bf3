"""Producers with threads, and what they are given."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from kafka_sink.client import Producer
from kafka_sink.config import ProducerConfig, sink_config
from scripted_kafka import LiveNetwork

Make = Callable[..., Producer]


def config(port: int, **options: str) -> ProducerConfig:
    return sink_config(
        {"kafka.bootstrap.servers": f"127.0.0.1:{port}", "kafka.max.block.ms": "300", **options}
    ).producer


def rows(count: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([b"v"] * count, pa.binary())})


def refresh(producer: Producer, network: LiveNetwork) -> None:
    """Until the producer has the state that the network has now."""
    version = producer._metadata.snapshot.version
    with producer._changed:
        producer._metadata.request_update()
        network.wakeup()
        assert producer._changed.wait_for(lambda: producer._metadata.snapshot.version > version, 5)

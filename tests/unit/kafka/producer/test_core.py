from __future__ import annotations

import contextlib
import random
from dataclasses import replace

import pytest

from kafka_sink.kafka.metadata import MAX_IDLE_MS
from kafka_sink.kafka.metrics import Metrics
from kafka_sink.kafka.producer.core import ProducerCore, wire
from kafka_sink.options.config import sink_config
from producer_core import metadata_response
from scripted_kafka import ScriptedKafka, ScriptedNetwork

CONFIG = sink_config({"kafka.bootstrap.servers": "localhost:9092"}).producer


def wired(**options: int) -> ProducerCore:
    return wire(
        replace(CONFIG, **options),
        network=ScriptedNetwork(ScriptedKafka()),
        lock=contextlib.nullcontext(),
        metrics=Metrics(),
        rng=random.Random(1),
    )


@pytest.mark.parametrize(("max_block_ms", "idle_ms"), [(60_000, MAX_IDLE_MS), (900_000, 900_000)])
def test_a_topic_that_somebody_may_still_wait_for_is_not_idle(max_block_ms: int, idle_ms: int) -> None:
    metadata = wired(max_block_ms=max_block_ms).metadata
    metadata.want(["t"], 0)
    metadata.request((), 0)
    metadata.update(metadata_response([0]), 0)
    assert metadata.request((), idle_ms - 1).topics == ("t",)
    metadata.update(metadata_response([0]), 0)
    assert metadata.request((), idle_ms).topics == ()

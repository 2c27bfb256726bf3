"""Accumulator, metadata and Sender of one producer, wired as its configuration says.

Whoever runs a producer, over sockets and threads or in virtual time, brings the network, the lock and the randomness,
and gets the rest here: what a simulation runs is wired as what ships.
"""

from __future__ import annotations

import random
from contextlib import AbstractContextManager
from dataclasses import dataclass

from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.metrics import Metrics
from kafka_sink.kafka.producer.accumulator import RecordAccumulator
from kafka_sink.kafka.producer.metadata import MAX_IDLE_MS, Metadata
from kafka_sink.kafka.producer.network import Network
from kafka_sink.kafka.producer.sender import Sender
from kafka_sink.records.compression import Codec, codec_for


@dataclass(frozen=True, slots=True)
class ProducerCore:
    """What `accumulator` and `metadata` say they share with a writer is guarded by the lock that was handed in."""

    accumulator: RecordAccumulator
    metadata: Metadata
    sender: Sender


def codec_of(config: ProducerConfig) -> Codec:
    """One a thread: a compressor keeps state while it works."""
    return codec_for(config.compression_type, config.compression_level)


def wire(
    config: ProducerConfig,
    *,
    network: Network,
    lock: AbstractContextManager[object],
    metrics: Metrics,
    rng: random.Random,
) -> ProducerCore:
    """A producer that has done nothing yet."""
    accumulator = RecordAccumulator(
        lock=lock,
        buffer_memory=config.buffer_memory,
        batch_size=config.batch_size,
        linger_ms=config.linger_ms,
        max_request_size=config.max_request_size,
    )
    metadata = Metadata(
        max_age_ms=config.metadata_max_age_ms,
        # A topic that a writer waits for is in use.
        max_idle_ms=max(MAX_IDLE_MS, config.max_block_ms),
        backoff_initial_ms=config.retry_backoff_ms,
        backoff_max_ms=config.retry_backoff_max_ms,
        rng=rng,
    )
    sender = Sender(
        config=config,
        accumulator=accumulator,
        metadata=metadata,
        network=network,
        codec=codec_of(config),
        lock=lock,
        metrics=metrics,
        rng=rng,
    )
    return ProducerCore(accumulator, metadata, sender)

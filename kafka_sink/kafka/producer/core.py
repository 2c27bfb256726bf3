"""The accumulator, metadata and Sender of one producer, connected as its configuration says.

The code that runs a producer, with sockets and threads or in virtual time, passes in the network, the lock and the
randomness. So a simulation runs the same objects as the product.
"""

from __future__ import annotations

import random
from contextlib import AbstractContextManager
from dataclasses import dataclass

from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.metadata import MAX_IDLE_MS, Metadata
from kafka_sink.kafka.network import Network
from kafka_sink.kafka.producer.accumulator import RecordAccumulator
from kafka_sink.kafka.producer.sender import Sender
from kafka_sink.records.compression import Codec, codec_for


@dataclass(frozen=True, slots=True)
class ProducerCore:
    """The lock that was passed in guards what `accumulator` and `metadata` share with a writer."""

    accumulator: RecordAccumulator
    metadata: Metadata
    sender: Sender


def codec_of(config: ProducerConfig) -> Codec:
    """Return a new codec. Each thread needs its own, because a compressor has state while it works."""
    return codec_for(config.compression_type, config.compression_level)


def wire(
    config: ProducerConfig, *, network: Network, lock: AbstractContextManager[object], rng: random.Random
) -> ProducerCore:
    """Return a producer that has done nothing yet."""
    accumulator = RecordAccumulator(
        lock=lock,
        buffer_memory=config.buffer_memory,
        batch_size=config.batch_size,
        linger_ms=config.linger_ms,
        max_request_size=config.max_request_size,
    )
    metadata = Metadata(
        max_age_ms=config.metadata_max_age_ms,
        # A topic that a writer waits for must not be forgotten.
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
        rng=rng,
    )
    return ProducerCore(accumulator, metadata, sender)

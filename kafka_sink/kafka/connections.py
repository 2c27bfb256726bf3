"""Creates a client's connections to the brokers of one cluster from its configuration."""

from __future__ import annotations

import random
from dataclasses import fields, replace
from typing import Any

from kafka_sink.kafka.auth.security import authenticator, tls_contexts
from kafka_sink.kafka.clock import monotonic_ms
from kafka_sink.kafka.config import VERSION, ClientConfig, ConsumerConfig, ProducerConfig
from kafka_sink.kafka.net.network_client import NetworkClient, NetworkSettings
from kafka_sink.kafka.net.selector import RECEIVE_CHUNK_BYTES, Selector
from kafka_sink.kafka.protocol.needs import AT_LEAST_ONCE, IDEMPOTENCE

# An answer with records has about 1 MiB. With the chunks of other clients a read takes a sixth more CPU.
READ_CHUNK_BYTES = 256 * 1024


def connect(
    config: ClientConfig, *, rng: random.Random, cluster_id: str | None = None, max_in_flight: int | None = None
) -> NetworkClient:
    """Return a client that connects only once there is something to send.

    `cluster_id`: the only cluster to talk to; None for the first that answers.
    `max_in_flight`: unanswered requests per connection; None for the producer's setting.
    """
    settings = network_settings(config)
    if max_in_flight is not None:
        settings = replace(settings, max_in_flight=max_in_flight)
    return NetworkClient(
        Selector(
            send_buffer_bytes=config.send_buffer_bytes,
            receive_buffer_bytes=config.receive_buffer_bytes,
            receive_chunk_bytes=READ_CHUNK_BYTES if isinstance(config, ConsumerConfig) else RECEIVE_CHUNK_BYTES,
            tls=tls_contexts(config.security),
        ),
        clock_ms=monotonic_ms,
        rng=rng,
        settings=settings,
        authenticate=authenticator(config.security, config.bootstrap_hosts),
        cluster_id=cluster_id,
    )


def network_settings(config: ClientConfig) -> NetworkSettings:
    """Return the network settings in a client's configuration, which have the same names."""
    shared = {each.name for each in fields(NetworkSettings)} & {each.name for each in fields(config)}
    named = {name: getattr(config, name) for name in shared}
    return NetworkSettings(client_software_version=VERSION, **named, **_of_kind(config))


def _of_kind(config: ClientConfig) -> dict[str, Any]:
    match config:
        case ProducerConfig():
            return {
                "max_in_flight": config.max_in_flight_requests_per_connection,
                "guarantees": (AT_LEAST_ONCE, IDEMPOTENCE) if config.enable_idempotence else (AT_LEAST_ONCE,),
            }
        case ConsumerConfig():
            from kafka_sink.kafka.protocol.apis.fetch import MAX_BATCH_BYTES
            from kafka_sink.kafka.protocol.needs import READING

            return {"guarantees": (READING,), "max_response_bytes": MAX_BATCH_BYTES + config.fetch_bytes}
    raise AssertionError(f"{type(config).__name__} is no configuration of a client")

"""Sends a request to one broker, over its own connection."""

from __future__ import annotations

from kafka_sink.doctor.dialogue import dial
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.protocol.requests import (
    Request,
    Response,
)


def ask_broker(config: ProducerConfig, request: Request, number: int = 0) -> Response:
    """Return the answer of the bootstrap server with this number, modulo the number of servers."""
    servers = config.bootstrap_servers
    attempt, dialogue = dial(*servers[number % len(servers)], config)
    assert dialogue is not None, attempt
    try:
        return dialogue.ask(request)
    finally:
        dialogue.close()

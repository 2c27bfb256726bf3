"""Checks if a kept producer is still connected: one question to any broker, over an existing connection.

If a host vanished silently, connections to it still look open. Only an answer proves that a connection is open. A
question without an answer is not repeated, because the next connection may lead to a host that took over the address.
"""

from __future__ import annotations

from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest, MetadataResponse


class Probe:
    """Guarded by the accumulator's lock. `is_answered` is True only if a broker answered."""

    def __init__(self) -> None:
        self.request = MetadataRequest((), allow_auto_topic_creation=False)
        self.is_sent = self.is_settled = self.is_answered = False

    def answered(self, response: object | None) -> None:
        """`response` is None if the connection was lost instead."""
        self.is_settled, self.is_answered = True, isinstance(response, MetadataResponse)

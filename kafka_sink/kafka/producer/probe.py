"""Is a kept producer still connected? One question to any broker, over a connection that was there before.

A host that went without a word leaves connections that look open. Only an answer shows that one is. A question that
got none is not asked again: the next connection may lead to whatever took the host's place.
"""

from __future__ import annotations

from kafka_sink.kafka.protocol.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
)


class Probe:
    """Guarded by the accumulator's lock. `is_answered` is True only where a broker answered."""

    def __init__(self) -> None:
        self.request = MetadataRequest((), allow_auto_topic_creation=False)
        self.is_sent = self.is_settled = self.is_answered = False

    def answered(self, response: object | None) -> None:
        """`response`: None where the connection was lost instead."""
        self.is_settled, self.is_answered = True, isinstance(response, MetadataResponse)

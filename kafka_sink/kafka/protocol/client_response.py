"""The result of a request, returned to its sender exactly once.

Source: org.apache.kafka.clients.ClientResponse.
"""

from __future__ import annotations

from dataclasses import dataclass

from kafka_sink.kafka.protocol.api import Request, Response


@dataclass(frozen=True, slots=True)
class ClientResponse:
    """The result of a request: `response`, or `error` with the reason why there is none.

    Both are None for a request that was sent and expects no response (acks=0). `latency_ms` counts from `send`.
    `node_id`: the id that the request was sent to. A bootstrap server may be known as a broker by now.
    """

    node_id: int
    request: Request
    token: object
    response: Response | None
    error: str | None
    latency_ms: int

"""What sends the requests of an admin client and takes their answers: a thread that drives a network.

    OwnConnections   the thread that asks, over connections of its own
    Guest            a producer's Sender thread, over the producer's connections (`guest.py`)

Source: Kafka's KafkaAdminClient (AdminClientRunnable).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

from kafka_sink.kafka.clock import monotonic_ms
from kafka_sink.kafka.config import ClientConfig
from kafka_sink.kafka.connections import connect
from kafka_sink.kafka.metrics import Metrics
from kafka_sink.kafka.network import AdminNetwork
from kafka_sink.kafka.protocol.client_response import ClientResponse

# More than a producer may have: these requests are independent, and a broker answers them in order.
IN_FLIGHT = 100


class Work(Protocol):
    """Requests that belong together. Only the thread that drives the network calls these methods, and none waits."""

    def run_once(self, now_ms: int) -> int:
        """Hand the network everything that is due now. Return the longest time (ms) that a poll may wait."""

    def handle(self, answer: ClientResponse, now_ms: int) -> None:
        """Process an answer to a request of this work, or of earlier work of the same client."""

    def is_done(self, now_ms: int) -> bool:
        """Return True once nothing is left to wait for."""


class Driver(Protocol):
    """`network`: what work sends its requests to."""

    @property
    def network(self) -> AdminNetwork: ...

    def now_ms(self) -> int:
        """Return the monotonic time that work is given."""

    def drive(self, work: Work, left_ms: Callable[[], int]) -> None:
        """Return when `work` is done, or when `left_ms` returns 0 or less. Raises the error that ended the network."""

    def collect(self) -> list[ClientResponse]:
        """Return the answers that have come since the last work. Empty if later work gets them."""

    def close(self) -> None:
        """Close the connections, if they are the client's own."""


class OwnConnections:
    """A `Driver`. Connects with the first request. Between two calls of `drive` no thread polls."""

    def __init__(self, config: ClientConfig, cluster_id: str | None, rng: random.Random) -> None:
        """`cluster_id`: the only cluster to connect to; None for any cluster."""
        self.network = connect(config, metrics=Metrics(), rng=rng, cluster_id=cluster_id, max_in_flight=IN_FLIGHT)

    def now_ms(self) -> int:
        return monotonic_ms()

    def drive(self, work: Work, left_ms: Callable[[], int]) -> None:
        while not work.is_done(self.now_ms()) and left_ms() > 0:
            wait_ms = work.run_once(self.now_ms())
            for answer in self.network.poll(max(0, min(wait_ms, left_ms()))):
                work.handle(answer, self.now_ms())
            if self.network.failure is not None:
                raise self.network.failure

    def collect(self) -> list[ClientResponse]:
        return self.network.poll(0)

    def close(self) -> None:
        self.network.close()

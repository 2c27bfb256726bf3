"""What the producer needs of a network, and what comes back from one: `net/` has it, and so has a simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from kafka_sink.kafka.protocol.apis.metadata import (
    Broker,
)
from kafka_sink.kafka.protocol.requests import (
    Request,
)

# A poll that nothing else bounds. A writer's wake-up and every event on a connection end it sooner; delivery timeouts
# are noticed at this grain.
LONGEST_POLL_MS = 1_000


class Network(Protocol):
    """Sending hands the bytes over; nothing here waits.

    `ready`: takes a request now; if not, connecting begins when that is due. `is_down`: has no connection and is not
    getting one. `least_loaded_node`: one that is ready. `last_error`: which broker could last not be reached, or hung
    up, and why; empty if none. `learn` takes a broker that an answer named: it can be sent to from then on.
    `interruptions`: how often the last open connection ended, or may have; `handshakes`: how often one was opened.

    A broker whose quota the client exceeds says for how long it takes nothing (KIP-219). `throttles`: node id -> how
    long (ms) that was until now, and when the last one ends, without nodes that never did; `throttled_ms`: the time in
    which any of them did. A node that is not connected does not throttle.
    """

    @property
    def last_error(self) -> str: ...
    @property
    def interruptions(self) -> int: ...
    @property
    def handshakes(self) -> int: ...
    def ready(self, node_id: int, now_ms: int) -> bool: ...
    def is_down(self, node_id: int) -> bool: ...
    def least_loaded_node(self, now_ms: int) -> int | None: ...
    def throttled_ms(self, now_ms: int) -> int: ...
    def throttles(self, now_ms: int) -> Mapping[int, tuple[int, int]]: ...
    def send(
        self, node_id: int, request: Request, now_ms: int, token: object = None, expect_response: bool = True
    ) -> None: ...
    def update_brokers(self, brokers: Sequence[Broker]) -> None: ...
    def learn(self, broker: Broker) -> None: ...

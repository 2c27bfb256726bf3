"""What producer and consumer need from a network, and what a network returns. `net/` and a simulation implement it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from kafka_sink.errors import KafkaSinkError
from kafka_sink.kafka.protocol.api import Request
from kafka_sink.kafka.protocol.apis.metadata import Broker
from kafka_sink.kafka.protocol.needs import Guarantee
from kafka_sink.kafka.waits import Contact

# The longest poll. A writer's wake-up and every event on a connection end a poll earlier. Delivery timeouts are noticed
# with this delay.
LONGEST_POLL_MS = 1_000


class Network(Protocol):
    """Methods for sending and for the state of nodes. None of them waits.

    `ready`: True if the node takes a request now; otherwise begins to connect if that is due.
    `is_down`: the node is neither connected nor connecting.
    `least_loaded_node`: a node that is ready, or None.
    `last_error`: which broker could last not be reached, or hung up, and why; empty if none.
    `learn`: add a broker that a response named; it takes requests from then on.
    `interruptions`: how often the last open connection ended, or may have ended.
    `handshakes`: how often a connection became open.
    `api_version`: the version in which a request goes to a node; None without a connection or a common version.

    A broker whose quota the client exceeds says for how long it takes nothing (KIP-219). `throttles`: node id -> (ms
    throttled until now, end of the last throttle), without nodes that never throttled. `throttled_ms`: the time in
    which any node throttled. A node without a connection does not throttle.
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
    def api_version(self, node_id: int, request: Request) -> int | None: ...
    def throttled_ms(self, now_ms: int) -> int: ...
    def throttles(self, now_ms: int) -> Mapping[int, tuple[int, int]]: ...
    def send(
        self, node_id: int, request: Request, now_ms: int, token: object = None, expect_response: bool = True
    ) -> None: ...
    def update_brokers(self, brokers: Sequence[Broker]) -> None: ...
    def learn(self, broker: Broker) -> None: ...


class NetworkOver:
    """A network over another one. Subclasses say what becomes of a request."""

    def __init__(self, network: Network) -> None:
        self._network = network

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)


class AdminNetwork(Network, Protocol):
    """What an admin client needs more.

    `failure`: the first error that no retry fixes. `cluster_id`: the id of the cluster; None while unknown.
    `name`: the node as messages name it. `lacks`: what the node lacks for a guarantee, in words.
    `finalized_features`: feature -> level (KIP-584); None without a connection.
    `contact`: what is known of the servers now.
    """

    @property
    def failure(self) -> KafkaSinkError | None: ...
    @property
    def cluster_id(self) -> str | None: ...
    def name(self, node_id: int) -> str: ...
    def lacks(self, node_id: int, guarantee: Guarantee) -> tuple[str, ...]: ...
    def finalized_features(self, node_id: int) -> Mapping[str, int] | None: ...
    def contact(self, now_ms: int) -> Contact: ...

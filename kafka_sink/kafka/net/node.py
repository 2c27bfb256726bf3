"""What is known of one broker: its addresses, its connection, when to try again.

    DISCONNECTED ── connecting ──> CONNECTING ── connected ──> NEGOTIATING ── ready ──> READY
         └──────────────── disconnected, after a backoff that grows until READY ──────────┘

Pure: the time is an argument. Source: org.apache.kafka.clients.ClusterConnectionStates; KIP-144 (backoff), KIP-302
(all addresses of a name), KIP-219 (throttling), KIP-601 (setup timeout).
"""

from __future__ import annotations

import enum
import random
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field

from kafka_sink.kafka.backoff import backoff_ms
from kafka_sink.kafka.net.transport import Address
from kafka_sink.kafka.protocol.connection import Connection
from kafka_sink.kafka.protocol.sasl import Computation
from kafka_sink.text.quoting import MAX_HOST_CHARACTERS, quoted


@dataclass(frozen=True, slots=True)
class Held:
    """How long a client was held back by a throttle, of one broker or of several at once, and until when it is."""

    until_ms: int = 0
    told_ms: int = 0

    def passed_ms(self, now_ms: int) -> int:
        """What has passed of it. Never falls while `now_ms` grows."""
        return self.told_ms - max(0, self.until_ms - now_ms)

    def ending_at(self, until_ms: int, now_ms: int) -> Held:
        """The same past, and another end."""
        return Held(until_ms, self.passed_ms(now_ms) + max(0, until_ms - now_ms))


class NodeState(enum.Enum):
    DISCONNECTED = enum.auto()
    CONNECTING = enum.auto()
    NEGOTIATING = enum.auto()
    READY = enum.auto()


@dataclass(slots=True, eq=False)
class Node:
    """`node_id` is negative for a bootstrap server, whose broker id is not known. `key` names its connection."""

    node_id: int
    host: str
    port: int
    state: NodeState = NodeState.DISCONNECTED
    key: int = -1
    connection: Connection | None = None
    address: Address | None = None
    # Times in ms, on the caller's clock.
    attempted_ms: int = -1
    used_ms: int = 0
    retry_at_ms: int = 0
    throttled_until_ms: int = 0
    # By its throttles while it was connected: a broker that is away holds nobody back.
    held: Held = Held()
    # Over this connection it has answered something that was sent after so many failures of the client's connections.
    answered_since: int = 0
    # Attempts in a row that did not end in READY, and those of them that did not even get a connection.
    failures: int = 0
    connect_failures: int = 0
    # Of the attempts, those in a row in which the peer hung up during the TLS handshake.
    hang_ups: int = 0
    # When the connection is to be authenticated anew; None: not.
    session_until_ms: int | None = None
    setup_timeout_ms: int = 0
    # Of the connection's authentication, or of an earlier one's which nobody waits for any more; and since when.
    computing: Future[bytes] | None = None
    computation: Computation | None = None
    computing_since_ms: int | None = None
    _untried: deque[Address] = field(default_factory=deque)

    def __str__(self) -> str:
        role = f"broker {self.node_id}" if self.node_id >= 0 else "bootstrap server"
        resolved = f" ({self.address})" if self.address is not None else ""
        return f"{role} {quoted(self.host, MAX_HOST_CHARACTERS)}:{self.port}{resolved}"

    @property
    def in_flight_count(self) -> int:
        return 0 if self.connection is None else self.connection.in_flight_count

    def can_connect(self, now_ms: int) -> bool:
        return self.state is NodeState.DISCONNECTED and now_ms >= self.retry_at_ms

    def throttle(self, until_ms: int, now_ms: int) -> None:
        """No request before `until_ms`; an earlier time does not shorten a later one."""
        self.throttled_until_ms = max(self.throttled_until_ms, until_ms)
        if self.state is NodeState.READY:
            self.held = self.held.ending_at(self.throttled_until_ms, now_ms)

    def delay_ms(self, now_ms: int) -> int | None:
        """Milliseconds until a backoff or a throttle ends (0: none is on); None when only an event can help."""
        if self.state is NodeState.DISCONNECTED:
            return max(0, self.retry_at_ms - now_ms)
        if self.state is NodeState.READY and self.throttled_until_ms > now_ms:
            return self.throttled_until_ms - now_ms
        return None

    # --- transitions --------------------------------------------------------------------------------------------------

    @property
    def needs_resolving(self) -> bool:
        return not self._untried

    def resolved(self, addresses: Iterable[Address]) -> None:
        """Takes the addresses of `host`, to be tried in turn; the one that failed last goes to the end (KIP-302)."""
        self._untried = deque(addresses)
        if self._untried and self._untried[0] == self.address:
            self._untried.rotate(-1)

    def connecting(self, key: int, connection: Connection, now_ms: int, setup_timeout_ms: int) -> Address:
        """Begins an attempt at the next address, which is returned. It may take `setup_timeout_ms`."""
        self.state = NodeState.CONNECTING
        self.key = key
        self.connection = connection
        self.attempted_ms = now_ms
        self.setup_timeout_ms = setup_timeout_ms
        self.address = self._untried.popleft()
        return self.address

    def connected(self, now_ms: int) -> None:
        self.state = NodeState.NEGOTIATING
        self.connect_failures = 0
        self.hang_ups = 0
        self.used_ms = now_ms

    def ready(self, now_ms: int) -> None:
        self.state = NodeState.READY
        self.failures = 0
        if self.throttled_until_ms > now_ms:
            self.held = self.held.ending_at(self.throttled_until_ms, now_ms)

    def disconnected(self, now_ms: int) -> None:
        """The connection ended. After a good one the name is resolved anew: its address may have changed."""
        if self.held.until_ms > now_ms:
            self.held = self.held.ending_at(now_ms, now_ms)
        if self.state is NodeState.READY:
            self._untried.clear()
        if self.state is NodeState.CONNECTING:
            self.connect_failures += 1
        self.state = NodeState.DISCONNECTED
        self.connection = None
        self.session_until_ms = None
        self.computing_since_ms = None

    def back_off(self, now_ms: int, initial_ms: int, max_ms: int, rng: random.Random) -> None:
        """The node rests for longer after each failure in a row (KIP-144)."""
        self.failures += 1
        self.retry_at_ms = now_ms + backoff_ms(self.failures, initial_ms, max_ms, rng)

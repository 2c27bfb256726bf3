"""Brokers as a client sees them: the state of each, all by id, and which cluster they belong to.

    DISCONNECTED ── connecting ──> CONNECTING ── connected ──> NEGOTIATING ── ready ──> READY
         └──────────────── disconnected, after a backoff that grows until READY ──────────┘

Pure: the time is an argument. Source: org.apache.kafka.clients.ClusterConnectionStates; KIP-144 (backoff), KIP-302
(all addresses of a name), KIP-219 (throttling), KIP-601 (setup timeout).
"""

from __future__ import annotations

import enum
import random
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from kafka_sink.errors import ClusterChanged
from kafka_sink.errors.quoting import MAX_HOST_CHARACTERS, quoted
from kafka_sink.kafka.net.transport import Address
from kafka_sink.kafka.protocol.apis.metadata import Broker
from kafka_sink.kafka.protocol.connection import Connection
from kafka_sink.kafka.protocol.sasl import Computation
from kafka_sink.kafka.waits import backoff_ms

# Host and port, as configured or as brokers advertise them.
Server = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Held:
    """How long one broker, or several at once, have throttled the client, and when the throttle ends.

    `total_ms`: of all throttles, including the rest of the current one.
    """

    until_ms: int = 0
    total_ms: int = 0

    def passed_ms(self, now_ms: int) -> int:
        """Return the throttled time until `now_ms`. Never falls while `now_ms` grows."""
        return self.total_ms - max(0, self.until_ms - now_ms)

    def ending_at(self, until_ms: int, now_ms: int) -> Held:
        """Return a copy with the same past and another end."""
        return Held(until_ms, self.passed_ms(now_ms) + max(0, until_ms - now_ms))


class Ending(enum.Enum):
    """How the last attempt at a node ended."""

    # Nothing listens there, the name is unknown, or no broker answered.
    REFUSED = enum.auto()
    # The peer took the connection, and hung up instead of an answer.
    HUNG_UP = enum.auto()
    # The peer took the connection, and is silent.
    SILENT = enum.auto()
    # A broker has answered, or no connection was made in time.
    OTHER = enum.auto()


class NodeState(enum.Enum):
    DISCONNECTED = enum.auto()
    CONNECTING = enum.auto()
    NEGOTIATING = enum.auto()
    READY = enum.auto()


@dataclass(slots=True, eq=False)
class Node:
    """`node_id` is negative for a bootstrap server, until it is known which broker it is. `key` identifies its
    connection."""

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
    # Counts only while connected: a broker without a connection delays nothing.
    held: Held = Held()
    # On this connection the node has answered a request that was sent after this many failures of the client.
    answered_since: int = 0
    # Attempts in a row that did not reach READY, and attempts in a row that did not even connect.
    failures: int = 0
    connect_failures: int = 0
    ending: Ending = Ending.OTHER
    # When to authenticate the connection again; None: never.
    session_until_ms: int | None = None
    setup_timeout_ms: int = 0
    # May belong to an earlier connection, whose result is not needed any more.
    computing: Future[bytes] | None = None
    computation: Computation | None = None
    computing_since_ms: int | None = None
    _untried: deque[Address] = field(default_factory=deque)

    def __str__(self) -> str:
        role = f"broker {self.node_id}" if self.node_id >= 0 else "bootstrap server"
        resolved = f" ({self.address})" if self.address is not None else ""
        return f"{role} {quoted(self.host, MAX_HOST_CHARACTERS)}:{self.port}{resolved}"

    @property
    def server(self) -> Server:
        return self.host, self.port

    @property
    def in_flight_count(self) -> int:
        return 0 if self.connection is None else self.connection.in_flight_count

    def can_connect(self, now_ms: int) -> bool:
        return self.state is NodeState.DISCONNECTED and now_ms >= self.retry_at_ms

    def throttle(self, until_ms: int, now_ms: int) -> None:
        """Send no request before `until_ms`. An earlier time does not shorten a later one."""
        self.throttled_until_ms = max(self.throttled_until_ms, until_ms)
        if self.state is NodeState.READY:
            self.held = self.held.ending_at(self.throttled_until_ms, now_ms)

    def delay_ms(self, now_ms: int) -> int | None:
        """Return ms until a backoff or a throttle ends (0 if neither), or None if only an event helps."""
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
        """Set the addresses of `host`, to be tried in turn. The address that failed last goes to the end (KIP-302)."""
        self._untried = deque(addresses)
        if self._untried and self._untried[0] == self.address:
            self._untried.rotate(-1)

    def connecting(self, key: int, connection: Connection, now_ms: int, setup_timeout_ms: int) -> Address:
        """Begin an attempt at the next address and return it. The attempt may take `setup_timeout_ms`."""
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
        self.used_ms = now_ms

    def ready(self, now_ms: int) -> None:
        self.state = NodeState.READY
        self.failures = 0
        if self.throttled_until_ms > now_ms:
            self.held = self.held.ending_at(self.throttled_until_ms, now_ms)

    def disconnected(self, now_ms: int) -> None:
        """Note the end of the connection. After READY the name is resolved again, because its address may have
        changed."""
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
        """Start a backoff. It grows with each failure in a row (KIP-144)."""
        self.failures += 1
        self.retry_at_ms = now_ms + backoff_ms(self.failures, initial_ms, max_ms, rng)


# --- all nodes --------------------------------------------------------------------------------------------------------


class Nodes:
    """The nodes of a client by id: the brokers of its cluster, and the bootstrap servers. Iteration yields each once.

        bootstrap server -1, boot:9092 ── a response names broker 7, boot:9092 ──> broker 7, which -1 also leads to
                                       <── broker 7 has moved, or is gone ───────

    A bootstrap server whose host and port are a broker's is that broker: one node with two ids. So the broker takes
    over the connection, with the requests in flight, the session and the throttle, and an attempt to connect with its
    backoff. Addresses compare as text: two names of one host are two nodes.

    librdkafka 2.3 (rd_kafka_broker_update) and kafkajs (BrokerPool.refreshMetadata) do the same.
    """

    def __init__(self, bootstrap_servers: Iterable[Server]) -> None:
        # Negative ids, as in Java, because no broker has one.
        self._bootstrap_ids = {server: -1 - i for i, server in enumerate(dict.fromkeys(bootstrap_servers))}
        self._by_id = {node_id: Node(node_id, *server) for server, node_id in self._bootstrap_ids.items()}
        # Bootstrap id -> id of the broker at that address.
        self._broker_at: dict[int, int] = {}
        # The last list of all brokers, and the brokers that a response has named since.
        self._listed: tuple[int, ...] = ()
        self._learned: set[int] = set()

    def __iter__(self) -> Iterator[Node]:
        return iter(self._by_id.values())

    def __getitem__(self, node_id: int) -> Node:
        return self._by_id[self._broker_at.get(node_id, node_id)]

    def get(self, node_id: int) -> Node | None:
        return self._by_id.get(self._broker_at.get(node_id, node_id))

    @property
    def brokers(self) -> Sequence[Node]:
        """The brokers of the last list."""
        return [self[node_id] for node_id in self._listed]

    @property
    def bootstrap(self) -> Sequence[Node]:
        """The bootstrap servers. Some may be brokers."""
        return [self[node_id] for node_id in self._bootstrap_ids.values()]

    def moved(self, brokers: Iterable[Broker]) -> Iterator[tuple[Node, Broker]]:
        """Yield the known brokers that have another address in `brokers`, each with its entry there."""
        for broker in brokers:
            node = self._by_id.get(broker.node_id)
            if node is not None and node.server != _server(broker):
                yield node, broker

    # --- what is known. Brokers that moved must have no connection any more. ------------------------------------------

    def list_brokers(self, brokers: Sequence[Broker]) -> None:
        """Set the brokers of the cluster. A removed broker stays until it has no connection, as it may still answer."""
        self._listed = tuple(dict.fromkeys(broker.node_id for broker in brokers))
        self._learned.clear()
        self._place(brokers)
        for node in list(self):
            self.forget_if_gone(node)

    def learn(self, broker: Broker) -> None:
        """Add one broker, until the next list."""
        self._learned.add(broker.node_id)
        self._place((broker,))

    def forget_if_gone(self, node: Node) -> None:
        """Remove a broker that is not known any more, once it has no connection."""
        if node.node_id >= 0 and not self._is_known(node.node_id) and node.state is NodeState.DISCONNECTED:
            self._remove(node)

    def _is_known(self, broker_id: int) -> bool:
        return broker_id in self._listed or broker_id in self._learned

    def _place(self, brokers: Sequence[Broker]) -> None:
        # First all that leave an address: another broker of the same list may be there now.
        for node, _ in list(self.moved(brokers)):
            self._remove(node)
        for broker in brokers:
            if broker.node_id not in self._by_id:
                self._by_id[broker.node_id] = self._node_for(broker)

    def _node_for(self, broker: Broker) -> Node:
        """Return the bootstrap server at the broker's address, which is this broker from now on, or a new node."""
        bootstrap_id = self._bootstrap_ids.get(_server(broker))
        holder = None if bootstrap_id is None else self._broker_at.get(bootstrap_id)
        # Two brokers may have one address, as behind a tunnel. The first keeps the bootstrap server.
        if bootstrap_id is None or (holder is not None and self._is_known(holder)):
            return Node(broker.node_id, broker.host, broker.port)
        self._broker_at[bootstrap_id] = broker.node_id
        adopted = self._by_id.pop(bootstrap_id, None)
        if adopted is None:
            # A removed broker may still answer over the old connection.
            return Node(broker.node_id, broker.host, broker.port)
        adopted.node_id = broker.node_id
        return adopted

    def _remove(self, node: Node) -> None:
        """Remove a broker. Its address may be that of a bootstrap server, which is a node of its own again."""
        del self._by_id[node.node_id]
        bootstrap_id = self._bootstrap_ids.get(node.server)
        if bootstrap_id is None or self._broker_at.get(bootstrap_id) != node.node_id:
            return
        heir = next((each for each in self if each.server == node.server), None)
        if heir is not None:
            self._broker_at[bootstrap_id] = heir.node_id
        else:
            del self._broker_at[bootstrap_id]
            self._by_id[bootstrap_id] = Node(bootstrap_id, *node.server)


def _server(broker: Broker) -> Server:
    return broker.host, broker.port


# --- which cluster ----------------------------------------------------------------------------------------------------


class ClusterIdentity:
    """Which cluster a client belongs to, and when another cluster has replaced it.

    Every connection names its cluster before it carries a request. A connection to another cluster has failed, as any
    other may fail: a container or a cloud gives an address to somebody else. Only bootstrap servers can show that the
    cluster was replaced, because the user chose their addresses. It was replaced if one of them leads to another
    cluster while no connection is open, and after that every other one was tried in vain.

    An address that leads elsewhere puts the list of brokers in doubt. Bootstrap servers are then asked first, until
    another list comes or a broker is connected.
    """

    def __init__(self, cluster_id: str | None, bootstrap_servers: Iterable[Server]) -> None:
        """`cluster_id`: None for that of the first broker that names one."""
        self.cluster_id = cluster_id
        self._bootstrap_servers = frozenset(bootstrap_servers)
        # An address led elsewhere since the last list of brokers.
        self._is_in_doubt = False
        # Since the last open connection: the first bootstrap server that led elsewhere.
        self._elsewhere: ClusterChanged | None = None
        # The bootstrap servers that were tried in vain since either began.
        self._tried: set[Server] = set()

    def is_ours(self, found: str | None) -> bool:
        """Return True if a connection leads to this client's cluster, or to a broker that does not know its cluster."""
        if self.cluster_id is None:
            self.cluster_id = found
        return found is None or found == self.cluster_id

    def connected(self, server: Server) -> None:
        """Note that a connection to this cluster is open."""
        self._elsewhere = None
        self._tried.clear()
        if server not in self._bootstrap_servers:
            self._is_in_doubt = False

    def brokers_listed(self) -> None:
        """Note that there is a new list of brokers."""
        self._is_in_doubt = False

    def failed(self, server: Server, elsewhere: ClusterChanged | None, *, is_last: bool) -> ClusterChanged | None:
        """Note a connection, or an attempt to connect, that failed, so that none is open. Return the error if the
        cluster was replaced.

        `elsewhere`: it led to another cluster.
        `is_last`: no address that the server's name resolved to is left to try.
        """
        is_bootstrap = server in self._bootstrap_servers
        if elsewhere is not None and not self._is_in_doubt:
            self._is_in_doubt = True
            self._tried.clear()
        if elsewhere is not None and is_bootstrap and self._elsewhere is None:
            self._elsewhere = elsewhere
            self._tried.clear()
        if is_bootstrap and is_last:
            self._tried.add(server)
        return self._elsewhere if self._tried == self._bootstrap_servers else None

    def is_to_be_asked(self, server: Server) -> bool:
        """Return True if the list of brokers is in doubt, and this bootstrap server was not tried in vain."""
        return self._is_in_doubt and server not in self._tried

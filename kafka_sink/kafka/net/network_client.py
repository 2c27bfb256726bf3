"""The client of all brokers: connects, negotiates versions, limits requests in flight, and applies timeouts.

    ready(node) ─> connect ─> ApiVersions ─> SASL ─> cluster id ─> READY ─> send(node, request) ─> poll() ─> answers

`poll` returns every sent request exactly once, with its response or with an error. Before it returns an error, it
closes the connection, so nothing reads the request's buffers any more.

Pure except for name resolution: transport, clock, randomness and credentials are passed in. Another thread may use only
`wakeup`, `last_error`, `failure`, `cluster_id`, `connects`, `interruptions` and `throttled_ms`.

Non-obvious:

* `least_loaded_node` returns a node that takes a request now, or None. Before None it begins a connection if that
  helps.
* A bootstrap server at a broker's address is that broker (`nodes.py`). A connection to another bootstrap server is
  closed once a broker's connection is open and the bootstrap server has answered everything. Bootstrap servers are
  asked again only when no broker can be reached (KIP-899), which means that the last attempt at each broker failed.
* The client begins with its bootstrap servers again (KIP-1102) when the cluster tells it to, or when brokers that can
  be reached have left Metadata requests unanswered for five minutes. It forgets all brokers then.
* A throttling broker answers first and then stops reading. The client sends it nothing for the throttle time that the
  broker gave (KIP-219), and extends the timeout of requests that the broker has not read. A new connection to that
  broker is read at once, but takes no request either: the quota belongs to the client, not to the connection.
* A client belongs to one cluster. Before a connection carries a request, it asks for the cluster id, or the broker
  itself compares ids (KIP-1242). So no request reaches another cluster that has taken over an address.
  `ClusterIdentity` finds that the cluster was replaced, which is a `failure`.
* Errors are retried without limit. An error that no retry fixes (a certificate, a password) is stored in `failure`. The
  owner of the client checks `failure` and closes the client.
* A session is authenticated again shortly before it expires (KIP-368), even if there is nothing to send. Requests in
  flight are answered first. Meanwhile the node takes no new request.

Source: org.apache.kafka.clients.NetworkClient, org.apache.kafka.common.security.authenticator.SaslClientAuthenticator.
"""

from __future__ import annotations

import logging
import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kafka_sink.errors import (
    ApisMissing,
    AuthenticationFailed,
    BrokerUnsupported,
    ClusterChanged,
    ClusterError,
    ProtocolError,
    SaslRefused,
    TlsExpected,
    TlsFailed,
    WorkerExhausted,
)
from kafka_sink.errors.exhaustion import PATIENCE_MS, exhausted, is_exhaustion
from kafka_sink.kafka.clock import started
from kafka_sink.kafka.net.nodes import ClusterIdentity, Ending, Held, Node, Nodes, NodeState
from kafka_sink.kafka.net.resolver import resolve as resolve_by_system
from kafka_sink.kafka.net.transport import (
    Address,
    Buffer,
    Connected,
    Disconnected,
    Event,
    Received,
    Sent,
    TlsFailure,
    Transport,
)
from kafka_sink.kafka.protocol.api import MAX_FRAME_BYTES, ClientResponse, Request
from kafka_sink.kafka.protocol.apis.handshake import NAMES_THE_BROKER, ApiVersionsRequest
from kafka_sink.kafka.protocol.apis.metadata import Broker, MetadataRequest, MetadataResponse
from kafka_sink.kafka.protocol.connection import Answer, Connection, State
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.needs import Guarantee, lacking
from kafka_sink.kafka.protocol.sasl import Authentication
from kafka_sink.kafka.waits import MAX_THROTTLE_MS, Contact, backoff_ms

log = logging.getLogger(__name__)

Resolve = Callable[[str, int], Sequence[Address]]
# Begins an exchange with a host, with the current credentials. May block to fetch a token. Raises ClusterError.
Authenticate = Callable[[str], Authentication]

# The part of a session's lifetime after which it is authenticated again, as in Java.
_SESSION_FACTOR = (0.85, 0.95)
# A throttle of at least this is logged, but not more often than once in this time.
LOGGED_THROTTLE_MS = 30_000
# An attempt to connect that takes longer is not refused: the host may be slow, or away.
_PROMPT_MS = 1_000
# Brokers refuse a second authentication within 1 s (SaslServerAuthenticator.MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS).
MIN_SESSION_MS = 1_100


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """Kafka's client settings of the same names, with Java's defaults. `bootstrap_servers` are (host, port)."""

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    request_timeout_ms: int = 30_000
    connections_max_idle_ms: int = 540_000
    socket_connection_setup_timeout_ms: int = 10_000
    socket_connection_setup_timeout_max_ms: int = 30_000
    metadata_recovery_strategy: str = "rebootstrap"
    metadata_recovery_rebootstrap_trigger_ms: int = 300_000
    max_in_flight: int = 5
    max_response_bytes: int = MAX_FRAME_BYTES
    # What every broker must be able to keep.
    guarantees: tuple[Guarantee, ...] = ()
    # For the brokers' metrics (KIP-511): letters, digits, '.' and '-'.
    client_software_name: str = "pyspark-pykafka"
    client_software_version: str = "unknown"


@dataclass(frozen=True, slots=True)
class _Pending:
    """The token that a connection keeps for one request."""

    token: object = field(repr=False)
    # As given to `send`. The node may have another id when the response comes.
    node_id: int
    sent_ms: int
    # `NetworkClient._failures` when the request was sent.
    failures: int = 0


class NetworkClient:
    def __init__(
        self,
        transport: Transport,
        *,
        clock_ms: Callable[[], int],
        rng: random.Random,
        settings: NetworkSettings,
        resolve: Resolve = resolve_by_system,
        authenticate: Authenticate | None = None,
        cluster_id: str | None = None,
    ) -> None:
        """`clock_ms` is monotonic. `resolve` returns one or more addresses of a host and port, or raises OSError.
        `authenticate`: None for no authentication.
        `cluster_id`: the only cluster to send requests to; None for the first that a broker names.
        """
        self.last_error = ""
        self._identity = ClusterIdentity(cluster_id, settings.bootstrap_servers)
        # Connections begun; connections that became ready; times that no ready connection may have been left. The last
        # also counts a new ready connection if no other has answered since the failures before it.
        self.connects = 0
        self.handshakes = 0
        self.interruptions = 0
        # Failed connections and failed attempts to connect.
        self._failures = 0
        # The first attempt to connect, and the first since a connection was ready (ms).
        self._began_ms: int | None = None
        self._away_since_ms: int | None = None
        self._was_reached = False
        # The first Metadata request since the last answer to one (ms). None: all were answered.
        self._asked_metadata_ms: int | None = None
        # In this poll: an answer tells the client to, or a Metadata request failed, as all have for too long.
        self._is_told_to_rebootstrap = False
        self._is_metadata_late = False
        # The first error that no retry fixes.
        self.failure: ClusterError | WorkerExhausted | None = None
        # First and last failure of a connection for lack of files or memory (ms). None: none since the last success.
        self._lacking_ms: tuple[int, int] | None = None
        self._authenticate = authenticate
        self._transport = transport
        self._clock_ms = clock_ms
        self._rng = rng
        self._settings = settings
        self._resolve = resolve
        self._software = ApiVersionsRequest(settings.client_software_name, settings.client_software_version)
        # The broker that became ready last compares ids, so the next one probably does.
        self._brokers_compare_ids = False
        self._nodes = Nodes(settings.bootstrap_servers)
        self._by_key: dict[int, Node] = {}
        # Returned by the next poll.
        self._responses: list[ClientResponse] = []
        self._next_throttle_log_ms = 0
        # Throttling by any node. Replaced as a whole, because other threads read it.
        self._held = Held()

    # --- which node ---------------------------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster, or None while unknown."""
        return self._identity.cluster_id

    def update_brokers(self, brokers: Iterable[Broker]) -> None:
        """Set the brokers of the cluster. A broker that moved gets a new connection. The connection of a removed broker
        stays open until it is idle, because responses may still come."""
        brokers = tuple(brokers)
        if brokers:
            self._leave_moved(brokers)
            self._nodes.list_brokers(brokers)
            self._identity.brokers_listed()

    def learn(self, broker: Broker) -> None:
        """Add one broker that a response named, for example a coordinator. It takes requests from now on, even if the
        last list of brokers lacked it. The next list decides if it stays."""
        self._leave_moved((broker,))
        self._nodes.learn(broker)

    def _leave_moved(self, brokers: Iterable[Broker]) -> None:
        for node, broker in self._nodes.moved(brokers):
            if node.state is not NodeState.DISCONNECTED:
                self._disconnect(node, f"it moved to {broker.host}:{broker.port}", self._clock_ms())

    def ready(self, node_id: int, now_ms: int) -> bool:
        """Return True if `send` to the node may be called now. Otherwise begin to connect if that is due."""
        node = self._nodes.get(node_id)
        if node is None:
            return False
        if node.can_connect(now_ms) and not self._is_replaced_by_brokers(node):
            self._connect(node, now_ms)
        return self._can_send(node, now_ms)

    def can_send(self, node_id: int, now_ms: int) -> bool:
        """As `ready`, without connecting."""
        node = self._nodes.get(node_id)
        return node is not None and self._can_send(node, now_ms)

    def is_down(self, node_id: int) -> bool:
        """Return True if the node is unknown, or is neither connected nor connecting."""
        node = self._nodes.get(node_id)
        return node is None or node.state is NodeState.DISCONNECTED

    def _can_send(self, node: Node, now_ms: int) -> bool:
        return (
            node.state is NodeState.READY
            and _connection(node).state is State.OPEN
            and (node.session_until_ms is None or now_ms < node.session_until_ms)
            and now_ms >= node.throttled_until_ms
            and node.in_flight_count < self._settings.max_in_flight
        )

    def delay_ms(self, node_id: int, now_ms: int) -> int | None:
        """Return ms until the node's backoff or throttle ends (0 if neither), or None if only an event helps."""
        node = self._nodes.get(node_id)
        return None if node is None else node.delay_ms(now_ms)

    def least_loaded_node(self, now_ms: int) -> int | None:
        """Return the node with the fewest requests in flight among those that take a request now. If none does, return
        None, and begin a connection unless one is being made. Bootstrap servers are last, or first if no broker can be
        reached."""
        brokers, bootstrap = self._nodes.brokers, self._nodes.bootstrap
        if self._settings.metadata_recovery_strategy == "none" and brokers:
            bootstrap = ()
        reached = self._reaches_brokers
        to_be_asked = [node for node in bootstrap if self._identity.is_to_be_asked(node.server)]
        for group in (to_be_asked, *((brokers, bootstrap) if reached else (bootstrap, brokers))):
            nodes = self._in_random_rotation(group)
            sendable = [node for node in nodes if self._can_send(node, now_ms)]
            if sendable:
                return min(sendable, key=lambda node: node.in_flight_count).node_id
            if any(node.state in (NodeState.CONNECTING, NodeState.NEGOTIATING) for node in nodes):
                if reached:
                    return None
                # Without an answer, an attempt takes its whole timeout. Another group may be reached meanwhile.
                continue
            connectable = [node for node in nodes if node.can_connect(now_ms)]
            if connectable:
                self._connect(min(connectable, key=lambda node: node.attempted_ms), now_ms)
                return None
            if any(node.state is NodeState.READY for node in nodes):
                return None
        return None

    @property
    def _reaches_brokers(self) -> bool:
        """False if the last attempt at each broker failed, and without brokers."""
        return not all(node.failures for node in self._nodes.brokers)

    def _in_random_rotation(self, nodes: Sequence[Node]) -> Sequence[Node]:
        offset = self._rng.randrange(len(nodes)) if nodes else 0
        return [*nodes[offset:], *nodes[:offset]]

    def api_version(self, node_id: int, request: Request) -> int | None:
        """Return the version of `request` for the node, or None if not connected or without a common version."""
        node = self._nodes.get(node_id)
        return None if node is None or node.connection is None else node.connection.version_for(request)

    def name(self, node_id: int) -> str:
        """Return the node as messages name it."""
        return str(self._nodes[node_id])

    def lacks(self, node_id: int, guarantee: Guarantee) -> tuple[str, ...]:
        """Return what the node lacks for `guarantee`, in words. Empty if it lacks nothing, or is not connected."""
        node = self._nodes.get(node_id)
        return () if node is None or node.connection is None else lacking(node.connection.ranges, guarantee)

    def finalized_features(self, node_id: int) -> Mapping[str, int] | None:
        """Return feature -> level (KIP-584), as of when the connection to the node began, or None if not connected."""
        node = self._nodes.get(node_id)
        return None if node is None or node.state is not NodeState.READY else _connection(node).finalized_features

    def throttled_ms(self, now_ms: int) -> int:
        """Return the total time (ms) in which at least one connected broker throttled this client."""
        return self._held.passed_ms(now_ms)

    def throttles(self, now_ms: int) -> Mapping[int, tuple[int, int]]:
        """Return node id -> (ms that the node has throttled this client while connected, end of its last throttle).
        Nodes that never throttled are left out."""
        if not self._held.until_ms:
            return {}
        held = {node.node_id: node.held for node in self._nodes if node.held.until_ms}
        return {node_id: (each.passed_ms(now_ms), each.until_ms) for node_id, each in held.items()}

    def contact(self, now_ms: int) -> Contact:
        """Return what the client knows of its servers now."""
        # A server that has answered once is no wrong address.
        endings = [] if self.handshakes else [_ending(node, now_ms) for node in self._nodes.bootstrap]
        return Contact(
            is_reached=self._was_reached,
            began_ms=self._began_ms,
            away_since_ms=None if self._is_connected else self._away_since_ms,
            is_refused=bool(endings) and all(each is Ending.REFUSED for each in endings),
            is_unanswered=bool(endings) and Ending.OTHER not in endings,
            is_silent=Ending.SILENT in endings,
        )

    def _hold(self, now_ms: int) -> None:
        """Update the total after a node began or stopped throttling."""
        until_ms = max((node.held.until_ms for node in self._nodes), default=0)
        if until_ms > now_ms or self._held.until_ms > now_ms:
            self._held = self._held.ending_at(max(until_ms, now_ms), now_ms)

    @property
    def has_in_flight(self) -> bool:
        """True if `poll` has yet to return a response."""
        return bool(self._responses) or any(node.in_flight_count for node in self._nodes)

    def in_flight_count(self, node_id: int) -> int:
        """Return the number of unanswered requests to the node."""
        node = self._nodes.get(node_id)
        return 0 if node is None else node.in_flight_count

    # --- out ----------------------------------------------------------------------------------------------------------

    def send(
        self, node_id: int, request: Request, now_ms: int, token: object = None, expect_response: bool = True
    ) -> None:
        """Send `request`; `poll` returns it with `token`. Raises RuntimeError unless `can_send`."""
        node = self._nodes.get(node_id)
        if node is None or not self._can_send(node, now_ms):
            raise RuntimeError(f"node {node_id} takes no request now")
        connection = _connection(node)
        pending = _Pending(token, node_id, now_ms, self._failures)
        if connection.version_for(request) is None:
            self._note(node, self._no_common_version(node, request))
            self._respond(Answer(pending, request, None), self.last_error, now_ms)
            return
        node.used_ms = now_ms
        if isinstance(request, MetadataRequest) and self._asked_metadata_ms is None:
            self._asked_metadata_ms = now_ms
        buffers = connection.send(request, pending, expect_response=expect_response)
        self._transmit(node, buffers, tell_at_once=not expect_response)

    def _transmit(self, node: Node, buffers: Sequence[Buffer], *, tell_at_once: bool = False) -> None:
        """`tell_at_once`: report that the bytes are sent. Not needed if a response will follow."""
        self._transport.send(node.key, buffers, tell_at_once=tell_at_once)

    def _no_common_version(self, node: Node, request: Request) -> str:
        theirs = _connection(node).ranges.get(request.api.key)
        speaks = f"speaks versions {theirs[0]} to {theirs[1]}" if theirs else "does not offer it"
        lowest, highest = request.versions()
        return f"{request.api.name} needs versions {lowest} to {highest}, which the broker lacks: it {speaks}"

    def _connect(self, node: Node, now_ms: int) -> None:
        self._began_ms = now_ms if self._began_ms is None else self._began_ms
        if self._away_since_ms is None and not self._is_connected:
            self._away_since_ms = now_ms
        if node.needs_resolving:
            try:
                node.resolved(self._resolve(node.host, node.port))
            except OSError as error:
                node.attempted_ms = now_ms
                if is_exhaustion(error.errno):
                    self._on_lack(error.errno, now_ms)
                self._note(node, f"its name cannot be resolved: {error.strerror or error}")
                node.ending = Ending.REFUSED
                self._look_at_identity(node)
                self._back_off(node, now_ms)
                return
        try:
            authentication = None if self._authenticate is None else self._authenticate(node.host)
        except ClusterError as failure:
            node.attempted_ms = now_ms
            self._give_up(node, failure, now_ms)
            return
        key, self.connects = self.connects, self.connects + 1
        connection = Connection(
            client_id=self._settings.client_id,
            software=self._software if authentication is not None else self._naming(node),
            max_frame_bytes=self._settings.max_response_bytes,
            authentication=authentication,
            identify=True,
            guarantees=self._settings.guarantees,
        )
        address = node.connecting(key, connection, now_ms, self._setup_timeout_ms(node))
        node.answered_since = self._failures
        self._by_key[key] = node
        self._transport.connect(key, address)

    def _naming(self, node: Node) -> ApiVersionsRequest:
        """Return the request by which the node compares its ids with these. A SASL listener compares none, because
        SaslServerAuthenticator answers it. As in Java, metadata.recovery.strategy=none names no broker."""
        if not self._brokers_compare_ids or node.node_id < 0 or self._settings.metadata_recovery_strategy == "none":
            return self._software
        return replace(self._software, cluster_id=self.cluster_id, node_id=node.node_id)

    def _setup_timeout_ms(self, node: Node) -> int:
        """Return the timeout for a connection attempt (KIP-601). It grows with each failed attempt in a row, for
        congested networks. It is random, so that clients that lost a broker together do not all reconnect at once."""
        settings = self._settings
        initial_ms = settings.socket_connection_setup_timeout_ms
        max_ms = settings.socket_connection_setup_timeout_max_ms
        return backoff_ms(node.connect_failures + 1, initial_ms, max_ms, self._rng)

    # --- in -----------------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: int) -> list[ClientResponse]:
        """Wait up to `timeout_ms` for an event, and at most until the next timeout or backoff.

        Returns the answered and failed requests since the last call. The list may be empty, because the connections
        also exchange requests of their own.
        """
        for event in self._transport.poll(self._wait_ms(timeout_ms, self._clock_ms())):
            self._on_event(event, self._clock_ms())
        self._on_time(self._clock_ms())
        self._rebootstrap_if_due(self._clock_ms())
        self._leave_bootstrap(self._clock_ms())
        responses, self._responses = self._responses, []
        return responses

    def _on_event(self, event: Event, now_ms: int) -> None:
        node = self._by_key.get(event.key)
        if node is None:
            return  # the client closed the connection after the event occurred
        connection = _connection(node)
        match event:
            case Connected():
                self._lacking_ms = None
                node.connected(now_ms)
                self._transmit(node, connection.start(_Pending(None, node.node_id, now_ms)))
            case Sent():
                answer = connection.sent()
                if answer is not None:
                    self._complete(node, answer, now_ms)
            case Received(data=data):
                node.used_ms = now_ms
                self._on_bytes(node, data, now_ms)
            case Disconnected(reason=reason, tls=TlsFailure() as tls):
                if tls.final:
                    self._failed(TlsFailed(broker=str(node), step=tls.step, advice=tls.advice))
                self._disconnect(node, reason, now_ms)
            case Disconnected(reason=reason, lacks=int() as code):
                self._on_lack(code, now_ms)
                self._disconnect(node, reason, now_ms)
            case Disconnected(reason=reason):
                ending = Ending.REFUSED if node.state is NodeState.CONNECTING else _until_answered(node, Ending.HUNG_UP)
                self._disconnect(node, reason + _hint(node) + self._hint_of_sasl(node), now_ms, ending=ending)

    def _on_bytes(self, node: Node, data: bytes, now_ms: int) -> None:
        connection = _connection(node)
        before = connection.state
        connection.receive(data)
        until_ms = now_ms + self._settings.request_timeout_ms
        try:
            while (answer := connection.next_answer(lambda: self._clock_ms() >= until_ms)) is not None:
                self._complete(node, answer, now_ms)
        except ProtocolError as error:
            # No broker answers its first request so.
            ending = Ending.REFUSED if before is State.NEGOTIATING else Ending.OTHER
            self._on_protocol_error(node, error, now_ms, ending)
            return
        if own := connection.own_request(_Pending(None, node.node_id, now_ms)):
            self._transmit(node, own)
        if connection.computation is not None:
            node.computing_since_ms = now_ms
            self._compute(node, now_ms)
        if before is not State.OPEN and connection.state is State.OPEN:
            if before is not State.AUTHENTICATING and not self._is_meant(node, now_ms):
                return
            _, highest = connection.ranges.get(ApiVersionsRequest.api.key, (0, 0))
            self._brokers_compare_ids = highest >= NAMES_THE_BROKER
            self.handshakes += 1
            if self._is_connected and not self._has_witness(node):
                self.interruptions += 1
            node.ready(now_ms)
            self._was_reached |= node.node_id >= 0
            self._away_since_ms = None
            self._identity.connected(node.server)
            self._hold(now_ms)
            if connection.session_lifetime_ms > 0:
                part_ms = int(connection.session_lifetime_ms * self._rng.uniform(*_SESSION_FACTOR))
                node.session_until_ms = now_ms + max(part_ms, MIN_SESSION_MS)

    def _is_meant(self, node: Node, now_ms: int) -> bool:
        """Return True if the node's cluster is this client's, or is not known to the broker, and the broker has not
        said that it is another one. Otherwise close the connection."""
        connection = _connection(node)
        self._throttle(node, connection.throttle_time_ms, now_ms)
        found = connection.cluster_id
        if not self._identity.is_ours(found):
            changed = ClusterChanged(broker=str(node), expected=str(self.cluster_id), found=str(found))
            self._disconnect(node, changed.what, now_ms, changed)
            return False
        if connection.is_misrouted:
            self._identity.connected(node.server)
            self._disconnect(node, "another broker of the cluster answers there (KIP-1242)", now_ms)
            self.update_brokers(connection.brokers)
            return False
        return True

    def _rebootstrap_if_due(self, now_ms: int) -> None:
        """Forget all brokers if the cluster asks for it, or if brokers that can be reached answer no Metadata request.
        If none can be reached, bootstrap servers are asked already, and the brokers may come back."""
        is_due = self._is_told_to_rebootstrap or (self._is_metadata_late and self._reaches_brokers)
        self._is_told_to_rebootstrap = self._is_metadata_late = False
        if not is_due or self._settings.metadata_recovery_strategy == "none":
            return
        self._asked_metadata_ms = None
        for node in [each for each in self._by_key.values() if each.node_id >= 0]:
            self._disconnect(node, "the client begins with its bootstrap servers again", now_ms)
        self._nodes.list_brokers(())

    def _leave_bootstrap(self, now_ms: int) -> None:
        """Close connections to bootstrap servers whose address is no broker's, once brokers answer everything."""
        for node in [each for each in self._by_key.values() if self._is_replaced_by_brokers(each)]:
            if not node.in_flight_count:
                self._drop(node, now_ms)

    def _is_replaced_by_brokers(self, node: Node) -> bool:
        """Return True if the node is no broker, and the connection of a broker of the last list is open. One that is
        only learned is not enough: `least_loaded_node` would not return it."""
        return node.node_id < 0 and any(broker.state is NodeState.READY for broker in self._nodes.brokers)

    @property
    def _is_connected(self) -> bool:
        return any(node.state is NodeState.READY for node in self._by_key.values())

    def _has_witness(self, node: Node) -> bool:
        """Return True if another ready connection has answered since the last failure before the node's attempt.

        A connection to a host that vanished silently still looks open. So without a witness, all may have ended.
        """
        others = (each for each in self._by_key.values() if each.state is NodeState.READY)
        return any(each.answered_since >= node.answered_since for each in others)

    def _compute(self, node: Node, now_ms: int) -> None:
        """Compute SCRAM's slow part, or ask a KDC, in a thread, so that other connections go on. Each node has at most
        one computation, so a broker that hangs up and asks again cannot cause many at once."""
        connection = node.connection
        if connection is None or connection.computation is None:
            return
        if node.computing is None:
            node.computing = started(connection.computation)
            node.computation = connection.computation
            node.computing.add_done_callback(lambda _: self._transport.wakeup())
        elif node.computing.done():
            future, node.computing = node.computing, None
            if node.computation is not connection.computation:
                self._compute(node, now_ms)
                return
            node.computing_since_ms = None
            try:
                connection.computed(future.result())
            except SaslRefused as error:
                self._on_protocol_error(node, error, now_ms)
                return
            self._transmit(node, connection.own_request(_Pending(None, node.node_id, now_ms)))

    def _on_protocol_error(self, node: Node, error: ProtocolError, now_ms: int, ending: Ending = Ending.OTHER) -> None:
        match error:
            case SaslRefused(is_final=False):
                self._disconnect(node, f"{error.mechanism} as {error.user!r}: {error.reason}", now_ms)
            case SaslRefused():
                failure: ClusterError = AuthenticationFailed(
                    broker=str(node),
                    mechanism=error.mechanism,
                    user=error.user,
                    reason=error.reason,
                    remedy=error.remedy,
                )
                self._give_up(node, failure, now_ms)
            case ApisMissing():
                failure = BrokerUnsupported(broker=str(node), guarantee=error.guarantee, missing=error.missing)
                self._give_up(node, failure, now_ms)
            case TlsExpected():
                advice = "set kafka.security.protocol to SSL or SASL_SSL, or use the port of a plaintext listener"
                failure = TlsFailed(broker=str(node), step=error.detail, advice=advice)
                self._give_up(node, failure, now_ms)
            case _:
                self._disconnect(node, error.detail, now_ms, ending=ending)

    def _on_lack(self, code: int | None, now_ms: int) -> None:
        """Note that a connection lacked files or memory. The process may free some, so it fails only after
        PATIENCE_MS."""
        began_ms, last_ms = self._lacking_ms or (now_ms, now_ms)
        if now_ms - last_ms > PATIENCE_MS + self._settings.reconnect_backoff_max_ms:
            # No attempt since, so a new period begins.
            began_ms = now_ms
        self._lacking_ms = began_ms, now_ms
        failure = exhausted(OSError(code, os.strerror(code or 0)))
        if failure is not None and now_ms - began_ms >= PATIENCE_MS:
            self._failed(failure)

    def _failed(self, failure: ClusterError | WorkerExhausted) -> None:
        if self.failure is None:
            self.failure = failure

    def _give_up(self, node: Node, failure: ClusterError, now_ms: int) -> None:
        self._failed(failure)
        self._disconnect(node, str(failure), now_ms)

    def _reauthenticate(self, node: Node, now_ms: int) -> None:
        assert self._authenticate is not None
        node.session_until_ms = None
        try:
            authentication = self._authenticate(node.host)
        except ClusterError as failure:
            self._give_up(node, failure, now_ms)
            return
        self._transmit(node, _connection(node).reauthenticate(authentication, _Pending(None, node.node_id, now_ms)))

    def _complete(self, node: Node, answer: Answer, now_ms: int) -> None:
        response = answer.response
        if response is not None:
            node.answered_since = max(node.answered_since, answer.token.failures)
            if response.throttle_time_ms > 0:
                self._throttle(node, response.throttle_time_ms, now_ms)
                self._hold(now_ms)
        if isinstance(response, MetadataResponse):
            self._asked_metadata_ms = None
            if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
                self._is_told_to_rebootstrap = True
                self._note(node, "it tells the client to begin with the bootstrap servers again (KIP-1102)")
                self._respond(replace(answer, response=None), self.last_error, now_ms)
                return
        self._respond(answer, None, now_ms)

    def _throttle(self, node: Node, throttle_time_ms: int, now_ms: int) -> None:
        """Send the node nothing for the time that it gave, up to MAX_THROTTLE_MS."""
        for_ms = min(throttle_time_ms, MAX_THROTTLE_MS)
        node.throttle(now_ms + for_ms, now_ms)
        if for_ms < LOGGED_THROTTLE_MS or now_ms < self._next_throttle_log_ms:
            return
        self._next_throttle_log_ms = now_ms + LOGGED_THROTTLE_MS
        log.warning(
            "%s throttles this client for %s s, by a quota of its user or of client id %r; the client sends it nothing "
            "for %s s. Limits of time count a tenth of that. If no quota explains the time, check what answers at this "
            "address.",
            node,
            f"{throttle_time_ms / 1_000:,.0f}",
            self._settings.client_id,
            f"{for_ms / 1_000:,.0f}",
        )

    def _respond(self, answer: Answer, error: str | None, now_ms: int) -> None:
        pending: _Pending = answer.token
        if error is not None and isinstance(answer.request, MetadataRequest) and self._asked_metadata_ms is not None:
            unanswered_ms = now_ms - self._asked_metadata_ms
            self._is_metadata_late |= unanswered_ms >= self._settings.metadata_recovery_rebootstrap_trigger_ms
        self._responses.append(
            ClientResponse(
                node_id=pending.node_id,
                request=answer.request,
                token=pending.token,
                response=answer.response,
                error=error,
                latency_ms=now_ms - pending.sent_ms,
            )
        )

    # --- time ---------------------------------------------------------------------------------------------------------

    def _deadline(self, node: Node) -> tuple[int, str | None] | None:
        """Return when the node's connection ends unless something happens, and the error then. The error is None if the
        connection was idle, which is no failure. Return None without a connection."""
        settings = self._settings
        if node.state is NodeState.DISCONNECTED:
            return None
        if node.state is NodeState.CONNECTING:
            return node.attempted_ms + node.setup_timeout_ms, f"no connection within {node.setup_timeout_ms} ms"
        if node.computing_since_ms is not None:
            return node.computing_since_ms + settings.request_timeout_ms, _connection(node).too_slow
        oldest: _Pending | None = _connection(node).oldest_token
        if oldest is not None:
            limit_ms = settings.request_timeout_ms
            # A throttling broker does not read requests that are already sent.
            begin_ms = max(oldest.sent_ms, node.held.until_ms)
            return begin_ms + limit_ms, f"no answer within {limit_ms} ms"
        return node.used_ms + settings.connections_max_idle_ms, None

    def _wait_ms(self, timeout_ms: int, now_ms: int) -> int:
        if self._responses:
            return 0
        waits = [timeout_ms]
        for node in self._nodes:
            deadline, delay_ms = self._deadline(node), node.delay_ms(now_ms)
            if deadline is not None:
                waits.append(max(0, deadline[0] - now_ms))
            if delay_ms:
                waits.append(delay_ms)
            if node.session_until_ms is not None:
                waits.append(max(0, node.session_until_ms - now_ms))
        return min(waits)

    def _on_time(self, now_ms: int) -> None:
        for node in list(self._by_key.values()):
            self._compute(node, now_ms)
            if node.session_until_ms is not None and now_ms >= node.session_until_ms:
                self._reauthenticate(node, now_ms)
            deadline = self._deadline(node)
            if deadline is None or now_ms < deadline[0]:
                continue
            failure = deadline[1]
            if failure is None:
                self._drop(node, now_ms)
            else:
                self._disconnect(node, failure + _hint(node), now_ms, ending=_until_answered(node, Ending.SILENT))

    # --- the end of a connection --------------------------------------------------------------------------------------

    def _disconnect(
        self,
        node: Node,
        reason: str,
        now_ms: int,
        elsewhere: ClusterChanged | None = None,
        ending: Ending = Ending.OTHER,
    ) -> None:
        """Close a failed connection, return its requests in flight with an error, and start the node's backoff.
        `elsewhere`: it led to another cluster."""
        self._failures += 1
        node.ending = ending
        self._note(node, reason)
        for answer in self._drop(node, now_ms):
            self._respond(answer, self.last_error, now_ms)
        self._look_at_identity(node, elsewhere)
        self._back_off(node, now_ms)

    def _look_at_identity(self, node: Node, elsewhere: ClusterChanged | None = None) -> None:
        """After a failure of the node, look if the cluster was replaced. With another connection open, it was not."""
        if not self._is_connected:
            replaced = self._identity.failed(node.server, elsewhere, is_last=node.needs_resolving)
            if replaced is not None:
                self._failed(replaced)

    def _hint_of_sasl(self, node: Node) -> str:
        """Brokers silently hang up on clients that have not authenticated."""
        if _connection(node).state is not State.IDENTIFYING or self._authenticate is not None:
            return ""
        return (
            " before it answered anything; if it goes on, this listener may ask for authentication "
            "(kafka.security.protocol=SASL_SSL or SASL_PLAINTEXT)"
        )

    def _drop(self, node: Node, now_ms: int) -> list[Answer]:
        """Close the node's connection, if it has one. Return its requests in flight."""
        connection = node.connection
        if connection is None:
            return []
        self._transport.close(node.key)
        del self._by_key[node.key]
        if node.state is NodeState.READY and not self._is_connected:
            self.interruptions += 1
        node.disconnected(now_ms)
        self._hold(now_ms)
        self._nodes.forget_if_gone(node)
        return connection.close()

    def _note(self, node: Node, reason: str) -> None:
        self.last_error = f"{node}: {reason}"

    def _back_off(self, node: Node, now_ms: int) -> None:
        settings = self._settings
        node.back_off(now_ms, settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms, self._rng)

    def wakeup(self) -> None:
        """End the current `poll`, or the next one, early. May be called from any thread."""
        self._transport.wakeup()

    def close(self) -> list[ClientResponse]:
        """Close every connection and the transport. Return the responses not yet polled and the unanswered requests."""
        now_ms = self._clock_ms()
        for node in list(self._by_key.values()):
            for answer in self._drop(node, now_ms):
                self._respond(answer, f"{node}: the client was closed", now_ms)
        self._transport.close_all()
        responses, self._responses = self._responses, []
        return responses


def _connection(node: Node) -> Connection:
    assert node.connection is not None
    return node.connection


def _until_answered(node: Node, ending: Ending) -> Ending:
    """Return `ending` if the peer has not answered the first request."""
    is_asked = node.connection is not None and node.connection.state is State.NEGOTIATING
    return ending if is_asked and node.state is NodeState.NEGOTIATING else Ending.OTHER


def _ending(node: Node, now_ms: int) -> Ending:
    """Return how the last attempt at the node ended, or how the one that is under way would end."""
    if node.state is NodeState.NEGOTIATING:
        return _until_answered(node, Ending.SILENT)
    if not node.failures or (node.state is NodeState.CONNECTING and now_ms - node.attempted_ms > _PROMPT_MS):
        return Ending.OTHER
    return node.ending


def _hint(node: Node) -> str:
    """Return the likely reason if the peer ends the connection or is silent instead of answering ApiVersions."""
    if node.connection is None or node.connection.state is not State.NEGOTIATING:
        return ""
    return (
        ", instead of an answer to ApiVersions; perhaps it is no plaintext listener of a broker, or takes no more "
        "connections (max.connections.per.ip, connection_creation_rate)"
    )

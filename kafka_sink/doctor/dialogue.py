"""One blocking connection to one host, with a time limit: it connects, sends requests and reads answers.

The producer's network code retries without end and is driven by events. An examination needs one attempt, and the step
at which it fails. So the sockets here block in the calling thread, at most `STEP_TIMEOUT_S` for each step in total.
TLS, SASL and the protocol are the producer's own code: `net.tls`, `protocol.sasl`, `protocol.connection`.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_sink.doctor import connection_failures
from kafka_sink.doctor.connection_failures import Attempt, Failure
from kafka_sink.errors import ConfigError, ProtocolError, TokenUnavailable
from kafka_sink.kafka.auth.security import authenticator, tls_contexts
from kafka_sink.kafka.clock import within
from kafka_sink.kafka.config import VERSION, ClientConfig
from kafka_sink.kafka.net.resolver import resolve
from kafka_sink.kafka.net.tls import HUNG_UP, explain
from kafka_sink.kafka.net.transport import Address
from kafka_sink.kafka.protocol.api import Request, Response
from kafka_sink.kafka.protocol.apis.handshake import ApiVersionsRequest
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest, MetadataResponse
from kafka_sink.kafka.protocol.apis.produce import ProducePartition, ProduceRequest
from kafka_sink.kafka.protocol.connection import Connection, State
from kafka_sink.kafka.protocol.requests import Buffer

# A bootstrap server and an advertised address may both time out. The report still comes within ten seconds.
STEP_TIMEOUT_S = 4.0
_RECEIVE_BYTES = 64 * 1024
_ANY_PRODUCE = ProduceRequest(-1, 0, (ProducePartition("", 0, uuid.UUID(int=1), b""),))
_BROKERS = MetadataRequest((), allow_auto_topic_creation=False)


class _TooSlow(Exception):
    """The computation that the authentication needs takes longer than the step may. Its text: what happened."""


class NoAnswer(Exception):
    """A host that answered before does not answer this request."""


class NotTaken(NoAnswer):
    """The host does not take this request in a version that this client speaks."""


@dataclass(slots=True, eq=False)
class Dialogue:
    """An open connection. `cluster` is its host's first answer, `throttle_time_ms` the longest throttle in an answer,
    `_until_s` the deadline of the current step."""

    _sock: socket.socket
    _connection: Connection
    cluster: MetadataResponse | None = None
    throttle_time_ms: int = 0
    _until_s: float = 0.0

    def open(self) -> None:
        # Encoded before the step begins: the first request imports modules, and this time is not the peer's.
        first = self._connection.start()
        self._begin_step()
        self._send(first)
        while self._connection.state is not State.OPEN:
            self._receive()
            before = self._connection.state
            self._connection.next_answer(self._is_over)
            if self._connection.state is not before:
                self._begin_step()
            self._compute()
            self._send(self._connection.own_request())

    def ask(self, request: Request) -> Response:
        """Return the answer to `request`, which is sent once. Raises NoAnswer, NotTaken.

        Without an answer the connection is closed: a late answer would be read as the answer to the next request.
        """
        name = request.api.name
        if self._connection.state is not State.OPEN:
            raise NoAnswer(f"no answer to {name}: an earlier request had none, and the connection was closed")
        if self._connection.version_for(request) is None:
            raise NotTaken(f"the broker does not take {name} in a version that this client speaks")
        try:
            return self.asked(request)
        except (OSError, ProtocolError) as error:
            self._connection.close()
            self.close()
            why = _waited() if isinstance(error, TimeoutError) else error
            raise NoAnswer(f"no answer to {name}: {why}") from None

    def asked(self, request: Request) -> Response:
        """Return the answer to `request`, as `ask` does. Raises OSError, ProtocolError."""
        encoded = self._connection.send(request)
        self._begin_step()
        self._send(encoded)
        while (answer := self._connection.next_answer(self._is_over)) is None:
            self._receive()
        assert answer.response is not None, "a response was expected"
        self.throttle_time_ms = max(self.throttle_time_ms, answer.response.throttle_time_ms)
        return answer.response

    def _is_over(self) -> bool:
        """Return True after the deadline of the step."""
        return time.monotonic() >= self._until_s

    @property
    def at(self) -> str:
        """The current step, with the names of `connection_failures.hung_up`."""
        return {State.NEGOTIATING: "api versions", State.AUTHENTICATING: "sasl"}.get(self._connection.state, "request")

    @property
    def ranges(self) -> Mapping[int, tuple[int, int]]:
        """The versions that the host takes: API key -> (lowest, highest)."""
        return self._connection.ranges

    def check_versions(self) -> str:
        """Return the agreed versions in words. Raises ProtocolError if there are none."""
        agreed = []
        for request in (_BROKERS, _ANY_PRODUCE):
            name, version = request.api.name, self._connection.version_for(request)
            lowest, highest = self._connection.ranges.get(request.api.key, (0, -1))
            if highest < lowest:
                raise ProtocolError(f"it accepts no {name} requests, like a controller's listener")
            if version is None:
                raise ProtocolError(f"it supports versions {lowest} to {highest} of {name}")
            agreed.append(f"{name} {version} of {lowest} to {highest}")
        return ", ".join(agreed)

    def close(self) -> None:
        self._sock.close()

    def _compute(self) -> None:
        """Run the long computation of SCRAM, or ask a KDC. Raises _TooSlow if it takes longer than the step may."""
        if (computation := self._connection.computation) is None:
            return
        try:
            self._connection.computed(within(self._until_s - time.monotonic(), computation))
        except TimeoutError:
            raise _TooSlow(self._connection.too_slow) from None

    def _begin_step(self) -> None:
        self._until_s = time.monotonic() + STEP_TIMEOUT_S

    def _in_time(self) -> socket.socket:
        """Return the socket, with its timeout set to the rest of the step. Raises TimeoutError if no time is left."""
        left_s = self._until_s - time.monotonic()
        if left_s <= 0:
            raise _waited()
        self._sock.settimeout(left_s)
        return self._sock

    def _send(self, buffers: Sequence[Buffer]) -> None:
        if not buffers:
            return
        try:
            self._in_time().sendall(b"".join(buffers))
        except ConnectionError:
            # Read what the peer sent before it closed: a TLS alert may give the reason.
            with contextlib.suppress(ConnectionError):
                while self._in_time().recv(_RECEIVE_BYTES):
                    pass
            raise
        self._connection.sent()

    def _receive(self) -> None:
        data = self._in_time().recv(_RECEIVE_BYTES)
        if not data:
            raise ConnectionResetError("the peer closed the connection")
        self._connection.receive(data)


def dial(host: str, port: int, config: ClientConfig) -> tuple[Attempt, Dialogue | None]:
    """Try once to connect to `host` as a write would, up to the answer to a first request."""
    attempt = Attempt(host, port)
    try:
        return attempt, _dialogue(attempt, config)
    except _Stopped as stopped:
        attempt.failure = stopped.failure
        return attempt, None


class _Stopped(Exception):
    def __init__(self, failure: Failure) -> None:
        self.failure = failure


def _dialogue(attempt: Attempt, config: ClientConfig) -> Dialogue:
    """Connect, and note in `attempt` what was reached. Raises _Stopped."""
    try:
        addresses = resolve(attempt.host, attempt.port, timeout_s=STEP_TIMEOUT_S)
    except OSError as error:
        raise _Stopped(connection_failures.dns_failure(error, attempt.host)) from None
    attempt.addresses = tuple(str(address.sockaddr[0]) for address in addresses)
    sock, attempt.connected_to = _connected(addresses, attempt.addresses)
    try:
        sock, attempt.tls = _secured(sock, attempt.host, config)
        dialogue = Dialogue(sock, _connection(attempt.host, config))
        _introduce(attempt, dialogue, config)
    except _Stopped:
        sock.close()
        raise
    return dialogue


def _connected(addresses: Sequence[Address], shown: Sequence[str]) -> tuple[socket.socket, str]:
    """Try one address after the other, as the sink does (KIP-302). All attempts share the time of one step."""
    last = OSError("the name has no address")
    for address in addresses:
        sock = socket.socket(address.family, socket.SOCK_STREAM)
        sock.settimeout(STEP_TIMEOUT_S / len(addresses))
        try:
            sock.connect(address.sockaddr)
        except TimeoutError:
            last = TimeoutError(f"within {sock.gettimeout():g} s")
        except OSError as error:
            last = error
        else:
            # TCP's simultaneous open: the system may give us the unused port that we connect to, as our own port.
            if sock.getsockname() != sock.getpeername():
                sock.settimeout(STEP_TIMEOUT_S)
                return sock, str(address)
            last = ConnectionRefusedError("Connection refused")
        sock.close()
    raise _Stopped(connection_failures.tcp_failure(last, shown))


def _secured(sock: socket.socket, host: str, config: ClientConfig) -> tuple[socket.socket, str]:
    """Return the socket for the next steps, and the TLS version and cipher in words ("" without TLS)."""
    try:
        contexts = tls_contexts(config.security)
        context = None if contexts is None else contexts.current()
    except ConfigError as error:
        raise _Stopped(Failure("tls", error.parts().happened, "correct the option, or the file on this host")) from None
    if context is None:
        return sock, ""
    try:
        secured = context.wrap_socket(sock, server_hostname=host)
    except TimeoutError:
        raise _Stopped(connection_failures.tls_timed_out(_waited())) from None
    except (OSError, ValueError) as error:
        raise _Stopped(_of_tls(error)) from None
    cipher = secured.cipher()
    return secured, f"{secured.version()}, {cipher[0] if cipher else ''}"


def _of_tls(error: OSError | ValueError) -> Failure:
    failure = explain(error) if isinstance(error, OSError) else None
    if failure is not None:
        return connection_failures.tls_failure(failure)
    if isinstance(error, ConnectionError | ssl.SSLEOFError):
        return connection_failures.tls_failure(HUNG_UP)
    return Failure("tls", f"TLS failed: {error}", "the broker's log may say more")


def _connection(host: str, config: ClientConfig) -> Connection:
    begin = authenticator(config.security, config.bootstrap_hosts)
    try:
        authentication = None if begin is None else begin(host)
    except TokenUnavailable as error:
        raise _Stopped(connection_failures.no_token(error)) from None
    return Connection(
        client_id=config.client_id,
        software=ApiVersionsRequest("pyspark-pykafka", VERSION),
        authentication=authentication,
    )


def _introduce(attempt: Attempt, dialogue: Dialogue, config: ClientConfig) -> None:
    """Negotiate versions, authenticate, and send one request. A wrong listener may close the connection only then."""
    try:
        dialogue.open()
        attempt.versions = dialogue.check_versions()
        response = dialogue.asked(_BROKERS)
        assert isinstance(response, MetadataResponse)
        dialogue.cluster = response
    except ProtocolError as error:
        raise _Stopped(connection_failures.not_kafka(error)) from None
    except _TooSlow as slow:
        raise _Stopped(connection_failures.too_slow(str(slow), _waited())) from None
    except TimeoutError:
        raise _Stopped(connection_failures.no_answer(dialogue.at, _waited())) from None
    except OSError as error:
        # TLS 1.3: the client's handshake ends before the broker checks the client's certificate.
        if (failure := explain(error)) is not None:
            raise _Stopped(connection_failures.tls_failure(failure)) from None
        is_authenticated = config.security.is_authenticated
        raise _Stopped(connection_failures.hung_up(dialogue.at, is_authenticated=is_authenticated)) from None


def _waited() -> TimeoutError:
    return TimeoutError(f"within {STEP_TIMEOUT_S:g} s")

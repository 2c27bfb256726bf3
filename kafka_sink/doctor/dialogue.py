"""One connection to one host, driven by the thread that calls and bounded in time: connects, asks, is told.

The producer's network retries for ever and by events; an examination wants one attempt and the step at which it ends.
So the sockets here block, each step for `STEP_TIMEOUT_S` in all, however a peer spreads its bytes; what TLS and SASL
are, which bytes go out and what they mean is `net.tls`, `protocol.sasl` and `protocol.connection` here as there.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kafka_sink.doctor import reaching
from kafka_sink.doctor.reaching import Attempt, Failure
from kafka_sink.errors import ConfigError, ProtocolError, TokenUnavailable
from kafka_sink.kafka.config import VERSION, ProducerConfig
from kafka_sink.kafka.deadline import within
from kafka_sink.kafka.net.resolver import resolve
from kafka_sink.kafka.net.tls import HUNG_UP, explain
from kafka_sink.kafka.net.transport import Address
from kafka_sink.kafka.protocol.apis.api_versions import (
    ApiVersionsRequest,
)
from kafka_sink.kafka.protocol.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
)
from kafka_sink.kafka.protocol.apis.produce import (
    ProducePartition,
    ProduceRequest,
)
from kafka_sink.kafka.protocol.connection import Connection, State
from kafka_sink.kafka.protocol.requests import (
    Buffer,
    Request,
    Response,
    api_of,
)
from kafka_sink.kafka.security import authenticator, tls_contexts

# Two in a row, that of a bootstrap server and that of what it advertises, are told within ten seconds.
STEP_TIMEOUT_S = 4.0
_RECEIVE_BYTES = 64 * 1024
_ANY_PRODUCE = ProduceRequest(-1, 0, (ProducePartition("", 0, uuid.UUID(int=1), b""),))
_BROKERS = MetadataRequest((), allow_auto_topic_creation=False)


class _TooSlow(Exception):
    """What the broker asks SCRAM for."""


class NoAnswer(Exception):
    """A host that answered before does not any more, or not to this."""


@dataclass(slots=True, eq=False)
class Dialogue:
    """An open connection. `cluster`: what its host said first. `_until_s`: when the step has to be over."""

    _sock: socket.socket
    _connection: Connection
    cluster: MetadataResponse | None = None
    _until_s: float = 0.0

    def open(self) -> None:
        # Encoded before the step begins: what a process imports for its first request is not the peer's silence.
        first = self._connection.start()
        self._begin_step()
        self._send(first)
        while self._connection.state is not State.OPEN:
            self._receive()
            before = self._connection.state
            self._connection.next_answer()
            if self._connection.state is not before:
                self._begin_step()
            self._compute()
            self._send(self._connection.own_request())

    def ask(self, request: Request) -> Response:
        """Raises NoAnswer; never asks twice. A late answer would be taken for that to the next question, so without one
        it is over."""
        name = api_of(request).name
        if self._connection.state is not State.OPEN:
            raise NoAnswer(f"no answer to {name}: an earlier request had none, and the connection was closed")
        if self._connection.version_for(request) is None:
            raise NoAnswer(f"the broker takes no version of {name} that this client speaks")
        try:
            return self.asked(request)
        except (OSError, ProtocolError) as error:
            self._connection.close()
            self.close()
            said = _waited() if isinstance(error, TimeoutError) else error
            raise NoAnswer(f"no answer to {name}: {said}") from None

    def asked(self, request: Request) -> Response:
        """As `ask`, with the exceptions as they are. Raises OSError, ProtocolError."""
        encoded = self._connection.send(request)
        self._begin_step()
        self._send(encoded)
        while (answer := self._connection.next_answer()) is None:
            self._receive()
        assert answer.response is not None, "a response was expected"
        return answer.response

    @property
    def at(self) -> str:
        """The step that it is at, as `reaching.hung_up` names them."""
        return {State.NEGOTIATING: "api versions", State.AUTHENTICATING: "sasl"}.get(self._connection.state, "request")

    def check_versions(self) -> str:
        """What was agreed on. Raises ProtocolError if that is nothing."""
        agreed = []
        for request in (_BROKERS, _ANY_PRODUCE):
            name, version = api_of(request).name, self._connection.version_for(request)
            lowest, highest = self._connection.ranges.get(api_of(request).key, (0, -1))
            if highest < lowest:
                raise ProtocolError(f"it takes no {name} requests, as a controller's listener does not")
            if version is None:
                raise ProtocolError(f"it takes versions {lowest} to {highest} of {name}")
            agreed.append(f"{name} {version} of {lowest} to {highest}")
        return ", ".join(agreed)

    def close(self) -> None:
        self._sock.close()

    def _compute(self) -> None:
        """Of SCRAM, what takes long. Raises ProtocolError where it takes longer than the step may."""
        if (computation := self._connection.computation) is None:
            return
        try:
            self._connection.computed(within(self._until_s - time.monotonic(), computation))
        except TimeoutError:
            raise _TooSlow from None

    def _begin_step(self) -> None:
        self._until_s = time.monotonic() + STEP_TIMEOUT_S

    def _in_time(self) -> socket.socket:
        """The socket, to be waited for until the step has to be over. Raises TimeoutError."""
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
            # What the peer said before it went, which may be why: TLS's last words do tell.
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


def dial(host: str, port: int, config: ProducerConfig) -> tuple[Attempt, Dialogue | None]:
    """One attempt to connect to `host` as a write would, as far as the answer to a first request."""
    attempt = Attempt(host, port)
    try:
        addresses = resolve(host, port, timeout_s=STEP_TIMEOUT_S)
    except OSError as error:
        return replace(attempt, failure=reaching.dns_failure(error, host)), None
    attempt = replace(attempt, addresses=tuple(str(address.sockaddr[0]) for address in addresses))
    sock, connected_to = _connected(addresses)
    if isinstance(sock, OSError):
        return replace(attempt, failure=reaching.tcp_failure(sock, attempt.addresses)), None
    attempt = replace(attempt, connected_to=connected_to)
    try:
        secured, agreed = _secured(sock, host, config)
        attempt = replace(attempt, tls=agreed)
        dialogue = Dialogue(secured, _connection(config))
        sock = secured
        attempt, failure = _introduced(attempt, dialogue, config)
    except _Stopped as stopped:
        failure = stopped.failure
    if failure is not None:
        sock.close()
        return replace(attempt, failure=failure), None
    return attempt, dialogue


class _Stopped(Exception):
    def __init__(self, failure: Failure) -> None:
        self.failure = failure


def _connected(addresses: Sequence[Address]) -> tuple[socket.socket | OSError, str]:
    """Tries one after the other, as the sink does (KIP-302), all in the time of one step."""
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
            # TCP's simultaneous open: a port that nobody listens on may have been given to us.
            if sock.getsockname() != sock.getpeername():
                sock.settimeout(STEP_TIMEOUT_S)
                return sock, str(address)
            last = ConnectionRefusedError("Connection refused")
        sock.close()
    return last, ""


def _secured(sock: socket.socket, host: str, config: ProducerConfig) -> tuple[socket.socket, str]:
    """The socket to go on with, and what was agreed on."""
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
        raise _Stopped(reaching.tls_timed_out(_waited())) from None
    except (OSError, ValueError) as error:
        raise _Stopped(_of_tls(error)) from None
    cipher = secured.cipher()
    return secured, f"{secured.version()}, {cipher[0] if cipher else ''}"


def _of_tls(error: OSError | ValueError) -> Failure:
    told = explain(error) if isinstance(error, OSError) else None
    if told is not None:
        return reaching.tls_failure(told)
    if isinstance(error, ConnectionError | ssl.SSLEOFError):
        return reaching.tls_failure(HUNG_UP)
    return Failure("tls", f"TLS failed: {error}", "the broker's log may say more")


def _connection(config: ProducerConfig) -> Connection:
    begin = authenticator(config.security)
    try:
        authentication = None if begin is None else begin()
    except TokenUnavailable as error:
        raise _Stopped(reaching.no_token(f"no token from {error.source}: {error.reason}")) from None
    return Connection(
        client_id=config.client_id,
        software=ApiVersionsRequest("pyspark-pykafka", VERSION),
        authentication=authentication,
    )


def _introduced(attempt: Attempt, dialogue: Dialogue, config: ProducerConfig) -> tuple[Attempt, Failure | None]:
    """Versions, authentication, and one request, upon which listeners that are not meant for us hang up."""
    try:
        dialogue.open()
        attempt = replace(attempt, versions=dialogue.check_versions())
        response = dialogue.asked(_BROKERS)
        assert isinstance(response, MetadataResponse)
        dialogue.cluster = response
    except ProtocolError as error:
        return attempt, reaching.not_kafka(error)
    except _TooSlow:
        return attempt, reaching.too_slow(_waited())
    except TimeoutError:
        return attempt, reaching.said_nothing(dialogue.at, _waited())
    except OSError as error:
        # TLS 1.3: the client's handshake was over before the broker looked at its certificate.
        if (told := explain(error)) is not None:
            return attempt, reaching.tls_failure(told)
        return attempt, reaching.hung_up(dialogue.at, is_authenticated=config.security.is_authenticated)
    return attempt, None


def _waited() -> TimeoutError:
    return TimeoutError(f"within {STEP_TIMEOUT_S:g} s")

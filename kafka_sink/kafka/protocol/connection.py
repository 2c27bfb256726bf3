"""One connection to a broker without its socket: bytes in, answers out.

    IDLE ── start ──> NEGOTIATING ── versions ──> AUTHENTICATING ── authenticated ──> IDENTIFYING ── identified ──> OPEN
    OPEN ── reauthenticate ──> AUTHENTICATING ── reauthenticated ──> OPEN        send, receive
    any ── error, close ──> CLOSED

A connection begins with ApiVersions (KIP-35). A broker that does not know the version answers with the versions that it
knows, or with none, and is asked again in one of those, or in version 0 (KIP-511). If authentication is configured,
SaslHandshake and SaslAuthenticate follow (KIP-43, KIP-152). If `identify` is set, a Metadata request without topics
follows, because its response has the cluster id. It is left out if the broker has taken a version of ApiVersions that
names it (KIP-1242). A broker that refuses its name is asked again without a name, and for its cluster id. States that
are not needed are skipped. After that the connection carries requests.

A broker answers the requests of a connection in order. So a response belongs to the oldest request that waits for one,
and must have its correlation id.

An authenticated session may expire (KIP-368). It is then authenticated again with the same requests. Requests in flight
are answered first, and nothing else is sent until the new session stands. `own_request` returns the bytes that the
connection has to send for itself.

A violation of the protocol raises ProtocolError and closes the connection, because no byte after a byte that is not
understood can be interpreted. `close` returns the requests in flight.

Non-obvious: a response to a request that is not completely sent is also an error. Once a request is answered, its
buffers may be reused. The unsent bytes would then contain other rows.

No sockets, no clock. Source: https://kafka.apache.org/protocol (network, preliminaries);
org.apache.kafka.clients.InFlightRequests, org.apache.kafka.common.network.NetworkReceive.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from kafka_sink.errors import ApisMissing, ProtocolError, TlsExpected
from kafka_sink.kafka.protocol.api import MAX_FRAME_BYTES, Request, Response
from kafka_sink.kafka.protocol.apis.handshake import (
    NAMES_THE_BROKER,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kafka_sink.kafka.protocol.apis.metadata import Broker, MetadataRequest, MetadataResponse
from kafka_sink.kafka.protocol.apis.produce import ProduceRequest
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_name
from kafka_sink.kafka.protocol.needs import Guarantee, lacking
from kafka_sink.kafka.protocol.requests import Buffer, decode_response, encode_request, select_version
from kafka_sink.kafka.protocol.sasl import Authentication, Computation

_SIZE_BYTES = 4
# Every response header begins with the correlation id, in every version.
_CORRELATION_ID_BYTES = 4
CORRELATION_IDS = 2**31
_BROKERS = MetadataRequest((), allow_auto_topic_creation=False)
# Limit for a peer that is not authenticated yet: ApiVersions takes 1 KB, a challenge less, 1,000 brokers 100 KB.
# Brokers have the same limit for clients (sasl.server.max.receive.size).
MAX_HANDSHAKE_FRAME_BYTES = 512 * 1024


class State(enum.Enum):
    IDLE = enum.auto()
    NEGOTIATING = enum.auto()
    AUTHENTICATING = enum.auto()
    IDENTIFYING = enum.auto()
    OPEN = enum.auto()
    CLOSED = enum.auto()


class Input(enum.Enum):
    START = enum.auto()
    SEND = enum.auto()
    SENT = enum.auto()
    RECEIVE = enum.auto()
    VERSIONS = enum.auto()
    SECURED = enum.auto()
    AUTHENTICATED = enum.auto()
    IDENTIFY = enum.auto()
    IDENTIFIED = enum.auto()
    REAUTHENTICATE = enum.auto()
    ERROR = enum.auto()
    CLOSE = enum.auto()


_ENDED = {Input.ERROR: State.CLOSED, Input.CLOSE: State.CLOSED}
# A missing (state, input) pair is a bug of the caller: RuntimeError, and the state does not change.
TRANSITIONS: Mapping[State, Mapping[Input, State]] = {
    State.IDLE: {Input.START: State.NEGOTIATING, Input.RECEIVE: State.IDLE, **_ENDED},
    State.NEGOTIATING: {
        Input.SENT: State.NEGOTIATING,
        Input.RECEIVE: State.NEGOTIATING,
        Input.VERSIONS: State.OPEN,
        Input.SECURED: State.AUTHENTICATING,
        Input.IDENTIFY: State.IDENTIFYING,
        **_ENDED,
    },
    State.AUTHENTICATING: {
        Input.SENT: State.AUTHENTICATING,
        Input.RECEIVE: State.AUTHENTICATING,
        Input.AUTHENTICATED: State.OPEN,
        Input.IDENTIFY: State.IDENTIFYING,
        **_ENDED,
    },
    State.IDENTIFYING: {
        Input.SENT: State.IDENTIFYING,
        Input.RECEIVE: State.IDENTIFYING,
        Input.IDENTIFIED: State.OPEN,
        **_ENDED,
    },
    State.OPEN: {
        Input.SEND: State.OPEN,
        Input.SENT: State.OPEN,
        Input.RECEIVE: State.OPEN,
        Input.REAUTHENTICATE: State.AUTHENTICATING,
        **_ENDED,
    },
    State.CLOSED: {Input.CLOSE: State.CLOSED},
}


@dataclass(frozen=True, slots=True)
class Answer:
    """`token` as passed to `send`. `response` is None for a completely sent request that expects no response."""

    token: Any
    request: Request
    response: Response | None


@dataclass(slots=True, eq=False)
class _InFlight:
    correlation_id: int
    version: int
    request: Request
    token: Any
    expect_response: bool
    # Sent by the connection itself: its response is not returned to the caller.
    own: bool = False
    sent: bool = False


class Connection:
    """`client_id` is sent with every request. `max_frame_bytes`: a larger response is a protocol error.
    `authentication`: performed before the connection is open. `identify`: ask the broker for its cluster id before
    that. `guarantees`: a broker that lacks what one of them needs is refused.
    """

    def __init__(
        self,
        *,
        client_id: str,
        software: ApiVersionsRequest,
        max_frame_bytes: int = MAX_FRAME_BYTES,
        authentication: Authentication | None = None,
        identify: bool = False,
        guarantees: Sequence[Guarantee] = (),
    ) -> None:
        self.state = State.IDLE
        # None: not requested, or unknown to the broker.
        self.cluster_id: str | None = None
        # The throttle time in the response that gave the cluster id.
        self.throttle_time_ms = 0
        # The broker is not the one that `software` names. Then `brokers` are those of its cluster.
        self.is_misrouted = False
        self.brokers: Sequence[Broker] = ()
        self._identify = identify
        # Counted from the last authentication. 0: without limit.
        self.session_lifetime_ms = 0
        self._authentication = authentication
        self._own_request: Request | None = None
        # The owner of the connection runs this and passes the result to `computed`. None: nothing to compute.
        self.computation: Computation | None = None
        self._was_open = False
        # From the broker: API key -> (lowest, highest) version, and feature -> level.
        self.ranges: Mapping[int, tuple[int, int]] = MappingProxyType({})
        self.finalized_features: Mapping[str, int] = MappingProxyType({})
        self._client_id = client_id
        self._software = software
        self._guarantees = guarantees
        self._max_frame_bytes = max_frame_bytes
        self._next_correlation_id = 0
        # The version of ApiVersions, which no answer of the broker could choose.
        self._negotiate_in = software.versions()[1]
        self._in_flight: deque[_InFlight] = deque()
        self._unsent: deque[_InFlight] = deque()
        self._received = bytearray()

    # --- out ----------------------------------------------------------------------------------------------------------

    def start(self, token: object = None) -> list[Buffer]:
        """Return the bytes of the first request, ApiVersions. The connection consumes its response itself."""
        self._step(Input.START)
        self._own_request = self._software
        return self.own_request(token)

    def own_request(self, token: object = None) -> list[Buffer]:
        """Return the bytes that the connection has to send for itself, or an empty list. Handle them as those of
        `send`."""
        request, self._own_request = self._own_request, None
        if request is None:
            return []
        version = self._negotiate_in if request is self._software else self.version_for(request)
        assert version is not None, "looked at before it was made"
        return self._enqueue(request, version, token, expect_response=True, own=True)

    def reauthenticate(self, authentication: Authentication, token: object = None) -> list[Buffer]:
        """Begin a new session. Return the bytes to send, as `send` does. No other request until the state is `OPEN`."""
        self._step(Input.REAUTHENTICATE)
        self._authentication = authentication
        self._own_request = SaslHandshakeRequest(authentication.name_for_brokers)
        return self.own_request(token)

    def version_for(self, request: Request) -> int | None:
        """Return the version in which `send` would send `request`, or None without a common version."""
        return select_version(request, self.ranges)

    def send(self, request: Request, token: object = None, *, expect_response: bool = True) -> list[Buffer]:
        """Return the bytes of `request`. Write them in this order, then call `sent`.

        Raises ValueError without a common version.
        """
        self._step(Input.SEND)
        version = self.version_for(request)
        if version is None:
            raise ValueError(f"no version of {request.api.name} in common")
        return self._enqueue(request, version, token, expect_response)

    def _enqueue(
        self, request: Request, version: int, token: object, expect_response: bool, own: bool = False
    ) -> list[Buffer]:
        correlation_id = self._next_correlation_id
        buffers = encode_request(request, version=version, correlation_id=correlation_id, client_id=self._client_id)
        self._next_correlation_id = (correlation_id + 1) % CORRELATION_IDS
        entry = _InFlight(correlation_id, version, request, token, expect_response, own)
        self._in_flight.append(entry)
        self._unsent.append(entry)
        return buffers

    def sent(self) -> Answer | None:
        """Note that the oldest unsent request is completely written. Return its Answer if it expects no response."""
        self._step(Input.SENT)
        entry = self._unsent.popleft()
        entry.sent = True
        if entry.expect_response:
            return None
        self._in_flight.remove(entry)
        return Answer(entry.token, entry.request, None)

    @property
    def in_flight_count(self) -> int:
        return len(self._in_flight)

    @property
    def oldest_token(self) -> Any:
        """The token of the oldest request in flight, or None."""
        return self._in_flight[0].token if self._in_flight else None

    # --- in -----------------------------------------------------------------------------------------------------------

    def receive(self, data: bytes) -> None:
        """Take bytes from the broker, split at any place. `next_answer` decodes them."""
        self._step(Input.RECEIVE)
        self._received += data

    def next_answer(self, is_late: Callable[[], bool] = lambda: False) -> Answer | None:
        """Return the next answer among the received bytes, in order, or None if more bytes are needed. `is_late`: True
        once reading them has taken too long.

        Raises ProtocolError and closes the connection.
        """
        try:
            while (frame := self._next_frame()) is not None:
                answer = self._answer(frame, is_late)
                if answer is not None:
                    return answer
        except ProtocolError:
            self._step(Input.ERROR)
            raise
        return None

    def _next_frame(self) -> bytes | None:
        if self.state is State.CLOSED or len(self._received) < _SIZE_BYTES:
            return None
        size = int.from_bytes(self._received[:_SIZE_BYTES], "big", signed=True)
        if not _CORRELATION_ID_BYTES <= size <= self._largest_frame():
            raise _not_a_size(size, bytes(self._received[:_SIZE_BYTES]))
        if not self._in_flight:
            raise ProtocolError(f"{size} bytes that answer no request")
        end = _SIZE_BYTES + size
        if len(self._received) < end:
            return None
        with memoryview(self._received) as received:
            frame = bytes(received[_SIZE_BYTES:end])
        del self._received[:end]
        return frame

    @property
    def _due(self) -> _InFlight | None:
        """The request that the next response answers."""
        return next((entry for entry in self._in_flight if entry.expect_response), None)

    def _largest_frame(self) -> int:
        """Return the most bytes of the answer that is due. A peer that sends more is not listened to."""
        entry = self._due
        if entry is None or entry.own or not self._was_open:
            return min(self._max_frame_bytes, MAX_HANDSHAKE_FRAME_BYTES)
        return min(self._max_frame_bytes, entry.request.largest_frame())

    def _answer(self, frame: bytes, is_late: Callable[[], bool]) -> Answer | None:
        entry = self._due
        if entry is None or not entry.sent:
            raise ProtocolError("an answer to a request that was not sent yet")
        correlation_id = int.from_bytes(frame[:_CORRELATION_ID_BYTES], "big", signed=True)
        if correlation_id != entry.correlation_id:
            raise ProtocolError(f"correlation id {correlation_id} where {entry.correlation_id} is due")
        response = decode_response(entry.request, entry.version, frame, is_late)
        self._in_flight.remove(entry)
        if entry.own:
            self._on_own_answer(response)
            return None
        return Answer(entry.token, entry.request, response)

    def _on_own_answer(self, response: Response) -> None:
        match response:
            case ApiVersionsResponse():
                self._negotiated(response)
            case SaslHandshakeResponse():
                self._mechanism_agreed(response)
            case SaslAuthenticateResponse():
                self._challenged(response)
            case MetadataResponse():
                self.cluster_id, self.throttle_time_ms = response.cluster_id, response.throttle_time_ms
                self.brokers = response.brokers if self.is_misrouted else ()
                self._step(Input.IDENTIFIED)
        if self.state is State.OPEN:
            self._was_open = True

    @property
    def _names_the_broker(self) -> bool:
        """True while the version of ApiVersions has the name of the broker."""
        return self._negotiate_in >= NAMES_THE_BROKER

    def _negotiated(self, response: ApiVersionsResponse) -> None:
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED and self._names_the_broker:
            self.is_misrouted = True
            self._negotiate_in = NAMES_THE_BROKER - 1
            self._own_request = self._software
            return
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION and self._negotiate_in > 0:
            # Brokers before Kafka 2.4 name no version (ApiVersionsResponse.defaultApiVersionsResponse).
            _, highest = response.ranges.get(self._software.api.key, (0, 0))
            self._negotiate_in = max(0, min(highest, self._negotiate_in - 1))
            self._own_request = self._software
            return
        if response.error_code != ErrorCode.NONE:
            raise ProtocolError(f"the broker refused ApiVersions: {error_name(response.error_code)}")
        self.ranges = MappingProxyType(dict(response.ranges))
        self.finalized_features = MappingProxyType(dict(response.finalized_features))
        self._check_guarantees()
        if self._names_the_broker:
            self.cluster_id, self.throttle_time_ms = self._software.cluster_id, response.throttle_time_ms
        if self._authentication is None:
            self._trusted(Input.VERSIONS)
            return
        self._step(Input.SECURED)
        handshake = SaslHandshakeRequest(self._authentication.name_for_brokers)
        if self.version_for(handshake) is None or self.version_for(SaslAuthenticateRequest(b"")) is None:
            raise self._authentication.refused("the broker has no SASL that can be spoken with it")
        self._own_request = handshake

    def _check_guarantees(self) -> None:
        if self._guarantees and ProduceRequest.api.key not in self.ranges:
            raise ProtocolError("the peer takes no Produce requests, like a controller's listener")
        for guarantee in self._guarantees:
            if missing := lacking(self.ranges, guarantee):
                raise ApisMissing(guarantee=guarantee.name, missing=missing)

    def _trusted(self, happened: Input) -> None:
        """Open the connection, or ask for the cluster id first, if configured and not done before."""
        if not self._identify or self._was_open or self._names_the_broker:
            self._step(happened)
            return
        if self.version_for(_BROKERS) is None:
            raise ProtocolError("the broker takes no version of Metadata that this client speaks")
        self._step(Input.IDENTIFY)
        self._own_request = _BROKERS

    # --- authentication -----------------------------------------------------------------------------------------------

    def _mechanism_agreed(self, response: SaslHandshakeResponse) -> None:
        assert self._authentication is not None
        match response.error_code:
            case ErrorCode.NONE:
                self._respond(None)
            case ErrorCode.UNSUPPORTED_SASL_MECHANISM:
                offered = self._authentication.shown(", ".join(response.mechanisms))
                raise self._authentication.refused(f"the broker does not offer it here; it offers: {offered or 'none'}")
            case ErrorCode.ILLEGAL_SASL_STATE if not self._was_open:
                raise self._authentication.refused(
                    "the broker expects no authentication here; set kafka.security.protocol to SSL or PLAINTEXT, or "
                    "use the port of its SASL listener"
                )
            case code:
                raise ProtocolError(f"the broker refused SaslHandshake: {error_name(code)}")

    def _challenged(self, response: SaslAuthenticateResponse) -> None:
        assert self._authentication is not None
        if response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED:
            said = self._authentication.shown(response.error_message)
            raise self._authentication.refused(
                f"the broker refused ({said or error_name(response.error_code)})", self._authentication.login.if_refused
            )
        if response.error_code != ErrorCode.NONE:
            raise ProtocolError(f"the broker refused SaslAuthenticate: {error_name(response.error_code)}")
        self.session_lifetime_ms = response.session_lifetime_ms
        self._respond(response.auth_bytes)

    def _respond(self, challenge: bytes | None) -> None:
        assert self._authentication is not None
        response = self._authentication.exchange.respond(challenge)
        if isinstance(response, bytes):
            self._own_request = SaslAuthenticateRequest(response)
            return
        if response is not None:
            self.computation = response
            return
        # The credentials are not needed any more.
        self._authentication = None
        self._trusted(Input.AUTHENTICATED)

    @property
    def too_slow(self) -> str:
        """What happened if `computation` takes too long."""
        assert self._authentication is not None, "only an authentication computes"
        return self._authentication.too_slow

    def computed(self, response: bytes) -> None:
        """Take the result of `computation`; `own_request` then returns the bytes to send."""
        self.computation = None
        self._own_request = SaslAuthenticateRequest(response)

    # --- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> list[Answer]:
        """End the connection. Return the requests in flight, oldest first, without responses; empty the second time."""
        self._step(Input.CLOSE)
        lost = [Answer(entry.token, entry.request, None) for entry in self._in_flight if not entry.own]
        self._in_flight.clear()
        self._unsent.clear()
        self._received.clear()
        return lost

    def _step(self, happened: Input) -> None:
        after = TRANSITIONS[self.state].get(happened)
        if after is None:
            raise RuntimeError(f"{happened.name} on a connection that is {self.state.name}")
        self.state = after


def _not_a_size(size: int, start: bytes) -> ProtocolError:
    """Return an error that names the likely protocol of a peer whose first four bytes are no valid size."""
    if start == b"HTTP":
        return ProtocolError("the peer speaks HTTP; check the port")
    # A TLS record: its type (alert, handshake), then version 3.x (RFC 8446, section 5.1).
    if start[:2] in (b"\x15\x03", b"\x16\x03"):
        return TlsExpected("the peer speaks TLS and this connection is plaintext")
    return ProtocolError(f"a frame of {size} bytes")

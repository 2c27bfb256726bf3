"""Everything that takes bytes from a peer, as functions of bytes, with valid bytes to begin from.

    an API's answer    the first byte chooses request and version; the rest is a frame, whose meaning is then used
    connection, ...    the first byte chooses how many bytes come at a time; the rest is all that a broker says
    client, ...        the same, to the client of all brokers
    challenges, ...    lines, each what a broker says at one step of SASL
    decision, marker   texts that a broker has kept for us
    token endpoint     what is answered to an HTTP request
    JKS                a file that a user may have from anybody
    record set         the records of a Fetch answer, to both kernels; the first byte chooses what is wanted
    registry records   framed records of Avro, by the kernel and without it, JSON and Protobuf; the first byte chooses

What a decoder may raise is in its row: the project's own errors, or nothing at all where trouble has to be an event.

Non-obvious: SCRAM's key is derived with one iteration, whatever the broker asks for. 4,096 of them would take ten
thousand times as long as the rest; that there are never more than `sasl.MAX_ITERATIONS`, test_sasl.py checks.
"""

import contextlib
import hashlib
import hmac
import io
import itertools
import random
import socket
import struct
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import pyarrow as pa

from fuzz import registry_records
from fuzz.answers import EXCHANGES, ORDERS, Exchange, answer
from fuzz.java_stores import jks_file, protected_key
from fuzz.record_sets import record_set, set_with_a_gap, zstd_of_frames
from kafka_sink.cli import transactions_text
from kafka_sink.commit.handover import Sink
from kafka_sink.commit.markers import Decision, Ids, Marker, Names, digest_of
from kafka_sink.commit.open_transactions import Seen
from kafka_sink.errors import KafkaSinkError, ProtocolError, RecordUndecodable, TokenUnavailable, UnreadableState
from kafka_sink.kafka.auth.oauth import TokenEndpoint, Tokens, subject_of
from kafka_sink.kafka.metadata import Metadata
from kafka_sink.kafka.net import jks
from kafka_sink.kafka.net.network_client import NetworkClient, NetworkSettings
from kafka_sink.kafka.net.transport import Address, Buffer, Connected, Disconnected, Event, Received, Sent
from kafka_sink.kafka.protocol import sasl
from kafka_sink.kafka.protocol.api import Response
from kafka_sink.kafka.protocol.apis import all_apis
from kafka_sink.kafka.protocol.apis.groups import OffsetFetchResponse
from kafka_sink.kafka.protocol.apis.handshake import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest, MetadataResponse
from kafka_sink.kafka.protocol.apis.transaction_state import (
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsResponse,
    TransactionDescription,
)
from kafka_sink.kafka.protocol.apis.transactions import EndTxnRequest, InitProducerIdRequest
from kafka_sink.kafka.protocol.connection import Connection, State
from kafka_sink.kafka.protocol.requests import decode_response, encode_request, select_version
from kafka_sink.kafka.protocol.sasl import (
    MAX_STEPS,
    MECHANISMS,
    Authentication,
    KerberosLogin,
    Login,
    PasswordLogin,
    TokenLogin,
    authentication,
)
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.records.arrow_rows import TYPES
from kafka_sink.records.batch_table import Undecodable
from kafka_sink.records.decoder import Limits, RecordSetDecoder
from kafka_sink.records.kernel import Kernel, compiled_kernel, fallback
from kafka_sink.records.record_batch import AbortedTransaction, headers, is_damaged_length, outline

NAMES = Names("s", "state")
SINK = Sink(NAMES, timeout_ms=60_000, transaction_version=2)


@dataclass(frozen=True, slots=True)
class Decoder:
    """`decode` may raise `errors`. `seeds` it understands. `share`: of all inputs, beside those of the others."""

    name: str
    decode: Callable[[bytes], object]
    errors: tuple[type[KafkaSinkError | ValueError], ...]
    seeds: Sequence[bytes] = field(repr=False)
    share: int = 12


# --- answers ----------------------------------------------------------------------------------------------------------


def _api(name: str) -> Decoder:
    asked = [
        (exchange, version) for exchange in EXCHANGES if exchange.api.name == name for version in exchange.versions()
    ]

    def decode(data: bytes) -> None:
        exchange, version = asked[data[0] % len(asked)] if data else asked[0]
        _use(exchange, decode_response(exchange.request, version, data[1:]))

    seeds = [
        bytes([choice]) + frame
        for choice, (exchange, version) in enumerate(asked)
        for frame in exchange.frames(version)
    ]
    return Decoder(name, decode, (ProtocolError, UnreadableState), seeds)


def _use(exchange: Exchange, response: Response) -> None:
    """What is made of an answer first, wherever that depends on what is in it."""
    match response:
        case ApiVersionsResponse(ranges=ranges):
            for other in EXCHANGES:
                select_version(other.request, ranges)
        case MetadataResponse():
            metadata = Metadata(
                max_age_ms=1, max_idle_ms=1, backoff_initial_ms=1, backoff_max_ms=1, rng=random.Random(1)
            )
            metadata.update(response, now_ms=0)
            metadata.update(response, now_ms=1)
        case OffsetFetchResponse(groups=groups):
            for group in groups:
                Marker.read(group.group_id, group.offset, group.metadata)
        case ListTransactionsResponse(transactions=listed):
            seen = Seen({each.transactional_id: _description(each) for each in listed}, (), {})
            seen.of(SINK)
            seen.busy_sinks()
        case DescribeTransactionsResponse(transactions=described):
            for each in described:
                transactions_text.aborted(each)


def _description(listed: ListedTransaction) -> TransactionDescription:
    return TransactionDescription(
        listed.transactional_id, 0, "Ongoing", 1, 1, listed.producer_id, 0, (TopicPartition("orders", 0),)
    )


# --- connections ------------------------------------------------------------------------------------------------------

SOFTWARE = ApiVersionsRequest("test", "1")
ASKED = (InitProducerIdRequest(1), MetadataRequest(("orders",), False))
NONCE = "fyko+d2lbbFgONRv9qkxdawL"
PASSWORD = PasswordLogin("alice", "hunter2")
TOKEN = TokenLogin("app", "abc.def.ghi")


class ScriptedKerberos:
    """A security context that is established by the broker's b"rep", and wraps nothing."""

    def step(self, token: bytes) -> tuple[bytes, bool]:
        return b"token", token == b"rep"

    def wrap(self, message: bytes) -> bytes:
        return message

    unwrap = wrap


def _most_own_requests(mechanism: str | None) -> int:
    """ApiVersions in each of its versions, SaslHandshake, two SaslAuthenticates and Metadata: only GSSAPI has more to
    say, whatever a broker says."""
    versions = SOFTWARE.api.max_version + 1
    return versions + (3 + MAX_STEPS if mechanism == "GSSAPI" else 4)


class Endless(Exception):
    """A broker could keep the client busy for ever."""


def _begun(mechanism: str) -> Authentication:
    logins: dict[str, Login] = {
        "OAUTHBEARER": TOKEN,
        "AWS_MSK_IAM": TOKEN,
        "GSSAPI": KerberosLogin("app@REALM", ScriptedKerberos()),
    }
    return authentication(mechanism, logins.get(mechanism, PASSWORD), lambda: NONCE)


def _chunks(data: bytes) -> Iterator[bytes]:
    """As many bytes at a time as the first one says; 0: as many as a frame says that it has."""
    position = 1
    while position < len(data):
        of_frame = 4 + int.from_bytes(data[position : position + 4], "big")
        size = data[0] or of_frame
        yield data[position : position + size]
        position += size


def _connection(mechanism: str | None) -> Decoder:
    def decode(data: bytes) -> None:
        connection = Connection(
            client_id="me", software=SOFTWARE, authentication=None if mechanism is None else _begun(mechanism),
            identify=True,
        )  # fmt: skip
        connection.start()
        connection.sent()
        own_requests, asked, is_renewed = 1, False, mechanism is None
        for chunk in _chunks(data):
            connection.receive(chunk)
            while connection.next_answer() is not None:
                pass
            if mechanism == "GSSAPI" and connection.computation is not None:
                connection.computed(connection.computation())
            if connection.own_request():
                connection.sent()
                own_requests += 1
                if own_requests > _most_own_requests(mechanism):
                    raise Endless(f"request {own_requests} of the connection itself")
            elif connection.state is State.OPEN and not asked:
                asked = True
                for request in ASKED:
                    if connection.version_for(request) is not None:
                        connection.send(request)
                        connection.sent()
            elif connection.state is State.OPEN and connection.session_lifetime_ms > 0 and not is_renewed:
                assert mechanism is not None
                is_renewed, own_requests = True, 2
                connection.reauthenticate(_begun(mechanism))
                connection.sent()

    with _one_iteration():
        seeds = [bytes([size]) + b"".join(_stream(mechanism)) for size in (0, 1)]
    if mechanism is None:
        seeds += [bytes(1) + b"".join(_stream_of_an_older_broker())]
    # Some twenty times as slow as an answer.
    return Decoder(f"connection {mechanism or 'in plaintext'}", _cheaply(decode), (ProtocolError,), seeds, share=1)


def _stream(mechanism: str | None) -> Iterator[bytes]:
    """All that a broker says to a connection that is used as above."""
    correlation_id = 0
    ranges = [{"api_key": a.key, "min_version": a.min_version, "max_version": a.max_version} for a in all_apis()]
    yield _framed(answer(SOFTWARE, 3, {"api_keys": ranges}, correlation_id))
    for is_again in (False, True) if mechanism is not None else ():
        assert mechanism is not None
        correlation_id += 1
        yield _framed(answer(SaslHandshakeRequest(mechanism), 1, {"mechanisms": [mechanism]}, correlation_id))
        for challenge in _right_challenges(mechanism):
            correlation_id += 1
            said = {"auth_bytes": challenge, "error_message": None}
            yield _framed(answer(SaslAuthenticateRequest(b""), 2, said, correlation_id))
        if not is_again:
            yield from _answers(correlation_id + 1)
            correlation_id += 1 + len(ASKED)
    if mechanism is None:
        yield from _answers(correlation_id + 1)


def _stream_of_an_older_broker() -> Iterator[bytes]:
    """The same: it does not know the version of the first request, and takes only the oldest ones (Kafka 2.1)."""
    ranges = [{"api_key": api.key, "min_version": 0, "max_version": api.min_version} for api in all_apis()]
    yield _framed(answer(SOFTWARE, 0, {"error_code": 35, "api_keys": []}))
    yield _framed(answer(SOFTWARE, 0, {"api_keys": ranges}, 1))
    producer_id, metadata = (request.versions()[0] for request in ASKED)
    yield from _answers(2, producer_id, metadata)


def _answers(correlation_id: int, producer_id_version: int = 5, metadata_version: int = 13) -> Iterator[bytes]:
    """To the connection's own question which cluster it is, and to what is asked over it."""
    which = MetadataRequest((), allow_auto_topic_creation=False)
    yield _framed(answer(which, metadata_version, {"topics": []}, correlation_id))
    correlation_id += 1
    topic = {"name": "orders", "topic_id": ORDERS, "partitions": [{"partition_index": 0}]}
    yield _framed(answer(ASKED[0], producer_id_version, {}, correlation_id))
    yield _framed(answer(ASKED[1], metadata_version, {"topics": [topic]}, correlation_id + 1))


def _framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


# --- a client ---------------------------------------------------------------------------------------------------------


@dataclass
class _Script:
    """A transport that says what it is told to say."""

    events: list[Event] = field(default_factory=list)
    key: int = -1

    def connect(self, key: int, address: Address) -> None:
        self.key = key

    def send(self, key: int, buffers: Sequence[Buffer], *, tell_at_once: bool = True) -> None:
        self.events.append(Sent(key))

    def poll(self, timeout_ms: int) -> list[Event]:
        assert timeout_ms >= 0
        events, self.events = self.events, []
        return events

    def close(self, key: int) -> None:
        pass

    def wakeup(self) -> None:
        pass

    def close_all(self) -> None:
        pass


def _client(mechanism: str | None) -> Decoder:
    settings = NetworkSettings(bootstrap_servers=(("boot", 9092),), client_id="me")
    address = Address(socket.AF_INET, ("10.0.0.1", 9092))

    def decode(data: bytes) -> None:
        transport = _Script()
        client = NetworkClient(
            transport, clock_ms=lambda: 0, rng=random.Random(1), settings=settings,
            resolve=lambda host, port: [address],
            authenticate=None if mechanism is None else lambda host: _begun(mechanism),
        )  # fmt: skip
        client.ready(-1, 0)
        transport.events.append(Connected(transport.key))
        asked = iter(ASKED)
        for chunk in _chunks(data):
            client.poll(0)
            if client.can_send(-1, 0) and (request := next(asked, None)):
                client.send(-1, request, 0)
                client.poll(0)
            transport.events.append(Received(transport.key, chunk))
            for answered in client.poll(0):
                if isinstance(answered.response, MetadataResponse):
                    client.update_brokers(answered.response.brokers)
                    client.least_loaded_node(0)
        transport.events.append(Disconnected(transport.key, "the end"))
        client.poll(0)
        client.close()

    with _one_iteration():
        seeds = [bytes([size]) + b"".join(_stream(mechanism)) for size in (0, 9)]
    # Trouble with a broker is news, not an exception.
    return Decoder(f"client {mechanism or 'in plaintext'}", _cheaply(decode), (), seeds, share=1)


# --- SASL -------------------------------------------------------------------------------------------------------------

_DERIVE = hashlib.pbkdf2_hmac


@contextlib.contextmanager
def _one_iteration() -> Iterator[None]:
    def derived(digest: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        return _DERIVE(digest, password, salt, 1)

    with mock.patch.object(hashlib, "pbkdf2_hmac", derived):
        yield


def _cheaply(decode: Callable[[bytes], None]) -> Callable[[bytes], None]:
    def decoded(data: bytes) -> None:
        with _one_iteration():
            decode(data)

    return decoded


def _right_challenges(mechanism: str) -> Iterable[bytes]:
    if mechanism == "GSSAPI":
        return [b"rep", b"\x01\x00\x00\x00", b""]
    if not mechanism.startswith("SCRAM"):
        return [b""]
    digest = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
    exchange = _begun(mechanism).exchange
    first_bare = _said(exchange, None).removeprefix(b"n,,")
    server_first = f"r={NONCE}3rfcNHYJY1ZVvWVs7j,s={b64encode(b'some salt').decode()},i=4096".encode()
    final_bare = _said(exchange, server_first).rpartition(b",p=")[0]
    salted = hashlib.pbkdf2_hmac(digest, PASSWORD.secret.encode(), b"some salt", 4096)
    key = hmac.digest(salted, b"Server Key", digest)
    signature = hmac.digest(key, b",".join((first_bare, server_first, final_bare)), digest)
    return [server_first, b"v=" + b64encode(signature)]


def _said(exchange: sasl.Exchange, challenge: bytes | None) -> bytes:
    said = exchange.respond(challenge)
    return said() if callable(said) else said or b""


def _challenges(mechanism: str) -> Decoder:
    def decode(data: bytes) -> None:
        begun = _begun(mechanism)
        challenges = iter(data.split(b"\n"))
        challenge: bytes | None = None
        for _ in range(_most_own_requests(mechanism) - 1):
            if not _said(begun.exchange, challenge):
                return
            challenge = next(challenges, b"")
            begun.shown(challenge.decode("utf-8", "replace"))
        raise Endless(f"{mechanism} goes on after {_most_own_requests(mechanism) - 2} challenges")

    with _one_iteration():
        seeds = [b"\n".join(_right_challenges(mechanism))]
    return Decoder(f"challenges of {mechanism}", _cheaply(decode), (ProtocolError,), seeds)


# --- tokens -----------------------------------------------------------------------------------------------------------


class _Answered(socket.socket):
    """A socket on which somebody has said something."""

    def __init__(self, said: bytes) -> None:
        super().__init__()
        self._said = said

    def makefile(self, *args: object, **words: object) -> Any:
        return io.BytesIO(self._said)

    def sendall(self, *args: object) -> None:
        pass


def _token_endpoint() -> Decoder:
    endpoint = TokenEndpoint(
        url="http://idp/token", client_id="me", client_secret="hunter2", scope=None, header_urlencode=False,
        contexts=None,
    )  # fmt: skip

    def decode(data: bytes) -> None:
        with mock.patch.object(socket, "create_connection", lambda *args: _Answered(data)):
            tokens = Tokens(lambda: endpoint.fetch(lambda: 1_700_000_000.5), clock_s=lambda: 1.0)
            subject_of(tokens.current())

    claims = b64encode(b'{"sub":"app","exp":1700000300}').decode().rstrip("=")
    bodies = ['{"access_token":"abc.def","expires_in":60}', f'{{"access_token":"abc.{claims}.ghi"}}']
    answers = [f"Content-Length: {len(body)}\r\n\r\n{body}" for body in bodies]
    answers.append(f"Transfer-Encoding: chunked\r\n\r\n{len(bodies[0]):x}\r\n{bodies[0]}\r\n0\r\n\r\n")
    seeds = [f"HTTP/1.1 200 OK\r\n{answer}".encode() for answer in answers]
    return Decoder("token endpoint", decode, (TokenUnavailable,), seeds)


# --- what the commit wrote down ---------------------------------------------------------------------------------------


def _decision() -> Decoder:
    def decode(data: bytes) -> None:
        texts = data.decode("utf-8", "replace").split("\n")
        # As `requests.read_decision` asks for the others: `MAX_PARTS` of them are 7 MB of names, made here one by one.
        for part in range(1, Decision.parts("g", 7, texts[0])):
            NAMES.decision(part)
        decision = Decision.read([("g", 7, text) for text in texts])
        # As `ending.finish` ends what it names.
        for ids in decision.pinned:
            if ids is not None:
                encode_request(
                    EndTxnRequest("s.0", ids.producer_id, ids.producer_epoch, True, decision.transaction_version),
                    version=5, correlation_id=1, client_id="me",
                )  # fmt: skip

    decision = Decision(7, "q", Ids(4000, 3), 2, 1_760_000_000_000, (Ids(1, 1), None, Ids(2**40, 2)), ("orders", "t"))
    rested = replace(decision, digests=tuple(map(digest_of, "abc")), resting=frozenset({2}))
    seeds = ["\n".join(each.texts(room)).encode() for each in (decision, rested) for room in (4096, 70)]
    return Decoder("decision", decode, (UnreadableState,), seeds)


def _marker() -> Decoder:
    def decode(data: bytes) -> None:
        Marker.read("g", 7, data.decode("utf-8", "replace"))

    return Decoder("marker", decode, (UnreadableState,), [Marker(7, "q", "f" * 32).text.encode()])


# --- files ------------------------------------------------------------------------------------------------------------


def _jks() -> Decoder:
    def decode(data: bytes) -> None:
        store = jks.read_jks(data, None)
        for key in store.keys:
            key.unlocked("changeit")

    plain = b"a private key in DER"
    seeds = [jks_file([b"ca"], [(protected_key(plain), [b"leaf", b"root"])], version=version) for version in (1, 2)]
    return Decoder("JKS", decode, (jks.DamagedStore, jks.WrongPassword), seeds)


# --- record sets ------------------------------------------------------------------------------------------------------


class Differ(Exception):
    """The two kernels see different things in the same bytes."""


def _record_set() -> Decoder:
    # So small that the limits are reached. Of ten bytes a codec makes all that a batch may have, of each batch again.
    limits = Limits(most_rows=40, most_bytes=4_000, most_batch_bytes=8_192)
    most_arrow_batches = 10
    kernels = [fallback()]
    with contextlib.suppress(ImportError):
        kernels.append(compiled_kernel())

    def read(kernel: Kernel, data: bytes) -> tuple[list[pa.RecordBatch], int, int, Undecodable | None]:
        choice = data[0] if data else 0
        reading = RecordSetDecoder(
            data[1:],
            first_offset=1 if choice & 1 else 0,
            end_offset=6 if choice & 2 else 2**63 - 1,
            columns=("headers", "offset") if choice & 4 else tuple(TYPES),
            aborted=(AbortedTransaction(1, 2),) if choice & 8 else (),
            # A guess seldom has the right CRC, so that most inputs would end there.
            check_crcs=bool(choice & 16),
            limits=limits,
            kernel=kernel,
        )
        found = []
        try:
            for rows in itertools.islice(reading, most_arrow_batches):
                rows.validate(full=True)
                found.append(rows)
        except Undecodable as error:
            # Else its traceback holds what one kernel has made while the other one works.
            error.__cause__ = error.__context__ = None
            return found, reading.next_offset, reading.used_bytes, error.with_traceback(None)
        return found, reading.next_offset, reading.used_bytes, None

    def decode(data: bytes) -> None:
        # As the fetcher looks at an answer before it is decoded.
        outline(memoryview(data[1:]), 1, 6)
        for header in headers(memoryview(data[1:])):
            is_damaged_length(memoryview(data[1:]), header)
        seen = [read(kernel, data) for kernel in kernels]
        *expected, error = seen[0]
        for *others, other in seen[1:]:
            if others != expected or repr(other) != repr(error):
                raise Differ(f"{seen}")
        if error is not None:
            raise error

    everything = b"".join(record_set())
    seeds = [bytes([choice]) + everything for choice in range(32)]
    seeds += [bytes(1) + batch for batch in record_set()]
    seeds += [bytes([16]) + set_with_a_gap(), bytes([16]) + zstd_of_frames()]
    return Decoder("record set", decode, (Undecodable,), seeds, share=24)


DECODERS: tuple[Decoder, ...] = (
    *(_api(name) for name in dict.fromkeys(api.name for api in all_apis())),
    *(_connection(mechanism) for mechanism in (None, *MECHANISMS)),
    *(_client(mechanism) for mechanism in (None, "SCRAM-SHA-512")),
    *(_challenges(mechanism) for mechanism in MECHANISMS), _token_endpoint(), _decision(), _marker(), _jks(),
    _record_set(),
    Decoder("registry records", registry_records.decode(), (RecordUndecodable,), registry_records.seeds()),
)  # fmt: skip
BY_NAME = {decoder.name: decoder for decoder in DECODERS}

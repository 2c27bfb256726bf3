"""Canaries: a text that is nowhere else stands in every secret option, every way to fail is gone, and everything that
could be seen is searched for it."""

from __future__ import annotations

import io
import logging
import pickle
import random
import re
import socket
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, redirect_stderr, redirect_stdout
from typing import Any

import pytest

from certificates import Authority
from kafka_sink import errors
from kafka_sink.client import lease
from kafka_sink.clock import monotonic_ms
from kafka_sink.config import given_options, sink_config
from kafka_sink.errors import KafkaSinkError
from kafka_sink.jaas import MODULES
from kafka_sink.options import OPTIONS, REFUSED, Secret
from kafka_sink.spark.source import KafkaDataSource

CANARY = "canary-5e1b"
CA = Authority()
ALICE = CA.issue("alice", password=CANARY)
PLAIN = next(iter(MODULES))
SERVERS = {"kafka.bootstrap.servers": "localhost:1", "kafka.max.block.ms": "1000", "topic": "t"}
USER = {"kafka.sasl.username": "alice", "kafka.sasl.password": CANARY}
SASL = {**USER, "kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "SCRAM-SHA-256"}
# A value that is valid, with the canary in it, for every secret option.
SECRETS = {
    "kafka.ssl.keystore.key": f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----",
    "kafka.ssl.key.password": CANARY,
    "kafka.sasl.jaas.config": f'{PLAIN} required username="alice" password="{CANARY}";',
    "kafka.sasl.password": CANARY,
    "kafka.sasl.oauthbearer.client.credentials.client.secret": CANARY,
}


def seen_in(error: BaseException) -> str:
    """What a log, a stack trace with its causes, and the pickled error on its way to the driver show."""
    again = pickle.loads(pickle.dumps(error))
    return "".join([*traceback.format_exception(error), repr(error), repr(vars(error)), str(again), repr(vars(again))])


@pytest.fixture(autouse=True)
def nothing_said(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG)
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        yield
    assert CANARY not in out.getvalue() + caplog.text


def test_every_secret_option_has_its_canary() -> None:
    assert {option.name for option in OPTIONS if option.redact} == SECRETS.keys()
    # Whatever is called a password, a secret, a key or a credential is one.
    for option in OPTIONS:
        if option.name.endswith((".key", ".jaas.config")) or re.search("password|secret", option.name.lower()):
            assert option.redact


@pytest.mark.parametrize("name", SECRETS)
def test_what_carries_a_secret_does_not_show_it(name: str) -> None:
    texts = {**SERVERS, name: SECRETS[name]}
    given = given_options(texts)
    (secret,) = (value for value in given.values() if isinstance(value, Secret))
    source = KafkaDataSource(texts)
    for carrier in (given, secret, str(secret), f"{secret}", given_options({f"{name}": SECRETS[name]})):
        assert CANARY not in repr(carrier)
    assert CANARY not in repr(source)
    assert pickle.loads(pickle.dumps(secret)) == secret


@pytest.mark.parametrize("name", SECRETS)
@pytest.mark.parametrize("prefix", ["", "spark.pykafka."])
def test_no_wrong_value_is_shown(name: str, prefix: str) -> None:
    for text in (CANARY, SECRETS[name][:-3], f"{SECRETS[name]}x", "", f'{PLAIN} required password="{CANARY}'):
        for options, conf in (({name: text}, {}), ({}, {f"spark.pykafka.{name}": text})):
            try:
                sink_config({**SERVERS, **options, "kafka.ssl.keystore.location": "x.pem"}, conf)
            except KafkaSinkError as error:
                assert CANARY not in seen_in(error)


@pytest.mark.parametrize("name", [*REFUSED, "kafka.sasl.pasword", "kafka.ssl.keystore.kei", "sasl.password"])
def test_no_value_of_a_name_that_is_refused_or_unknown_is_shown(name: str) -> None:
    with pytest.raises(KafkaSinkError) as failure:
        sink_config({**SERVERS, name: CANARY})
    assert CANARY not in seen_in(failure.value)


# --- peers ------------------------------------------------------------------------------------------------------------


class Peer:
    """Answers whatever it is told with `says`, one connection after the other, with the canary in it."""

    def __init__(self, says: Callable[[socket.socket], None]) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.says = says
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    @property
    def options(self) -> dict[str, str]:
        return {**SERVERS, "kafka.bootstrap.servers": f"127.0.0.1:{self.listener.getsockname()[1]}"}

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with closing(connection):
                connection.settimeout(5)
                try:
                    self.says(connection)
                except OSError:
                    continue

    def close(self) -> None:
        # A blocked accept does not notice a close from another thread.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(5)


def frame(connection: socket.socket) -> bytes:
    with connection.makefile("rb") as stream:
        return stream.read(int.from_bytes(stream.read(4), "big"))


def answer(connection: socket.socket, request: bytes, body: bytes, header: bytes = b"") -> None:
    whole = request[4:8] + header + body
    connection.sendall(len(whole).to_bytes(4, "big") + whole)


VERSIONS = b"\0\0" + b"\3" + b"\0\x11\0\0\0\1\0" + b"\0\x24\0\0\0\2\0" + b"\0\0\0\0\0"


def speaking_http(connection: socket.socket) -> None:
    connection.sendall(f"HTTP/1.1 400 {CANARY}".encode())


def handshaking(mechanism_code: int = 0) -> Callable[[socket.socket], None]:
    def says(connection: socket.socket) -> None:
        answer(connection, frame(connection), VERSIONS)
        names = CANARY.encode()
        answer(
            connection,
            frame(connection),
            mechanism_code.to_bytes(2, "big") + b"\0\0\0\1" + len(names).to_bytes(2, "big") + names,
        )
        if not mechanism_code:
            message = f"wrong: {CANARY}".encode()
            refused = (58).to_bytes(2, "big") + bytes([len(message) + 1]) + message + b"\1" + bytes(9)
            answer(connection, frame(connection), refused, b"\0")
        connection.recv(1)

    return says


PEERS: dict[str, tuple[Callable[[socket.socket], None], dict[str, str], type[KafkaSinkError]]] = {
    "hangs up": (lambda connection: None, SASL, errors.BrokersUnreachable),
    "is no broker": (speaking_http, SASL, errors.BrokersUnreachable),
    "speaks TLS": (lambda connection: connection.sendall(b"\x15\x03\x03\x00\x02\x02\x46"), SASL, errors.TlsFailed),
    "speaks plaintext": (
        speaking_http,
        {**SASL, "kafka.security.protocol": "SASL_SSL", "kafka.ssl.truststore.certificates": CA.certificate},
        errors.TlsFailed,
    ),
    "offers another mechanism": (handshaking(33), SASL, errors.AuthenticationFailed),
    "refuses the password and repeats it": (
        handshaking(),
        {**SASL, "kafka.sasl.mechanism": "PLAIN", "allowPlaintextCredentials": "true"},
        errors.AuthenticationFailed,
    ),
    "refuses SCRAM and repeats the password": (handshaking(), SASL, errors.AuthenticationFailed),
}


@pytest.mark.parametrize("peer", PEERS)
def test_no_peer_makes_the_sink_show_a_secret(peer: str) -> None:
    says, options, kind = PEERS[peer]
    with closing(Peer(says)) as server, pytest.raises(kind) as failure:
        config = sink_config({**server.options, **options, "kafka.client.id": f"{peer}{random.random()}"}).producer
        with lease(config) as producer:
            producer.await_topics(frozenset({"t"}), (), monotonic_ms())
    assert CANARY not in seen_in(failure.value)
    assert CANARY not in repr(producer.metrics.snapshot(0)) + producer._network.last_error
    assert CANARY not in repr(config)


@pytest.mark.parametrize(
    "changed",
    [
        {"kafka.ssl.keystore.certificate.chain": "nonsense"},
        {"kafka.ssl.keystore.key": f"nonsense {CANARY}"},
        {"kafka.ssl.key.password": f"{CANARY}!"},
        {"kafka.ssl.truststore.certificates": f"nonsense {CANARY}"},
    ],
)
def test_certificates_that_cannot_be_used_are_not_shown(changed: dict[str, str]) -> None:
    options = {
        **SERVERS,
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.certificates": CA.certificate,
        "kafka.ssl.keystore.certificate.chain": ALICE.chain,
        "kafka.ssl.keystore.key": ALICE.key,
        "kafka.ssl.key.password": CANARY,
        **changed,
    }
    with pytest.raises(KafkaSinkError) as failure, lease(sink_config(options).producer):
        pass
    assert CANARY not in seen_in(failure.value)
    assert isinstance(failure.value, errors.ConfigError)


def test_no_option_names_what_would_be_run() -> None:
    names: list[Any] = [option.name for option in OPTIONS]
    assert not [name for name in names if name.endswith((".class", ".classes", ".module", ".provider", ".providers"))]

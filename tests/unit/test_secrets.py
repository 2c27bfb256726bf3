"""Canaries: a text that is nowhere else stands in every secret option, every way to fail is gone, and everything that
could be seen is searched for it."""

import argparse
import io
import logging
import pickle
import random
import re
import socket
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import types as spark_types

from certificates import Authority
from effort import each, some
from kafka_sink import errors
from kafka_sink.cli.checkpoint import last_receipt
from kafka_sink.cli.transactions_text import tell_receipt
from kafka_sink.command_line import assignment
from kafka_sink.doctor.examinations import command, examine, look_at_hosts
from kafka_sink.errors import KafkaSinkError, WriteKind
from kafka_sink.errors.redaction import Secret, reason_for, redacted
from kafka_sink.kafka import connections
from kafka_sink.kafka.auth.jaas import MODULES
from kafka_sink.kafka.auth.security import authenticator, tls_contexts
from kafka_sink.kafka.clock import monotonic_ms
from kafka_sink.kafka.net.network_client import NetworkClient
from kafka_sink.kafka.protocol.apis.handshake import SaslAuthenticateRequest, SaslHandshakeRequest
from kafka_sink.monitoring.listener import ReceiptTotals
from kafka_sink.monitoring.micro_batch import Run
from kafka_sink.options.config import given_options, sink_config
from kafka_sink.options.table import OPTIONS, REFUSED
from kafka_sink.spark.kept_clients import lease_producer
from kafka_sink.spark.receipt_writer import leave_receipt, make_folder, write_receipt
from kafka_sink.spark.source import KafkaDataSource
from kafka_sink.spark.task_results import Identity, TaskCommitMessage, TaskProof
from scripted_peers import Behaviour, peer, scripted

CANARY = "canary-5e1b"
CA = Authority()
ALICE = CA.issue("alice", password=CANARY)
PLAIN = next(iter(MODULES))
SERVERS = {"kafka.bootstrap.servers": "localhost:1", "kafka.max.block.ms": "1000", "topic": "t"}
USER = {"kafka.sasl.username": "alice", "kafka.sasl.password": CANARY}
SASL = {**USER, "kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "SCRAM-SHA-256"}
IN_PLAIN = {**SASL, "kafka.sasl.mechanism": "PLAIN", "allowPlaintextCredentials": "true"}
SASL_SSL = {**SASL, "kafka.security.protocol": "SASL_SSL", "kafka.ssl.truststore.certificates": CA.certificate}
# A value that is valid, with the canary in it, for every secret option.
SECRETS = {
    "kafka.ssl.truststore.password": CANARY, "kafka.ssl.keystore.password": CANARY,
    "kafka.ssl.keystore.key": f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----",
    "kafka.ssl.key.password": CANARY,
    "kafka.sasl.jaas.config": f'{PLAIN} required username="alice" password="{CANARY}";', "kafka.sasl.password": CANARY,
    "kafka.sasl.oauthbearer.client.credentials.client.secret": CANARY,
}  # fmt: skip


def seen_in(error: BaseException) -> str:
    """What a log, a stack trace with its causes, and the pickled error on its way to the driver show."""
    again = pickle.loads(pickle.dumps(error))
    # Without frames, which show sources, not values, and are most of the time of this module.
    printed = traceback.format_exception(error, limit=0)
    return "".join([*printed, repr(error), repr(vars(error)), str(again), repr(vars(again))])


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
    for carrier in (given, secret, str(secret), f"{secret}", given_options({f"{name}": SECRETS[name]}), source):
        assert CANARY not in repr(carrier)
    assert pickle.loads(pickle.dumps(secret)) == secret


@pytest.mark.parametrize("name", SECRETS)
def test_no_wrong_value_is_shown(name: str) -> None:
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


def saying(words: bytes) -> Behaviour:
    return lambda sock: (sock.sendall(words), sock.close())


def handshaking(mechanism_code: int = 0) -> Behaviour:
    refused = {"error_code": 58, "error_message": f"wrong: {CANARY}"}
    return scripted([
        (SaslHandshakeRequest("PLAIN"), {"error_code": mechanism_code, "mechanisms": [CANARY]}),
        (SaslAuthenticateRequest(b""), refused),
    ])  # fmt: skip


SPEAKING_HTTP = saying(f"HTTP/1.1 400 {CANARY}".encode())
PEERS: dict[str, tuple[Behaviour, dict[str, str], type[KafkaSinkError]]] = {
    "hangs up": (saying(b""), SASL, errors.BrokersUnreachable),
    "is no broker": (SPEAKING_HTTP, SASL, errors.BrokersUnreachable),
    "speaks TLS": (saying(b"\x15\x03\x03\x00\x02\x02\x46"), SASL, errors.TlsFailed),
    "speaks plaintext": (SPEAKING_HTTP, SASL_SSL, errors.TlsFailed),
    "offers another mechanism": (handshaking(33), SASL, errors.AuthenticationFailed),
    "refuses the password and repeats it": (handshaking(), IN_PLAIN, errors.AuthenticationFailed),
    "refuses SCRAM and repeats the password": (handshaking(), SASL, errors.AuthenticationFailed),
}


@pytest.mark.parametrize("which", PEERS)
def test_no_peer_makes_the_sink_show_a_secret(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    networks: list[NetworkClient] = []

    def connect(*given: Any, **settings: Any) -> NetworkClient:
        networks.append(NetworkClient(*given, **settings))
        return networks[-1]

    monkeypatch.setattr(connections, "NetworkClient", connect)
    behaviour, options, kind = PEERS[which]
    with peer(behaviour) as port, pytest.raises(kind) as failure:
        servers = {**SERVERS, "kafka.bootstrap.servers": f"127.0.0.1:{port}"}
        if kind is not errors.BrokersUnreachable:
            servers["kafka.max.block.ms"] = "30000"  # however busy the machine is
        config = sink_config({**servers, **options, "kafka.client.id": f"{which}{random.random()}"}).producer
        with lease_producer(config) as producer:
            producer.await_topics(frozenset({"t"}), (), monotonic_ms())
    assert CANARY not in seen_in(failure.value)
    assert CANARY not in networks[0].last_error
    assert CANARY not in repr(config)


@pytest.mark.parametrize("changed", [
    {"kafka.ssl.keystore.certificate.chain": "nonsense"}, {"kafka.ssl.keystore.key": f"nonsense {CANARY}"},
    {"kafka.ssl.key.password": f"{CANARY}!"}, {"kafka.ssl.truststore.certificates": f"nonsense {CANARY}"},
])  # fmt: skip
def test_certificates_that_cannot_be_used_are_not_shown(changed: dict[str, str]) -> None:
    options = {
        **SERVERS, "kafka.security.protocol": "SSL", "kafka.ssl.truststore.certificates": CA.certificate,
        "kafka.ssl.keystore.certificate.chain": ALICE.chain, "kafka.ssl.keystore.key": ALICE.key,
        "kafka.ssl.key.password": CANARY, **changed,
    }  # fmt: skip
    with pytest.raises(KafkaSinkError) as failure, lease_producer(sink_config(options).producer):
        pass
    assert CANARY not in seen_in(failure.value)
    assert isinstance(failure.value, errors.ConfigError)


BASE64 = f"{CANARY}{'AbC1' * 16}"
# What people paste where it does not belong. No folder can be made of those that are paths.
SHAPES = {
    "URL with a user": f"https://alice:{CANARY}@host.example/path",
    "URL with a user and an unescaped password": f"https://alice:{CANARY}/x@y,{CANARY}@host.example:8080/path",
    "URL of object storage with keys": f"s3://AKIAEXAMPLE:{CANARY}@bucket/folder",
    "URL with a query": f"https://host.example/path?api_key={CANARY}",
    "URL with a fragment": f"https://host.example/path#{CANARY}",
    "URL whose host was forgotten": f"https://alice:{CANARY}/",
    "URL of a store of Java's": f"https://alice:{CANARY}@host.example/store.jks",
    "servers with a user": f"broker-0:9092,alice:{CANARY}@broker-1:9092", "user and password": f"alice:{CANARY}",
    "user, password and port": f"alice:{CANARY}:9092", "path with a user": f"/proc/alice:{CANARY}@host/ca.pem",
    "absolute path with a password": f"/proc/password={CANARY}/ca.pem",
    "PEM": f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----\n",
    "PEM behind a path": f"/proc/-----BEGIN PRIVATE KEY-----\\n{CANARY}\\n-----END PRIVATE KEY-----",
    "PEM without its lines": BASE64, "path of base64": f"/proc/{BASE64}", "JAAS": SECRETS["kafka.sasl.jaas.config"],
    "line of a properties file": f"sasl.password = {CANARY}", "JSON": f'{{"password": "{CANARY}"}}',
    "header": f"Authorization: Basic {CANARY}", "token": f"eyJhbGciOiJIUzI1NiJ9.{CANARY}.AbC",
}  # fmt: skip


def test_every_shape_is_a_way_to_show_a_secret_and_what_is_long_is_cut() -> None:
    for text in SHAPES.values():
        assert CANARY in text
        assert CANARY not in redacted(text)
    # What only begins as a time does.
    assert CANARY not in redacted(f"2026-11-01T00:00:{CANARY}")
    shown = redacted("x" * 3020)
    assert shown.endswith("xxx... (3020 characters)") and len(shown) == 500
    assert redacted(shown) == shown


@pytest.mark.parametrize("text", [
    "2026-11-01T00:00:00", "2026-11-01T01:00:00.5+01:00", "2026-11-01 00:00Z",
    "/etc/pki/ca.pem", "/var/private/ssl/kafka.client.truststore.jks", "s3://bucket/folder", "12 MB", "-1", "1e-6",
    "https://keycloak.example:8443/realms/r/protocol/openid-connect/token", "a:9092,[::1]:9092", "alice@example.com",
    "PLAINTEXT://a:9092", "a" * 400, "", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
])  # fmt: skip
def test_what_has_no_secret_is_shown_as_it_is(text: str) -> None:
    assert redacted(text) == text


def test_a_reason_that_quotes_a_part_of_the_value_is_not_shown() -> None:
    error = OSError(f"no bucket {CANARY}\nin a file of its sources")
    assert reason_for(f"s3://key:{CANARY}@bucket", error) == "OSError"
    assert reason_for("s3://bucket", OSError("no bucket.\nin a file of its sources")) == "no bucket"


@pytest.mark.parametrize("piece", ["pass", "a@", "key  ", "A1a", ":", "[", "[a", "://", "basic ", "-----", "?", "a:1,"])
def test_hiding_takes_time_in_proportion_to_the_text(piece: str) -> None:
    def seconds(count: int) -> float:
        text = piece * count
        started = time.thread_time()
        redacted(text)
        return time.thread_time() - started

    # Ten times as much; a quadratic one takes a hundred times as long.
    assert min(seconds(20_000) for _ in range(3)) < 40 * min(seconds(2_000) for _ in range(3)) + 0.01


def failure_of(step: Callable[[], object]) -> Iterator[BaseException | str]:
    try:
        yield repr(step())
    except KafkaSinkError as error:
        yield error


def failures_of(options: dict[str, str], folder: Path) -> Iterator[BaseException | str]:
    """All that can be seen of a write with `options`, by every way to fail before a broker answers."""
    schema = spark_types.StructType().add("value", "string")
    for conf in ({}, {f"spark.pykafka.{name}": text for name, text in options.items()}):
        given = {} if conf else options
        try:
            config = sink_config(given, conf)
        except KafkaSinkError as error:
            yield error
            continue
        yield repr(config) + repr(pickle.loads(pickle.dumps(config)))
        yield repr(config.producer.security.principal)
        yield command(config.producer)
        yield repr(TaskProof(config.receipts_path or "", Identity("q", 0, WriteKind.STREAM), "g", 0, 0, None))
        yield repr(examine(config))
        try:
            with lease_producer(config.producer) as producer:
                producer.await_topics(frozenset({"t"}), (), monotonic_ms())
        except KafkaSinkError as error:
            look_at_hosts(error, config.producer)
            yield error
        if config.receipts_path is not None:
            yield from receipt_failures(config.receipts_path)
        if config.producer.security.sasl_mechanism == "OAUTHBEARER":
            begin = authenticator(config.producer.security)
            yield from failure_of(lambda begin=begin: begin("host"))
    for source in (KafkaDataSource(options), KafkaDataSource({name.lower(): text for name, text in options.items()})):
        for plan in (source.writer, source.streamWriter):
            yield from failure_of(lambda plan=plan: plan(schema, False))


def receipt_failures(path: str) -> Iterator[BaseException | str]:
    proof = TaskProof(path, Identity("q", 0, WriteKind.STREAM), "at-least-once", 0, 0, None)
    message = TaskCommitMessage(spark_partition_id=0, record_count=0, partitions=(), proof=proof)
    yield repr(message)
    out = io.StringIO()
    with redirect_stdout(out):
        tell_receipt(path, last_receipt(path, "q"))
    yield out.getvalue()
    ReceiptTotals(path).written_in(Run("q", "r", 0))
    leave_receipt([message], sleep=lambda _: None)
    for write in (lambda: make_folder(path), lambda: write_receipt([message], sleep=lambda _: None)):
        yield from failure_of(write)


TOKENS = "http://127.0.0.1:1/"
CONTEXTS: dict[str, dict[str, str]] = {
    "kafka.ssl.": {"kafka.security.protocol": "SSL"},
    "kafka.sasl.oauthbearer.": {
        "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.token.endpoint.url": TOKENS, "allowedTokenUrls": TOKENS,
        "kafka.ssl.truststore.certificates": CA.certificate,
        "kafka.sasl.oauthbearer.client.credentials.client.id": "app",
        "kafka.sasl.oauthbearer.client.credentials.client.secret": CANARY,
    },
    "kafka.sasl.": {**SASL_SSL, "kafka.sasl.mechanism": "PLAIN"},
}  # fmt: skip
NAMES_OF_TOPICS = ("topic", "deadLetterTopic", "commitTopic")
NAMES = [option.name for option in OPTIONS if not option.redact]


@pytest.fixture
def no_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of hosts in values are looked up, which would take seconds each."""

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)


@pytest.mark.usefixtures("no_name_server")
@pytest.mark.parametrize("name", NAMES)
def test_a_secret_in_any_option_is_shown_by_no_error_report_or_configuration(name: str, tmp_path: Path) -> None:
    context = next((more for start, more in CONTEXTS.items() if name.startswith(start)), {})
    seen = 0
    shapes = dict(SHAPES)
    if name in NAMES_OF_TOPICS:
        # Anybody may see a topic's name, whatever letters and digits it is made of.
        shapes = {shape: text for shape, text in SHAPES.items() if not re.fullmatch("[A-Za-z0-9._-]+", text)}
    looked_at = some(list(shapes), key=name)
    for shape in looked_at:
        options = {**SERVERS, "kafka.max.block.ms": "1", **context, name: shapes[shape]}
        for found in failures_of(options, tmp_path):
            seen += 1
            assert CANARY not in (found if isinstance(found, str) else seen_in(found)), shape
    assert seen >= len(looked_at)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_secret_in_the_place_of_a_name_is_not_shown(shape: str) -> None:
    for name in (SHAPES[shape], f"kafka.{SHAPES[shape]}", f"kafka.sasl.login.{SHAPES[shape]}"):
        for options, conf in (({name: "x"}, {}), ({}, {f"spark.pykafka.{name}": "x"})):
            with pytest.raises(KafkaSinkError) as failure:
                sink_config({**SERVERS, **options}, conf)
            assert CANARY not in seen_in(failure.value)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_secret_that_is_given_as_a_user_name_is_not_shown_when_it_is_refused(shape: str) -> None:
    options = IN_PLAIN | {"kafka.sasl.username": SHAPES[shape], "kafka.client.id": f"{shape}{random.random()}"}
    options["kafka.max.block.ms"] = "30000"  # however busy the machine is
    with peer(handshaking()) as port, pytest.raises(errors.AuthenticationFailed) as failure:
        config = sink_config({**SERVERS, "kafka.bootstrap.servers": f"127.0.0.1:{port}", **options})
        with lease_producer(config.producer) as producer:
            producer.await_topics(frozenset({"t"}), (), monotonic_ms())
    assert CANARY not in seen_in(failure.value)
    assert CANARY not in str(errors.TransactionRefused(
        transactional_id="t", api="a", code=1, name="GROUP_AUTHORIZATION_FAILED"
    ).of_principal(config.producer.security.principal))  # fmt: skip


@pytest.mark.parametrize("store", [b"\xfe\xed\xfe\xed", b"\x30\x82", b"nonsense", None])
def test_a_location_with_a_secret_in_it_is_not_shown_whatever_the_file_is(store: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / f"alice:{CANARY}@ca"
    if store is not None:
        file.write_bytes(store)
    for kind in ("truststore", "keystore"):
        options = {**SERVERS, "kafka.security.protocol": "SSL", f"kafka.ssl.{kind}.location": str(file)}
        with pytest.raises(errors.ConfigError) as failure:
            tls_contexts(sink_config(options).producer.security)
        assert CANARY not in seen_in(failure.value)


@each("text", SHAPES.values())
def test_a_line_of_the_command_that_is_no_option_is_not_shown(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError) as failure:
        assignment(text.replace("=", ""))
    assert CANARY not in str(failure.value) or "password" in text


def test_no_option_names_what_would_be_run() -> None:
    # One without a field has no effect: the handler that AWS's documentation has for MSK.
    names: list[Any] = [option.name for option in OPTIONS if option.field is not None]
    assert not [name for name in names if name.endswith((".class", ".classes", ".module", ".provider", ".providers"))]

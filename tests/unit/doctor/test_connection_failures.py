"""One connection to peers that behave badly, and what is said of it. Real brokers: tests/integration/test_doctor.py."""

import errno
import hashlib
import secrets
import socket
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

import apis
from kafka_sink.doctor import connection_failures as failures
from kafka_sink.doctor import dialogue
from kafka_sink.doctor.connection_failures import Attempt, Failure, address_text, advertised, dispensable, host_verdicts
from kafka_sink.doctor.dialogue import Dialogue, NoAnswer, dial
from kafka_sink.doctor.report import HOST_STEPS, Status
from kafka_sink.errors import ProtocolError, SaslRefused, TlsExpected, TokenUnavailable
from kafka_sink.errors.redaction import Secret
from kafka_sink.kafka.auth.jaas import parse_jaas
from kafka_sink.kafka.config import ProducerConfig, SecurityConfig
from kafka_sink.kafka.net.transport import Address, TlsFailure
from kafka_sink.kafka.protocol import connection, requests
from kafka_sink.kafka.protocol.api import Request
from kafka_sink.kafka.protocol.requests import Buffer
from kafka_sink.kafka.protocol.sasl import NO_ANSWER_OF_KDC
from kafka_sink.options.config import sink_config
from scripted_peers import (
    Behaviour,
    advertises,
    drips,
    hangs_up,
    peer,
    says_nothing,
    scripted,
    silent_host,
    speaks_http,
)

OK, WARNING, FAILED, SKIPPED = Status
PLAINTEXT = SecurityConfig()
SCRAM = SecurityConfig(
    security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512", sasl_username="alice", sasl_password=Secret("canary")
)
WHOLE = Attempt("kafka-1", 9092, ("10.0.0.1", "10.0.0.2"), "10.0.0.2:9092", "TLSv1.3, AES", "Produce 12")


PLAIN = "PLAIN as 'alice': "
STEP_TIMEOUT_S = 0.3
# Peers that send single bytes do so for 15 s, and a busy machine takes its time.
IN_TIME_S = 10


def refused(reason: str, mechanism: str = "PLAIN", user: str = "alice", remedy: str = "") -> Failure:
    return failures.not_kafka(SaslRefused(mechanism=mechanism, user=user, reason=reason, remedy=remedy))


@pytest.mark.parametrize("step", HOST_STEPS)
def test_one_failure_what_is_before_is_well_and_what_is_behind_skipped(step: str) -> None:
    attempt = Attempt("kafka-1", 9092, ("10.0.0.1",), "10.0.0.1:9092", failure=Failure(step, "found", "mend"))
    verdicts = host_verdicts(attempt, "kafka-1:9092", PLAINTEXT)
    place = HOST_STEPS.index(step)
    statuses = [OK] * place + [FAILED] + [SKIPPED] * (4 - place)
    assert [(verdict.step, verdict.status) for verdict in verdicts] == list(zip(HOST_STEPS, statuses, strict=True))
    assert (verdicts[place].finding.found, verdicts[place].finding.remedy) == ("found", "mend")
    assert {verdict.finding.found for verdict in verdicts[place + 1 :]} <= {f"because of {step}"}


def test_what_was_agreed_on_is_said() -> None:
    def said(attempt: Attempt, security: SecurityConfig) -> list[str]:
        return [verdict.finding.found for verdict in host_verdicts(attempt, "here", security)]

    assert said(WHOLE, SCRAM) == [
        "10.0.0.1, 10.0.0.2", "connected to 10.0.0.2:9092", "TLSv1.3, AES", "Produce 12", "SCRAM-SHA-512, User:alice"
    ]  # fmt: skip
    bare = said(Attempt("kafka-1", 9092, ("10.0.0.1",), "10.0.0.1:9092", versions="Produce 12"), PLAINTEXT)
    assert bare[2] == bare[4] == "none (kafka.security.protocol=PLAINTEXT)"
    module = "com.sun.security.auth.module.Krb5LoginModule required"
    for jaas, who in (
        (None, "by the ticket cache"), (f"{module} useTicketCache=true;", "by the ticket cache"),
        (f'{module} useKeyTab=true keyTab="k" principal="app/host@R";', "app/host@R"),
    ):  # fmt: skip
        login = None if jaas is None else Secret(parse_jaas(jaas))
        security = SecurityConfig(security_protocol="SASL_SSL", sasl_mechanism="GSSAPI", sasl_jaas_config=login)
        assert said(WHOLE, security)[-1] == f"GSSAPI, {who}"
    assert (address_text("kafka-1", 9092), address_text("::1", 9092)) == ("kafka-1:9092", "[::1]:9092")


def test_what_works_and_protects_less_than_it_could_is_a_warning() -> None:
    for security, step, found, remedy in (
        (replace(SCRAM, ssl_endpoint_identification_algorithm=""), "tls",
         "TLSv1.3, AES; host names of brokers are not verified", "kafka.ssl.endpoint.identification.algorithm"),
        (replace(SCRAM, security_protocol="SSL"), "sasl",
         "none (kafka.security.protocol=SSL); kafka.sasl.mechanism, kafka.sasl.password, kafka.sasl.username without "
         "effect", "kafka.security.protocol=SASL_SSL"),
    ):  # fmt: skip
        (warned,) = [verdict for verdict in host_verdicts(WHOLE, "here", security) if verdict.status is WARNING]
        assert warned.step == step and warned.finding.found.startswith(found)
        assert remedy in warned.finding.remedy and "canary" not in repr(warned)


@pytest.mark.parametrize(("failure", "step", "found", "remedy"), [
    (failures.dns_failure(OSError(-2, "Name or service not known"), "h"), "dns", "'h': it cannot be", "/etc/hosts"),
    (failures.dns_failure(TimeoutError("in 4 s"), "h"), "dns", "no name server answers (in 4 s)", "resolver"),
    (failures.tcp_failure(ConnectionRefusedError(), ["10.0.0.1"]), "tcp", "10.0.0.1 refused", "port"),
    (failures.tcp_failure(TimeoutError("within 4 s"), ["a", "b"]), "tcp", "a, b does not answer", "firewall"),
    (failures.tcp_failure(OSError(errno.EHOSTUNREACH, "No route"), ["a"]), "tcp", "No route", "route"),
    (failures.tls_failure(TlsFailure("expired", "renew it", True)), "tls", "expired", "renew it"),
    (failures.tls_timed_out(TimeoutError("within 4 s")), "tls", "does not answer", "load balancer"),
    (failures.hung_up("api versions", is_authenticated=False), "api versions", "instead of", "SSL"),
    (failures.hung_up("request", is_authenticated=False), "sasl", "requires authentication", "SASL_SSL"),
    (failures.hung_up("request", is_authenticated=True), "sasl", "during authentication", "log"),
    (failures.hung_up("sasl", is_authenticated=True), "sasl", "during authentication", "log"),
    (failures.no_answer("api versions", TimeoutError("4 s")), "api versions", "4 s", "load balancer"),
    (failures.no_answer("sasl", TimeoutError("4 s")), "sasl", "4 s", "log"),
    (refused("the broker does not offer it here; it offers: PLAIN"), "sasl", PLAIN, "sasl.enabled.mechanisms"),
    (refused("the broker expects no authentication here"), "sasl", PLAIN, "SSL or PLAINTEXT"),
    (refused("the broker refused (Authentication failed)"), "sasl", PLAIN, "user name and password"),
    (refused("the broker does not offer it here", "AWS_MSK_IAM", "signed for eu-west-1"), "sasl",
     "signed for eu-west-1", "9098"),
    (refused("the broker expects no authentication here", "AWS_MSK_IAM"), "sasl", "AWS_MSK_IAM", "or PLAINTEXT"),
    (refused("the ticket has expired", "GSSAPI", "app/host@R", "run kinit"), "sasl",
     "GSSAPI as 'app/host@R': the ticket has expired", "run kinit"),
    (failures.too_slow(NO_ANSWER_OF_KDC, TimeoutError("within 4 s")), "sasl", "", "krb5.conf"),
    (failures.not_kafka(TlsExpected("speaks TLS")), "tls", "speaks TLS", "kafka.security.protocol to SSL"),
    (failures.not_kafka(ProtocolError("speaks HTTP")), "api versions", "speaks HTTP", "REST proxy"),
    (failures.no_token(TokenUnavailable(source="s", reason="401")), "sasl", "no token from s: 401", "secret"),
    (
        failures.no_token(TokenUnavailable(source="s", reason="r", mechanism="AWS_MSK_IAM", advice="set REGION")),
        "sasl", "no token from s: r", "from this host, set REGION",
    ),
])  # fmt: skip
def test_a_failure_names_the_step_whose_setting_is_wrong(failure: Failure, step: str, found: str, remedy: str) -> None:
    assert failure.step == step
    assert found in failure.found
    assert remedy in failure.remedy
    assert found or "SCRAM" not in failure.found + failure.remedy


@pytest.mark.parametrize("step", HOST_STEPS)
def test_whose_fault_it_is_and_whether_another_bootstrap_server_makes_up_for_it(step: str) -> None:
    told = advertised(Failure(step, "found", "mend"))
    assert ("advertised.listeners" in told.remedy) is (step in ("dns", "tcp"))
    assert "mend" in told.remedy
    verdicts = map(dispensable, host_verdicts(Attempt("h", 1, failure=Failure(step, "f", "m")), "h:1", SCRAM))
    (status,) = (each.status for each in verdicts if each.status in (FAILED, WARNING))
    # A wrong certificate or password ends a write, even if other brokers answer.
    assert status is (FAILED if step in ("tls", "sasl") else WARNING)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialogue, "STEP_TIMEOUT_S", STEP_TIMEOUT_S)


def config(protocol: str = "PLAINTEXT") -> ProducerConfig:
    return sink_config({"kafka.bootstrap.servers": "b:1", "kafka.security.protocol": protocol}).producer


def test_a_broker_that_answers() -> None:
    with peer(advertises("kafka-7", 9092)) as port:
        attempt, opened = dial("127.0.0.1", port, config())
        assert attempt.failure is None
        assert isinstance(opened, Dialogue)
        assert opened.cluster is not None
        assert [(each.node_id, each.host, each.port) for each in opened.cluster.brokers] == [(7, "kafka-7", 9092)]
        assert isinstance(opened.ask(apis.MetadataRequest((), False)), apis.MetadataResponse)
        opened.close()
    assert attempt.addresses == ("127.0.0.1",)
    assert "Produce 13 of 7 to 13" in attempt.versions


def test_the_time_to_encode_a_request_is_not_the_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process imports kio for its first one, which takes seconds on a machine without a processor to spare."""

    def encode_request(request: Request, **how: Any) -> list[Buffer]:
        threading.Event().wait(1.5 * STEP_TIMEOUT_S)
        return requests.encode_request(request, **how)

    monkeypatch.setattr(connection, "encode_request", encode_request)
    with peer(advertises("kafka-7", 9092)) as port:
        attempt, opened = dial("127.0.0.1", port, config())
        assert attempt.failure is None and opened is not None
        opened.close()


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
@pytest.mark.parametrize("behaviour", [
    says_nothing, speaks_http, hangs_up, *(drips(sent, b"\0") for sent in (b"", b"\0\0\1\0", b"\x16\3\3\x40\0")),
], ids=["silent", "HTTP", "hangs up", "single bytes", "of an answer", "of a handshake"])  # fmt: skip
def test_peers_that_are_no_brokers(behaviour: Behaviour, protocol: str) -> None:
    """Each byte comes in a sixth of the step's time: one deadline for each `recv` would never be over."""
    started = time.monotonic()
    with peer(behaviour) as port:
        attempt, opened = dial("127.0.0.1", port, config(protocol))
    assert time.monotonic() - started < IN_TIME_S
    assert opened is None and attempt.failure is not None
    assert attempt.connected_to == f"127.0.0.1:{port}"
    assert attempt.failure.step in (("api versions", "tls") if protocol == "PLAINTEXT" else ("tls",))


@pytest.mark.parametrize("drip", [b"", b"\0\1\0\0"], ids=["none to the question", "a byte at a time"])
def test_an_answer_that_is_none(drip: bytes) -> None:
    """To a question behind those that open the connection."""
    then = {"then": drips(drip, b"\0")} if drip else {}
    with peer(advertises("kafka-7", 9092, **then)) as port:
        _, opened = dial("127.0.0.1", port, config())
        assert opened is not None
        started = time.monotonic()
        with pytest.raises(NoAnswer, match=f"no answer to InitProducerId{': within' if drip else ''}"):
            opened.ask(apis.InitProducerIdRequest(1))
        opened.close()
        assert time.monotonic() - started < IN_TIME_S


def test_a_name_server_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()

    def look_up(*args: object, **named: object) -> list[object]:
        over.wait()
        return []

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    started = time.monotonic()
    attempt, _ = dial("kafka-1", 9092, config())
    over.set()
    assert time.monotonic() - started < IN_TIME_S
    assert attempt.failure is not None
    assert (attempt.failure.step, "no name server answers" in attempt.failure.found) == ("dns", True)


def test_more_iterations_than_there_is_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker may ask SCRAM for a million."""
    over = threading.Event()
    monkeypatch.setattr(hashlib, "pbkdf2_hmac", lambda *of: over.wait(30) and bytes(32))
    monkeypatch.setattr(secrets, "token_urlsafe", lambda size: "nonce")
    challenge = b"r=noncemore,s=c2FsdA==,i=1000000"
    asks: list[tuple[Request, Any]] = [
        (apis.SaslHandshakeRequest("SCRAM-SHA-256"), {"mechanisms": ["SCRAM-SHA-256"]}),
        (apis.SaslAuthenticateRequest(b""), {"auth_bytes": challenge}),
    ]
    of_scram = {
        "kafka.bootstrap.servers": "b:1", "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-256", "kafka.sasl.username": "u", "kafka.sasl.password": "hunter2",
    }  # fmt: skip
    with peer(scripted(asks)) as port:
        attempt, _ = dial("127.0.0.1", port, sink_config(of_scram).producer)
    over.set()
    assert attempt.failure is not None
    assert attempt.failure.step == "sasl"
    assert "too many iterations of SCRAM" in attempt.failure.found
    assert "kafka-configs.sh" in attempt.failure.remedy


def test_every_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with peer(advertises("kafka-7", 9092)) as port:
        two = [Address(socket.AF_INET, (number, port), "kafka-1") for number in ("127.0.0.2", "127.0.0.1")]
        monkeypatch.setattr(dialogue, "resolve", lambda host, port, timeout_s: two)
        attempt, opened = dial("kafka-1", port, config())
        assert opened is not None
        opened.close()
    assert (attempt.addresses, attempt.connected_to) == (("127.0.0.2", "127.0.0.1"), f"127.0.0.1:{port}")


def test_several_addresses_take_no_longer_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with silent_host() as port:
        many = [Address(socket.AF_INET, ("127.0.0.1", port), "kafka-1")] * 100
        monkeypatch.setattr(dialogue, "resolve", lambda host, port, timeout_s: many)
        monkeypatch.setattr(dialogue, "STEP_TIMEOUT_S", 1)
        started = time.monotonic()
        attempt, _ = dial("kafka-1", port, config())
    assert time.monotonic() - started < IN_TIME_S
    assert attempt.failure is not None
    assert (attempt.failure.step, "does not answer at all" in attempt.failure.found) == ("tcp", True)

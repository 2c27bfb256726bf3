from __future__ import annotations

import errno
from dataclasses import replace

import pytest

from kafka_sink.doctor import reaching
from kafka_sink.doctor.reaching import Attempt, Failure, address_text, advertised, dispensable, host_verdicts
from kafka_sink.doctor.report import Status
from kafka_sink.doctor.steps import HOST_STEPS
from kafka_sink.errors import ProtocolError, SaslRefused, TlsExpected, TokenUnavailable
from kafka_sink.kafka.config import SecurityConfig
from kafka_sink.kafka.jaas import parse_jaas
from kafka_sink.kafka.net.transport import TlsFailure
from kafka_sink.kafka.protocol.gssapi import NO_ANSWER_OF_KDC
from kafka_sink.text.redaction import Secret

OK, WARNING, FAILED, SKIPPED = Status
PLAINTEXT = SecurityConfig()
SCRAM = SecurityConfig(
    security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512", sasl_username="alice", sasl_password=Secret("canary")
)
WHOLE = Attempt("kafka-1", 9092, ("10.0.0.1", "10.0.0.2"), "10.0.0.2:9092", "TLSv1.3, AES", "Produce 12")


@pytest.mark.parametrize("step", HOST_STEPS)
def test_one_failure_what_is_before_is_well_and_what_is_behind_skipped(step: str) -> None:
    attempt = Attempt("kafka-1", 9092, ("10.0.0.1",), "10.0.0.1:9092", failure=Failure(step, "found", "mend"))
    verdicts = host_verdicts(attempt, "kafka-1:9092", PLAINTEXT)
    place = HOST_STEPS.index(step)
    assert [verdict.step for verdict in verdicts] == list(HOST_STEPS)
    assert [verdict.status for verdict in verdicts] == [OK] * place + [FAILED] + [SKIPPED] * (4 - place)
    assert (verdicts[place].finding.found, verdicts[place].finding.remedy) == ("found", "mend")
    assert {verdict.finding.found for verdict in verdicts[place + 1 :]} <= {f"because of {step}"}


def test_what_was_agreed_on_is_said() -> None:
    found = [verdict.finding.found for verdict in host_verdicts(WHOLE, "here", SCRAM)]
    assert found == [
        "10.0.0.1, 10.0.0.2", "connected to 10.0.0.2:9092", "TLSv1.3, AES", "Produce 12", "SCRAM-SHA-512, User:alice"
    ]  # fmt: skip
    bare = Attempt("kafka-1", 9092, ("10.0.0.1",), "10.0.0.1:9092", versions="Produce 12")
    found = [verdict.finding.found for verdict in host_verdicts(bare, "here", PLAINTEXT)]
    assert found[2] == found[4] == "none (kafka.security.protocol=PLAINTEXT)"


def test_who_kerberos_knows_is_said() -> None:
    module = "com.sun.security.auth.module.Krb5LoginModule required"
    for jaas, who in (
        (None, "by the ticket cache"),
        (f"{module} useTicketCache=true;", "by the ticket cache"),
        (f'{module} useKeyTab=true keyTab="k" principal="app/host@R";', "app/host@R"),
    ):
        login = None if jaas is None else Secret(parse_jaas(jaas))
        security = SecurityConfig(security_protocol="SASL_SSL", sasl_mechanism="GSSAPI", sasl_jaas_config=login)
        assert host_verdicts(WHOLE, "here", security)[-1].finding.found == f"GSSAPI, {who}"


def test_what_kerberos_says_comes_with_its_own_remedy() -> None:
    refused = SaslRefused(mechanism="GSSAPI", user="app/host@R", reason="the ticket has expired", remedy="run kinit")
    assert reaching.not_kafka(refused) == Failure("sasl", "GSSAPI as 'app/host@R': the ticket has expired", "run kinit")
    silent = reaching.too_slow(NO_ANSWER_OF_KDC, TimeoutError("within 4 s"))
    assert "SCRAM" not in silent.found + silent.remedy
    assert "krb5.conf" in silent.remedy


@pytest.mark.parametrize(
    ("security", "step", "found", "remedy"),
    [
        (
            replace(SCRAM, ssl_endpoint_identification_algorithm=""), "tls",
            "TLSv1.3, AES; host names of brokers are not verified", "kafka.ssl.endpoint.identification.algorithm",
        ),
        (
            replace(SCRAM, security_protocol="SSL"), "sasl",
            "none (kafka.security.protocol=SSL); kafka.sasl.mechanism, kafka.sasl.password, kafka.sasl.username "
            "without effect", "kafka.security.protocol=SASL_SSL",
        ),
    ],
)  # fmt: skip
def test_what_works_and_protects_less_than_it_could_is_a_warning(
    security: SecurityConfig, step: str, found: str, remedy: str
) -> None:
    warned = [verdict for verdict in host_verdicts(WHOLE, "here", security) if verdict.status is WARNING]
    assert [verdict.step for verdict in warned] == [step]
    assert warned[0].finding.found.startswith(found)
    assert remedy in warned[0].finding.remedy
    assert "canary" not in repr(warned)


@pytest.mark.parametrize(
    ("failure", "step", "found", "remedy"),
    [
        (reaching.dns_failure(OSError(-2, "Name or service not known"), "h"), "dns", "'h': it cannot be", "/etc/hosts"),
        (reaching.dns_failure(TimeoutError("in 4 s"), "h"), "dns", "no name server answers (in 4 s)", "resolver"),
        (reaching.tcp_failure(ConnectionRefusedError(), ["10.0.0.1"]), "tcp", "10.0.0.1 refused", "port"),
        (reaching.tcp_failure(TimeoutError("within 4 s"), ["a", "b"]), "tcp", "a, b does not answer", "firewall"),
        (reaching.tcp_failure(OSError(errno.EHOSTUNREACH, "No route"), ["a"]), "tcp", "No route", "route"),
        (reaching.tls_failure(TlsFailure("expired", "renew it", True)), "tls", "expired", "renew it"),
        (reaching.tls_timed_out(TimeoutError("within 4 s")), "tls", "does not answer", "load balancer"),
        (reaching.hung_up("api versions", is_authenticated=False), "api versions", "instead of", "SSL"),
        (reaching.hung_up("request", is_authenticated=False), "sasl", "requires authentication", "SASL_SSL"),
        (reaching.hung_up("request", is_authenticated=True), "sasl", "during authentication", "log"),
        (reaching.hung_up("sasl", is_authenticated=True), "sasl", "during authentication", "log"),
        (reaching.said_nothing("api versions", TimeoutError("4 s")), "api versions", "4 s", "load balancer"),
        (reaching.said_nothing("sasl", TimeoutError("4 s")), "sasl", "4 s", "log"),
        (reaching.not_kafka(TlsExpected("speaks TLS")), "tls", "speaks TLS", "kafka.security.protocol to SSL"),
        (reaching.not_kafka(ProtocolError("speaks HTTP")), "api versions", "speaks HTTP", "REST proxy"),
        (
            reaching.no_token(TokenUnavailable(source="s", reason="401")),
            "sasl",
            "no token from s: 401",
            "client secret",
        ),
        (
            reaching.no_token(
                TokenUnavailable(source="s", reason="r", mechanism="AWS_MSK_IAM", advice="set AWS_REGION")
            ),
            "sasl",
            "no token from s: r",
            "from this host, set AWS_REGION",
        ),
    ],
)
def test_a_failure_names_the_step_whose_setting_is_wrong(failure: Failure, step: str, found: str, remedy: str) -> None:
    assert failure.step == step
    assert found in failure.found
    assert remedy in failure.remedy


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("the broker does not offer it here; it offers: PLAIN", "sasl.enabled.mechanisms"),
        ("the broker expects no authentication here", "SSL or PLAINTEXT"),
        ("the broker refused (Authentication failed)", "user name and password"),
    ],
)
def test_a_refused_authentication(reason: str, remedy: str) -> None:
    failure = reaching.not_kafka(SaslRefused(mechanism="PLAIN", user="alice", reason=reason))
    assert failure.step == "sasl"
    assert failure.found.startswith("PLAIN as 'alice': ")
    assert remedy in failure.remedy


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("the broker does not offer it here; it offers: SCRAM-SHA-512", "9098"),
        ("the broker expects no authentication here", "SSL or PLAINTEXT"),
    ],
)
def test_a_refused_token_of_msk_iam(reason: str, remedy: str) -> None:
    refused = SaslRefused(mechanism="AWS_MSK_IAM", user="the environment, signed for eu-west-1", reason=reason)
    failure = reaching.not_kafka(refused)
    assert "signed for eu-west-1" in failure.found
    assert remedy in failure.remedy


def test_only_what_is_about_the_address_is_the_advertised_listeners_fault() -> None:
    for step in HOST_STEPS:
        told = advertised(Failure(step, "found", "mend"))
        assert ("advertised.listeners" in told.remedy) is (step in ("dns", "tcp"))
        assert "mend" in told.remedy


def test_a_bootstrap_server_beside_which_another_answers() -> None:
    for step in HOST_STEPS:
        (verdict,) = (
            each
            for each in map(dispensable, host_verdicts(Attempt("h", 1, failure=Failure(step, "f", "m")), "h:1", SCRAM))
            if each.status in (FAILED, WARNING)
        )
        # A wrong certificate or password ends a write, even if other brokers answer.
        assert verdict.status is (FAILED if step in ("tls", "sasl") else WARNING)


def test_addresses_as_users_write_them() -> None:
    assert (address_text("kafka-1", 9092), address_text("::1", 9092)) == ("kafka-1:9092", "[::1]:9092")

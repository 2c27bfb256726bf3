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


PLAIN = "PLAIN as 'alice': "


def refused(reason: str, mechanism: str = "PLAIN", user: str = "alice", remedy: str = "") -> Failure:
    return reaching.not_kafka(SaslRefused(mechanism=mechanism, user=user, reason=reason, remedy=remedy))


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
        (refused("the broker does not offer it here; it offers: PLAIN"), "sasl", PLAIN, "sasl.enabled.mechanisms"),
        (refused("the broker expects no authentication here"), "sasl", PLAIN, "SSL or PLAINTEXT"),
        (refused("the broker refused (Authentication failed)"), "sasl", PLAIN, "user name and password"),
        (refused("the broker does not offer it here", "AWS_MSK_IAM", "signed for eu-west-1"), "sasl",
         "signed for eu-west-1", "9098"),
        (refused("the broker expects no authentication here", "AWS_MSK_IAM"), "sasl", "AWS_MSK_IAM", "or PLAINTEXT"),
        (refused("the ticket has expired", "GSSAPI", "app/host@R", "run kinit"), "sasl",
         "GSSAPI as 'app/host@R': the ticket has expired", "run kinit"),
        (reaching.too_slow(NO_ANSWER_OF_KDC, TimeoutError("within 4 s")), "sasl", "", "krb5.conf"),
        (reaching.not_kafka(TlsExpected("speaks TLS")), "tls", "speaks TLS", "kafka.security.protocol to SSL"),
        (reaching.not_kafka(ProtocolError("speaks HTTP")), "api versions", "speaks HTTP", "REST proxy"),
        (reaching.no_token(TokenUnavailable(source="s", reason="401")), "sasl", "no token from s: 401", "secret"),
        (
            reaching.no_token(TokenUnavailable(source="s", reason="r", mechanism="AWS_MSK_IAM", advice="set REGION")),
            "sasl", "no token from s: r", "from this host, set REGION",
        ),
    ],
)  # fmt: skip
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


def test_addresses_as_users_write_them() -> None:
    assert (address_text("kafka-1", 9092), address_text("::1", 9092)) == ("kafka-1:9092", "[::1]:9092")

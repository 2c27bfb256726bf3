"""From options to what connections are made with."""

from __future__ import annotations

import ssl

import pytest

from certificates import Authority
from kafka_sink.config import SecurityConfig, sink_config
from kafka_sink.errors import InvalidOption
from kafka_sink.options import SASL_MECHANISMS
from kafka_sink.protocol.sasl import MECHANISMS
from kafka_sink.security import authenticator, tls_context

SERVERS = {"kafka.bootstrap.servers": "localhost:9093"}
PASSWORD = {"kafka.sasl.username": "alice", "kafka.sasl.password": "hunter2"}


def security(**options: str) -> SecurityConfig:
    given = {f"kafka.{name.replace('_', '.')}": text for name, text in options.items()}
    return sink_config(SERVERS | PASSWORD | given).producer.security


def test_plaintext_has_neither() -> None:
    assert tls_context(security()) is None
    assert authenticator(security()) is None


def test_tls_as_the_options_say() -> None:
    ca = Authority()
    mine = ca.issue("alice", password="opensesame")
    context = tls_context(
        security(
            security_protocol="SSL",
            ssl_truststore_certificates=ca.certificate,
            ssl_keystore_certificate_chain=mine.chain,
            ssl_keystore_key=mine.key,
            ssl_key_password="opensesame",
            ssl_endpoint_identification_algorithm="",
            ssl_enabled_protocols="TLSv1.3",
        )
    )
    assert context is not None
    assert not context.check_hostname
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert context.cert_store_stats()["x509_ca"] == 1


def test_host_names_are_verified_unless_they_are_not_to_be() -> None:
    context = tls_context(security(security_protocol="ssl"))
    assert context is not None
    assert context.check_hostname


def test_certificates_that_cannot_be_used_are_told_where_connections_are_made() -> None:
    broken = security(security_protocol="SSL", ssl_truststore_certificates="nonsense")
    with pytest.raises(InvalidOption):
        tls_context(broken)


@pytest.mark.parametrize("mechanism", SASL_MECHANISMS)
def test_every_mechanism_of_the_option_is_there(mechanism: str) -> None:
    begin = authenticator(security(security_protocol="SASL_SSL", sasl_mechanism=mechanism))
    assert begin is not None
    assert begin().mechanism == mechanism
    assert mechanism in MECHANISMS
    first = begin().exchange.respond(None)
    assert first is not None
    assert b"alice" in first
    if mechanism != "PLAIN":
        assert first != begin().exchange.respond(None)

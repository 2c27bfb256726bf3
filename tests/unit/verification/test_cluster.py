"""How the other client connects. What it reads is tests/integration/test_receipts.py."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from certificates import Authority
from fuzz.java_stores import jks_file, protected_key
from kafka_sink.errors import RecordsUnreadable
from kafka_sink.options.config import sink_config
from kafka_sink.verification.cluster import Cluster, client_settings

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'
KRB5 = "com.sun.security.auth.module.Krb5LoginModule"


def settings(**options: str) -> dict[str, object]:
    texts = {f"kafka.{name.replace('_', '.')}": text for name, text in options.items()}
    return client_settings(sink_config({"kafka.bootstrap.servers": "h:1,[::1]:2", **texts}).producer)


def test_nothing_is_said_of_security_where_there_is_none() -> None:
    assert settings() == {
        "bootstrap.servers": "h:1,[::1]:2", "client.id": "pykafka", "log_level": 0, "security.protocol": "PLAINTEXT",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"security_protocol": "SSL", "ssl_truststore_location": "/ca.pem", "ssl_keystore_location": "/both.pem",
             "ssl_key_password": "secret"},
            {"ssl.ca.location": "/ca.pem", "ssl.certificate.location": "/both.pem", "ssl.key.location": "/both.pem",
             "ssl.key.password": "secret", "ssl.endpoint.identification.algorithm": "https"},
        ),
        (
            {"security_protocol": "SSL", "ssl_endpoint_identification_algorithm": ""},
            {"ssl.endpoint.identification.algorithm": "none"},
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_jaas_config": PLAIN},
            {"sasl.mechanisms": "PLAIN", "sasl.username": "u", "sasl.password": "p", "security.protocol": "SASL_SSL"},
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "u",
             "sasl_password": "p"},
            {"sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": "p"},
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER",
             "sasl_oauthbearer_token_endpoint_url": "https://i/t",
             "sasl_oauthbearer_client_credentials_client_id": "c",
             "sasl_oauthbearer_client_credentials_client_secret": "s"},
            {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.client.id": "c",
             "sasl.oauthbearer.client.secret": "s", "sasl.oauthbearer.token.endpoint.url": "https://i/t"},
        ),
        (
            {"security_protocol": "SASL_SSL", "sasl_mechanism": "GSSAPI", "sasl_kerberos_service_name": "kafka",
             "sasl_jaas_config": f'{KRB5} required useKeyTab=true keyTab="/k" principal="app@R";'},
            {"sasl.mechanisms": "GSSAPI", "sasl.kerberos.service.name": "kafka", "sasl.kerberos.keytab": "/k",
             "sasl.kerberos.principal": "app@R"},
        ),
    ],
)  # fmt: skip
def test_the_sinks_options_in_librdkafkas_words(options: dict[str, str], expected: dict[str, str]) -> None:
    found = settings(**options)
    assert expected.items() <= found.items()
    assert None not in found.values()


def test_a_java_store_is_handed_on_as_pem(tmp_path: Path) -> None:
    ca, alice = Authority(), Authority().issue("alice")
    plain = load_pem_private_key(alice.key.encode(), None).private_bytes(
        Encoding.DER, PrivateFormat.PKCS8, NoEncryption()
    )
    trust, own = tmp_path / "trust.jks", tmp_path / "own.jks"
    trust.write_bytes(jks_file([ssl.PEM_cert_to_DER_cert(ca.certificate)]))
    own.write_bytes(jks_file([], [(protected_key(plain), [ssl.PEM_cert_to_DER_cert(alice.chain)])]))
    found = settings(
        security_protocol="SSL", ssl_truststore_location=str(trust), ssl_truststore_password="changeit",
        ssl_keystore_location=str(own), ssl_keystore_password="changeit", ssl_key_password="changeit",
    )  # fmt: skip
    assert found["ssl.ca.pem"] == ca.certificate
    assert found["ssl.certificate.pem"] == alice.chain
    assert "PRIVATE KEY" in str(found["ssl.key.pem"])
    assert not found.keys() & {"ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"}
    Consumer({"group.id": "g", **found}).close()


def test_a_client_without_kerberos_is_told_with_what_to_do() -> None:
    options = {
        "kafka.bootstrap.servers": "h:1",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "GSSAPI",
        "kafka.sasl.kerberos.service.name": "kafka",
    }
    with pytest.raises(RecordsUnreadable, match=r"--no-binary confluent-kafka.*another mechanism"):
        Cluster(sink_config(options).producer)

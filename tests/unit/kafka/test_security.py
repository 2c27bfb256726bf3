"""From options to what connections are made with."""

from __future__ import annotations

import base64
import pickle
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark import cloudpickle

from certificates import Authority
from kafka_sink.errors import InvalidOption, SaslRefused
from kafka_sink.kafka.config import PASSWORDLESS_MECHANISMS, SecurityConfig
from kafka_sink.kafka.protocol.sasl import MECHANISMS, Authentication
from kafka_sink.kafka.security import authenticator, tls_contexts
from kafka_sink.options.config import complete, given_options, sink_config
from kafka_sink.options.kinds import SASL_MECHANISMS
from kafka_sink.text.redaction import Secret
from token_endpoint import jwt, token_endpoint

SERVERS = {"kafka.bootstrap.servers": "localhost:9093"}
PASSWORD = {"kafka.security.protocol": "PLAINTEXT", "kafka.sasl.username": "alice", "kafka.sasl.password": "hunter2"}


def security(**options: str) -> SecurityConfig:
    given = {f"kafka.{name.replace('_', '.')}": text for name, text in options.items()}
    return sink_config(SERVERS | PASSWORD | given).producer.security


def begins(config: SecurityConfig, hosts: tuple[str, ...] = ()) -> Callable[[str], Authentication]:
    begin = authenticator(config, hosts)
    assert begin is not None
    return begin


def test_tls_as_the_options_say() -> None:
    ca = Authority()
    mine = ca.issue("alice", password="opensesame")
    pair = {"ssl_keystore_certificate_chain": mine.chain, "ssl_keystore_key": mine.key}
    tls = {"ssl_endpoint_identification_algorithm": "", "ssl_enabled_protocols": "TLSv1.3", "security_protocol": "SSL"}
    key = {"ssl_truststore_certificates": ca.certificate, "ssl_key_password": "opensesame"}
    contexts = tls_contexts(security(**pair, **tls, **key))
    assert contexts is not None
    context = contexts.current()
    assert (context.check_hostname, context.verify_mode) == (False, ssl.CERT_REQUIRED)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert context.cert_store_stats()["x509_ca"] == 1
    assert tls_contexts(security()) is authenticator(security()) is None, "plaintext has neither"
    assert set(SASL_MECHANISMS) == MECHANISMS.keys()


@pytest.mark.parametrize("mechanism", [name for name in SASL_MECHANISMS if name not in PASSWORDLESS_MECHANISMS])
def test_a_password_is_for_every_mechanism_of_passwords(mechanism: str) -> None:
    begin = begins(security(security_protocol="SASL_SSL", sasl_mechanism=mechanism))
    assert begin("host").mechanism == mechanism
    first, second = (begin("host").exchange.respond(None) for _ in range(2))
    assert isinstance(first, bytes) and b"alice" in first
    assert mechanism == "PLAIN" or first != second


def test_a_token_is_shared_by_connections_and_goes_with_its_extensions() -> None:
    with token_endpoint() as idp:
        idp.gives("alice", 60)
        module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
        options = {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauthbearer.token.endpoint.url": idp.url,
            "allowedTokenUrls": idp.url,
            "kafka.sasl.jaas.config": f'{module} required clientId="app" clientSecret="s" scope="x" extension_a="b";',
        }
        first, second = (begins(sink_config({**SERVERS, **options}).producer.security) for _ in range(2))
        begun = first("host")
        said = begun.exchange.respond(None)
        assert said == second("host").exchange.respond(None)
        assert isinstance(said, bytes) and said.endswith(b"\x01a=b\x01\x01")
        assert begun.login.name == "app"
        ((_, _, form),) = idp.told
        assert form["scope"] == ["x"]


IAM, HANDLER = "software.amazon.msk.auth.iam", "kafka.sasl.client.callback.handler.class"
MSK_IAM = {
    "kafka.security.protocol": "SASL_SSL",
    "kafka.sasl.mechanism": "AWS_MSK_IAM",
    "kafka.sasl.jaas.config": f"{IAM}.IAMLoginModule required;",
    HANDLER: f"{IAM}.IAMClientCallbackHandler",
}
HOSTS = ("b-1.demo.xxxxxx.c2.kafka.eu-west-1.amazonaws.com",)


def test_msk_iam_signs_where_connections_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The options are read before there are credentials, as Spark's driver reads them for its executors."""
    config = sink_config({**SERVERS, **MSK_IAM}).producer.security
    carried = pickle.dumps(config)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary-secret")
    first, second = (begins(pickle.loads(carried), HOSTS) for _ in range(2))
    begun = first("b")
    assert begun.exchange.respond(None) == second("b").exchange.respond(None), "one token for all connections"
    said = begun.exchange.respond(None)
    assert isinstance(said, bytes)
    token = said.removeprefix(b"n,,\x01auth=Bearer ").removesuffix(b"\x01\x01")
    url = base64.urlsafe_b64decode(token + b"=" * (-len(token) % 4)).decode()
    assert url.startswith("https://kafka.eu-west-1.amazonaws.com/?Action=kafka-cluster%3AConnect&")
    assert url.partition("&User-Agent=")[2].startswith("pyspark-pykafka%2F")
    assert (begun.mechanism, begun.name_for_brokers) == ("AWS_MSK_IAM", "OAUTHBEARER")
    assert "AKID" not in repr(begun) and "canary" not in repr(begun) + repr(config)
    assert token.decode() not in repr(begun) + begun.login.name


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({HANDLER: "com.example.IAMClientCallbackHandler"}, "does not run classes"),
        ({HANDLER: f"{IAM}.IAMOAuthBearerLoginCallbackHandler"}, r"kafka\.sasl\.mechanism=AWS_MSK_IAM"),
        ({"kafka.security.protocol": "SASL_PLAINTEXT"}, "AWS_MSK_IAM over SASL_PLAINTEXT"),
        ({"kafka.sasl.mechanism": "OAUTHBEARER"}, "a login module of"),
    ],
)
def test_msk_iam_goes_with_its_own_classes_and_over_tls(changed: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidOption, match=words):
        sink_config({**SERVERS, **MSK_IAM, **changed})


def test_a_callable_is_called_where_connections_are_made() -> None:
    token = jwt(sub="bob")
    given = given_options({**SERVERS, "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER"})
    configs = [
        complete({**given, "token_callable": Secret(cloudpickle.dumps(lambda: (token, 60)))}).producer for _ in range(2)
    ]
    assert configs[0] == configs[1], "or every task would have a producer of its own"
    assert begins(configs[0].security)("host").login.name == "bob"


def test_kerberos_reads_its_files_where_connections_are_made(tmp_path: Path) -> None:
    module = "com.sun.security.auth.module.Krb5LoginModule"
    keytab = tmp_path / "app.keytab"
    jaas = f'{module} required useKeyTab=true keyTab="{keytab}" principal="app@R" serviceName=kafka;'
    options = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "GSSAPI", "kafka.sasl.jaas.config": jaas}
    begun = begins(sink_config({**SERVERS, **options}).producer.security)("broker-1.example")
    assert (begun.mechanism, begun.login.name) == ("GSSAPI", "app@R")
    first = begun.exchange.respond(None)
    assert callable(first)
    with pytest.raises(SaslRefused) as refused:
        first()
    assert "app.keytab" in refused.value.reason or "libgssapi_krb5" in refused.value.reason
    assert "kafka/broker-1.example" in begun.if_refused

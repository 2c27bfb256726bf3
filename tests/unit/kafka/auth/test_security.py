"""From options and JAAS texts to what connections are made with, and the errors for texts that cannot be used."""

import base64
import pickle
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark import cloudpickle

from certificates import Authority
from http_endpoints import jwt, token_endpoint
from kafka_sink.errors import InvalidOption, SaslRefused
from kafka_sink.errors.redaction import Secret
from kafka_sink.kafka.auth.jaas import EXTENSION, MODULES, JaasProblem, parse_jaas
from kafka_sink.kafka.auth.jaas import KRB5_LOGIN_MODULE as KRB5
from kafka_sink.kafka.auth.security import authenticator, tls_contexts
from kafka_sink.kafka.config import PASSWORDLESS_MECHANISMS, SecurityConfig
from kafka_sink.kafka.protocol.sasl import MECHANISMS, Authentication
from kafka_sink.options.config import complete, given_options, sink_config
from kafka_sink.options.kinds import SASL_MECHANISMS

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


@pytest.mark.parametrize(("changed", "words"), [
    ({HANDLER: "com.example.IAMClientCallbackHandler"}, "does not run classes"),
    ({HANDLER: f"{IAM}.IAMOAuthBearerLoginCallbackHandler"}, r"kafka\.sasl\.mechanism=AWS_MSK_IAM"),
    ({"kafka.security.protocol": "SASL_PLAINTEXT"}, "AWS_MSK_IAM over SASL_PLAINTEXT"),
    ({"kafka.sasl.mechanism": "OAUTHBEARER"}, "a login module of"),
])  # fmt: skip
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
    assert "kafka/broker-1.example" in begun.login.if_refused


PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
MSK = "software.amazon.msk.auth.iam.IAMLoginModule"
CANARY = "canary-4d2a"


# Krb5LoginModule, as JVM users paste it.
KEYTAB, OF_KEYTAB = {"keyTab": "/k.keytab", "principal": "app/host@R"}, 'keyTab="/k.keytab" principal="app/host@R"'
NO_MORE = "doNotPrompt=true debug=false useTicketCache=false refreshKrb5Config=true serviceName=kafka isInitiator=true"
CACHE = {"ticketCache": "/tmp/krb5cc_0", "principal": "app@R"}
EXTENDED = {"clientId": "app", "clientSecret": "s", "scope": "a b", f"{EXTENSION}logicalCluster": "lkc"}


@pytest.mark.parametrize(("text", "options"), [
    *((text, {"username": "alice", "password": "hunter2"}) for text in (
        f'{PLAIN} required username="alice" password="hunter2";',
        f"{PLAIN} required username='alice' password='hunter2' ;",
        f"{PLAIN}   REQUIRED\n  username = alice // who\n  password=hunter2 /* what\n */ ; ",
        f'{PLAIN} sufficient password="hunter2" username="alice";',
        f'kafkashaded.{PLAIN} required username="alice" password="hunter2";',
        f'{PLAIN} required username="\\141lice" password="h\\unter2";',
    )),
    (f'{OAUTH} required clientId="app" clientSecret="s" scope="a b" extension_logicalCluster="lkc";', EXTENDED),
    (f'{OAUTH} required extension_note="~!#, a\\tb=c";', {f"{EXTENSION}note": "~!#, a\tb=c"}),
    (f"{KRB5} required useKeyTab=true {OF_KEYTAB};", KEYTAB),
    (f"{KRB5} required useKeyTab=TRUE storeKey=true {OF_KEYTAB} {NO_MORE};", {**KEYTAB, "serviceName": "kafka"}),
    # Java looks into the cache first; the keytab does not expire.
    (f"{KRB5} required useTicketCache=true renewTGT=true useKeyTab=true {OF_KEYTAB};", KEYTAB),
    (f"kafkashaded.{KRB5} required useTicketCache=true;", {}),
    (f'{KRB5} required useTicketCache=true ticketCache="/tmp/krb5cc_0" principal="app@R" doNotPrompt=true '
     "renewTGT=false;", CACHE),
])  # fmt: skip
def test_one_login_in_many_writings(text: str, options: dict[str, str]) -> None:
    login = parse_jaas(text)
    assert login.mechanisms == next(found for module, found in MODULES.items() if module in text)
    assert dict(login.options) == options


@pytest.mark.parametrize(("module", "mechanisms"), list(MODULES.items()))
def test_every_module_stands_for_its_mechanisms(module: str, mechanisms: tuple[str, ...]) -> None:
    options = "useTicketCache=true" if module == KRB5 else ""
    assert parse_jaas(f"{module} required {options};").mechanisms == mechanisms


@given(st.text())
def test_any_password_survives_its_quotes_and_is_not_shown(password: str) -> None:
    escaped = f"{password}{CANARY}".replace("\\", "\\\\").replace('"', '\\"')
    login = parse_jaas(f'{SCRAM} required username="a" password="{escaped}";')
    assert dict(login.options)["password"] == f"{password}{CANARY}"
    assert CANARY not in repr(login)


@pytest.mark.parametrize(("text", "words"), [
    ("", "login module is none"),
    (CANARY, "login module is none"),
    (f'com.example.{CANARY} required password="{CANARY}";', "login module is none"),
    (f'not{PLAIN} required password="{CANARY}";', "login module is none"),
    ("com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;", "keyTab is missing"),
    (f'{MSK} required awsRoleSecretAccessKey="{CANARY}";', "awsRoleSecretAccessKey: the options hold no AWS keys"),
    (f'{MSK} required awsRoleArn="a" awsRoleAccessKeyId="{CANARY}";', "no AWS keys"),
    (f"{MSK} required awsMskRegionProvider={CANARY};", "AWS_REGION"),
    (f"{MSK} required awsShouldUseFips=true;", "AWS_USE_FIPS_ENDPOINT"),
    (f'{MSK} required awsRoleArn="a" awsAddDefaultProviders="true";', "awsAddDefaultProviders is not false"),
    (f'{MSK} required awsRoleArn="a" awsProfileName="{CANARY}";', "use one of them"),
    (f'{MSK} required aws{CANARY}="x";', "option number 1 is none of awsDebugCreds"),
    (f'{PLAIN} username="{CANARY}" password="x";', "a flag"),
    (f'{PLAIN} required username="{CANARY}"', "semicolon"),
    (f'{PLAIN} required username="{CANARY};', "quote"),
    (f'{PLAIN} required username="alice" password=;', "option number 2"),
    (f'{PLAIN} required username="alice" {CANARY};', "option number 2"),
    (f'{PLAIN} required username="alice" = "{CANARY}";', "option number 2"),
    (f'{PLAIN} required username="alice" user_{CANARY}="x";', "option number 2 is none of password, username"),
    (f'{PLAIN} required username="a"; {PLAIN} required password="{CANARY}";', "more than one"),
    (f'{OAUTH} required unsecuredLoginStringClaim_sub="{CANARY}";', "option number 1 is none of clientId"),
    (f'{PLAIN} required password="{CANARY * 10_000}";', "characters"),
    (f'{OAUTH} required extension_auth="{CANARY}";', "extension_auth is the token's own place"),
    (f'{OAUTH} required extension_="{CANARY}";', "the extension 'extension_' is not letters"),
    (f'{OAUTH} required extension_lkc-1="{CANARY}";', "the extension 'extension_lkc-1' is not letters"),
    (f'{OAUTH} required extension_\u00e9="{CANARY}";', "the extension 'extension_\u00e9' is not letters"),
    (f'{OAUTH} required extension_tenant="{CANARY}\u00e9";', "the value of extension_tenant"),
    (f'{OAUTH} required extension_tenant="{CANARY}\x01auth=Bearer x";', "the value of extension_tenant"),
    (f'{OAUTH} required clientSecret="{CANARY}" extension_tenant="";', "the value of extension_tenant is empty"),
    *((f"{module} required {options};", words) for module, options, words in (
        (KRB5, "", "it names no Kerberos credentials; set useKeyTab=true"),
        (KRB5, "useKeyTab=false useTicketCache=false", "names no Kerberos credentials"),
        (KRB5, f'useKeyTab=true principal="{CANARY}"', "keyTab is missing"),
        (KRB5, f'useKeyTab=true keyTab="{CANARY}"', "principal is missing"),
        (KRB5, f'useKeyTab=true keyTab="{CANARY}" principal="*"', "is for servers"),
        (KRB5, f'keyTab="{CANARY}" useTicketCache=true', "only with useKeyTab=true"),
        (KRB5, f'ticketCache="{CANARY}" useKeyTab=true', "only with useTicketCache=true"),
        (KRB5, "useTicketCache=true renewTGT=true", "kinit -R"),
        (KRB5, "useTicketCache=true isInitiator=false", "isInitiator=false is for servers"),
        (KRB5, f"useTicketCache=true {CANARY}=true", "option number 2 is none of"),
        (KRB5, f"useTicketCache={CANARY}", "useTicketCache is neither true nor false"),
        ("com.ibm.security.auth.module.Krb5LoginModule", f'useKeytab="{CANARY}"', f"use {KRB5} and its options"),
    )),
])  # fmt: skip
def test_what_cannot_be_used_is_said_without_showing_it(text: str, words: str) -> None:
    with pytest.raises(JaasProblem, match=words) as problem:
        parse_jaas(text)
    assert CANARY not in str(problem.value)


@given(st.text(alphabet=f'{PLAIN[:5]} =;"\\/*\n', max_size=60))
def test_any_text_is_a_login_or_a_problem(text: str) -> None:
    for whole in (text, f"{PLAIN} required {text}"):
        try:
            parse_jaas(whole)
        except JaasProblem as problem:
            assert str(problem)


def test_comments_without_an_end_are_read_at_once() -> None:
    text = f"{next(iter(MODULES))} required {' '.join(f'a{number}=/*' for number in range(7_000))}"
    started = time.process_time()
    with pytest.raises(JaasProblem):
        parse_jaas(text)
    # Each was looked for to the end of the text, which took six seconds.
    assert time.process_time() - started < 1

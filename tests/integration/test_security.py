"""TLS and SASL against real brokers of both lines: each way in, and each way to be turned away, in time."""

import itertools
import json
import os
import re
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AclOperation, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from pyspark import TaskContext, cloudpickle
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

import kafka_sink
from applications import told_by
from broker_admin import producer, read_values, send
from certificates import FORMS, PASSWORD, Authority, Identity, keystore, truststore
from code_blocks import run_python
from effort import variants
from http_endpoints import Idp, body, token_endpoint, token_for
from kafka_sink.broker import LocalKafka
from kafka_sink.cli import check
from kafka_sink.cli.verification.cluster import Cluster
from kafka_sink.errors import (
    AuthenticationFailed,
    BrokersUnreachable,
    InvalidOption,
    KafkaSinkError,
    TlsFailed,
    TokenUnavailable,
    TopicAuthorizationFailed,
)
from kafka_sink.errors.redaction import Secret
from kafka_sink.kafka.client import Producer
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.protocol.api import Request
from kafka_sink.kafka.protocol.apis.handshake import SaslAuthenticateRequest, SaslHandshakeRequest
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest
from kafka_sink.kafka.write import Write
from kafka_sink.options.config import complete, given_options, sink_config
from kafka_sink.spark.kept_clients import lease_producer
from read_back import read_topic
from scripted_peers import Behaviour, peer, scripted
from secure_kafka import (
    CA,
    CANARY,
    CLIENT_SECRET,
    OTHER_CA,
    PASSWORDS,
    VERSIONS,
    Acl,
    SecureKafka,
    add_scram_users,
    careless_java,
    failure_found,
    keys_of,
    quoted,
    secure_kafka,
)
from segment_files import down
from spark_writes import count_in
from waiting import wait_until

# Half of the time that a write waits for a cluster that it does not reach.
ERROR_S = 30
DEADLINE_S = 60
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
FEW_ITERATIONS = 1000
topic_numbers = itertools.count(1)
Answers = list[tuple[Request, dict[str, Any]]]


@pytest.fixture
def topic(secure: SecureKafka) -> str:
    name = f"rows-{next(topic_numbers)}"
    secure.kafka.create_topic(name, 1)
    return name


def rows(count: int) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array([b"%08d" % n for n in range(count)])})


def write(options: dict[str, str], topic: str, count: int = 100) -> tuple[PartitionOffsets, ...]:
    # Not a kept producer: its connections would be those of another test.
    config = sink_config({**options, "kafka.client.id": f"{topic}-{next(topic_numbers)}"}).producer
    with lease_producer(config) as producer:
        write = Write(producer, topic=topic)
        write.append(rows(count))
        receipts = write.finish()
    producer.close()
    return receipts


def failure_of(options: dict[str, str], topic: str = "any") -> KafkaSinkError:
    """What the write ends with, in time and without showing a password."""
    started = time.monotonic()
    with pytest.raises(KafkaSinkError) as failure:
        write(options, topic)
    assert time.monotonic() - started < ERROR_S
    assert not any(password in str(failure.value) for password in PASSWORDS.values())
    return failure.value


def own(identity: Identity) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in keys_of(identity).items()}


def by_ca_file(options: dict[str, str], folder: Path, certificate: str = CA.certificate) -> dict[str, str]:
    (folder / "ca.pem").write_text(certificate)
    rest = {name: value for name, value in options.items() if name != "kafka.ssl.truststore.certificates"}
    return {**rest, "kafka.ssl.truststore.location": str(folder / "ca.pem")}


# --- let in -----------------------------------------------------------------------------------------------------------


def test_tls(secure: SecureKafka, topic: str, tmp_path: Path) -> None:
    by_file = by_ca_file(secure.tls(), tmp_path)
    for options in (secure.tls(), secure.tls(ssl_enabled_protocols="TLSv1.2"), by_file):
        (receipt,) = write(options, topic)
        assert receipt.record_count == 100
    assert count_in(secure.kafka, topic) == 300


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_stream_goes_on_when_the_brokers_certificate_changes(spark: SparkSession, tmp_path: Path) -> None:
    """While it runs and by a restart: of the same CA, of another one that the truststore's file got before. A CA that
    is not in the file ends it, and what it left is written when the file has it."""
    setting, trust, sent = "listener.name.tls.ssl.keystore.location", tmp_path / "ca.pem", 0
    unknown = Authority("Unknown CA")

    def certificate(number: int, authority: Authority) -> str:
        file = tmp_path / f"{number}.pem"
        file.write_text(authority.issue("broker").pem)
        return str(file)

    first = {setting: certificate(0, CA), "listener.name.tls.ssl.keystore.type": "PEM"}
    with LocalKafka(listeners={"TLS": "SSL"}, config=first) as kafka:
        options = by_ca_file(SecureKafka(kafka).tls(), tmp_path)
        host, port = kafka.addresses_of("TLS").split(":")
        served = ssl.get_server_certificate((host, int(port)))
        kafka.create_topic("in", 2)
        kafka.create_topic("out", 2)
        frame = spark.readStream.format("pykafka").options(**options, subscribe="in", startingOffsets="earliest")
        writer = frame.load().select("value").writeStream.format("pykafka").options(**options, topic="out")
        writer.option("deliveryGuarantee", "exactly-once").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.start()

        def rows_arrive() -> None:
            nonlocal sent
            send(producer(kafka), "in", [b"%d" % number for number in range(sent, sent + 20)])
            sent += 20
            query.processAllAvailable()
            assert read_values(kafka, "out") == Counter(b"%d" % number for number in range(sent))

        rows_arrive()
        for number, authority in enumerate((CA, OTHER_CA, unknown), 1):
            if authority is OTHER_CA:
                trust.write_text(CA.certificate + OTHER_CA.certificate)
            change = ConfigEntry(setting, certificate(number, authority), incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[change])
            client = SecureKafka(kafka).admin  # held: without it what it was asked for is broken off
            client.incremental_alter_configs([resource])[resource].result(DEADLINE_S)
            wait_until(
                lambda: ssl.get_server_certificate((host, int(port))) != served,  # noqa: B023
                DEADLINE_S, "the new certificate",
            )  # fmt: skip
            served = ssl.get_server_certificate((host, int(port)))
            if authority is not unknown:
                rows_arrive()
            with down(kafka):
                pass
            if authority is not unknown:
                rows_arrive()
        with pytest.raises(StreamingQueryException) as failure:
            query.awaitTermination(5 * DEADLINE_S)
        assert isinstance(kafka_sink.error_of(failure.value), TlsFailed)
        trust.write_text(unknown.certificate)
        query = writer.start()
        rows_arrive()
        query.stop()


@pytest.fixture
def let_in(spark: SparkSession, secure: SecureKafka, topic: str) -> Iterator[dict[str, object]]:
    """What the lines of a page take for granted: a DataFrame of one row, which is in the topic then."""
    yield {"df": spark.sql("SELECT 'let in' AS value")}
    assert count_in(secure.kafka, topic) == 1


Replaced = Callable[[str, Mapping[str, str]], dict[str, str]]


@pytest.fixture
def replaced(secure: SecureKafka, topic: str, tmp_path: Path) -> Replaced:
    """What stands in the lines of a page instead of its address and its password."""
    file, protocol = tmp_path / "ca.pem", '"kafka.security.protocol": "SASL_SSL",'
    file.write_text(CA.certificate)
    # A platform's lines name no CA, as every system knows theirs.
    trust = {"/etc/pki/ca.pem": str(file), protocol: f'{protocol} "kafka.ssl.truststore.location": "{file}",'}

    def replaced(address: str, password: Mapping[str, str]) -> dict[str, str]:
        own = {"/etc/pki/ca.pem"} if address == "broker.example:9093" else {protocol}
        named = {name: value for name, value in trust.items() if name in own}
        return {address: secure.kafka.addresses_of("SASL"), '"orders"': f'"{topic}"', **named, **password}

    return replaced


def test_the_documented_way_in(let_in: dict[str, object], replaced: Replaced) -> None:
    there = replaced("broker.example:9093", {'"secret"': quoted(PASSWORDS["alice"])})
    run_python("docs/security.md", "TLS and SASL", 0, there, let_in)


def test_the_way_in_of_confluent_cloud(let_in: dict[str, object], replaced: Replaced) -> None:
    key = {"API-KEY": "alice", "API-SECRET": PASSWORDS["alice"]}
    there = replaced("pkc-xxxxx.eu-west-1.aws.confluent.cloud:9092", key)
    run_python("docs/platforms.md", "Confluent Cloud", 0, there, let_in)


def test_the_way_in_of_amazon_msk(let_in: dict[str, object], replaced: Replaced) -> None:
    address = "b-1.demo.xxxxxx.c2.kafka.eu-west-1.amazonaws.com:9096"
    there = replaced(address, {'"secret"': repr(PASSWORDS["alice"])})
    run_python("docs/platforms.md", "Amazon MSK", 0, there, let_in)


def test_the_client_that_verifies_receipts_connects_by_the_same_options(
    secure: SecureKafka, topic: str, tmp_path: Path
) -> None:
    alice = CA.issue("alice")
    (tmp_path / "both.pem").write_text(alice.key + alice.chain)
    by_files = by_ca_file(secure.tls("MTLS", ssl_keystore_location=str(tmp_path / "both.pem")), tmp_path)
    for options in (secure.tls(), secure.tls("MTLS") | own(alice), by_files, *map(secure.sasl, MECHANISMS)):
        with closing(Cluster(sink_config(options).producer)) as cluster:
            assert cluster.topics([topic])[topic].partition_count == 1
            reader = cluster.partition(topic, 0, committed=False, is_compacted=None)
            assert reader.log().end == 0
    with (
        closing(Cluster(sink_config(secure.tls("MTLS", max_block_ms="3000")).producer)) as cluster,
        pytest.raises(BrokersUnreachable),
    ):
        cluster.topics([topic])


@pytest.mark.long
def test_more_than_a_connection_takes_at_once(secure: SecureKafka, topic: str) -> None:
    (receipt,) = write(secure.tls(compression_type="none"), topic, 400_000)
    assert receipt.record_count == 400_000
    assert [record.value for _, _, record in read_topic(secure.kafka.bootstrap_servers, topic, DEADLINE_S)] == [
        b"%08d" % n for n in range(400_000)
    ]


@pytest.mark.parametrize("password", [None, "opensesame"])
def test_a_client_certificate(secure: SecureKafka, topic: str, password: str | None) -> None:
    options = secure.tls("MTLS") | own(CA.issue("alice", password=password))
    if password:
        options["kafka.ssl.key.password"] = password
    (receipt,) = write(options, topic)
    assert receipt.record_count == 100


def java_stores(secure: SecureKafka, form: str, folder: Path) -> dict[str, str]:
    """The lines of a JVM client, with stores that keytool made."""
    return {
        "kafka.bootstrap.servers": secure.kafka.addresses_of("MTLS"),
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": str(truststore(folder / "trust", [CA.certificate], *FORMS[form])),
        "kafka.ssl.truststore.password": PASSWORD,
        "kafka.ssl.truststore.type": form.partition(" ")[0],
        "kafka.ssl.keystore.location": str(keystore(folder / "own", CA.issue("alice"), *FORMS[form])),
        "kafka.ssl.keystore.password": PASSWORD,
        "kafka.ssl.keystore.type": form.partition(" ")[0],
        "kafka.ssl.key.password": PASSWORD,
    }


@pytest.mark.parametrize("form", variants(*FORMS))
def test_java_stores_as_jvm_clients_have_them(
    spark: SparkSession, secure: SecureKafka, topic: str, tmp_path: Path, form: str
) -> None:
    options = java_stores(secure, form, tmp_path)
    (receipt,) = write(options, topic)
    assert receipt.record_count == 100
    df = spark.range(50).selectExpr("CAST(id AS STRING) AS value")
    df.write.format("pykafka").mode("append").options(**options).option("topic", topic).save()
    once = {"deliveryGuarantee": "exactly-once", "txnAppId": topic, "txnVersion": "0"}
    df.write.format("pykafka").mode("append").options(**options, **once).option("topic", topic).save()
    with closing(Cluster(sink_config(options).producer)) as cluster:
        assert cluster.topics([topic])[topic].partition_count == 1
    assert count_in(secure.kafka, topic) == 200


def test_the_documented_way_in_with_java_stores(
    secure: SecureKafka, topic: str, let_in: dict[str, object], tmp_path: Path
) -> None:
    found = java_stores(secure, "JKS", tmp_path)
    replaced = {
        "broker.example:9093": found["kafka.bootstrap.servers"],
        "/etc/kafka/truststore.jks": found["kafka.ssl.truststore.location"],
        "/etc/kafka/keystore.jks": found["kafka.ssl.keystore.location"],
        '"orders"': f'"{topic}"', '"changeit"': f'"{PASSWORD}"',
    }  # fmt: skip
    run_python("docs/security.md", "Java keystores", 0, replaced, let_in)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_each_mechanism_over_tls_by_options_and_without_tls(secure: SecureKafka, topic: str, mechanism: str) -> None:
    options = secure.sasl(mechanism)
    (receipt,) = write(options, topic)
    assert receipt.record_count == 100
    bare = to(secure, "BARE", options) | {"kafka.security.protocol": "SASL_PLAINTEXT"}
    # What is for TLS is refused where there is none.
    del options["kafka.sasl.jaas.config"], bare["kafka.ssl.truststore.certificates"]
    write(options | {"kafka.sasl.username": "alice", "kafka.sasl.password": PASSWORDS["alice"]}, topic)
    write(bare | {"allowPlaintextCredentials": "true"}, topic)
    assert count_in(secure.kafka, topic) == 300


@pytest.mark.long
@pytest.mark.parametrize("mechanism", ["PLAIN", pytest.param("SCRAM-SHA-256", marks=pytest.mark.long), "SCRAM-SHA-512"])
def test_sessions_that_end_in_mid_write_lose_nothing(secure: SecureKafka, topic: str, mechanism: str) -> None:
    """KIP-368: sessions of two seconds, and no connection more than it takes without."""
    write_for(6, to(secure, "SHORT", secure.sasl(mechanism)), secure, topic)


def write_for(seconds: float, options: dict[str, str], secure: SecureKafka, topic: str) -> None:
    """A session is renewed on its one connection."""
    with closing(Producer(sink_config(options).producer)) as producer:
        write = Write(producer, topic=topic)
        appended, until = 0, time.monotonic() + seconds
        while time.monotonic() < until:
            write.append(rows(10))
            producer.flush(write.acknowledgements)
            appended += 10
        (receipt,) = write.finish()
        connections = producer._network.connects
    assert receipt.record_count == appended == count_in(secure.kafka, topic)
    assert connections == 1


# --- turned away ------------------------------------------------------------------------------------------------------


def to(secure: SecureKafka, listener: str | None, options: dict[str, str]) -> dict[str, str]:
    """The options at another listener; None: the plaintext one."""
    servers = secure.kafka.bootstrap_servers if listener is None else secure.kafka.addresses_of(listener)
    return options | {"kafka.bootstrap.servers": servers}


def of_ca(certificate: str) -> dict[str, str]:
    return {"ssl_truststore_certificates": certificate}


UNTRUSTED = TlsFailed, ["CA that is not trusted", "kafka.ssl.truststore.location"], "tls", ["CA that is not trusted"]
NOT_ACCEPTED = TlsFailed, ["did not accept the client's certificate"], "tls", ["did not accept"]
SPEAKS_TLS = TlsFailed, ["the peer speaks TLS", "kafka.security.protocol"], "tls", ["kafka.security.protocol to S"]
PLAINTEXT = BrokersUnreachable, ["closed the connection during the TLS handshake", "plaintext listener"], "tls"
Options = Callable[[SecureKafka], dict[str, str]]


@pytest.mark.parametrize(
    ("options", "error", "said", "step", "found"),
    [
        (lambda at: at.tls("EXPIRED"), TlsFailed, ["has expired"], "tls", ["has expired", "renewed on the broker"]),
        (
            lambda at: at.tls("ELSEWHERE"), TlsFailed, ["another host name"], "tls",
            ["another host name", "issued for this one"],
        ),
        (lambda at: at.tls(**of_ca(OTHER_CA.certificate)), *UNTRUSTED),
        (lambda at: at.tls(**of_ca(Authority().certificate)), *UNTRUSTED),
        (lambda at: at.sasl("PLAIN", **of_ca(OTHER_CA.certificate)), *UNTRUSTED),
        (
            lambda at: at.tls("MTLS"), TlsFailed, ["got none", "kafka.ssl.keystore.location"], "tls",
            ["got none", "kafka.ssl.keystore.location"],
        ),
        (lambda at: at.tls("MTLS") | own(OTHER_CA.issue("alice")), *NOT_ACCEPTED),
        (lambda at: at.tls("MTLS") | own(CA.issue("alice", expired=True)), *NOT_ACCEPTED),
        (lambda at: to(at, "TLS", {}), *SPEAKS_TLS),
        (lambda at: to(at, "SASL", {}), *SPEAKS_TLS),
        pytest.param(
            lambda at: to(at, None, at.tls(max_block_ms="5000")), *PLAINTEXT, ["plaintext listener"],
            marks=pytest.mark.long,
        ),
        pytest.param(
            lambda at: to(at, None, at.sasl("PLAIN", max_block_ms="5000")), *PLAINTEXT, ["plaintext listener"],
            marks=pytest.mark.long,
        ),
        (
            lambda at: to(at, "TLS", at.sasl("PLAIN")), AuthenticationFailed, ["expects no authentication"], "sasl",
            ["expects no authentication"],
        ),
        (
            lambda at: to(at, "SASL", at.tls(max_block_ms="5000")), KafkaSinkError, ["requires authentication"], "sasl",
            ["requires authentication", "kafka.sasl.mechanism"],
        ),
        (
            lambda at: to(at, "TOKENS", at.sasl("PLAIN")), AuthenticationFailed, ["OAUTHBEARER"], "sasl",
            ["it offers: OAUTHBEARER", "kafka.sasl.mechanism"],
        ),
    ],
    ids=[
        "the broker's certificate has expired", "the broker's certificate is for another host", "another CA",
        "another CA of the same name", "another CA with SASL", "the client's certificate is missing",
        "the client's certificate is of another CA", "the client's certificate has expired",
        "plaintext to a TLS port", "plaintext to a port of TLS and SASL", "TLS to a plaintext port",
        "TLS and SASL to a plaintext port", "SASL to a port without", "no SASL to a port with it",
        "a mechanism that is not offered",
    ],
)  # fmt: skip
def test_who_is_turned_away_is_told_why_by_the_write_and_by_the_check(
    secure: SecureKafka, options: Options, error: type[KafkaSinkError], said: list[str], step: str, found: list[str]
) -> None:
    given = options(secure)
    failure = failure_of(given)
    assert isinstance(failure, error), failure
    assert all(words in str(failure) for words in said), failure
    verdict = failure_found({**given, "topic": "any"})
    assert (verdict.step, verdict.where) == (step, given["kafka.bootstrap.servers"])
    assert all(words in str(verdict.finding) for words in found), verdict


def test_host_names_are_not_verified_where_that_is_said_and_the_check_warns(
    secure: SecureKafka, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = secure.tls("ELSEWHERE", ssl_endpoint_identification_algorithm="")
    assert write(options, topic)
    lines = (f"{name} = {text}".replace("\n", "\\n") for name, text in options.items())
    (tmp_path / "options").write_text("\n".join(lines))
    assert check.main(["--preset", str(tmp_path / "options")]) == check.OK
    found = capsys.readouterr().out
    assert re.search(r"WARNING +tls +.*host names\s+of\s+brokers\s+are\s+not\s+verified", found), found


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["alice", "carol"])
def test_a_wrong_password_or_an_unknown_user(secure: SecureKafka, mechanism: str, user: str) -> None:
    """Brokers do not tell one from the other, lest users be guessed."""
    options = secure.sasl(mechanism, user, CANARY)
    failure = failure_of(options)
    assert isinstance(failure, AuthenticationFailed)
    assert (failure.mechanism, failure.user) == (mechanism, user)
    assert "the broker refused" in failure.reason
    assert CANARY not in str(failure)
    found = failure_found({**options, "topic": "any"})
    assert (found.step, f"'{user}'" in found.finding.found) == ("sasl", True)
    assert "check user name and password" in found.finding.remedy


@pytest.mark.parametrize(
    ("form", "password", "said"),
    [
        (None, None, "none.pem"),
        ("JKS", CANARY, "kafka.ssl.truststore.password"),
        ("PKCS12", CANARY, "the password of the PKCS12 store"),
        ("PKCS12", None, "'kafka.ssl.truststore.password' is required"),
    ],
)
def test_the_check_names_a_truststore_that_cannot_be_opened(
    secure: SecureKafka, tmp_path: Path, form: str | None, password: str | None, said: str
) -> None:
    store = tmp_path / "none.pem" if form is None else truststore(tmp_path / "trust", [CA.certificate], *FORMS[form])
    options = secure.tls(ssl_truststore_location=str(store))
    del options["kafka.ssl.truststore.certificates"]
    options |= {} if password is None else {"kafka.ssl.truststore.password": password}
    failure = failure_found({**options, "topic": "any"})
    assert (failure.step, said in failure.finding.found) == ("tls", True), failure


@pytest.mark.long
@pytest.mark.parametrize("version", VERSIONS)
def test_a_broker_that_asks_for_too_few_iterations(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unchanged Kafka neither keeps nor offers such a password."""
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", careless_java(version, FEW_ITERATIONS, tmp_path))
    with secure_kafka(version) as careless:
        careless.kafka.create_topic("any", 1)
        assert write(careless.sasl("SCRAM-SHA-256"), "any")
        add_scram_users(careless.admin, iterations=FEW_ITERATIONS)
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            failure = failure_of(careless.sasl(mechanism))
            assert isinstance(failure, AuthenticationFailed)
            assert (failure.mechanism, failure.user) == (mechanism, "alice")
            assert f"it asks for {FEW_ITERATIONS} iterations" in failure.reason


# --- allowed, and not -------------------------------------------------------------------------------------------------


def test_an_acl_that_is_missing_is_named(secure: SecureKafka, topic: str) -> None:
    failure = failure_of(secure.sasl("SCRAM-SHA-256", "bob"), topic)
    assert isinstance(failure, TopicAuthorizationFailed)
    assert failure.topic == topic
    assert f"TOPIC {topic} WRITE" in str(failure)
    assert "User:bob" in str(failure)


def test_an_acl_that_is_revoked_in_mid_write(secure: SecureKafka, topic: str) -> None:
    acl = Acl(ResourceType.TOPIC, topic, AclOperation.WRITE)
    secure.allow(acl)
    config = sink_config(secure.sasl("SCRAM-SHA-512", "bob")).producer
    denied = pytest.raises(TopicAuthorizationFailed, match=f"TOPIC {topic} WRITE.*User:bob")
    with denied, lease_producer(config) as producer:
        write = Write(producer, topic=topic)
        write.append(rows(100))
        producer.flush(write.acknowledgements)
        secure.revoke(acl)
        append_until_refused(producer, write)


def append_until_refused(producer: Producer, write: Any) -> None:
    until = time.monotonic() + ERROR_S
    while time.monotonic() < until:
        write.append(rows(100))
        producer.flush(write.acknowledgements)


def test_at_least_once_needs_write_on_its_topic_and_no_more(secure: SecureKafka, topic: str) -> None:
    secure.allow(Acl(ResourceType.TOPIC, topic, AclOperation.WRITE))
    (receipt,) = write(secure.sasl("SCRAM-SHA-512", "bob"), topic)
    assert receipt.record_count == 100


# --- tokens -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Idp]:
    with token_endpoint(CA.issue("idp")) as idp:
        yield idp


def test_a_token_of_an_endpoint(secure: SecureKafka, topic: str, endpoint: Idp) -> None:
    endpoint.gives("alice", 60)
    (receipt,) = write(secure.tokens(endpoint.url), topic)
    assert receipt.record_count == 100
    asked = len(endpoint.told)
    write(secure.tokens(endpoint.url), topic)
    assert len(endpoint.told) == asked, "kept for all connections of the process"


def without_credentials(secure: SecureKafka) -> dict[str, str]:
    """Options for a token of a callable."""
    return secure.tls("TOKENS", sasl_mechanism="OAUTHBEARER")


def test_a_token_of_a_callable(secure: SecureKafka, topic: str) -> None:
    options = without_credentials(secure)
    token = token_for("alice", 60)
    given = {**given_options(options), "token_callable": Secret(cloudpickle.dumps(lambda: (token, 60.0)))}
    with lease_producer(complete(given).producer) as producer:
        write = Write(producer, topic=topic)
        write.append(rows(10))
        (receipt,) = write.finish()
    producer.close()
    assert receipt.record_count == 10
    assert kafka_sink.partition_count({**options, "topic": topic}, token=lambda: (token, 60.0)) == 1
    with pytest.raises(InvalidOption, match="sasl"):
        kafka_sink.partition_count({**options, "topic": topic})


HOSTILE = "\x1b[2J\r\nERROR all is lost\u202e\u2028" + "x" * 20_000


def hostile_peers() -> list[Behaviour]:
    """A refusal with a text, names of hosts and topics, and a frame of 2 GiB."""
    refused: Answers = [
        (SaslHandshakeRequest("PLAIN"), {}),
        (SaslAuthenticateRequest(b""), {"error_code": 58, "error_message": HOSTILE}),
    ]  # fmt: skip
    named = {"brokers": [{"node_id": 7, "host": HOSTILE, "port": 9}], "topics": [{"name": HOSTILE, "partitions": []}]}
    named_so: Answers = [
        (SaslHandshakeRequest("PLAIN"), {}), (SaslAuthenticateRequest(b""), {}), (MetadataRequest(("t",), False), named)
    ]  # fmt: skip

    def long(sock: socket.socket) -> None:
        sock.recv(4096)
        sock.sendall(b"\x7f\xff\xff\xff" + b"\x1b[2J\n" * 1_000)

    return [scripted(refused), scripted(named_so), long]


def assert_harmless(failures: list[dict[str, str]], *secrets: str) -> None:
    for failed in failures:
        text = failed["text"] + failed["found"]
        assert not any(secret in text for secret in secrets), failed
        assert all(line.isprintable() for line in text.replace("\t", " ").split("\n")) and len(text) < 50_000
        assert not any(line.startswith("ERROR all") for line in text.split("\n"))


@pytest.mark.long
@pytest.mark.timeout(300)
def test_what_hostile_peers_say_to_a_client_of_spark_connect() -> None:
    short = {"kafka.max.block.ms": "3000", "kafka.delivery.timeout.ms": "3000", "kafka.request.timeout.ms": "2000",
             "kafka.linger.ms": "0"}  # fmt: skip
    login = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN",
             "allowPlaintextCredentials": "true", "kafka.sasl.username": "alice",
             "kafka.sasl.password": CANARY}  # fmt: skip
    with ExitStack() as peers:
        ports = [peers.enter_context(peer(each)) for each in hostile_peers()]
        at = [{**login, "kafka.bootstrap.servers": f"127.0.0.1:{port}"} for port in ports]
        told = told_by(
            "connect_apps.py", "hostile", json.dumps([{"write": {**each, **short}, "read": each} for each in at])
        )
    assert_harmless(told, CANARY)
    classes = [each["class"] for each in told]
    assert len(classes) == 9 and set(classes) <= {"AuthenticationFailed", "BrokersUnreachable"}, classes


def tenants_topics(secure: SecureKafka) -> dict[str, str]:
    """A topic of each, which only its user may write and read."""
    topics = {user: f"of-{user}-{next(topic_numbers)}" for user in ("bob", "dan")}
    for user, name in topics.items():
        secure.kafka.create_topic(name, 1)
        may = AclOperation.WRITE, AclOperation.READ
        secure.allow(*(Acl(ResourceType.TOPIC, name, each) for each in may), user=user)
    return topics


@pytest.mark.long
@pytest.mark.timeout(300)
def test_two_tenants_on_one_spark_connect_server(secure: SecureKafka) -> None:
    users: list[dict[str, Any]] = [
        {"token": token_for(user, 3600), "topic": name} for user, name in tenants_topics(secure).items()
    ]
    users[0]["options"] = secure.sasl("SCRAM-SHA-512", "bob")
    told = told_by("connect_apps.py", "tenants", json.dumps(users), json.dumps(without_credentials(secure)))
    assert told["read"] == [2, 1]
    assert [each["class"] for each in told["refused"]] == ["TopicAuthorizationFailed"] * 5
    assert told["without"]["class"] == "MissingOption"
    secrets = [*(each["token"] for each in users), PASSWORDS["bob"]]
    assert_harmless([*told["refused"], told["without"]], *secrets)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_two_tenants_in_one_worker_reach_their_own_topics_only(
    spark: SparkSession, secure: SecureKafka, tmp_path: Path
) -> None:
    """Both register the same function, which looks up the current user. Bob also writes with a password."""
    current_user, asked = tmp_path / "current-user", tmp_path / "asked"
    tokens = {user: token_for(user, 3600) for user in ("bob", "dan")}
    own_topics = tenants_topics(secure)

    def of_current_user() -> tuple[str, float]:
        user = current_user.read_text()
        with asked.open("a") as file:
            file.write(f"{user} {os.getpid()} {TaskContext.get() is not None}\n")
        return tokens[user], 3600.0

    options = {**without_credentials(secure), "kafka.client.id": own_topics["bob"]}
    sessions = {user: spark.newSession() for user in tokens}

    def writes(user: str, topic: str, given: dict[str, str] = options) -> None:
        current_user.write_text(user)
        frame = sessions[user].sql(f"select '{user}' as value").coalesce(1)
        frame.write.format("pykafka").options(**given, topic=topic).mode("append").save()

    def reads(user: str, topic: str) -> list[str]:
        current_user.write_text(user)
        frame = sessions[user].read.format("pykafka").options(**options, subscribe=topic).load()
        return [bytes(row.value).decode() for row in frame.collect()]

    for user, session in sessions.items():
        kafka_sink.register(session, token=of_current_user)
        writes(user, own_topics[user])
        assert reads(user, own_topics[user]) == [user]
    writes("bob", own_topics["bob"], secure.sasl("SCRAM-SHA-512", "bob"))
    for user, other in (("bob", "dan"), ("dan", "bob")):
        for refused in (writes, reads):
            with pytest.raises(PySparkException, match=f"not allowed to .*{own_topics[other]}"):
                refused(user, own_topics[other])
    with pytest.raises(PySparkException, match=f"{own_topics['dan']} WRITE.*User:bob"):
        writes("bob", own_topics["dan"], secure.sasl("SCRAM-SHA-512", "bob"))
    assert reads("bob", own_topics["bob"]) == ["bob", "bob"]
    assert reads("dan", own_topics["dan"]) == ["dan"]
    in_tasks = {tuple(line.split()[:2]) for line in asked.read_text().splitlines() if line.endswith("True")}
    workers = [{pid for each, pid in in_tasks if each == user} for user in tokens]
    assert set.intersection(*workers), "or they had workers of their own"


def test_a_token_of_an_endpoint_that_a_java_truststore_trusts(
    secure: SecureKafka, topic: str, endpoint: Idp, tmp_path: Path
) -> None:
    endpoint.gives("alice", 60)
    options = secure.tokens(endpoint.url, sasl_oauthbearer_scope="java", ssl_truststore_password=PASSWORD)
    del options["kafka.ssl.truststore.certificates"], options["kafka.ssl.truststore.type"]
    for form in FORMS:
        store = truststore(tmp_path / form.replace(" ", "-"), [CA.certificate], *FORMS[form])
        (receipt,) = write(options | {"kafka.ssl.truststore.location": str(store)}, topic)
        assert receipt.record_count == 100


@pytest.mark.long
def test_tokens_that_expire_in_mid_write_lose_nothing(secure: SecureKafka, topic: str, endpoint: Idp) -> None:
    """KIP-368: tokens of three seconds."""
    endpoint.gives("alice", 3)
    endpoint.told.clear()
    write_for(8, secure.tokens(endpoint.url, sasl_oauthbearer_scope=topic), secure, topic)
    assert len(endpoint.told) >= 3


@pytest.mark.long
def test_a_token_that_expires_in_mid_write_and_is_not_renewed(secure: SecureKafka, topic: str, endpoint: Idp) -> None:
    endpoint.gives("alice", 4)
    config = sink_config(secure.tokens(endpoint.url, sasl_oauthbearer_scope=topic)).producer
    no_token = pytest.raises(TokenUnavailable, match=r"401 \(invalid_client\)")
    with no_token as failure, lease_producer(config) as producer:
        write = Write(producer, topic=topic)
        write.append(rows(100))
        producer.flush(write.acknowledgements)
        endpoint.answers = [(401, body(error="invalid_client"))]
        append_until_refused(producer, write)
    assert CLIENT_SECRET not in str(failure.value)


def test_no_token_and_one_that_the_broker_refuses(secure: SecureKafka, endpoint: Idp) -> None:
    expired = token_for("alice", -30)
    endpoint.answers = [(200, body(access_token=expired, expires_in=60))]
    refused = failure_of(secure.tokens(endpoint.url, sasl_oauthbearer_scope="expired"))
    assert isinstance(refused, AuthenticationFailed)
    assert (refused.mechanism, refused.user) == ("OAUTHBEARER", "app")
    assert "the broker refused" in refused.reason and expired not in str(refused)
    endpoint.answers = [(401, body(error="invalid_client"))]
    assert isinstance(failure_of(secure.tokens(endpoint.url, sasl_oauthbearer_scope="none")), TokenUnavailable)
    unknown = {"ssl_truststore_certificates": OTHER_CA.certificate}
    failure = failure_of(secure.tokens(endpoint.url, sasl_oauthbearer_scope="ca", **unknown))
    assert isinstance(failure, TokenUnavailable) and "certificate" in failure.reason

"""The table of options: names, texts, and values that nobody may see."""

import pickle
import traceback
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effort import each
from kafka_sink.errors import ConfigError, InvalidOption, RefusedOption, UnknownOption
from kafka_sink.errors.redaction import redacted
from kafka_sink.options.config import given_options, sink_config
from kafka_sink.options.kinds import REQUIRED, Option, OptionTable
from kafka_sink.options.reading import READING
from kafka_sink.options.table import OPTIONS, REFUSED, WRITING

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def read(name: str, text: str, **more: Any) -> Any:
    option = WRITING.named(name)
    assert option is not None
    return option.read(text, **more)


@each("option", OPTIONS)
def test_every_option_is_found_in_any_case_has_a_meaning_and_reads_its_own_default(option: Option) -> None:
    assert WRITING.named(option.name.swapcase()) is option
    assert option.doc
    if option.default not in (REQUIRED, None):
        assert option.read(f" {option.default} ") == option.default


@pytest.mark.parametrize("table", [WRITING, READING], ids=["writing", "reading"])
def test_no_name_is_both_taken_and_refused_or_there_twice(table: OptionTable) -> None:
    names = [name.lower() for name in (*(option.name for option in table.options), *table.refused, *table.sparks)]
    assert len(set(names)) == len(names)
    assert [name for name in table.by_key if name.startswith((*table.refused_prefixes, *table.not_yet_prefixes))] == []


@pytest.mark.parametrize(("name", "nearest"), [
    ("kafka.bootstrap.server", "kafka.bootstrap.servers"), ("kafka.lingerms", "kafka.linger.ms"),
    ("batch.size", "kafka.batch.size"), ("Topics", "topic"), ("linger", "kafka.linger.ms"), ("kafka.topic", "topic"),
    ("kafka.partitioner", "partitioner"), ("maxBlockMs", "kafka.max.block.ms"),
])  # fmt: skip
def test_an_unknown_option_comes_with_the_nearest_known(name: str, nearest: str) -> None:
    with pytest.raises(UnknownOption) as failure:
        WRITING.named(name)
    assert nearest in failure.value.nearest and repr(nearest) in str(failure.value)


@pytest.mark.parametrize("name", [*REFUSED, "kafka.sasl.oauthbearer.assertion.file"])
def test_refused_options_say_what_to_do_and_not_their_value(name: str) -> None:
    with pytest.raises(RefusedOption) as failure:
        sink_config({**SERVERS, name.lower(): "hunter2"})
    assert failure.value.option.lower() == name.lower() and "hunter2" not in str(failure.value)


def test_a_name_of_the_conf_is_named_as_it_stands_there() -> None:
    for key in ("kafka.lingerms", "kafka.transactional.id", "path"):
        with pytest.raises((UnknownOption, RefusedOption)) as failure:
            WRITING.named(key, prefix="spark.pykafka.")
        assert failure.value.option == f"spark.pykafka.{key}"
    with pytest.raises(UnknownOption, match=r"'spark\.pykafka\.kafka\.linger\.ms'"):
        WRITING.named("kafka.lingerms", prefix="spark.pykafka.")
    with pytest.raises(InvalidOption, match=r"'spark\.pykafka\.kafka\.acks' is '2'"):
        read("kafka.acks", "2", prefix="spark.pykafka.")


def test_credentials_in_a_path_are_refused_and_not_shown() -> None:
    with pytest.raises(RefusedOption) as failure:
        given_options({"receiptspath": "s3://key:secret@bucket/folder"})
    assert "receiptsPath" in str(failure.value) and "secret" not in str(failure.value)
    for path in ("s3://bucket/folder/", "abfss://container@account.dfs.core.windows.net/f", "file:///f", "/f/"):
        assert given_options({"receiptsPath": path}) == {"receipts_path": path.rstrip("/")}


@pytest.mark.parametrize("name", [
    "kafka.sasl.password", "kafka.ssl.truststore.password", "kafka.ssl.keystore.password", "kafka.ssl.key.password",
    "kafka.sasl.oauthbearer.client.credentials.client.secret",
])  # fmt: skip
def test_a_password_keeps_the_spaces_around_it(name: str) -> None:
    assert WRITING.by_key[name].read(" a b ").value == " a b "


@pytest.mark.parametrize(("text", "servers"), [
    ("a:1", (("a", 1),)), (" a:1 , b.c-d:65535 ,", (("a", 1), ("b.c-d", 65535))), ("[::1]:9092", (("::1", 9092),)),
    ("PLAINTEXT://h:9092", (("h", 9092),)),
    ("SASL_SSL://pkc-1.eu.confluent.cloud:9092", (("pkc-1.eu.confluent.cloud", 9092),)),
    ("SASL_PLAINTEXT://a:1,SASL_PLAINTEXT://[::1]:2", (("a", 1), ("::1", 2))),
])  # fmt: skip
def test_bootstrap_servers_are_read_as_kafka_reads_them(text: str, servers: tuple[tuple[str, int], ...]) -> None:
    producer = sink_config({"kafka.bootstrap.servers": text}).producer
    assert producer.bootstrap_servers == servers
    again = sink_config({"kafka.bootstrap.servers": producer.bootstrap_servers_text}).producer
    assert again.bootstrap_servers == servers


@pytest.mark.parametrize(("name", "text"), [
    ("kafka.bootstrap.servers", "localhost"), ("kafka.bootstrap.servers", "localhost:0"),
    ("kafka.bootstrap.servers", ""), ("kafka.bootstrap.servers", "a:1;b:2"), ("topic", "no spaces"), ("topic", ".."),
    ("topic", ""), ("receiptsPath", "relative/folder"), ("receiptsPath", "s3://"), ("receiptsPath", ""),
    ("deliveryGuarantee", "at-most-once"), ("transactionalIdPrefix", "no spaces"), ("transactionalIdPrefix", "a|b"),
    ("transactionalIdPrefix", ""), ("transactionalIdPrefix", "x" * 201), ("txnAppId", "a|b"), ("txnAppId", "x" * 201),
    ("txnVersion", "-1"), ("txnVersion", "1.5"), ("txnVersion", str(2**63)), ("commitTopic", "no/slash"),
    ("allowLostState", "perhaps"), ("kafka.transaction.timeout.ms", "0"), ("kafka.acks", "2"), ("kafka.acks", "leader"),
    ("kafka.enable.idempotence", "maybe"), ("kafka.max.in.flight.requests.per.connection", "0"),
    ("kafka.retries", "-1"), ("kafka.linger.ms", "-1"), ("kafka.linger.ms", "5s"), ("kafka.linger.ms", "1_000"),
    ("kafka.linger.ms", "\N{ARABIC-INDIC DIGIT ONE}"), ("kafka.linger.ms", "9" * 5_000),
    ("kafka.compression.type", "brotli"), ("kafka.compression.zstd.level", "23"),
    ("kafka.compression.zstd.level", "-131073"), ("kafka.compression.gzip.level", "0"),
    ("kafka.compression.gzip.level", "10"), ("kafka.compression.gzip.level", "-2"),
    ("kafka.compression.gzip.level", "best"), ("kafka.compression.lz4.level", "0"),
    ("kafka.compression.lz4.level", "18"), ("kafka.security.protocol", "TLS"), ("kafka.ssl.truststore.type", "BKS"),
    ("kafka.ssl.truststore.location", ""), ("kafka.ssl.enabled.protocols", "TLSv1.1,TLSv1.2"),
    ("kafka.ssl.enabled.protocols", ","), ("kafka.ssl.protocol", "SSLv3"),
    ("kafka.ssl.endpoint.identification.algorithm", "ldaps"), ("kafka.sasl.mechanism", "DIGEST-MD5"),
    ("kafka.sasl.kerberos.service.name", "kafka/broker"), ("kafka.sasl.kerberos.service.name", "kafka@REALM"),
    ("kafka.sasl.kerberos.service.name", ""), ("kafka.sasl.mechanism", "DIGEST-MD5"),
    ("kafka.sasl.oauthbearer.token.endpoint.url", "idp.example/token"),
    ("kafka.sasl.oauthbearer.token.endpoint.url", "file:///etc/passwd"),
    ("kafka.sasl.oauthbearer.token.endpoint.url", "https://alice@idp.example/"),
    ("kafka.sasl.oauthbearer.token.endpoint.url", "https://idp.example:99999/"),
    ("kafka.sasl.oauthbearer.token.endpoint.url", "https://idp.example/" + "x" * 3000), ("partitioner", "random"),
    ("includeHeaders", "yes"),
])  # fmt: skip
def test_a_value_that_cannot_be_used_is_named_with_what_was_expected(name: str, text: str) -> None:
    with pytest.raises(InvalidOption) as failure:
        read(name, text)
    assert failure.value.option == name
    assert repr(redacted(text)) in str(failure.value) and "No row of this write was sent" in str(failure.value)


@pytest.mark.parametrize("text", ["BCFKS", "jceks", "BKS"])
def test_another_type_of_a_store_comes_with_the_command_that_converts_it(text: str) -> None:
    with pytest.raises(InvalidOption, match=rf"-srcstoretype {text.upper()} .*-deststoretype PKCS12"):
        read("kafka.ssl.truststore.type", text)


def test_an_error_says_what_is_wrong_and_not_what_the_jaas_text_is() -> None:
    with pytest.raises(InvalidOption, match="Kerberos") as failure:
        read("kafka.sasl.jaas.config", f"com.sun.security.auth.module.Krb5LoginModule required principal={MARK};")
    assert MARK not in shown_by(failure.value)
    with pytest.raises(InvalidOption, match=r"expected host:port\[,host:port...\] \('b' is not host:port\)"):
        read("kafka.bootstrap.servers", "a:1,b")


@pytest.mark.parametrize("text", ["user:hunter2:9092", "SASL_SSL://user:hunter2:9092", "h:1,user:hunter2:9092"])
def test_a_user_and_a_password_are_no_host(text: str) -> None:
    """They would be sent to name servers."""
    with pytest.raises(InvalidOption, match="is not host:port") as raised:
        sink_config({"topic": "t", "kafka.bootstrap.servers": text})
    assert "hunter2" not in str(raised.value)


@given(st.text(max_size=30), st.text(max_size=30))
def test_any_text_is_an_option_or_a_config_error(name: str, text: str) -> None:
    try:
        sink_config({**SERVERS, name: text})
    except ConfigError as error:
        assert str(error)


MARK = "hunter2"


def shown_by(error: BaseException) -> str:
    """Everything a log, a stack trace, or a pickled error on its way to the driver could show."""
    again = pickle.loads(pickle.dumps(error))
    return "".join([*traceback.format_exception(error), repr(error), repr(vars(error)), str(again), repr(vars(again))])

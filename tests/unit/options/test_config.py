"""Options, Spark's conf and defaults become one configuration, or an error that says what is wrong."""

import contextlib
import re
import time
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effort import each
from kafka_sink.errors import InvalidOption, MissingOption, UnknownOption
from kafka_sink.errors.redaction import Secret
from kafka_sink.kafka.config import ProducerConfig, SecurityConfig
from kafka_sink.options import cautions
from kafka_sink.options.cautions import warn_of_given, warn_once
from kafka_sink.options.config import (
    RULES,
    SECURITY_RULES,
    SinkConfig,
    check_given,
    complete,
    given_conf,
    given_options,
    sink_config,
)
from kafka_sink.options.kinds import INT32_MAX, Option
from kafka_sink.options.table import OPTIONS

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


def test_defaults_are_the_documented_ones() -> None:
    config = sink_config(SERVERS)
    assert (config.topic, config.delivery_guarantee, config.partitioner) == (None, "at-least-once", "murmur2")
    producer = config.producer
    assert producer.bootstrap_servers == (("localhost", 9092),)
    assert (producer.acks, producer.enable_idempotence, producer.retries) == ("all", True, 2**31 - 1)
    assert (producer.compression_type, producer.compression_level) == ("zstd", None)
    assert (producer.buffer_memory, producer.batch_size) == (64 * 2**20, 2**20)
    assert (producer.max_block_ms, producer.delivery_timeout_ms) == (360_000, 360_000)


@pytest.mark.parametrize(("codec", "level"), [("none", None), ("gzip", 2), ("snappy", None), ("lz4", 3), ("zstd", 4)])
def test_the_level_is_the_one_of_the_codec_in_use(codec: str, level: int | None) -> None:
    levels = {f"kafka.compression.{name}.level": str(n) for name, n in (("gzip", 2), ("lz4", 3), ("zstd", 4))}
    assert sink_config({**SERVERS, **levels, "kafka.compression.type": codec}).producer.compression_level == level


@pytest.mark.parametrize(("sizes", "named"), [
    ({"delivery.timeout.ms": "30000"}, "delivery.timeout.ms"), ({"buffer.memory": "1048576"}, "buffer.memory"),
    ({"max.request.size": str(2**26), "buffer.memory": str(2**25)}, "max.request.size"),
    # Memory for two batches, and a row that would take two and a half.
    # 1,048,592 bytes are rounded down to what halves evenly, and 32 bytes are missing for the second row.
    ({"max.request.size": "2097184", "batch.size": "1048592", "buffer.memory": "2097184"}, "max.request.size"),
    ({"max.request.size": "2500000", "batch.size": "1000000", "buffer.memory": "2900000"}, "max.request.size"),
])  # fmt: skip
def test_options_that_contradict_each_other_are_refused(sizes: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidOption) as failure:
        sink_config({**SERVERS, **{f"kafka.{name}": text for name, text in sizes.items()}})
    assert failure.value.option == f"kafka.{named}"


@pytest.mark.parametrize(("name", "text", "reason"), [
    ("kafka.retries", "0", "send a batch again"), ("kafka.acks", "1", "was kept"), ("kafka.acks", "0", "was kept"),
    ("kafka.max.in.flight.requests.per.connection", "6", "a leader remembers"),
])  # fmt: skip
def test_what_idempotence_cannot_have_ends_it_and_is_refused_beside_it(name: str, text: str, reason: str) -> None:
    for beside in ({}, {"kafka.enable.idempotence": "FALSE"}):
        assert not sink_config({**SERVERS, name: text, **beside}).producer.enable_idempotence
    with pytest.raises(InvalidOption, match=reason) as failure:
        sink_config({**SERVERS, name: text, "kafka.Enable.Idempotence": "true"})
    assert failure.value.option == name
    assert repr(text) in str(failure.value) and "kafka.enable.idempotence is true" in str(failure.value)


def test_every_field_is_filled_by_one_option_and_all_of_tls_and_sasl_are_here() -> None:
    filled = sorted(option.field for option in OPTIONS if option.field is not None)
    kinds = (SecurityConfig, ProducerConfig, SinkConfig)
    wanted = {field.name for kind in kinds for field in fields(kind)} - {"producer", "security", "token_callable"}
    assert filled == sorted(wanted)
    assert {field for rule in RULES for field in rule.fields} <= {*filled, "token_callable"}
    names = {one.name for one in OPTIONS if one.name.startswith(("kafka.ssl.", "kafka.sasl."))}
    assert MEANT.keys() | SAYS_NOTHING.keys() == names


def test_an_option_wins_over_the_conf_and_the_conf_over_the_default() -> None:
    conf = {"spark.pykafka.kafka.linger.ms": "7", "spark.pykafka.topic": "conf", "spark.app.name": "x"}
    assert sink_config(SERVERS, conf).producer.linger_ms == 7
    assert sink_config({**SERVERS, "kafka.Linger.ms": "8"}, conf).producer.linger_ms == 8
    assert sink_config(SERVERS, {}).producer.linger_ms == 100
    assert (sink_config(SERVERS, conf).topic, sink_config({**SERVERS, "topic": "o"}, conf).topic) == ("conf", "o")
    conf = {"spark.pykafka.kafka.bootstrap.servers": "h:1"}
    assert sink_config({"topic": "t"}, conf).producer.bootstrap_servers == (("h", 1),)
    with pytest.raises(MissingOption, match=r"spark\.pykafka\.kafka\.bootstrap\.servers"):
        sink_config({"topic": "t"}, {"pykafka.kafka.bootstrap.servers": "h:1"})


@pytest.mark.parametrize("option", [one for one in OPTIONS if isinstance(one.default, int)], ids=lambda one: one.name)
def test_the_order_is_the_same_for_every_option(option: Option) -> None:
    default, others = option.default, {True: "false", False: "true", -1: "1", INT32_MAX: "0"}
    is_truth = isinstance(default, bool)
    other = others[default] if is_truth or default in (-1, INT32_MAX) else str(default + 1)
    options, conf = {option.name: str(option.default)}, {f"spark.pykafka.{option.name}": other}
    protocol = {"spark.pykafka.kafka.security.protocol": "SSL"}
    if option.field is None:
        assert given_options(options) == given_conf(conf) == {}
        return
    assert given_conf(conf)[option.field] == option.read(other) != option.default
    used, by_conf = (sink_config({**SERVERS, **each}, conf | protocol) for each in (options, {}))
    for config, text in ((used, str(option.default)), (by_conf, other)):
        holders = (config, config.producer, config.producer.security)
        (value,) = (getattr(holder, option.field) for holder in holders if hasattr(holder, option.field))
        assert value == option.read(text)


def test_the_conf_is_checked_as_options_are_and_named_as_it_is_there() -> None:
    with pytest.raises(UnknownOption, match=r"'spark\.pykafka\.kafka\.ack'.*'spark\.pykafka\.kafka\.acks'"):
        given_conf({"spark.pykafka.kafka.ack": "1"})
    with pytest.raises(InvalidOption, match=r"'spark\.pykafka\.kafka\.acks' is '7'"):
        given_conf({"spark.pykafka.kafka.acks": "7"})
    assert given_conf({"spark.pykafkax.acks": "7", "spark.sql.shuffle.partitions": "2"}) == {}


def test_only_a_contradiction_that_the_conf_cannot_solve_is_told_before_it() -> None:
    short = given_options({"kafka.delivery.timeout.ms": "20000"})
    check_given(short)
    mended = given_conf({"spark.pykafka.kafka.request.timeout.ms": "5000"})
    assert complete({**mended, **given_options(SERVERS), **short}).producer.delivery_timeout_ms == 20_000
    check_given(short | given_options({"kafka.request.timeout.ms": "30000"}))
    with pytest.raises(InvalidOption, match=r"kafka\.delivery\.timeout\.ms"):
        check_given({**short, **given_options({"kafka.request.timeout.ms": "30000", "kafka.linger.ms": "0"})})
    with pytest.raises(InvalidOption, match="idempotent"):
        check_given(given_options({"kafka.enable.idempotence": "true", "kafka.retries": "0"}))
    check_given(given_options({"kafka.enable.idempotence": "false", "kafka.retries": "0"}))


VERSIONED = {"deliveryGuarantee": "exactly-once", "txnAppId": "orders", "txnVersion": "7"}


@pytest.mark.parametrize(("left_out", "added", "named", "expected"), [
    ("txnVersion", {}, "txnAppId", "txnVersion with it"), ("txnAppId", {}, "txnVersion", "txnAppId with it"),
    ("deliveryGuarantee", {}, "txnAppId", "deliveryGuarantee=exactly-once with it"),
    ("", {"deliveryGuarantee": "at-least-once"}, "txnAppId", "deliveryGuarantee=exactly-once with it"),
    ("", {"transactionalIdPrefix": "p"}, "transactionalIdPrefix", "no value with txnAppId: .* 'orders'"),
    ("", {"receiptName": "p"}, "receiptName", "no value with txnAppId: .* 'orders'"),
])  # fmt: skip
def test_both_name_a_write_that_is_exactly_once_and_no_conf_can_add_what_is_missing(
    left_out: str, added: dict[str, str], named: str, expected: str
) -> None:
    options = {name: text for name, text in {**VERSIONED, **added}.items() if name != left_out}
    for check in (lambda: check_given(given_options(options)), lambda: sink_config({**SERVERS, **options})):
        with pytest.raises(InvalidOption, match=expected) as failure:
            check()
        assert failure.value.option == named


SIZES = {field for rule in RULES if rule not in SECURITY_RULES for field in rule.fields}


@given(st.dictionaries(st.sampled_from(sorted(SIZES)), st.integers(0, 2**31)))
def test_what_is_refused_early_is_refused_late(sizes: dict[str, int]) -> None:
    sizes.pop("acks", None), sizes.pop("enable_idempotence", None)
    if sizes.get("batch_size") == 0:
        return
    try:
        check_given(sizes)
    except InvalidOption:
        with pytest.raises(InvalidOption):
            complete({**given_options(SERVERS), **sizes})


PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
JAAS = f'{PLAIN_MODULE} required username="alice" password="hunter2";'
SECURE = {**SERVERS, "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}
USER = {"kafka.sasl.username": "alice", "kafka.sasl.password": "hunter2"}
TLS = {**SERVERS, "kafka.security.protocol": "SSL"}
GSSAPI = {**SERVERS, "kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "GSSAPI"}
KRB5 = "com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true serviceName=kfk;"
TOKEN_URL = "kafka.sasl.oauthbearer.token.endpoint.url"
CLIENT = "kafka.sasl.oauthbearer.client.credentials.client"
HTTP = "http://idp/other,http://idp:80/"
TOKEN = {
    **SERVERS, "kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER",
    TOKEN_URL: "https://idp.example/token", f"{CLIENT}.id": "app", f"{CLIENT}.secret": "hunter2",
}  # fmt: skip
KEYSTORE, TRUSTSTORE = (f"kafka.ssl.{store}.location" for store in ("keystore", "truststore"))
SERVICE = "kafka.sasl.kerberos.service.name"


@pytest.mark.parametrize(("options", "named"), [
    ({**SECURE}, "kafka.sasl.mechanism"), ({**SECURE, "kafka.sasl.username": "alice"}, "kafka.sasl.mechanism"),
    ({**SECURE, "kafka.sasl.jaas.config": f"{PLAIN_MODULE} required;"}, "kafka.sasl.mechanism"),
    ({**SECURE, **USER, "kafka.sasl.jaas.config": JAAS}, "kafka.sasl.jaas.config"),
    ({**SECURE, "kafka.sasl.mechanism": "SCRAM-SHA-512", "kafka.sasl.jaas.config": JAAS}, "kafka.sasl.jaas.config"),
    ({**SECURE, **USER, "kafka.security.protocol": "SASL_PLAINTEXT"}, "kafka.security.protocol"),
    ({**SERVERS, **USER, "kafka.security.protocol": "SASL_SSL"}, "kafka.security.protocol"),
    ({**TOKEN, "kafka.sasl.oauthbearer.token.endpoint.url": "http://idp/"}, TOKEN_URL),
    ({**TOKEN, "kafka.sasl.oauthbearer.token.endpoint.url": "http://idp/", "allowedTokenUrls": HTTP}, TOKEN_URL),
    ({key: value for key, value in TOKEN.items() if key != TOKEN_URL}, "kafka.sasl.mechanism"),
    ({key: value for key, value in TOKEN.items() if key != f"{CLIENT}.secret"}, TOKEN_URL),
    ({**TOKEN, "kafka.security.protocol": "SASL_PLAINTEXT"}, "kafka.security.protocol"),
    ({**TLS, "kafka.ssl.keystore.key": "k"}, "kafka.ssl.keystore.key"),
    ({**TLS, "kafka.ssl.keystore.certificate.chain": "c"}, "kafka.ssl.keystore.certificate.chain"),
    ({**TLS, "kafka.ssl.keystore.location": "k.pem", "kafka.ssl.keystore.certificate.chain": "c"}, KEYSTORE),
    ({**TLS, "kafka.ssl.truststore.location": "t.pem", "kafka.ssl.truststore.certificates": "c"}, TRUSTSTORE),
    ({**TLS, "kafka.ssl.truststore.password": "hunter2"}, "kafka.ssl.truststore.password"),
    ({**TLS, "kafka.ssl.keystore.password": "hunter2"}, "kafka.ssl.keystore.password"),
    (GSSAPI, "kafka.sasl.mechanism"), ({**GSSAPI, SERVICE: "kafka", "kafka.sasl.jaas.config": KRB5}, SERVICE),
    ({**GSSAPI, SERVICE: "kafka", "kafka.sasl.jaas.config": JAAS}, "kafka.sasl.jaas.config"),
])  # fmt: skip
def test_security_options_that_contradict_each_other(options: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidOption) as failure:
        sink_config(options)
    assert failure.value.option == named and "hunter2" not in str(failure.value)
    assert named in options, "no option is blamed that nobody has set"


@pytest.mark.parametrize("options", [
    {"kafka.sasl.kerberos.service.name": "kafka"}, {"kafka.sasl.jaas.config": KRB5},
    {"kafka.sasl.jaas.config": KRB5, "kafka.sasl.kerberos.service.name": "kfk"},
])  # fmt: skip
def test_kerberos_needs_the_name_of_the_service_once_and_no_password(options: dict[str, str]) -> None:
    security = sink_config({**GSSAPI, **options}).producer.security
    assert security.kerberos_service_name == ("kfk" if "kafka.sasl.jaas.config" in options else "kafka")
    assert security.principal is None, "the brokers make a name of it by their rules"


# A value other than the default's, of every option of TLS and SASL.
MEANT = {
    "kafka.ssl.truststore.location": ("/ca.pem", "SSL"), "kafka.ssl.truststore.password": ("hunter2", "SSL"),
    "kafka.ssl.truststore.certificates": ("pem", "SSL"), "kafka.ssl.keystore.location": ("/me.pem", "SSL"),
    "kafka.ssl.keystore.password": ("hunter2", "SSL"), "kafka.ssl.keystore.certificate.chain": ("pem", "SSL"),
    "kafka.ssl.keystore.key": ("hunter2", "SSL"), "kafka.ssl.key.password": ("hunter2", "SSL"),
    "kafka.ssl.enabled.protocols": ("TLSv1.3", "SSL"), "kafka.ssl.protocol": ("TLS", "SSL"),
    "kafka.sasl.mechanism": ("SCRAM-SHA-256", "SASL_SSL"), "kafka.sasl.jaas.config": (JAAS, "SASL_SSL"),
    "kafka.sasl.username": ("alice", "SASL_SSL"), "kafka.sasl.password": ("hunter2", "SASL_SSL"),
    "kafka.sasl.kerberos.service.name": ("kafka", "SASL_SSL"), TOKEN_URL: ("https://idp.example/token", "SASL_SSL"),
    f"{CLIENT}.id": ("app", "SASL_SSL"), f"{CLIENT}.secret": ("hunter2", "SASL_SSL"),
    "kafka.sasl.oauthbearer.scope": ("x", "SASL_SSL"), "kafka.sasl.oauthbearer.header.urlencode": ("true", "SASL_SSL"),
}  # fmt: skip
# What others of their name say is the default, or takes protection away.
SAYS_NOTHING = {
    **dict.fromkeys(("kafka.ssl.truststore.type", "kafka.ssl.keystore.type"), "PEM"),
    "kafka.ssl.endpoint.identification.algorithm": "",
    "kafka.sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}
CERTIFICATES = [name for name in MEANT if re.search("store|password", name) and ".ssl." in name]


@pytest.mark.parametrize("name", MEANT)
@pytest.mark.parametrize("in_conf", [False, True])
def test_options_of_tls_or_sasl_without_a_protocol_never_send_plaintext(name: str, in_conf: bool) -> None:
    text, meant = MEANT[name]
    # As shared settings have it, beside what is the default.
    beside = {**SERVERS, **SAYS_NOTHING, "kafka.ssl.endpoint.identification.algorithm": "https"}
    with pytest.raises(MissingOption) as failure:
        if in_conf:
            sink_config(beside, {f"spark.pykafka.{name}": text})
        else:
            sink_config({**beside, name.upper(): text})
    assert failure.value.option == "kafka.security.protocol" and "hunter2" not in str(failure.value)
    assert f"{name} given without it" in str(failure.value) and f"Use {meant}." in str(failure.value)


def test_without_a_protocol_everything_that_asks_for_one_is_named() -> None:
    with pytest.raises(MissingOption, match=r"mechanism, kafka\.sasl\.username given.*Use SASL_SSL as an"):
        sink_config(
            {**SERVERS, "kafka.sasl.username": "alice", "kafka.sasl.mechanism": "PLAIN", "kafka.sasl.password": "",
             "deliveryGuarantee": "exactly-once"}
        )  # fmt: skip


def test_settings_that_ask_for_nothing_need_no_protocol() -> None:
    settings = SAYS_NOTHING | {
        "kafka.ssl.protocol": "TLSv1.3", "kafka.ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
        "kafka.sasl.oauthbearer.header.urlencode": "false", "kafka.sasl.password": "",
        "kafka.ssl.truststore.password": "",
    }  # fmt: skip
    for algorithm in ("", "https"):
        config = sink_config(SERVERS | settings | {"kafka.ssl.endpoint.identification.algorithm": algorithm})
        assert config.producer.security.security_protocol == "PLAINTEXT"


@pytest.mark.parametrize("name", CERTIFICATES)
@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT"])
def test_certificates_are_refused_under_a_protocol_that_does_not_encrypt(name: str, protocol: str) -> None:
    login = {"kafka.security.protocol": protocol, "kafka.sasl.mechanism": "SCRAM-SHA-256", **USER}
    options = {**SERVERS, **login, name: MEANT[name][0]}
    with pytest.raises(InvalidOption, match=f"under {protocol} rows would go to the brokers in plaintext") as failure:
        sink_config(options)
    assert failure.value.option == name and "hunter2" not in str(failure.value)
    # Where the write is planned as well.
    with pytest.raises(InvalidOption):
        check_given(given_options(options))


def test_a_protocol_that_the_write_names_leaves_the_certificates_of_the_conf() -> None:
    conf = {f"spark.pykafka.{name}": text for name, (text, _) in MEANT.items() if name not in CERTIFICATES[1:]}
    conf["spark.pykafka.kafka.security.protocol"] = "SASL_SSL"
    security = sink_config({**SERVERS, "kafka.security.protocol": "PLAINTEXT"}, conf).producer.security
    assert security == SecurityConfig()
    # A certificate of the write's own is not taken for one of the conf.
    with pytest.raises(InvalidOption):
        sink_config({**SERVERS, "kafka.ssl.truststore.location": "/ca.pem"}, {**conf, **PLAINTEXT_CONF})


PLAINTEXT_CONF = {"spark.pykafka.kafka.security.protocol": "PLAINTEXT"}


def test_a_token_endpoint_is_asked_with_the_truststore_whatever_the_brokers_are() -> None:
    options = {
        **TOKEN, "kafka.security.protocol": "SASL_PLAINTEXT", "allowPlaintextCredentials": "true",
        "kafka.ssl.truststore.location": "/idp.pem",
    }  # fmt: skip
    assert sink_config(options).producer.security.ssl_truststore_location == "/idp.pem"
    check_given(given_options({key: value for key, value in options.items() if key != "kafka.sasl.mechanism"}))
    with pytest.raises(InvalidOption, match="SASL_SSL"):
        sink_config({**options, "kafka.ssl.keystore.location": "/me.pem"})


@pytest.mark.parametrize(("options", "says"), [
    ({**TLS, "kafka.ssl.endpoint.identification.algorithm": ""}, "host names of brokers are not verified"),
    ({**TLS, **USER}, "kafka.sasl.password, kafka.sasl.username without effect"),
    ({**SERVERS, **USER, "kafka.security.protocol": "PLAINTEXT"}, "without effect"),
])  # fmt: skip
def test_what_protects_less_than_it_could_is_logged_once(
    options: dict[str, str], says: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cautions, "LOGGED", set())
    for _ in range(3):
        warn_of_given(given_options(options))
        warn_once(sink_config(options).producer.security)
    # What is as it should be is not.
    for fine in (SERVERS, TLS, {**SECURE, **USER}, {**SERVERS, "kafka.ssl.endpoint.identification.algorithm": ""}):
        warn_once(sink_config(fine).producer.security)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert says in record.getMessage() and "hunter2" not in record.getMessage()


def test_a_token_endpoint_over_http_must_be_allowed_by_its_url() -> None:
    security = sink_config({**TOKEN, TOKEN_URL: "http://idp/other", "allowedTokenUrls": HTTP}).producer.security
    assert (security.sasl_oauthbearer_token_endpoint_url, security.principal) == ("http://idp/other", None)
    assert "hunter2" not in repr(security)


def test_a_callable_is_in_place_of_the_endpoint() -> None:
    callable_only = {key: value for key, value in TOKEN.items() if not key.startswith("kafka.sasl.oauthbearer.")}
    token_callable = Secret(b"hunter2")
    security = complete({**given_options(callable_only), "token_callable": token_callable}).producer.security
    assert security.token_callable == token_callable
    assert "hunter2" not in repr(security)
    with pytest.raises(InvalidOption, match="only one of both"):
        complete({**given_options(TOKEN), "token_callable": token_callable})


PLAINTEXT = {**SECURE, **USER, "kafka.security.protocol": "SASL_PLAINTEXT"}


@pytest.mark.parametrize(("options", "principal"), [
    (SERVERS, "User:ANONYMOUS"), (TLS, None), ({**SECURE, **USER}, "User:alice"),
    ({**SECURE, "kafka.sasl.jaas.config": JAAS}, "User:alice"),
    ({**PLAINTEXT, "allowPlaintextCredentials": "true"}, "User:alice"),
    ({**PLAINTEXT, "kafka.sasl.mechanism": "scram-sha-256"}, "User:alice"),
])  # fmt: skip
def test_who_the_client_is(options: dict[str, str], principal: str | None) -> None:
    security = sink_config(options).producer.security
    assert security.principal == principal
    assert security.is_authenticated == ("kafka.sasl.mechanism" in options)
    if security.is_authenticated:
        assert security.credential("password") == "hunter2"


def fraction(text: str) -> float | None:
    return sink_config({**SERVERS, "badRows": "drop", "maxBadRowFraction": text}).max_bad_row_fraction


@pytest.mark.parametrize("text", ["0" * 100_000, "9" * 100_000 + "x", "1e-" + "9" * 100_000, "." + "0" * 100_000])
def test_a_fraction_is_read_or_refused_at_once_however_long(text: str) -> None:
    started = time.thread_time()
    with contextlib.suppress(InvalidOption):
        assert fraction(text) == 0
    # Quadratic, a hundred thousand digits took half a minute.
    assert time.thread_time() - started < 1


@pytest.mark.parametrize(("text", "found"), [
    ("0", 0), ("1", 1), ("1.0", 1), (".5", 0.5), ("0.25", 0.25), ("2.5e-3", 0.0025), ("5E-1", 0.5), ("00.1", 0.1),
])  # fmt: skip
def test_a_fraction_is_a_number(text: str, found: float) -> None:
    assert fraction(text) == found


@each("text", ["", ".", "1.", "e-3", "-0", "-0.1", "+0", "1e3", "0x1", "inf", "nan", "1_0", "1.01", "2"])
def test_what_is_no_fraction_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="a number from 0 to 1"):
        fraction(text)


@pytest.mark.parametrize(("options", "option", "expected"), [
    ({"badRows": "skip"}, "badRows", "fail, drop, deadLetter"),
    ({"badRows": "deadLetter"}, "deadLetterTopic", "a topic, for badRows=deadLetter"),
    ({"badRows": "drop", "deadLetterTopic": "l"}, "deadLetterTopic", "badRows=deadLetter with it, not drop"),
    ({"deadLetterTopic": "l"}, "deadLetterTopic", "badRows=deadLetter with it, not fail"),
    ({"badRows": "deadLetter", "deadLetterTopic": "t", "topic": "t"}, "deadLetterTopic", "another topic"),
    ({"maxBadRows": "5"}, "maxBadRows", "badRows=drop or badRows=deadLetter"),
    ({"maxBadRowFraction": "0.1", "badRows": "fail"}, "maxBadRowFraction", "badRows=drop or badRows=deadLetter"),
    ({"badRows": "drop", "maxBadRows": "-1"}, "maxBadRows", "a whole number from 0"),
])  # fmt: skip
def test_bad_row_options_that_contradict(options: dict[str, str], option: str, expected: str) -> None:
    with pytest.raises(InvalidOption) as failure:
        sink_config({**SERVERS, **options})
    assert failure.value.option == option and expected in str(failure.value)


def test_where_a_write_is_planned_the_conf_may_still_say_what_is_missing() -> None:
    for options in ({"badRows": "deadLetter"}, {"deadLetterTopic": "l"}):
        check_given(given_options(options))
    with pytest.raises(InvalidOption):
        check_given(given_options({"deadLetterTopic": "l", "badRows": "drop"}))

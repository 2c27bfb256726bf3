"""The frozen configuration of a write. A value comes from the option, else from Spark's conf, else from the default.

    option `kafka.acks`  >  Spark conf `spark.pykafka.kafka.acks`  >  the default in `table.OPTIONS`

Spark passes its conf to tasks, and to no other Python process. So the process that plans a write knows the options
only. It reads and checks them first (`given_options`, `check_given`). Each task then adds the conf (`over_conf`,
`complete`). The planning process passes parsed values by field to the tasks, never the texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from itertools import permutations
from typing import Any, Literal

from kafka_sink.errors import MissingOption, RefusedOption
from kafka_sink.errors.quoting import shell_command
from kafka_sink.errors.redaction import Discreet, Secret
from kafka_sink.kafka.auth.jaas import SERVICE_NAME
from kafka_sink.kafka.config import (
    AUTHENTICATED,
    BARE_MECHANISMS,
    CREDENTIALS,
    ENCRYPTED,
    IDEMPOTENT_IN_FLIGHT,
    PASSWORDLESS_MECHANISMS,
    ClientConfig,
    ProducerConfig,
    SecurityConfig,
    even_batch_size,
)
from kafka_sink.kafka.new_topic import NewTopic
from kafka_sink.options.kinds import REQUIRED, Option, OptionTable
from kafka_sink.options.table import OPTIONS, WRITING

CONF_PREFIX = "spark.pykafka."
EXACTLY_ONCE = "exactly-once"
# Partition 0 is for markers and decisions, partition 1 for barriers.
COMMIT_TOPIC_PARTITIONS = 2
# Values of the option badRows.
FAIL, DEAD_LETTER = "fail", "deadLetter"

# Parsed values by field. Options that were not given are absent.
GivenOptions = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SinkConfig(Discreet):
    """The configuration of a write: the producer's and the connector's own."""

    producer: ProducerConfig
    topic: str | None
    create_topics: NewTopic | Literal[False]
    delivery_guarantee: str
    receipts_path: str | None
    receipt_name: str | None
    partitioner: str
    transactional_id_prefix: str | None
    txn_app_id: str | None
    txn_version: int | None
    commit_topic: str
    allow_lost_state: bool
    transaction_timeout_ms: int
    bad_rows: str
    dead_letter_topic: str | None
    max_bad_rows: int | None
    max_bad_row_fraction: float | None
    row_identity: bool
    max_rows_per_second: int | None
    max_bytes_per_second: int | None
    rate_tasks: int | None
    sail_partitions: int | None


SECURITY_FIELDS = frozenset(field.name for field in fields(SecurityConfig))
_PRODUCER_FIELDS = frozenset(field.name for field in fields(ProducerConfig)) - {"security"}
OPTION_OF = {option.field: option for option in OPTIONS if option.field is not None}


def given_options(texts: Mapping[str, str], *, prefix: str = "", table: OptionTable = WRITING) -> GivenOptions:
    """Return the parsed values of the options in `texts`, whose names Spark passes in any case.

    Messages put `prefix` before the names. Raises UnknownOption, RefusedOption, InvalidOption.
    """
    given = {}
    for key, text in texts.items():
        option = table.named(key, prefix=prefix)
        if option is not None:
            value = option.read(text, prefix=prefix)
            if option.field is not None:
                given[option.field] = value
    return given


def given_conf(conf: Mapping[str, str]) -> GivenOptions:
    """Return the parsed values of the keys in Spark's `conf` that begin with `spark.pykafka.`.

    Raises as `given_options`.
    """
    ours = {key.removeprefix(CONF_PREFIX): text for key, text in conf.items() if key.startswith(CONF_PREFIX)}
    return given_options(ours, prefix=CONF_PREFIX)


def check_given(given: GivenOptions) -> None:
    """Raise InvalidOption if given values contradict each other. The conf and defaults cannot change these values."""
    for rule in RULES:
        if rule in VERSION_RULES or all(field in given for field in rule.fields):
            rule.check(given)


def check_stream(given: GivenOptions) -> None:
    """Raise RefusedOption for options that only batch writes can have."""
    for field in ("txn_app_id", "txn_version"):
        if field in given:
            raise RefusedOption(
                option=OPTION_OF[field].name,
                instead="a stream numbers its micro-batches itself, and transactionalIdPrefix or its "
                "checkpointLocation names it. In foreachBatch, set it on the batch write.",
            )
    if "receipt_name" in given:
        raise RefusedOption(
            option=OPTION_OF["receipt_name"].name,
            instead="a stream's receipts have its query's id. In foreachBatch, set it on the batch write.",
        )


def over_conf(given: GivenOptions, conf: Mapping[str, str]) -> GivenOptions:
    """Return `given`, completed from Spark's `conf`. Raises as `given_options`.

    If the write names its security protocol, values of the conf for other protocols are ignored. Certificates in a
    cluster's conf apply only to the writes that use them.
    """
    both = {**given_conf(conf), **given}
    if "security_protocol" not in given:
        return both
    return {field: value for field, value in both.items() if field in given or not _is_unused(both, field)}


def with_defaults(given: GivenOptions, option_of: Mapping[str, Option]) -> dict[str, Any]:
    """Return `given`, completed with the defaults. Raises MissingOption."""
    values = {"token_callable": None} | {field: option.default for field, option in option_of.items()} | dict(given)
    for field, value in values.items():
        if value is REQUIRED:
            option = option_of[field]
            raise MissingOption(option=option.name, hint=f"{option.kind.values}: {option.doc}.")
    return values


def complete(given: GivenOptions) -> SinkConfig:
    """Return the configuration: `given`, completed with the defaults. Raises MissingOption, InvalidOption."""
    values = with_defaults(given, OPTION_OF)
    check_protocol_is_named(given)
    # As in Kafka's producer (KIP-679): idempotence is off if it was not requested and other options exclude it.
    if "enable_idempotence" not in given and not all(rule.holds(values) for rule in IDEMPOTENCE_RULES):
        values["enable_idempotence"] = False
    if "delivery_timeout_ms" not in given and values["delivery_guarantee"] == EXACTLY_ONCE:
        # A shorter transaction than the default is no contradiction of the user's.
        values["delivery_timeout_ms"] = min(values["delivery_timeout_ms"], values["transaction_timeout_ms"])
    for rule in RULES:
        rule.check(values)
    security = SecurityConfig(**{field: values.pop(field) for field in SECURITY_FIELDS})
    producer = ProducerConfig(**{field: values.pop(field) for field in _PRODUCER_FIELDS}, security=security)
    return SinkConfig(producer=producer, **values)


def sink_config(options: Mapping[str, str], conf: Mapping[str, str] | None = None) -> SinkConfig:
    """Return the configuration for `options` and Spark's `conf`. Raises ConfigError."""
    return complete(over_conf(given_options(options), conf or {}))


def commit_topic_command(what: str, topic: str, client: ClientConfig) -> str:
    """Return the shell command by which an administrator creates or alters a commit topic.

    `what` is `--create` or `--alter`.
    """
    return topics_command(client, {what: None, "--topic": topic, "--partitions": str(COMMIT_TOPIC_PARTITIONS)})


def topics_command(client: ClientConfig, options: Mapping[str, str | None]) -> str:
    return shell_command("kafka-topics.sh", {"--bootstrap-server": client.bootstrap_servers_text, **options})


# --- values that exclude each other -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule:
    """A condition that the values of `fields` must meet. If it fails, the message asks to change the first field to
    `expected`."""

    fields: tuple[str, ...]
    holds: Callable[[Mapping[str, Any]], bool]
    expected: str | Callable[[Mapping[str, Any]], str]

    def check(self, values: Mapping[str, Any]) -> None:
        if not self.holds(values):
            field = self.fields[0]
            text = "" if values[field] is None else str(values[field])
            expected = self.expected if isinstance(self.expected, str) else self.expected(values)
            raise OPTION_OF[field].invalid(text, expected)


def _needs(field: str, other: str, expected: str) -> Rule:
    """Return the rule that `field` has no value without one of `other`."""
    return Rule((field, other), lambda values: values.get(field) is None or values.get(other) is not None, expected)


def _excludes(field: str, *others: str, expected: str | Callable[[Mapping[str, Any]], str]) -> Rule:
    """Return the rule that `field` has no value beside one of `others`."""
    return Rule(
        (field, *others),
        lambda values: values.get(field) is None or all(values.get(other) is None for other in others),
        expected,
    )


def _whole_batches(values: Mapping[str, Any]) -> int:
    batch_size = even_batch_size(values["batch_size"])
    return int(values["buffer_memory"] // batch_size * batch_size)


# Sequence numbers need acknowledgements, retries, and a leader that remembers the batches in flight.
# Source: ProducerConfig.postProcessAndValidateIdempotenceConfigs (KIP-679).
IDEMPOTENCE_RULES = (
    Rule(
        ("retries", "enable_idempotence"),
        lambda values: not values["enable_idempotence"] or values["retries"] > 0,
        "at least 1: an idempotent producer must send a batch again until it knows that the leader has "
        "it (kafka.enable.idempotence is true)",
    ),
    Rule(
        ("acks", "enable_idempotence"),
        lambda values: not values["enable_idempotence"] or values["acks"] == "all",
        "'all': fewer acknowledgements cannot tell an idempotent producer that a batch was kept "
        "(kafka.enable.idempotence is true)",
    ),
    Rule(
        ("max_in_flight_requests_per_connection", "enable_idempotence"),
        lambda values: (
            not values["enable_idempotence"] or values["max_in_flight_requests_per_connection"] <= IDEMPOTENT_IN_FLIGHT
        ),
        f"at most {IDEMPOTENT_IN_FLIGHT}: a leader remembers that many batches of an idempotent "
        "producer (kafka.enable.idempotence is true)",
    ),
)

# Planning reads only the options of the write, so the conf cannot supply a missing one of these.
VERSION_RULES = (
    _needs(
        "txn_app_id",
        "txn_version",
        "txnVersion with it, as an option of the write: only both together identify the write",
    ),
    _needs(
        "txn_version",
        "txn_app_id",
        "txnAppId with it, as an option of the write: only both together identify the write",
    ),
    Rule(
        ("txn_app_id", "delivery_guarantee"),
        lambda values: values.get("txn_app_id") is None or values.get("delivery_guarantee") == EXACTLY_ONCE,
        "deliveryGuarantee=exactly-once with it, as an option of the write: without transactions "
        "the sink cannot know if a write was complete",
    ),
    _excludes(
        "transactional_id_prefix",
        "txn_app_id",
        expected=lambda values: f"no value with txnAppId: the transactional ids begin with {values['txn_app_id']!r}",
    ),
    _excludes(
        "receipt_name",
        "txn_app_id",
        expected=lambda values: f"no value with txnAppId: the name in the receipts is {values['txn_app_id']!r}",
    ),
)

BAD_ROW_RULES = (
    Rule(
        ("dead_letter_topic", "bad_rows"),
        lambda values: (values["dead_letter_topic"] is not None) == (values["bad_rows"] == DEAD_LETTER),
        lambda values: (
            "a topic, for badRows=deadLetter"
            if values["bad_rows"] == DEAD_LETTER
            else f"badRows=deadLetter with it, not {values['bad_rows']}"
        ),
    ),
    Rule(
        ("dead_letter_topic", "topic"),
        lambda values: values["dead_letter_topic"] is None or values["dead_letter_topic"] != values["topic"],
        "another topic than the topic of the rows",
    ),
    *(
        Rule(
            (field, "bad_rows"),
            lambda values, field=field: values[field] is None or values["bad_rows"] != FAIL,  # type: ignore[misc]
            "badRows=drop or badRows=deadLetter with it: badRows=fail stops at the first bad row",
        )
        for field in ("max_bad_rows", "max_bad_row_fraction")
    ),
)

RATE_RULES = tuple(
    _needs(
        field,
        "rate_tasks",
        "rateTasks with it, the number of tasks that share the rate: Spark does not tell how many tasks a write has",
    )
    for field in ("max_rows_per_second", "max_bytes_per_second")
)


def _is_authenticated(values: Mapping[str, Any]) -> bool:
    return values["security_protocol"] in AUTHENTICATED


# A user who sets one of these wants encryption. The other options of TLS only adjust it.
CERTIFICATES = (
    "ssl_truststore_location",
    "ssl_truststore_password",
    "ssl_truststore_certificates",
    "ssl_keystore_location",
    "ssl_keystore_password",
    "ssl_keystore_certificate_chain",
    "ssl_keystore_key",
    "ssl_key_password",
)


def is_set(values: Mapping[str, Any], field: str) -> bool:
    """Return True if the value of `field` is neither empty nor the default."""
    value = values[field].value if isinstance(values[field], Secret) else values[field]
    return field in OPTION_OF and bool(value) and value != OPTION_OF[field].default


def _is_unused(values: Mapping[str, Any], field: str) -> bool:
    """Return True if the security protocol does not use `field`.

    Under SASL_PLAINTEXT, requests to a token endpoint still use the truststore. Without a mechanism OAUTHBEARER is
    assumed, because the mechanism may still come from Spark's conf.
    """
    protocol = values["security_protocol"]
    if field.startswith("sasl_"):
        return protocol not in AUTHENTICATED
    asks_for_tokens = protocol in AUTHENTICATED and values.get("sasl_mechanism", "OAUTHBEARER") == "OAUTHBEARER"
    is_for_endpoint = field.startswith("ssl_truststore_") and asks_for_tokens
    return field.startswith("ssl_") and protocol not in ENCRYPTED and not is_for_endpoint


def check_protocol_is_named(given: GivenOptions) -> None:
    """Raise MissingOption for options of TLS or SASL without a protocol: the default would send rows in plaintext."""
    candidates = (field for field in OPTION_OF if field.startswith(("ssl_", "sasl_")) and field in given)
    set_fields = [field for field in candidates if is_set(given, field)]
    if "security_protocol" in given or not set_fields:
        return
    meant = "SASL_SSL" if any(field.startswith("sasl_") for field in set_fields) else "SSL"
    names = ", ".join(OPTION_OF[field].name for field in set_fields)
    planned = " as an option of the write" if given.get("delivery_guarantee") == EXACTLY_ONCE else ""
    raise MissingOption(
        option=OPTION_OF["security_protocol"].name,
        hint=f"{names} given without it, so rows would go to the brokers in plaintext. Use {meant}{planned}.",
    )


SECURITY_RULES = (
    *(
        Rule(
            (field, "security_protocol"),
            lambda values, field=field: not (is_set(values, field) and _is_unused(values, field)),  # type: ignore[misc]
            lambda values: (
                f"kafka.security.protocol={'SASL_SSL' if _is_authenticated(values) else 'SSL or SASL_SSL'} with it "
                f"(under {values['security_protocol']} rows would go to the brokers in plaintext), or no value"
            ),
        )
        for field in CERTIFICATES
    ),
    Rule(
        ("security_protocol", "sasl_mechanism"),
        lambda values: not _is_authenticated(values) or values["sasl_mechanism"] is not None,
        "SSL or PLAINTEXT without kafka.sasl.mechanism, or that option with it",
    ),
    Rule(
        ("security_protocol", "sasl_mechanism", "allow_plaintext_credentials"),
        lambda values: (
            values["security_protocol"] != "SASL_PLAINTEXT"
            or values["sasl_mechanism"] not in BARE_MECHANISMS
            or values["allow_plaintext_credentials"]
        ),
        lambda values: (
            f"SASL_SSL, because {values['sasl_mechanism']} over SASL_PLAINTEXT shows the credentials to everybody on "
            "the network; or, if that is wanted, allowPlaintextCredentials=true with it"
        ),
    ),
    Rule(
        ("sasl_jaas_config", "sasl_mechanism"),
        lambda values: (
            values["sasl_mechanism"] is None
            or values["sasl_jaas_config"] is None
            or values["sasl_mechanism"] in values["sasl_jaas_config"].value.mechanisms
        ),
        lambda values: f"a login module of kafka.sasl.mechanism = {values['sasl_mechanism']}",
    ),
    _excludes(
        "sasl_jaas_config",
        "sasl_username",
        "sasl_password",
        expected="either it, or kafka.sasl.username and kafka.sasl.password",
    ),
    Rule(
        ("sasl_mechanism", "security_protocol", "token_callable", "sasl_jaas_config", *CREDENTIALS.values()),
        lambda values: (
            not _is_authenticated(values)
            or values["sasl_mechanism"] in PASSWORDLESS_MECHANISMS
            or _has(values, "username", "password")
        ),
        "a mechanism whose credentials are given: a user name and a password in kafka.sasl.jaas.config, "
        "or kafka.sasl.username and kafka.sasl.password",
    ),
    Rule(
        ("sasl_mechanism", "sasl_kerberos_service_name", "sasl_jaas_config"),
        lambda values: values["sasl_mechanism"] != "GSSAPI" or bool(_service_names(values)),
        "kafka.sasl.kerberos.service.name with it: the first part of the brokers' principals, mostly kafka",
    ),
    Rule(
        ("sasl_kerberos_service_name", "sasl_mechanism", "sasl_jaas_config"),
        lambda values: values["sasl_mechanism"] != "GSSAPI" or len(_service_names(values)) <= 1,
        "the same as serviceName in kafka.sasl.jaas.config, or only one of both",
    ),
    Rule(
        ("sasl_mechanism", "sasl_oauthbearer_token_endpoint_url", "token_callable"),
        lambda values: (
            values["sasl_mechanism"] != "OAUTHBEARER"
            or values["sasl_oauthbearer_token_endpoint_url"] is not None
            or values["token_callable"] is not None
        ),
        "kafka.sasl.oauthbearer.token.endpoint.url with it, or else a callable given to "
        "kafka_sink.register(spark, token=...)",
    ),
    Rule(
        ("sasl_oauthbearer_token_endpoint_url", "sasl_mechanism", "token_callable"),
        lambda values: (
            values["sasl_mechanism"] != "OAUTHBEARER"
            or values["sasl_oauthbearer_token_endpoint_url"] is None
            or values["token_callable"] is None
        ),
        "no value beside a callable given to kafka_sink.register(spark, token=...): only one of both",
    ),
    Rule(
        ("sasl_oauthbearer_token_endpoint_url", "sasl_jaas_config", *CREDENTIALS.values()),
        lambda values: (
            values["sasl_oauthbearer_token_endpoint_url"] is None or _has(values, "clientId", "clientSecret")
        ),
        "the URL together with clientId and clientSecret in kafka.sasl.jaas.config, or with "
        "kafka.sasl.oauthbearer.client.credentials.client.id and .client.secret",
    ),
    Rule(
        ("sasl_oauthbearer_token_endpoint_url", "allowed_token_urls"),
        lambda values: (
            values["sasl_oauthbearer_token_endpoint_url"] is None
            or values["sasl_oauthbearer_token_endpoint_url"].lower().startswith("https:")
            or values["sasl_oauthbearer_token_endpoint_url"] in (values["allowed_token_urls"] or ())
        ),
        "https, or the option allowedTokenUrls with this URL in it",
    ),
    _excludes(
        "ssl_truststore_location",
        "ssl_truststore_certificates",
        expected="either it or kafka.ssl.truststore.certificates",
    ),
    _excludes(
        "ssl_keystore_location",
        "ssl_keystore_certificate_chain",
        "ssl_keystore_key",
        expected="either it, or kafka.ssl.keystore.certificate.chain and kafka.ssl.keystore.key",
    ),
    *(
        _needs(field, other, "both kafka.ssl.keystore.key and kafka.ssl.keystore.certificate.chain, or neither")
        for field, other in permutations(("ssl_keystore_key", "ssl_keystore_certificate_chain"))
    ),
    # As DefaultSslEngineFactory: the passwords are for files.
    *(
        Rule(
            (f"ssl_{store}_password", f"ssl_{store}_location"),
            lambda values, store=store: (  # type: ignore[misc]
                not is_set(values, f"ssl_{store}_password") or values[f"ssl_{store}_location"] is not None
            ),
            f"kafka.ssl.{store}.location with it, a JKS or PKCS12 store",
        )
        for store in ("truststore", "keystore")
    ),
)


def _has(values: Mapping[str, Any], *credentials: str) -> bool:
    """Return True if each of `credentials` is given, in the JAAS text or as its own option."""
    jaas = values["sasl_jaas_config"]
    return all(
        values[CREDENTIALS[name]] is not None or (jaas is not None and jaas.value.get(name) is not None)
        for name in credentials
    )


def _service_names(values: Mapping[str, Any]) -> set[str]:
    jaas = values["sasl_jaas_config"]
    return {name for name in (values["sasl_kerberos_service_name"], jaas and jaas.value.get(SERVICE_NAME)) if name}


RULES = (
    *IDEMPOTENCE_RULES,
    *SECURITY_RULES,
    *VERSION_RULES,
    *BAD_ROW_RULES,
    *RATE_RULES,
    Rule(
        ("delivery_guarantee", "enable_idempotence"),
        lambda values: values["delivery_guarantee"] != EXACTLY_ONCE or values["enable_idempotence"],
        "at-least-once if kafka.enable.idempotence is false, or is switched off by kafka.acks, "
        "kafka.retries or kafka.max.in.flight.requests.per.connection",
    ),
    Rule(
        ("transaction_timeout_ms", "delivery_timeout_ms", "delivery_guarantee"),
        lambda values: (
            values["delivery_guarantee"] != EXACTLY_ONCE
            or values["transaction_timeout_ms"] >= values["delivery_timeout_ms"]
        ),
        lambda values: (
            f"at least kafka.delivery.timeout.ms = {values['delivery_timeout_ms']}: a transaction must "
            "outlive its slowest batch"
        ),
    ),
    # Java's rule (KafkaProducer.configureDeliveryTimeout): a batch lingers, then needs time for one request.
    Rule(
        ("delivery_timeout_ms", "linger_ms", "request_timeout_ms"),
        lambda values: values["delivery_timeout_ms"] >= values["linger_ms"] + values["request_timeout_ms"],
        lambda values: (
            "at least kafka.linger.ms + kafka.request.timeout.ms = "
            f"{values['linger_ms'] + values['request_timeout_ms']}"
        ),
    ),
    # One batch fills while another is in flight. With less than two buffers, filling and sending would alternate.
    Rule(
        ("buffer_memory", "batch_size"),
        lambda values: values["buffer_memory"] >= 2 * values["batch_size"],
        lambda values: f"at least twice kafka.batch.size = {2 * values['batch_size']}",
    ),
    # A row that is larger than a batch occupies adjacent buffers, and memory holds a whole number of buffers.
    Rule(
        ("max_request_size", "batch_size", "buffer_memory"),
        lambda values: values["max_request_size"] <= _whole_batches(values),
        lambda values: (
            "at most the whole batches of kafka.batch.size that kafka.buffer.memory has room for = "
            f"{_whole_batches(values)}"
        ),
    ),
)

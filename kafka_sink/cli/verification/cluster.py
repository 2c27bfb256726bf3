"""Reads the records in the topics with confluent-kafka, a client that shares no code with the sink.

One consumer reads a partition from run to run. Between two runs there are records of other writers and transaction
markers. The reader drops up to READ_THROUGH_OFFSETS of them, and seeks over more. The consumer's prefetch buffer limits
the memory.

Exactly-once receipts are checked with isolation.level=read_committed, because only committed rows count. Other receipts
are checked with read_uncommitted, so that an open transaction of another writer cannot hide their rows.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from kafka_sink.cli.verification.checking import Log, Record
from kafka_sink.errors import BrokersUnreachable, RecordsUnreadable
from kafka_sink.errors.redaction import Secret
from kafka_sink.kafka.auth.jaas import KEYTAB, PRINCIPAL
from kafka_sink.kafka.auth.security import msk_iam_signer
from kafka_sink.kafka.config import ProducerConfig, SecurityConfig
from kafka_sink.kafka.net.stores import is_java_store, keystore_pem, truststore_pem

POLL_S = 0.5
# Up to about this many records, reading them is cheaper than a seek.
READ_THROUGH_OFFSETS = 5_000
# Size of the consumer's prefetch buffer. It reads one partition at a time.
QUEUED_KIB = 16 * 1024
# Errors that no retry fixes, as librdkafka's codes: some of them are its own, so `error_codes` does not have them.
HOPELESS = frozenset({
    KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError._AUTHENTICATION,
    KafkaError._SSL,
})  # fmt: skip
# While a leader is elected: the next one, or the same one, answers soon.
ELECTED = frozenset({
    KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH,
})  # fmt: skip

NO_KERBEROS = (
    "confluent-kafka's wheels have no Kerberos; install librdkafka-dev and libsasl2-modules-gssapi-mit, then pip "
    "install --no-binary confluent-kafka confluent-kafka; or read through a listener with another mechanism"
)


@dataclass(frozen=True, slots=True)
class Topic:
    """`topic_id` and `is_compacted` are None if the brokers do not return them."""

    partition_count: int
    topic_id: str | None
    is_compacted: bool | None


class Cluster:
    """The cluster of one verification. `close` ends its connections.

    `timeout_s`: a request or read fails if nothing arrives for this time.
    """

    def __init__(self, config: ProducerConfig) -> None:
        """Raises RecordsUnreadable if the client has no Kerberos and needs it."""
        self._settings = client_settings(config)
        self._servers = config.bootstrap_servers_text
        self.timeout_s = config.max_block_ms / 1000
        try:
            self._admin = AdminClient(self._settings)
        except KafkaException as error:
            if config.security.sasl_mechanism != "GSSAPI":
                raise
            raise RecordsUnreadable(what=f"cluster {self._servers}", reason=f"{NO_KERBEROS}: {_text(error)}") from None
        self._consumers: dict[bool, Consumer] = {}

    def close(self) -> None:
        for consumer in self._consumers.values():
            consumer.close()

    def topics(self, names: list[str]) -> Mapping[str, Topic]:
        """Return the topics of `names` that exist. Raises BrokersUnreachable."""
        try:
            listed = self._admin.list_topics(timeout=self.timeout_s).topics
        except KafkaException as error:
            raise BrokersUnreachable(
                bootstrap_servers=self._servers, waited_ms=int(self.timeout_s * 1000), last_error=_text(error)
            ) from error
        there = [name for name in names if name in listed and not listed[name].error]
        return {
            name: Topic(len(listed[name].partitions), self._topic_id(name), self._is_compacted(name)) for name in there
        }

    def _topic_id(self, name: str) -> str | None:
        try:
            (described,) = self._admin.describe_topics(TopicCollection([name]), request_timeout=self.timeout_s).values()
            found = described.result().topic_id
        except KafkaException:
            return None
        bits = found.get_most_significant_bits() % 2**64 << 64 | found.get_least_significant_bits() % 2**64
        return str(uuid.UUID(int=bits)) if bits else None

    def _is_compacted(self, name: str) -> bool | None:
        try:
            (described,) = self._admin.describe_configs(
                [ConfigResource(ResourceType.TOPIC, name)], request_timeout=self.timeout_s
            ).values()
            return "compact" in described.result()["cleanup.policy"].value
        except KafkaException:
            return None

    def partition(self, topic: str, partition: int, *, committed: bool, is_compacted: bool | None) -> PartitionReader:
        return PartitionReader(self, TopicPartition(topic, partition), committed, is_compacted)

    def consumer(self, *, committed: bool) -> Consumer:
        if committed not in self._consumers:
            self._consumers[committed] = Consumer({
                **self._settings,
                "group.id": "pykafka-verify",  # the client requires it, but commits nothing and joins no group
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "isolation.level": "read_committed" if committed else "read_uncommitted",
                "queued.max.messages.kbytes": QUEUED_KIB,
            })  # fmt: skip
        return self._consumers[committed]


class PartitionReader:
    """Reads one partition from run to run."""

    def __init__(self, cluster: Cluster, where: TopicPartition, committed: bool, is_compacted: bool | None) -> None:
        self._cluster = cluster
        self._where = where
        self._committed = committed
        self._is_compacted = is_compacted
        self._consumer = cluster.consumer(committed=committed)
        # The next offset; None before the first run.
        self._position: int | None = None
        self._ahead: Message | None = None

    def log(self) -> Log:
        """Return the current offsets of the partition. Raises RecordsUnreadable."""
        start, visible_end = self._watermarks(self._consumer)
        # A read_committed reader's end may be before the end of the log.
        _, end = self._watermarks(self._cluster.consumer(committed=False)) if self._committed else (0, visible_end)
        return Log(start, visible_end, end, self._is_compacted)

    def _watermarks(self, consumer: Consumer) -> tuple[int, int]:
        """Return where the log begins, and where it ends for this consumer.

        A leader that was just elected does not tell until it knows (KIP-207), and the client asks it only once.
        """
        deadline_s = time.monotonic() + self._cluster.timeout_s
        while True:
            try:
                low, high = consumer.get_watermark_offsets(self._where, timeout=self._cluster.timeout_s)
            except KafkaException as error:
                if error.args[0].code() not in ELECTED or time.monotonic() >= deadline_s:
                    raise self._unreadable(_text(error)) from error
                time.sleep(POLL_S)
            else:
                return low, high

    def records(self, first: int, last: int) -> Iterator[Record]:
        """Yield the visible records from offset `first` to `last`. Raises RecordsUnreadable."""
        position = self._position
        if position is None or not position <= first <= position + READ_THROUGH_OFFSETS:
            self._consumer.assign([TopicPartition(self._where.topic, self._where.partition, first)])
            self._position, self._ahead = first, None
        while True:
            message, self._ahead = self._ahead or self._next(last), None
            if message is None:
                return
            offset = message.offset()
            assert offset is not None
            self._position = offset
            if offset > last:
                self._ahead = message
                return
            self._position = offset + 1
            if offset >= first:
                yield _record(message)
            if offset == last:
                return

    def _next(self, last: int) -> Message | None:
        """Return the next record, or None if the log ends before offset `last` or at it. Raises RecordsUnreadable.

        A leader that was just elected hands out records up to an older end, for a second or more.
        """
        deadline_s, last_error = time.monotonic() + self._cluster.timeout_s, "no broker answered in time"
        while time.monotonic() < deadline_s:
            message = self._consumer.poll(POLL_S)
            if message is None:
                continue
            error = message.error()
            if error is None:
                return message
            if error.code() == KafkaError._PARTITION_EOF:
                read_to = message.offset()
                assert read_to is not None
                if read_to > last or read_to >= self._watermarks(self._consumer)[1]:
                    # The client reports the end only once, so the next read must seek again.
                    self._position = None
                    return None
                last_error = f"the leader hands out no record from offset {read_to} on, and its log goes on"
                self._consumer.assign([TopicPartition(self._where.topic, self._where.partition, read_to)])
                continue
            last_error = error.str()
            if error.code() in HOPELESS:
                break
        raise self._unreadable(last_error)

    def _unreadable(self, reason: str) -> RecordsUnreadable:
        return RecordsUnreadable(what=f"{self._where.topic}-{self._where.partition}", reason=reason)


def _record(message: Message) -> Record:
    # Any, because the client's annotations include events without a record.
    read: Any = message
    kind, timestamp_ms = read.timestamp()
    return Record(
        read.offset(), read.key(), read.value(), tuple(read.headers() or ()), timestamp_ms,
        kind == TIMESTAMP_LOG_APPEND_TIME,
    )  # fmt: skip


def _text(error: KafkaException) -> str:
    found = error.args[0]
    return str(found.str()) if isinstance(found, KafkaError) else str(error)


# --- how it connects --------------------------------------------------------------------------------------------------


def client_settings(config: ProducerConfig) -> dict[str, Any]:
    """Return librdkafka's settings for the sink's servers and credentials."""
    return {
        "bootstrap.servers": config.bootstrap_servers_text,
        "client.id": config.client_id,
        # No log, because it would mix with the lines of a report. Problems arrive as errors.
        "log_level": 0,
        **_security_settings(config.security),
        **_msk_iam_settings(config),
    }


def _security_settings(security: SecurityConfig) -> dict[str, Any]:
    settings: dict[str, Any] = {"security.protocol": security.security_protocol}
    if security.is_encrypted:
        settings |= {
            "ssl.ca.location": security.ssl_truststore_location,
            "ssl.ca.pem": security.ssl_truststore_certificates,
            # One PEM file has both, and the client finds each of them in it.
            "ssl.certificate.location": security.ssl_keystore_location,
            "ssl.key.location": security.ssl_keystore_location,
            "ssl.certificate.pem": security.ssl_keystore_certificate_chain,
            "ssl.key.pem": _revealed(security.ssl_keystore_key),
            "ssl.key.password": _revealed(security.ssl_key_password),
            **_of_java_stores(security),
            "ssl.endpoint.identification.algorithm": security.ssl_endpoint_identification_algorithm or "none",
        }
    if security.is_authenticated:
        settings["sasl.mechanisms"] = security.sasl_mechanism
        if security.sasl_mechanism == "GSSAPI":
            settings |= {
                "sasl.kerberos.service.name": security.kerberos_service_name,
                "sasl.kerberos.principal": security.jaas_options.get(PRINCIPAL),
                "sasl.kerberos.keytab": security.jaas_options.get(KEYTAB),
            }
        elif security.sasl_mechanism == "AWS_MSK_IAM":
            settings["sasl.mechanisms"] = "OAUTHBEARER"
        elif security.sasl_mechanism == "OAUTHBEARER":
            settings |= {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": security.credential("clientId"),
                "sasl.oauthbearer.client.secret": security.credential("clientSecret"),
                "sasl.oauthbearer.scope": security.credential("scope"),
                "sasl.oauthbearer.token.endpoint.url": security.sasl_oauthbearer_token_endpoint_url,
            }
        else:
            settings |= {
                "sasl.username": security.credential("username"),
                "sasl.password": security.credential("password"),
            }
    return {name: value for name, value in settings.items() if value is not None}


def _of_java_stores(security: SecurityConfig) -> dict[str, str | None]:
    """Return the settings for stores that librdkafka does not read, as PEM."""
    settings: dict[str, str | None] = {}
    truststore, keystore = security.ssl_truststore_location, security.ssl_keystore_location
    if truststore is not None and is_java_store(truststore):
        pem = truststore_pem(truststore, _revealed(security.ssl_truststore_password) or None)
        settings |= {"ssl.ca.location": None, "ssl.ca.pem": pem}
    if keystore is not None and is_java_store(keystore):
        password, key_password = security.ssl_keystore_password, security.ssl_key_password
        found = keystore_pem(keystore, _revealed(password) or None, _revealed(key_password))
        settings |= {"ssl.certificate.location": None, "ssl.key.location": None, "ssl.key.password": found.password}
        settings |= {"ssl.certificate.pem": found.chain, "ssl.key.pem": found.key}
    return settings


def _revealed(secret: Secret | None) -> str | None:
    return None if secret is None else str(secret.value)


def _msk_iam_settings(config: ProducerConfig) -> dict[str, Any]:
    """Return the callback by which librdkafka fetches a token and the time of its expiry, in seconds since 1970."""
    if not config.security.is_authenticated or config.security.sasl_mechanism != "AWS_MSK_IAM":
        return {}
    fetch = msk_iam_signer(config.security, config.bootstrap_hosts).fetch

    def token(_: str) -> tuple[str, float]:
        value, lifetime_s = fetch()
        return value, time.time() + lifetime_s

    return {"oauth_cb": token}

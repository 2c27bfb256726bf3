"""The configuration of a client: the brokers, the security of connections, and the settings of a producer or a
consumer. Fields have Kafka's names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import ClassVar

from kafka_sink.errors.redaction import Discreet, Secret, redacted
from kafka_sink.kafka.auth.jaas import SERVICE_NAME

# That of setup.cfg. `importlib.metadata` would take 30 ms of each process of a query.
VERSION = "0.1.0"

# ProducerStateEntry.NUM_BATCHES_TO_RETAIN
IDEMPOTENT_IN_FLIGHT = 5
ENCRYPTED = ("SSL", "SASL_SSL")
AUTHENTICATED = ("SASL_SSL", "SASL_PLAINTEXT")
# Credential name in a JAAS text -> the field of the option with the same meaning.
CREDENTIALS: Mapping[str, str] = {
    "username": "sasl_username",
    "password": "sasl_password",
    "clientId": "sasl_oauthbearer_client_id",
    "clientSecret": "sasl_oauthbearer_client_secret",
    "scope": "sasl_oauthbearer_scope",
}
# Mechanisms that send the secret itself, readable for anyone who can read the connection.
BARE_MECHANISMS = ("PLAIN", "OAUTHBEARER", "AWS_MSK_IAM")
# Mechanisms without a user name and a password.
PASSWORDLESS_MECHANISMS = ("OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI")
# A smaller batch has too few rows for its header of 61 bytes and its share of a request.
LEAST_BUFFER_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class RegisteredToken:
    """The user's token callable, of one registration.

    A process keeps tokens and connections by their configuration. A callable that looks up the current user is the
    same bytes for each user, so the `key` tells the registrations apart.
    """

    key: str
    call: Callable[[], tuple[str, float]] = field(repr=False)

    def __call__(self) -> tuple[str, float]:
        return self.call()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SecurityConfig(Discreet):
    """Encryption and authentication of connections. None: not set. A Secret hides its value, a text or a JaasLogin, in
    messages and logs."""

    security_protocol: str = "PLAINTEXT"
    ssl_truststore_location: str | None = None
    ssl_truststore_password: Secret | None = None
    ssl_truststore_certificates: str | None = None
    ssl_keystore_location: str | None = None
    ssl_keystore_password: Secret | None = None
    ssl_keystore_certificate_chain: str | None = None
    ssl_keystore_key: Secret | None = None
    ssl_key_password: Secret | None = None
    ssl_endpoint_identification_algorithm: str = "https"
    ssl_enabled_protocols: str = "TLSv1.2,TLSv1.3"
    # Accepted without effect: `ssl_enabled_protocols` decides.
    ssl_protocol: str = "TLSv1.3"
    sasl_mechanism: str | None = None
    sasl_jaas_config: Secret | None = None
    sasl_username: str | None = None
    sasl_password: Secret | None = None
    sasl_kerberos_service_name: str | None = None
    sasl_oauthbearer_token_endpoint_url: str | None = None
    sasl_oauthbearer_client_id: str | None = None
    sasl_oauthbearer_client_secret: Secret | None = None
    sasl_oauthbearer_scope: str | None = None
    sasl_oauthbearer_header_urlencode: bool = False
    allowed_token_urls: tuple[str, ...] | None = None
    allow_plaintext_credentials: bool = False
    # Not an option: the RegisteredToken of `register`, pickled, so that it compares equal in every task.
    token_callable: Secret | None = None

    @property
    def is_encrypted(self) -> bool:
        return self.security_protocol in ENCRYPTED

    @property
    def is_authenticated(self) -> bool:
        """True if the connections authenticate with SASL."""
        return self.security_protocol in AUTHENTICATED

    @property
    def jaas_options(self) -> Mapping[str, str]:
        """The options in `sasl.jaas.config`."""
        return {} if self.sasl_jaas_config is None else dict(self.sasl_jaas_config.value.options)

    def credential(self, name: str) -> str | None:
        """Return a credential by its JAAS name, from the JAAS text or else from the option of the same meaning."""
        value = getattr(self, CREDENTIALS[name])
        of_option: str | None = value.value if isinstance(value, Secret) else value
        return self.jaas_options.get(name, of_option)

    @property
    def kerberos_service_name(self) -> str | None:
        """The first part of the brokers' Kerberos principals."""
        return self.jaas_options.get(SERVICE_NAME) or self.sasl_kerberos_service_name

    @property
    def principal(self) -> str | None:
        """The name by which brokers know the client, or None if the options do not show it. With a client certificate,
        the brokers derive it from the certificate's subject."""
        if not self.is_authenticated:
            return None if self.is_encrypted else "User:ANONYMOUS"
        # The brokers decide which claim of a token is the name, and make a name of a Kerberos principal by their rules.
        username = None if self.sasl_mechanism in PASSWORDLESS_MECHANISMS else self.credential("username")
        return None if username is None else f"User:{redacted(username)}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ClientConfig(Discreet, ABC):
    """What every client of a cluster needs. Equal configurations share one client in a worker process.

    Field names are Kafka's. `*_ms` are milliseconds, sizes are bytes.
    """

    # The option that limits the wait for an answer of the cluster.
    api_timeout_option: ClassVar[str]

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    connections_max_idle_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    metadata_max_age_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    metadata_recovery_strategy: str
    metadata_recovery_rebootstrap_trigger_ms: int
    security: SecurityConfig = SecurityConfig()

    @property
    @abstractmethod
    def api_timeout_ms(self) -> int:
        """How long to wait for an answer of the cluster; the value of `api_timeout_option`."""

    @property
    def bootstrap_hosts(self) -> tuple[str, ...]:
        return tuple(host for host, _ in self.bootstrap_servers)

    @property
    def bootstrap_servers_text(self) -> str:
        """`host:port` pairs as users write them, with an IPv6 host in brackets."""
        servers = self.bootstrap_servers
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in servers)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ProducerConfig(ClientConfig):
    """The configuration of a producer."""

    api_timeout_option: ClassVar[str] = "kafka.max.block.ms"

    acks: str
    enable_idempotence: bool
    retries: int
    max_in_flight_requests_per_connection: int
    batch_size: int
    linger_ms: int
    buffer_memory: int
    max_request_size: int
    max_block_ms: int
    delivery_timeout_ms: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int | None

    @property
    def api_timeout_ms(self) -> int:
        return self.max_block_ms

    @property
    def compression_level(self) -> int | None:
        """The level of `compression_type`; None for a codec without levels, and for zstd's default level."""
        levels: dict[str, int | None] = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.compression_type)


class IsolationLevel(IntEnum):
    """Whether a reader gets the records of open and of aborted transactions (KIP-98).

    `READ_UNCOMMITTED` reads to the high watermark. `READ_COMMITTED` reads to the last stable offset, which is before
    the first open transaction, and leaves out aborted ones. Source: org.apache.kafka.common.IsolationLevel.
    """

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ConsumerConfig(ClientConfig):
    """The configuration of a reader.

    `fetch_bytes`: the most record batches of one answer, unless a single batch is larger.
    """

    api_timeout_option: ClassVar[str] = "kafka.default.api.timeout.ms"

    isolation_level: IsolationLevel
    check_crcs: bool
    client_rack: str
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    default_api_timeout_ms: int

    @property
    def api_timeout_ms(self) -> int:
        return self.default_api_timeout_ms

    @property
    def fetch_bytes(self) -> int:
        return min(self.fetch_max_bytes, self.max_partition_fetch_bytes)


def even_batch_size(batch_size: int) -> int:
    """Return `batch_size` rounded down so that it can be halved to the least size without remainder. With many
    partitions buffers are halved, and buffers of several sizes share one memory."""
    halves = 1 << max(1, batch_size // LEAST_BUFFER_BYTES).bit_length() - 1
    return batch_size - batch_size % halves

"""What a client is made from: the brokers, how connections are secured, and a producer's settings. Fields have Kafka's
names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata

from kafka_sink.kafka.jaas import JaasLogin
from kafka_sink.text.redaction import Discreet, Secret, redacted

try:
    VERSION = metadata.version("pyspark-pykafka")
except metadata.PackageNotFoundError:  # sources used in place
    VERSION = "unknown"

# ProducerStateEntry.NUM_BATCHES_TO_RETAIN
IDEMPOTENT_IN_FLIGHT = 5
ENCRYPTED = ("SSL", "SASL_SSL")
AUTHENTICATED = ("SASL_SSL", "SASL_PLAINTEXT")
# Credentials by their name in a JAAS text: the fields that stand in for them.
CREDENTIALS: Mapping[str, str] = {
    "username": "sasl_username",
    "password": "sasl_password",
    "clientId": "sasl_oauthbearer_client_id",
    "clientSecret": "sasl_oauthbearer_client_secret",
    "scope": "sasl_oauthbearer_scope",
}
# Mechanisms that hand the secret itself to whoever listens.
BARE_MECHANISMS = ("PLAIN", "OAUTHBEARER")
# Below this a batch carries too few rows for its 61 bytes of header and its share of a request to be worth it.
LEAST_BUFFER_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SecurityConfig(Discreet):
    """How connections are encrypted and authenticated; None: not given. What shows itself to nobody is a Secret, of a
    text or of the JaasLogin that one says."""

    security_protocol: str = "PLAINTEXT"
    ssl_truststore_location: str | None = None
    ssl_truststore_certificates: str | None = None
    ssl_keystore_location: str | None = None
    ssl_keystore_certificate_chain: str | None = None
    ssl_keystore_key: Secret | None = None
    ssl_key_password: Secret | None = None
    ssl_endpoint_identification_algorithm: str = "https"
    ssl_enabled_protocols: str = "TLSv1.2,TLSv1.3"
    # Without effect, but for what it says where no protocol is given.
    ssl_protocol: str = "TLSv1.3"
    sasl_mechanism: str | None = None
    sasl_jaas_config: Secret | None = None
    sasl_username: str | None = None
    sasl_password: Secret | None = None
    sasl_oauthbearer_token_endpoint_url: str | None = None
    sasl_oauthbearer_client_id: str | None = None
    sasl_oauthbearer_client_secret: Secret | None = None
    sasl_oauthbearer_scope: str | None = None
    sasl_oauthbearer_header_urlencode: bool = False
    allowed_token_urls: tuple[str, ...] | None = None
    allow_plaintext_credentials: bool = False
    # No option: the callable that was given to `register`, pickled, so that equal ones are equal in every task.
    token_callable: Secret | None = None

    @property
    def is_encrypted(self) -> bool:
        return self.security_protocol in ENCRYPTED

    @property
    def is_authenticated(self) -> bool:
        """By SASL."""
        return self.security_protocol in AUTHENTICATED

    @property
    def jaas(self) -> JaasLogin | None:
        """What `sasl.jaas.config` says."""
        return None if self.sasl_jaas_config is None else self.sasl_jaas_config.value

    def credential(self, name: str) -> str | None:
        """That of the JAAS text, by its name there, or of the option in its place."""
        if self.jaas is not None and self.jaas.get(name) is not None:
            return self.jaas.get(name)
        value = getattr(self, CREDENTIALS[name])
        revealed: str | None = value.value if isinstance(value, Secret) else value
        return revealed

    @property
    def principal(self) -> str | None:
        """By which brokers know the client, where the options tell: a certificate's they make of its subject."""
        if not self.is_authenticated:
            return None if self.is_encrypted else "User:ANONYMOUS"
        # What brokers take of a token is theirs to say.
        username = None if self.sasl_mechanism == "OAUTHBEARER" else self.credential("username")
        return None if username is None else f"User:{redacted(username)}"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ProducerConfig(Discreet):
    """What a producer is made from; equal configurations share one producer in a worker process.

    Fields keep Kafka's spelling. `*_ms` are milliseconds, sizes are bytes.
    """

    bootstrap_servers: tuple[tuple[str, int], ...]
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
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    connections_max_idle_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    metadata_max_age_ms: int
    client_id: str
    send_buffer_bytes: int
    receive_buffer_bytes: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int | None
    security: SecurityConfig = SecurityConfig()

    @property
    def bootstrap_servers_text(self) -> str:
        """`host:port` pairs as users write them; an IPv6 host in brackets."""
        servers = self.bootstrap_servers
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in servers)

    @property
    def compression_level(self) -> int | None:
        """The level of `compression_type`; None for one that has no levels, and for what zstd does by default."""
        levels: dict[str, int | None] = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.compression_type)


def even_batch_size(batch_size: int) -> int:
    """`batch_size` rounded down so that its halves are whole down to the least: with many partitions buffers are
    halved, and those of several sizes share one memory."""
    halves = 1 << max(1, batch_size // LEAST_BUFFER_BYTES).bit_length() - 1
    return batch_size - batch_size % halves

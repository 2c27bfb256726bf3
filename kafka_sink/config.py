"""The options users set, as one table, and the frozen configuration it becomes.

A row of `OPTIONS` is all there is to know of an option: the name users write (client options carry Spark's `kafka.`
prefix and Kafka's own name, connector options are camelCase), the field it fills, how its text is read, its default,
and its meaning. Keys are case-insensitive, because Spark lower-cases them; messages print the canonical name.

Three more tables say why a name that is not an option is turned away: it belongs to Spark and is ignored
(`SPARK_OPTIONS`), it cannot work in this sink (`REFUSED`), or this version does not have it yet (`NOT_YET`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from importlib import metadata
from typing import Any

from kafka_sink.errors import InvalidOption, MissingOption, RefusedOption, UnknownOption

try:
    VERSION = metadata.version("pyspark-pykafka")
except metadata.PackageNotFoundError:  # sources used in place
    VERSION = "unknown"

INT32_MAX = 2**31 - 1
# ProducerStateEntry.NUM_BATCHES_TO_RETAIN
IDEMPOTENT_IN_FLIGHT = 5
KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
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
    compression_zstd_level: int

    @property
    def bootstrap_servers_text(self) -> str:
        """`host:port` pairs as users write them; an IPv6 host in brackets."""
        servers = self.bootstrap_servers
        return ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in servers)

    @property
    def compression_level(self) -> int | None:
        """The level of `compression_type`; None for one that has no levels."""
        levels = {
            "gzip": self.compression_gzip_level,
            "lz4": self.compression_lz4_level,
            "zstd": self.compression_zstd_level,
        }
        return levels.get(self.compression_type)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkConfig:
    """A whole write: the producer's configuration and what the connector itself does."""

    producer: ProducerConfig
    topic: str | None
    delivery_guarantee: str
    partitioner: str
    include_headers: bool


# --- how a text becomes a value: each parser raises ValueError(what was expected) -------------------------------------

Parser = Callable[[str], Any]


def _integer(low: int, high: int = INT32_MAX) -> Parser:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise ValueError(f"a whole number from {low} to {high}") from None
        if not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return value

    return parse


def _gzip_level(text: str) -> int:
    # Kafka's -1 stands for zlib's default; 0, which would store the rows, is none of its levels.
    try:
        level = int(text)
    except ValueError:
        level = 0
    if level != -1 and not 1 <= level <= 9:
        raise ValueError("a whole number from 1 to 9, or -1")
    return level


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _one_of(*allowed: str) -> Parser:
    def parse(text: str) -> str:
        if text.lower() not in allowed:
            raise ValueError(f"one of: {', '.join(allowed)}")
        return text.lower()

    return parse


def _acks(text: str) -> str:
    folded = text.lower()
    if folded not in ("all", "-1", "1", "0"):
        raise ValueError("'all' (or '-1'), '1' or '0'")
    return "all" if folded == "-1" else folded


def _delivery_guarantee(text: str) -> str:
    if text.lower() != "at-least-once":
        raise ValueError("'at-least-once'; 'exactly-once' is not in this version yet")
    return text.lower()


# Kafka's own pattern (org.apache.kafka.common.utils.Utils.HOST_PORT_PATTERN): an optional scheme, an IPv6 address in
# brackets or a name, a port.
_HOST_PORT = re.compile(r"(?:[a-zA-Z][a-zA-Z\d+.-]*://)?\[?([0-9a-zA-Z\-._%:]+)\]?:(\d+)")


def _bootstrap_servers(text: str) -> tuple[tuple[str, int], ...]:
    servers = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        match = _HOST_PORT.fullmatch(entry)
        if match is None or not 0 < int(match[2]) < 65536:
            raise ValueError(f"host:port[,host:port...] ({entry!r} is not host:port)")
        servers.append((match[1], int(match[2])))
    if not servers:
        raise ValueError("host:port[,host:port...]")
    return tuple(servers)


# Kafka's own rule: org.apache.kafka.common.internals.Topic.
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def _topic(text: str) -> str:
    if not _TOPIC.fullmatch(text) or text in (".", ".."):
        raise ValueError("a topic name: 1 to 249 letters, digits, '.', '_' or '-', and not '.' or '..'")
    return text


# --- the tables -------------------------------------------------------------------------------------------------------

REQUIRED = object()


@dataclass(frozen=True, slots=True)
class Option:
    """One option: `default` is the parsed value, `REQUIRED`, or None for "not set"."""

    name: str
    field: str
    parse: Parser
    default: Any
    doc: str

    @property
    def is_producer_option(self) -> bool:
        return self.field in _PRODUCER_FIELDS


_PRODUCER_FIELDS = frozenset(field.name for field in fields(ProducerConfig))

OPTIONS: tuple[Option, ...] = (
    Option("kafka.bootstrap.servers", "bootstrap_servers", _bootstrap_servers, REQUIRED,
           "host:port[,host:port...] of some brokers; the others are learned from them"),
    Option("topic", "topic", _topic, None,
           "topic of every row; wins over a `topic` column"),
    Option("deliveryGuarantee", "delivery_guarantee", _delivery_guarantee, "at-least-once",
           "at-least-once"),
    Option("partitioner", "partitioner",
           _one_of("murmur2", "murmur3", "consistent", "fnv1a", "roundrobin", "sticky"), "murmur2",
           "murmur2: rows with a key go where every JVM producer sends that key; murmur3: by mmh3's hash; consistent: "
           "where librdkafka's sends it, without a key to partition 0; fnv1a: where Sarama sends it; rows without a "
           "key stick to a partition for about a batch. roundrobin and sticky ignore keys: a row each in turn, or a "
           "batch each"),
    Option("includeHeaders", "include_headers", _boolean, True,
           "accepted as in Spark's Kafka sink, without effect: headers are written when the column exists"),
    Option("kafka.acks", "acks", _acks, "all",
           "all: a row counts once every in-sync replica has it; 1: once its leader has it, so that rows are lost "
           "when the leader dies; 0: once its bytes are on their way, so that rows are also lost, without an error, "
           "when the connection breaks or the broker refuses them, and receipts have no offsets"),
    Option("kafka.enable.idempotence", "enable_idempotence", _boolean, True,
           "sequence numbers: a network retry neither doubles nor reorders. Needs kafka.acks=all, kafka.retries of 1 "
           "or more and at most 5 requests in flight: where it is not set and one of these is otherwise, it is off, "
           "as in Kafka's own producer. Without it a retry may double rows, and reorder them unless "
           "kafka.max.in.flight.requests.per.connection is 1"),
    Option("kafka.retries", "retries", _integer(0), INT32_MAX,
           "how often a batch is sent again before the write fails; kafka.delivery.timeout.ms is the better "
           "bound. 0 switches kafka.enable.idempotence off"),
    Option("kafka.max.in.flight.requests.per.connection", "max_in_flight_requests_per_connection", _integer(1), 5,
           "unanswered requests to one broker; brokers remember 5 batches of a producer and partition, so more than 5 "
           "switch kafka.enable.idempotence off"),
    Option("kafka.batch.size", "batch_size", _integer(1 * KIB, 64 * MIB), 1 * MIB,
           "bytes of one record batch before compression; shrinks with many partitions so that all fit "
           "kafka.buffer.memory"),
    Option("kafka.linger.ms", "linger_ms", _integer(0), 100,
           "how long a batch that is not full waits for more rows; the end of a task never waits"),
    Option("kafka.buffer.memory", "buffer_memory", _integer(1 * MIB, 2**40), 64 * MIB,
           "bytes of rows that one worker process holds unacknowledged; Spark waits beyond"),
    Option("kafka.max.request.size", "max_request_size", _integer(1 * KIB, 100 * MIB), 1 * MIB,
           "bytes of record batches in one request, and of one row"),
    Option("kafka.max.block.ms", "max_block_ms", _integer(0), 60_000,
           "how long a write waits for metadata or for buffer memory before it fails"),
    Option("kafka.delivery.timeout.ms", "delivery_timeout_ms", _integer(1), 120_000,
           "how long a batch may take from its first row to its acknowledgement, retries included"),
    Option("kafka.request.timeout.ms", "request_timeout_ms", _integer(1), 30_000,
           "how long one request waits for its answer before the connection is given up"),
    Option("kafka.retry.backoff.ms", "retry_backoff_ms", _integer(0), 100,
           "pause before the first retry; doubles, with jitter"),
    Option("kafka.retry.backoff.max.ms", "retry_backoff_max_ms", _integer(0), 1_000,
           "longest pause between retries"),
    Option("kafka.reconnect.backoff.ms", "reconnect_backoff_ms", _integer(0), 50,
           "pause before the first new attempt to connect to a broker; doubles, with jitter"),
    Option("kafka.reconnect.backoff.max.ms", "reconnect_backoff_max_ms", _integer(0), 1_000,
           "longest pause between attempts to connect"),
    Option("kafka.connections.max.idle.ms", "connections_max_idle_ms", _integer(1), 540_000,
           "idle connections, and idle producers, are closed after this"),
    Option("kafka.socket.connection.setup.timeout.ms", "socket_connection_setup_timeout_ms", _integer(1), 10_000,
           "how long one address of a broker may take to accept a connection; doubles with each failure, with jitter"),
    Option("kafka.socket.connection.setup.timeout.max.ms", "socket_connection_setup_timeout_max_ms", _integer(1),
           30_000, "longest time for that, also where kafka.socket.connection.setup.timeout.ms is longer"),
    Option("kafka.metadata.max.age.ms", "metadata_max_age_ms", _integer(1), 300_000,
           "topics, partitions and leaders are asked for again after this, errors aside"),
    Option("kafka.client.id", "client_id", str, "pykafka",
           "name in the brokers' logs, metrics and quotas"),
    Option("kafka.send.buffer.bytes", "send_buffer_bytes", _integer(-1), 131_072,
           "the socket's SO_SNDBUF; -1: the system's"),
    Option("kafka.receive.buffer.bytes", "receive_buffer_bytes", _integer(-1), 32_768,
           "the socket's SO_RCVBUF; -1: the system's"),
    Option("kafka.compression.type", "compression_type", _one_of("none", "gzip", "snappy", "lz4", "zstd"), "zstd",
           "none, gzip, snappy, lz4 or zstd; a batch that it would make larger goes uncompressed"),
    Option("kafka.compression.gzip.level", "compression_gzip_level", _gzip_level, -1,
           "1 (fast) to 9 (small); -1: zlib's default, 6"),
    Option("kafka.compression.lz4.level", "compression_lz4_level", _integer(1, 17), 9,
           "9: lz4's fast mode, as in Kafka; any other: its high-compression mode, which ends at 12"),
    Option("kafka.compression.zstd.level", "compression_zstd_level", _integer(-131_072, 22), 3,
           "-131072 (fast) to 22 (small)"),
)  # fmt: skip

SPARK_OPTIONS = frozenset({"checkpointlocation", "queryname", "path"})

REFUSED: Mapping[str, str] = {
    "kafka.key.serializer": "cast the 'key' column to string or binary; its bytes are sent as they are.",
    "kafka.value.serializer": "cast the 'value' column to string or binary; its bytes are sent as they are.",
    "kafka.interceptor.classes": "the sink runs no classes named in options; transform the DataFrame instead.",
    "kafka.partitioner.class": "use the 'partitioner' option, or a 'partition' column.",
    "kafka.transactional.id": "the sink names its transactions itself.",
}

NOT_YET = frozenset(
    {
        "transactionalIdPrefix", "commitTopic", "allowLostState", "txnAppId", "txnVersion",
        "kafka.transaction.timeout.ms", "kafka.client.rack",
        "kafka.security.protocol", "kafka.sasl.mechanism", "kafka.sasl.jaas.config", "kafka.sasl.username",
        "kafka.sasl.password", "kafka.sasl.kerberos.service.name",
    }
)  # fmt: skip
_NOT_YET_PREFIXES = ("kafka.ssl.", "kafka.sasl.")

_BY_KEY = {option.name.lower(): option for option in OPTIONS}
_REFUSED_BY_KEY = {name.lower(): name for name in REFUSED}
_NOT_YET_BY_KEY = {name.lower(): name for name in NOT_YET}


def sink_config(options: Mapping[str, str]) -> SinkConfig:
    """The configuration that `options` (as Spark hands them over: any case, texts) ask for.

    Raises ConfigError for a name nobody knows, a name that is refused or not available yet, a value that cannot be
    read, a required option that is missing, and options that contradict each other.
    """
    values: dict[str, Any] = {option.field: option.default for option in OPTIONS}
    given: set[str] = set()
    for key, text in options.items():
        option = _option(key)
        if option is not None:
            values[option.field] = _parse(option, text)
            given.add(option.field)
    for option in OPTIONS:
        if values[option.field] is REQUIRED:
            raise MissingOption(option=option.name, hint=f"{option.doc}.")
    _settle_idempotence(values, asked_for="enable_idempotence" in given)
    _check_contradictions(values)
    producer = ProducerConfig(**{option.field: values[option.field] for option in OPTIONS if option.is_producer_option})
    return SinkConfig(
        producer=producer,
        **{option.field: values[option.field] for option in OPTIONS if not option.is_producer_option},
    )


def _option(key: str) -> Option | None:
    """The table's row for `key`; None for a key that is Spark's own."""
    folded = key.lower()
    if folded in _BY_KEY:
        return _BY_KEY[folded]
    if folded in SPARK_OPTIONS:
        return None
    if folded in _REFUSED_BY_KEY:
        name = _REFUSED_BY_KEY[folded]
        raise RefusedOption(option=name, instead=REFUSED[name])
    if folded in _NOT_YET_BY_KEY or folded.startswith(_NOT_YET_PREFIXES):
        raise RefusedOption(option=_NOT_YET_BY_KEY.get(folded, key), instead="this version does not have it yet.")
    near = difflib.get_close_matches(folded, _BY_KEY, n=2, cutoff=0.75)
    near += [candidate for candidate in (f"kafka.{folded}",) if candidate in _BY_KEY and candidate not in near]
    raise UnknownOption(option=key, nearest=[_BY_KEY[match].name for match in near])


def _parse(option: Option, text: str) -> Any:
    try:
        return option.parse(text.strip())
    except ValueError as expected:
        raise InvalidOption(option=option.name, value=text, expected=str(expected)) from None


def _settle_idempotence(values: dict[str, Any], *, asked_for: bool) -> None:
    """Sequence numbers need answers, retries and a leader that remembers what is in flight. Settings that rule one of
    them out are refused beside an explicit `kafka.enable.idempotence`, and else switch it off.

    Source: ProducerConfig.postProcessAndValidateIdempotenceConfigs (KIP-679).
    """
    if not values["enable_idempotence"]:
        return
    in_flight = values["max_in_flight_requests_per_connection"]
    obstacles = (
        (values["retries"] == 0, "kafka.retries", "0",
         "at least 1: an idempotent producer must send a batch again until it knows that the leader has it"),
        (values["acks"] != "all", "kafka.acks", values["acks"],
         "'all': fewer acknowledgements cannot tell an idempotent producer that a batch was kept"),
        (in_flight > IDEMPOTENT_IN_FLIGHT, "kafka.max.in.flight.requests.per.connection", str(in_flight),
         f"at most {IDEMPOTENT_IN_FLIGHT}: a leader remembers that many batches of an idempotent producer"),
    )  # fmt: skip
    for stands, option, value, expected in obstacles:
        if stands and asked_for:
            raise InvalidOption(option=option, value=value, expected=f"{expected} (kafka.enable.idempotence is true)")
        if stands:
            values["enable_idempotence"] = False


def _check_contradictions(values: Mapping[str, Any]) -> None:
    # Java's rule (ProducerConfig): a batch needs time to linger and for one request before its deadline.
    least = values["linger_ms"] + values["request_timeout_ms"]
    if values["delivery_timeout_ms"] < least:
        raise InvalidOption(
            option="kafka.delivery.timeout.ms",
            value=str(values["delivery_timeout_ms"]),
            expected=f"at least kafka.linger.ms + kafka.request.timeout.ms = {least}",
        )
    # A batch being filled and one on the wire: with less memory than two buffers, filling and sending take turns.
    if values["buffer_memory"] < 2 * values["batch_size"]:
        raise InvalidOption(
            option="kafka.buffer.memory",
            value=str(values["buffer_memory"]),
            expected=f"at least twice kafka.batch.size = {2 * values['batch_size']}",
        )
    # A row that is larger than a batch takes neighbouring buffers, of which memory has a whole number.
    most = values["buffer_memory"] // values["batch_size"] * values["batch_size"]
    if values["max_request_size"] > most:
        raise InvalidOption(
            option="kafka.max.request.size",
            value=str(values["max_request_size"]),
            expected=f"at most the whole batches of kafka.batch.size that kafka.buffer.memory has room for = {most}",
        )

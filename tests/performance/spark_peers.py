"""Who is measured: each sink with its settings, and how a DataFrame of `key` and `value` is written with it.

*The same* settings are pykafka's defaults, given to every client in its own names: batch size, linger, memory, acks=all
and idempotence. zstd has level 3 everywhere but in pykafka, whose default compresses about as much (see Zstd in
records/compression.py); how much, each line says. `buffer.memory` is a limit of each producer: the JVM sink has one for
all tasks of an executor, Python workers have one each. *Defaults* gives each client its own, compression and guarantees
aside.

What TLS costs shows a pair of pykafka with the same settings, one of them over the same broker's encrypted listener.

The socket between Spark and its Python workers is set when a session begins
(`spark.python.unix.domain.socket.enabled`), so it is part of a peer, and a session of each kind runs beside the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from python_peers import confluent_sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

UNIX, TCP = "Unix sockets", "TCP"


@dataclass(frozen=True, slots=True)
class SameSettings:
    linger_ms: int
    batch_bytes: int
    buffer_bytes: int


@dataclass(frozen=True, slots=True)
class Servers:
    """One broker's listeners, and the PEM file with the CA of the encrypted one."""

    plaintext: str
    tls: str
    ca_file: str


@dataclass(frozen=True, slots=True)
class Peer:
    """`sockets`: between Spark and its Python workers; the sinks that have none run in the session with UNIX.
    `compression` and `settings` are None where nothing goes to Kafka."""

    sink: str
    compression: str | None = None
    settings: str | None = None
    sockets: str = UNIX
    tls: bool = False

    def __str__(self) -> str:
        parts = (
            self.sink,
            self.compression,
            self.settings,
            self.sockets if self.has_workers else None,
            "TLS" if self.tls else None,
        )
        return ", ".join(filter(None, parts))

    @property
    def has_workers(self) -> bool:
        return self.sink not in (NOOP, JVM)

    @property
    def writes_to_kafka(self) -> bool:
        return self.compression is not None


NOOP, DISCARD, JVM, CONFLUENT, PYKAFKA = (
    "Spark's noop sink",
    "Python writer that discards",
    "Spark's JVM Kafka sink",
    "confluent-kafka in mapInArrow",
    "pykafka",
)
SAME, DEFAULTS = "same", "defaults"

PEERS = (
    Peer(NOOP),
    Peer(DISCARD),
    *(Peer(sink, compression, SAME) for compression in ("none", "zstd") for sink in (JVM, CONFLUENT, PYKAFKA)),
    Peer(PYKAFKA, "none", SAME, tls=True),
    Peer(JVM, "none", DEFAULTS),
    Peer(JVM, "zstd", DEFAULTS),
    Peer(CONFLUENT, "none", DEFAULTS),
    Peer(DISCARD, sockets=TCP),
    Peer(CONFLUENT, "none", SAME, sockets=TCP),
    Peer(PYKAFKA, "none", SAME, sockets=TCP),
    Peer(PYKAFKA, "zstd", SAME, sockets=TCP),
)

# The largest batch of the same settings and what a request adds to it must fit.
_REQUEST_ROOM_BYTES = 64 * 1024


def kafka_settings(peer: Peer, same: SameSettings, servers: Servers) -> Mapping[str, str]:
    """Of a Java producer, and so of pykafka."""
    settings = {"bootstrap.servers": servers.plaintext, "compression.type": str(peer.compression)}
    if peer.tls:
        settings |= {
            "bootstrap.servers": servers.tls,
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": servers.ca_file,
        }
    if peer.settings == SAME:
        settings |= {
            "linger.ms": str(same.linger_ms),
            "batch.size": str(same.batch_bytes),
            "buffer.memory": str(same.buffer_bytes),
            "max.request.size": str(same.batch_bytes + _REQUEST_ROOM_BYTES),
        }
    return settings


def librdkafka_settings(peer: Peer, same: SameSettings, servers: Servers) -> Mapping[str, str | int | bool]:
    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": servers.plaintext,
        "compression.type": str(peer.compression),
        "acks": "all",
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
    }
    if peer.settings == SAME:
        settings |= {
            "linger.ms": same.linger_ms,
            "batch.size": same.batch_bytes,
            "message.max.bytes": same.batch_bytes + _REQUEST_ROOM_BYTES,
            # Limits by rows, which at 100 bytes would come before those by bytes.
            "batch.num.messages": 1_000_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": same.buffer_bytes // 1024,
        }
        if peer.compression == "zstd":
            settings["compression.level"] = 3
    return settings


def write(frame: DataFrame, peer: Peer, same: SameSettings, servers: Servers, topic: str, rows: int) -> None:
    """Writes `frame`, which has `rows` rows, and returns when its sink says that all are there."""
    _WRITERS[peer.sink](frame, peer, same, servers, topic, rows)


def _noop(frame: DataFrame, *_: object) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _discard(frame: DataFrame, _: Peer, __: SameSettings, ___: Servers, ____: str, rows: int) -> None:
    frame.write.format("discard").mode("append").option("rows", str(rows)).save()


def _java_options(format_name: str) -> Callable[..., None]:
    def save(frame: DataFrame, peer: Peer, same: SameSettings, servers: Servers, topic: str, _: int) -> None:
        settings = kafka_settings(peer, same, servers)
        writer = frame.write.format(format_name).mode("append").option("topic", topic)
        writer.options(**{f"kafka.{name}": value for name, value in settings.items()}).save()

    return save


def _confluent(frame: DataFrame, peer: Peer, same: SameSettings, servers: Servers, topic: str, _: int) -> None:
    sink = confluent_sink(topic, librdkafka_settings(peer, same, servers))
    _noop(frame.mapInArrow(sink, frame.schema))


_WRITERS: Mapping[str, Callable[..., None]] = {
    NOOP: _noop,
    DISCARD: _discard,
    JVM: _java_options("kafka"),
    CONFLUENT: _confluent,
    PYKAFKA: _java_options("pykafka"),
}

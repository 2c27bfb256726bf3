"""Who is measured: each sink with its settings, and how a DataFrame of `key` and `value` is written with it.

*The same* settings are pykafka's defaults, given to every client in its own names: batch size, linger, memory, acks=all
and idempotence. zstd has level 3 everywhere but in pykafka, whose default compresses about as much (see Zstd in
records/compression.py); how much, each line says. `buffer.memory` is a limit of each producer: the JVM sink has one for
all tasks of an executor, Python workers have one each. *Defaults* gives each client its own, compression and guarantees
aside.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame

from kafka_sink.options.config import sink_config
from python_peers import confluent_sink

# Between Spark and its Python workers (`spark.python.unix.domain.socket.enabled`). TCP is Spark's default.
UNIX, TCP = "Unix sockets", "TCP"
NOOP, DISCARD, JVM, CONFLUENT, PYKAFKA = (
    "Spark's noop sink", "Python writer that discards", "Spark's JVM Kafka sink", "confluent-kafka in mapInArrow",
    "pykafka",
)  # fmt: skip
FORMATS: Mapping[str, str] = {NOOP: "noop", DISCARD: "discard", JVM: "kafka", PYKAFKA: "pykafka"}
SAME, DEFAULTS = "same", "defaults"
OURS = sink_config({"kafka.bootstrap.servers": "localhost:9092"}).producer
# The largest batch of the same settings and what a request adds to it must fit.
_MOST_REQUEST_BYTES = OURS.batch_size + 64 * 1024


@dataclass(frozen=True, slots=True)
class Servers:
    """One broker's listeners, and the PEM file with the CA of the encrypted one."""

    plaintext: str
    tls: str = ""
    ca_file: str = ""


@dataclass(frozen=True, slots=True)
class Peer:
    """`session`: of Spark, which begins with its kind of sockets, or with another conf (name=value) over TCP; sinks
    without workers run in the session with UNIX. `compression`, `settings`: None where nothing goes to Kafka."""

    sink: str
    compression: str | None = None
    settings: str | None = None
    session: str = UNIX
    tls: bool = False

    def __str__(self) -> str:
        workers = self.session if self.has_workers else None
        return ", ".join(filter(None, (self.sink, self.compression, self.settings, workers, "TLS" if self.tls else "")))

    @property
    def has_workers(self) -> bool:
        return self.sink not in (NOOP, JVM)

    @property
    def writes_to_kafka(self) -> bool:
        return self.compression is not None


def kafka_options(peer: Peer, servers: Servers) -> Mapping[str, str]:
    """Options of Spark's own sink, and so of pykafka."""
    settings = {"bootstrap.servers": servers.plaintext, "compression.type": str(peer.compression)}
    if peer.tls:
        settings |= {
            "bootstrap.servers": servers.tls, "security.protocol": "SSL", "ssl.truststore.type": "PEM",
            "ssl.truststore.location": servers.ca_file,
        }  # fmt: skip
    if peer.settings == SAME:
        settings |= {
            "linger.ms": str(OURS.linger_ms), "batch.size": str(OURS.batch_size),
            "buffer.memory": str(OURS.buffer_memory), "max.request.size": str(_MOST_REQUEST_BYTES),
        }  # fmt: skip
    return {f"kafka.{name}": value for name, value in settings.items()}


def librdkafka_settings(peer: Peer, servers: Servers) -> Mapping[str, str | int | bool]:
    settings: dict[str, str | int | bool] = {
        "bootstrap.servers": servers.plaintext, "compression.type": str(peer.compression), "acks": "all",
        "enable.idempotence": True, "partitioner": "murmur2_random",
    }  # fmt: skip
    if peer.settings == SAME:
        settings |= {
            "linger.ms": OURS.linger_ms, "batch.size": OURS.batch_size, "message.max.bytes": _MOST_REQUEST_BYTES,
            # Limits by rows, which at 100 bytes would come before those by bytes.
            "batch.num.messages": 1_000_000, "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": OURS.buffer_memory // 1024,
        }  # fmt: skip
        if peer.compression == "zstd":
            settings["compression.level"] = 3
    return settings


def write(frame: DataFrame, peer: Peer, servers: Servers, rows: int, topic: str = "") -> None:
    """Write `frame`, which has `rows` rows, and return when its sink says that all are there. Without `topic` the rows
    name theirs."""
    if peer.sink == CONFLUENT:
        sink = confluent_sink(topic, librdkafka_settings(peer, servers))
        frame.mapInArrow(sink, frame.schema).write.format("noop").mode("overwrite").save()
        return
    writer = frame.write.format(FORMATS[peer.sink]).mode("overwrite" if peer.sink == NOOP else "append")
    if peer.sink == DISCARD:
        writer = writer.option("rows", str(rows))
    elif peer.writes_to_kafka:
        writer = writer.options(**kafka_options(peer, servers), **({"topic": topic} if topic else {}))
    if peer.sink == JVM and "headers" in frame.columns:
        # Without it headers are dropped without a word.
        writer = writer.option("includeHeaders", "true")
    writer.save()

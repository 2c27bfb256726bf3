"""The sinks that `make bench-scale` compares.

To add one, add a row to SINKS: its name, its format and options, and where it has clients of Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from spark_peers import JVM, PYKAFKA, SAME, Peer, SameSettings, Servers, kafka_settings

# Kafka's client id of every sink, by which the brokers' log tells its requests.
CLIENT_ID = "bench-scale"


class Owner(Enum):
    """Which process has clients that outlive a task."""

    EXECUTOR = "an executor"
    WORKER = "a Python worker"


@dataclass(frozen=True, slots=True)
class Clients:
    """An owner has one client, which connects to every broker. `planning`: clients of the processes beside the driver
    that plan and commit. `bootstrap`: further connections of a client, to a bootstrap server."""

    owner: Owner
    planning: int = 0
    bootstrap: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Sink:
    """`options`: of the write, beside those that all sinks get. `is_transactional`: a Spark partition's rows are in a
    transaction of their own. `has_workers`: rows go through Python workers."""

    name: str
    format_name: str
    clients: Clients
    options: Mapping[str, str] = field(default_factory=dict)
    is_transactional: bool = False
    has_workers: bool = True

    def __str__(self) -> str:
        return self.name


# All workers of a busy machine may start at once. The default of 60 s is too short for them there.
MAX_BLOCK_MS = 600_000

# Connections of a client to bootstrap servers that stay until they were idle for connections.max.idle.ms. Java's client
# has one, or two where it found the first too slow.
JAVA_BOOTSTRAP = 1
PYKAFKA_BOOTSTRAP = 0

BASELINE = Sink("JVM sink", "kafka", Clients(Owner.EXECUTOR, bootstrap=JAVA_BOOTSTRAP), has_workers=False)
SINKS = (
    BASELINE,
    Sink("at-least-once", "pykafka", Clients(Owner.WORKER, bootstrap=PYKAFKA_BOOTSTRAP)),
    Sink(
        "exactly-once",
        "pykafka",
        # A producer each, over whose connections coordinators are asked too; a client where a micro-batch is planned,
        # and one where it is committed.
        Clients(Owner.WORKER, planning=2, bootstrap=PYKAFKA_BOOTSTRAP),
        {"deliveryGuarantee": "exactly-once"},
        is_transactional=True,
    ),
)


def options_of(sink: Sink, same: SameSettings, bootstrap_servers: str) -> dict[str, str]:
    """All options of a write but the topic: the same settings for every sink, uncompressed, then the sink's own."""
    peer = Peer(PYKAFKA if sink.has_workers else JVM, "none", SAME)
    settings = {
        **kafka_settings(peer, same, Servers(bootstrap_servers, "", "")),
        "client.id": CLIENT_ID,
        "max.block.ms": str(MAX_BLOCK_MS),
    }
    return {f"kafka.{name}": value for name, value in settings.items()} | dict(sink.options)

"""The configuration of a node of the local cluster: its ports, and as text server.properties and the logging.

Every node is both broker and controller (KRaft combined mode, KIP-500). The quorum is static
(controller.quorum.voters, which 3.9 and 4.x both support). Sources: Kafka's documentation of broker configs,
java.util.Properties for the syntax.
"""

from __future__ import annotations

import itertools
import random
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafka_sink.broker.errors import LocalClusterUnusable

HOST = "127.0.0.1"
LOWEST_PORT = 20000
HIGHEST_PORT = 32767
ATTEMPTS = 1000


def free_ports(count: int, rng: random.Random) -> list[int]:
    """Return `count` different ports on which nothing listens. Raises LocalClusterUnusable if there are too few.

    A broker must know its port before it binds it: the voters of the quorum name each other's ports, and a restarted
    node uses its old port. `bind(0)` would return a port of the kernel's ephemeral range, which any new connection may
    take before the broker binds it. So these are below that range (it starts at 32768 on Linux, at 49152 on macOS and
    for IANA). Only another process with the same rule can take one. Then `cluster` chooses again.
    """
    candidates = rng.sample(range(LOWEST_PORT, HIGHEST_PORT + 1), ATTEMPTS)
    found = list(itertools.islice(filter(is_free, candidates), count))
    if len(found) < count:
        raise LocalClusterUnusable(
            f"no {count} free ports between {LOWEST_PORT} and {HIGHEST_PORT} on {HOST} in {ATTEMPTS} attempts. "
            "End the programs that listen there, e.g. brokers of earlier runs."
        )
    return found


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Java sets it on its listening sockets too: ports with connections in TIME_WAIT count as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


@dataclass(frozen=True, slots=True)
class Node:
    """One node: its id (from 1) and its ports.

    `client_port` and `controller_port` are the plaintext listeners. `listeners`: name -> port of further listeners.
    `advertised`: name -> advertised port, if clients reach a listener through another port, for example a proxy's.
    """

    node_id: int
    client_port: int
    controller_port: int
    listeners: Mapping[str, int] = field(default_factory=dict)
    advertised: Mapping[str, int] = field(default_factory=dict)

    @property
    def address(self) -> tuple[str, int]:
        return HOST, self.client_port


def server_settings(
    node: Node,
    cluster: Sequence[Node],
    data_dir: Path,
    overrides: Mapping[str, str],
    protocols: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return all settings of `node`, with `overrides`. Raises ValueError for an override of a computed setting.

    `protocols`: name -> security protocol of the node's further listeners.
    """
    replicas = min(3, len(cluster))
    min_isr = max(1, replicas - 1)
    for_clients = {"PLAINTEXT": node.client_port, **node.listeners}
    protocol_of = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **(protocols or {})}
    # With other values the nodes could not find each other.
    computed = {
        "process.roles": "broker,controller",
        "node.id": str(node.node_id),
        "controller.quorum.voters": ",".join(f"{each.node_id}@{HOST}:{each.controller_port}" for each in cluster),
        "controller.listener.names": "CONTROLLER",
        "listeners": _listeners({**for_clients, "CONTROLLER": node.controller_port}),
        "advertised.listeners": _listeners({**for_clients, **node.advertised}),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocol_of.items()),
        "log.dirs": str(data_dir),
    }
    if refused := sorted(computed.keys() & overrides.keys()):
        raise ValueError(f"{', '.join(refused)} cannot be set: the local cluster computes it")
    return {
        **computed,
        # A write to a topic that does not exist must fail.
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(min_isr),
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(min_isr),
        # The default of 50, created at first use, would cost a test some seconds.
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.num.partitions": "4",
        # After kill -9, partitions get new leaders, and the broker can return, only when its session expires.
        # The defaults are 9 s, and heartbeats every 2 s.
        "broker.session.timeout.ms": "4000",
        "broker.heartbeat.interval.ms": "1000",
        # A consumer's first poll waits this long for others to join; 3 s by default.
        "group.initial.rebalance.delay.ms": "0",
        # Allocated on the heap at start: 128 MiB by default.
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        **overrides,
    }


def _listeners(ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items())


def render_properties(settings: Mapping[str, str]) -> str:
    """Return the text of a .properties file in the syntax of java.util.Properties.load."""
    return "".join(f"{_escape(key)}={_escape(value)}\n" for key, value in settings.items())


def _escape(text: str) -> str:
    # Kafka reads the file as ISO 8859-1, so other characters become UTF-16 \uXXXX. `=`, `:`, `#`, `!` and leading
    # spaces need an escape, because they would end a key, begin a comment, or be skipped.
    encoded = text.encode("utf-16-be", "surrogatepass")
    units = (int.from_bytes(encoded[at : at + 2], "big") for at in range(0, len(encoded), 2))
    return "".join(map(_escape_unit, units))


def _escape_unit(unit: int) -> str:
    if not 0x20 <= unit <= 0x7E:
        return f"\\u{unit:04x}"
    return "\\" + chr(unit) if chr(unit) in "\\=:#! " else chr(unit)


# Warnings and errors go to stdout. `cluster` redirects it to the node's broker.log, with the JVM's own output.
_LOG4J2 = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""
_RELOAD4J = """\
log4j.rootLogger=WARN, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


@dataclass(frozen=True, slots=True)
class Logging:
    """The logging of a Kafka version: the SLF4J binding that it needs on its class path (organisation, module,
    revision), and the configuration."""

    binding: tuple[str, str, str]
    configuration: str
    system_property: str


# Kafka 4.0 changed from reload4j to Log4j 2 (KIP-653). The published jars do not depend on an SLF4J 1.7 binding.
# Without a binding the broker logs nothing, not even why it dies.
LOG4J2 = Logging(("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"), _LOG4J2, "log4j2.configurationFile")
RELOAD4J = Logging(("org.slf4j", "slf4j-reload4j", "1.7.36"), _RELOAD4J, "log4j.configuration")

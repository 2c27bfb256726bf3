"""Brokers of Kafka before 3.3, with a ZooKeeper of their own: for tests only.

`LocalKafka` starts brokers with KRaft, which was not ready for production before Kafka 3.3 (KIP-833). Here one
ZooKeeper replaces the controllers. It comes from the dependencies of Kafka's jars.
"""

import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from kafka_sink.broker import KAFKA_VERSIONS, LocalKafka
from kafka_sink.broker.cluster import BROKER_JVM
from kafka_sink.broker.errors import BrokerStartFailed
from kafka_sink.broker.process import LeashedProcess
from kafka_sink.broker.resolve import Release
from kafka_sink.broker.settings import HOST, RELOAD4J, Node
from kafka_sink.broker.state import ClusterIdentity
from waiting import wait_until

ZOOKEEPER_TIMEOUT_S = 30.0
# ZooKeeper 3.6 never answers what it is asked before it has loaded its data.
ANSWER_TIMEOUT_S = 1.0
POLL_S = 0.05
# A killed broker's registration goes with its session. ZooKeeper allows no session below two ticks.
TICK_MS, SESSION_MS = 500, 2_000
KRAFT_SETTINGS = frozenset({
    "process.roles", "node.id", "controller.quorum.voters", "controller.listener.names", "broker.session.timeout.ms",
    "broker.heartbeat.interval.ms",
})  # fmt: skip


def zookeeper_release(version: str, scala: str, *more: tuple[str, str, str]) -> Release:
    required = (
        f"org.apache.kafka_kafka_{scala}", "org.apache.kafka_kafka-clients", "org.apache.zookeeper_zookeeper",
        "org.apache.zookeeper_zookeeper-jute", "org.scala-lang_scala-library",
        f"com.typesafe.scala-logging_scala-logging_{scala}", "com.github.luben_zstd-jni",
        "org.xerial.snappy_snappy-java", "org.lz4_lz4-java", "com.yammer.metrics_metrics-core",
        "net.sf.jopt-simple_jopt-simple", "org.slf4j_slf4j-api",
    )  # fmt: skip
    return Release(version, [("org.apache.kafka", f"kafka_{scala}", version), *more], required, RELOAD4J)


# With Java 17, the ZooKeeper 3.4 of Kafka 2.1 connects to no address: it takes one from the text of an
# InetSocketAddress, which says `<unresolved>` since Java 14.
ZOOKEEPER_3_5 = ("org.apache.zookeeper", "zookeeper", "3.5.10")
ZOOKEEPER_VERSIONS: Mapping[str, Release] = {
    release.version: release
    for release in (
        zookeeper_release("2.1.1", "2.12", ZOOKEEPER_3_5),
        zookeeper_release("2.8.2", "2.13"),
        zookeeper_release("3.0.2", "2.13"),
    )
}


class ZooKeeperKafka(LocalKafka):
    """A `LocalKafka` whose brokers find each other in a ZooKeeper."""

    releases: ClassVar[Mapping[str, Release]] = ZOOKEEPER_VERSIONS
    _zookeeper: LeashedProcess | None = None

    @property
    def zookeeper_address(self) -> str:
        """`host:port`, for Kafka's tools that ask for a ZooKeeper."""
        return f"{HOST}:{self._zookeeper_port}"

    def start(self, node: int) -> None:
        # The broker refuses to start while its killed predecessor is registered.
        wait_until(lambda: not self._is_registered(node), ZOOKEEPER_TIMEOUT_S, f"the session of node {node} has ended")
        super().start(node)

    def close(self) -> None:
        super().close()
        if self._zookeeper is not None:
            self._zookeeper.end()
            self._zookeeper = None

    def _settings(self, node: Node) -> dict[str, str]:
        settings = super()._settings(node)
        listeners = settings["listeners"].split(",")
        common = {name: value for name, value in settings.items() if name not in KRAFT_SETTINGS}
        return common | {
            "broker.id": str(node.node_id),
            "listeners": ",".join(each for each in listeners if not each.startswith("CONTROLLER:")),
            "zookeeper.connect": self.zookeeper_address,
            "zookeeper.session.timeout.ms": str(SESSION_MS),
        }

    def _prepare(self, identity: ClusterIdentity) -> None:
        """Start ZooKeeper. Brokers format their own storage, and the first one chooses the cluster's id."""
        if self._zookeeper is not None:
            self._zookeeper.end()
        home = self.dir / "zookeeper"
        home.mkdir(mode=0o700, exist_ok=True)
        config = home / "zoo.cfg"
        config.write_text(
            f"dataDir={home / 'data'}\nclientPort={self._zookeeper_port}\nclientPortAddress={HOST}\n"
            f"tickTime={TICK_MS}\nmaxClientCnxns=0\nadmin.enableServer=false\n4lw.commands.whitelist=ruok,dump\n"
        )
        with (home / "zookeeper.log").open("ab") as log:
            self._zookeeper = LeashedProcess(
                [*self._java_command(BROKER_JVM), "org.apache.zookeeper.server.quorum.QuorumPeerMain", config],
                grace_seconds=0, remove=self.dir if self._wanted_dir is None else None,
                stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        self._wait_for_zookeeper(home / "zookeeper.log")

    def _wait_for_zookeeper(self, log: Path) -> None:
        deadline = time.monotonic() + ZOOKEEPER_TIMEOUT_S
        while self._told("ruok") != "imok":
            assert self._zookeeper is not None
            if self._zookeeper.returncode is not None or time.monotonic() > deadline:
                said = log.read_text(errors="replace")
                taken = "java.net.BindException" in said
                raise BrokerStartFailed(node=0, reason="no ZooKeeper", port_taken=taken, log_tail=said[-4_000:])
            # ZooKeeper says nothing when it is ready.
            time.sleep(POLL_S)

    def _is_registered(self, node: int) -> bool:
        return f"/brokers/ids/{node}" in self._told("dump").split()

    def _told(self, command: str) -> str:
        """Return ZooKeeper's answer to one of its commands of four letters; "" if there is none."""
        try:
            with socket.create_connection((HOST, self._zookeeper_port), ANSWER_TIMEOUT_S) as connection:
                connection.sendall(command.encode())
                return b"".join(iter(lambda: connection.recv(4096), b"")).decode()
        except OSError:
            return ""

    @property
    def _zookeeper_port(self) -> int:
        """The port that would be the first controller's."""
        return self._nodes[1].controller_port


def kafka_of(version: str, **more: Any) -> LocalKafka:
    """Return a cluster of any version that tests use, with the parameters of LocalKafka."""
    kind = LocalKafka if version in KAFKA_VERSIONS else ZooKeeperKafka
    return kind(kafka_version=version, **more)

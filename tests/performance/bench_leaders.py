"""`make bench-leaders`: for how long no row flows when leaders die, end in order, or move, beside Java's clients.

    this process ─┬─> three local Kafka brokers; a topic with three replicas of each partition
                  └─> clients, all at the same time: writers of that topic, and readers of all that they write

Each client is a process (`leader_clients.py`, `LeaderClients.java`) with the same settings. It tells when which
partition had an acknowledgement or a row. All of them meet the same fault, so they differ only in what they make of it.
Those *before* ignore the leader that an answer names (KIP-951). A round is of one broker, which

* is killed (SIGKILL), and the cluster first has to notice that: `broker.session.timeout.ms` is 4 s in a local cluster;
* gets its leaders back, by the election of preferred leaders;
* ends in order (SIGTERM): it hands its leaders over, and closes its connections;
* gets them back again.

A gap is the longest time in which a partition had no row, of those whose leader died or moved. *Flows again*: from the
fault to the end of the gap. *Behind*: how much later than in the first client that writes, or reads. Java compiles its
clients at their start, which needs a JDK.
"""

import bisect
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confluent_kafka import ElectionType
from confluent_kafka.admin import AdminClient

import processes
from broker_admin import admin
from chaos.brokers import controller, has_ended, wait_until_in_sync
from frame import HERE, arguments, markdown, write_report
from kafka_sink.broker import LocalKafka, resolve
from kafka_sink.broker.errors import BrokerStartFailed, LocalClusterUnusable
from leader_clients import READS, STREAMS, WRITES
from waiting import wait_until

TOPIC, PARTITIONS, EVERY_MS, VALUE_BYTES = "leaders", 6, 30, 100
# Leaders move when the benchmark says so.
CONFIG = {"auto.leader.rebalance.enable": False, "min.insync.replicas": 2}
WRITING = {"acks": "all", "linger.ms": "5", "batch.size": "16384", "delivery.timeout.ms": "120000"}
KILLED, RETURNED, ENDED = "leader killed", "leader moved", "leader ended in order"
OURS, BEFORE, JAVA = "pykafka", "pykafka before", "Java"
DEADLINE_S = 180
# Before a fault, and after it, each partition of each client has had rows for so long.
CALM_US = 2_000_000


@dataclass(frozen=True, slots=True)
class Client:
    kind: str
    name: str

    def command(self, servers: str, jars: Path) -> list[str | Path]:
        given = [self.kind, TOPIC, str(PARTITIONS), str(EVERY_MS), str(VALUE_BYTES)]
        given += [f"{name}={value}" for name, value in self.settings(servers).items()]
        if self.name == JAVA:
            return [resolve.find_java(os.environ), "-Xmx256m", "-cp", f"{jars}/*", HERE / "LeaderClients.java", *given]
        flags = ["--ignores-leaders"] if self.name == BEFORE else []
        return [sys.executable, HERE / "leader_clients.py", *flags, *given]

    @property
    def writes(self) -> bool:
        return self.kind == WRITES

    def settings(self, servers: str) -> dict[str, str]:
        return {"bootstrap.servers": servers, **(WRITING if self.writes else {})}


CLIENTS = [Client(kind, name) for kind in (WRITES, READS) for name in (OURS, BEFORE, JAVA)] + [Client(STREAMS, OURS)]


class Running:
    """A client, and when its partitions had rows. `at_us`: of each partition, in order."""

    def __init__(self, client: Client, process: subprocess.Popen[bytes], log: Path) -> None:
        self.client = client
        self._process = process
        self._log = log
        self._read_bytes = 0
        self.at_us: Mapping[int, list[int]] = {number: [] for number in range(PARTITIONS)}

    def look(self) -> None:
        """Take what the client has printed. Raises SystemExit if it has ended."""
        with self._log.open("rb") as file:
            file.seek(self._read_bytes)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        for line in whole.splitlines():
            words = line.split()
            if len(words) == 2 and all(map(bytes.isdigit, words)):
                self.at_us[int(words[0])].append(int(words[1]))
        if self._process.poll() is not None:
            raise SystemExit(f"{self.client} has ended; its log is {self._log}")

    def flows_since(self, at_us: int) -> bool:
        self.look()
        return all(times and times[-1] >= at_us for times in self.at_us.values())

    def gap(self, partition: int, at_us: int) -> tuple[int, int]:
        """Return the longest gap since `at_us`, of which the last row before is the start."""
        times = self.at_us[partition]
        first = bisect.bisect_right(times, at_us) - 1
        return max(zip(times[first:], times[first + 1 :], strict=False), key=lambda each: each[1] - each[0])


@dataclass(frozen=True, slots=True)
class Gap:
    """`again_ms`: from the fault to its end. `behind_ms`: later than in the first client that writes, or reads, too."""

    client: Client
    partition: int
    gap_ms: float
    again_ms: float
    behind_ms: float


@dataclass(frozen=True, slots=True)
class Fault:
    """`node`: it died, ended, or leads again. `was_controller`: it was the active controller, too, when it died."""

    what: str
    node: int
    was_controller: bool
    gaps: Sequence[Gap]


class Cluster:
    def __init__(self, kafka: LocalKafka, running: Sequence[Running]) -> None:
        self._kafka = kafka
        self._running = running

    def leaders(self) -> dict[int, int]:
        found = admin(self._kafka).list_topics(TOPIC, timeout=DEADLINE_S).topics[TOPIC]
        return {number: partition.leader for number, partition in found.partitions.items()}

    def be_calm(self, since_us: int) -> None:
        """Wait until each partition of each client has had a row CALM_US later."""
        until_us = since_us + CALM_US
        wait_until(
            lambda: all(each.flows_since(until_us) for each in self._running),
            DEADLINE_S,
            "rows flow in all partitions of all clients",
        )

    def fault(self, what: str, node: int, led: Iterable[int], cause: Callable[[], object]) -> Fault:
        was_controller = controller(self._kafka) == node
        self.be_calm(now_us())
        at_us = now_us()
        cause()
        self.be_calm(at_us)
        # A second gap would be in this time.
        self.be_calm(now_us())
        return Fault(what, node, was_controller, list(self._gaps(led, at_us)))

    def _gaps(self, led: Iterable[int], at_us: int) -> Iterator[Gap]:
        for partition in led:
            found = {each.client: each.gap(partition, at_us) for each in self._running}
            first_us = {
                writes: min(end_us for client, (_, end_us) in found.items() if client.writes is writes)
                for writes in (True, False)
            }
            for client, (start_us, end_us) in found.items():
                lengths_us = end_us - start_us, end_us - at_us, end_us - first_us[client.writes]
                yield Gap(client, partition, *(each / 1_000 for each in lengths_us))

    def round(self, node: int) -> Iterator[Fault]:
        """Yield what comes of the faults of a node."""
        ends = {KILLED: partial(self._kafka.kill, node), ENDED: partial(self._end, node)}
        for what, end in ends.items():
            led = [partition for partition, leader in self.leaders().items() if leader == node]
            yield self.fault(what, node, led, end)
            self._start(node)
            client = wait_until_in_sync(self._kafka)
            yield self.fault(RETURNED, node, led, partial(_elect, client))

    def _start(self, node: int) -> None:
        """A machine that is busy may need a second attempt."""
        try:
            self._kafka.start(node)
        except BrokerStartFailed:
            with contextlib.suppress(LocalClusterUnusable):  # it has ended
                self._kafka.kill(node)
            self._kafka.start(node)

    def _end(self, node: int) -> None:
        """End the broker by SIGTERM."""
        os.kill(self._kafka.pid(node), signal.SIGTERM)
        wait_until(lambda: has_ended(self._kafka), DEADLINE_S, f"node {node} ends")
        self._kafka.kill(node)


def _elect(client: AdminClient) -> None:
    client.elect_leaders(ElectionType.PREFERRED).result(DEADLINE_S)


def now_us() -> int:
    return time.time_ns() // 1_000


def table(faults: Iterable[Fault]) -> str:
    """Medians, and in brackets the longest, in ms."""
    of: dict[tuple[str, Client], list[Gap]] = defaultdict(list)
    for fault in faults:
        for gap in fault.gaps:
            of[fault.what, gap.client].append(gap)
    head = "fault | client | flows again | longest gap | behind the first"
    rows = []
    for what in (KILLED, RETURNED, ENDED):
        for client in CLIENTS:
            gaps = of[what, client]
            cells = (
                f"{statistics.median(values):,.0f} ({max(values):,.0f})"
                for values in ([getattr(gap, name) for gap in gaps] for name in ("again_ms", "gap_ms", "behind_ms"))
            )
            rows.append(f"{what} | {client.kind}, {client.name} | {' | '.join(cells)}")
    return markdown(head, rows)


@contextlib.contextmanager
def started(kafka: LocalKafka, folder: Path) -> Iterator[list[Running]]:
    """All clients, until the end of the block."""
    jars = resolve.default_cache_dir(os.environ) / f"kafka-{kafka.kafka_version}"
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        running = []
        for client in CLIENTS:
            log = folder / f"{client.kind}-{client.name.replace(' ', '-')}.log"
            output = stack.enter_context(log.open("wb"))
            command = client.command(kafka.bootstrap_servers, jars)
            process = stack.enter_context(processes.started(command, grace_s=5, output=output))
            running.append(Running(client, process, log))
        yield running


def main() -> None:
    parser = arguments(__doc__, 6, each="all faults of one broker", output="leaders.json")
    options = parser.parse_args()
    faults: list[Fault] = []
    with LocalKafka(nodes=3, config=CONFIG) as kafka:
        kafka.create_topic(TOPIC, PARTITIONS, replication_factor=3)
        with started(kafka, options.output / "leaders") as running:
            cluster = Cluster(kafka, running)
            for number in range(options.rounds + 1):
                found = list(cluster.round(kafka.node_ids[number % len(kafka.node_ids)]))
                faults += found if number else []
                print(f"round {number} of {options.rounds}:\n{table(found)}", file=sys.stderr)
                # Each round takes a minute or more.
                write_report(options.output / "leaders.json", {"every_ms": EVERY_MS, "faults": faults}, kafka)
    print(table(faults))


if __name__ == "__main__":
    main()

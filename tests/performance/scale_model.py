"""What a sink should need of brokers and hosts, by arithmetic: sockets, producer ids, memory, requests, markers.

A benchmark on one machine has a few workers. docs/scale.md has the same formulas for many. Each is checked against what
`bench_scale.py` measures. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from process_tree import MB

# Measured by bench_scale.py with Python 3.11, pyarrow 26, pyspark 4.3, pandas and hypothesis on x86-64: the daemon and
# what an executor's Python processes share, and what one worker has for itself after small micro-batches.
SHARED_BYTES, WORKER_BYTES = 100 * MB, 115 * MB
# Connections of a client to bootstrap servers that stay until they were idle for connections.max.idle.ms. Java's client
# has one, or two where it found the first too slow.
JAVA_BOOTSTRAP, PYKAFKA_BOOTSTRAP = 1, 0


@dataclass(frozen=True, slots=True)
class Sink:
    """A client is a Python worker's, or with `has_workers` False an executor's, and connects to every broker.
    `bootstrap`: further connections of a client, to a bootstrap server. `planning`: clients of the processes beside the
    driver that plan and commit. `is_transactional`: a Spark partition's rows are in a transaction of their own."""

    name: str
    bootstrap: int
    planning: int = 0
    is_transactional: bool = False
    has_workers: bool = True

    def __str__(self) -> str:
        return self.name


BASELINE = Sink("JVM sink", JAVA_BOOTSTRAP, has_workers=False)
SINKS = (
    BASELINE,
    Sink("at-least-once", PYKAFKA_BOOTSTRAP),
    # A producer each, over whose connections coordinators are asked too; a client where a micro-batch is planned, and
    # one where it is committed.
    Sink("exactly-once", PYKAFKA_BOOTSTRAP, planning=2, is_transactional=True),
)


@dataclass(frozen=True, slots=True)
class Layout:
    """`cores`: task slots of an executor. `executor_mib`: an executor's heap; None where the driver runs the tasks."""

    master: str
    executors: int
    cores: int
    executor_mib: int | None = None

    @classmethod
    def of(cls, master: str) -> Layout:
        """Raises ValueError unless `master` is local[N] or local-cluster[executors,cores,MiB]."""
        if local := re.fullmatch(r"local\[(\d+)\]", master):
            return cls(master, 1, int(local[1]))
        if cluster := re.fullmatch(r"local-cluster\[(\d+),(\d+),(\d+)\]", master):
            return cls(master, *map(int, cluster.groups()))
        raise ValueError(f"{master!r} is neither local[N] nor local-cluster[executors,cores,MiB]")

    @property
    def slots(self) -> int:
        """Tasks that run at once, and Spark partitions of a micro-batch here."""
        return self.executors * self.cores


@dataclass(frozen=True, slots=True)
class Model:
    """Of one sink, on one master and so many brokers. `partitions`: of the topic, spread evenly over the brokers."""

    sink: Sink
    layout: Layout
    brokers: int
    partitions: int

    def _sockets(self, clients: int) -> float:
        """The mean of the brokers, as a client takes any bootstrap server."""
        return clients + clients * self.sink.bootstrap / self.brokers

    @property
    def sockets_a_broker(self) -> float:
        """Of all executors."""
        return self._sockets(self.producer_ids)

    @property
    def planning_sockets_a_broker(self) -> float:
        return self._sockets(self.sink.planning)

    @property
    def workers(self) -> int:
        """Python workers of all executors."""
        return self.layout.slots if self.sink.has_workers else 0

    @property
    def producer_ids(self) -> int:
        """In the topic after some micro-batches: of each worker, or of each Spark partition, which are as many here."""
        return self.layout.slots if self.sink.has_workers else self.layout.executors

    @property
    def python_bytes(self) -> int:
        """Of an executor's Python processes after small micro-batches."""
        return SHARED_BYTES + self.layout.cores * WORKER_BYTES if self.sink.has_workers else 0

    @property
    def produce_requests(self) -> int:
        """The most of a micro-batch of a few rows in each Spark partition, whose rows reach every leader: a task waits
        for its own rows, so tasks share no request."""
        return self.layout.slots * min(self.brokers, self.partitions)

    @property
    def other_requests(self) -> float:
        """About, of the same micro-batch, without Metadata: a producer that has rested for a second asks for that.

        For each slot: is the generation current, Init, marker, EndTxn; and, as it seldom comes back to the same
        worker, FindCoordinator. Reads of several slots are one request to each coordinator or leader
        (docs/design/exactly-once.md): 9 in all, as markers are asked for until they are there. 4 are the driver's."""
        return 5 * self.layout.slots + 9 * self.brokers + 4 if self.sink.is_transactional else 0

    @property
    def markers(self) -> int:
        """Control records in the topic of one micro-batch: each takes an offset."""
        return self.layout.slots * self.partitions if self.sink.is_transactional else 0

    def __str__(self) -> str:
        return f"{self.layout.master}, {self.brokers} brokers, {self.sink}"

"""What a sink should need of brokers and hosts, by arithmetic: sockets, producer ids, memory, requests, markers.

A benchmark on one machine has a few workers. docs/scale.md has the same formulas for many. Each is checked against what
`bench_scale.py` measures. Pure.

    owners          executors, or executors x cores where each Python worker has clients of its own
    sockets         one for each owner, at every broker; the planning processes' clients beside them
    producer ids    one for each worker; with transactions for each Spark partition; without workers for each executor
    memory          of an executor's Python: shared once, and private for each worker
    requests        a Produce for each task and leader; with transactions 5 for each Spark partition, 9 for each broker
    markers         Spark partitions x partitions of the topic, in each micro-batch
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from scale_sinks import Owner, Sink

MB = 1_000_000
_LOCAL = re.compile(r"local\[(\d+)\]")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[(\d+),(\d+),(\d+)\]")

# Measured by bench_scale.py with Python 3.11, pyarrow 26, pyspark 4.3, pandas and hypothesis on x86-64: the daemon and
# what an executor's Python processes share, and what one worker has for itself after small micro-batches.
SHARED_BYTES = 100 * MB
WORKER_BYTES = 115 * MB


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
        if local := _LOCAL.fullmatch(master):
            return cls(master, 1, int(local[1]))
        if cluster := _LOCAL_CLUSTER.fullmatch(master):
            return cls(master, int(cluster[1]), int(cluster[2]), int(cluster[3]))
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

    @property
    def owners(self) -> int:
        return self.layout.executors if self.sink.clients.owner is Owner.EXECUTOR else self.layout.slots

    @property
    def sockets_a_broker(self) -> float:
        """Of all executors: the mean of the brokers, as a client takes any bootstrap server."""
        return self.owners + self.owners * self.sink.clients.bootstrap / self.brokers

    @property
    def planning_sockets_a_broker(self) -> float:
        clients = self.sink.clients
        return clients.planning + clients.planning * clients.bootstrap / self.brokers

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
        (docs/design/exactly-once.md): 9 in all, as markers are asked for until they are there. 4 are the driver's.
        """
        return 5 * self.layout.slots + 9 * self.brokers + 4 if self.sink.is_transactional else 0

    @property
    def markers(self) -> int:
        """Control records in the topic of one micro-batch: each takes an offset."""
        return self.layout.slots * self.partitions if self.sink.is_transactional else 0

    def __str__(self) -> str:
        return f"{self.layout.master}, {self.brokers} brokers, {self.sink}"

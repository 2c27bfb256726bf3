"""`make bench-slots`: how plan, tasks and commit of an exactly-once micro-batch grow with its slots (Spark partitions).

Plan, tasks and commit run one after the other in this process, without Spark, by the code that Spark runs. The writer
is pickled for the tasks, and each task's message for the commit. Brokers are local, one or three. Their transactions
are of version 2, then of version 1 (Kafka's feature `transaction.version`). A slot writes ROWS rows to PARTITIONS
partitions. The first micro-batch of a sink has other requests: it is the warm-up.

Times are wall time and CPU time of this process, medians of the rounds. A slot's time is the mean of its round.
`EndTxn` is the part of the commit from the first slot's EndTxn to the last answer. A broker answers the requests of a
connection one after the other, so most of it is brokers' work. `brokers' CPU` is that of all brokers in the commit.

Each round's counts are compared with `slot_model`. A count that differs fails the benchmark. Goals stand beside times;
nothing asserts them, machines differ. Results: tables, and build/bench/slots.json.
"""

from __future__ import annotations

import contextlib
import pickle
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import pyarrow as pa

from exactly_once_writes import in_task, own_workers
from frame import arguments, write_report
from kafka_sink.broker import LocalKafka
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.options.config import EXACTLY_ONCE, complete, given_options
from kafka_sink.spark.exactly_once.plan import sink_of
from kafka_sink.spark.writer import KafkaStreamWriter
from process_tree import TICKS_PER_S, parse_stat
from sent_requests import Traffic, recorded
from slot_cluster import Watch
from slot_model import COMMIT, PLAN, SLOTS, Compared, Measured, comparison
from spark_report import markdown

SLOT_COUNTS = (8, 64, 256, 1_024, 4_096)
BROKER_COUNTS = (1, 3)
# In this order: the cluster is downgraded in between.
VERSIONS = (2, 1)
PARTITIONS, ROWS, VALUE_BYTES = 4, 8, 100
# The brokers' default; a local cluster has fewer.
COORDINATORS = {"offsets.topic.num.partitions": 50, "transaction.state.log.num.partitions": 50}
GOAL_SLOTS, GOAL_BROKERS, PLAN_GOAL_MS, COMMIT_GOAL_MS = 1_024, 3, 300, 1_000


@dataclass(frozen=True, slots=True)
class Case:
    brokers: int
    transaction_version: int
    slots: int

    def __str__(self) -> str:
        return f"{self.slots:,} slots, {self.brokers} broker(s), transactions of version {self.transaction_version}"


@dataclass(frozen=True, slots=True)
class Times:
    """Of one micro-batch, in ms. `slot_ms`, `slot_cpu_ms`: means of its slots. `to_a_task_kib`: the pickled writer."""

    plan_ms: float
    slot_ms: float
    commit_ms: float
    end_txn_ms: float
    plan_cpu_ms: float
    slot_cpu_ms: float
    commit_cpu_ms: float
    brokers_cpu_ms: float
    to_a_task_kib: float


@dataclass(frozen=True, slots=True)
class Figure:
    case: Case
    median: Times
    rounds: tuple[Times, ...]


def figure(case: Case, rounds: Sequence[Times]) -> Figure:
    found = {each.name: statistics.median(getattr(times, each.name) for times in rounds) for each in fields(Times)}
    return Figure(case, Times(**found), tuple(rounds))


def table(figures: Sequence[Figure]) -> str:
    head = (
        "slots | brokers | version | plan ms | goal | slot ms | commit ms | goal | EndTxn ms | CPU ms: plan | slot | "
        "commit | brokers' CPU ms | KiB to a task"
    )
    rows = []
    for each in figures:
        case, median = each.case, each.median
        has_goals = (case.slots, case.brokers) == (GOAL_SLOTS, GOAL_BROKERS)
        plan_goal, commit_goal = (f"<= {goal:,}" if has_goals else "" for goal in (PLAN_GOAL_MS, COMMIT_GOAL_MS))
        row = (
            f"{case.slots:,} | {case.brokers} | {case.transaction_version} | {median.plan_ms:,.0f} | {plan_goal} | "
            f"{median.slot_ms:.1f} | {median.commit_ms:,.0f} | {commit_goal} | {median.end_txn_ms:,.0f} | "
            f"{median.plan_cpu_ms:,.0f} | {median.slot_cpu_ms:.1f} | {median.commit_cpu_ms:,.0f} | "
            f"{median.brokers_cpu_ms:,.0f} | {median.to_a_task_kib:,.0f}"
        )
        rows.append(row)
    return markdown(head, rows)


class Stopwatch:
    """Wall time and this process's CPU time of a `with` block, in ms."""

    wall_ms = cpu_ms = 0.0

    def __enter__(self) -> Stopwatch:
        self._began_s = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        wall_s, cpu_s = self._began_s
        self.wall_ms, self.cpu_ms = (time.perf_counter() - wall_s) * 1e3, (time.process_time() - cpu_s) * 1e3


class Stream:
    """Micro-batches of `case.slots` slots, to a topic and under a name of their own."""

    def __init__(self, kafka: LocalKafka, case: Case, traffic: Traffic) -> None:
        self.name = f"slots-{case.slots}-version-{case.transaction_version}"
        options = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "topic": self.name,
            "deliveryGuarantee": EXACTLY_ONCE,
            "transactionalIdPrefix": self.name,
            # No periodic request during a round.
            "kafka.metadata.max.age.ms": "86400000",
        }
        self._given = given_options(options)
        self.config = complete(self._given)
        self._kafka = kafka
        self._case = case
        self._traffic = traffic
        self._micro_batch_id = 0
        numbers = pa.array([row % PARTITIONS for row in range(ROWS)], pa.int32())
        values = pa.array([b"v" * VALUE_BYTES] * ROWS, pa.binary())
        self._rows = pa.record_batch({"value": values, "partition": numbers})
        kafka.create_topic(self.name, PARTITIONS, replication_factor=case.brokers)

    def micro_batch(self) -> tuple[Times, Measured]:
        """Plan, write and commit the next micro-batch."""
        measured = Measured()
        with self._stage(measured, PLAN) as plan:
            writer = pickle.dumps(KafkaStreamWriter(self._given))
        with self._stage(measured, SLOTS) as tasks:
            messages = [self._task(writer, slot) for slot in range(self._case.slots)]
        committing, before_ms = KafkaStreamWriter(self._given), self._brokers_cpu_ms()
        with self._stage(measured, COMMIT) as commit:
            committing.commit([pickle.loads(message) for message in messages], self._micro_batch_id)
        self._micro_batch_id += 1
        times = Times(
            plan_ms=plan.wall_ms,
            slot_ms=tasks.wall_ms / self._case.slots,
            commit_ms=commit.wall_ms,
            end_txn_ms=self._traffic.span_ms("EndTxn", after=1),
            plan_cpu_ms=plan.cpu_ms,
            slot_cpu_ms=tasks.cpu_ms / self._case.slots,
            commit_cpu_ms=commit.cpu_ms,
            brokers_cpu_ms=self._brokers_cpu_ms() - before_ms,
            to_a_task_kib=len(writer) / 1024,
        )
        return times, measured

    @contextlib.contextmanager
    def _stage(self, measured: Measured, name: str) -> Iterator[Stopwatch]:
        self._traffic.clear()
        with Stopwatch() as watch:
            yield watch
        first, again = self._traffic.counts()
        measured.first.update({(name, api): count for api, count in first.items()})
        measured.again.update({(name, api): count for api, count in again.items()})
        measured.pauses += self._traffic.pauses

    def _task(self, writer: bytes, slot: int) -> bytes:
        """Do what a Python worker does for a task."""
        with in_task(slot, self._micro_batch_id):
            return pickle.dumps(pickle.loads(writer).write(iter([self._rows])))

    def _brokers_cpu_ms(self) -> float:
        stats = (Path(f"/proc/{self._kafka.pid(node)}/stat") for node in self._kafka.node_ids)
        return sum(parse_stat(each.read_text(errors="replace")).cpu_ticks for each in stats) / TICKS_PER_S * 1e3


def measure(kafka: LocalKafka, case: Case, rounds: int, traffic: Traffic) -> tuple[Figure, list[list[Compared]]]:
    """Return the times, and the counts of each round beside the model."""
    times, counts = [], []
    with own_workers():
        stream = Stream(kafka, case, traffic)
        stream.micro_batch()
        with contextlib.closing(AdminClient(stream.config.producer)) as client:
            sink = sink_of(stream.config, stream.name, client)
            watch = Watch(client, sink, topic=stream.name, rows=ROWS, brokers=case.brokers)
            for _ in range(rounds):
                of_round, measured = stream.micro_batch()
                times.append(of_round)
                counts.append(watch.compare(measured))
    return figure(case, times), counts


def downgrade(kafka: LocalKafka) -> None:
    """Give the cluster transactions of version 1. Only new connections notice it."""
    servers = ("--bootstrap-server", kafka.bootstrap_servers)
    kafka.run_tool("org.apache.kafka.tools.FeatureCommand", *servers, "downgrade", "--feature", "transaction.version=1")


def main() -> None:
    parser = arguments(__doc__, 3, each="each case", output="slots.json")
    parser.add_argument("--slots", type=int, nargs="+", default=SLOT_COUNTS)
    parser.add_argument("--brokers", type=int, nargs="+", default=BROKER_COUNTS, choices=BROKER_COUNTS)
    parser.add_argument("--versions", type=int, nargs="+", default=VERSIONS, choices=VERSIONS, help="of transactions")
    options = parser.parse_args()
    figures, has_failed = [], False
    with recorded() as traffic:
        for brokers in options.brokers:
            with LocalKafka(nodes=brokers, config=COORDINATORS) as kafka:
                for version in sorted(options.versions, reverse=True):
                    if version == 1:
                        downgrade(kafka)
                    for slots in options.slots:
                        case = Case(brokers, version, slots)
                        found, counts = measure(kafka, case, options.rounds, traffic)
                        wrong = [lines for lines in counts if not all(each.is_right for each in lines)]
                        has_failed |= bool(wrong)
                        print(f"{case}:\n{comparison((wrong or counts)[-1])}\n{table([found])}", file=sys.stderr)
                        figures.append(found)
    print(table(figures))
    write_report(options.output / "slots.json", figures)
    if has_failed:
        sys.exit("a count differs from the model")


if __name__ == "__main__":
    main()

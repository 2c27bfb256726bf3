"""`make bench-topics`: streams from topic to topic, both of 200 partitions, in one run.

    this process ─┬─> a local Kafka broker
                  └─> an application of Spark, two tasks at a time

Spark's JVM source and sink, which is at-least-once, beside pykafka's exactly-once with a task for each partition, and
with `maxPartitions=8`. A round has a query of each over the same rows, with trigger(availableNow=True). The first
micro-batch of a query starts Python's workers and does not count. A micro-batch's time is Spark's own,
`triggerExecution` of its progress. After each query a read_committed reader's count is compared with the rows.

Transactions are those of one micro-batch, with the one of its decision. Connections are the most that were open at one
moment, of the JVM and of all Python processes, looked at twice a second.
"""

import statistics
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from confluent_kafka import Consumer

import frame as shared
from broker_admin import transactions
from frame import Application, Bench, arguments, bench, chosen, in_turns, jars
from open_connections import connections_of
from process_tree import running, tree_of
from spark_sessions import COUNTED, KEY, UNIX_CONF, local_session, timed, value

PARTITIONS, LOOKS_EVERY_S = 200, 0.5
JVM, EACH, PACKED = "kafka", "pykafka", "pykafka, maxPartitions=8"
WAYS = (JVM, EACH, PACKED)


@dataclass(frozen=True, slots=True)
class Case:
    """`rows`: of one micro-batch, in all partitions."""

    rows: int
    micro_batches: int = 4

    def __str__(self) -> str:
        return f"{self.rows:,} rows a micro-batch"


CASES = (Case(200), Case(20_000), Case(1_000_000))


@dataclass(frozen=True, slots=True)
class Cost:
    """`cpu_s` and `micro_batch_ms`: of a micro-batch."""

    micro_batch_ms: float
    cpu_s: float
    transactions: int = 0
    connections: int = 0


class Pipeline:
    """An application, which fills topics and runs queries between them."""

    def __init__(self, jars: str, servers: str, folder: Path) -> None:
        self._folder = folder
        self._servers = {"kafka.bootstrap.servers": servers}
        confs = {"jars": jars, UNIX_CONF: True, **COUNTED}
        self._spark = local_session("topics", "local[2]", folder, **confs)

    def fill(self, topic: str, rows: int) -> None:
        """As many rows for each partition."""
        columns = [KEY, value(100), f"CAST(id % {PARTITIONS} AS INT) AS partition"]
        frame = self._spark.range(0, rows, 1, 2).selectExpr(*columns)
        frame.write.format("pykafka").mode("append").options(**self._servers, topic=topic).save()

    def run(self, way: str, case: Case, source: str, target: str) -> Cost:
        reading = {**self._servers, "subscribe": source, "startingOffsets": "earliest"}
        reading["maxOffsetsPerTrigger"] = str(case.rows)
        reading |= {"maxPartitions": "8"} if way == PACKED else {}
        writing = {**self._servers, "topic": target, "checkpointLocation": tempfile.mkdtemp(dir=self._folder)}
        writing |= {} if way == JVM else {"deliveryGuarantee": "exactly-once", "transactionalIdPrefix": target}
        name = way.partition(",")[0]
        rows = self._spark.readStream.format(name).options(**reading).load().select("key", "value")
        stream = rows.writeStream.format(name).options(**writing).trigger(availableNow=True)
        times_ms: list[int] = []

        def run() -> None:
            query = stream.start()
            if not query.awaitTermination(shared.QUERY_TIMEOUT_S):
                raise SystemExit(f"a query did not end within {shared.QUERY_TIMEOUT_S} s")
            times_ms.extend(each.durationMs["triggerExecution"] for each in query.recentProgress if each.numInputRows)

        cost = timed(run)
        if len(times_ms) != 1 + case.micro_batches:
            raise SystemExit(f"{len(times_ms)} micro-batches instead of {1 + case.micro_batches}")
        return Cost(statistics.median(times_ms[1:]), cost.cpu_s / len(times_ms))


def most_connections(ended: threading.Event, pid: int, servers: str, found: list[int]) -> None:
    port = int(servers.rpartition(":")[2])
    while not ended.wait(LOOKS_EVERY_S):
        processes = [process.pid for process in tree_of(pid, running())]
        found.append(sum(connections_of(processes, {port}).values()))


def visible_rows(servers: str, topic: str, expected: int) -> int:
    """The rows that a read_committed reader finds, up to one more than are expected."""
    settings: dict[str, str | int | float | bool] = {
        "bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest", "enable.partition.eof": True,
    }  # fmt: skip
    consumer, rows, ended = Consumer(settings), 0, set[int | None]()
    try:
        consumer.subscribe([topic])
        while rows <= expected and len(ended) < PARTITIONS:
            for message in consumer.consume(10_000, timeout=1):
                if message.error() is None:
                    rows += 1
                else:
                    ended.add(message.partition())
    finally:
        consumer.close()
    return rows


def measure(spark: Application, on: Bench, case: Case, rounds: int) -> dict[str, list[Cost]]:
    (source,) = on.topics.create(PARTITIONS)
    rows, servers = case.rows * (1 + case.micro_batches), on.kafka.bootstrap_servers
    spark.ask("fill", source, rows)

    def run(way: str) -> Cost:
        (target,) = on.topics.create(PARTITIONS)
        ended, connections = threading.Event(), [0]
        looks = threading.Thread(target=most_connections, args=(ended, spark.pid, servers, connections))
        looks.start()
        try:
            cost: Cost = spark.ask("run", way, case, source, target)
        finally:
            ended.set()
            looks.join()
        if (found := visible_rows(servers, target, rows)) != rows:
            raise SystemExit(f"{case}, {way}: {rows} rows were copied, and there are {found}")
        cost = replace(cost, transactions=len(transactions(on.kafka, target)), connections=max(connections))
        on.topics.delete([target])
        return cost

    costs = in_turns(WAYS, rounds, run, f"{case}: ")
    on.topics.delete([source])
    return costs


def table(measured: Mapping[Case, dict[str, list[Cost]]]) -> str:
    head = "a micro-batch of | from topic to topic by | p50 | CPU s | transactions | connections | x time | x CPU"
    found = []
    for case, costs in measured.items():
        for way, of_way in costs.items():
            ms, cpu_s, transactions, connections = (
                shared.median(of_way, field) for field in ("micro_batch_ms", "cpu_s", "transactions", "connections")
            )
            times, cpu = (shared.median_ratio(of_way, costs[JVM], field) for field in ("micro_batch_ms", "cpu_s"))
            figures = f"{ms:.0f} ms | {cpu_s:.2f} | {transactions:.0f} | {connections:.0f} | {times:.2f} | {cpu:.2f}"
            found.append(f"{str(case).partition(' a ')[0]} | {way} | {figures}")
    return shared.markdown(head, found)


def main() -> None:
    parser = arguments(__doc__, 3, each="every way", output="topics.json", only="micro-batches")
    options = parser.parse_args()
    with bench() as on:
        log = options.output / "spark-topics.log"
        spark = on.application(log, Pipeline, jars(), on.kafka.bootstrap_servers, on.folder)
        measured = {case: measure(spark, on, case, options.rounds) for case in chosen(CASES, options.only)}
    print(table(measured))
    report: dict[str, object] = {"cases": [asdict(case) | {"rounds": costs} for case, costs in measured.items()]}
    shared.write_report(options.output / "topics.json", report, on.kafka)


if __name__ == "__main__":
    main()

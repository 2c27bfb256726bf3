"""`make bench-read`: sources of Spark side by side, a topic into Spark's `noop` sink, in one run.

    this process ─┬─> a local Kafka broker
                  └─> an application of Spark, which reads, and fills topics with pykafka's sink; two cores

Three sources read the same topic once a round: pykafka, Spark's own source (the JVM's), and a Python source whose
Arrow batches are made beforehand, which is the least that any Python source takes. Before the rounds, what both read
of each topic is compared by a checksum over all columns.

Then pykafka and the JVM's source read streams, with `--only stream:` these alone: what is there, with
trigger(availableNow=True) and maxOffsetsPerTrigger; and rows that arrive one after the other, with the default
trigger. A micro-batch's time is Spark's own, `triggerExecution` of its progress.
"""

import os
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from confluent_kafka import Producer
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import frame as shared
from frame import Application, Bench, arguments, bench, chosen, in_turns, jars
from kafka_sink.records.kernel import KERNEL
from python_peers import ReadyDataSource
from spark_sessions import COUNTED, KEY, UNIX_CONF, Cost, local_session, timed, value
from waiting import wait_until

READERS = PYKAFKA, JVM, READY = "pykafka", "kafka", "ready"
# (rows/s, CPU a row) of pykafka as multiples of the JVM source's.
MAIN_GOAL, OTHER_GOAL = (2.0, 0.55), (1.0, None)
STREAM_TIMEOUT_S = 600


@dataclass(frozen=True, slots=True)
class Shape:
    """`headers`: of a row. `share`: of the rows of the run, for rows that are larger. `max_partitions`: of pykafka's
    DataFrame, 0 for no limit. `per_trigger`: rows of a stream's micro-batch. `arrives`: whether each row comes when the
    one before was read."""

    name: str
    value_bytes: int = 100
    compression: str = "none"
    headers: int = 0
    partitions: int = 4
    max_partitions: int = 0
    share: float = 1.0
    goal: tuple[float, float | None] = OTHER_GOAL
    per_trigger: int = 0
    arrives: bool = False

    def __str__(self) -> str:
        return f"stream: {self.name}" if self.per_trigger else self.name


SHAPES = (
    Shape("100 bytes", goal=MAIN_GOAL), Shape("100 bytes, zstd", compression="zstd", goal=MAIN_GOAL),
    Shape("10 bytes", value_bytes=10), Shape("1 KB", value_bytes=1_000, share=0.25),
    Shape("3 headers", headers=3, share=0.5), Shape("200 partitions", partitions=200),
    Shape("200 partitions, maxPartitions=4", partitions=200, max_partitions=4, goal=(20.0, 0.45)),
    Shape("400 partitions, maxPartitions=4", partitions=400, max_partitions=4, share=0.02, goal=(10.0, None)),
)  # fmt: skip
# And their rows.
STREAMS = {
    Shape("10 M rows in micro-batches of 1 M", per_trigger=1_000_000): 10_000_000,
    Shape("one row a micro-batch, of 40 that are there", per_trigger=1, partitions=1): 40,
    Shape("one row a micro-batch, as they arrive", per_trigger=1, partitions=1, arrives=True): 20,
    Shape("200 rows a micro-batch, of 200 partitions", per_trigger=200, partitions=200): 1_200,
    Shape("the same, maxPartitions=4", per_trigger=200, partitions=200, max_partitions=4): 1_200,
}


@dataclass(frozen=True, slots=True)
class StreamCost:
    """Of one run. `micro_batch_ms`: the median of its micro-batches but the first, which starts Python's processes."""

    wall_s: float
    cpu_s: float
    micro_batch_ms: float


class Reader:
    """An application. Its reads go into Spark's `noop` sink, which takes every row and column, and keeps nothing."""

    def __init__(self, jars: str, servers: str, folder: Path) -> None:
        confs = {"jars": jars, "sql_files_maxPartitionBytes": "16g", UNIX_CONF: True, **COUNTED}
        self._spark = local_session("sources", "local[2]", folder, **confs)
        self._spark.dataSource.register(ReadyDataSource)
        self._servers = {"kafka.bootstrap.servers": servers}

    def fill(self, shape: Shape, topic: str, rows: int) -> None:
        """Write rows of random keys, and of values that compress as JSON does."""
        columns = [KEY, value(shape.value_bytes)]
        if shape.headers:
            pairs = (f"struct('header-{each}' AS key, binary(string(id)) AS value)" for each in range(shape.headers))
            columns.append(f"array({', '.join(pairs)}) AS headers")
        options = {**self._servers, "kafka.compression.type": shape.compression, "topic": topic}
        frame = self._spark.range(0, rows, 1, 2).selectExpr(*columns)
        frame.write.format("pykafka").mode("append").options(**options).save()

    def digest(self, shape: Shape, topic: str, rows: int, reader: str) -> list[int]:
        """Rows, and a sum over all that is in them: equal for readers that read the same."""
        frame = self._frame(shape, topic, rows, reader)
        columns = [F.col(name) for name in sorted(frame.columns)]
        (row,) = frame.agg(F.count(F.lit(1)), F.sum(F.crc32(F.to_json(F.struct(*columns)).cast("binary")))).collect()
        return [int(row[0]), int(row[1] or 0)]

    def read(self, shape: Shape, topic: str, rows: int, reader: str) -> Cost:
        frame = self._frame(shape, topic, rows, reader)
        return timed(lambda: frame.write.format("noop").mode("overwrite").save())

    def _frame(self, shape: Shape, topic: str, rows: int, reader: str) -> DataFrame:
        options: dict[str, object] = {"subscribe": topic, "includeHeaders": bool(shape.headers), **self._servers}
        if reader == READY:
            options = {"rows": rows} | {name: getattr(shape, name) for name in ("value_bytes", "headers", "partitions")}
        elif shape.max_partitions:
            # Spark's source ignores it.
            options["maxPartitions"] = shape.max_partitions
        return self._spark.read.format(reader).options(**{name: str(each) for name, each in options.items()}).load()

    def stream(self, shape: Shape, topic: str, rows: int, reader: str) -> StreamCost:
        options = {"subscribe": topic, "startingOffsets": "latest" if shape.arrives else "earliest", **self._servers}
        options |= {} if shape.arrives else {"maxOffsetsPerTrigger": str(shape.per_trigger)}
        options |= {"maxPartitions": str(shape.max_partitions)} if shape.max_partitions else {}
        writer = self._spark.readStream.format(reader).options(**options).load().writeStream.format("noop")
        queries: list[StreamingQuery] = []

        def run() -> None:
            query = (writer if shape.arrives else writer.trigger(availableNow=True)).start()
            queries.append(query)
            if shape.arrives:
                self._arrive(query, shape, topic, rows)
                query.stop()
            elif not query.awaitTermination(STREAM_TIMEOUT_S):
                raise SystemExit(f"a query did not end within {STREAM_TIMEOUT_S} s")

        cost = timed(run)
        progress = [each for each in queries[0].recentProgress if each.numInputRows]
        found = [each.numInputRows for each in progress]
        # The share of each partition is rounded.
        if sum(found) != rows or max(found) >= shape.per_trigger + shape.partitions:
            raise SystemExit(f"{shape}: micro-batches of {found} rows")
        times_ms = (each.durationMs["triggerExecution"] for each in progress[1:])
        return StreamCost(cost.wall_s, cost.cpu_s, statistics.median(times_ms))

    def _arrive(self, query: StreamingQuery, shape: Shape, topic: str, rows: int) -> None:
        """Write a row once the row before it was read. The first follows when the query has planned at first."""
        producer = Producer({"bootstrap.servers": self._servers["kafka.bootstrap.servers"], "linger.ms": 0})

        def has_read(count: int) -> bool:
            if not query.isActive:
                raise SystemExit(f"the query has ended: {query.exception()}")
            return sum(each.numInputRows for each in query.recentProgress) >= count

        wait_until(lambda: query.recentProgress, STREAM_TIMEOUT_S, "the first plan")
        for count in range(1, rows + 1):
            producer.produce(topic, os.urandom(shape.value_bytes), key=str(count))
            producer.flush()
            wait_until(partial(has_read, count), STREAM_TIMEOUT_S, f"row {count}")


Measured = dict[str, list[Cost]] | dict[str, list[StreamCost]]


def measure(spark: Application, on: Bench, shape: Shape, rows: int, rounds: int) -> Measured:
    (topic,) = on.topics.create(shape.partitions)
    asked = shape, topic, rows
    if not shape.arrives:
        spark.ask("fill", *asked)
    if not shape.per_trigger:
        seen = [spark.ask("digest", *asked, reader) for reader in (PYKAFKA, JVM)]
        if seen[0] != seen[1] or seen[0][0] != rows:
            raise SystemExit(f"{shape}: of {rows} rows, pykafka and the JVM's source read {seen}")
    readers, what = ((PYKAFKA, JVM), "stream") if shape.per_trigger else (READERS, "read")
    costs = in_turns(readers, rounds, lambda reader: spark.ask(what, *asked, reader), f"{shape}: ")
    on.topics.delete([topic])
    return costs


def table(measured: Mapping[Shape, Measured], rows: Mapping[Shape, int]) -> str:
    head = "rows | source | million rows/s | CPU s per million rows | pykafka: x rows/s | pykafka: x CPU | goals"
    found = []
    for shape, costs in measured.items():
        for reader, of_reader in costs.items():
            beside = " |  | "
            if reader != PYKAFKA:
                faster = shared.median_ratio(of_reader, costs[PYKAFKA], "wall_s")
                rate_goal, cpu_goal = shape.goal
                goals = f">= {rate_goal:g} x" + ("" if cpu_goal is None else f", <= {cpu_goal:g} x CPU")
                cpu = shared.median_ratio(costs[PYKAFKA], of_reader, "cpu_s")
                beside = f"{faster:.2f} | {cpu:.2f} | {goals if reader == JVM else 'the floor'}"
            millions = rows[shape] / 1e6
            wall_s, cpu_s = (shared.median(of_reader, field) for field in ("wall_s", "cpu_s"))
            figures = f"{millions / wall_s:.2f} | {cpu_s / millions:.2f}"
            found.append(f"{shape} | {reader} | {figures} | {beside}")
    return shared.markdown(head, found)


def stream_table(measured: Mapping[Shape, Measured], rows: Mapping[Shape, int]) -> str:
    head = "stream | source | million rows/s | CPU s | a micro-batch | x time of a micro-batch | x CPU"
    found = []
    for shape, costs in measured.items():
        for reader, of_reader in costs.items():
            times, cpu = (
                shared.median_ratio(costs[PYKAFKA], costs[JVM], field) for field in ("micro_batch_ms", "cpu_s")
            )
            beside = f"{times:.2f} | {cpu:.2f}" if reader == PYKAFKA else " | "
            wall_s, cpu_s, each_ms = (
                shared.median(of_reader, field) for field in ("wall_s", "cpu_s", "micro_batch_ms")
            )
            figures = f"{rows[shape] / wall_s / 1e6:.2f} | {cpu_s:.1f} | {each_ms:.0f} ms"
            found.append(f"{shape.name} | {reader} | {figures} | {beside}")
    return shared.markdown(head, found)


def main() -> None:
    parser = arguments(__doc__, 5, each="every source", output="read.json", only="shapes and streams")
    parser.add_argument("--rows", type=int, default=2_000_000)
    options = parser.parse_args()
    rows = STREAMS | {shape: int(options.rows * shape.share) for shape in SHAPES}
    with bench() as on:
        log = options.output / "spark-read.log"
        spark = on.application(log, Reader, jars(), on.kafka.bootstrap_servers, on.folder)
        streams, shapes = (
            {shape: measure(spark, on, shape, rows[shape], options.rounds) for shape in chosen(cases, options.only)}
            for cases in ([*STREAMS], SHAPES)
        )
    print(table(shapes, rows), stream_table(streams, rows), sep="\n")
    report: dict[str, object] = {"kernel": KERNEL.name, "rows": options.rows}
    report["shapes"] = [asdict(shape) | {"rounds": costs} for shape, costs in {**shapes, **streams}.items()]
    shared.write_report(options.output / "read.json", report, on.kafka)


if __name__ == "__main__":
    main()

"""`make bench-shapes`: rows and topics of many shapes, where a sink could have a cliff, beside Spark's JVM Kafka sink.

    this process ─┬─> a local Kafka broker
                  └─> itself with --driver: one Spark application, two tasks

A round writes every shape with both sinks and the same settings, and gives it to a Python writer that discards it, in
turned order; medians of the rounds after the first, which warms up. What the writer that discards reaches is the limit
of every Python sink: Spark's part, which reads the rows and brings them to Python. Uncompressed, over Unix sockets, to
a topic made for the write and deleted after its end offsets were compared with the rows. (The JVM sink's own defaults,
batches of 16 KiB in 32 MiB, do not get through 2,000 partitions on two cores: its requests time out, their batches come
back out of order, and it sends them again.)

A write begins when the files of the one before are gone from the broker's disk, and after a few rows, untimed: Spark
ends Python workers that were idle for a minute, which the JVM sink's writes to thousands of partitions are.

Memory is the peak of what is resident in a Python worker during the write (VmHWM, reset before), over what is resident
when it has imported the sink and written nothing: at most `kafka.buffer.memory` and 100 MB, as bench_memory.py says.
Arrow batches have up to 16 MiB, of which a worker has two. Results: a table and build/bench/shapes.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from bench_memory import MB, OVER_BUFFER_MEMORY_BYTES
from frame import arguments, as_json, bench, chosen, jars, rounds_of, same_settings, turned, write_report
from kafka_sink.broker import LocalKafka
from process_tree import cpu_s, memory_of, python_workers, reset_peak
from spark_driver import TASKS, serve, session, timed
from spark_peers import DISCARD, JVM, PYKAFKA, SAME, UNIX, Peer, SameSettings, Servers, kafka_settings
from spark_process import DELETE_SOON, SparkProcess, Topics
from spark_report import markdown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ARROW_BATCH_BYTES = 16 * 1024 * 1024

OURS, THEIRS, NOBODY = PEERS = (Peer(PYKAFKA, "none", SAME), Peer(JVM, "none", SAME), Peer(DISCARD))
FORMATS: Mapping[str, str] = {PYKAFKA: "pykafka", JVM: "kafka", DISCARD: "discard"}

KEY = "unhex(lpad(hex(xxhash64(id)), 16, '0'))"


def filler(size: int) -> str:
    """SQL for `size` hex digits that differ from row to row."""
    return f"left(repeat(md5(string(id)), {size // 32 + 1}), {size})"


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """`columns`: SQL for each column of the rows, which are made before anything is measured. With more than one topic
    the rows name theirs."""

    name: str
    rows: int
    columns: Mapping[str, str]
    partitions: int = 4
    topics: int = 1

    def __str__(self) -> str:
        return self.name


def rows_of(value_bytes: int, key: str = KEY) -> dict[str, str]:
    return {"key": key, "value": f"binary({filler(value_bytes)})"}


HEADERS = "transform(sequence(1, 10), i -> struct('header-' || i AS key, binary(string(id % 1000 + i)) AS value))"
SHAPES = (
    Shape("100-byte values", 2_000_000, rows_of(100)),
    Shape("10 headers a row", 1_000_000, rows_of(100) | {"headers": HEADERS}),
    Shape("string columns", 2_000_000, {"key": f"hex({KEY})", "value": filler(100)}),
    Shape("null keys", 2_000_000, rows_of(100, "binary(NULL)")),
    Shape("10-byte values", 4_000_000, rows_of(10)),
    Shape("1 KB values", 400_000, rows_of(1_000)),
    Shape("100 KB values", 4_000, rows_of(100_000)),
    Shape("50 topics in the rows", 2_000_000, rows_of(100), topics=50),
    Shape("2,000 partitions", 1_000_000, rows_of(100), partitions=2_000),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one write. `cpu_s`: of Spark, its workers included. `peak_bytes`: of the largest worker, over one that has
    written nothing; 0 where none has a part."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    broker_cpu_s: float = 0.0


# What each peer's write of a shape cost.
Round = Mapping[Peer, Cost]


class Application:
    """Writes what it is told to, with workers whose memory is looked at."""

    def __init__(self, spark: SparkSession, folder: Path, same: SameSettings, servers: Servers) -> None:
        self._spark = spark
        self._folder = folder
        self._same = same
        self._servers = servers
        self._base_bytes = 0

    def make_rows(self, shapes: Sequence[Shape]) -> None:
        for shape in shapes:
            rows = self._spark.range(0, shape.rows, 1, TASKS)
            columns = [f"{sql} AS {name}" for name, sql in shape.columns.items()]
            # Which topic is known when it is written; a number that says so is not.
            columns += [f"id % {shape.topics} AS topic_number"] if shape.topics > 1 else []
            rows.selectExpr(*columns).write.parquet(str(self._folder_of(shape)))

    def write_nothing(self, shape: Shape, topic: str) -> None:
        """Spark would see through `limit(0)`."""
        self._save(self._rows(shape).where("rand() > 1"), shape, OURS, topic)
        self._base_bytes = max(memory_of(pid)["VmRSS"] for pid in python_workers(os.getpid()))

    def write_a_few(self, peer: Peer, topic: str) -> None:
        few = Shape("a few", 100, {"value": "binary(string(id))"})
        rows = self._spark.range(0, few.rows, 1, TASKS).selectExpr(f"{few.columns['value']} AS value")
        self._save(rows, few, peer, topic)

    def write(self, shape: Shape, peer: Peer, topic: str) -> Cost:
        rows = self._rows(shape)
        for pid in python_workers(os.getpid()):
            reset_peak(pid)
        took = timed(lambda: self._save(rows, shape, peer, topic))
        if not peer.has_workers:
            return Cost(took.wall_s, took.cpu_s, 0)
        peaks = [memory_of(pid)["VmHWM"] for pid in python_workers(os.getpid())]
        return Cost(took.wall_s, took.cpu_s, max(peaks) - self._base_bytes)

    def _rows(self, shape: Shape) -> DataFrame:
        return self._spark.read.parquet(str(self._folder_of(shape)))

    def _folder_of(self, shape: Shape) -> Path:
        return self._folder / str(SHAPES.index(shape))

    def _save(self, rows: DataFrame, shape: Shape, peer: Peer, topic: str) -> None:
        if shape.topics > 1:
            columns = [*shape.columns, f"'{topic}-' || topic_number AS topic"]
            writer = rows.selectExpr(*columns).write
        else:
            writer = rows.write.option("topic", topic)
        if peer.sink == JVM:
            # Without it headers are dropped without a word.
            writer = writer.option("includeHeaders", "true")
        if peer.writes_to_kafka:
            settings = kafka_settings(peer, self._same, self._servers)
            writer = writer.options(**{f"kafka.{name}": value for name, value in settings.items()})
        else:
            writer = writer.option("rows", shape.rows)
        writer.format(FORMATS[peer.sink]).mode("append").save()


def drive(jars: str, servers: str, same: Mapping[str, int], folder: str, first_topic: str, only: Sequence[str]) -> None:
    spark = session(UNIX, jars, Path(folder), [f"spark.sql.execution.arrow.maxBytesPerBatch={ARROW_BATCH_BYTES}"])
    application = Application(spark, Path(folder) / "rows", SameSettings(**same), Servers(servers, "", ""))
    shapes = chosen(SHAPES, only)
    application.make_rows(shapes)
    application.write_nothing(shapes[0], first_topic)

    def answer(asked: SimpleNamespace) -> Cost:
        application.write_a_few(PEERS[asked.peer], first_topic)
        return application.write(SHAPES[asked.shape], PEERS[asked.peer], asked.topic)

    serve(spark, answer)


def write(spark: SparkProcess, broker_pid: int, topics: Topics, shape: Shape, peer: Peer) -> Cost:
    """Raises SystemExit if the rows are not there afterwards."""
    names = topics.create(shape.partitions, shape.topics) if peer.writes_to_kafka else ["nowhere-0"]
    # The rows of several topics have the number that follows.
    name = names[0] if shape.topics == 1 else names[0].removesuffix("-0")
    request = {"shape": SHAPES.index(shape), "peer": PEERS.index(peer), "topic": name}
    before_s = cpu_s(broker_pid)
    cost = Cost(**spark.ask(request))
    if not peer.writes_to_kafka:
        return cost
    found = topics.row_count(names, shape.partitions)
    if found != shape.rows:
        raise SystemExit(f"{peer} wrote {shape.rows} rows of {shape.name}, and there are {found}")
    cost = replace(cost, broker_cpu_s=cpu_s(broker_pid) - before_s)
    topics.delete(names)
    topics.await_no_files(names)
    return cost


@dataclass(frozen=True, slots=True)
class Line:
    """Of one shape: medians of rows/s and of the cores that Spark and its workers had work for, by sink, and of the
    rounds' ratios; how many cores the broker had work for while ours wrote; the largest peak of a worker, in MB, and
    the bound on it."""

    shape: str
    rows_per_s: Mapping[str, float]
    cores: Mapping[str, float]
    ratio: float
    broker_cores: float
    peak_mb: float
    peak_bound_mb: float


def line_of(shape: Shape, rounds: Sequence[Round], buffer_memory: int) -> Line:
    def median(figure: Callable[[Cost], float], peer: Peer) -> float:
        return statistics.median(figure(costs[peer]) for costs in rounds)

    return Line(
        shape=shape.name,
        rows_per_s={peer.sink: median(lambda cost: shape.rows / cost.wall_s, peer) for peer in PEERS},
        cores={peer.sink: median(lambda cost: cost.cpu_s / cost.wall_s, peer) for peer in PEERS},
        ratio=statistics.median(costs[THEIRS].wall_s / costs[OURS].wall_s for costs in rounds),
        broker_cores=median(lambda cost: cost.broker_cpu_s / cost.wall_s, OURS),
        peak_mb=max(costs[OURS].peak_bytes for costs in rounds) / MB,
        peak_bound_mb=(buffer_memory + OVER_BUFFER_MEMORY_BYTES) / MB,
    )


def table(lines: Sequence[Line]) -> str:
    sinks = tuple(lines[0].rows_per_s)
    head = f"thousand rows/s | {' | '.join(sinks)} | ratio | goal | cores of Spark: {', '.join(sinks)} | broker's"
    rows = (
        f"{line.shape} | {' | '.join(f'{rate / 1e3:,.1f}' for rate in line.rows_per_s.values())} | "
        f"{line.ratio:.2f} x | >= 1 x | {', '.join(f'{used:.1f}' for used in line.cores.values())} | "
        f"{line.broker_cores:.1f} cores | {line.peak_mb:.0f} MB | <= {line.peak_bound_mb:.0f} MB"
        for line in lines
    )
    return markdown(f"{head} | worker's peak | bound", rows)


def main() -> None:
    parser = arguments(__doc__, 3, each="every shape", output="shapes.json")
    parser.add_argument("--only", nargs="*", help="shapes with one of these words in their name", default=[""])
    parser.add_argument("--driver", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.driver:
        drive(**options.driver)
        return
    shapes, same = chosen(SHAPES, options.only), same_settings()
    options.output.mkdir(parents=True, exist_ok=True)
    costs: dict[Shape, list[dict[Peer, Cost]]] = {shape: [] for shape in shapes}
    with bench(LocalKafka(config=DELETE_SOON)) as (folder, kafka, topics, stack):
        kafka.create_topic("nothing", 1)
        servers, given = kafka.bootstrap_servers, {"same": same, "first_topic": "nothing", "only": options.only}
        given = {"jars": jars(), "servers": servers, "folder": str(folder), **given}
        spark = SparkProcess([__file__, "--driver", as_json(given)], options.output / "shapes.log")
        stack.callback(spark.stop)
        for number, counts in rounds_of(options.rounds):
            for shape in shapes:
                found = {peer: write(spark, kafka.pid(1), topics, shape, peer) for peer in turned(PEERS, number)}
                if counts:
                    costs[shape].append(found)
    lines = [line_of(shape, costs[shape], same.buffer_bytes) for shape in shapes]
    print(table(lines))
    report = {"cores": os.cpu_count(), "kafka broker": kafka.kafka_version, "lines": lines}
    write_report(options.output / "shapes.json", report)


if __name__ == "__main__":
    main()

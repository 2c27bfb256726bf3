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
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench_memory import MB, OVER_BUFFER_MEMORY_BYTES
from kafka_sink.broker import LocalKafka, resolve
from kafka_sink.broker.java import find_java
from kafka_sink.options.config import sink_config
from process_tree import cpu_s, memory_of, python_workers, reset_peak
from spark_driver import TASKS, session
from spark_jars import resolve_spark_jars
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


def chosen(words: Sequence[str]) -> list[Shape]:
    return [shape for shape in SHAPES if any(word in shape.name for word in words)]


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
        started_s, cpu_before_s = time.perf_counter(), cpu_s(os.getpid())
        self._save(rows, shape, peer, topic)
        wall_s, used_s = time.perf_counter() - started_s, cpu_s(os.getpid()) - cpu_before_s
        if not peer.has_workers:
            return Cost(wall_s, used_s, 0)
        peaks = [memory_of(pid)["VmHWM"] for pid in python_workers(os.getpid())]
        return Cost(wall_s, used_s, max(peaks) - self._base_bytes)

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


def drive(arguments: argparse.Namespace) -> None:
    """Answers each request of a line on stdin, `{"shape": 1, "peer": 0, "topic": "t"}`, with a Cost on stdout."""
    folder = Path(arguments.folder)
    # Registers the writer that discards as well.
    spark = session(UNIX, arguments.jars, folder)
    spark.conf.set("spark.sql.execution.arrow.maxBytesPerBatch", str(ARROW_BATCH_BYTES))
    same = SameSettings(**json.loads(arguments.same))
    application = Application(spark, folder / "rows", same, Servers(arguments.bootstrap_servers, "", ""))
    shapes = chosen(arguments.only)
    application.make_rows(shapes)
    application.write_nothing(shapes[0], arguments.first_topic)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        application.write_a_few(PEERS[asked["peer"]], arguments.first_topic)
        cost = application.write(SHAPES[asked["shape"]], PEERS[asked["peer"]], asked["topic"])
        print(json.dumps(asdict(cost)), flush=True)
    spark.stop()


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
    return Line(
        shape=shape.name,
        rows_per_s={
            peer.sink: statistics.median(shape.rows / costs[peer].wall_s for costs in rounds) for peer in PEERS
        },
        cores={
            peer.sink: statistics.median(costs[peer].cpu_s / costs[peer].wall_s for costs in rounds) for peer in PEERS
        },
        ratio=statistics.median(costs[THEIRS].wall_s / costs[OURS].wall_s for costs in rounds),
        broker_cores=statistics.median(costs[OURS].broker_cpu_s / costs[OURS].wall_s for costs in rounds),
        peak_mb=max(costs[OURS].peak_bytes for costs in rounds) / MB,
        peak_bound_mb=(buffer_memory + OVER_BUFFER_MEMORY_BYTES) / MB,
    )


def table(lines: Sequence[Line]) -> str:
    sinks = tuple(lines[0].rows_per_s)
    cores = f"cores of Spark: {', '.join(sinks)}"
    head = ("thousand rows/s", *sinks, "ratio", "goal", cores, "broker's", "worker's peak", "bound")
    cells = [
        (
            line.shape,
            *(f"{rate / 1e3:,.1f}" for rate in line.rows_per_s.values()),
            f"{line.ratio:.2f} x",
            ">= 1 x",
            ", ".join(f"{used:.1f}" for used in line.cores.values()),
            f"{line.broker_cores:.1f} cores",
            f"{line.peak_mb:.0f} MB",
            f"<= {line.peak_bound_mb:.0f} MB",
        )
        for line in lines
    ]
    return markdown(head, cells)


def measure(
    spark: SparkProcess, broker_pid: int, topics: Topics, shapes: Sequence[Shape], rounds: int
) -> dict[Shape, list[Round]]:
    costs: dict[Shape, list[Round]] = {shape: [] for shape in shapes}
    for number in range(rounds + 1):
        started_s = time.monotonic()
        for shape in shapes:
            turn = number % len(PEERS)
            found = {peer: write(spark, broker_pid, topics, shape, peer) for peer in (*PEERS[turn:], *PEERS[:turn])}
            if number > 0:  # the first warms up
                costs[shape].append(found)
        print(f"round {number} of {rounds}: {time.monotonic() - started_s:.0f} s", file=sys.stderr)
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="of every shape, after one to warm up")
    parser.add_argument("--only", nargs="*", help="shapes with one of these words in their name", default=[""])
    parser.add_argument("--output", type=Path, default=Path("build/bench"), help="where shapes.json goes")
    parser.add_argument("--driver", action="store_true", help=argparse.SUPPRESS)
    for name in ("jars", "bootstrap-servers", "same", "folder", "first-topic"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.driver:
        drive(options)
        return
    shapes = chosen(options.only)
    defaults = sink_config({"kafka.bootstrap.servers": "localhost:9092"}).producer
    same = SameSettings(defaults.linger_ms, defaults.batch_size, defaults.buffer_memory)
    java = find_java(os.environ)
    jars = resolve_spark_jars(
        resolve.default_cache_dir(os.environ), lambda: [java, "-jar", resolve.find_ivy_jar(resolve.installed_pyspark())]
    )
    options.output.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pykafka-bench-"))
        kafka = stack.enter_context(LocalKafka(config=DELETE_SOON))
        topics = stack.enter_context(contextlib.closing(Topics(kafka)))
        kafka.create_topic("nothing", 1)
        arguments = [
            f"--jars={','.join(map(str, jars))}",
            f"--bootstrap-servers={kafka.bootstrap_servers}",
            f"--same={json.dumps(asdict(same))}",
            f"--folder={folder}",
            "--first-topic=nothing",
            "--only",
            *options.only,
        ]
        spark = SparkProcess([__file__, "--driver", *arguments], options.output / "shapes.log")
        stack.callback(spark.stop)
        costs = measure(spark, kafka.pid(1), topics, shapes, options.rounds)
    lines = [line_of(shape, costs[shape], defaults.buffer_memory) for shape in shapes]
    print(table(lines))
    report = {"cores": os.cpu_count(), "kafka broker": kafka.kafka_version, "lines": [asdict(line) for line in lines]}
    (options.output / "shapes.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

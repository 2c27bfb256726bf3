"""`make bench-shapes`: rows and topics of many shapes, where a sink could have a cliff, beside Spark's JVM Kafka sink.

A round writes every shape with both sinks and the same settings, and gives it to a Python writer that discards it: its
figure is the limit of every Python sink, Spark's part, which reads the rows and brings them to Python. Uncompressed,
over Unix sockets, by two tasks, to a topic made for the write. (The JVM sink's own defaults, batches of 16 KiB in 32
MiB, do not get through 2,000 partitions on two cores: its requests time out, their batches come back out of order, and
it sends them again.)

A write begins when the files of the one before are gone from the broker's disk, and after a few rows, untimed: Spark
ends Python workers that were idle for a minute, which the JVM sink's writes to thousands of partitions are.

Memory is the peak of what is resident in a Python worker during the write (VmHWM, reset before), over what is resident
when it has imported the sink and written nothing: at most `kafka.buffer.memory` and 100 MB, as bench_memory.py says.
Arrow batches have up to 16 MiB, of which a worker has two.
"""

import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pyspark.sql import DataFrame

from frame import DELETE_SOON, Application, Bench, arguments, bench, chosen, in_turns, jars, markdown, write_report
from kafka_sink.broker import LocalKafka
from peers import DISCARD, JVM, PYKAFKA, SAME, Peer, Servers, write
from peers import OURS as SETTINGS
from process_tree import MB, OVER_BUFFER_MEMORY_BYTES, memory_of, python_workers, reset_peak
from spark_sessions import COUNTED, UNIX_CONF, Cost, local_session, timed

TASKS, ARROW_BATCH_BYTES, NOTHING = 2, 16 * 1024 * 1024, "nothing"
OURS, THEIRS, NOBODY = PEERS = (Peer(PYKAFKA, "none", SAME), Peer(JVM, "none", SAME), Peer(DISCARD))
KEY = "unhex(lpad(hex(xxhash64(id)), 16, '0'))"


def filler(size: int) -> str:
    """SQL for `size` hex digits that differ from row to row."""
    return f"left(repeat(md5(string(id)), {size // 32 + 1}), {size})"


def rows_of(value_bytes: int, key: str = KEY) -> dict[str, str]:
    return {"key": key, "value": f"binary({filler(value_bytes)})"}


@dataclass(frozen=True, slots=True)
class Shape:
    """`columns`: SQL for each column of the rows, which are made before anything is measured. With more than one topic
    the rows name theirs."""

    name: str
    rows: int
    columns: Mapping[str, str] = field(hash=False)
    partitions: int = 4
    topics: int = 1

    def __str__(self) -> str:
        return self.name


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


class Writer:
    """An application, with workers whose memory is looked at."""

    def __init__(self, jars: str, servers: str, folder: Path, shapes: Sequence[Shape]) -> None:
        confs = {"jars": jars, "sql_execution_arrow_maxBytesPerBatch": ARROW_BATCH_BYTES, UNIX_CONF: True, **COUNTED}
        self._spark = local_session("shapes", f"local[{TASKS}]", folder, sql_files_maxPartitionBytes="16g", **confs)
        self._servers, self._folder = Servers(servers), folder / "rows"
        for shape in shapes:
            columns = [f"{sql} AS {name}" for name, sql in shape.columns.items()]
            # Which topic is known when it is written; a number that says so is not.
            columns += [f"id % {shape.topics} AS topic_number"] if shape.topics > 1 else []
            self._range(shape.rows).selectExpr(*columns).write.parquet(self._folder_of(shape))
        # Spark would see through `limit(0)`.
        nothing = self._range(100).where("rand() > 1").selectExpr("binary(string(id)) AS key", "key AS value")
        write(nothing, OURS, self._servers, 0, NOTHING)
        self._base_bytes = max(memory_of(pid).get("VmRSS", 0) for pid in python_workers(os.getpid()))

    def write(self, shape: Shape, peer: Peer, names: Sequence[str]) -> Cost:
        write(self._range(100).selectExpr("binary(string(id)) AS value"), peer, self._servers, 100, NOTHING)
        rows, topic = self._spark.read.parquet(self._folder_of(shape)), names[0]
        if shape.topics > 1:
            beginning = topic.removesuffix("-0")
            rows, topic = rows.selectExpr(*shape.columns, f"'{beginning}-' || topic_number AS topic"), ""
        for pid in python_workers(os.getpid()):
            reset_peak(pid)
        cost = timed(lambda: write(rows, peer, self._servers, shape.rows, topic))
        peaks = [memory_of(pid).get("VmHWM", 0) for pid in python_workers(os.getpid())] if peer.has_workers else []
        return replace(cost, peak_bytes=max(peaks, default=self._base_bytes) - self._base_bytes)

    def _range(self, rows: int) -> DataFrame:
        return self._spark.range(0, rows, 1, TASKS)

    def _folder_of(self, shape: Shape) -> str:
        return str(self._folder / shape.name.replace(" ", "-").replace(",", ""))


def measure(on: Bench, spark: Application, shape: Shape, peer: Peer) -> Cost:
    def ask(names: Sequence[str]) -> Cost:
        cost: Cost = spark.ask("write", shape, peer, names)
        return cost

    if not peer.writes_to_kafka:
        return ask(["nowhere-0"])
    return on.topics.written(ask, shape.rows, shape.partitions, shape.topics, awaits=True)


def median(costs: Sequence[Cost], figure: Callable[[Cost], float]) -> float:
    return statistics.median(map(figure, costs))


def table(costs: Mapping[Shape, Mapping[Peer, Sequence[Cost]]]) -> str:
    """Rows/s and the cores that Spark and its workers had work for, by sink; the rounds' ratios; how many cores the
    broker had work for while ours wrote; the largest peak of a worker, and the bound on it."""
    sinks = [peer.sink for peer in PEERS]
    rows = []
    for shape, of in costs.items():
        rates = [f"{shape.rows * median(of[peer], lambda cost: 1e-3 / cost.wall_s):,.1f}" for peer in PEERS]
        cores = ", ".join(f"{median(of[peer], lambda cost: cost.cpu_s / cost.wall_s):.1f}" for peer in PEERS)
        ratio = statistics.median(
            theirs.wall_s / our.wall_s for our, theirs in zip(of[OURS], of[THEIRS], strict=True)
        )  # fmt: skip
        broker = f"{median(of[OURS], lambda cost: cost.broker_cpu_s / cost.wall_s):.1f} cores"
        peak, bound = max(cost.peak_bytes for cost in of[OURS]), SETTINGS.buffer_memory + OVER_BUFFER_MEMORY_BYTES
        row = [shape.name, *rates, f"{ratio:.2f} x | >= 1 x", cores, broker]
        rows.append(" | ".join([*row, f"{peak / MB:.0f} MB | <= {bound / MB:.0f} MB"]))
    head = f"thousand rows/s | {' | '.join(sinks)} | ratio | goal | cores of Spark: {', '.join(sinks)} | broker's"
    return markdown(f"{head} | worker's peak | bound", rows)


def main() -> None:
    options = arguments(__doc__, 3, each="every shape", output="shapes.json", only="shapes").parse_args()
    shapes = chosen(SHAPES, options.only)
    with bench(LocalKafka(config=DELETE_SOON)) as on:
        on.kafka.create_topic(NOTHING, 1)
        given = jars(), on.kafka.bootstrap_servers, on.folder, shapes
        spark = on.application(options.output / "shapes.log", Writer, *given)
        cases = [(shape, peer) for shape in shapes for peer in PEERS]
        found = in_turns(cases, options.rounds, lambda case: measure(on, spark, *case))
    costs = {shape: {peer: found[shape, peer] for peer in PEERS} for shape in shapes}
    print(table(costs))
    report = [{"shape": shape.name, "sink": peer.sink, "rounds": rounds} for (shape, peer), rounds in found.items()]
    write_report(options.output / "shapes.json", {"cases": report}, on.kafka)


if __name__ == "__main__":
    main()

"""`make bench-read`: sources of Spark side by side, a topic into Spark's `noop` sink, in one run.

Three sources read the same topic once a round; the order turns by one a round: pykafka, Spark's own source (the JVM's),
and a Python source whose Arrow batches are made beforehand, which is the least that any Python source takes. Then
pykafka and the JVM's source read streams (read_streams.py). Before the rounds, what both read of each topic is compared
by a checksum over all columns. The first round warms up.

CPU is all that the Spark application used: driver, JVM, daemon and workers, without the broker. Figures are medians;
ratios are medians of the rounds' ratios. Goals stand beside the figures; nothing asserts them, machines differ.
Results: a table, and read.json in build/bench.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from bench_core import processor
from kafka_sink.broker import LocalKafka, resolve
from kafka_sink.broker.java import find_java
from kafka_sink.records.kernel import KERNEL
from read_driver import JVM, PYKAFKA, READY
from read_streams import STREAMS, measure_stream, stream_table, to_jvm
from spark_driver import Cost
from spark_environment import HERE
from spark_jars import MODULES, resolve_spark_jars
from spark_process import SparkProcess, Topics

READERS = (PYKAFKA, JVM, READY)
# (rows/s, CPU a row) of pykafka as multiples of the JVM source's.
MAIN_GOAL, OTHER_GOAL = (2.0, 0.55), (1.0, None)


@dataclass(frozen=True, slots=True)
class Shape:
    """`headers`: of a row. `share`: of the rows of the run, for rows that are larger."""

    name: str
    value_bytes: int = 100
    compression: str = "none"
    headers: int = 0
    partitions: int = 4
    share: float = 1.0
    goal: tuple[float, float | None] = OTHER_GOAL


SHAPES = (
    Shape("100 bytes", goal=MAIN_GOAL),
    Shape("100 bytes, zstd", compression="zstd", goal=MAIN_GOAL),
    Shape("10 bytes", value_bytes=10),
    Shape("1 KB", value_bytes=1_000, share=0.25),
    Shape("3 headers", headers=3, share=0.5),
    Shape("200 partitions", partitions=200),
)


def measure(spark: SparkProcess, shape: Shape, topic: str, rows: int, rounds: int) -> dict[str, list[Cost]]:
    asked = {**asdict(shape), "topic": topic, "rows": rows}
    spark.ask({**asked, "do": "fill"})
    seen = [spark.ask({**asked, "do": "digest", "reader": reader}) for reader in (PYKAFKA, JVM)]
    if seen[0] != seen[1] or seen[0][0] != rows:
        raise SystemExit(f"{shape.name}: of {rows} rows, pykafka and the JVM's source read {seen}")
    costs: dict[str, list[Cost]] = {reader: [] for reader in READERS}
    for number in range(rounds + 1):
        started_s = time.monotonic()
        for reader in (*READERS[number % 3 :], *READERS[: number % 3]):
            cost = Cost(**spark.ask({**asked, "do": "read", "reader": reader}))
            if number > 0:  # the first warms up
                costs[reader].append(cost)
        print(f"{shape.name}: round {number} of {rounds}, {time.monotonic() - started_s:.0f} s", file=sys.stderr)
    return costs


def ratio(costs: Mapping[str, Sequence[Cost]], field: str, to: str) -> float:
    """The median of the rounds' ratios of pykafka's cost to another's."""
    pairs = zip(costs[PYKAFKA], costs[to], strict=True)
    return float(statistics.median(getattr(ours, field) / getattr(theirs, field) for ours, theirs in pairs))


def lines(measured: Mapping[Shape, Mapping[str, Sequence[Cost]]], rows: Mapping[Shape, int]) -> list[str]:
    found = [
        "| rows | source | million rows/s | CPU s per million rows | pykafka: x rows/s | pykafka: x CPU | goals |",
        "|---|---|---|---|---|---|---|",
    ]
    for shape, costs in measured.items():
        for reader in READERS:
            wall_s, cpu_s = (
                statistics.median(getattr(each, name) for each in costs[reader]) for name in ("wall_s", "cpu_s")
            )
            cells = [shape.name, reader, f"{rows[shape] / wall_s / 1e6:.2f}", f"{cpu_s / rows[shape] * 1e6:.2f}"]
            if reader == PYKAFKA:
                cells += ["", "", ""]
            else:
                cells += [f"{1 / ratio(costs, 'wall_s', reader):.2f}", f"{ratio(costs, 'cpu_s', reader):.2f}"]
                faster, cpu = shape.goal
                goals = f">= {faster:g} x" + ("" if cpu is None else f", <= {cpu:g} x CPU")
                cells.append(goals if reader == JVM else "the floor")
            found.append(f"| {' | '.join(cells)} |")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="of every source, after one to warm up")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--only", nargs="*", default=[""], help="shapes with one of these words in their name")
    parser.add_argument("--output", type=Path, default=Path("build/bench"), help="where read.json goes")
    options = parser.parse_args()
    shapes = [shape for shape in SHAPES if any(word in shape.name for word in options.only)]
    java = find_java(os.environ)
    jars = resolve_spark_jars(
        resolve.default_cache_dir(os.environ), lambda: [java, "-jar", resolve.find_ivy_jar(resolve.installed_pyspark())]
    )
    options.output.mkdir(parents=True, exist_ok=True)
    rows = {shape: int(options.rows * shape.share) for shape in shapes}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pykafka-bench-"))
        kafka = stack.enter_context(LocalKafka())
        topics = stack.enter_context(contextlib.closing(Topics(kafka)))
        arguments = [f"--jars={','.join(map(str, jars))}", f"--servers={kafka.bootstrap_servers}", f"--folder={folder}"]
        spark = SparkProcess([HERE / "read_driver.py", *arguments], options.output / "spark-read.log")
        stack.callback(spark.stop)
        measured = {}
        streams = [
            (stream, measure_stream(spark, topics, stream, options.rounds))
            for stream in STREAMS
            if any(word in f"stream: {stream.name}" for word in options.only)
        ]
        for shape in shapes:
            (topic,) = topics.create(shape.partitions)
            measured[shape] = measure(spark, shape, topic, rows[shape], options.rounds)
            topics.delete([topic])
    print("\n".join(lines(measured, rows)))
    print(stream_table(streams))
    report = {
        "processor": processor(),
        "cores": os.cpu_count(),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("pyspark", "pyarrow", "numpy")},
            "kafka broker": kafka.kafka_version,
            **{module.name: module.revision for module in MODULES},
        },
        "kernel": KERNEL.name,
        "rows": options.rows,
        "shapes": [
            {
                **asdict(shape),
                "rounds": {reader: [asdict(each) for each in costs[reader]] for reader in READERS},
                "to_jvm": {field: ratio(costs, field, JVM) for field in ("wall_s", "cpu_s")},
                "to_floor": {field: ratio(costs, field, READY) for field in ("wall_s", "cpu_s")},
            }
            for shape, costs in measured.items()
        ],
        "streams": [
            {
                **asdict(stream),
                "rounds": {reader: [asdict(each) for each in of_reader] for reader, of_reader in costs.items()},
                "to_jvm": {field: to_jvm(costs, field) for field in ("cpu_s", "micro_batch_ms")},
            }
            for stream, costs in streams
        ],
    }
    (options.output / "read.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""`make bench-latency`: what the sink adds to a micro-batch of one row, and to the first batch of a new Python worker.

A micro-batch of one row: queries of one-row files, one task, over the sink and over a writer that discards, in turns. A
micro-batch's time is Spark's own, `triggerExecution` of its progress, of which nearly all is Spark's: it starts a task,
two plans and two logs. The first micro-batch of a query warms up.

The first batch: a new process that has pyarrow and Spark's side of the data source already, as every worker has, makes
the writer and writes one row until the leader has acknowledged it: imports, connection, metadata, producer id. Wall
time, the median of fresh processes; a writer that discards takes none of it. Without hypothesis, which tests need and
which kio, the codec of messages, imports wherever it is installed: that is 0.15 s of CPU that
no user's worker spends.

Goals stand beside the figures; nothing asserts them, machines differ. Results: a table and build/bench/latency.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from kafka_sink.broker import LocalKafka
from process_tree import python_workers
from python_peers import DiscardingDataSource
from spark_environment import spark_environment
from spark_process import Topics
from spark_report import markdown

OURS, DISCARD = "pykafka", "discard"
MICRO_BATCHES = 40
NEW_PROCESSES = 11
QUERY_TIMEOUT_S = 300
MICRO_BATCH_GOAL_MS, FIRST_BATCH_GOAL_MS = 5, 400

_FIRST_BATCH = """\
import sys, time, pyarrow, pyspark.sql.datasource
sys.modules["hypothesis"] = None
from pyspark.sql.types import BinaryType, StructField, StructType
servers, topic = sys.argv[1:]
rows = pyarrow.record_batch({"value": pyarrow.array([b"row"])})
started_s = time.perf_counter()
from pyspark_pykafka import DefaultSource
source = DefaultSource({"kafka.bootstrap.servers": servers, "topic": topic})
source.writer(StructType([StructField("value", BinaryType())]), False).write(iter([rows]))
print(time.perf_counter() - started_s)
"""


@dataclass(frozen=True, slots=True)
class Line:
    """Milliseconds."""

    name: str
    measured_ms: float
    discarding_ms: float
    goal_ms: float

    @property
    def more_ms(self) -> float:
        return self.measured_ms - self.discarding_ms


def table(lines: list[Line]) -> str:
    head = ("p50", "pykafka", "a writer that discards", "more", "goal")
    cells = [
        (
            line.name,
            f"{line.measured_ms:.1f} ms",
            f"{line.discarding_ms:.1f} ms",
            f"{line.more_ms:.1f} ms",
            f"<= {line.goal_ms:g} ms",
        )
        for line in lines
    ]
    return markdown(head, cells)


@contextlib.contextmanager
def session(scratch: Path) -> Iterator[SparkSession]:
    spark = (
        SparkSession.builder.master("local[1]")
        .appName("pykafka latency benchmark")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    spark.dataSource.register(DiscardingDataSource)
    try:
        yield spark
    finally:
        spark.stop()


def make_files(spark: SparkSession, scratch: Path) -> Path:
    """One file, and links to it: a micro-batch each."""
    made, folder = scratch / "made", scratch / "files"
    spark.range(0, 1, 1, 1).selectExpr("binary('key') AS key", "binary('value') AS value").write.parquet(str(made))
    (part,) = made.glob("*.parquet")
    folder.mkdir()
    for micro_batch in range(1 + MICRO_BATCHES):
        os.link(part, folder / f"{micro_batch:03}-{part.name}")
    return folder


def run(spark: SparkSession, folder: Path, format_name: str, topic: str, servers: str) -> list[int]:
    """Milliseconds of each micro-batch but the first."""
    options = {"kafka.bootstrap.servers": servers, "topic": topic} if format_name == OURS else {"rows": "1"}
    query = (
        spark.readStream.schema("key BINARY, value BINARY")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder))
        .writeStream.format(format_name)
        .options(**options)
        .option("checkpointLocation", str(folder.parent / f"checkpoint-{format_name}-{topic}"))
        .trigger(availableNow=True)
        .start()
    )
    if not query.awaitTermination(QUERY_TIMEOUT_S):
        raise SystemExit(f"a query did not end within {QUERY_TIMEOUT_S} s")
    progress = [each for each in query.recentProgress if each.numInputRows]
    if len(progress) != 1 + MICRO_BATCHES:
        raise AssertionError(f"{len(progress)} micro-batches instead of {1 + MICRO_BATCHES}")
    return [each.durationMs["triggerExecution"] for each in progress[1:]]


def micro_batch(kafka: LocalKafka, scratch: Path, rounds: int) -> Line:
    times_ms: dict[str, list[int]] = {OURS: [], DISCARD: []}
    with session(scratch) as spark, contextlib.closing(Topics(kafka)) as topics:
        folder = make_files(spark, scratch)
        for number in range(rounds + 1):
            for format_name in (OURS, DISCARD)[:: 1 if number % 2 else -1]:
                (topic,) = topics.create(1)
                found = run(spark, folder, format_name, topic, kafka.bootstrap_servers)
                if format_name == OURS and topics.row_count([topic], 1) != 1 + MICRO_BATCHES:
                    raise SystemExit(f"{topics.row_count([topic], 1)} rows instead of {1 + MICRO_BATCHES}")
                if number > 0:  # the first warms up the JVM
                    times_ms[format_name] += found
        workers = python_workers(os.getpid())
    name = f"a micro-batch of one row, of {len(times_ms[OURS])} ({len(workers)} Python processes)"
    return Line(name, statistics.median(times_ms[OURS]), statistics.median(times_ms[DISCARD]), MICRO_BATCH_GOAL_MS)


def first_batch(kafka: LocalKafka) -> Line:
    kafka.create_topic("first-batch", 4)
    command = [sys.executable, "-c", _FIRST_BATCH, kafka.bootstrap_servers, "first-batch"]
    times_s = [
        float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for _ in range(1 + NEW_PROCESSES)
    ]
    # The first finds the files of all modules on the disk.
    return Line("the first batch of a new worker", statistics.median(times_s[1:]) * 1e3, 0.0, FIRST_BATCH_GOAL_MS)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="of a query of each, after one to warm up")
    parser.add_argument("--output", type=Path, default=Path("build/bench"), help="where latency.json goes")
    options = parser.parse_args()
    os.environ.update(spark_environment(os.environ))
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pykafka-bench-") as folder, LocalKafka() as kafka:
        lines = [first_batch(kafka), micro_batch(kafka, Path(folder), options.rounds)]
    print(table(lines))
    text = json.dumps([asdict(line) for line in lines], indent=2) + "\n"
    (options.output / "latency.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

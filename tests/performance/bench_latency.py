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

import itertools
import os
import statistics
from dataclasses import dataclass

from frame import Bench, arguments, bench, fresh_process, in_turns, link_files, micro_batches_ms, stopped, write_report
from kafka_sink.broker import LocalKafka
from process_tree import python_workers
from spark_driver import UNIX_CONF, local_session
from spark_environment import spark_environment
from spark_report import markdown

OURS, DISCARD = "pykafka", "discard"
MICRO_BATCHES = 40
NEW_PROCESSES = 11
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
    rows = (
        f"{line.name} | {line.measured_ms:.1f} ms | {line.discarding_ms:.1f} ms | {line.more_ms:.1f} ms | "
        f"<= {line.goal_ms:g} ms"
        for line in lines
    )
    return markdown("p50 | pykafka | a writer that discards | more | goal", rows)


def micro_batch(on: Bench, rounds: int) -> Line:
    made, servers = on.folder / "made", on.kafka.bootstrap_servers
    with stopped(local_session("latency", "local[1]", on.folder, **{UNIX_CONF: True})) as spark:
        spark.range(0, 1, 1, 1).selectExpr("binary('key') AS key", "binary('value') AS value").write.parquet(str(made))
        folder = link_files([*made.glob("*.parquet")], on.folder / "files", 1 + MICRO_BATCHES)

        def run(format_name: str) -> list[int]:
            (topic,) = on.topics.create(1)
            to_topic = {"kafka.bootstrap.servers": servers, "topic": topic}
            options = to_topic if format_name == OURS else {"rows": "1"}
            found = micro_batches_ms(spark, folder, 1, MICRO_BATCHES, format_name, options)
            rows = on.topics.row_count([topic], 1)
            if format_name == OURS and rows != 1 + MICRO_BATCHES:
                raise SystemExit(f"{rows} rows instead of {1 + MICRO_BATCHES}")
            return found

        times_ms = in_turns((OURS, DISCARD), rounds, run)
        workers = python_workers(os.getpid())
    ours, discarding = ([*itertools.chain(*times_ms[name])] for name in (OURS, DISCARD))
    name = f"a micro-batch of one row, of {len(ours)} ({len(workers)} Python processes)"
    return Line(name, statistics.median(ours), statistics.median(discarding), MICRO_BATCH_GOAL_MS)


def first_batch(kafka: LocalKafka) -> Line:
    kafka.create_topic("first-batch", 4)
    times_s = [fresh_process(_FIRST_BATCH, kafka.bootstrap_servers, "first-batch") for _ in range(1 + NEW_PROCESSES)]
    # The first finds the files of all modules on the disk.
    return Line("the first batch of a new worker", statistics.median(times_s[1:]) * 1e3, 0.0, FIRST_BATCH_GOAL_MS)


def main() -> None:
    options = arguments(__doc__, 7, each="a query of each", output="latency.json").parse_args()
    os.environ.update(spark_environment(os.environ))
    with bench() as on:
        lines = [first_batch(on.kafka), micro_batch(on, options.rounds)]
    print(table(lines))
    write_report(options.output / "latency.json", lines)


if __name__ == "__main__":
    main()

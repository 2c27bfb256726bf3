"""`make bench-memory`: the bounds of a Python worker's memory, and of the time that its imports take.

Memory: the peak of what is resident (VmHWM) in any Python process below Spark, over what is resident (VmRSS) in a
worker that has imported the sink and written no row. At most `kafka.buffer.memory` and 100 MB more: the pool; the two
Arrow batches that Spark's worker has at a time, the one being written and the next being read; the classes of Kafka's
messages, which the first request imports. Each case has a Spark session, and so a worker, of its own, and one task.

Two Arrow batches of large rows are more than 100 MB already, since `spark.sql.execution.arrow.maxBytesPerBatch` is
64 MiB by default. So with rows of 900 KB the bound is checked with 16 MiB; with the default, it is on what the sink
adds to the peak of a writer that discards.

Reads: a worker has two answers and one Arrow batch of records at a time, and the classes of Kafka's messages. At most
READ_BYTES, or 15 times the largest record, over a worker that has read an empty topic.

Imports: what `format("pykafka")` imports in a process that has pyarrow and Spark's side of the data source already, as
every worker has. The median of fresh processes, in CPU time, so that other processes disturb less.

Prints a table; the exit status is 1 when a bound does not hold.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from frame import bench, chosen, fresh_process, stopped
from kafka_sink.broker import LocalKafka
from kafka_sink.options.config import sink_config
from process_tree import memory_of, python_workers
from spark_driver import local_session
from spark_environment import spark_environment

MB = 1_000_000
OVER_BUFFER_MEMORY_BYTES = 100 * MB
READ_BYTES = 100 * MB
IMPORT_BOUND_S = 0.25
IMPORT_PROCESSES = 9
NAME_WIDTH = 72

SPARK_ARROW_BATCH_BYTES = 64 * 1024 * 1024

_TIMED_IMPORT = """\
import time, pyarrow, pyspark.sql.datasource
started_s = time.process_time()
import pyspark_pykafka
print(time.process_time() - started_s)
"""


@dataclass(frozen=True, slots=True)
class Case:
    """`over_discarding`: measured over the peak of a writer that discards, and not over the imports."""

    name: str
    rows: int
    value_bytes: int
    partitions: int
    compression: str
    arrow_batch_bytes: int = SPARK_ARROW_BATCH_BYTES
    over_discarding: bool = False

    def __str__(self) -> str:
        return f"{self.name}, {self.compression}"


CASES = tuple(
    case
    for compression in ("none", "zstd")
    for case in (
        Case("10 million rows", 10_000_000, 100, 4, compression),
        Case("2,000 partitions", 2_000_000, 100, 2_000, compression),
        Case("rows of 900 KB, Arrow 16 MiB", 1_000, 900_000, 4, compression, 16 * 1024 * 1024),
        Case("rows of 900 KB, Arrow 64 MiB", 1_000, 900_000, 4, compression, over_discarding=True),
    )
)


READ_CASES = (
    Case("reads: 10 million rows", 10_000_000, 100, 1, "none"),
    Case("reads: 10 million rows", 10_000_000, 100, 1, "zstd"),
    Case("reads: rows of 10 MB", 30, 10_000_000, 1, "none"),
)


@dataclass(frozen=True, slots=True)
class Bound:
    """One line of the table: `measured` should be at most `bound`, both in `unit`."""

    name: str
    measured: float
    bound: float
    unit: str

    @property
    def holds(self) -> bool:
        return self.measured <= self.bound


def rows_of(spark: SparkSession, case: Case) -> DataFrame:
    """Key and value; the value begins with the row's number, and goes on with hex digits that repeat every 128."""
    digits = case.value_bytes - 20
    filler = f"substring(repeat(sha2(string(id), 512), {digits // 128 + 1}), 1, {digits})"
    return spark.range(0, case.rows, 1, 1).selectExpr(
        "binary(string(id)) AS key", f"binary(concat(lpad(string(id), 20, '0'), {filler})) AS value"
    )


def memory_of_workers(key: str) -> int:
    """The largest VmRSS or VmHWM, in bytes, of the Python processes below this one."""
    sizes = []
    for pid in python_workers(os.getpid()):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            sizes.append(memory_of(pid)[key])
    return max(sizes)


def session(arrow_batch_bytes: int, scratch: Path) -> contextlib.AbstractContextManager[SparkSession]:
    confs = {"sql_execution_arrow_maxBytesPerBatch": arrow_batch_bytes}
    return stopped(local_session("memory", "local[1]", scratch, **confs))


def peak_over_imports(case: Case, format_name: str, options: Mapping[str, str], scratch: Path) -> int:
    """Bytes, of the workers that write the case's rows."""
    with session(case.arrow_batch_bytes, scratch) as spark:
        rows = rows_of(spark, case)

        def write(frame: DataFrame, **more: str) -> None:
            frame.write.format(format_name).mode("append").options(**options, **more).save()

        # The worker that writes no rows is the one that writes all of them next. Spark would see through `limit(0)`.
        write(rows.where("rand() > 1"), **({"rows": "0"} if format_name == "discard" else {}))
        before = memory_of_workers("VmRSS")
        write(rows, **({"rows": str(case.rows)} if format_name == "discard" else {}))
        return memory_of_workers("VmHWM") - before


def measure(kafka: LocalKafka, case: Case, scratch: Path) -> Bound:
    topic = f"bench-{CASES.index(case)}"
    kafka.create_topic(topic, case.partitions)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "topic": topic,
        "kafka.compression.type": case.compression,
    }
    peak = peak_over_imports(case, "pykafka", options, scratch)
    if case.over_discarding:
        peak -= peak_over_imports(case, "discard", {}, scratch)
    bound = sink_config(options).producer.buffer_memory + OVER_BUFFER_MEMORY_BYTES
    base = "a discarding writer" if case.over_discarding else "imports"
    return Bound(f"{case}: peak over {base}", peak / MB, bound / MB, "MB")


def measure_read(kafka: LocalKafka, case: Case, scratch: Path) -> Bound:
    """The worker that reads the rows is the one that reads an empty topic before."""
    topic, empty = f"read-{READ_CASES.index(case)}", "empty"
    kafka.create_topic(topic, case.partitions, config={"max.message.bytes": 20 * MB})
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    options = servers | {"topic": topic, "kafka.compression.type": case.compression}
    options["kafka.max.request.size"] = str(max(1024 * 1024, 2 * case.value_bytes))
    with session(SPARK_ARROW_BATCH_BYTES, scratch) as spark:
        rows_of(spark, case).write.format("pykafka").mode("append").options(**options).save()
    with session(SPARK_ARROW_BATCH_BYTES, scratch) as spark:

        def read(name: str) -> None:
            frame = spark.read.format("pykafka").options(**servers, subscribe=name).load()
            frame.write.format("noop").mode("overwrite").save()

        read(empty)
        before = memory_of_workers("VmRSS")
        read(topic)
        peak = memory_of_workers("VmHWM") - before
    bound = max(READ_BYTES, 15 * case.value_bytes)
    return Bound(f"{case}: peak over a read of no row", peak / MB, bound / MB, "MB")


def import_time() -> Bound:
    times_s = [fresh_process(_TIMED_IMPORT) for _ in range(IMPORT_PROCESSES)]
    return Bound("imports over pyarrow's", statistics.median(times_s), IMPORT_BOUND_S, "s")


def table(bounds: Sequence[Bound]) -> str:
    return "\n".join(
        f"{each.name:{NAME_WIDTH}}  {each.measured:8.2f} {each.unit:2}  at most {each.bound:8.2f} {each.unit:2}  "
        f"{'ok' if each.holds else 'BROKEN'}"
        for each in bounds
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="cases with this in their name")
    options = parser.parse_args()
    os.environ.update(spark_environment(os.environ))
    bounds = [import_time()]
    print(table(bounds), flush=True)
    with bench() as (folder, kafka, _, _):
        kafka.create_topic("empty", 1)
        for case in chosen((*CASES, *READ_CASES), [options.only]):
            bounds.append((measure if case in CASES else measure_read)(kafka, case, folder))
            print(table(bounds[-1:]), flush=True)
    return 0 if all(each.holds for each in bounds) else 1


if __name__ == "__main__":
    sys.exit(main())

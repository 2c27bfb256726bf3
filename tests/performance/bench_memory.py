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

import os
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from frame import Bench, arguments, bench, chosen, fresh_process, stopped
from peers import OURS
from process_tree import MB, OVER_BUFFER_MEMORY_BYTES, memory_of, python_workers
from spark_sessions import local_session

READ_BYTES, IMPORT_BOUND_S, IMPORT_PROCESSES = 100 * MB, 0.25, 9
MIB = 1024 * 1024

_TIMED_IMPORT = """\
import time, pyarrow, pyspark.sql.datasource
started_s = time.process_time()
import pyspark_pykafka
print(time.process_time() - started_s)
"""


@dataclass(frozen=True, slots=True)
class Case:
    """`over_discarding`: measured over the peak of a writer that discards, and not over the imports. `is_read`: rows
    are read and not written."""

    name: str
    rows: int
    value_bytes: int
    partitions: int
    compression: str
    arrow_batch_bytes: int = 64 * MIB
    over_discarding: bool = False
    is_read: bool = False

    def __str__(self) -> str:
        return f"{self.name}, {self.compression}"


CASES = (
    *(
        case
        for compression in ("none", "zstd")
        for case in (
            Case("10 million rows", 10_000_000, 100, 4, compression),
            Case("2,000 partitions", 2_000_000, 100, 2_000, compression),
            Case("rows of 900 KB, Arrow 16 MiB", 1_000, 900_000, 4, compression, 16 * MIB),
            Case("rows of 900 KB, Arrow 64 MiB", 1_000, 900_000, 4, compression, over_discarding=True),
        )
    ),
    Case("reads: 10 million rows", 10_000_000, 100, 1, "none", is_read=True),
    Case("reads: 10 million rows", 10_000_000, 100, 1, "zstd", is_read=True),
    Case("reads: rows of 10 MB", 30, 10_000_000, 1, "none", is_read=True),
)


def rows_of(spark: SparkSession, case: Case) -> DataFrame:
    """Key and value; the value begins with the row's number, and goes on with hex digits that repeat every 128."""
    digits = case.value_bytes - 20
    filler = f"substring(repeat(sha2(string(id), 512), {digits // 128 + 1}), 1, {digits})"
    return spark.range(0, case.rows, 1, 1).selectExpr(
        "binary(string(id)) AS key", f"binary(concat(lpad(string(id), 20, '0'), {filler})) AS value"
    )


def peak_over(on: Bench, case: Case, nothing: Callable[[SparkSession], None], all_: Callable[..., None]) -> int:
    """Bytes: the largest VmHWM of the workers of `all_`, over the largest VmRSS of those of `nothing` before. They are
    the same workers."""
    confs = {"sql_execution_arrow_maxBytesPerBatch": case.arrow_batch_bytes}
    with stopped(local_session("memory", "local[1]", on.folder, **confs)) as spark:
        nothing(spark)
        before = max(memory_of(pid).get("VmRSS", 0) for pid in python_workers(os.getpid()))
        all_(spark)
        return max(memory_of(pid).get("VmHWM", 0) for pid in python_workers(os.getpid())) - before


def measure(on: Bench, case: Case, topic: str) -> str:
    on.kafka.create_topic(topic, case.partitions, config={"max.message.bytes": 20 * MB})
    servers = {"kafka.bootstrap.servers": on.kafka.bootstrap_servers}
    options = servers | {"topic": topic, "kafka.compression.type": case.compression}
    options["kafka.max.request.size"] = str(max(MIB, 2 * case.value_bytes if case.is_read else 0))

    def write(spark: SparkSession, where: str = "true", format_name: str = "pykafka") -> None:
        rows = {"rows": str(case.rows if where == "true" else 0)}
        to = options if format_name == "pykafka" else rows
        rows_of(spark, case).where(where).write.format(format_name).mode("append").options(**to).save()

    def read(spark: SparkSession, name: str) -> None:
        frame = spark.read.format("pykafka").options(**servers, subscribe=name).load()
        frame.write.format("noop").mode("overwrite").save()

    def peak_of_write(format_name: str) -> int:
        # Spark would see through `limit(0)`.
        nothing, rows = ("rand() > 1", format_name), ("true", format_name)
        return peak_over(on, case, lambda spark: write(spark, *nothing), lambda spark: write(spark, *rows))

    if case.is_read:
        with stopped(local_session("memory", "local[1]", on.folder)) as spark:
            write(spark)
        peak = peak_over(on, case, lambda spark: read(spark, "empty"), lambda spark: read(spark, topic))
        return line(f"{case}: peak over a read of no row", peak / MB, max(READ_BYTES, 15 * case.value_bytes) / MB, "MB")
    peak = peak_of_write("pykafka") - (peak_of_write("discard") if case.over_discarding else 0)
    base = "a discarding writer" if case.over_discarding else "imports"
    return line(f"{case}: peak over {base}", peak / MB, (OURS.buffer_memory + OVER_BUFFER_MEMORY_BYTES) / MB, "MB")


def line(name: str, measured: float, bound: float, unit: str) -> str:
    verdict = "ok" if measured <= bound else "BROKEN"
    return f"{name:72}  {measured:8.2f} {unit:2}  at most {bound:8.2f} {unit:2}  {verdict}"


def main() -> int:
    options = arguments(__doc__, 1, each="all", only="cases").parse_args()
    times_s = [fresh_process(_TIMED_IMPORT) for _ in range(IMPORT_PROCESSES)]
    lines = [line("imports over pyarrow's", statistics.median(times_s), IMPORT_BOUND_S, "s")]
    print(lines[-1], flush=True)
    with bench() as on:
        on.kafka.create_topic("empty", 1)
        for case in chosen(CASES, options.only):
            lines.append(measure(on, case, f"bench-{CASES.index(case)}"))
            print(lines[-1], flush=True)
    return int(any(each.endswith("BROKEN") for each in lines))


if __name__ == "__main__":
    sys.exit(main())

"""What a micro-batch takes with one writer beside another, in one run.

    `make bench`, its second part: exactly-once beside at-least-once
        1 million rows, 2 slots             rows/s, of which at most a tenth may go
        800 rows, 8 slots                   milliseconds (p50) that a micro-batch takes longer, at most 25
        800 rows, 8 slots, 2 at a time      the same, where four waves of tasks follow upon each other
    `make bench-tasks`: pykafka beside Spark's JVM sink, behind a shuffle
        100 rows, 200 slots, 2 at a time    what a micro-batch of mostly empty tasks takes; of a Python sink that does
                                            nothing, too
    `make bench-latency`: pykafka beside a writer that discards
        1 rows, 1 slots                     nearly all is Spark's: it starts a task, two plans and two logs
        the first batch of a new worker     wall time, the median of fresh processes

A slot is a Spark partition of a micro-batch. Files of parquet, so many a micro-batch that each is a slot, go through a
Spark session, of as many task slots as are said, to one local broker. A round has a query of each writer write some
micro-batches, of which the first finds coordinators and starts workers, and does not count. A micro-batch's time is
Spark's own, `triggerExecution` of its progress: listing files, planning, tasks, commit and both of Spark's logs. After
each query the topic's end offsets are compared with the rows, and with the control batches of exactly-once.

The first batch: a new process that has pyarrow and Spark's side of the data source already, as every worker has, makes
the writer and writes one row until the leader has acknowledged it: imports, connection, metadata, producer id. Without
hypothesis, which tests need and which kio imports wherever it is installed: 0.15 s of CPU that no user's worker
spends.
"""

import itertools
import statistics
import sys
import tempfile
from dataclasses import dataclass, replace

from pyspark.sql import SparkSession

import frame as shared
from frame import Bench, arguments, bench, in_turns
from kafka_sink.options.config import EXACTLY_ONCE
from spark_sessions import A_PARTITION_A_FILE, UNIX_CONF, local_session, make_rows

PARTITIONS, VALUE_BYTES, NEW_PROCESSES, FIRST_BATCH_GOAL_MS = 4, 100, 11, 400
DISCARD, AT_LEAST_ONCE, JVM = "discard", "at-least-once", "Spark's JVM sink"
FORMATS = {DISCARD: "discard", JVM: "kafka"}

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
class Case:
    """One kind of micro-batch: its rows are spread evenly over `slots` files. `at_a_time`: Spark's task slots. `base`
    and `writer`: what is compared, a key of FORMATS or a guarantee. `is_shuffled`: all rows are in one file, and a
    shuffle by key spreads them, so that some slots get none. Goals: most ms more, least part of the rows/s."""

    rows: int
    slots: int
    micro_batches: int
    at_a_time: int
    base: str = AT_LEAST_ONCE
    writer: str = EXACTLY_ONCE
    goal_ms: float = 0
    goal_rows_per_s: float = 0
    is_shuffled: bool = False

    def __str__(self) -> str:
        waves = "" if self.at_a_time == self.slots else f", {self.at_a_time} at a time"
        return f"{self.rows:,} rows, {self.slots} slots{waves}"

    @property
    def files(self) -> int:
        return 1 if self.is_shuffled else self.slots


CASES = (
    Case(1_000_000, 2, micro_batches=3, at_a_time=2, goal_rows_per_s=0.9),
    Case(800, 8, micro_batches=20, at_a_time=8, goal_ms=25),
    Case(800, 8, micro_batches=20, at_a_time=2, goal_ms=25),
)
SHUFFLED = Case(100, 200, micro_batches=4, at_a_time=2, base=JVM, is_shuffled=True)
SHUFFLES = (
    replace(SHUFFLED, writer=AT_LEAST_ONCE, goal_rows_per_s=1),
    replace(SHUFFLED, writer=EXACTLY_ONCE, goal_rows_per_s=0.67),
    replace(SHUFFLED, writer=DISCARD),
)
ONE_ROW = Case(1, 1, micro_batches=40, at_a_time=1, base=DISCARD, writer=AT_LEAST_ONCE, goal_ms=5)


HEAD = "a micro-batch of | beside | its p50 | measured p50 | more | goal | rows/s | goal"


def line(name: str, base: str, base_ms: float, ms: float, goal_ms: float, goal_rows_per_s: float = 0) -> str:
    goal, goal_rate = f"<= {goal_ms:g} ms" if goal_ms else "", f">= {goal_rows_per_s} x" if goal_rows_per_s else ""
    times = f"{base_ms:.1f} ms | {ms:.1f} ms | {ms - base_ms:.1f} ms"
    return f"{name} | {base} | {times} | {goal} | {base_ms / ms:.2f} x | {goal_rate}"


def micro_batches_ms(spark: SparkSession, on: Bench, case: Case, writer: str, folder: str) -> list[int]:
    """Run a query over the folder. Return Spark's own times of all micro-batches but the first."""
    reader = spark.readStream.schema("key BINARY, value BINARY").option("maxFilesPerTrigger", case.files)
    (topic,) = on.topics.create(PARTITIONS)
    options = {"kafka.bootstrap.servers": on.kafka.bootstrap_servers, "topic": topic}
    if writer == DISCARD:
        options = {"rows": str(case.rows)}
    elif writer not in FORMATS:
        options["deliveryGuarantee"] = writer
    frame = reader.parquet(folder)
    frame = frame.repartition(case.slots, "key") if case.is_shuffled else frame
    stream = frame.writeStream.format(FORMATS.get(writer, "pykafka")).options(**options)
    stream = stream.option("checkpointLocation", tempfile.mkdtemp(dir=on.folder)).trigger(availableNow=True)
    query = stream.start()
    if not query.awaitTermination(shared.QUERY_TIMEOUT_S):
        raise SystemExit(f"a query did not end within {shared.QUERY_TIMEOUT_S} s")
    times_ms = [each.durationMs["triggerExecution"] for each in query.recentProgress if each.numInputRows]
    if len(times_ms) != 1 + case.micro_batches:
        raise AssertionError(f"{len(times_ms)} micro-batches instead of {1 + case.micro_batches}")
    # Each slot's random keys reach every partition, and its transaction ends there with a control batch of one record.
    # Behind a shuffle, a transaction of one row ends in one partition, and one without rows in none.
    markers = (case.rows if case.is_shuffled else case.slots * PARTITIONS) if writer == EXACTLY_ONCE else 0
    end, expected = on.topics.row_count([topic], PARTITIONS), (case.rows + markers) * len(times_ms)
    if writer != DISCARD and end != expected and not (case.is_shuffled and case.rows * len(times_ms) < end < expected):
        raise SystemExit(f"{case}, {writer}: the topic ends after {end} offsets instead of {expected}")
    return times_ms[1:]


def measure(on: Bench, case: Case, rounds: int) -> str:
    """In a folder of the case's own."""
    scratch = on.folder / f"{case}-{case.writer}".replace(",", "").replace(" ", "-")
    confs: dict[str, object] = {**A_PARTITION_A_FILE, UNIX_CONF: True, "sql_files_minPartitionNum": case.files}
    if case.base == JVM:
        confs["jars"] = shared.jars()
    with shared.stopped(local_session("micro-batches", f"local[{case.at_a_time}]", scratch, **confs)) as spark:
        make_rows(spark, scratch / "made", case.rows, VALUE_BYTES, files=case.files)
        parts = sorted((scratch / "made").glob("*.parquet"))
        if len(parts) != case.files:
            raise AssertionError(f"{len(parts)} files instead of {case.files}")
        folder = str(shared.link_files(parts, scratch / "files", 1 + case.micro_batches))
        writers, said = (case.base, case.writer), f"{case}: "
        times_ms = in_turns(writers, rounds, lambda each: micro_batches_ms(spark, on, case, each, folder), said)
    base_ms, measured_ms = (statistics.median(itertools.chain(*times_ms[each])) for each in writers)
    return line(f"{case}: {case.writer}", case.base, base_ms, measured_ms, case.goal_ms, case.goal_rows_per_s)


def first_batch(on: Bench) -> str:
    on.kafka.create_topic("first-batch", 4)
    servers = on.kafka.bootstrap_servers
    times_s = [shared.fresh_process(_FIRST_BATCH, servers, "first-batch") for _ in range(1 + NEW_PROCESSES)]
    # The first finds the files of all modules on the disk.
    median_ms = statistics.median(times_s[1:]) * 1e3
    return line("the first batch of a new worker", "nothing", 0.0, median_ms, FIRST_BATCH_GOAL_MS)


def main() -> None:
    parser = arguments(__doc__, 5, each="both writers", output="micro_batches.json or latency.json")
    parser.add_argument("--one-row", action="store_true", help="a micro-batch of one row, and the first batch")
    parser.add_argument("--shuffled", action="store_true", help="100 rows behind a shuffle, beside Spark's JVM sink")
    options = parser.parse_args()
    lines = []
    with bench() as on:
        if options.one_row:
            lines.append(first_batch(on))
        for case in (ONE_ROW,) if options.one_row else SHUFFLES if options.shuffled else CASES:
            lines.append(measure(on, case, options.rounds))
            print(shared.markdown(HEAD, lines[-1:]), file=sys.stderr)
    table = shared.markdown(HEAD, lines)
    print(table)
    name = "latency" if options.one_row else "tasks" if options.shuffled else "micro_batches"
    shared.write_report(options.output / f"{name}.json", {"table": table.splitlines()}, on.kafka)


if __name__ == "__main__":
    main()

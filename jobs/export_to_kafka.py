"""Writes a table, a query's result or files into Kafka once: a job for spark-submit.

    spark-submit jobs/export_to_kafka.py --table sales.orders \\
        --bootstrap-servers localhost:9092 --topic orders --key "CAST(order_id AS STRING)"

    # every tenant in one partition, the tenants spread over all that the topic has
    spark-submit jobs/export_to_kafka.py --query "SELECT * FROM sales.orders WHERE day = DATE'2026-01-31'" \\
        --bootstrap-servers localhost:9092 --topic orders --partition "tenant_id % {partitions}"

    spark-submit jobs/export_to_kafka.py --source /data/people.csv --format csv --source-option header=true \\
        --bootstrap-servers localhost:9092 --topic "concat('people-', lower(country))" --value name

    # any other source that Spark reads
    spark-submit jobs/export_to_kafka.py --format jdbc --source-option url=jdbc:... --source-option dbtable=orders \\
        --bootstrap-servers localhost:9092 --topic orders --preset conf/throughput.conf

SQL expressions make Kafka's columns from the rows. By default the value is the whole row as JSON, there is no key and
no header, and the timestamp is the time of the write. {partitions} is the topic's number of partitions at the start of
the job. The job first checks the cluster, as `pykafka check` does, and ends with status 1 if the write would fail.
--option sets an option of the sink, --create-topics creates a missing topic.

The job prints progress lines while tasks end, and a table at the end. The table has the acknowledged records of each
partition, the first and the last offset (other writers' records may lie between), and the compressed bytes in the log.
On SIGTERM, to spark-submit or to the job, the Spark job is cancelled and the status is 143. Then, and if the export
fails, the table counts only the tasks that had ended. Other tasks may have written rows too, and another run writes all
rows again.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark import SparkContext, StatusTracker
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import kafka_sink
from job_support import add_columns, add_files, add_sink, kafka_columns, look_before, session, sigterm, sink_options
from kafka_sink.command_line import parser_of
from kafka_sink.errors.failures import told_by_spark
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.spark.tally import ReceiptsByPartition, Tally

POLL_SECONDS = 0.5
SIGTERM_STATUS = 128 + 15
COLUMN_TITLES = ("topic", "partition", "records", "offsets", "bytes")


def main(arguments: Sequence[str]) -> int:
    args = parse(arguments)
    terminate = sigterm()
    spark = session(f"export to {args.topic}", terminate)
    try:
        with told_by_spark():
            return export(spark, args, terminate)
    finally:
        spark.stop()


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the checked command line. Exit with a message and status 2 if it is wrong."""
    assert __doc__ is not None
    parser = parser_of(__doc__, "export_to_kafka.py")
    source = parser.add_argument_group("source", "a table, a query, files, or --format alone for a source without path")
    what = source.add_mutually_exclusive_group()
    what.add_argument("--table", metavar="NAME", help="a table of Spark's catalog")
    what.add_argument("--query", metavar="SQL")
    what.add_argument("--source", metavar="PATH", help="a file or a folder of files")
    source.add_argument("--format", help="json, csv, parquet, ..., any source (default, of --source: parquet)")
    add_files(source)
    add_columns(parser)
    add_sink(parser)
    args = parser.parse_args(arguments)
    if (args.table or args.query) and (args.format or args.schema or args.source_option):
        parser.error("--format, --schema and --source-option go with --source, not with --table or --query")
    if not (args.table or args.query or args.source or args.format):
        parser.error("one of --table, --query, --source and --format is needed")
    return args


def read(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    if args.table:
        return spark.table(args.table)
    if args.query:
        return spark.sql(args.query)
    reader = spark.read.format(args.format or "parquet").options(**dict(args.source_option))
    if args.schema:
        reader = reader.schema(args.schema)
    return reader.load(args.source)


def export(spark: SparkSession, args: argparse.Namespace, terminate: threading.Event) -> int:
    """Write with progress lines, until all is written or `terminate` is set. Return the exit status. Raises the write's
    error."""
    options = sink_options(args)
    rows = read(spark, args)
    look_before(rows, options)
    records = kafka_columns(rows, args, lambda: kafka_sink.partition_count(options, spark))
    tally = Tally(spark)
    kafka_sink.register(spark, interceptors=[tally])
    try:
        with job_group(spark.sparkContext) as group, watched(spark.sparkContext, group, tally, terminate):
            # In this thread, because Spark looks up the format in the calling thread's session.
            records.write.format("pykafka").mode("append").options(**options).save()
    except (PySparkException, Py4JError):  # PySpark translates most of the JVM's errors, not all
        show_failed(tally.value)
        if not terminate.is_set():
            raise
        print("cancelled by SIGTERM; another run writes all rows again", flush=True)
        return SIGTERM_STATUS
    print(*summary(tally.value), sep="\n", flush=True)
    return 0


@contextmanager
def job_group(context: SparkContext) -> Iterator[str]:
    """Yield the name of a job group for the jobs that this thread runs in the block."""
    group = f"export to Kafka {uuid.uuid4()}"
    # The third argument interrupts the threads of cancelled tasks, which ends their Python workers.
    context.setJobGroup(group, "export to Kafka", True)
    try:
        yield group
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            # Spark removes a property that is set to None.
            context.setLocalProperty(name, None)  # type: ignore[arg-type]


def show_failed(receipts: ReceiptsByPartition) -> None:
    print(*summary(receipts), sep="\n")
    print("the export did not end: the table counts the tasks that had ended; others may have written rows, too")


@contextmanager
def watched(context: SparkContext, group: str, tally: Tally, terminate: threading.Event) -> Iterator[None]:
    """Print progress lines while the block runs. Cancel the job group when `terminate` is set."""
    progress = Progress(context.statusTracker(), group, started=time.monotonic())
    done = threading.Event()

    def look() -> None:
        line = progress.line(tally.value, time.monotonic())
        if line is not None:
            print(line, flush=True)

    def watch() -> None:
        while not done.wait(POLL_SECONDS):
            look()
            if terminate.is_set():
                # Repeated, because it has no effect on a job that has not begun yet.
                context.cancelJobGroup(group)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        look()


@dataclass(slots=True)
class Progress:
    """The progress of the job group. Times are in seconds of a monotonic clock."""

    tracker: StatusTracker
    group: str
    started: float
    shown: tuple[int, int, int] = (0, 0, 0)

    def line(self, receipts: ReceiptsByPartition, now: float) -> str | None:
        """Return the next line, or None if nothing has changed since the last one."""
        ended, known = self.tasks()
        records = sum(one.record_count for one in receipts.values())
        # Spark counts a task as ended before it adds the task's receipts.
        if (ended, known, records) == self.shown:
            return None
        self.shown = ended, known, records
        log_bytes = sum(one.batch_bytes for one in receipts.values())
        seconds = now - self.started
        return f"{seconds:7.1f} s  {ended:,} of {known:,} tasks  {records:>12,} records  {size(log_bytes):>9}"

    def tasks(self) -> tuple[int, int]:
        """Return the counts of ended and of all tasks in the stages that Spark has started, also stages of a query."""
        jobs = filter(None, map(self.tracker.getJobInfo, self.tracker.getJobIdsForGroup(self.group)))
        stages = [info for job in jobs for info in map(self.tracker.getStageInfo, job.stageIds) if info is not None]
        return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)


def summary(receipts: ReceiptsByPartition) -> list[str]:
    """Return a table with one line for each partition, and a total."""
    rows = [cells(receipts[key]) for key in sorted(receipts)]
    records = sum(one.record_count for one in receipts.values())
    log_bytes = sum(one.batch_bytes for one in receipts.values())
    rows.append(("total", f"{len(receipts):,}", f"{records:,}", "", size(log_bytes)))
    table = [COLUMN_TITLES, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in table]


def cells(receipt: PartitionOffsets) -> tuple[str, ...]:
    offsets = "unknown" if receipt.first_offset is None else f"{receipt.first_offset:,} - {receipt.last_offset:,}"
    return (
        receipt.topic, f"{receipt.partition}", f"{receipt.record_count:,}", offsets, size(receipt.batch_bytes)
    )  # fmt: skip


def size(count: int) -> str:
    return f"{count / 1e6:,.1f} MB" if count >= 1e5 else f"{count:,} B"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Streams rows of any source, files above all, into Kafka: a job for spark-submit.

    spark-submit jobs/stream_to_kafka.py \\
        --format json --schema "id BIGINT, name STRING, at TIMESTAMP" --source /data/incoming \\
        --bootstrap-servers localhost:9092 --topic people --checkpoint /data/checkpoints/people \\
        --key "CAST(id AS STRING)" --timestamp at --available-now

    # runs until it is stopped, a micro-batch at most every 10 s; the tenants share the topic's partitions evenly
    spark-submit jobs/stream_to_kafka.py \\
        --format parquet --schema "tenant_id BIGINT, event STRING" --source s3a://lake/events \\
        --bootstrap-servers broker:9092 --topic events --checkpoint s3a://lake/checkpoints/events \\
        --partition "tenant_id % {partitions}" --processing-time "10 seconds" --preset conf/throughput.conf

    # a source that needs no files and no schema
    spark-submit jobs/stream_to_kafka.py --format rate --source-option rowsPerSecond=100 \\
        --bootstrap-servers localhost:9092 --topic ticks --checkpoint /data/checkpoints/ticks \\
        --processing-time "1 second" --preset conf/low-latency.conf

SQL expressions make Kafka's columns from the rows. By default the value is the whole row as JSON, there is no key and
no header, and the timestamp is the time of the write. {partitions} is the topic's number of partitions at the start of
the job. Options of the sink come from a preset, a file of `key = value` lines (conf/*.conf), and from --option
(spark-submit uses the name --conf itself). The job first checks the cluster, as `pykafka check` does, and ends with
status 1 if the write would fail.

The job prints one line for each micro-batch with the acknowledged rows, and a total. With --available-now it ends when
the rows that existed at its start are written. Otherwise it runs until it is stopped. It fails with the sink's error,
or else the query's. On SIGTERM, to spark-submit or to the job, it finishes the running micro-batch and ends with status
0. The next start continues with the next micro-batch.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import kafka_sink
from job_support import add_columns, add_files, add_sink, kafka_columns, look_before, session, sigterm, sink_options
from kafka_sink.command_line import parser_of
from kafka_sink.errors.failures import told_by_spark
from kafka_sink.monitoring.listener import Counted, StreamTally, micro_batch_of
from kafka_sink.monitoring.micro_batch import MicroBatch

PROGRESS_POLL_SECONDS = 1
LOCK_POLL_SECONDS = 0.01


def main(arguments: Sequence[str]) -> None:
    args = parse(arguments)
    terminate = sigterm()
    spark = session(f"stream to {args.topic}", terminate)
    try:
        with told_by_spark():
            tally = StreamTally(spark)
            kafka_sink.register(spark, interceptors=[tally])
            follow(start(read(spark, args), args), terminate, tally)
        if terminate.is_set():
            print("ended by SIGTERM, between two micro-batches", flush=True)
    finally:
        spark.stop()


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Return the checked command line. Exit with a message and status 2 if it is wrong."""
    assert __doc__ is not None
    parser = parser_of(__doc__, "stream_to_kafka.py")
    source = parser.add_argument_group("source")
    source.add_argument("--format", default="json", help="json, csv, parquet, ..., any source (default: json)")
    source.add_argument("--source", metavar="PATH", help="folder the files arrive in")
    add_files(source)
    source.add_argument("--max-files-per-trigger", type=int, metavar="N", help="at most N files in a micro-batch")
    add_columns(parser)
    add_sink(parser).add_argument(
        "--checkpoint", required=True, metavar="PATH", help="folder of this stream only, kept between runs"
    )
    trigger = parser.add_mutually_exclusive_group(required=True)
    trigger.add_argument("--available-now", action="store_true", help="write the existing rows and end")
    trigger.add_argument("--processing-time", metavar="INTERVAL", help='run until stopped; "10 seconds"')
    return parser.parse_args(arguments)


def read(spark: SparkSession, args: argparse.Namespace) -> DataFrame:
    options = dict(args.source_option)
    if args.max_files_per_trigger:
        options["maxFilesPerTrigger"] = str(args.max_files_per_trigger)
    reader = spark.readStream.format(args.format).options(**options)
    if args.schema:
        reader = reader.schema(args.schema)
    return reader.load(args.source)


def start(rows: DataFrame, args: argparse.Namespace) -> StreamingQuery:
    options = sink_options(args)
    look_before(rows, {**options, "checkpointLocation": args.checkpoint})
    records = kafka_columns(rows, args, lambda: kafka_sink.partition_count(options, rows.sparkSession))
    writer = records.writeStream.format("pykafka").options(**options).option("checkpointLocation", args.checkpoint)
    if args.available_now:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=args.processing_time)
    return writer.start()


def follow(query: StreamingQuery, terminate: threading.Event, counted: Counted) -> None:
    """Print one line for each micro-batch until the query ends or is held, then a total. Raises the query's error."""
    total = Total()
    ended = False
    while not ended:
        held = terminate.is_set()
        if held:
            hold_between_micro_batches(query)
        else:
            query.awaitTermination(PROGRESS_POLL_SECONDS)
        ended = not query.isActive
        if ended:
            # isActive is False as soon as no other micro-batch will begin. The last one may still run.
            query.awaitTermination()
        for progress in query.recentProgress:
            # While Spark waits for files it also reports progress, with the number of the next micro-batch.
            if progress.batchId > total.last_batch_id and progress.numInputRows:
                micro_batch = micro_batch_of(progress, counted, ended_s=time.time())
                total.add(micro_batch)
                print(replace(micro_batch, query="micro-batch"), flush=True)
        ended |= held
    print(total, flush=True)


def hold_between_micro_batches(query: StreamingQuery) -> None:
    """Return when all planned micro-batches are committed. No other begins while this process runs.

    `query.stop()` is not enough. It cancels the running tasks, but a micro-batch that is being planned still starts
    tasks. Their rows would be in the topic and not in the checkpoint, and the next start would write them again.

    A query takes a lock to plan a micro-batch, to commit it and to report its end (Spark's
    MicroBatchExecution.withProgressLocked). The lock is fair: unlock and lock give the waiting query exactly one step.
    This function keeps the lock when the query waits for it to plan, or sleeps until its next trigger, because it
    plans next. It also returns if the query has ended.
    """
    execution = query._jsq.streamingQuery()
    lock, thread = execution.awaitProgressLock(), execution.queryExecutionThread()
    lock.lock()
    while thread.isAlive():
        waits = lock.hasQueuedThread(thread)
        within = {frame.getMethodName() for frame in thread.getStackTrace()}
        if "waitTillTime" in within or (waits and "constructNextBatch" in within):
            return
        if waits:
            lock.unlock()
            lock.lock()
        else:
            time.sleep(LOCK_POLL_SECONDS)


@dataclass(slots=True)
class Total:
    """The acknowledged rows of all micro-batches so far. Spark keeps only the progress of the last hundred."""

    last_batch_id: int = -1
    micro_batches: int = 0
    rows: int = 0
    seconds: float = 0.0

    def add(self, micro_batch: MicroBatch) -> None:
        self.last_batch_id = micro_batch.batch_id
        self.micro_batches += 1
        self.rows += micro_batch.total.row_count
        self.seconds += micro_batch.duration_ms / 1000

    def __str__(self) -> str:
        rate = self.rows / self.seconds if self.seconds else 0
        what = f"{self.rows:,} rows in {self.micro_batches:,} micro-batches"
        return f"{what}, {self.seconds:.2f} s, {rate:,.0f} rows/s"


if __name__ == "__main__":
    main(sys.argv[1:])

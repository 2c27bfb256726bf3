"""Streams rows of any source, files above all, into Kafka: a job for spark-submit.

    spark-submit jobs/stream_to_kafka.py \\
        --format json --schema "id BIGINT, name STRING, at TIMESTAMP" --source /data/incoming \\
        --bootstrap-servers localhost:9092 --topic people --checkpoint /data/checkpoints/people \\
        --key "CAST(id AS STRING)" --timestamp at --available-now

    # runs on, a micro-batch every 10 s at most; the tenants of a topic share its partitions evenly
    spark-submit jobs/stream_to_kafka.py \\
        --format parquet --schema "tenant_id BIGINT, event STRING" --source s3a://lake/events \\
        --bootstrap-servers broker:9092 --topic events --checkpoint s3a://lake/checkpoints/events \\
        --partition "tenant_id % {partitions}" --processing-time "10 seconds" --preset conf/throughput.conf

    # no files and no schema: a source that has both of its own
    spark-submit jobs/stream_to_kafka.py --format rate --source-option rowsPerSecond=100 \\
        --bootstrap-servers localhost:9092 --topic ticks --checkpoint /data/checkpoints/ticks \\
        --processing-time "1 second" --preset conf/low-latency.conf

The rows' columns become Kafka's by SQL expressions: by default the value is the whole row as JSON, there is
no key and no header, and the timestamp is the time of the write. {partitions} is the number of partitions that
the topic has when the job starts. Options of the sink come from a preset, a file of `key = value` lines
(conf/*.conf), and from --option; spark-submit keeps the name --conf for itself. The job looks at the cluster first, as
`pykafka check` does, and ends with status 1 where the write would fail.

A line is printed for every micro-batch, with the rows that leaders acknowledged, and a total. With --available-now the
job ends when the rows that were there at its start are written; otherwise it runs on. It fails with the sink's error,
or else the query's. On SIGTERM, to spark-submit or to the job, it ends after the micro-batch that is running, with
status 0, and leaves none half written: the next start goes on behind it.
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
from kafka_sink.monitoring.listener import Acknowledged, StreamTally, micro_batch_of
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
    """The command line, checked; exits with a message and status 2 where it is wrong."""
    assert __doc__ is not None
    parser = parser_of(__doc__, "stream_to_kafka.py")
    source = parser.add_argument_group("source")
    source.add_argument("--format", default="json", help="json, csv, parquet, ..., any source (default: json)")
    source.add_argument("--source", metavar="PATH", help="folder the files arrive in")
    add_files(source)
    source.add_argument("--max-files-per-trigger", type=int, metavar="N", help="at most so many a micro-batch")
    add_columns(parser)
    add_sink(parser).add_argument(
        "--checkpoint", required=True, metavar="PATH", help="this stream's own, kept between runs"
    )
    trigger = parser.add_mutually_exclusive_group(required=True)
    trigger.add_argument("--available-now", action="store_true", help="write what is there and end")
    trigger.add_argument("--processing-time", metavar="INTERVAL", help='run on; "10 seconds"')
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


def follow(query: StreamingQuery, terminate: threading.Event, acknowledged: Acknowledged) -> None:
    """Prints a line for each micro-batch until the query ends or is held, then a total; raises the query's error."""
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
            # Spark says so as soon as no other micro-batch will begin; the last may be running.
            query.awaitTermination()
        for progress in query.recentProgress:
            # Spark also reports while it waits for files, under the number of the micro-batch to come.
            if progress.batchId > total.last_batch_id and progress.numInputRows:
                micro_batch = micro_batch_of(progress, acknowledged, ended_s=time.time())
                total.add(micro_batch)
                print(replace(micro_batch, query="micro-batch"), flush=True)
        ended |= held
    print(total, flush=True)


def hold_between_micro_batches(query: StreamingQuery) -> None:
    """Returns when every micro-batch that was planned is committed, and no other begins while this process runs.

    `query.stop()` does not do: it cancels the tasks of the moment, and a micro-batch that is being planned at that
    moment still starts some; their rows are in the topic, not in the checkpoint, and the next start writes them again.
    What a query has against progress at the wrong time is a lock, which it takes to plan a micro-batch, to commit it
    and to tell that it is done (Spark's MicroBatchExecution.withProgressLocked). It is fair: who gives it away to the
    waiting query and takes it again has it back one step later. It is kept once the query waits for it to plan; also
    once it sleeps until its next trigger, for then it plans. A query that ended by itself is past all that.
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
    """What was acknowledged of the micro-batches seen so far; Spark keeps the progress of the last hundred only."""

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

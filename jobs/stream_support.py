"""Shared code of the jobs that stream: checkpoint and trigger, a line for each micro-batch, and an end between two.

A job imports this file by its name, as it imports job_support.py.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import kafka_sink
from job_support import kafka_columns, look_before, session, sigterm
from kafka_sink.errors.failures import told_by_spark
from kafka_sink.monitoring.listener import Counted, StreamTally, micro_batch_of
from kafka_sink.monitoring.micro_batch import MicroBatch

PROGRESS_POLL_SECONDS = 1
LOCK_POLL_SECONDS = 0.01


def add_stream(parser: argparse.ArgumentParser, sink: argparse._ArgumentGroup) -> None:
    sink.add_argument(
        "--checkpoint", required=True, metavar="PATH", help="folder of this stream only, kept between runs"
    )
    trigger = parser.add_mutually_exclusive_group(required=True)
    trigger.add_argument("--available-now", action="store_true", help="write the existing rows and end")
    trigger.add_argument("--processing-time", metavar="INTERVAL", help='run until stopped; "10 seconds"')


def run(args: argparse.Namespace, start: Callable[[SparkSession, argparse.Namespace], StreamingQuery]) -> None:
    """Start a query in a session of its own, and follow it until it ends or SIGTERM arrives. Raises its error."""
    terminate = sigterm()
    spark = session(f"stream to {args.topic}", terminate)
    try:
        with told_by_spark():
            tally = StreamTally(spark)
            kafka_sink.register(spark, interceptors=[tally])
            follow(start(spark, args), terminate, tally)
        if terminate.is_set():
            print("ended by SIGTERM, between two micro-batches", flush=True)
    finally:
        spark.stop()


def write(rows: DataFrame, args: argparse.Namespace, options: Mapping[str, str]) -> StreamingQuery:
    """Start the query that writes `rows` with the options of the sink, if the cluster can take them."""
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

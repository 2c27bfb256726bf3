"""Spark's progress of a stream joined with the sink's: one `MicroBatch` for each that Spark has recorded.

    tally = StreamTally(spark)
    kafka_sink.register(spark, interceptors=[tally])
    spark.streams.addListener(ProgressListener(tally))                  # a line each, on stderr
    spark.streams.addListener(ProgressListener(tally, Prometheus(...))) # or whoever else watches

Spark's own progress says of a Python sink that it wrote -1 rows. What the leaders acknowledged comes to the driver as
`Tally` has it, with each task that ends, under the run and number of its micro-batch: a micro-batch that failed and
runs again is another run's, and so counted once.

Writes of foreachBatch count for the micro-batch they are made in. Where the session is Spark Connect there are no
accumulators: there receipts say it (monitoring/receipts.py).

Source: StreamExecution.scala sets a run's job group and a micro-batch's number as local properties; ProgressReporter
posts QueryProgressEvent after the commit log.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping
from typing import Protocol, TextIO

from pyspark import AccumulatorParam, TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from kafka_sink.command_line import tell
from kafka_sink.errors import KafkaSinkError
from kafka_sink.failures import error_of
from kafka_sink.monitoring.micro_batch import NOTHING, MicroBatch, Run, Totals, TotalsByTopic, Watcher
from kafka_sink.producer.receipts import PartitionReceipt
from kafka_sink.spark.interceptors import Interceptor

log = logging.getLogger(__name__)

# Spark keeps as many progress events of a query (spark.sql.streaming.numRecentProgressUpdates).
KEPT_MICRO_BATCHES = 100


Recent = Mapping[Run, TotalsByTopic]


class RecentParam(AccumulatorParam[Recent]):
    """Adds up by micro-batch and topic, and keeps the last KEPT_MICRO_BATCHES. A sum is a new dict: a listener's thread
    may be reading the old one."""

    def zero(self, value: Recent) -> Recent:
        return {}

    def addInPlace(self, value1: Recent, value2: Recent) -> Recent:
        added = dict(value1)
        for run, topics in value2.items():
            before = added.pop(run, {})
            added[run] = {**before, **{name: before.get(name, NOTHING).plus(new) for name, new in topics.items()}}
        return {run: added[run] for run in list(added)[-KEPT_MICRO_BATCHES:]}


class StreamTally(Interceptor):
    """Counts what the leaders acknowledged, by micro-batch. One may count for all streams of a session."""

    def __init__(self, spark: SparkSession) -> None:
        nothing_yet: Recent = {}
        self._recent = spark.sparkContext.accumulator(nothing_yet, RecentParam())

    def topics_of(self, run: Run) -> TotalsByTopic:
        """For the process that made the tally, not for tasks."""
        return self._recent.value.get(run, {})

    def on_acknowledgement(self, receipts: tuple[PartitionReceipt, ...], error: Exception | None) -> None:
        run = _run_of(TaskContext.get())
        if run is None or not receipts:
            return
        topics: dict[str, Totals] = {}
        for one in receipts:
            acknowledged = Totals(one.record_count, one.batch_count, one.batch_bytes)
            topics[one.topic] = topics.get(one.topic, NOTHING).plus(acknowledged)
        self._recent.add({run: topics})


def _run_of(context: TaskContext | None) -> Run | None:
    """None outside a stream's micro-batch."""
    if context is None:
        return None
    query_id, run_id = context.getLocalProperty("sql.streaming.queryId"), context.getLocalProperty("spark.jobGroup.id")
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    return None if query_id is None or run_id is None or batch_id is None else Run(query_id, run_id, int(batch_id))


class Acknowledged(Protocol):
    """Who knows what the leaders acknowledged: a `StreamTally`, or `monitoring.receipts.ReceiptTotals`."""

    def topics_of(self, run: Run) -> TotalsByTopic: ...


class ProgressLine:
    """Prints a line for each micro-batch, and the sink's error when a query ends with one."""

    def __init__(self, file: TextIO = sys.stderr) -> None:
        self._file = file

    def __call__(self, micro_batch: MicroBatch) -> None:
        tell(str(micro_batch), file=self._file)

    def failed(self, query: str, error: KafkaSinkError) -> None:
        tell(f"{query} has failed: {type(error).__name__}: {error}", file=self._file)


class ProgressListener(StreamingQueryListener):
    """Tells its watchers of each micro-batch that had rows. Without any it prints a line."""

    def __init__(
        self, acknowledged: Acknowledged, *watchers: Watcher, clock_s: Callable[[], float] = time.time
    ) -> None:
        self._acknowledged = acknowledged
        self._watchers = watchers or (ProgressLine(),)
        self._clock_s = clock_s

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        if (error := error_of(event.exception)) is None:
            return
        for watcher in self._watchers:
            if isinstance(watcher, ProgressLine):
                watcher.failed(str(event.id), error)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        topics = self._acknowledged.topics_of(Run(str(progress.id), str(progress.runId), progress.batchId))
        if not topics and progress.numInputRows == 0:
            return
        micro_batch = MicroBatch(
            query=progress.name or str(progress.id),
            batch_id=progress.batchId,
            input_row_count=progress.numInputRows,
            duration_ms=progress.durationMs.get("triggerExecution", 0),
            write_ms=progress.durationMs.get("addBatch", 0),
            ended_s=self._clock_s(),
            topics=topics,
        )
        for watcher in self._watchers:
            try:
                watcher(micro_batch)
            except OSError as error:
                # A gateway that is away is no reason for the others not to hear.
                name = type(watcher).__name__
                log.warning("%s was not told of micro-batch %d: %s", name, micro_batch.batch_id, error)

"""Joins Spark's progress of a stream with the sink's: one `MicroBatch` for each micro-batch that Spark has recorded.

    tally = StreamTally(spark)
    kafka_sink.register(spark, interceptors=[tally])
    spark.streams.addListener(ProgressListener(tally))                  # a line each, on stderr
    spark.streams.addListener(ProgressListener(tally, Prometheus(...))) # or other watchers

Spark's own progress counts the rows that Spark gave to the sink, with bad rows (-1 for foreachBatch), and names no
topic. An accumulator brings the acknowledged rows to the driver when a task ends. They are counted by the run and
number of their micro-batch. A micro-batch that failed and runs again belongs to another run, so it is counted once.
Spark drops the counts of failed tasks, so their retries are in no sum.

Writes in foreachBatch count for the micro-batch that runs them. With Spark Connect there are no accumulators: use
receipts (monitoring/receipts.py).

Source: StreamExecution.scala sets a run's job group and a micro-batch's number as local properties; ProgressReporter
posts QueryProgressEvent after the commit log.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol, TextIO

from pyspark import AccumulatorParam, TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)

from kafka_sink.command_line import tell
from kafka_sink.errors import KafkaSinkError
from kafka_sink.errors.failures import error_of
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.producer.statistics import WriteStatistics
from kafka_sink.monitoring.lag import lag_of
from kafka_sink.monitoring.micro_batch import Attentive, BadRows, MicroBatch, Run, Totals, Watcher, Written
from kafka_sink.spark.interceptors import Interceptor

log = logging.getLogger(__name__)

# Spark keeps the same number of progress events of a query (spark.sql.streaming.numRecentProgressUpdates).
KEPT_MICRO_BATCHES = 100


Recent = Mapping[Run, Written]


class RecentParam(AccumulatorParam[Recent]):
    """Adds up by micro-batch, and keeps the last KEPT_MICRO_BATCHES.

    Each sum is a new dict, because a listener's thread may be reading the old one.
    """

    def zero(self, value: Recent) -> Recent:
        return {}

    def addInPlace(self, value1: Recent, value2: Recent) -> Recent:
        added = dict(value1)
        for run, written in value2.items():
            added[run] = added.pop(run, Written()).plus(written)
        return {run: added[run] for run in list(added)[-KEPT_MICRO_BATCHES:]}


class StreamTally(Interceptor):
    """Counts acknowledged rows, retries, bad rows and throttling, by micro-batch. One tally can count for all streams
    of a session."""

    def __init__(self, spark: SparkSession) -> None:
        nothing_yet: Recent = {}
        self._recent = spark.sparkContext.accumulator(nothing_yet, RecentParam())

    def written_in(self, run: Run) -> Written:
        """Return the counts of a micro-batch. Only the process that made the tally can call it, not tasks."""
        return self._recent.value.get(run, Written())

    def on_acknowledgement(self, receipts: tuple[PartitionOffsets, ...], error: Exception | None) -> None:
        acknowledged = Written()
        for one in receipts:
            of_partition = Totals(one.record_count, one.batch_count, one.batch_bytes)
            acknowledged = acknowledged.plus(Written({one.topic: of_partition}))
        self._add(acknowledged)

    def on_statistics(self, statistics: WriteStatistics) -> None:
        retried = {topic: Totals(0, 0, 0, count) for topic, count in statistics.retried.items()}
        bad_rows = {BadRows("dropped", reason): count for reason, count in statistics.dropped.items()}
        bad_rows |= {BadRows("dead_lettered", reason): count for reason, count in statistics.dead_lettered.items()}
        self._add(Written().plus(Written(retried, bad_rows, statistics.throttled_ms)))

    def _add(self, written: Written) -> None:
        run = _run_of(TaskContext.get())
        if run is not None and written != Written():
            self._recent.add({run: written})


def _run_of(context: TaskContext | None) -> Run | None:
    """Return the task's micro-batch, or None outside a stream."""
    if context is None:
        return None
    query_id, run_id = context.getLocalProperty("sql.streaming.queryId"), context.getLocalProperty("spark.jobGroup.id")
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    return None if query_id is None or run_id is None or batch_id is None else Run(query_id, run_id, int(batch_id))


class Acknowledged(Protocol):
    """A source of acknowledged rows: a `StreamTally`, or `monitoring.receipts.ReceiptTotals`."""

    def written_in(self, run: Run) -> Written: ...


def micro_batch_of(progress: StreamingQueryProgress, acknowledged: Acknowledged, *, ended_s: float) -> MicroBatch:
    """Join Spark's progress of a micro-batch, or of a trigger without new rows, with the acknowledged rows."""
    return MicroBatch(
        query=progress.name or str(progress.id),
        batch_id=progress.batchId,
        input_row_count=progress.numInputRows,
        duration_ms=progress.durationMs.get("triggerExecution", 0),
        write_ms=progress.durationMs.get("addBatch", 0),
        ended_s=ended_s,
        written=acknowledged.written_in(Run(str(progress.id), str(progress.runId), progress.batchId)),
        lag=lag_of(progress.sources),
    )


class ProgressLine(Attentive):
    """Prints one line for each micro-batch, and the sink's error if a query ends with such an error."""

    def __init__(self, file: TextIO = sys.stderr) -> None:
        self._file = file

    def __call__(self, micro_batch: MicroBatch) -> None:
        tell(str(micro_batch), file=self._file)

    def failed(self, query: str, error: KafkaSinkError) -> None:
        tell(f"{query} has failed: {type(error).__name__}: {error}", file=self._file)


class ProgressListener(StreamingQueryListener):
    """Notifies its watchers of each micro-batch with rows. Without watchers it prints a line."""

    def __init__(
        self, acknowledged: Acknowledged, *watchers: Watcher, clock_s: Callable[[], float] = time.time
    ) -> None:
        self._acknowledged = acknowledged
        self._watchers = watchers or (ProgressLine(),)
        self._clock_s = clock_s
        # Names of running queries by id.
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self._names[str(event.id)] = event.name or str(event.id)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        # The name of a query that started before the listener may be unknown yet.
        query_id, seen_s = str(event.id), self._clock_s()
        query = self._names.get(query_id, query_id)
        self._tell(f"that query {query} is idle", lambda watcher: watcher.idle(query, seen_s))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        query = self._names.pop(str(event.id), str(event.id))
        if (error := error_of(event.exception)) is not None:
            self._tell(f"that query {query} has failed", lambda watcher: watcher.failed(query, error))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        query = self._names[str(progress.id)] = progress.name or str(progress.id)
        micro_batch = micro_batch_of(progress, self._acknowledged, ended_s=self._clock_s())
        if not micro_batch.topics and progress.numInputRows == 0:
            seen_s = micro_batch.ended_s
            self._tell(f"that query {query} is idle", lambda watcher: watcher.idle(query, seen_s))
            return
        for watcher in self._watchers:
            with _logged(watcher, f"of micro-batch {micro_batch.batch_id}"):
                watcher(micro_batch)

    def _tell(self, what: str, tell_one: Callable[[Attentive], None]) -> None:
        for watcher in self._watchers:
            if isinstance(watcher, Attentive):
                with _logged(watcher, what):
                    tell_one(watcher)


@contextmanager
def _logged(watcher: Watcher | Attentive, what: str) -> Iterator[None]:
    """Log an OSError of one watcher, so that the other watchers are still notified."""
    try:
        yield
    except OSError as error:
        log.warning("%s was not notified %s: %s", type(watcher).__name__, what, error)

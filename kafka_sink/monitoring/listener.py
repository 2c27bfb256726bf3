"""Joins Spark's progress of a stream with the sink's: one `MicroBatch` for each micro-batch that Spark has recorded.

    tally = StreamTally(spark)
    kafka_sink.register(spark, interceptors=[tally])
    spark.streams.addListener(ProgressListener(tally))                  # a line each, on stderr
    spark.streams.addListener(ProgressListener(tally, Prometheus(...))) # or other watchers

Spark's own progress counts the rows that Spark gave to the sink, with bad rows (-1 for foreachBatch), and names no
topic. Accumulators bring the rows that were acknowledged, and those that pykafka's source read, to the driver when a
task ends. They are counted by the run and number of their micro-batch. A micro-batch that failed and runs again belongs
to another run, so it is counted once. Spark drops the counts of failed tasks, so their retries are in no sum.

Writes and batch reads in foreachBatch count for the micro-batch that runs them. With Spark Connect there are no
accumulators: use `ReceiptTotals`.

Source: StreamExecution.scala sets a run's job group and a micro-batch's number as local properties; ProgressReporter
posts QueryProgressEvent after the commit log.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol, TextIO, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
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
from kafka_sink.errors.redaction import reason_for
from kafka_sink.kafka.clock import within
from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.statistics import ReadStatistics, WriteStatistics
from kafka_sink.monitoring.micro_batch import (
    Attentive,
    BadRows,
    MicroBatch,
    Read,
    ReadTotals,
    Run,
    Totals,
    TotalsByTopic,
    Watcher,
    Written,
)
from kafka_sink.options.bounds import kafka_offsets
from kafka_sink.records import receipt_file
from kafka_sink.spark.interceptors import Interceptor
from kafka_sink.spark.tally import Sums

__all__ = ["ProgressLine", "ProgressListener", "ReceiptTotals", "StreamTally", "source_metrics"]

log = logging.getLogger(__name__)


# Spark keeps the same number of progress events of a query (spark.sql.streaming.numRecentProgressUpdates).
KEPT_MICRO_BATCHES = 100


F = TypeVar("F")


class StreamTally(Interceptor):
    """Counts acknowledged rows, retries, bad rows, throttling and reads, by micro-batch. One tally can count for all
    streams of a session.

    Examples:
        >>> tally = StreamTally(spark)
        >>> kafka_sink.register(spark, interceptors=[tally])
        >>> spark.streams.addListener(ProgressListener(tally, ProgressLine()))
    """

    def __init__(self, spark: SparkSession) -> None:
        nothing_written: Mapping[Run, Written] = {}
        nothing_read: Mapping[Run, Read] = {}
        self._written = spark.sparkContext.accumulator(nothing_written, Sums[Run, Written](KEPT_MICRO_BATCHES))
        self._read = spark.sparkContext.accumulator(nothing_read, Sums[Run, Read](KEPT_MICRO_BATCHES))

    def written_in(self, run: Run) -> Written:
        """Return the counts so far. As `read_in`, it is for the process that made the tally, not for tasks."""
        return self._written.value.get(run, Written())

    def read_in(self, run: Run) -> Read:
        return self._read.value.get(run, Read())

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

    def on_read(self, statistics: ReadStatistics) -> None:
        run = _run_of(TaskContext.get())
        if run is not None:
            totals = ReadTotals(statistics.row_count, statistics.byte_count, statistics.left_out_count)
            self._read.add({run: Read({statistics.topic: totals})})

    def _add(self, written: Written) -> None:
        run = _run_of(TaskContext.get())
        if run is not None and written != Written():
            self._written.add({run: written})


def _run_of(context: TaskContext | None) -> Run | None:
    """Return the task's micro-batch, or None outside a stream."""
    if context is None:
        return None
    query_id, run_id = context.getLocalProperty("sql.streaming.queryId"), context.getLocalProperty("spark.jobGroup.id")
    batch_id = context.getLocalProperty("streaming.sql.batchId")
    return None if query_id is None or run_id is None or batch_id is None else Run(query_id, run_id, int(batch_id))


# --- sources in Spark's progress --------------------------------------------------------------------------------------


class Source(Protocol):
    """Spark's SourceProgress."""

    @property
    def startOffset(self) -> str: ...

    @property
    def endOffset(self) -> str: ...

    @property
    def latestOffset(self) -> str: ...


def by_source(sources: Iterable[Source], of: Callable[[Source], F | None]) -> dict[str, F]:
    """Return what `of` finds, by the source's number in the query, without the sources of which it finds nothing.

    Sources that are not Kafka (files, rate) have offsets in another form, or report no latest offset.
    """
    found = {str(number): of(source) for number, source in enumerate(sources)}
    return {number: each for number, each in found.items() if each is not None}


def offsets_behind(source: Source) -> list[int] | None:
    """Return the lag of each partition when the micro-batch was planned, or None if the source does not report it.

    It is the latest offset less the micro-batch's end. Records that arrive later count for the next micro-batch.
    Without `maxOffsetsPerTrigger` a micro-batch reads all records, and the lag is 0. Offsets without a record
    (transaction markers, compacted records) count too.

    Source: KafkaMicroBatchStream.reportLatestOffset, KafkaSourceOffset.
    """
    latest, ended = kafka_offsets(source.latestOffset), kafka_offsets(source.endOffset)
    if latest is None or ended is None:
        return None
    return [
        max(0, offset - ended.get(topic, {}).get(partition, offset))
        for topic, partitions in latest.items()
        for partition, offset in partitions.items()
    ]


def source_metrics(source: Source) -> dict[str, str]:
    """Return what Spark's `format("kafka")` has in `metrics` of its progress, by the same keys and in the same form.

    Spark up to 4.3 has no call by which a Python source could report it. Empty if the offsets are unknown.

    Examples:
        >>> clicks = (spark.readStream.format("pykafka").option("kafka.bootstrap.servers", servers)
        ...     .option("subscribe", "clicks").option("startingOffsets", "earliest").load())
        >>> query = clicks.writeStream.format("noop").start()
        >>> query.processAllAvailable()
        >>> source_metrics(query.lastProgress.sources[0])["maxOffsetsBehindLatest"]
        '0'
        >>> query.stop()
    """
    return _metrics(offsets_behind(source) or ())


def _metrics(behind: Sequence[int]) -> dict[str, str]:
    if not behind:
        return {}
    found = {"avg": sum(behind) / len(behind), "max": max(behind), "min": min(behind)}
    return {f"{name}OffsetsBehindLatest": str(value) for name, value in found.items()}


def broken_logs(source: Source) -> int | None:
    """Return the number of partitions whose log ends before the micro-batch's start, or that are gone. None: the source
    is not Kafka, or has no start yet.

    The topic was deleted or created again, or an unclean election truncated the log. Records are lost, and nobody knows
    how many. With `failOnDataLoss=true` the query fails. With `false` it goes on, and this is the only trace outside
    the driver's log. Source: KafkaMicroBatchStream.planInputPartitions (reportDataLoss).
    """
    started, ended = kafka_offsets(source.startOffset), kafka_offsets(source.endOffset)
    if started is None or ended is None:
        return None
    return sum(
        ended.get(topic, {}).get(partition, -1) < offset
        for topic, partitions in started.items()
        for partition, offset in partitions.items()
    )


class Counted(Protocol):
    """Counts of micro-batches: a `StreamTally`, or a `ReceiptTotals`."""

    def written_in(self, run: Run) -> Written: ...
    def read_in(self, run: Run) -> Read: ...


def micro_batch_of(progress: StreamingQueryProgress, counted: Counted, *, ended_s: float) -> MicroBatch:
    """Join Spark's progress of a micro-batch, or of a trigger without new rows, with the counts of its tasks."""
    run = Run(str(progress.id), str(progress.runId), progress.batchId)
    behind = by_source(progress.sources, offsets_behind)
    return MicroBatch(
        query=progress.name or str(progress.id),
        batch_id=progress.batchId,
        input_row_count=progress.numInputRows,
        duration_ms=progress.durationMs.get("triggerExecution", 0),
        write_ms=progress.durationMs.get("addBatch", 0),
        ended_s=ended_s,
        written=counted.written_in(run),
        read=counted.read_in(run),
        lag={source: sum(offsets) for source, offsets in behind.items()},
        source_metrics={source: _metrics(offsets) for source, offsets in behind.items() if offsets},
        broken_logs=by_source(progress.sources, broken_logs),
    )


# --- the listener -----------------------------------------------------------------------------------------------------


class ProgressLine(Attentive):
    """Prints one line for each micro-batch, and the sink's error if a query ends with such an error.

    Examples:
        >>> ProgressLine().failed("orders", kafka_sink.errors.TopicNotFound(topic="orders", waited_ms=5_000))
    """

    def __init__(self, file: TextIO = sys.stderr) -> None:
        self._file = file

    def __call__(self, micro_batch: MicroBatch) -> None:
        tell(str(micro_batch), file=self._file)

    def failed(self, query: str, error: KafkaSinkError) -> None:
        tell(f"{query} has failed: {type(error).__name__}: {error}", file=self._file)


class ProgressListener(StreamingQueryListener):
    """Notifies its watchers of each micro-batch that read or wrote something. Without watchers it prints a line.

    Examples:
        >>> notable = lambda micro_batch: print(micro_batch.query, micro_batch.total.row_count)
        >>> spark.streams.addListener(ProgressListener(StreamTally(spark), notable))
    """

    def __init__(self, counted: Counted, *watchers: Watcher, clock_s: Callable[[], float] = time.time) -> None:
        self._counted = counted
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
        micro_batch = micro_batch_of(progress, self._counted, ended_s=self._clock_s())
        if progress.numInputRows == 0 and not micro_batch.is_notable:
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


# --- with Spark Connect, which has no accumulators --------------------------------------------------------------------

NOTHING_KNOWN = Written(throttled_ms=None)


class ReceiptTotals:
    """Counts acknowledged rows by the receipts of micro-batches: `ProgressListener(ReceiptTotals("/data/receipts"))`.

    The path is the write's `receiptsPath`, as this process can open it. The receipt exists before Spark reports the
    micro-batch. It does not contain what was read, the throttling times, the reasons of bad rows, or which topic has
    dead letters.

    Examples:
        >>> spark.streams.addListener(ProgressListener(ReceiptTotals(f"{folder}/receipts")))
    """

    def __init__(self, receipts_path: str) -> None:
        self._receipts_path = receipts_path

    def written_in(self, run: Run) -> Written:
        """Return the counts of the receipt, or empty counts without one. An unreadable receipt is logged."""
        try:
            filesystem, folder = receipt_file.filesystem_of(self._receipts_path, within)
            path = f"{folder}/{receipt_file.relative_path(run.query_id, run.batch_id)}"
            return _written(receipt_file.read(filesystem, path))
        except FileNotFoundError:
            return NOTHING_KNOWN
        except (OSError, pa.ArrowException) as error:
            reason = reason_for(self._receipts_path, error)
            log.warning("the receipt of micro-batch %d of query %s: %s", run.batch_id, run.query_id, reason)
            return NOTHING_KNOWN

    def read_in(self, run: Run) -> Read:
        """Return empty counts: it is unknown."""
        return Read()


def _written(runs: pa.Table) -> Written:
    dropped = pc.sum(runs["dropped"]).as_py()
    bad_rows = {BadRows("dropped", ""): dropped} if dropped else {}
    # `plus` limits the number of named topics, as for counted rows.
    return replace(Written().plus(Written(_by_topic(runs), bad_rows)), throttled_ms=None)


def _by_topic(runs: pa.Table) -> TotalsByTopic:
    """Sum up by topic. Rows without a topic were not written, or their place is unknown."""
    runs = runs.filter(pc.is_valid(runs["topic"]))
    retried = pc.multiply(runs["record_count"], pc.fill_null(runs["retries"], 0).cast(pa.int64()))
    summed = (
        runs.append_column("retried", retried)
        .group_by("topic")
        .aggregate([("record_count", "sum"), ("topic", "count"), ("batch_bytes", "sum"), ("retried", "sum")])
    )
    return {
        row["topic"]: Totals(row["record_count_sum"], row["topic_count"], row["batch_bytes_sum"], row["retried_sum"])
        for row in summed.to_pylist()
    }

"""One micro-batch for watchers: Spark's progress, the rows that leaders acknowledged, and the rows that were read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import reduce
from typing import NamedTuple, Self, TypeAlias, TypeVar

from kafka_sink.errors import KafkaSinkError
from kafka_sink.errors.quoting import quoted
from kafka_sink.spark.tally import Counts

__all__ = ["Attentive", "BadRows", "MicroBatch", "Read", "ReadTotals", "Totals", "Written"]

# Names (topics, queries, sinks) that are counted separately; the others are OTHER. A stream may name a new topic in
# each row, and each name is a time series in Prometheus and memory in the driver.
MOST_NAMED = 100
# This is not a valid topic name.
OTHER = "(other)"
# Topics named in one line.
MOST_SHOWN = 8


def counted_as(name: str, known: Collection[str]) -> str:
    """Return `name`, or OTHER if `name` is new and MOST_NAMED names are known."""
    return name if name in known or len(known) < MOST_NAMED else OTHER


class Names:
    """Keeps the first MOST_NAMED names."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def __call__(self, name: str) -> str:
        """Return the name under which `name` is counted: in one printable line."""
        named = counted_as(quoted(name), self._known)
        if named is not OTHER:
            self._known.add(named)
        return named


T = TypeVar("T", bound=Counts)


class _Sum:
    """A base of dataclasses of numbers."""

    __slots__ = ()

    def plus(self, other: Self) -> Self:
        return type(self)(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Totals(_Sum):
    """The acknowledged rows of one topic.

    `byte_count` is the size of the record batches in the log, with headers and compression. `retried_count` counts each
    time that a row was sent again. `row_count` counts each acknowledged row once.
    """

    row_count: int
    batch_count: int
    byte_count: int
    retried_count: int = 0


TotalsByTopic: TypeAlias = Mapping[str, Totals]


class BadRows(NamedTuple):
    """`outcome` is "dropped" or "dead_lettered". `reason` is that of the header `pykafka.reason`; "" if the count comes
    from a receipt."""

    outcome: str
    reason: str


@dataclass(frozen=True, slots=True)
class Written:
    """The counts of one micro-batch's tasks.

    `throttled_ms` is the time for which brokers throttled the tasks by quotas, summed over tasks. None: unknown.
    """

    topics: TotalsByTopic = field(default_factory=dict)
    bad_rows: Mapping[BadRows, int] = field(default_factory=dict)
    throttled_ms: int | None = 0

    def plus(self, other: Written) -> Written:
        """Return the sum. An unknown `throttled_ms` counts as 0."""
        bad_rows = dict(self.bad_rows)
        for kind, count in other.bad_rows.items():
            bad_rows[kind] = bad_rows.get(kind, 0) + count
        throttled_ms = (self.throttled_ms or 0) + (other.throttled_ms or 0)
        return Written(_by_topic(self.topics, other.topics), bad_rows, throttled_ms)


@dataclass(frozen=True, slots=True)
class ReadTotals(_Sum):
    """What was read of one topic by `format("pykafka")`; see `ReadStatistics`."""

    row_count: int
    byte_count: int
    left_out_count: int = 0


@dataclass(frozen=True, slots=True)
class Read:
    """What one micro-batch's tasks have read, by topic. Empty if the source is another, or if it is unknown."""

    topics: Mapping[str, ReadTotals] = field(default_factory=dict)

    def plus(self, other: Read) -> Read:
        return Read(_by_topic(self.topics, other.topics))

    @property
    def total(self) -> ReadTotals:
        """The totals over all topics."""
        return reduce(ReadTotals.plus, self.topics.values(), ReadTotals(0, 0))


def _by_topic(topics: Mapping[str, T], others: Mapping[str, T]) -> dict[str, T]:
    """Return the sums by topic, of at most MOST_NAMED topics and OTHER."""
    added = dict(topics)
    for topic, totals in others.items():
        named = counted_as(topic, added)
        added[named] = added[named].plus(totals) if named in added else totals
    return added


class Run(NamedTuple):
    """A micro-batch of one run of a query. A run begins with `start()`."""

    query_id: str
    run_id: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch that Spark has recorded.

    - `query`: the query's name, or its id if it has no name
    - `input_row_count`: rows from the sources, before filters and aggregations
    - `duration_ms`: from the trigger to the record in the checkpoint
    - `write_ms`: the part of it for the tasks and the commit (Spark's addBatch)
    - `ended_s`: seconds since 1970
    - `read`: what tasks have read by `format("pykafka")`. Other sources count in `input_row_count` only.
    - `lag`: records that a source had and the micro-batch did not read, by the source's number in the query. Sources
      that do not report it are absent.
    - `source_metrics`: `avgOffsetsBehindLatest` and the like of each source; see `listener.source_metrics`
    - `broken_logs`: partitions whose log did not go on where the query had read, by the source's number
    """

    query: str
    batch_id: int
    input_row_count: int
    duration_ms: int
    write_ms: int
    ended_s: float
    written: Written = field(default_factory=Written)
    read: Read = field(default_factory=Read)
    lag: Mapping[str, int] = field(default_factory=dict)
    source_metrics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    broken_logs: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_notable(self) -> bool:
        """True if the micro-batch read, wrote or lost something. One that has lost all has no rows."""
        return bool(self.topics or self.read.topics or any(self.broken_logs.values()))

    @property
    def topics(self) -> TotalsByTopic:
        """The totals by topic; empty if nothing was written."""
        return self.written.topics

    @property
    def total(self) -> Totals:
        """The totals over all topics."""
        return reduce(Totals.plus, self.topics.values(), Totals(0, 0, 0))

    @property
    def rows_per_s(self) -> float:
        return self.total.row_count * 1000 / max(1, self.duration_ms)

    def __str__(self) -> str:
        total = self.total
        return "; ".join(
            (
                f"{quoted(self.query)} #{self.batch_id}: {self.input_row_count:,} rows in, "
                f"{total.row_count:,} acknowledged ({total.byte_count / 1e6:,.1f} MB, {total.batch_count:,} batches) "
                f"by {_named(self.topics)} in {self.duration_ms / 1000:.2f} s, {self.rows_per_s:,.0f} rows/s",
                *self._notable(),
            )
        )

    def _notable(self) -> list[str]:
        """Return notes about reads, retries, bad rows, throttling, lag and losses."""
        notes = []
        if self.read.topics:
            read = self.read.total
            notes.append(f"{read.row_count:,} read ({read.byte_count / 1e6:,.1f} MB) from {_named(self.read.topics)}")
        if retried := self.total.retried_count:
            notes.append(f"{retried:,} sent again")
        for outcome in ("dropped", "dead_lettered"):
            if count := sum(count for kind, count in self.written.bad_rows.items() if kind.outcome == outcome):
                notes.append(f"{count:,} bad rows {outcome.replace('_', '-')}")
        if throttled_ms := self.written.throttled_ms:
            notes.append(f"tasks throttled for {throttled_ms / 1000:,.1f} s")
        if behind := sum(self.lag.values()):
            notes.append(f"{behind:,} records behind")
        if lost := {topic: totals for topic, totals in self.read.topics.items() if totals.left_out_count}:
            count = sum(totals.left_out_count for totals in lost.values())
            notes.append(f"DATA LOSS: {count:,} offsets of {_named(lost)} left out")
        if broken := sum(self.broken_logs.values()):
            notes.append(f"DATA LOSS: {broken:,} partitions were deleted, created again or truncated")
        return notes


def _named(topics: Iterable[str]) -> str:
    """Return the first MOST_SHOWN topics."""
    every = set(topics)
    named = sorted(every - {OTHER})
    more = len(named) > MOST_SHOWN or OTHER in every
    return ", ".join([*map(quoted, named[:MOST_SHOWN]), *["others"] * more]) or "no topic"


# The counters of `prometheus` and `opentelemetry`: name, unit of OpenTelemetry, text, labels beside the query's.
COUNTERS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("rows", "{row}", "Rows that leaders acknowledged.", ("topic",)),
    ("bytes", "By", "Bytes of record batches that leaders acknowledged.", ("topic",)),
    ("record_batches", "{batch}", "Record batches that leaders acknowledged.", ("topic",)),
    ("retried_rows", "{row}", "Rows that were sent again, each time counted.", ("topic",)),
    ("bad_rows", "{row}", "Bad rows, dropped or sent as dead letters.", BadRows._fields),
    ("input_rows", "{row}", "Rows that the sources delivered.", ()),
    ("read.rows", "{row}", 'Rows that format("pykafka") read.', ("topic",)),
    ("read.bytes", "By", "Bytes of record batches that brokers sent.", ("topic",)),
    (
        "read.offsets_left_out",
        "{offset}",
        "Data loss: offsets that could not be read (failOnDataLoss=false).",
        ("topic",),
    ),
    (
        "source.broken_logs",
        "{partition}",
        "Data loss: partitions that were deleted, created again or truncated.",
        ("source",),
    ),
    ("throttled_seconds", "s", "Time that brokers throttled tasks by quotas, summed over tasks.", ()),
)


def counts_of(micro_batch: MicroBatch, topics: Names) -> Iterator[tuple[str, float, dict[str, str]]]:
    """Yield what the micro-batch adds to COUNTERS: name, count, and the labels beside the query's."""
    for topic, totals in micro_batch.topics.items():
        of_topic = {"topic": topics(topic)}
        yield "rows", totals.row_count, of_topic
        yield "bytes", totals.byte_count, of_topic
        yield "record_batches", totals.batch_count, of_topic
        yield "retried_rows", totals.retried_count, of_topic
    for kind, count in micro_batch.written.bad_rows.items():
        yield "bad_rows", count, kind._asdict()
    for topic, read in micro_batch.read.topics.items():
        of_topic = {"topic": topics(topic)}
        yield "read.rows", read.row_count, of_topic
        yield "read.bytes", read.byte_count, of_topic
        yield "read.offsets_left_out", read.left_out_count, of_topic
    for source, partitions in micro_batch.broken_logs.items():
        yield "source.broken_logs", partitions, {"source": source}
    if micro_batch.written.throttled_ms is not None:
        yield "throttled_seconds", micro_batch.written.throttled_ms / 1000, {}
    yield "input_rows", micro_batch.input_row_count, {}


# Called with each micro-batch. The listener logs its OSError and continues.
Watcher: TypeAlias = Callable[[MicroBatch], None]


class Attentive:
    """A watcher that is notified of more than micro-batches. It overrides the methods that it needs.

    `query` is the same as in MicroBatch.

    Examples:
        >>> class Pager(Attentive):
        ...     def failed(self, query, error):
        ...         print(f"{query} has failed: {error}")
        >>> spark.streams.addListener(ProgressListener(StreamTally(spark), Pager()))
    """

    def __call__(self, micro_batch: MicroBatch) -> None:
        """Spark has recorded a micro-batch with rows."""

    def idle(self, query: str, seen_s: float) -> None:
        """The query runs and has no new rows. Spark reports this every 10 s
        (`spark.sql.streaming.noDataProgressEventInterval`). `seen_s` is the time in seconds since 1970."""

    def failed(self, query: str, error: KafkaSinkError) -> None:
        """The query has ended with an error of the sink."""

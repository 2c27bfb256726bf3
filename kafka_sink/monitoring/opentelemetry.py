"""The metrics of `monitoring.prometheus` for OpenTelemetry: instruments of a meter that the application provides.

    OpenTelemetry(opentelemetry.metrics.get_meter("orders"))

Needs the extra `opentelemetry`, which is only the API. The application exports the metrics.
"""

from __future__ import annotations

from collections.abc import Iterable

from opentelemetry.metrics import CallbackOptions, Counter, Meter, Observation

from kafka_sink.monitoring.micro_batch import Attentive, MicroBatch, Names, counts_of
from kafka_sink.monitoring.transactions import OpenOfSink, OpenTransactions, TransactionWatcher


class OpenTelemetry(Attentive, TransactionWatcher):
    """A watcher of `ProgressListener` and of `TransactionWatch`."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._queries, self._topics = Names(), Names()
        self._counters: dict[str, Counter] = {}
        self._counter("rows", "{row}", "Rows that leaders acknowledged.")
        self._counter("bytes", "By", "Bytes of record batches that leaders acknowledged.")
        self._counter("record_batches", "{batch}", "Record batches that leaders acknowledged.")
        self._counter("retried_rows", "{row}", "Rows that were sent again, each time counted.")
        self._counter("bad_rows", "{row}", "Bad rows, dropped or sent as dead letters.")
        self._counter("input_rows", "{row}", "Rows that the sources delivered.")
        self._counter("read.rows", "{row}", 'Rows that format("pykafka") read.')
        self._counter("read.bytes", "By", "Bytes of record batches that brokers sent.")
        self._counter("read.offsets_left_out", "{offset}", "Data loss: offsets that could not be read.")
        self._counter(
            "source.broken_logs", "{partition}", "Data loss: partitions that were deleted, created again or truncated."
        )
        self._counter("throttled_seconds", "s", "Time that brokers throttled tasks, summed over tasks.")
        self._duration = meter.create_histogram("pykafka.micro_batch.duration", "s", "Duration of a micro-batch.")
        self._write = meter.create_histogram("pykafka.write.duration", "s", "Its part in tasks and commit.")
        # _seen_s by query; _lag by query and source; _behind also by metric.
        self._seen_s: dict[str, float] = {}
        self._lag: dict[tuple[str, str], int] = {}
        self._behind: dict[tuple[str, str, str], float] = {}
        # By the prefix of the sinks' names.
        self._transactions: dict[str, OpenTransactions] = {}
        self._observe()

    def _counter(self, name: str, unit: str, text: str) -> None:
        # OpenTelemetry names no unit in a counter's name.
        self._counters[name] = self._meter.create_counter(f"pykafka.{name.removesuffix('_seconds')}", unit, text)

    def _observe(self) -> None:
        """Create the gauges. They are read when the application exports them."""
        for name, unit, text, observed in (
            ("query.seen", "s", "When Spark last reported on it, since 1970.", self._seen_now),
            ("source.lag", "{record}", "Records that the last micro-batch did not read.", self._lag_now),
            (
                "source.offsets_behind_latest",
                "{record}",
                "The same by Spark's names, over partitions.",
                self._behind_now,
            ),
            ("open_transactions", "{transaction}", "Transactions that a sink has open.", self._open_now),
            ("open_transactions.oldest_age", "s", "Age of the oldest open transaction.", self._oldest_now),
            ("transactions.seen", "s", "When brokers last answered, since 1970.", self._asked_now),
        ):
            self._meter.create_observable_gauge(f"pykafka.{name}", [observed], unit, text)

    def __call__(self, micro_batch: MicroBatch) -> None:
        query = self._queries(micro_batch.query)
        of_query = {"query": query}
        for name, count, labels in counts_of(micro_batch, self._topics):
            self._counters[name].add(count, of_query | labels)
        self._duration.record(micro_batch.duration_ms / 1000, of_query)
        self._write.record(micro_batch.write_ms / 1000, of_query)
        self._lag |= {(query, source): records for source, records in micro_batch.lag.items()}
        for source, metrics in micro_batch.source_metrics.items():
            self._behind |= {(query, source, metric): float(value) for metric, value in metrics.items()}
        self._seen_s[query] = micro_batch.ended_s

    def idle(self, query: str, seen_s: float) -> None:
        self._seen_s[self._queries(query)] = seen_s

    def open_transactions(self, found: OpenTransactions) -> None:
        self._transactions[found.prefix] = found

    # The exporting thread calls these. They copy to lists, because another thread may add a query meanwhile.

    def _seen_now(self, options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(seen_s, {"query": query}) for query, seen_s in list(self._seen_s.items())]

    def _lag_now(self, options: CallbackOptions) -> Iterable[Observation]:
        found = list(self._lag.items())
        return [Observation(records, {"query": query, "source": source}) for (query, source), records in found]

    def _behind_now(self, options: CallbackOptions) -> Iterable[Observation]:
        names = "query", "source", "metric"
        return [Observation(value, dict(zip(names, key, strict=True))) for key, value in list(self._behind.items())]

    def _open_now(self, options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(each.count, {"sink": sink}) for sink, each in self._sinks_now()]

    def _oldest_now(self, options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(each.oldest_age_s, {"sink": sink}) for sink, each in self._sinks_now()]

    def _asked_now(self, options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(found.seen_s, {"prefix": found.prefix}) for found in list(self._transactions.values())]

    def _sinks_now(self) -> list[tuple[str, OpenOfSink]]:
        return [each for found in list(self._transactions.values()) for each in found.by_sink.items()]

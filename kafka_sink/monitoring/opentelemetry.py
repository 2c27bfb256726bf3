"""The metrics of `monitoring.prometheus` for OpenTelemetry: instruments of a meter that the application provides.

    OpenTelemetry(opentelemetry.metrics.get_meter("orders"))

Needs the extra `opentelemetry`, which is only the API. The application exports the metrics.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from opentelemetry.metrics import CallbackOptions, Meter, Observation

from kafka_sink.monitoring.micro_batch import COUNTERS, Attentive, MicroBatch, Names, counts_of
from kafka_sink.monitoring.transactions import OpenTransactions, TransactionWatcher

# Name, unit, text.
_GAUGES = (
    ("query.seen", "s", "When Spark last reported on it, since 1970."),
    ("source.lag", "{record}", "Records that the last micro-batch did not read."),
    ("source.offsets_behind_latest", "{record}", "The same by Spark's names, over partitions."),
    ("open_transactions", "{transaction}", "Transactions that a sink has open."),
    ("open_transactions.oldest_age", "s", "Age of the oldest open transaction."),
    ("transactions.seen", "s", "When brokers last answered, since 1970."),
)
# By labels.
_Values = dict[tuple[tuple[str, str], ...], float]

__all__ = ["OpenTelemetry"]


class OpenTelemetry(Attentive, TransactionWatcher):
    """A watcher of `ProgressListener` and of `TransactionWatch`.

    Examples:
        >>> from opentelemetry.metrics import get_meter
        >>> spark.streams.addListener(ProgressListener(StreamTally(spark), OpenTelemetry(get_meter("orders"))))
    """

    def __init__(self, meter: Meter) -> None:
        self._queries, self._topics = Names(), Names()
        self._counters = {
            # OpenTelemetry names no unit in a counter's name.
            name: meter.create_counter(f"pykafka.{name.removesuffix('_seconds')}", unit, text)
            for name, unit, text, _ in COUNTERS
        }
        self._duration = meter.create_histogram("pykafka.micro_batch.duration", "s", "Duration of a micro-batch.")
        self._write = meter.create_histogram("pykafka.write.duration", "s", "Its part in tasks and commit.")
        self._gauges: dict[str, _Values] = {name: {} for name, _, _ in _GAUGES}
        # Sinks with open transactions, by prefix.
        self._open_sinks: dict[str, set[str]] = {}
        for name, unit, text in _GAUGES:
            meter.create_observable_gauge(f"pykafka.{name}", [partial(self._observed, name)], unit, text)

    def __call__(self, micro_batch: MicroBatch) -> None:
        query = self._queries(micro_batch.query)
        of_query = {"query": query}
        for name, count, labels in counts_of(micro_batch, self._topics):
            self._counters[name].add(count, of_query | labels)
        self._duration.record(micro_batch.duration_ms / 1000, of_query)
        self._write.record(micro_batch.write_ms / 1000, of_query)
        for source, records in micro_batch.lag.items():
            self._set("source.lag", records, query=query, source=source)
        for source, metrics in micro_batch.source_metrics.items():
            for metric, value in metrics.items():
                self._set("source.offsets_behind_latest", float(value), query=query, source=source, metric=metric)
        self._set("query.seen", micro_batch.ended_s, query=query)

    def idle(self, query: str, seen_s: float) -> None:
        self._set("query.seen", seen_s, query=self._queries(query))

    def open_transactions(self, found: OpenTransactions) -> None:
        gone = self._open_sinks.get(found.prefix, set()) - set(found.by_sink)
        self._open_sinks[found.prefix] = set(found.by_sink)
        for sink in gone:
            for name in ("open_transactions", "open_transactions.oldest_age"):
                self._gauges[name].pop((("sink", sink),), None)
        for sink, each in found.by_sink.items():
            self._set("open_transactions", each.count, sink=sink)
            self._set("open_transactions.oldest_age", each.oldest_age_s, sink=sink)
        self._set("transactions.seen", found.seen_s, prefix=found.prefix)

    def _set(self, gauge: str, value: float, **labels: str) -> None:
        self._gauges[gauge][tuple(labels.items())] = value

    def _observed(self, gauge: str, options: CallbackOptions) -> Iterable[Observation]:
        """Called by the exporting thread. It copies to a list, because another thread may add a query meanwhile."""
        return [Observation(value, dict(labels)) for labels, value in list(self._gauges[gauge].items())]

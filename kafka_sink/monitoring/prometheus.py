"""Metrics of streams for Prometheus: in a file for node_exporter's textfile collector, or pushed to a gateway.

    Prometheus(textfile="/var/lib/node_exporter/pykafka.prom")
    Prometheus(pushgateway="gateway:9091", job="orders")
    Prometheus(registry=registry)                     # the application's registry, which it already serves

Needs the extra `prometheus`. `conf/grafana.json` is a dashboard of these metrics. At most `MOST_NAMED` queries,
topics, and sinks with open transactions have their own series.
"""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, push_to_gateway, write_to_textfile

from kafka_sink.monitoring.micro_batch import COUNTERS, Attentive, MicroBatch, Names, counts_of
from kafka_sink.monitoring.transactions import OpenTransactions, TransactionWatcher

__all__ = ["Prometheus"]


class Prometheus(Attentive, TransactionWatcher):
    """A watcher of `ProgressListener` and of `TransactionWatch`.

    Counters count from the driver's start, as Prometheus expects. Its methods raise OSError if the file cannot be
    written or the gateway cannot be reached, after they have counted.

    Examples:
        >>> prometheus = Prometheus(textfile=f"{folder}/pykafka.prom")
        >>> spark.streams.addListener(ProgressListener(StreamTally(spark), prometheus))
    """

    def __init__(
        self,
        *,
        textfile: str | Path | None = None,
        pushgateway: str | None = None,
        job: str = "pykafka",
        registry: CollectorRegistry | None = None,
    ) -> None:
        self._textfile = textfile
        self._pushgateway = pushgateway
        self._job = job
        self._registry = CollectorRegistry() if registry is None else registry
        self._queries, self._topics = Names(), Names()
        self._counters: dict[str, Counter] = {}
        for name, _, text, labels in COUNTERS:
            self._counter(name.replace(".", "_"), text, *labels)
        self._counter("micro_batches", "Micro-batches that read or wrote something.")
        self._counter("micro_batch_seconds", "Seconds that micro-batches took.")
        self._counter("write_seconds", "Of these, seconds in tasks and commit.")
        self._lag = self._gauge(
            "source_lag_records", "Records that a source had and the last micro-batch did not read.", "query", "source"
        )
        self._behind = self._gauge(
            "source_offsets_behind_latest", "The same over partitions, by the name in Spark's progress.",
            "query", "source", "metric",
        )  # fmt: skip
        self._last_id = self._gauge("last_micro_batch", "Number of the last micro-batch.", "query")
        self._last_s = self._gauge("last_micro_batch_timestamp_seconds", "When it was recorded.", "query")
        self._seen_s = self._gauge(
            "query_seen_timestamp_seconds", "When Spark last reported progress or an idle query.", "query"
        )
        # Sinks that have series, by prefix.
        self._open_sinks: dict[str, set[str]] = {}
        self._open = self._gauge("open_transactions", "Transactions that a sink has open.", "sink")
        self._oldest_s = self._gauge(
            "oldest_open_transaction_age_seconds", "Age of the oldest open transaction.", "sink"
        )
        self._asked_s = self._gauge(
            "transactions_seen_timestamp_seconds", "When brokers last answered about open transactions.", "prefix"
        )

    def _counter(self, name: str, text: str, *labels: str) -> None:
        self._counters[name] = Counter(f"pykafka_{name}", text, ("query", *labels), registry=self._registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"pykafka_{name}", text, labels, registry=self._registry)

    def __call__(self, micro_batch: MicroBatch) -> None:
        query = self._queries(micro_batch.query)
        for name, count, labels in counts_of(micro_batch, self._topics):
            self._counters[name.replace(".", "_")].labels(query=query, **labels).inc(count)
        for source, records in micro_batch.lag.items():
            self._lag.labels(query, source).set(records)
        for source, metrics in micro_batch.source_metrics.items():
            for metric, value in metrics.items():
                self._behind.labels(query, source, metric).set(float(value))
        self._counters["micro_batches"].labels(query).inc()
        self._counters["micro_batch_seconds"].labels(query).inc(micro_batch.duration_ms / 1000)
        self._counters["write_seconds"].labels(query).inc(micro_batch.write_ms / 1000)
        self._last_id.labels(query).set(micro_batch.batch_id)
        self._last_s.labels(query).set(micro_batch.ended_s)
        self._seen_s.labels(query).set(micro_batch.ended_s)
        self._publish()

    def idle(self, query: str, seen_s: float) -> None:
        self._seen_s.labels(self._queries(query)).set(seen_s)
        self._publish()

    def open_transactions(self, found: OpenTransactions) -> None:
        for sink, open_now in found.by_sink.items():
            self._open.labels(sink).set(open_now.count)
            self._oldest_s.labels(sink).set(open_now.oldest_age_s)
        for sink in self._open_sinks.get(found.prefix, set()) - set(found.by_sink):
            self._open.remove(sink)
            self._oldest_s.remove(sink)
        self._open_sinks[found.prefix] = set(found.by_sink)
        self._asked_s.labels(found.prefix).set(found.seen_s)
        self._publish()

    def _publish(self) -> None:
        if self._textfile is not None:
            write_to_textfile(str(self._textfile), self._registry)
        if self._pushgateway is not None:
            push_to_gateway(self._pushgateway, job=self._job, registry=self._registry)

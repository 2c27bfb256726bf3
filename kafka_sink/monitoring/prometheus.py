"""Metrics of streams for Prometheus: in a file for node_exporter's textfile collector, or pushed to a gateway.

    Prometheus(textfile="/var/lib/node_exporter/pykafka.prom")
    Prometheus(pushgateway="gateway:9091", job="orders")
    Prometheus(registry=registry)                     # of one's own, that is served already

Needs the extra `prometheus`. `conf/grafana.json` is a dashboard of these metrics.
"""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, push_to_gateway, write_to_textfile

from kafka_sink.monitoring.micro_batch import MicroBatch


class Prometheus:
    """A watcher of `ProgressListener`. Counters count from the driver's start, as Prometheus expects."""

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
        by_topic, by_query = ["query", "topic"], ["query"]
        self._rows = self._counter("rows", "Rows that leaders acknowledged.", by_topic)
        self._bytes = self._counter("bytes", "Bytes of record batches that leaders acknowledged.", by_topic)
        self._batches = self._counter("record_batches", "Record batches that leaders acknowledged.", by_topic)
        self._input_rows = self._counter("input_rows", "Rows that the sources gave.", by_query)
        self._micro_batches = self._counter("micro_batches", "Micro-batches with rows.", by_query)
        self._seconds = self._counter("micro_batch_seconds", "Seconds that micro-batches took.", by_query)
        self._write_seconds = self._counter("write_seconds", "Of these, seconds in tasks and commit.", by_query)
        self._last_id = self._gauge("last_micro_batch", "Number of the last micro-batch.", by_query)
        self._last_s = self._gauge("last_micro_batch_timestamp_seconds", "When it was recorded.", by_query)

    def _counter(self, name: str, text: str, labels: list[str]) -> Counter:
        return Counter(f"pykafka_{name}", text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, labels: list[str]) -> Gauge:
        return Gauge(f"pykafka_{name}", text, labels, registry=self._registry)

    def __call__(self, micro_batch: MicroBatch) -> None:
        """Raises OSError when the file cannot be written or the gateway not reached; it counts all the same."""
        query = micro_batch.query
        for topic, totals in micro_batch.topics.items():
            self._rows.labels(query, topic).inc(totals.row_count)
            self._bytes.labels(query, topic).inc(totals.byte_count)
            self._batches.labels(query, topic).inc(totals.batch_count)
        self._input_rows.labels(query).inc(micro_batch.input_row_count)
        self._micro_batches.labels(query).inc()
        self._seconds.labels(query).inc(micro_batch.duration_ms / 1000)
        self._write_seconds.labels(query).inc(micro_batch.write_ms / 1000)
        self._last_id.labels(query).set(micro_batch.batch_id)
        self._last_s.labels(query).set(micro_batch.ended_s)
        if self._textfile is not None:
            write_to_textfile(str(self._textfile), self._registry)
        if self._pushgateway is not None:
            push_to_gateway(self._pushgateway, job=self._job, registry=self._registry)

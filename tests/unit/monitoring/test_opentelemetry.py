"""The metrics as OpenTelemetry's own SDK reads them."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from a_micro_batch import A_MICRO_BATCH
from kafka_sink.monitoring.opentelemetry import OpenTelemetry
from kafka_sink.monitoring.transactions import OpenOfSink, OpenTransactions


def read(reader: InMemoryMetricReader) -> dict[tuple[str, str], Any]:
    found: Any = reader.get_metrics_data()
    return {
        (metric.name, "/".join(str(text) for name, text in sorted(point.attributes.items()) if name != "query")): point
        for resource in found.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }


def test_counters_add_up_and_durations_are_a_histogram() -> None:
    reader = InMemoryMetricReader()
    watcher = OpenTelemetry(MeterProvider([reader]).get_meter("test"))
    watcher(A_MICRO_BATCH)
    watcher(A_MICRO_BATCH)
    watcher.idle("orders", 1_700_000_090.0)
    points = read(reader)
    assert all(point.attributes["query"] == "orders" for point in points.values())
    counted = {key: point.value for key, point in points.items() if hasattr(point, "value")}
    assert counted == {
        ("pykafka.rows", "t"): 40, ("pykafka.rows", "u"): 20, ("pykafka.bytes", "t"): 1_000,
        ("pykafka.bytes", "u"): 200, ("pykafka.record_batches", "t"): 4, ("pykafka.record_batches", "u"): 2,
        ("pykafka.retried_rows", "t"): 14, ("pykafka.retried_rows", "u"): 0, ("pykafka.bad_rows", "dropped/KeyNull"): 6,
        ("pykafka.bad_rows", "dead_lettered/TopicNull"): 4,
        ("pykafka.throttled", ""): 0.5, ("pykafka.read.rows", "in"): 80, ("pykafka.read.bytes", "in"): 1_800,
        ("pykafka.read.offsets_left_out", "in"): 12, ("pykafka.source.lag", "0"): 5_000,
        ("pykafka.source.broken_logs", "0"): 4, ("pykafka.query.seen", ""): 1_700_000_090,
        ("pykafka.input_rows", ""): 80,
        ("pykafka.source.offsets_behind_latest", "avgOffsetsBehindLatest/0"): 2_500.5,
        ("pykafka.source.offsets_behind_latest", "maxOffsetsBehindLatest/0"): 5_000,
    }  # fmt: skip
    duration = points["pykafka.micro_batch.duration", ""]
    assert (duration.count, duration.sum) == (2, 3.0)
    assert points["pykafka.write.duration", ""].sum == 2.0


def test_a_sink_is_there_while_it_has_a_transaction_open() -> None:
    reader = InMemoryMetricReader()
    watcher = OpenTelemetry(MeterProvider([reader]).get_meter("test"))
    watcher.open_transactions(OpenTransactions("p", {"p-a": OpenOfSink(2, 7.5), "p-b": OpenOfSink(1, 0.5)}, 100.0))
    watcher.open_transactions(OpenTransactions("p", {"p-a": OpenOfSink(1, 22.5)}, 115.0))
    assert {key: point.value for key, point in read(reader).items()} == {
        ("pykafka.open_transactions", "p-a"): 1,
        ("pykafka.open_transactions.oldest_age", "p-a"): 22.5,
        ("pykafka.transactions.seen", "p"): 115,
    }

"""The metrics as OpenTelemetry's own SDK reads them."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from kafka_sink.monitoring.micro_batch import MicroBatch, Totals
from kafka_sink.monitoring.opentelemetry import OpenTelemetry

ONE = MicroBatch(
    query="orders", batch_id=3, input_row_count=40, duration_ms=1_500, write_ms=1_000, ended_s=1_700_000_000.0,
    topics={"t": Totals(20, 2, 500), "u": Totals(10, 1, 100)},
)  # fmt: skip


def test_counters_add_up_and_durations_are_a_histogram() -> None:
    reader = InMemoryMetricReader()
    watcher = OpenTelemetry(MeterProvider([reader]).get_meter("test"))
    watcher(ONE)
    watcher(ONE)
    read: Any = reader.get_metrics_data()
    points = {
        (metric.name, point.attributes.get("topic", "")): point
        for resource in read.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }
    assert all(point.attributes["query"] == "orders" for point in points.values())
    counted = {key: point.value for key, point in points.items() if hasattr(point, "value")}
    assert counted == {
        ("pykafka.rows", "t"): 40,
        ("pykafka.rows", "u"): 20,
        ("pykafka.bytes", "t"): 1_000,
        ("pykafka.bytes", "u"): 200,
        ("pykafka.record_batches", "t"): 4,
        ("pykafka.record_batches", "u"): 2,
        ("pykafka.input_rows", ""): 80,
    }
    duration = points["pykafka.micro_batch.duration", ""]
    assert (duration.count, duration.sum) == (2, 3.0)
    assert points["pykafka.write.duration", ""].sum == 2.0

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.kafka.metrics import Figures, Metrics

# Of https://kafka.apache.org/documentation/#producer_monitoring, what this producer has.
METERS = [
    "record-send", "record-retry", "record-error", "batch-split", "request", "response", "connection-creation",
    "connection-close", "outgoing-byte", "incoming-byte", "network-io", "select",
]  # fmt: skip
PRODUCER_NAMES = {
    "batch-size-avg", "batch-size-max", "compression-rate-avg", "record-queue-time-avg", "record-queue-time-max",
    "request-latency-avg", "request-latency-max", "produce-throttle-time-avg", "produce-throttle-time-max",
    "records-per-request-avg", "record-size-avg", "record-size-max", "requests-in-flight", "metadata-age",
    "bufferpool-wait-time-ns-total", "bufferpool-wait-ratio", "metadata-wait-time-ns-total", "flush-time-ns-total",
    "request-size-avg", "request-size-max", "connection-count", "io-wait-time-ns-total", "io-wait-time-ns-avg",
    "io-wait-ratio", "io-time-ns-total", "io-time-ns-avg", "io-ratio",
    *(f"{name}-{kind}" for name in METERS for kind in ("total", "rate")),
}  # fmt: skip
TOPIC_NAMES = {
    "record-send-total", "record-send-rate", "byte-total", "byte-rate", "compression-rate", "record-retry-total",
    "record-retry-rate", "record-error-total", "record-error-rate",
}  # fmt: skip
NODE_NAMES = {
    "request-total", "request-rate", "request-size-avg", "request-size-max", "outgoing-byte-total",
    "outgoing-byte-rate", "response-total", "response-rate", "incoming-byte-total", "incoming-byte-rate",
    "request-latency-avg", "request-latency-max",
}  # fmt: skip


def send(metrics: Metrics, topic: str = "t", size_bytes: int = 500, records: int = 10, queue_time_ms: int = 7) -> None:
    metrics.batch_sent(
        topic, size_bytes=size_bytes, uncompressed_bytes=1_000, record_count=records, queue_time_ms=queue_time_ms
    )


def task(record: Callable[[Metrics], None], elapsed_ms: int = 2_000) -> Figures:
    """The figures of a task in which `record` happens, in a producer that has done other work before."""
    metrics = Metrics()
    send(metrics, size_bytes=900, queue_time_ms=90, records=33)
    metrics.produce_request_sent()
    metrics.largest_record(700)
    metrics.records_retried("t", 5)
    metrics.records_failed("t", 5)
    metrics.batch_split()
    for wait in (metrics.waited_for_memory, metrics.waited_for_metadata, metrics.flushed):
        wait(10**9)
    metrics.request_sent(1, 9_999)
    metrics.response_received(1)
    metrics.produce_response(1, latency_ms=800, throttle_ms=80)
    metrics.node_bytes_received(1, 70)
    metrics.connection_created()
    metrics.connection_closed()
    metrics.bytes_sent(60)
    metrics.bytes_received(50)
    metrics.polled(wait_ns=10**9, io_ns=10**9)
    start = metrics.begin_task(10_000)
    record(metrics)
    return metrics.snapshot(10_000 + elapsed_ms).since(start)


def values(figures: Mapping[str, float], *names: str) -> list[float]:
    return [figures[name] for name in names]


def test_names_are_kafkas() -> None:
    def record(metrics: Metrics) -> None:
        send(metrics, "orders")
        metrics.request_sent(3, 1)

    figures = task(record)
    assert set(figures.producer) == PRODUCER_NAMES
    assert set(figures.topics["orders"]) == TOPIC_NAMES
    assert set(figures.nodes[3]) == NODE_NAMES


def test_batches() -> None:
    def record(metrics: Metrics) -> None:
        send(metrics, "a", size_bytes=500, records=10, queue_time_ms=7)
        send(metrics, "b", size_bytes=100, records=30, queue_time_ms=1)
        send(metrics, "a", size_bytes=300, records=20, queue_time_ms=10)
        metrics.produce_request_sent()
        metrics.produce_request_sent()

    figures = task(record)
    assert values(figures.producer, "batch-size-avg", "batch-size-max") == [300, 500]
    assert figures.producer["compression-rate-avg"] == pytest.approx(0.3)
    assert values(figures.producer, "record-queue-time-avg", "record-queue-time-max") == [6, 10]
    assert values(figures.producer, "record-send-total", "record-send-rate") == [60, 30]
    assert figures.producer["records-per-request-avg"] == 30
    assert figures.producer["record-size-avg"] == 50
    assert set(figures.topics) == {"a", "b"}
    assert values(figures.topics["a"], "record-send-total", "record-send-rate", "byte-total", "byte-rate") == [
        30, 15, 800, 400,
    ]  # fmt: skip
    assert figures.topics["a"]["compression-rate"] == pytest.approx(0.4)
    assert values(figures.topics["b"], "record-send-total", "byte-total") == [30, 100]


def test_records_that_go_wrong() -> None:
    def record(metrics: Metrics) -> None:
        metrics.records_retried("t", 10)
        metrics.records_retried("u", 4)
        metrics.records_failed("t", 6)
        metrics.batch_split()

    figures = task(record)
    assert values(figures.producer, "record-retry-total", "record-retry-rate") == [14, 7]
    assert values(figures.producer, "record-error-total", "record-error-rate") == [6, 3]
    assert values(figures.producer, "batch-split-total", "batch-split-rate") == [1, 0.5]
    assert values(figures.topics["t"], "record-retry-total", "record-retry-rate") == [10, 5]
    assert values(figures.topics["t"], "record-error-total", "record-error-rate") == [6, 3]
    assert values(figures.topics["u"], "record-retry-total", "record-error-total") == [4, 0]


def test_answers() -> None:
    def record(metrics: Metrics) -> None:
        metrics.produce_response(1, latency_ms=30, throttle_ms=0)
        metrics.produce_response(2, latency_ms=40, throttle_ms=30)
        metrics.produce_response(1, latency_ms=10, throttle_ms=6)

    figures = task(record)
    assert values(figures.producer, "request-latency-avg", "request-latency-max") == [pytest.approx(80 / 3), 40]
    assert values(figures.producer, "produce-throttle-time-avg", "produce-throttle-time-max") == [12, 30]
    assert values(figures.nodes[1], "request-latency-avg", "request-latency-max") == [20, 30]
    assert values(figures.nodes[2], "request-latency-avg", "request-latency-max") == [40, 40]


def test_what_a_writer_waits_for() -> None:
    def record(metrics: Metrics) -> None:
        metrics.waited_for_memory(300_000_000)
        metrics.waited_for_memory(200_000_000)
        metrics.waited_for_metadata(5)
        metrics.flushed(6)
        metrics.largest_record(30)
        metrics.largest_record(20)

    figures = task(record)
    assert values(figures.producer, "bufferpool-wait-time-ns-total", "bufferpool-wait-ratio") == [500_000_000, 0.25]
    assert values(figures.producer, "metadata-wait-time-ns-total", "flush-time-ns-total") == [5, 6]
    assert figures.producer["record-size-max"] == 30


def test_requests() -> None:
    def record(metrics: Metrics) -> None:
        metrics.request_began()
        metrics.request_began()
        metrics.request_sent(1, 100)
        metrics.request_sent(2, 400)
        metrics.request_ended()
        metrics.response_received(2)
        metrics.node_bytes_received(2, 24)

    figures = task(record)
    assert figures.producer["requests-in-flight"] == 1
    assert values(figures.producer, "request-total", "request-rate") == [2, 1]
    assert values(figures.producer, "request-size-avg", "request-size-max") == [250, 400]
    assert values(figures.producer, "response-total", "response-rate") == [1, 0.5]
    one, two = figures.nodes[1], figures.nodes[2]
    assert values(one, "request-total", "request-rate", "request-size-avg", "request-size-max") == [1, 0.5, 100, 100]
    assert values(one, "outgoing-byte-total", "outgoing-byte-rate", "response-total") == [100, 50, 0]
    assert values(two, "response-total", "response-rate", "incoming-byte-total", "incoming-byte-rate") == [
        1, 0.5, 24, 12,
    ]  # fmt: skip


def test_the_selector() -> None:
    def record(metrics: Metrics) -> None:
        metrics.connections_now(2)
        metrics.connection_created()
        metrics.connection_closed()
        metrics.connections_now(1)
        metrics.bytes_sent(100)
        metrics.bytes_received(10)
        metrics.bytes_received(30)
        metrics.polled(wait_ns=600_000_000, io_ns=100_000_000)
        metrics.polled(wait_ns=400_000_000, io_ns=300_000_000)

    figures = task(record).producer
    assert figures["connection-count"] == 1
    assert values(figures, "connection-creation-total", "connection-creation-rate") == [1, 0.5]
    assert values(figures, "connection-close-total", "connection-close-rate") == [1, 0.5]
    assert values(figures, "outgoing-byte-total", "outgoing-byte-rate") == [100, 50]
    assert values(figures, "incoming-byte-total", "incoming-byte-rate") == [40, 20]
    assert values(figures, "network-io-total", "network-io-rate", "select-total", "select-rate") == [3, 1.5, 2, 1]
    assert values(figures, "io-wait-time-ns-total", "io-wait-time-ns-avg", "io-wait-ratio") == [10**9, 5 * 10**8, 0.5]
    assert values(figures, "io-time-ns-total", "io-time-ns-avg", "io-ratio") == [4 * 10**8, 2 * 10**8, 0.2]


def test_the_age_of_metadata_is_of_the_moment() -> None:
    metrics = Metrics()
    start = metrics.begin_task(1_000)
    assert math.isnan(metrics.snapshot(1_000).since(start).producer["metadata-age"])
    metrics.metadata_updated(2_000)
    assert metrics.snapshot(4_500).since(start).producer["metadata-age"] == 2.5
    assert metrics.snapshot(6_000).since(metrics.begin_task(5_000)).producer["metadata-age"] == 4


def test_nothing_has_no_average_and_no_maximum() -> None:
    figures = task(lambda metrics: None)
    for name, value in figures.producer.items():
        if name.endswith(("-avg", "-max")) or name == "metadata-age":
            assert math.isnan(value), name
        else:
            assert value == 0, name
    assert figures.topics == {}
    assert math.isnan(figures.nodes[1]["request-latency-avg"])
    assert math.isnan(figures.nodes[1]["request-latency-max"])


def test_no_time_has_no_rate_and_zero_is_a_maximum() -> None:
    assert math.isnan(task(send, elapsed_ms=0).producer["record-send-rate"])
    assert task(lambda metrics: send(metrics, queue_time_ms=0)).producer["record-queue-time-max"] == 0


def test_a_maximum_and_the_topics_are_the_tasks() -> None:
    """Or a worker that writes to a new topic every day would keep them all."""
    metrics = Metrics()
    for day, size_bytes in enumerate((900, 300)):
        start = metrics.begin_task(day)
        send(metrics, f"day-{day}", size_bytes=size_bytes)
        send(metrics, f"day-{day}", size_bytes=100)
        figures = metrics.snapshot(9).since(start)
        assert (figures.producer["batch-size-max"], set(figures.topics)) == (size_bytes, {f"day-{day}"})


@given(st.lists(st.tuples(st.integers(1, 1_000), st.integers(1, 100), st.integers(0, 1_000)), max_size=20), st.data())
def test_the_figures_of_two_halves_make_the_whole(batches: list[tuple[int, int, int]], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(batches)))
    metrics = Metrics()
    snapshots = [metrics.begin_task(0)]
    for half in (batches[:cut], batches[cut:]):
        for size_bytes, records, queue_time_ms in half:
            send(metrics, "t", size_bytes, records, queue_time_ms)
        snapshots.append(metrics.snapshot(1))
    start, middle, end = snapshots
    parts = [middle.since(start).producer, end.since(middle).producer]
    whole = end.since(start).producer
    assert sum(part["record-send-total"] for part in parts) == whole["record-send-total"]
    if batches:
        sizes = [size for size, _, _ in batches]
        assert whole["batch-size-avg"] == pytest.approx(sum(sizes) / len(sizes))
        assert whole["batch-size-max"] == max(sizes)

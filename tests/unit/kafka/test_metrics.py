import math
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.kafka.metrics import Figures, Metrics


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


def everything(metrics: Metrics) -> None:
    """Twice or for two, where that makes a difference."""
    metrics.metadata_updated(9_500)
    for topic, size_bytes, records, queue_time_ms in (("a", 500, 10, 7), ("b", 100, 30, 1), ("a", 300, 20, 10)):
        send(metrics, topic, size_bytes, records, queue_time_ms)
    for size_bytes in (30, 20):
        metrics.produce_request_sent()
        metrics.largest_record(size_bytes)
        metrics.request_began()
    metrics.request_ended()
    metrics.records_retried("a", 10)
    metrics.records_retried("b", 4)
    metrics.records_failed("a", 6)
    metrics.batch_split()
    metrics.request_sent(1, 100)
    metrics.request_sent(2, 400)
    metrics.response_received(2)
    metrics.node_bytes_received(2, 24)
    for node_id, latency_ms, throttle_ms in ((1, 30, 0), (2, 40, 30), (1, 10, 6)):
        metrics.produce_response(node_id, latency_ms=latency_ms, throttle_ms=throttle_ms)
    for wait_ns in (300_000_000, 200_000_000):
        metrics.waited_for_memory(wait_ns)
    metrics.waited_for_metadata(5)
    metrics.flushed(6)
    metrics.connections_now(2)
    metrics.connection_created()
    metrics.connection_closed()
    metrics.connections_now(1)
    metrics.bytes_sent(100)
    metrics.bytes_received(10)
    metrics.bytes_received(30)
    metrics.polled(wait_ns=600_000_000, io_ns=100_000_000)
    metrics.polled(wait_ns=400_000_000, io_ns=300_000_000)


def meters(**totals: float) -> dict[str, float]:
    """Each with its rate, for a task of two seconds."""
    named = {name.replace("_", "-"): total for name, total in totals.items()}
    return {f"{name}-total": total for name, total in named.items()} | {
        f"{name}-rate": total / 2 for name, total in named.items()
    }


def test_a_task_has_kafkas_figures_of_what_happens_in_it() -> None:
    """Of https://kafka.apache.org/documentation/#producer_monitoring, all that this producer has."""
    figures = task(everything)
    assert figures.producer == pytest.approx(
        meters(record_send=60, record_retry=14, record_error=6, batch_split=1, request=2, response=1, network_io=3)
        | meters(connection_creation=1, connection_close=1, outgoing_byte=100, incoming_byte=40, select=2)
        | {
            "batch-size-avg": 300, "batch-size-max": 500, "compression-rate-avg": 0.3, "record-queue-time-avg": 6,
            "record-queue-time-max": 10, "records-per-request-avg": 30, "record-size-avg": 50, "record-size-max": 30,
            "request-latency-avg": 80 / 3, "request-latency-max": 40, "produce-throttle-time-avg": 12,
            "produce-throttle-time-max": 30, "requests-in-flight": 1, "metadata-age": 2.5,
            "bufferpool-wait-time-ns-total": 500_000_000, "bufferpool-wait-ratio": 0.25, "flush-time-ns-total": 6,
            "metadata-wait-time-ns-total": 5, "request-size-avg": 250, "request-size-max": 400, "connection-count": 1,
            "io-wait-time-ns-total": 10**9, "io-wait-time-ns-avg": 5 * 10**8, "io-wait-ratio": 0.5,
            "io-time-ns-total": 4 * 10**8, "io-time-ns-avg": 2 * 10**8, "io-ratio": 0.2,
        }
    )  # fmt: skip
    assert set(figures.topics) == {"a", "b"}
    for topic, found in (
        ("a", meters(record_send=30, byte=800, record_retry=10, record_error=6) | {"compression-rate": 0.4}),
        ("b", meters(record_send=30, byte=100, record_retry=4, record_error=0) | {"compression-rate": 0.1}),
    ):
        assert figures.topics[topic] == pytest.approx(found)
    for node_id, size_bytes, answers, latencies in ((1, 100, (0, 0), (20, 30)), (2, 400, (1, 24), (40, 40))):
        counts = meters(request=1, outgoing_byte=size_bytes, response=answers[0], incoming_byte=answers[1])
        sizes = {"request-size-avg": size_bytes, "request-size-max": size_bytes}
        times = {"request-latency-avg": latencies[0], "request-latency-max": latencies[1]}
        assert figures.nodes[node_id] == pytest.approx(counts | sizes | times)


def test_the_age_of_metadata_is_of_the_moment() -> None:
    metrics = Metrics()
    start = metrics.begin_task(1_000)
    assert math.isnan(metrics.snapshot(1_000).since(start).producer["metadata-age"])
    metrics.metadata_updated(2_000)
    assert metrics.snapshot(4_500).since(start).producer["metadata-age"] == 2.5
    assert metrics.snapshot(6_000).since(metrics.begin_task(5_000)).producer["metadata-age"] == 4


def test_nothing_has_no_average_and_no_maximum() -> None:
    figures = task(lambda metrics: None)

    def expected(names: Mapping[str, float]) -> dict[str, float]:
        return {name: math.nan if name.endswith(("-avg", "-max", "-age")) else 0 for name in names}

    assert figures.producer == pytest.approx(expected(figures.producer), nan_ok=True)
    assert figures.nodes[1] == pytest.approx(expected(figures.nodes[1]), nan_ok=True)
    assert figures.topics == {}
    # No time has no rate, and zero is a maximum.
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

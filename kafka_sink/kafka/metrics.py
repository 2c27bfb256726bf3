"""A producer's counters, under Kafka's names: totals, and the averages and rates between two snapshots.

    start = metrics.begin_task(now_ms)               # the current totals; maxima are reset
    metrics.batch_sent(...), metrics.polled(...)     # each layer adds what it knows: a batch, a request, a poll
    figures = metrics.snapshot(now_ms).since(start)
    figures.producer["batch-size-avg"], figures.topics["orders"]["record-send-rate"], figures.nodes[1]["request-total"]

Totals only grow. So the figures of a period, such as a task or a minute, are differences, although the producer lives
longer. There is no clock here, and no need for Java's samples and windows. `_PRODUCER`, `_TOPIC` and `_NODE` list all
figures: Kafka's name and the formula.

Non-obvious:

* A maximum cannot be subtracted. It is the largest value since `begin_task`. One period at a time is enough, because a
  producer serves one write at a time. `begin_task` also forgets the topics of earlier tasks. Otherwise they would
  accumulate in a worker that writes to a new topic every day.
* No lock: only one thread adds to each total. The writer adds the waits and `record-size-max`, the Sender thread adds
  all others. `begin_task` resets only maxima and the dict of topics, which a concurrent addition cannot restore. A
  snapshot during a `batch_sent` may include the bytes of the batch but not its records.
* As in Java, a batch counts each time it is sent, also as a retry. `request-latency`, also per node, is the latency of
  Produce requests. `record-size-avg` is bytes divided by records before compression; Java averages the largest record
  of each batch.

Source: Kafka's SenderMetricsRegistry, Sender.SenderMetrics, BufferPool, KafkaProducerMetrics, Selector.SelectorMetrics;
https://kafka.apache.org/documentation/#producer_monitoring.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any

# A maximum without values, or a time not reached yet. All measured values are 0 or more.
NONE_YET = -1


@dataclass(slots=True, eq=False)
class _ProducerTotals:
    """producer-metrics. `*_max` are maxima. `requests_in_flight`, `connections` and `metadata_updated_ms` are states.
    All others are totals."""

    batches: int = 0
    batch_bytes: int = 0
    batch_bytes_max: int = NONE_YET
    compression_rates: float = 0.0
    queue_ms: int = 0
    queue_ms_max: int = NONE_YET
    records: int = 0
    record_bytes: int = 0
    record_bytes_max: int = NONE_YET
    records_retried: int = 0
    records_failed: int = 0
    batches_split: int = 0
    produce_requests: int = 0
    produce_responses: int = 0
    latency_ms: int = 0
    latency_ms_max: int = NONE_YET
    throttle_ms: int = 0
    throttle_ms_max: int = NONE_YET
    memory_wait_ns: int = 0
    metadata_wait_ns: int = 0
    flush_ns: int = 0
    metadata_updated_ms: int = NONE_YET
    requests_in_flight: int = 0
    requests: int = 0
    request_bytes: int = 0
    request_bytes_max: int = NONE_YET
    responses: int = 0
    connections: int = 0
    connections_created: int = 0
    connections_closed: int = 0
    bytes_out: int = 0
    bytes_in: int = 0
    network_ios: int = 0
    selects: int = 0
    io_wait_ns: int = 0
    io_ns: int = 0


@dataclass(slots=True, eq=False)
class _TopicTotals:
    """producer-topic-metrics."""

    batches: int = 0
    batch_bytes: int = 0
    compression_rates: float = 0.0
    records: int = 0
    records_retried: int = 0
    records_failed: int = 0


@dataclass(slots=True, eq=False)
class _NodeTotals:
    """producer-node-metrics."""

    requests: int = 0
    request_bytes: int = 0
    request_bytes_max: int = NONE_YET
    responses: int = 0
    bytes_in: int = 0
    produce_responses: int = 0
    latency_ms: int = 0
    latency_ms_max: int = NONE_YET


class Metrics:
    """The live totals of one producer. Durations may come from any clock, `now_ms` always from the same clock."""

    def __init__(self) -> None:
        self._producer = _ProducerTotals()
        self._topics: dict[str, _TopicTotals] = {}
        self._nodes: dict[int, _NodeTotals] = {}

    # --- reading ------------------------------------------------------------------------------------------------------

    def begin_task(self, now_ms: int) -> Snapshot:
        """Reset the maxima and topics, and return the snapshot at which a task begins. No earlier batch may be in
        flight."""
        self._topics.clear()
        live: list[_Totals] = [self._producer, *self._nodes.values()]
        for totals in live:
            for name in _fields(totals):
                if name.endswith("_max"):
                    setattr(totals, name, NONE_YET)
        return self.snapshot(now_ms)

    def snapshot(self, now_ms: int) -> Snapshot:
        """Return the totals now. `now_ms` is from the same clock as in the other snapshots and `metadata_updated`."""
        return Snapshot(
            taken_ms=now_ms,
            producer=_frozen(self._producer),
            # Copied to lists, because the Sender thread may add a topic or node meanwhile.
            topics=MappingProxyType({name: _frozen(totals) for name, totals in list(self._topics.items())}),
            nodes=MappingProxyType({node_id: _frozen(totals) for node_id, totals in list(self._nodes.items())}),
        )

    # --- the accumulator and the Sender -------------------------------------------------------------------------------

    def batch_sent(
        self, topic: str, *, size_bytes: int, uncompressed_bytes: int, record_count: int, queue_time_ms: int
    ) -> None:
        """Count a batch that is put into a Produce request. `queue_time_ms`: time since the batch was created."""
        compression_rate = size_bytes / uncompressed_bytes
        producer, of_topic = self._producer, self._topic(topic)
        producer.batches += 1
        producer.batch_bytes += size_bytes
        if size_bytes > producer.batch_bytes_max:
            producer.batch_bytes_max = size_bytes
        producer.compression_rates += compression_rate
        producer.queue_ms += queue_time_ms
        if queue_time_ms > producer.queue_ms_max:
            producer.queue_ms_max = queue_time_ms
        producer.records += record_count
        producer.record_bytes += uncompressed_bytes
        of_topic.batches += 1
        of_topic.batch_bytes += size_bytes
        of_topic.compression_rates += compression_rate
        of_topic.records += record_count

    def produce_request_sent(self) -> None:
        """Count a Produce request that is sent. Each of its batches is counted by `batch_sent` as well."""
        self._producer.produce_requests += 1

    def records_retried(self, topic: str, record_count: int) -> None:
        self._producer.records_retried += record_count
        self._topic(topic).records_retried += record_count

    def records_failed(self, topic: str, record_count: int) -> None:
        self._producer.records_failed += record_count
        self._topic(topic).records_failed += record_count

    def batch_split(self) -> None:
        """Count a batch that was too large for its topic and was split."""
        self._producer.batches_split += 1

    def metadata_updated(self, now_ms: int) -> None:
        self._producer.metadata_updated_ms = now_ms

    # --- the writer ---------------------------------------------------------------------------------------------------

    def largest_record(self, size_bytes: int) -> None:
        """Note the size of the largest of some rows, before compression."""
        if size_bytes > self._producer.record_bytes_max:
            self._producer.record_bytes_max = size_bytes

    def waited_for_memory(self, duration_ns: int) -> None:
        self._producer.memory_wait_ns += duration_ns

    def waited_for_metadata(self, duration_ns: int) -> None:
        self._producer.metadata_wait_ns += duration_ns

    def flushed(self, duration_ns: int) -> None:
        self._producer.flush_ns += duration_ns

    # --- the network --------------------------------------------------------------------------------------------------

    def request_sent(self, node_id: int, size_bytes: int) -> None:
        """Count a request of any kind that is passed to the transport."""
        producer, node = self._producer, self._node(node_id)
        producer.requests += 1
        producer.request_bytes += size_bytes
        if size_bytes > producer.request_bytes_max:
            producer.request_bytes_max = size_bytes
        node.requests += 1
        node.request_bytes += size_bytes
        if size_bytes > node.request_bytes_max:
            node.request_bytes_max = size_bytes

    def request_began(self) -> None:
        """Count a request as in flight until `request_ended`."""
        self._producer.requests_in_flight += 1

    def request_ended(self) -> None:
        self._producer.requests_in_flight -= 1

    def response_received(self, node_id: int) -> None:
        """Count a complete response of any kind."""
        self._producer.responses += 1
        self._node(node_id).responses += 1

    def produce_response(self, node_id: int, *, latency_ms: int, throttle_ms: int) -> None:
        """Count a response to Produce. `throttle_ms`: how long the broker throttles the client; 0 if it does not."""
        producer, node = self._producer, self._node(node_id)
        producer.produce_responses += 1
        producer.latency_ms += latency_ms
        if latency_ms > producer.latency_ms_max:
            producer.latency_ms_max = latency_ms
        producer.throttle_ms += throttle_ms
        if throttle_ms > producer.throttle_ms_max:
            producer.throttle_ms_max = throttle_ms
        node.produce_responses += 1
        node.latency_ms += latency_ms
        if latency_ms > node.latency_ms_max:
            node.latency_ms_max = latency_ms

    def node_bytes_received(self, node_id: int, size_bytes: int) -> None:
        """Count bytes for a node, once the node is known. `bytes_received` has already counted them in total."""
        self._node(node_id).bytes_in += size_bytes

    # --- the selector -------------------------------------------------------------------------------------------------

    def connections_now(self, count: int) -> None:
        """Set the number of open sockets, including those that are still connecting."""
        self._producer.connections = count

    def connection_created(self) -> None:
        self._producer.connections_created += 1

    def connection_closed(self) -> None:
        self._producer.connections_closed += 1

    def bytes_sent(self, size_bytes: int) -> None:
        """Count one write to a socket."""
        self._producer.bytes_out += size_bytes
        self._producer.network_ios += 1

    def bytes_received(self, size_bytes: int) -> None:
        """Count one read from a socket."""
        self._producer.bytes_in += size_bytes
        self._producer.network_ios += 1

    def polled(self, *, wait_ns: int, io_ns: int) -> None:
        """Count a poll that waited for `wait_ns` and worked for `io_ns`."""
        producer = self._producer
        producer.selects += 1
        producer.io_wait_ns += wait_ns
        producer.io_ns += io_ns

    def _topic(self, name: str) -> _TopicTotals:
        totals = self._topics.get(name)
        if totals is None:
            totals = self._topics[name] = _TopicTotals()
        return totals

    def _node(self, node_id: int) -> _NodeTotals:
        totals = self._nodes.get(node_id)
        if totals is None:
            totals = self._nodes[node_id] = _NodeTotals()
        return totals


_Totals = _ProducerTotals | _TopicTotals | _NodeTotals


def _fields(totals: _Totals) -> list[str]:
    return [field.name for field in fields(totals)]


def _frozen(totals: _Totals) -> Mapping[str, float]:
    return MappingProxyType({name: getattr(totals, name) for name in _fields(totals)})


# --- what the totals mean ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a period, under Kafka's names: of the producer, by topic, and by node id. A bootstrap server has a
    negative id, which keeps its figures from before it was known as a broker. Averages and maxima without values are
    NaN, as in Kafka."""

    producer: Mapping[str, float]
    topics: Mapping[str, Mapping[str, float]]
    nodes: Mapping[int, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All totals at one time."""

    taken_ms: int
    producer: Mapping[str, float]
    topics: Mapping[str, Mapping[str, float]]
    nodes: Mapping[int, Mapping[str, float]]

    def since(self, earlier: Snapshot) -> Figures:
        """Return the figures of the time from `earlier`, a snapshot of the same task, to this snapshot."""

        def figures(formulas: Mapping[str, _Formula], before: Mapping[str, float], now: Mapping[str, float]) -> Any:
            change = _Change(before, now, self.taken_ms, self.taken_ms - earlier.taken_ms)
            return MappingProxyType({name: formula(change) for name, formula in formulas.items()})

        def by_key(formulas: Mapping[str, _Formula], before: Mapping[Any, Any], now: Mapping[Any, Any]) -> Any:
            return MappingProxyType({key: figures(formulas, before.get(key, {}), now[key]) for key in now})

        return Figures(
            producer=figures(_PRODUCER, earlier.producer, self.producer),
            topics=by_key(_TOPIC, earlier.topics, self.topics),
            nodes=by_key(_NODE, earlier.nodes, self.nodes),
        )


@dataclass(frozen=True, slots=True)
class _Change:
    before: Mapping[str, float]
    now: Mapping[str, float]
    taken_ms: int
    elapsed_ms: int

    def of(self, field: str) -> float:
        return self.now[field] - self.before.get(field, 0)


_Formula = Callable[[_Change], float]


def _total(field: str) -> _Formula:
    return lambda change: change.of(field)


def _rate(field: str) -> _Formula:
    """Per second."""
    return lambda change: _quotient(change.of(field) * 1000, change.elapsed_ms)


def _average(field: str, count: str) -> _Formula:
    return lambda change: _quotient(change.of(field), change.of(count))


def _share(field_ns: str) -> _Formula:
    """The fraction of the elapsed time."""
    return lambda change: _quotient(change.of(field_ns), change.elapsed_ms * 1_000_000)


def _maximum(field: str) -> _Formula:
    return lambda change: math.nan if change.now[field] == NONE_YET else change.now[field]


def _state(field: str) -> _Formula:
    return lambda change: change.now[field]


def _age_seconds(field_ms: str) -> _Formula:
    return lambda change: (
        math.nan if change.now[field_ms] == NONE_YET else (change.taken_ms - change.now[field_ms]) / 1000
    )


def _quotient(dividend: float, divisor: float) -> float:
    return dividend / divisor if divisor else math.nan


def _meter(name: str, field: str) -> Mapping[str, _Formula]:
    """Kafka's Meter: a total and a rate."""
    return {f"{name}-total": _total(field), f"{name}-rate": _rate(field)}


_PRODUCER: Mapping[str, _Formula] = {
    "batch-size-avg": _average("batch_bytes", "batches"),
    "batch-size-max": _maximum("batch_bytes_max"),
    "compression-rate-avg": _average("compression_rates", "batches"),
    "record-queue-time-avg": _average("queue_ms", "batches"),
    "record-queue-time-max": _maximum("queue_ms_max"),
    **_meter("record-send", "records"),
    "records-per-request-avg": _average("records", "produce_requests"),
    "record-size-avg": _average("record_bytes", "records"),
    "record-size-max": _maximum("record_bytes_max"),
    **_meter("record-retry", "records_retried"),
    **_meter("record-error", "records_failed"),
    **_meter("batch-split", "batches_split"),
    "request-latency-avg": _average("latency_ms", "produce_responses"),
    "request-latency-max": _maximum("latency_ms_max"),
    "produce-throttle-time-avg": _average("throttle_ms", "produce_responses"),
    "produce-throttle-time-max": _maximum("throttle_ms_max"),
    "bufferpool-wait-time-ns-total": _total("memory_wait_ns"),
    "bufferpool-wait-ratio": _share("memory_wait_ns"),
    "metadata-wait-time-ns-total": _total("metadata_wait_ns"),
    "flush-time-ns-total": _total("flush_ns"),
    "metadata-age": _age_seconds("metadata_updated_ms"),
    "requests-in-flight": _state("requests_in_flight"),
    **_meter("request", "requests"),
    "request-size-avg": _average("request_bytes", "requests"),
    "request-size-max": _maximum("request_bytes_max"),
    **_meter("response", "responses"),
    "connection-count": _state("connections"),
    **_meter("connection-creation", "connections_created"),
    **_meter("connection-close", "connections_closed"),
    **_meter("outgoing-byte", "bytes_out"),
    **_meter("incoming-byte", "bytes_in"),
    **_meter("network-io", "network_ios"),
    **_meter("select", "selects"),
    "io-wait-time-ns-total": _total("io_wait_ns"),
    "io-wait-time-ns-avg": _average("io_wait_ns", "selects"),
    "io-wait-ratio": _share("io_wait_ns"),
    "io-time-ns-total": _total("io_ns"),
    "io-time-ns-avg": _average("io_ns", "selects"),
    "io-ratio": _share("io_ns"),
}

_TOPIC: Mapping[str, _Formula] = {
    **_meter("record-send", "records"),
    **_meter("byte", "batch_bytes"),
    "compression-rate": _average("compression_rates", "batches"),
    **_meter("record-retry", "records_retried"),
    **_meter("record-error", "records_failed"),
}

_NODE: Mapping[str, _Formula] = {
    **_meter("request", "requests"),
    "request-size-avg": _average("request_bytes", "requests"),
    "request-size-max": _maximum("request_bytes_max"),
    **_meter("outgoing-byte", "request_bytes"),
    **_meter("response", "responses"),
    **_meter("incoming-byte", "bytes_in"),
    "request-latency-avg": _average("latency_ms", "produce_responses"),
    "request-latency-max": _maximum("latency_ms_max"),
}

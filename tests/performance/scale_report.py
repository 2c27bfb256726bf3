"""What was measured of each sink, beside the model: medians, ratios and tables. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from scale_model import MB, Model
from scale_sinks import BASELINE
from spark_application import Sample
from spark_report import markdown

PRODUCE, METADATA = "PRODUCE", "METADATA"


@dataclass(frozen=True, slots=True)
class Round:
    """One query. `small_ms`: of its small micro-batches. `large_ms`, `large_rows`: of its large ones. `cpu_s`: of all
    large ones. `small`, `large`: looks at the application after each kind. `markers`: offsets that a micro-batch took
    in the topic beyond its rows. `producer_ids`: that the topic's leaders know."""

    small_ms: Sequence[int]
    large_ms: Sequence[int]
    large_rows: Sequence[int]
    cpu_s: float
    small: Sample
    large: Sample
    producer_ids: int
    markers: float

    @property
    def rows_per_s(self) -> float:
        return statistics.median(
            rows / milliseconds * 1_000 for rows, milliseconds in zip(self.large_rows, self.large_ms, strict=True)
        )

    @property
    def cpu_s_a_million_rows(self) -> float:
        return self.cpu_s / sum(self.large_rows) * 1e6

    @property
    def latency_ms(self) -> float:
        return statistics.median(self.small_ms)


@dataclass(frozen=True, slots=True)
class Requests:
    """`opened`: connections that the query's first micro-batches opened, to all brokers. By API: requests of one small
    micro-batch after those."""

    opened: int
    a_micro_batch: Mapping[str, float]

    @property
    def produce(self) -> float:
        return self.a_micro_batch.get(PRODUCE, 0.0)

    @property
    def metadata(self) -> float:
        return self.a_micro_batch.get(METADATA, 0.0)

    @property
    def others(self) -> float:
        return sum(self.a_micro_batch.values()) - self.produce - self.metadata


@dataclass(frozen=True, slots=True)
class Measured:
    """`requests`: of the round that is not timed."""

    model: Model
    rounds: Sequence[Round]
    requests: Requests

    def median(self, figure: Callable[[Round], float]) -> float:
        return statistics.median(figure(each) for each in self.rounds)

    def beside(self, figure: Callable[[Round], float], by_model: float, digits: int = 1) -> str:
        return beside(self.median(figure), by_model, digits)


def python_mb(sample: Sample) -> float:
    """Of an executor: the median of all."""
    return statistics.median(each.total for each in sample.python.values()) / MB


def worker_mb(sample: Sample) -> float:
    return statistics.median(each.of_a_worker for each in sample.python.values()) / MB


def jvm_mb(sample: Sample) -> float:
    return statistics.median(sample.jvm_bytes.values()) / MB


def connections_table(measured: Sequence[Measured]) -> str:
    """Measured / by the model, as in all tables."""
    head = "Python workers | sockets a broker | planning's | connections opened | producer ids"

    def row(each: Measured) -> str:
        model, workers = each.model, each.beside(lambda found: sum(found.small.workers.values()), each.model.workers)
        sockets = each.beside(lambda found: found.small.sockets_a_broker, model.sockets_a_broker)
        planning = each.beside(lambda found: found.small.planning_sockets_a_broker, model.planning_sockets_a_broker)
        ids = each.beside(lambda found: found.producer_ids, model.producer_ids)
        return f"{workers} | {sockets} | {planning} | {number(each.requests.opened)} | {ids}"

    return _table(head, row, measured)


def requests_table(measured: Sequence[Measured]) -> str:
    """Of a small micro-batch."""

    def row(each: Measured) -> str:
        requests, model = each.requests, each.model
        produce = beside(requests.produce, model.produce_requests)
        others = beside(requests.others, model.other_requests)
        markers = each.beside(lambda found: found.markers, model.markers)
        return f"{produce} | {number(requests.metadata)} | {others} | {markers}"

    return _table("Produce | Metadata | other requests | markers", row, measured)


def memory_table(measured: Sequence[Measured]) -> str:
    """MB of an executor."""

    def row(each: Measured) -> str:
        small = each.beside(lambda found: python_mb(found.small), each.model.python_bytes / MB, digits=0)
        large = each.median(lambda found: python_mb(found.large))
        others = each.median(lambda found: worker_mb(found.small)), each.median(lambda found: jvm_mb(found.large))
        return " | ".join([small, *(number(megabytes, digits=0) for megabytes in (large, *others))])

    return _table("Python MB | Python MB after large | private MB a worker | JVM MB", row, measured)


def speed_table(measured: Sequence[Measured]) -> str:
    """Ratios are medians of the rounds' own, to the JVM sink's in the same round."""
    baselines = {(each.model.layout, each.model.brokers): each for each in measured if each.model.sink == BASELINE}
    times = "x JVM sink's"
    head = f"M rows/s | (range) | {times} | CPU s a million rows | {times} | ms a small micro-batch | {times}"

    def row(each: Measured) -> str:
        to = baselines.get((each.model.layout, each.model.brokers))
        rates = [found.rows_per_s / 1e6 for found in each.rounds]
        rate = f"{statistics.median(rates):.2f} | {min(rates):.2f} - {max(rates):.2f}"
        cpu, latency = (each.median(attrgetter(name)) for name in ("cpu_s_a_million_rows", "latency_ms"))
        faster, more_cpu, later = (
            ratio(each, to, attrgetter(name)) for name in ("rows_per_s", "cpu_s_a_million_rows", "latency_ms")
        )
        return f"{rate} | {faster} | {cpu:.2f} | {more_cpu} | {latency:.0f} | {later}"

    return _table(head, row, measured)


def _table(head: str, row: Callable[[Measured], str], measured: Sequence[Measured]) -> str:
    models = (each.model for each in measured)
    cases = (f"{model.layout.master} | {model.brokers} | {model.sink}" for model in models)
    rows = (f"{case} | {row(each)}" for case, each in zip(cases, measured, strict=True))
    return markdown(f"master | brokers | sink | {head}", rows)


def ratio(ours: Measured, theirs: Measured | None, figure: Callable[[Round], float]) -> str:
    if theirs is None or theirs is ours:
        return ""
    pairs = zip(ours.rounds, theirs.rounds, strict=True)
    return f"{statistics.median(figure(our) / figure(their) for our, their in pairs):.2f}"


def beside(measured: float, by_model: float, digits: int = 1) -> str:
    return f"{number(measured, digits)} / {number(by_model, digits)}"


def number(value: float, digits: int = 1) -> str:
    """Without a fraction where there is none."""
    return f"{value:,.{digits}f}".removesuffix(".0")

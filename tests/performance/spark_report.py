"""Rounds to medians, ratios and a table: all that is computed from what was measured. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from spark_driver import Cost
from spark_peers import CONFLUENT, DISCARD, JVM, PYKAFKA, SAME, Peer

# By compression: (rows/s, CPU a row) of pykafka as multiples of another sink's, with the same settings.
GOALS: Mapping[tuple[str, str], tuple[float, float]] = {
    (JVM, "none"): (1.5, 0.7),
    (JVM, "zstd"): (2.5, 0.5),
    (CONFLUENT, "none"): (2.0, 0.4),
    (CONFLUENT, "zstd"): (2.0, 0.4),
}


@dataclass(frozen=True, slots=True)
class Figure:
    """Medians over the rounds; the extremes tell how quiet the machine was. Rates are rows/s, CPU is seconds per
    million rows: of Spark and all its processes, and of the broker."""

    peer: Peer
    rows_per_s: float
    slowest_rows_per_s: float
    fastest_rows_per_s: float
    cpu_s_per_million_rows: float
    broker_cpu_s_per_million_rows: float
    log_bytes_per_row: float
    rounds: tuple[Cost, ...]


@dataclass(frozen=True, slots=True)
class Ratio:
    """Of pykafka to `sink`: medians of the rounds' own ratios, as neighbours in a round had the same machine."""

    sink: str
    compression: str
    rows_per_s: float
    cpu_per_row: float
    rows_per_s_goal: float
    cpu_per_row_goal: float


@dataclass(frozen=True, slots=True)
class TlsCost:
    """Of pykafka over TLS to pykafka in the clear, as `Ratio`."""

    rows_per_s: float
    cpu_per_row: float
    broker_cpu_per_row: float

    def __str__(self) -> str:
        return (
            f"{PYKAFKA} over TLS, uncompressed: {self.rows_per_s:.2f} x the rows/s in the clear, "
            f"{self.cpu_per_row:.2f} x the CPU per row, {self.broker_cpu_per_row:.2f} x the broker's"
        )


@dataclass(frozen=True, slots=True)
class OwnCost:
    """What pykafka takes, uncompressed and with the same settings, beyond a Python writer that discards its rows:
    medians of the rounds' own differences and ratios. CPU is seconds per million rows. The broker takes its share of
    the same cores, and so of the rows/s; the writer that discards has none."""

    cpu_s_per_million_rows: float
    rows_per_s: float
    broker_cpu_s_per_million_rows: float

    def __str__(self) -> str:
        return (
            f"{PYKAFKA} beside a Python writer that discards, uncompressed: {self.cpu_s_per_million_rows:.2f} CPU s "
            f"per million rows more (goal at 100 bytes: <= 0.15), {self.rows_per_s:.2f} x the rows/s (goal at 1 KB: "
            f">= 0.8); the broker takes {self.broker_cpu_s_per_million_rows:.2f} of the same cores"
        )


def figure(peer: Peer, costs: Sequence[Cost], rows: int) -> Figure:
    rates = [rows / cost.wall_s for cost in costs]
    return Figure(
        peer=peer,
        rows_per_s=statistics.median(rates),
        slowest_rows_per_s=min(rates),
        fastest_rows_per_s=max(rates),
        cpu_s_per_million_rows=statistics.median(cost.cpu_s for cost in costs) / rows * 1e6,
        broker_cpu_s_per_million_rows=statistics.median(cost.broker_cpu_s for cost in costs) / rows * 1e6,
        log_bytes_per_row=statistics.median(cost.log_bytes for cost in costs) / rows,
        rounds=tuple(costs),
    )


def median_ratio(ours: Sequence[object], theirs: Sequence[object], field: str) -> float:
    """The median of the rounds' own ratios, as neighbours in a round had the same machine."""
    pairs = zip(ours, theirs, strict=True)
    return float(statistics.median(getattr(our, field) / getattr(their, field) for our, their in pairs))


def ratios(costs: Mapping[Peer, Sequence[Cost]]) -> list[Ratio]:
    """Where both sides were measured."""
    found = []
    for (sink, compression), goals in GOALS.items():
        ours, theirs = costs.get(Peer(PYKAFKA, compression, SAME)), costs.get(Peer(sink, compression, SAME))
        if ours and theirs:
            rates, cpu = median_ratio(theirs, ours, "wall_s"), median_ratio(ours, theirs, "cpu_s")
            found.append(Ratio(sink, compression, rates, cpu, *goals))
    return found


def tls_cost(costs: Mapping[Peer, Sequence[Cost]]) -> TlsCost | None:
    """None unless both sides were measured."""
    clear, encrypted = costs.get(Peer(PYKAFKA, "none", SAME)), costs.get(Peer(PYKAFKA, "none", SAME, tls=True))
    if not clear or not encrypted:
        return None
    cpu = (median_ratio(encrypted, clear, field) for field in ("cpu_s", "broker_cpu_s"))
    return TlsCost(median_ratio(clear, encrypted, "wall_s"), *cpu)


def own_cost(costs: Mapping[Peer, Sequence[Cost]], rows: int) -> OwnCost | None:
    """None unless both were measured."""
    ours, discarding = costs.get(Peer(PYKAFKA, "none", SAME)), costs.get(Peer(DISCARD))
    if not ours or not discarding:
        return None
    pairs = zip(ours, discarding, strict=True)
    return OwnCost(
        cpu_s_per_million_rows=statistics.median(our.cpu_s - least.cpu_s for our, least in pairs) / rows * 1e6,
        rows_per_s=median_ratio(discarding, ours, "wall_s"),
        broker_cpu_s_per_million_rows=statistics.median(our.broker_cpu_s for our in ours) / rows * 1e6,
    )


def table(figures: Sequence[Figure]) -> str:
    head = "sink | compression | settings | workers by | M rows/s | (range) | CPU s per M rows | broker's | bytes a row"
    return markdown(head, map(_row, figures))


def _row(each: Figure) -> str:
    peer, settings = each.peer, filter(None, (each.peer.settings, "TLS" if each.peer.tls else None))
    sockets = peer.sockets if peer.has_workers else ""
    of_peer = f"{peer.sink} | {peer.compression or ''} | {', '.join(settings)} | {sockets}"
    spread = f"{each.slowest_rows_per_s / 1e6:.2f} - {each.fastest_rows_per_s / 1e6:.2f}"
    of_broker = f"{each.broker_cpu_s_per_million_rows:.2f} | {each.log_bytes_per_row:.1f}"
    of_spark = f"{each.rows_per_s / 1e6:.2f} | {spread} | {each.cpu_s_per_million_rows:.2f}"
    return f"{of_peer} | {of_spark} | {of_broker if peer.writes_to_kafka else ' | '}"


def ratio_table(found: Sequence[Ratio]) -> str:
    rows = (
        f"{each.sink} | {each.compression} | {each.rows_per_s:.2f} x | >= {each.rows_per_s_goal:g} x | "
        f"{each.cpu_per_row:.2f} x | <= {each.cpu_per_row_goal:g} x"
        for each in found
    )
    return markdown("pykafka to | compression | rows/s | goal | CPU per row | goal", rows)


def markdown(head: str, rows: Iterable[str]) -> str:
    """A table, aligned for a terminal. ` | ` is between the cells of a row."""
    cells = [row.split(" | ") for row in (head, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [cells[0], ["-" * width for width in widths], *cells[1:]]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )

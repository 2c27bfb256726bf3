"""Rounds to medians, ratios and a table: all that is computed from what was measured. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
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


def ratios(costs: Mapping[Peer, Sequence[Cost]]) -> list[Ratio]:
    """Where both sides were measured."""
    found = []
    for (sink, compression), (rate_goal, cpu_goal) in GOALS.items():
        ours, theirs = costs.get(Peer(PYKAFKA, compression, SAME)), costs.get(Peer(sink, compression, SAME))
        if ours and theirs:
            pairs = list(zip(ours, theirs, strict=True))
            found.append(
                Ratio(
                    sink=sink,
                    compression=compression,
                    rows_per_s=statistics.median(their.wall_s / our.wall_s for our, their in pairs),
                    cpu_per_row=statistics.median(our.cpu_s / their.cpu_s for our, their in pairs),
                    rows_per_s_goal=rate_goal,
                    cpu_per_row_goal=cpu_goal,
                )
            )
    return found


def tls_cost(costs: Mapping[Peer, Sequence[Cost]]) -> TlsCost | None:
    """None unless both sides were measured."""
    clear, encrypted = costs.get(Peer(PYKAFKA, "none", SAME)), costs.get(Peer(PYKAFKA, "none", SAME, tls=True))
    if not clear or not encrypted:
        return None
    pairs = list(zip(clear, encrypted, strict=True))
    return TlsCost(
        rows_per_s=statistics.median(without.wall_s / over.wall_s for without, over in pairs),
        cpu_per_row=statistics.median(over.cpu_s / without.cpu_s for without, over in pairs),
        broker_cpu_per_row=statistics.median(over.broker_cpu_s / without.broker_cpu_s for without, over in pairs),
    )


def own_cost(costs: Mapping[Peer, Sequence[Cost]], rows: int) -> OwnCost | None:
    """None unless both were measured."""
    ours, discarding = costs.get(Peer(PYKAFKA, "none", SAME)), costs.get(Peer(DISCARD))
    if not ours or not discarding:
        return None
    pairs = list(zip(ours, discarding, strict=True))
    return OwnCost(
        cpu_s_per_million_rows=statistics.median(our.cpu_s - least.cpu_s for our, least in pairs) / rows * 1e6,
        rows_per_s=statistics.median(least.wall_s / our.wall_s for our, least in pairs),
        broker_cpu_s_per_million_rows=statistics.median(our.broker_cpu_s for our in ours) / rows * 1e6,
    )


def table(figures: Sequence[Figure]) -> str:
    """Markdown, aligned for a terminal."""
    of_peer = ("sink", "compression", "settings", "workers by")
    head = (*of_peer, "M rows/s", "(range)", "CPU s per M rows", "broker's", "bytes a row")
    cells = [
        (
            each.peer.sink,
            each.peer.compression or "",
            ", ".join(filter(None, (each.peer.settings, "TLS" if each.peer.tls else None))),
            each.peer.sockets if each.peer.has_workers else "",
            f"{each.rows_per_s / 1e6:.2f}",
            f"{each.slowest_rows_per_s / 1e6:.2f} - {each.fastest_rows_per_s / 1e6:.2f}",
            f"{each.cpu_s_per_million_rows:.2f}",
            f"{each.broker_cpu_s_per_million_rows:.2f}" if each.peer.writes_to_kafka else "",
            f"{each.log_bytes_per_row:.1f}" if each.peer.writes_to_kafka else "",
        )
        for each in figures
    ]
    return markdown(head, cells)


def ratio_table(found: Sequence[Ratio]) -> str:
    head = ("pykafka to", "compression", "rows/s", "goal", "CPU per row", "goal")
    cells = [
        (
            each.sink,
            each.compression,
            f"{each.rows_per_s:.2f} x",
            f">= {each.rows_per_s_goal:g} x",
            f"{each.cpu_per_row:.2f} x",
            f"<= {each.cpu_per_row_goal:g} x",
        )
        for each in found
    ]
    return markdown(head, cells)


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table, aligned for a terminal."""
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    )

"""One micro-batch as its watchers see it: what Spark says of it, and what the leaders acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias


@dataclass(frozen=True, slots=True)
class Totals:
    """What leaders acknowledged of one topic. `byte_count`: of record batches in the log, headers and compression
    included."""

    row_count: int
    batch_count: int
    byte_count: int

    def plus(self, other: Totals) -> Totals:
        return Totals(
            self.row_count + other.row_count,
            self.batch_count + other.batch_count,
            self.byte_count + other.byte_count,
        )


NOTHING = Totals(0, 0, 0)
TotalsByTopic: TypeAlias = Mapping[str, Totals]


class Run(NamedTuple):
    """A micro-batch of one run of a query, which begins with `start()`."""

    query_id: str
    run_id: str
    batch_id: int


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch that Spark has recorded. `query`: its name, or its id where it has none. `input_row_count`: what
    the sources gave, before filters and aggregations. `duration_ms`: from its trigger to its record in the
    checkpoint; `write_ms`: of that, the tasks and the commit (Spark's addBatch). `ended_s`: seconds since 1970.
    `topics`: empty where nothing was written."""

    query: str
    batch_id: int
    input_row_count: int
    duration_ms: int
    write_ms: int
    ended_s: float
    topics: TotalsByTopic

    @property
    def written(self) -> Totals:
        """Over all topics."""
        total = NOTHING
        for topic in self.topics.values():
            total = total.plus(topic)
        return total

    @property
    def rows_per_s(self) -> float:
        return self.written.row_count * 1000 / max(1, self.duration_ms)

    def __str__(self) -> str:
        written, where = self.written, ", ".join(sorted(self.topics)) or "no topic"
        return (
            f"{self.query} #{self.batch_id}: {self.input_row_count:,} rows in, {written.row_count:,} acknowledged "
            f"({written.byte_count / 1e6:,.1f} MB, {written.batch_count:,} batches) by {where} "
            f"in {self.duration_ms / 1000:.2f} s, {self.rows_per_s:,.0f} rows/s"
        )


# What is told of each; an OSError of it is logged and changes nothing.
Watcher: TypeAlias = Callable[[MicroBatch], None]

"""Streams for `make bench-read`: large micro-batches, and one row a micro-batch, pykafka beside the JVM's source.

Both read into Spark's `noop` sink, in turns: what is there, with trigger(availableNow=True) and maxOffsetsPerTrigger;
and rows that arrive one after the other, with the default trigger. A micro-batch's time is Spark's own,
`triggerExecution` of its progress.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from frame import in_turns
from read_driver import JVM, PYKAFKA
from spark_process import SparkProcess, Topics
from spark_report import markdown, median_ratio

READERS = (PYKAFKA, JVM)


@dataclass(frozen=True, slots=True)
class Stream:
    """`per_trigger`: rows of a micro-batch. `arrives`: whether each row comes when the one before was read."""

    name: str
    rows: int
    per_trigger: int
    partitions: int
    value_bytes: int = 100
    arrives: bool = False

    def __str__(self) -> str:
        return f"stream: {self.name}"


@dataclass(frozen=True, slots=True)
class StreamCost:
    """Of one run. `micro_batch_ms`: the median of its micro-batches but the first, which starts Python's processes."""

    wall_s: float
    cpu_s: float
    micro_batch_ms: float


STREAMS = (
    Stream("10 M rows in micro-batches of 1 M", 10_000_000, 1_000_000, 4),
    Stream("one row a micro-batch, of 40 that are there", 40, 1, 1),
    Stream("one row a micro-batch, as they arrive", 20, 1, 1, arrives=True),
)


def measure_stream(spark: SparkProcess, topics: Topics, stream: Stream, rounds: int) -> dict[str, list[StreamCost]]:
    (topic,) = topics.create(stream.partitions)
    asked = {**asdict(stream), "topic": topic, "compression": "none", "headers": 0}
    if not stream.arrives:
        spark.ask({**asked, "do": "fill"})

    def read(reader: str) -> StreamCost:
        return _cost(stream, spark.ask({**asked, "do": "stream", "reader": reader}))

    costs = in_turns(READERS, rounds, read, f"{stream.name}: ")
    topics.delete([topic])
    return costs


def _cost(stream: Stream, answer: dict[str, Any]) -> StreamCost:
    rows, times_ms = answer["rows"], answer["micro_batches_ms"]
    if sum(rows) != stream.rows or max(rows) > stream.per_trigger:
        raise SystemExit(f"{stream.name}: micro-batches of {rows} rows")
    return StreamCost(answer["wall_s"], answer["cpu_s"], statistics.median(times_ms[1:]))


def stream_table(measured: Sequence[tuple[Stream, dict[str, list[StreamCost]]]]) -> str:
    head = "stream | source | million rows/s | CPU s | a micro-batch | x time of a micro-batch | x CPU"
    rows = []
    for stream, costs in measured:
        for reader in READERS:
            wall_s, cpu_s, micro_batch_ms = (
                statistics.median(getattr(each, field) for each in costs[reader])
                for field in ("wall_s", "cpu_s", "micro_batch_ms")
            )
            beside = f"{to_jvm(costs, 'micro_batch_ms'):.2f} | {to_jvm(costs, 'cpu_s'):.2f}"
            figures = f"{stream.rows / wall_s / 1e6:.2f} | {cpu_s:.1f} | {micro_batch_ms:.0f} ms"
            rows.append(f"{stream.name} | {reader} | {figures} | {beside if reader == PYKAFKA else ' | '}")
    return markdown(head, rows)


def to_jvm(costs: dict[str, list[StreamCost]], field: str) -> float:
    return median_ratio(costs[PYKAFKA], costs[JVM], field)

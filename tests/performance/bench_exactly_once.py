"""What exactly-once costs a stream: its micro-batches beside those of at-least-once, in one run.

    1 million rows, 2 slots             rows/s, of which at most a tenth may go
    800 rows, 8 slots                   milliseconds (p50) that a micro-batch takes longer, at most 25
    800 rows, 8 slots, 2 at a time      the same, where four waves of tasks follow upon each other

A slot is a Spark partition of a micro-batch. Files of parquet, so many a micro-batch that each is a slot, go through
a Spark session, of as many task slots as are said, to one local broker. A round has a query of each guarantee write
some micro-batches; the order turns. The first micro-batch of every query warms up: it finds coordinators and starts
workers. A micro-batch's time is Spark's own, `triggerExecution` of its progress: listing files, planning, tasks, commit
and both of Spark's logs. Tasks, commit and broker share the machine's cores, however many tasks run at a time.

After each query the topic's end offsets are compared with the rows, and with exactly-once with the control batches too:
one for each slot's transaction in every partition.

Prints a table, which goes to exactly_once.json in build/bench as well. Goals stand beside the figures; nothing asserts
them, machines differ.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from frame import arguments, bench, in_turns, link_files, micro_batches_ms, stopped, write_report
from kafka_sink.options.config import EXACTLY_ONCE
from spark_driver import A_PARTITION_A_FILE, UNIX_CONF, local_session, make_rows
from spark_environment import spark_environment
from spark_process import Topics
from spark_report import markdown

AT_LEAST_ONCE = "at-least-once"
PARTITIONS = 4
VALUE_BYTES = 100


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of micro-batch: its rows are spread evenly over `slots` files. `at_a_time`: Spark's task slots."""

    rows: int
    slots: int
    micro_batches: int
    at_a_time: int

    def __str__(self) -> str:
        waves = "" if self.at_a_time == self.slots else f", {self.at_a_time} at a time"
        return f"{self.rows:,} rows, {self.slots} slots{waves}"


CASES = (
    Case(rows=1_000_000, slots=2, micro_batches=3, at_a_time=2),
    Case(rows=800, slots=8, micro_batches=20, at_a_time=8),
    Case(rows=800, slots=8, micro_batches=20, at_a_time=2),
)


@dataclass(frozen=True, slots=True)
class Cost:
    """Medians, of micro-batches that were not a query's first, in milliseconds."""

    case: Case
    at_least_once_ms: float
    exactly_once_ms: float

    @property
    def more_ms(self) -> float:
        return self.exactly_once_ms - self.at_least_once_ms

    @property
    def rows_per_s_ratio(self) -> float:
        return self.at_least_once_ms / self.exactly_once_ms


def table(costs: Sequence[Cost]) -> str:
    rows = (
        f"{each.case} | {each.at_least_once_ms:.0f} ms | {each.exactly_once_ms:.0f} ms | {each.more_ms:.0f} ms | "
        f"{'<= 25 ms' if each.case.slots == 8 else ''} | {each.rows_per_s_ratio:.2f} x | "
        f"{'>= 0.9 x' if each.case.slots == 2 else ''}"
        for each in costs
    )
    return markdown("a micro-batch of | at-least-once | exactly-once | more | goal | rows/s | goal", rows)


def expected_end(case: Case, guarantee: str) -> int:
    """The sum of the topic's end offsets after a query, its first micro-batch included. Each slot's random keys reach
    every partition, and its transaction ends there with a control batch of one record."""
    markers = case.slots * PARTITIONS if guarantee == EXACTLY_ONCE else 0
    return (case.rows + markers) * (1 + case.micro_batches)


def measure(spark: SparkSession, topics: Topics, servers: str, case: Case, scratch: Path, rounds: int) -> Cost:
    """In a folder of the case's own."""
    made = scratch / "made"
    make_rows(spark, made, case.rows, VALUE_BYTES, files=case.slots)
    parts = sorted(made.glob("*.parquet"))
    if len(parts) != case.slots:
        raise AssertionError(f"{len(parts)} files instead of {case.slots}")
    folder = link_files(parts, scratch / "files", 1 + case.micro_batches)
    spark.conf.set("spark.sql.files.minPartitionNum", case.slots)

    def run(guarantee: str) -> list[int]:
        (topic,) = topics.create(PARTITIONS)
        options = {"kafka.bootstrap.servers": servers, "topic": topic, "deliveryGuarantee": guarantee}
        times_ms = micro_batches_ms(spark, folder, case.slots, case.micro_batches, "pykafka", options)
        end, expected = topics.row_count([topic], PARTITIONS), expected_end(case, guarantee)
        if end != expected:
            raise SystemExit(f"{case}, {guarantee}: the topic ends after {end} offsets instead of {expected}")
        return times_ms

    times_ms = in_turns((AT_LEAST_ONCE, EXACTLY_ONCE), rounds, run, f"{case}: ")
    medians = (statistics.median(itertools.chain(*times_ms[each])) for each in (AT_LEAST_ONCE, EXACTLY_ONCE))
    return Cost(case, *medians)


def main() -> None:
    options = arguments(__doc__, 5, each="both guarantees", output="exactly_once.json").parse_args()
    os.environ.update(spark_environment(os.environ))
    costs = []
    with bench() as (scratch, kafka, topics, _):
        for number, case in enumerate(CASES):
            of_case = scratch / f"case-{number}"
            of_case.mkdir()
            confs = {**A_PARTITION_A_FILE, UNIX_CONF: True}
            with stopped(local_session("exactly-once", f"local[{case.at_a_time}]", of_case, **confs)) as spark:
                costs.append(measure(spark, topics, kafka.bootstrap_servers, case, of_case, options.rounds))
            print(table(costs[-1:]), file=sys.stderr)
    print(table(costs))
    write_report(options.output / "exactly_once.json", costs)


if __name__ == "__main__":
    main()

"""`make bench-read`: sources of Spark side by side, a topic into Spark's `noop` sink, in one run.

Three sources read the same topic once a round; the order turns by one a round: pykafka, Spark's own source (the JVM's),
and a Python source whose Arrow batches are made beforehand, which is the least that any Python source takes. Then
pykafka and the JVM's source read streams (read_streams.py). Before the rounds, what both read of each topic is compared
by a checksum over all columns. The first round warms up.

CPU is all that the Spark application used: driver, JVM, daemon and workers, without the broker. Figures are medians;
ratios are medians of the rounds' ratios. Goals stand beside the figures; nothing asserts them, machines differ.
Results: a table, and read.json in build/bench.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from frame import arguments, as_json, bench, chosen, in_turns, jars, machine, write_report
from kafka_sink.records.kernel import KERNEL
from read_driver import JVM, PYKAFKA, READY
from read_streams import STREAMS, measure_stream, stream_table, to_jvm
from spark_driver import Cost
from spark_environment import HERE
from spark_process import SparkProcess
from spark_report import markdown, median_ratio

READERS = (PYKAFKA, JVM, READY)
# (rows/s, CPU a row) of pykafka as multiples of the JVM source's.
MAIN_GOAL, OTHER_GOAL = (2.0, 0.55), (1.0, None)


@dataclass(frozen=True, slots=True)
class Shape:
    """`headers`: of a row. `share`: of the rows of the run, for rows that are larger. `max_partitions`: of pykafka's
    DataFrame, 0 for no limit."""

    name: str
    value_bytes: int = 100
    compression: str = "none"
    headers: int = 0
    partitions: int = 4
    max_partitions: int = 0
    share: float = 1.0
    goal: tuple[float, float | None] = OTHER_GOAL

    def __str__(self) -> str:
        return self.name


SHAPES = (
    Shape("100 bytes", goal=MAIN_GOAL),
    Shape("100 bytes, zstd", compression="zstd", goal=MAIN_GOAL),
    Shape("10 bytes", value_bytes=10),
    Shape("1 KB", value_bytes=1_000, share=0.25),
    Shape("3 headers", headers=3, share=0.5),
    Shape("200 partitions", partitions=200),
    Shape("200 partitions, maxPartitions=4", partitions=200, max_partitions=4, goal=(20.0, 0.45)),
)


def measure(spark: SparkProcess, shape: Shape, topic: str, rows: int, rounds: int) -> dict[str, list[Cost]]:
    asked = {**asdict(shape), "topic": topic, "rows": rows}
    spark.ask({**asked, "do": "fill"})
    seen = [spark.ask({**asked, "do": "digest", "reader": reader}) for reader in (PYKAFKA, JVM)]
    if seen[0] != seen[1] or seen[0][0] != rows:
        raise SystemExit(f"{shape.name}: of {rows} rows, pykafka and the JVM's source read {seen}")

    def read(reader: str) -> Cost:
        return Cost(**spark.ask({**asked, "do": "read", "reader": reader}))

    return in_turns(READERS, rounds, read, f"{shape}: ")


def table(measured: Mapping[Shape, Mapping[str, Sequence[Cost]]], rows: Mapping[Shape, int]) -> str:
    head = "rows | source | million rows/s | CPU s per million rows | pykafka: x rows/s | pykafka: x CPU | goals"
    found = []
    for shape, costs in measured.items():
        for reader in READERS:
            wall_s, cpu_s = (
                statistics.median(getattr(each, name) for each in costs[reader]) for name in ("wall_s", "cpu_s")
            )
            beside = " |  | "
            if reader != PYKAFKA:
                faster = median_ratio(costs[reader], costs[PYKAFKA], "wall_s")
                rate_goal, cpu_goal = shape.goal
                goals = f">= {rate_goal:g} x" + ("" if cpu_goal is None else f", <= {cpu_goal:g} x CPU")
                cpu = median_ratio(costs[PYKAFKA], costs[reader], "cpu_s")
                beside = f"{faster:.2f} | {cpu:.2f} | {goals if reader == JVM else 'the floor'}"
            figures = f"{rows[shape] / wall_s / 1e6:.2f} | {cpu_s / rows[shape] * 1e6:.2f}"
            found.append(f"{shape} | {reader} | {figures} | {beside}")
    return markdown(head, found)


def main() -> None:
    parser = arguments(__doc__, 5, each="every source", output="read.json")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--only", nargs="*", default=[""], help="shapes with one of these words in their name")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    rows = {shape: int(options.rows * shape.share) for shape in chosen(SHAPES, options.only)}
    with bench() as (folder, kafka, topics, stack):
        given = {"jars": jars(), "servers": kafka.bootstrap_servers, "folder": str(folder)}
        spark = SparkProcess([HERE / "read_driver.py", as_json(given)], options.output / "spark-read.log")
        stack.callback(spark.stop)
        chosen_streams = chosen(STREAMS, options.only)
        streams = [(stream, measure_stream(spark, topics, stream, options.rounds)) for stream in chosen_streams]
        measured = {}
        for shape in rows:
            (topic,) = topics.create(shape.partitions)
            measured[shape] = measure(spark, shape, topic, rows[shape], options.rounds)
            topics.delete([topic])
    print(table(measured, rows), stream_table(streams), sep="\n")
    report = machine(**{"kafka broker": kafka.kafka_version}) | {"kernel": KERNEL.name, "rows": options.rows}
    report["shapes"] = [
        {**asdict(shape), "rounds": costs, "to_jvm": ratios(costs, JVM), "to_floor": ratios(costs, READY)}
        for shape, costs in measured.items()
    ]
    report["streams"] = [
        {
            **asdict(stream),
            "rounds": costs,
            "to_jvm": {each: to_jvm(costs, each) for each in ("cpu_s", "micro_batch_ms")},
        }
        for stream, costs in streams
    ]
    write_report(options.output / "read.json", report)


def ratios(costs: Mapping[str, Sequence[Cost]], to: str) -> dict[str, float]:
    return {field: median_ratio(costs[PYKAFKA], costs[to], field) for field in ("wall_s", "cpu_s")}


if __name__ == "__main__":
    main()

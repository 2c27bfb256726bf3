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

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession

from kafka_sink.broker import LocalKafka
from kafka_sink.options.config import EXACTLY_ONCE
from spark_driver import make_rows
from spark_environment import spark_environment
from spark_report import markdown

AT_LEAST_ONCE = "at-least-once"
PARTITIONS = 4
VALUE_BYTES = 100
ANSWER_TIMEOUT_S = 30.0
QUERY_TIMEOUT_S = 300


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
    head = ("a micro-batch of", "at-least-once", "exactly-once", "more", "goal", "rows/s", "goal")
    cells = [
        (
            str(each.case),
            f"{each.at_least_once_ms:.0f} ms",
            f"{each.exactly_once_ms:.0f} ms",
            f"{each.more_ms:.0f} ms",
            "<= 25 ms" if each.case.slots == 8 else "",
            f"{each.rows_per_s_ratio:.2f} x",
            ">= 0.9 x" if each.case.slots == 2 else "",
        )
        for each in costs
    ]
    return markdown(head, cells)


def expected_end(case: Case, guarantee: str) -> int:
    """The sum of the topic's end offsets after a query, its first micro-batch included. Each slot's random keys reach
    every partition, and its transaction ends there with a control batch of one record."""
    markers = case.slots * PARTITIONS if guarantee == EXACTLY_ONCE else 0
    return (case.rows + markers) * (1 + case.micro_batches)


class Streams:
    """Runs queries over the files of one case, in a folder of its own."""

    def __init__(self, spark: SparkSession, kafka: LocalKafka, scratch: Path) -> None:
        self._spark = spark
        self._kafka = kafka
        self._scratch = scratch
        self._number = 0
        self._consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "bench", "log_level": 2})

    def make_files(self, case: Case) -> Path:
        """A folder with the files of all micro-batches: those of the first, and links to them."""
        made, folder = self._scratch / "made", self._scratch / "files"
        make_rows(self._spark, made, case.rows, VALUE_BYTES, files=case.slots)
        parts = sorted(made.glob("*.parquet"))
        if len(parts) != case.slots:
            raise AssertionError(f"{len(parts)} files instead of {case.slots}")
        folder.mkdir()
        for micro_batch in range(1 + case.micro_batches):
            for part in parts:
                os.link(part, folder / f"{micro_batch:03}-{part.name}")
        return folder

    def run(self, case: Case, folder: Path, guarantee: str) -> list[int]:
        """Milliseconds of each micro-batch but the first."""
        self._number += 1
        topic = f"{self._scratch.name}-{guarantee}-{self._number}"
        self._kafka.create_topic(topic, PARTITIONS)
        self._spark.conf.set("spark.sql.files.minPartitionNum", case.slots)
        query = (
            self._spark.readStream.schema("key BINARY, value BINARY")
            .option("maxFilesPerTrigger", case.slots)
            .parquet(str(folder))
            .writeStream.format("pykafka")
            .option("kafka.bootstrap.servers", self._kafka.bootstrap_servers)
            .option("topic", topic)
            .option("deliveryGuarantee", guarantee)
            .option("checkpointLocation", str(self._scratch / f"checkpoint-{self._number}"))
            .trigger(availableNow=True)
            .start()
        )
        if not query.awaitTermination(QUERY_TIMEOUT_S):
            raise SystemExit(f"a query did not end within {QUERY_TIMEOUT_S} s")
        progress = [each for each in query.recentProgress if each.numInputRows]
        if len(progress) != 1 + case.micro_batches:
            raise AssertionError(f"{len(progress)} micro-batches instead of {1 + case.micro_batches}")
        end = self._end(topic)
        if end != expected_end(case, guarantee):
            raise SystemExit(f"{topic} ends at {end} instead of {expected_end(case, guarantee)}")
        return [each.durationMs["triggerExecution"] for each in progress[1:]]

    def _end(self, topic: str) -> int:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        return sum(self._consumer.get_watermark_offsets(each, timeout=ANSWER_TIMEOUT_S)[1] for each in partitions)

    def close(self) -> None:
        self._consumer.close()


def measure(streams: Streams, case: Case, rounds: int) -> Cost:
    folder = streams.make_files(case)
    times_ms: dict[str, list[int]] = {AT_LEAST_ONCE: [], EXACTLY_ONCE: []}
    for number in range(rounds + 1):
        for guarantee in (AT_LEAST_ONCE, EXACTLY_ONCE)[:: 1 if number % 2 else -1]:
            found = streams.run(case, folder, guarantee)
            if number > 0:  # the first warms up the JVM
                times_ms[guarantee] += found
    return Cost(case, statistics.median(times_ms[AT_LEAST_ONCE]), statistics.median(times_ms[EXACTLY_ONCE]))


@contextlib.contextmanager
def session(scratch: Path, at_a_time: int) -> Iterator[SparkSession]:
    spark = (
        SparkSession.builder.master(f"local[{at_a_time}]")
        .appName("pykafka exactly-once benchmark")
        .config("spark.driver.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.sql.files.maxPartitionBytes", "16g")
        # More than any file has, so that no two of them, and no part of one, become a Spark partition.
        .config("spark.sql.files.openCostInBytes", "1g")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    try:
        yield spark
    finally:
        spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="of both guarantees, after one to warm up")
    parser.add_argument("--output", type=Path, default=Path("build/bench"), help="where exactly_once.json goes")
    options = parser.parse_args()
    os.environ.update(spark_environment(os.environ))
    options.output.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pykafka-bench-")))
        kafka = stack.enter_context(LocalKafka())
        costs = []
        for number, case in enumerate(CASES):
            of_case = scratch / f"case-{number}"
            of_case.mkdir()
            with (
                session(of_case, case.at_a_time) as spark,
                contextlib.closing(Streams(spark, kafka, of_case)) as streams,
            ):
                costs.append(measure(streams, case, options.rounds))
            print(table(costs[-1:]), file=sys.stderr)
    print(table(costs))
    text = json.dumps([asdict(each) for each in costs], indent=2) + "\n"
    (options.output / "exactly_once.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

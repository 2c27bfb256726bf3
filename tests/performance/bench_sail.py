"""`make bench-sail`: batches on Sail beside those on a local Spark, both with pykafka, in one run.

    this process ─┬─> a local Kafka broker
                  ├─> an application on Spark, local[2]                     one of them works at a time
                  └─> an application with Sail's server, of parallelism 2

A read adds up the bytes of keys and values of a topic. A write is of parquet, to a topic made for it. Spark writes its
two files in two tasks, or in one after coalesce(1); Sail after repartition(2), or coalesce(1), as it has to.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import frame as shared
from frame import HERE, Application, Bench, arguments, bench, chosen, in_turns
from kafka_sink.records.kernel import KERNEL
from sail_driver import CORES, READ, SAIL, SPARK, WRITE
from spark_sessions import Cost, local_session, make_rows

PYTHON = HERE.parents[1] / "build" / "sail" / "bin" / "python"
PARTITIONS = 4
ENDS_S = 60


class Case(NamedTuple):
    """`tasks`: of a write."""

    what: str
    engine: str
    tasks: int = PARTITIONS

    def __str__(self) -> str:
        return f"{self.what}, {self.tasks} tasks, {self.engine}"


CASES = (
    Case(READ, SPARK), Case(READ, SAIL), Case(WRITE, SPARK, 1), Case(WRITE, SAIL, 1), Case(WRITE, SPARK, 2),
    Case(WRITE, SAIL, 2),
)  # fmt: skip


@dataclass
class Driver:
    """An application, by the Python that has its engine."""

    engine: str
    log: Path
    scratch: Path

    def __post_init__(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        python = PYTHON if self.engine == SAIL else sys.executable
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [python, HERE / "sail_driver.py", self.engine, self.scratch], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, text=True,
                env=os.environ | {"SAIL_EXECUTION__DEFAULT_PARALLELISM": str(CORES)},
            )  # fmt: skip
        self.versions: dict[str, str] = self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise SystemExit(f"{self.engine} has ended; the log is {self.log}")

    def ask(self, **asked: object) -> Cost:
        assert self._process.stdin is not None
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        return Cost(**self._answer())

    def stop(self) -> None:
        """The end of its requests ends it."""
        self._process.communicate(timeout=ENDS_S)


def make_files(folder: Path, rows: int, value_bytes: int) -> None:
    make_rows(local_session("rows", f"local[{CORES}]", folder), folder / "all", rows, value_bytes, CORES)


def measure(on: Bench, driver: Driver, case: Case, full: str, rows: int) -> Cost:
    asked = {"what": case.what, "servers": on.kafka.bootstrap_servers, "rows": rows}
    if case.what == READ:
        return driver.ask(**asked, topic=full)
    more = {"files": str(on.folder / "all"), "partitions": case.tasks}
    return on.topics.written(lambda names: driver.ask(**asked, **more, topic=names[0]), rows, PARTITIONS)


def table(costs: Mapping[Case, Sequence[Cost]], rows: int) -> str:
    head = "case | million rows/s | CPU s per million rows | Sail: x rows/s | Sail: x CPU"
    found, millions = [], rows / 1e6
    for case, of_case in costs.items():
        wall_s, cpu_s = (shared.median(of_case, field) for field in ("wall_s", "cpu_s"))
        beside, of_spark = " | ", costs.get(case._replace(engine=SPARK))
        if case.engine == SAIL and of_spark:
            faster = shared.median_ratio(of_spark, of_case, "wall_s")
            beside = f"{faster:.2f} | {shared.median_ratio(of_case, of_spark, 'cpu_s'):.2f}"
        found.append(f"{case} | {millions / wall_s:.2f} | {cpu_s / millions:.2f} | {beside}")
    return shared.markdown(head, found)


def main() -> None:
    parser = arguments(__doc__, 5, each="every case", output="sail.json", only="cases")
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    options = parser.parse_args()
    with bench() as on:
        of_rows = on.folder, options.rows, options.value_bytes
        Application(options.output / "sail-rows.log", make_files, *of_rows).stop()
        drivers = {engine: Driver(engine, options.output / f"sail-{engine}.log", on.folder) for engine in (SPARK, SAIL)}
        for driver in drivers.values():
            on.stack.callback(driver.stop)
        (full,) = on.topics.create(PARTITIONS)
        asked = {"what": WRITE, "servers": on.kafka.bootstrap_servers, "files": str(on.folder / "all")}
        drivers[SPARK].ask(**asked, topic=full, partitions=CORES)
        costs = in_turns(
            chosen(CASES, options.only), options.rounds,
            lambda case: measure(on, drivers[case.engine], case, full, options.rows),
        )  # fmt: skip
    print(table(costs, options.rows))
    report: dict[str, object] = {"kernel": KERNEL.name, "rows": options.rows, "value_bytes": options.value_bytes}
    report |= {f"versions of {engine}": driver.versions for engine, driver in drivers.items()}
    report["cases"] = [{**case._asdict(), "rounds": of_case} for case, of_case in costs.items()]
    shared.write_report(options.output / "sail.json", report, on.kafka)


if __name__ == "__main__":
    main()

"""`make bench-cold`: the first write, read, micro-batch and export of an application, and those after an idle minute.

Each run is an application of its own, whose session has run a job of the JVM: 1,000 rows, 4 partitions, `local[2]`.
pykafka, Spark's own `format("kafka")`, and a Python source and sink that do nothing, which is Spark's part of any
Python source, take turns. "export" is `kafka_sink.export`, beside a write of the others. After the job the application
waits until Spark has ended its idle workers (a minute), and runs the job again.

Figures are medians of the rounds; the first round finds all files on the disk and does not count. CPU is that of the
application, its JVM and all Python processes. The second table has the processes of each step: what Spark started them
for, how many, their CPU, and when the first of them began. `--conf` sets a conf of Spark in all applications, so that
settings can be compared; a `spark.python.daemon.module` of your own forgets what ended workers used.

Results: two tables, and cold.json in build/bench. Goals stand beside the figures; nothing asserts them, machines
differ.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from confluent_kafka import Producer

from cold_driver import EXPORT, JVM, MICRO_BATCH, NOTHING, PYKAFKA, READ, ROWS, WRITE, Process, Run
from frame import Bench, arguments, as_json, bench, chosen, in_turns, jars, machine, write_report
from kafka_sink.broker import LocalKafka
from nothing_source import PARTITIONS
from spark_environment import HERE, spark_environment
from spark_report import markdown

SINKS = (PYKAFKA, JVM, NOTHING)
STATES = ("cold", "idle")
IDLE_S = 65.0
# Of pykafka: at most so many times the seconds of `format("kafka")`, and seconds after an idle minute.
COLD_GOAL, IDLE_GOAL_S = 2.5, 0.5
TIMEOUT_S = 600


class Case(NamedTuple):
    job: str
    sink: str

    def __str__(self) -> str:
        return f"{self.job}, {self.sink}"


CASES = tuple(Case(job, sink) for job in (WRITE, READ, MICRO_BATCH, EXPORT) for sink in SINKS)


def fill(kafka: LocalKafka, topic: str) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for row in range(ROWS):
        producer.produce(topic, f'{{"id":{row}}}', str(row), partition=row % PARTITIONS)
    producer.flush()


def measure(on: Bench, case: Case, full: str, spark: dict[str, Any]) -> list[Run]:
    """Return the run of a new application, and the one after its idle time, if it has one."""
    (empty,) = on.topics.create(PARTITIONS)
    with tempfile.TemporaryDirectory(dir=on.folder) as folder:
        given = spark | case._asdict() | {"full": full, "empty": empty, "folder": folder}
        given["servers"] = on.kafka.bootstrap_servers
        ended = subprocess.run(
            [sys.executable, HERE / "cold_driver.py", as_json(given)],
            env=spark_environment(os.environ), capture_output=True, text=True, timeout=TIMEOUT_S,
        )  # fmt: skip
    if ended.returncode:
        raise SystemExit(f"{case}: {ended.stderr[-4_000:]}")
    runs = [Run(**json.loads(line)) for line in ended.stdout.splitlines() if line.startswith("{")]
    rows = on.topics.row_count([empty], PARTITIONS)
    if case.sink != NOTHING and case.job != READ and rows != ROWS * len(runs):
        raise SystemExit(f"{case}: {rows} rows instead of {ROWS * len(runs)}")
    on.topics.delete([empty])
    return runs


def table(measured: dict[Case, list[list[Run]]]) -> str:
    lines = []
    for job in dict.fromkeys(case.job for case in measured):
        for number, state in enumerate(STATES):
            runs = {sink: _runs(measured.get(Case(job, sink), ()), number) for sink in SINKS}
            if not all(runs.values()):
                continue
            walls = {sink: _median(run.wall_s for run in found) for sink, found in runs.items()}
            cells = [f"{walls[sink]:.2f} s | {_median(run.cpu_s for run in runs[sink]):.1f} s" for sink in SINKS]
            goal = f"<= {COLD_GOAL} x" if state == "cold" else f"<= {IDLE_GOAL_S} s"
            lines.append(f"{job}, {state} | {' | '.join(cells)} | {walls[PYKAFKA] / walls[JVM]:.2f} | {goal}")
    head = " | ".join(f"{sink} | CPU" for sink in SINKS)
    return markdown(f"first job of an application | {head} | pykafka: x kafka | goal", lines)


def steps_table(measured: dict[Case, list[list[Run]]]) -> str:
    lines = []
    for case, rounds in measured.items():
        for number, state in enumerate(STATES):
            of_steps = [_steps(run.processes) for run in _runs(rounds, number)]
            for step in dict.fromkeys(step for found in of_steps for step in found):
                found = [each[step] for each in of_steps if step in each]
                count, cpu_s, began_s = (_median(each[field] for each in found) for field in range(3))
                lines.append(f"{case}, {state} | {step} | {count:.0f} | {cpu_s:.2f} s | {began_s:.1f} s")
    return markdown("job | step | processes | CPU | the first began after", lines)


def _steps(processes: Iterable[Any]) -> dict[str, tuple[int, float, float]]:
    """Return how many processes each step had, their CPU, and when the first began, in that order."""
    found: dict[str, tuple[int, float, float]] = {}
    for each in sorted((Process(**process) for process in processes), key=lambda process: process.began_s):
        count, cpu_s, began_s = found.get(each.step, (0, 0.0, each.began_s))
        found[each.step] = count + 1, cpu_s + each.cpu_s, began_s
    return found


def _runs(rounds: Sequence[list[Run]], number: int) -> list[Run]:
    return [runs[number] for runs in rounds if len(runs) > number]


def _median(values: Iterable[float]) -> float:
    return statistics.median(values)


def main() -> None:
    parser = arguments(__doc__, 3, each="an application of each job and source", output="cold.json")
    parser.add_argument("--only", nargs="+", help="cases with one of these words, such as 'write' or 'kafka'")
    parser.add_argument("--idle", type=float, default=IDLE_S, help="seconds until the second run; 0 for none")
    parser.add_argument("--conf", action="append", default=[], help="name=value, a conf of Spark")
    options = parser.parse_args()
    with bench() as on:
        (full,) = on.topics.create(PARTITIONS)
        spark = {"jars": jars(), "idle_s": options.idle, "confs": options.conf}
        fill(on.kafka, full)
        measured = in_turns(chosen(CASES, options.only), options.rounds, lambda case: measure(on, case, full, spark))
        report = machine(**{"kafka broker": on.kafka.kafka_version})
    print(table(measured), steps_table(measured), sep="\n")
    report["cases"] = [{**case._asdict(), "rounds": rounds} for case, rounds in measured.items()]
    write_report(options.output / "cold.json", report)


if __name__ == "__main__":
    main()

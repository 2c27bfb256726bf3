"""`make bench-cold`: the first write, read, micro-batch and export of an application, and those after an idle minute.

Each run is an application of its own, whose session has run a job of the JVM: 1,000 rows, 4 partitions, `local[2]`.
pykafka, Spark's own `format("kafka")`, and a Python source and sink that do nothing, which is Spark's part of any
Python source, take turns. "export" is `kafka_sink.export`, beside a write of the others. After the job the application
waits until Spark has ended its idle workers (a minute), and runs the job again. The first round finds all files on the
disk. The second table has the processes of each step: what Spark started them for, how many, their CPU, and when the
first of them began. hypothesis, which kio imports where it finds it, is hidden, because users have none. `--conf` sets
a conf of Spark in all applications, so that settings can be compared; a `spark.python.daemon.module` of your own
forgets what ended workers used.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any, NamedTuple

from confluent_kafka import Producer

from cold_driver import EXPORT, JVM, MICRO_BATCH, NOTHING, PYKAFKA, READ, ROWS, WRITE, Run
from frame import HERE, Bench, arguments, bench, chosen, in_turns, jars, markdown, median, write_report
from python_peers import PARTITIONS

SINKS = (PYKAFKA, JVM, NOTHING)
STATES = ("cold", "idle")
# Of pykafka: at most so many times the seconds of `format("kafka")`, and seconds after an idle minute.
GOALS = {"cold": "<= 2.5 x", "idle": "<= 0.5 s"}
IDLE_S, TIMEOUT_S = 65.0, 600


class Case(NamedTuple):
    job: str
    sink: str

    def __str__(self) -> str:
        return f"{self.job}, {self.sink}"


CASES = tuple(Case(job, sink) for job in (WRITE, READ, MICRO_BATCH, EXPORT) for sink in SINKS)


def fill(on: Bench) -> str:
    """Return the name of a topic with rows."""
    (topic,) = on.topics.create(PARTITIONS)
    producer = Producer({"bootstrap.servers": on.kafka.bootstrap_servers})
    for row in range(ROWS):
        producer.produce(topic, f'{{"id":{row}}}', str(row), partition=row % PARTITIONS)
    producer.flush()
    return topic


def as_users(on: Bench) -> str:
    """Return a folder to search first, whose hypothesis cannot be imported."""
    folder = on.folder / "as-users"
    folder.mkdir(exist_ok=True)
    (folder / "hypothesis.py").write_text("raise ImportError\n")
    return str(folder)


def measure(on: Bench, case: Case, given: dict[str, Any]) -> list[Run]:
    """Return the run of a new application, and the one after its idle time, if it has one."""
    (empty,) = on.topics.create(PARTITIONS)
    with tempfile.TemporaryDirectory(dir=on.folder) as folder:
        given = given | case._asdict() | {"empty": empty, "folder": folder, "servers": on.kafka.bootstrap_servers}
        command = [sys.executable, str(HERE / "cold_driver.py"), json.dumps(given)]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join((as_users(on), os.environ["PYTHONPATH"]))}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    if ended.returncode:
        raise SystemExit(f"{case}: {ended.stderr[-4_000:]}")
    runs = [Run.read(line) for line in ended.stdout.splitlines() if line.startswith("{")]
    rows = on.topics.row_count([empty], PARTITIONS)
    if case.sink != NOTHING and case.job != READ and rows != ROWS * len(runs):
        raise SystemExit(f"{case}: {rows} rows instead of {ROWS * len(runs)}")
    on.topics.delete([empty])
    return runs


Measured = dict[Case, list[list[Run]]]


def table(measured: Measured) -> str:
    lines = []
    for job in dict.fromkeys(case.job for case in measured):
        for number, state in enumerate(STATES):
            runs = {sink: _runs(measured.get(Case(job, sink), ()), number) for sink in SINKS}
            if not all(runs.values()):
                continue
            walls = {sink: median(found, "wall_s") for sink, found in runs.items()}
            cells = [f"{walls[sink]:.2f} s | {median(found, 'cpu_s'):.1f} s" for sink, found in runs.items()]
            lines.append(f"{job}, {state} | {' | '.join(cells)} | {walls[PYKAFKA] / walls[JVM]:.2f} | {GOALS[state]}")
    head = " | ".join(f"{sink} | CPU" for sink in SINKS)
    return markdown(f"first job of an application | {head} | pykafka: x kafka | goal", lines)


def steps_table(measured: Measured) -> str:
    """Of each step the processes, their CPU, and when the first began, in that order."""
    lines = []
    for case, rounds in measured.items():
        for number, state in enumerate(STATES):
            runs = [sorted(run.processes, key=lambda each: each.began_s) for run in _runs(rounds, number)]
            for step in dict.fromkeys(each.step for run in runs for each in run):
                of_runs = [of for run in runs if (of := [each for each in run if each.step == step])]
                count = statistics.median(map(len, of_runs))
                cpu_s = statistics.median(sum(each.cpu_s for each in of) for of in of_runs)
                began_s = statistics.median(of[0].began_s for of in of_runs)
                lines.append(f"{case}, {state} | {step} | {count:.0f} | {cpu_s:.2f} s | {began_s:.1f} s")
    return markdown("job | step | processes | CPU | the first began after", lines)


def _runs(rounds: Sequence[list[Run]], number: int) -> list[Run]:
    return [runs[number] for runs in rounds if len(runs) > number]


def main() -> None:
    parser = arguments(__doc__, 3, each="an application of each job and source", output="cold.json", only="cases")
    parser.add_argument("--idle", type=float, default=IDLE_S, help="seconds until the second run; 0 for none")
    parser.add_argument("--conf", action="append", default=[], help="name=value, a conf of Spark")
    options = parser.parse_args()
    with bench() as on:
        given = {"jars": jars(), "idle_s": options.idle, "confs": options.conf, "full": fill(on)}
        measured = in_turns(chosen(CASES, options.only), options.rounds, lambda case: measure(on, case, given))
    print(table(measured), steps_table(measured), sep="\n")
    cases = [{**case._asdict(), "rounds": rounds} for case, rounds in measured.items()]
    write_report(options.output / "cold.json", {"cases": cases}, on.kafka)


if __name__ == "__main__":
    main()

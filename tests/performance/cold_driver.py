"""An application of `make bench-cold`: it runs one job in a session that has run a job of the JVM, and once more after
Spark has ended its idle workers. What every process used goes to stdout, a line of JSON for each run."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from nothing_source import PARTITIONS, NothingDataSource
from process_tree import TICKS_PER_S, running, tree_of
from spark_driver import COUNTED, local_session

PYKAFKA, JVM, NOTHING = "pykafka", "kafka", "nothing"
WRITE, READ, MICRO_BATCH, EXPORT = "write", "read", "micro-batch", "export"
ROWS = 1_000
DEADLINE_S = 120
LOOK_EVERY_S = 0.05


@dataclass(slots=True)
class Process:
    """`step`: what Spark started it for. `began_s`, `ended_s`: when it was seen first and last, since the job began."""

    step: str
    began_s: float
    ended_s: float
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Run:
    wall_s: float
    cpu_s: float
    processes: list[Process]


class Watch:
    """Looks at the Python processes below this one while a block runs."""

    def __init__(self) -> None:
        self.seen: dict[int, Process] = {}
        self._before: dict[int, float] = {}
        self._started_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Watch:
        self._before = {each.pid: each.cpu_ticks / TICKS_PER_S for each in tree_of(os.getpid(), running())}
        self._started_s = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._ended.wait(LOOK_EVERY_S):
            self._look()

    def _look(self) -> None:
        now_s = time.perf_counter() - self._started_s
        for each in tree_of(os.getpid(), running())[1:]:
            # A process that has ended has no command, and stays as a zombie that goes on to have its CPU.
            step = step_of(each.pid)
            if step:
                self.seen.setdefault(each.pid, Process(step, now_s, now_s)).ended_s = now_s
            if each.pid in self.seen:
                self.seen[each.pid].cpu_s = each.cpu_ticks / TICKS_PER_S - self._before.get(each.pid, 0.0)


def step_of(pid: int) -> str:
    """The module that Spark's daemon or worker runs, "JVM", or nothing for a process that has ended or is neither."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        words = Path("/proc", str(pid), "cmdline").read_text(errors="replace").split("\0")
        if words[0].endswith("java"):
            return "JVM"
        # The last one: python -m <daemon> <worker>.
        return next((word.removeprefix("pyspark.") for word in words[::-1] if word.startswith("pyspark.")), "")
    return ""


def job(spark: SparkSession, given: SimpleNamespace, folder: Path) -> Callable[[], object]:
    """The job without its preparation. `given`: `job`, `sink`, `servers`, and topics `full` and `empty`."""
    sink, to = given.sink, given.empty
    servers = {"kafka.bootstrap.servers": given.servers}
    write = {"rows": str(ROWS)} if sink == NOTHING else servers | {"topic": to}
    read = {"rows": str(ROWS)} if sink == NOTHING else servers | {"subscribe": given.full}
    rows = spark.range(0, ROWS, 1, PARTITIONS)
    values = rows.selectExpr("binary(string(id)) AS key", "binary(to_json(struct(id))) AS value")

    def micro_batch() -> None:
        first = spark.readStream.format(sink).options(**read, startingOffsets="earliest").load()
        query = (
            first.select("key", "value").writeStream.format(sink).options(**write)
            .option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
        )  # fmt: skip
        if not query.awaitTermination(DEADLINE_S):
            raise SystemExit(f"the query did not end within {DEADLINE_S} s")

    def export() -> object:
        import kafka_sink

        return kafka_sink.export(rows, to, value="json", bootstrap_servers=given.servers, progress=False)

    def written(frame: DataFrame, format_name: str, **options: str) -> None:
        frame.write.format(format_name).options(**options).mode("append").save()

    if given.job == MICRO_BATCH:
        return micro_batch
    if given.job == READ:
        return lambda: written(spark.read.format(sink).options(**read).load(), "noop")
    if given.job == EXPORT and sink == PYKAFKA:
        return export
    return lambda: written(values, sink, **write)


def measured(work: Callable[[], object]) -> Run:
    before_s, started_s = time.process_time(), time.perf_counter()
    with Watch() as watch:
        work()
        wall_s = time.perf_counter() - started_s
    # Of each process by itself: Spark's planners have a daemon that forgets those that have ended.
    processes = [*watch.seen.values()]
    return Run(wall_s, time.process_time() - before_s + sum(each.cpu_s for each in processes), processes)


def main(given: Any) -> None:
    """`given`: as for `job`, and `jars`, `folder`, `idle_s` and `confs` of Spark."""
    folder = Path(given.folder)
    confs = dict(conf.removeprefix("spark.").split("=", 1) for conf in given.confs)
    spark = local_session("cold", "local[2]", folder, **{"jars": given.jars, **COUNTED, **confs})
    if given.sink == NOTHING:
        spark.dataSource.register(NothingDataSource)
    spark.range(10).write.format("noop").mode("overwrite").save()
    for number, idle_s in enumerate((0, given.idle_s)):
        if number and not idle_s:
            break
        time.sleep(idle_s)
        print(json.dumps(measured(job(spark, given, folder / f"checkpoint-{number}")), default=asdict), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(SimpleNamespace(**json.loads(sys.argv[1])))

"""An application of `make bench-cold`: it runs one job in a session that has run a job of the JVM, and once more after
Spark has ended its idle workers. What every process used goes to stdout, a line of JSON for each run."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace

from pyspark.sql import DataFrame, SparkSession

from process_tree import TICKS_PER_S, running, tree_of
from python_peers import PARTITIONS, NothingDataSource
from spark_sessions import COUNTED, local_session

PYKAFKA, JVM, NOTHING = "pykafka", "kafka", "nothing"
WRITE, READ, MICRO_BATCH, EXPORT = "write", "read", "micro-batch", "export"
ROWS, DEADLINE_S, LOOK_EVERY_S = 1_000, 120, 0.05


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

    @classmethod
    def read(cls, line: str) -> Run:
        fields = json.loads(line)
        return cls(**fields | {"processes": [Process(**each) for each in fields["processes"]]})


@contextlib.contextmanager
def watched() -> Iterator[dict[int, Process]]:
    """Look at the processes below this one while the block runs. What they used is there when it has ended."""
    before = {each.pid: each.cpu_ticks / TICKS_PER_S for each in tree_of(os.getpid(), running())}
    seen: dict[int, Process] = {}
    started_s, ended = time.perf_counter(), threading.Event()

    def look() -> None:
        now_s = time.perf_counter() - started_s
        for each in tree_of(os.getpid(), running())[1:]:
            # A process that has ended has no command, and stays as a zombie that goes on to have its CPU.
            if step := step_of(each.pid):
                seen.setdefault(each.pid, Process(step, now_s, now_s)).ended_s = now_s
            if each.pid in seen:
                seen[each.pid].cpu_s = each.cpu_ticks / TICKS_PER_S - before.get(each.pid, 0.0)

    def watch() -> None:
        while not ended.wait(LOOK_EVERY_S):
            look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()
        look()


def step_of(pid: int) -> str:
    """The module that Spark's daemon or worker runs, "JVM", or nothing for a process that has ended or is neither."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        words = Path("/proc", str(pid), "cmdline").read_text(errors="replace").split("\0")
        if words[0].endswith("java"):
            return "JVM"
        # The last one: python -m <daemon> <worker>.
        return next((word.removeprefix("pyspark.") for word in words[::-1] if word.startswith("pyspark.")), "")
    return ""


def job(spark: SparkSession, given: SimpleNamespace, checkpoint: str) -> Callable[[], object]:
    """The job without its preparation. `given`: `job`, `sink`, `servers`, and topics `full` and `empty`."""
    sink, to = given.sink, given.empty
    servers = {"kafka.bootstrap.servers": given.servers}
    write = {"rows": str(ROWS)} if sink == NOTHING else servers | {"topic": to}
    read = {"rows": str(ROWS)} if sink == NOTHING else servers | {"subscribe": given.full}
    rows = spark.range(0, ROWS, 1, PARTITIONS)
    values = rows.selectExpr("binary(string(id)) AS key", "binary(to_json(struct(id))) AS value")

    def micro_batch() -> None:
        first = spark.readStream.format(sink).options(**read, startingOffsets="earliest").load()
        writer = first.select("key", "value").writeStream.format(sink).options(**write)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
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
    with watched() as seen:
        work()
        wall_s = time.perf_counter() - started_s
    # Of each process by itself: Spark's planners have a daemon that forgets those that have ended.
    cpu_s = time.process_time() - before_s + sum(each.cpu_s for each in seen.values())
    return Run(wall_s, cpu_s, [*seen.values()])


def main(given: SimpleNamespace) -> None:
    """`given`: as for `job`, and `jars`, `folder`, `idle_s` and `confs` of Spark."""
    confs = dict(conf.removeprefix("spark.").split("=", 1) for conf in given.confs)
    spark = local_session("cold", "local[2]", Path(given.folder), **{"jars": given.jars, **COUNTED, **confs})
    if given.sink == NOTHING:
        spark.dataSource.register(NothingDataSource)
    spark.range(10).write.format("noop").mode("overwrite").save()
    for number, idle_s in enumerate((0, given.idle_s)[: 2 if given.idle_s else 1]):
        time.sleep(idle_s)  # the idle time is what is measured
        run = measured(job(spark, given, f"{given.folder}/checkpoint-{number}"))
        print(json.dumps(run, default=asdict), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(SimpleNamespace(**json.loads(sys.argv[1])))

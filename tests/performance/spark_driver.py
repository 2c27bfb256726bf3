"""A Spark application that writes when it is told to: a process of its own, so that what it uses can be counted.

    bench_spark.py ──a line of JSON──> spark_driver.py ──> its JVM ──> Python daemon ──> Python workers
                   <──a Cost──────────

It is started once a kind of socket (`spark_peers`) and answers each request on stdin, `{"peer": 3, "topic": "t",
"small": false}`, on stdout with the wall and CPU seconds of the write. Local Spark with two cores, and two files of
parquet that become two tasks. What differs from Spark's defaults is a heap of 2 GB, no UI, a daemon whose workers can
be counted, and what makes the two files two partitions.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace

from pyspark.sql import DataFrame, SparkSession

from process_tree import cpu_s
from python_peers import DiscardingDataSource
from spark_peers import PEERS, UNIX, SameSettings, Servers, write

KEY_BYTES = 8
TASKS = 2
SMALL_ROWS = 40_000


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one write, in seconds. `cpu_s`: of this process and all below it, so not the broker's, which is apart.
    `log_bytes`: what the broker's log of it takes."""

    wall_s: float
    cpu_s: float
    broker_cpu_s: float = 0.0
    log_bytes: int = 0


def local_session(name: str, master: str, scratch: Path, **confs: object) -> SparkSession:
    """`confs`: of Spark, without `spark.`, and with underscores for dots."""
    common = {"driver_memory": "2g", "ui_enabled": False, "ui_showConsoleProgress": False}
    builder = SparkSession.builder.master(master).appName(f"pykafka {name} benchmark")
    for conf, setting in {**common, "sql_warehouse_dir": scratch / "warehouse", **confs}.items():
        text = str(setting).lower() if isinstance(setting, bool) else str(setting)
        builder = builder.config(f"spark.{conf.replace('_', '.')}", text)
    spark = builder.getOrCreate()
    spark.dataSource.register(DiscardingDataSource)
    return spark


# No two files, and no part of one, become a Spark partition: the cost of opening is more than any file has.
A_PARTITION_A_FILE = {"sql_files_maxPartitionBytes": "16g", "sql_files_openCostInBytes": "1g"}
COUNTED = {"python_daemon_module": "counting_daemon"}
UNIX_CONF = "python_unix_domain_socket_enabled"


def session(sockets: str, jars: str, scratch: Path, confs: Sequence[str] = ()) -> SparkSession:
    """`confs`: name=value, of Spark."""
    given = dict(conf.removeprefix("spark.").split("=", 1) for conf in confs)
    common = {"jars": jars, "sql_files_maxPartitionBytes": "16g", UNIX_CONF: sockets == UNIX, **COUNTED}
    return local_session("sinks", f"local[{TASKS}]", scratch, **(common | given))


def timed(work: Callable[[], object]) -> Cost:
    started_s, cpu_before_s = time.perf_counter(), cpu_s(os.getpid())
    work()
    return Cost(wall_s=time.perf_counter() - started_s, cpu_s=cpu_s(os.getpid()) - cpu_before_s)


def serve(spark: SparkSession, answer: Callable[[SimpleNamespace], object]) -> None:
    """Say that the application is ready, and answer each line of stdin until there is none."""
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(SimpleNamespace(**json.loads(line))), default=asdict), flush=True)
    spark.stop()


KEY = "unhex(lpad(hex(xxhash64(id)), 16, '0')) AS key"


def value(value_bytes: int) -> str:
    """A column of values as an application's JSON looks to a compressor: repeated names around a few numbers, and a
    token of hex digits that takes what room is left, in which only every other bit is news."""
    hex_digits = f"array_join(transform(sequence(0, {value_bytes // 32}), i -> md5(string(id * 1000 + i))), '')"
    text = (
        'concat(\'{"order":\', id, \',"tenant":\', id % 97, \',"event":"\', '
        f"element_at(array('view', 'cart', 'order'), int(id % 3 + 1)), '\",\"token\":\"', {hex_digits})"
    )
    return f"binary(left({text}, {value_bytes})) AS value"


def make_rows(spark: SparkSession, folder: Path, rows: int, value_bytes: int, *, files: int = TASKS) -> None:
    """Random keys, and values of `value`."""
    frame = spark.range(0, rows, 1, files).selectExpr(KEY, value(value_bytes))
    frame.write.mode("overwrite").parquet(str(folder))


def read_rows(spark: SparkSession, folder: Path) -> DataFrame:
    frame = spark.read.parquet(str(folder))
    partitions = frame.rdd.getNumPartitions()
    if partitions != TASKS:
        raise AssertionError(f"{partitions} tasks instead of {TASKS}")
    return frame


def main(given: SimpleNamespace) -> None:
    """`given`: `sockets`, `servers` and `same` of `spark_peers`, `jars`, `rows`, `value_bytes`, the `folder` of rows
    and of what Spark leaves behind, `makes_rows`, and `confs` of Spark."""
    folder, same, servers = Path(given.folder), SameSettings(**given.same), Servers(**given.servers)
    spark = session(given.sockets, given.jars, folder, given.confs)
    counts = {"small": SMALL_ROWS, "all": given.rows}
    if given.makes_rows:
        for name, rows in counts.items():
            make_rows(spark, folder / name, rows, given.value_bytes)

    def answer(asked: SimpleNamespace) -> Cost:
        which = "small" if asked.small else "all"
        frame = read_rows(spark, folder / which)
        return timed(lambda: write(frame, PEERS[asked.peer], same, servers, asked.topic, counts[which]))

    serve(spark, answer)


if __name__ == "__main__":
    main(SimpleNamespace(**json.loads(sys.argv[1])))

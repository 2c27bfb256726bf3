"""A Spark application that writes when it is told to: a process of its own, so that what it uses can be counted.

    bench_spark.py ──a line of JSON──> spark_driver.py ──> its JVM ──> Python daemon ──> Python workers
                   <──a Cost──────────

It is started once a kind of socket (`spark_peers`) and answers each request on stdin, `{"peer": 3, "topic": "t",
"small": false}`, on stdout with the wall and CPU seconds of the write. Local Spark with two cores, and two files of
parquet that become two tasks. What differs from Spark's defaults is a heap of 2 GB, no UI, a daemon whose workers can
be counted, and what makes the two files two partitions.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

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


def session(sockets: str, jars: str, scratch: Path, confs: Sequence[str] = ()) -> SparkSession:
    """`confs`: name=value, of Spark."""
    builder = (
        SparkSession.builder.master(f"local[{TASKS}]")
        .appName("pykafka benchmark")
        .config("spark.driver.memory", "2g")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.sql.files.maxPartitionBytes", "16g")
        .config("spark.python.daemon.module", "counting_daemon")
        .config("spark.python.unix.domain.socket.enabled", str(sockets == UNIX).lower())
    )
    for conf in confs:
        name, _, value = conf.partition("=")
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.dataSource.register(DiscardingDataSource)
    return spark


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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sockets", required=True)
    parser.add_argument("--jars", required=True, help="of Spark's Kafka sink, by commas")
    parser.add_argument("--servers", required=True, help="Servers as JSON")
    parser.add_argument("--same", required=True, help="SameSettings as JSON")
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--value-bytes", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True, help="of the rows, and of what Spark leaves behind")
    parser.add_argument("--make-rows", action="store_true")
    parser.add_argument("--conf", action="append", default=[], help="of Spark, as spark-submit has it")
    options = parser.parse_args()
    same = SameSettings(**json.loads(options.same))
    servers = Servers(**json.loads(options.servers))
    spark = session(options.sockets, options.jars, options.folder, options.conf)
    counts = {"small": SMALL_ROWS, "all": options.rows}
    if options.make_rows:
        for name, rows in counts.items():
            make_rows(spark, options.folder / name, rows, options.value_bytes)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        which = "small" if asked["small"] else "all"
        frame = read_rows(spark, options.folder / which)
        started_s, cpu_before_s = time.perf_counter(), cpu_s(os.getpid())
        write(frame, PEERS[asked["peer"]], same, servers, asked["topic"], counts[which])
        cost = Cost(wall_s=time.perf_counter() - started_s, cpu_s=cpu_s(os.getpid()) - cpu_before_s)
        print(json.dumps(asdict(cost)), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()

"""Local sessions of Spark for benchmarks, their rows, and what work in one costs. Imports nothing of the package."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from process_tree import cpu_s
from python_peers import DiscardingDataSource

# No two files, and no part of one, become a Spark partition: the cost of opening is more than any file has.
A_PARTITION_A_FILE = {"sql_files_maxPartitionBytes": "16g", "sql_files_openCostInBytes": "1g"}
COUNTED = {"python_daemon_module": "counting_daemon"}
UNIX_CONF = "python_unix_domain_socket_enabled"
KEY = "unhex(lpad(hex(xxhash64(id)), 16, '0')) AS key"


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one write or read. `cpu_s`: of the application and all below it, without the broker's. `log_bytes`: what the
    broker's log takes. `peak_bytes`: of the largest worker, over one that has written nothing, where it is looked at.
    """

    wall_s: float
    cpu_s: float
    broker_cpu_s: float = 0.0
    log_bytes: int = 0
    peak_bytes: int = 0


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


def timed(work: Callable[[], object]) -> Cost:
    started_s, cpu_before_s = time.perf_counter(), cpu_s(os.getpid())
    work()
    return Cost(wall_s=time.perf_counter() - started_s, cpu_s=cpu_s(os.getpid()) - cpu_before_s)


def value(value_bytes: int) -> str:
    """A column of values as an application's JSON looks to a compressor: repeated names around a few numbers, and a
    token of hex digits that takes what room is left, in which only every other bit is news."""
    hex_digits = f"array_join(transform(sequence(0, {value_bytes // 32}), i -> md5(string(id * 1000 + i))), '')"
    text = (
        'concat(\'{"order":\', id, \',"tenant":\', id % 97, \',"event":"\', '
        f"element_at(array('view', 'cart', 'order'), int(id % 3 + 1)), '\",\"token\":\"', {hex_digits})"
    )
    return f"binary(left({text}, {value_bytes})) AS value"


def make_rows(spark: SparkSession, folder: Path, rows: int, value_bytes: int, files: int) -> None:
    """Random keys, and values of `value`."""
    frame = spark.range(0, rows, 1, files).selectExpr(KEY, value(value_bytes))
    frame.write.mode("overwrite").parquet(str(folder))

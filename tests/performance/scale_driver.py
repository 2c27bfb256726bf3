"""A Spark application with one streaming query at a time, which gets its rows when it is told to.

    bench_scale.py ──a line of JSON──> scale_driver.py ──> its JVM ──> executors ──> Python workers
                   <──a line of JSON──

It is a process of its own so that what it uses can be counted. Rows are files of parquet, made once, one for each Spark
partition of a micro-batch. To run micro-batches is to link the files into a folder that the query watches, all of them
in one moment; the query takes as many files a micro-batch as there are task slots. Between two requests the query is
active and has nothing to do: what it keeps open can be looked at.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from process_tree import cpu_s
from scale_model import Layout
from spark_driver import make_rows

VALUE_BYTES = 100
SMALL_ROWS_A_TASK = 100
# An executor runs no planning and no query, so a driver beside executors needs little.
DRIVER_MEMORY, DRIVER_MEMORY_BESIDE_EXECUTORS = "1g", "700m"


def session(layout: Layout, jars: str, scratch: Path) -> SparkSession:
    driver_memory = DRIVER_MEMORY if layout.executor_mib is None else DRIVER_MEMORY_BESIDE_EXECUTORS
    builder = (
        SparkSession.builder.master(layout.master)
        .appName("pykafka scale benchmark")
        .config("spark.driver.memory", driver_memory)
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.sql.files.maxPartitionBytes", "16g")
        # More than any file has, so that no two of them, and no part of one, become a Spark partition.
        .config("spark.sql.files.openCostInBytes", "1g")
        .config("spark.sql.files.minPartitionNum", layout.slots)
        # The sinks' query has no state.
        .config("spark.sql.shuffle.partitions", 1)
        .config("spark.python.daemon.module", "counting_daemon")
        .config("spark.python.unix.domain.socket.enabled", "true")
    )
    if layout.executor_mib is not None:
        builder = builder.config("spark.executor.memory", f"{layout.executor_mib}m")
    return builder.getOrCreate()


class Stream:
    """A query that writes what is linked into its folder."""

    def __init__(self, spark: SparkSession, scratch: Path, slots: int, asked: dict[str, Any]) -> None:
        self._slots = slots
        self._folder = scratch / f"query-{asked['topic']}"
        self._incoming = self._folder / "incoming"
        self._incoming.mkdir(parents=True)
        self._linked = 0
        self._last_batch_id = -1
        self._query: StreamingQuery = (
            spark.readStream.schema("key BINARY, value BINARY")
            .option("maxFilesPerTrigger", slots)
            .parquet(f"{self._incoming}/*")
            .writeStream.format(asked["format"])
            .options(**asked["options"])
            .option("topic", asked["topic"])
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .start()
        )

    def run(self, rows: Path, micro_batches: int) -> dict[str, Any]:
        """Wait until the query has written the files of `rows` so many times. Return the milliseconds of each
        micro-batch, its rows, and the CPU seconds of the application meanwhile."""
        before_s = cpu_s(os.getpid())
        self._link(sorted(rows.glob("*.parquet")), micro_batches)
        self._query.processAllAvailable()
        progress = [
            each for each in self._query.recentProgress if each.numInputRows and each.batchId > self._last_batch_id
        ]
        self._last_batch_id = progress[-1].batchId
        return {
            "cpu_s": cpu_s(os.getpid()) - before_s,
            "micro_batches_ms": [each.durationMs["triggerExecution"] for each in progress],
            "rows": [each.numInputRows for each in progress],
        }

    def _link(self, parts: list[Path], micro_batches: int) -> None:
        if len(parts) != self._slots:
            raise AssertionError(f"{len(parts)} files instead of {self._slots}")
        self._linked += 1
        # Complete before the query can see it: a folder of another name, then renamed.
        made = self._folder / f"made-{self._linked}"
        made.mkdir()
        for micro_batch in range(micro_batches):
            for part in parts:
                os.link(part, made / f"{micro_batch:03}-{part.name}")
        made.rename(self._incoming / made.name)

    def stop(self) -> None:
        self._query.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def make_files(spark: SparkSession, folder: Path, slots: int, rows: int) -> None:
    """`small` and `large`, unless another application of the same layout has made them."""
    for name, count in (("small", SMALL_ROWS_A_TASK * slots), ("large", rows)):
        if not (folder / name).exists():
            make_rows(spark, folder / name, count, VALUE_BYTES, files=slots)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--master", required=True, help="local[N] or local-cluster[executors,cores,MiB]")
    parser.add_argument("--jars", required=True, help="of Spark's Kafka sink, by commas")
    parser.add_argument("--rows", type=int, required=True, help="of a large micro-batch")
    parser.add_argument("--files", type=Path, required=True, help="of the rows; shared by applications of one layout")
    parser.add_argument("--folder", type=Path, required=True, help="of what Spark leaves behind")
    options = parser.parse_args()
    layout = Layout.of(options.master)
    spark = session(layout, options.jars, options.folder)
    make_files(spark, options.files, layout.slots, options.rows)
    print(json.dumps("ready"), flush=True)
    stream: Stream | None = None
    for line in sys.stdin:
        asked = json.loads(line)
        answer: object = None
        match asked["do"]:
            case "start":
                stream = Stream(spark, options.folder, layout.slots, asked)
            case "run" if stream is not None:
                answer = stream.run(options.files / asked["rows"], asked["micro_batches"])
            case "stop" if stream is not None:
                stream.stop()
        print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()

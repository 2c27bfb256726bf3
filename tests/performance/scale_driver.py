"""A Spark application with one streaming query at a time, which gets its rows when it is told to.

    bench_scale.py ──a line of JSON──> scale_driver.py ──> its JVM ──> executors ──> Python workers
                   <──a line of JSON──

It is a process of its own so that what it uses can be counted. Rows are files of parquet, made once, one for each Spark
partition of a micro-batch. To run micro-batches is to link the files into a folder that the query watches, all of them
in one moment; the query takes as many files a micro-batch as there are task slots. Between two requests the query is
active and has nothing to do: what it keeps open can be looked at.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyspark.sql import SparkSession

from frame import link_files
from process_tree import cpu_s
from scale_model import Layout
from spark_driver import A_PARTITION_A_FILE, COUNTED, UNIX_CONF, local_session, make_rows, serve

VALUE_BYTES = 100
SMALL_ROWS_A_TASK = 100
# An executor runs no planning and no query, so a driver beside executors needs little.
DRIVER_MEMORY, DRIVER_MEMORY_BESIDE_EXECUTORS = "1g", "700m"


def session_of(layout: Layout, jars: str, scratch: Path) -> SparkSession:
    """The sinks' query has no state."""
    of_executors = {} if layout.executor_mib is None else {"executor_memory": f"{layout.executor_mib}m"}
    confs = {
        "jars": jars,
        "driver_memory": DRIVER_MEMORY if layout.executor_mib is None else DRIVER_MEMORY_BESIDE_EXECUTORS,
        "sql_files_minPartitionNum": layout.slots,
        "sql_shuffle_partitions": 1,
        UNIX_CONF: True,
    }
    return local_session("scale", layout.master, scratch, **A_PARTITION_A_FILE, **COUNTED, **confs, **of_executors)


class Stream:
    """A query that writes what is linked into its folder."""

    def __init__(self, spark: SparkSession, scratch: Path, slots: int, asked: SimpleNamespace) -> None:
        self._slots = slots
        self._folder = scratch / f"query-{asked.topic}"
        self._incoming = self._folder / "incoming"
        self._incoming.mkdir(parents=True)
        self._linked = 0
        self._last_batch_id = -1
        reader = spark.readStream.schema("key BINARY, value BINARY").option("maxFilesPerTrigger", slots)
        writer = reader.parquet(f"{self._incoming}/*").writeStream.format(asked.format).options(**asked.options)
        checkpoint = str(self._folder / "checkpoint")
        self._query = writer.option("topic", asked.topic).option("checkpointLocation", checkpoint).start()

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
        link_files(parts, made, micro_batches)
        made.rename(self._incoming / made.name)

    def stop(self) -> None:
        self._query.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def make_files(spark: SparkSession, folder: Path, slots: int, rows: int) -> None:
    """`small` and `large`, unless another application of the same layout has made them."""
    for name, count in (("small", SMALL_ROWS_A_TASK * slots), ("large", rows)):
        if not (folder / name).exists():
            make_rows(spark, folder / name, count, VALUE_BYTES, files=slots)


def main(master: str, jars: str, rows: int, files: str, folder: str) -> None:
    """`jars`: of Spark's Kafka sink, by commas. `rows`: of a large micro-batch. `files`: of the rows; shared by
    applications of one layout. `folder`: of what Spark leaves behind."""
    layout = Layout.of(master)
    spark = session_of(layout, jars, Path(folder))
    make_files(spark, Path(files), layout.slots, rows)
    streams: list[Stream] = []

    def answer(asked: SimpleNamespace) -> object:
        match asked.do:
            case "start":
                streams.append(Stream(spark, Path(folder), layout.slots, asked))
            case "stop":
                streams.pop().stop()
            case _:
                return streams[0].run(Path(files) / asked.rows, asked.micro_batches)
        return None

    serve(spark, answer)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))

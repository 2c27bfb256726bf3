"""Exactly-once writes during which Spark runs a stage again, in an application of its own. Run as a script:

    stage_again_app.py <bootstrap servers> <topic> <fault> <folder> [batch | stream | barrier] [<conf>=<value> ...]

ROWS rows are shuffled, and the tasks of the reduce stage write them, in SLOTS slots. The fault is one of `FAULTS`. It
happens once, in the first attempt of slot 1, after its rows have arrived. The first attempt of slot 0 goes on when
Spark has begun a second one, if it does. If the write fails, the same version is written again, or the stream started
again. The last line of stdout is JSON: the errors, and how many attempts each slot had. `folder` gets the application's
files.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import kafka_sink
from spark_writes import pykafka

ROWS, MAPS, SLOTS = 2_000, 2, 4
MOST_RUNS = 3
SECOND_ATTEMPT_S = 20
MOST_OF_AN_ERROR = 1_000


def delete_shuffle_files(folder: Path) -> None:
    for file in (folder / "local").rglob("shuffle_*"):
        file.unlink(missing_ok=True)


def signal_executor(number: int) -> None:
    """Send a signal to the nearest JVM above this process."""
    found = os.getpid()
    while Path(f"/proc/{found}/comm").read_text() != "java\n":
        found = int(Path(f"/proc/{found}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(found, number)


FAULTS: dict[str, Callable[[Path], None]] = {
    "shuffle files deleted": delete_shuffle_files,
    "executor killed": lambda folder: signal_executor(signal.SIGKILL),
    # As Spark does to an executor whose host goes (spark.decommission.enabled).
    "executor decommissioned": lambda folder: signal_executor(signal.SIGPWR),
    "worker killed": lambda folder: os.kill(os.getpid(), signal.SIGKILL),
}


def reduced(frame: DataFrame, fault: str, folder: Path, *, barrier: bool) -> DataFrame:
    """Return the same rows, in which the fault happens."""

    def number_of_attempt(slot: int) -> int:
        number = 0
        while True:
            try:
                os.close(os.open(folder / f"attempt-{slot}-{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                number += 1
            else:
                return number

    def in_reduce_stage(arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        slot = context.partitionId()
        attempt = number_of_attempt(slot)
        rows = list(arrow_batches)
        if (slot, attempt) == (1, 0):
            FAULTS[fault](folder)
        if (slot, attempt) == (0, 0):
            end_s = time.monotonic() + SECOND_ATTEMPT_S
            while not (folder / "attempt-0-1").exists() and time.monotonic() < end_s:
                time.sleep(0.02)
        yield from rows

    return frame.mapInArrow(in_reduce_stage, frame.schema, barrier=barrier)


def write_batch(spark: SparkSession, servers: str, topic: str, fault: str, folder: Path, *, barrier: bool) -> None:
    rows = spark.range(0, ROWS, 1, MAPS).selectExpr("cast(id AS STRING) AS value").repartition(SLOTS, "value")
    writer = reduced(rows, fault, folder, barrier=barrier).write.mode("append")
    identity = {"deliveryGuarantee": "exactly-once", "txnAppId": topic, "txnVersion": "0"}
    pykafka(writer, servers, topic).options(**identity).save()


def write_stream(spark: SparkSession, servers: str, topic: str, fault: str, folder: Path) -> None:
    incoming = folder / "incoming"
    if not incoming.exists():
        spark.range(0, ROWS, 1, MAPS).selectExpr("cast(id AS STRING) AS value").write.parquet(str(incoming))
    rows = spark.readStream.schema("value STRING").parquet(str(incoming)).repartition(SLOTS, "value")
    writer = reduced(rows, fault, folder, barrier=False).writeStream.trigger(availableNow=True)
    identity = {"deliveryGuarantee": "exactly-once", "checkpointLocation": str(folder / "checkpoint")}
    pykafka(writer, servers, topic).options(**identity).start().awaitTermination()


def main(servers: str, topic: str, fault: str, place: str, how: str, *conf: str) -> None:
    folder = Path(place)
    builder = SparkSession.builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    # Executors of local-cluster have the driver's environment only where it is given to them.
    builder = builder.config("spark.executorEnv.PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    for setting in (f"spark.local.dir={folder / 'local'}", *conf):
        builder = builder.config(*setting.split("=", 1))
    spark = builder.getOrCreate()
    kafka_sink.register(spark)
    errors = []
    for _ in range(MOST_RUNS):
        try:
            if how == "stream":
                write_stream(spark, servers, topic, fault, folder)
            else:
                write_batch(spark, servers, topic, fault, folder, barrier=how == "barrier")
        except (PySparkException, Py4JJavaError) as failure:  # Spark's own error of a job is one of Py4J's
            error = kafka_sink.error_of(failure)
            errors.append(type(error).__name__ if error else str(failure)[:MOST_OF_AN_ERROR])
        else:
            break
    attempts = [len(list(folder.glob(f"attempt-{slot}-*"))) for slot in range(SLOTS)]
    print(json.dumps({"errors": errors, "attempts": attempts}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Writes in a Spark that gives a task a second attempt and keeps one idle worker.

python spark_retry_app.py BOOTSTRAP_SERVERS TOPIC OTHER_TOPIC FOLDER writes 60,000 rows to TOPIC in a task that fails
in its first attempt. Then it writes to OTHER_TOPIC in two workers at once, one of which has to go when it is idle (as
all do after a minute), and again; it ends with an error when that is not seen.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from spark_writes import ARROW_BATCH_ROWS, DEADLINE_S, connections_to, held, save
from waiting import wait_until

bootstrap_servers, topic, other_topic, folder = sys.argv[1:]
# local[cores, attempts]
builder = SparkSession.builder.master("local[2, 2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.python.factory.idleWorkerMaxPoolSize", "1").getOrCreate()


def fail_once(arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    context = TaskContext.get()
    for number, arrow_batch in enumerate(arrow_batches):
        if number == 3 and context is not None and context.attemptNumber() == 0:
            raise ValueError("the source broke")
        yield arrow_batch


def numbers(count: int, tasks: int) -> DataFrame:
    return spark.range(0, count, 1, tasks).selectExpr("cast(id AS STRING) AS value")


def connected_workers() -> int:
    return len(set(connections_to(bootstrap_servers).values()))


rows = numbers(6 * ARROW_BATCH_ROWS, 1)
save(rows.mapInArrow(fail_once, rows.schema), bootstrap_servers, topic)

gate = Path(folder) / "gate"
both = held(numbers(12 * ARROW_BATCH_ROWS, 2), gate, after_rows=3 * ARROW_BATCH_ROWS)
with ThreadPoolExecutor(1) as thread:
    thread.submit(spark.createDataFrame, [], "value STRING").result()  # makes the session active there
    writing = thread.submit(save, both, bootstrap_servers, other_topic)
    wait_until(lambda: connected_workers() == 2, DEADLINE_S, "two workers write at once")
    gate.touch()
    writing.result(DEADLINE_S)
wait_until(lambda: connected_workers() == 1, DEADLINE_S, "one idle worker is left")
save(both, bootstrap_servers, other_topic)
spark.stop()

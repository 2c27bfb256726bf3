"""A write or a read in a Spark that gives a task a second attempt.

python spark_retry_app.py BOOTSTRAP_SERVERS TOPIC write [OPTION=VALUE ...] writes 60,000 rows to TOPIC in a task that
fails in its first attempt. With options row 7 is a bad one, which names partition 99.

python spark_retry_app.py BOOTSTRAP_SERVERS TOPIC read reads TOPIC in tasks that fail at the end of their first attempt.
It prints the rows that arrived, and the rows that a tally has counted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

import kafka_sink
from kafka_sink.spark.read_tally import ReadTally
from spark_writes import ARROW_BATCH_ROWS, pykafka

# local[cores, attempts]
spark = SparkSession.builder.master("local[2, 2]").config("spark.ui.enabled", "false").getOrCreate()


def fail_once(arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In its fourth batch, or at the end."""
    from pyspark import TaskContext

    context = TaskContext.get()
    fails = context is not None and context.attemptNumber() == 0
    for number, arrow_batch in enumerate(arrow_batches):
        if number == 3 and fails:
            raise ValueError("the source broke")
        yield arrow_batch
    if fails:
        raise ValueError("a step after the read broke")


def write(bootstrap_servers: str, topic: str, *given: str) -> dict[str, object]:
    options = dict(option.split("=", 1) for option in given)
    bad = "if(id = 7, 99, cast(null AS INT))" if options else "cast(null AS INT)"
    rows = spark.range(0, 6 * ARROW_BATCH_ROWS, 1, 1).selectExpr("cast(id AS STRING) AS value", f"{bad} AS partition")
    frame = rows.mapInArrow(fail_once, rows.schema)
    pykafka(frame.write.mode("append"), bootstrap_servers, topic).options(**options).save()
    return {}


def read(bootstrap_servers: str, topic: str) -> dict[str, object]:
    tally = ReadTally(spark)
    kafka_sink.register(spark, interceptors=[tally])
    options = {"kafka.bootstrap.servers": bootstrap_servers, "subscribe": topic}
    rows = spark.read.format("pykafka").options(**options).load()
    arrived = rows.select("value").mapInArrow(fail_once, "value BINARY").count()
    return {"arrived": arrived, "counted": [read.row_count for read in tally.value.values()]}


if __name__ == "__main__":
    servers, topic, work, *options = sys.argv[1:]
    print(json.dumps(read(servers, topic) if work == "read" else write(servers, topic, *options)))
    spark.stop()

"""A read in a Spark that gives a task a second attempt.

python spark_retry_read_app.py BOOTSTRAP_SERVERS TOPIC reads TOPIC in tasks that fail at the end of their first attempt.
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

bootstrap_servers, topic = sys.argv[1:]
# local[cores, attempts]
spark = SparkSession.builder.master("local[2, 2]").config("spark.ui.enabled", "false").getOrCreate()


def fail_once(arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    yield from arrow_batches
    context = TaskContext.get()
    if context is not None and context.attemptNumber() == 0:
        raise ValueError("a step after the read broke")


tally = ReadTally(spark)
kafka_sink.register(spark, interceptors=[tally])
rows = (
    spark.read.format("pykafka").option("kafka.bootstrap.servers", bootstrap_servers).option("subscribe", topic).load()
)
arrived = rows.select("value").mapInArrow(fail_once, "value BINARY").count()
print(json.dumps({"arrived": arrived, "counted": [read.row_count for read in tally.value.values()]}))
spark.stop()

"""A write in a Spark that gives a task a second attempt.

python spark_retry_app.py BOOTSTRAP_SERVERS TOPIC [OPTION=VALUE ...] writes 60,000 rows to TOPIC in a task that fails in
its first attempt. With options row 7 is a bad one, which names partition 99.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_writes import ARROW_BATCH_ROWS, pykafka

bootstrap_servers, topic, *given = sys.argv[1:]
options = dict(option.split("=", 1) for option in given)
# local[cores, attempts]
spark = SparkSession.builder.master("local[2, 2]").config("spark.ui.enabled", "false").getOrCreate()


def fail_once(arrow_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    context = TaskContext.get()
    for number, arrow_batch in enumerate(arrow_batches):
        if number == 3 and context is not None and context.attemptNumber() == 0:
            raise ValueError("the source broke")
        yield arrow_batch


bad = "if(id = 7, 99, cast(null AS INT))" if options else "cast(null AS INT)"
rows = spark.range(0, 6 * ARROW_BATCH_ROWS, 1, 1).selectExpr("cast(id AS STRING) AS value", f"{bad} AS partition")
frame = rows.mapInArrow(fail_once, rows.schema)
pykafka(frame.write.mode("append"), bootstrap_servers, topic).options(**options).save()
spark.stop()

"""Writes, reads and calls Python functions in a session whose tasks are forked by the server of `kafka_sink`, or by
Spark's own. Prints what the rows and the workers are."""

import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

ROWS = 100


def command_of(pid: int) -> list[str]:
    return Path("/proc", str(pid), "cmdline").read_text().split("\0")


def about_worker(_: object) -> dict[str, Any]:
    return {
        "parent": command_of(os.getppid())[2],
        "random": random.random(),
        "has our modules": "kafka_sink.kafka.client" in sys.modules,
    }


def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from (pa.RecordBatch.from_pydict({"id": [2 * id_ for id_ in batch["id"].to_pylist()]}) for batch in batches)


def main(daemon: str, servers: str, topic: str, app_id: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.python.daemon.module", daemon).getOrCreate()
    options = {"kafka.bootstrap.servers": servers, "topic": topic}
    rows = spark.range(0, ROWS, 1, 2).select(F.col("id").cast("string").alias("value"))
    rows.write.format("pykafka").mode("append").options(**options).save()
    given = {"deliveryGuarantee": "exactly-once", "txnAppId": app_id}
    rows.write.format("pykafka").mode("append").options(**options, **given, txnVersion="0").save()
    read = spark.read.format("pykafka").options(**{"kafka.bootstrap.servers": servers}, subscribe=topic).load()
    plus_one = F.udf(lambda id_: id_ + 1, "long")
    told = {
        "read": read.count(),
        "distinct": read.select("value").distinct().count(),
        "of a function": sorted(row.id for row in spark.range(5).mapInArrow(doubled, "id long").collect()),
        "of a UDF": sorted(row.id for row in spark.range(3).select(plus_one("id").alias("id")).collect()),
        "workers": spark.sparkContext.parallelize(range(2), 2).map(about_worker).collect(),
    }
    print(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

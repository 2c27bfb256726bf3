"""An application of an environment that is not activated: Spark's `python3` is another one.

    python tests/support/not_activated_app.py HOST:PORT TOPIC FOLDER_OF_PYTHON3 export|register

Prints what Spark says before, and how many rows are there after two writes, by one call and by Spark's API.
"""

from __future__ import annotations

import json
import os
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kafka_sink


def main(servers: str, topic: str, folder: str, way: str) -> None:
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.pop(name, None)
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
    options = {"kafka.bootstrap.servers": servers, "topic": topic}
    before = ""
    try:
        rows.write.format("pykafka").mode("append").options(**options).save()
    except PySparkException as error:
        before = error.getCondition() or ""
    if way == "register":
        kafka_sink.register(spark)
    else:
        kafka_sink.export(rows, topic, bootstrap_servers=servers)
    rows.write.format("pykafka").mode("append").options(**options).save()
    reads = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    there = spark.read.format("pykafka").options(**reads).load().count()
    spark.stop()
    print(json.dumps({"before": before, "there": there}))


if __name__ == "__main__":
    main(*sys.argv[1:])

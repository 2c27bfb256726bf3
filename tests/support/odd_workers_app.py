"""Reads and writes in a Spark whose Python workers are not as usual. Run as a script:

    odd_workers_app.py <bootstrap servers> <topic to read, with 100 records> <topic to write> <folder> <shell command>
        [<key=value of Spark's conf>]...

The command, as `ulimit -n 64`, runs before each worker's Python. Prints a JSON object: what was done -> its result, or
the name of our error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kafka_sink


def result(work: Callable[[], object]) -> object:
    try:
        return work()
    except PySparkException as failure:
        return type(kafka_sink.error_of(failure)).__name__


def limited_python(folder: str, command: str) -> str:
    """A Python that runs after a shell command."""
    script = Path(folder, "python")
    script.write_text(f'#!/bin/bash\n{command}\nexec {sys.executable} "$@"\n')
    script.chmod(0o755)
    return str(script)


def main(servers: str, source: str, target: str, folder: str, command: str, *conf: str) -> None:
    os.environ["PYSPARK_PYTHON"] = limited_python(folder, command)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for each in conf:
        builder = builder.config(*each.split("=", 1))
    spark = builder.getOrCreate()
    kafka_sink.register(spark)
    kafka = {"kafka.bootstrap.servers": servers}
    read = spark.read.format("pykafka").options(**kafka, subscribe=source).load().select("value")
    bounds = {"startingTimestamp": f"{(time.time() - 1_800) * 1_000:.0f}", "reuseOffsets": "true"}
    reused = spark.read.format("pykafka").options(**kafka, subscribe=source, **bounds).load().select("value")
    numbers = spark.range(0, 100, 1, 2).selectExpr("cast(id AS STRING) AS value")

    def write(guarantee: str) -> None:
        writer = numbers.write.format("pykafka").mode("append").options(**kafka, topic=target)
        writer.option("deliveryGuarantee", guarantee).save()

    def stream() -> None:
        options = {"subscribe": source, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"}
        rows = spark.readStream.format("pykafka").options(**kafka, **options).load().select("value")
        writer = rows.writeStream.format("pykafka").options(**kafka, topic=target, deliveryGuarantee="exactly-once")
        writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(
            availableNow=True
        ).start().awaitTermination()

    told = {
        "read": result(lambda: len(read.collect())),
        "first": result(lambda: len(reused.collect())),
        "at-least-once": result(lambda: write("at-least-once")),
        "exactly-once": result(lambda: write("exactly-once")),
        "stream": result(stream),
    }
    print(json.dumps(told))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

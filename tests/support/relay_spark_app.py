"""A Spark application that writes a range, at least once, in one write. Run as a script:

    relay_spark_app.py MASTER TASKS ROWS TOPIC GATE OPTIONS

`OPTIONS` is JSON, prefixed `kafka.`. Each task pauses after three Arrow batches until the file GATE exists. Row n is n
with zeros in front, in partition n % 4.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import kafka_sink
from spark_writes import ARROW_BATCH_ROWS, held

PARTITIONS = 4
VALUE_BYTES = 100


def main() -> None:
    master, tasks, rows, topic, gate, options = sys.argv[1:]
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.executorEnv.PYKAFKA_RELAY", "on")
        .getOrCreate()
    )
    kafka_sink.register(spark)
    frame = spark.range(0, int(rows), 1, int(tasks)).selectExpr(
        f"CAST(lpad(id, {VALUE_BYTES}, '0') AS BINARY) AS value", f"CAST(id % {PARTITIONS} AS INT) AS partition"
    )
    writer = held(frame, Path(gate), after_rows=3 * ARROW_BATCH_ROWS).write.mode("append").format("pykafka")
    writer.options(**json.loads(options)).option("topic", topic).save()
    spark.stop()


if __name__ == "__main__":
    main()

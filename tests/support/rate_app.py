"""A Spark application that writes a range at a rate, with as many cores as tasks:
`python rate_app.py <bootstrap servers> <topic> <tasks> <rows a second> <rows>`. Task n writes to partition n."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main(bootstrap_servers: str, topic: str, tasks: str, rows_per_s: str, rows: str) -> None:
    spark = SparkSession.builder.master(f"local[{tasks}]").config("spark.ui.enabled", "false").getOrCreate()
    frame = spark.range(0, int(rows), 1, int(tasks)).selectExpr(
        "cast(id as string) as value", "spark_partition_id() as partition"
    )
    options = {"kafka.bootstrap.servers": bootstrap_servers, "topic": topic, "kafka.linger.ms": "0"}
    limited = {"maxRowsPerSecond": rows_per_s, "rateTasks": tasks}
    frame.write.format("pykafka").mode("append").options(**options, **limited).save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Sums over files that arrive one after the other, in update mode with exactly-once: four updates."""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

import kafka_sink

spark = SparkSession.builder.config("spark.sql.shuffle.partitions", 2).getOrCreate()
for first in (0, 100):
    spark.range(first, first + 100).write.mode("append").parquet("numbers")
    numbers = spark.readStream.schema("id BIGINT").parquet("numbers")
    sums = numbers.selectExpr("id % 2 AS parity", "id").groupBy("parity").sum("id")
    query = kafka_sink.to_kafka(
        sums, "update-mode", key="parity", value="json", output_mode="update", exactly_once=True, create_topics=True,
        bootstrap_servers=os.environ["SERVERS"], checkpoint_location="sums", trigger={"availableNow": True},
    )  # fmt: skip
    query.awaitTermination()

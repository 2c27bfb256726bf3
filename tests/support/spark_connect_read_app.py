"""Reads a topic over Spark Connect, on a server of its own: python spark_connect_read_app.py BOOTSTRAP_SERVERS TOPIC
prints, as JSON, what it read, and the error that Python gets where a topic is missing."""

from __future__ import annotations

import json
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kafka_sink

bootstrap_servers, topic = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
kafka_sink.register(spark)
read = spark.read.format("pykafka").option("kafka.bootstrap.servers", bootstrap_servers)
whole = read.option("subscribe", topic).option("includeHeaders", "true").load()
told = {"rows": whole.count(), "columns": whole.columns}
pruned = read.option("subscribe", topic).schema("offset BIGINT, value BINARY").load().where("offset = 7")
told["pruned"] = [[row.offset, bytes(row.value).decode()] for row in pruned.collect()]
try:
    read.option("subscribe", "nobody-made-this").load().collect()
except PySparkException as error:
    told["error"] = type(kafka_sink.error_of(error)).__name__
print(json.dumps(told))

"""Reads a topic over Spark Connect, on a server of its own: python spark_connect_read_app.py BOOTSTRAP_SERVERS TOPIC
prints, as JSON, what it read as a batch and as a stream, and the errors that Python gets where a topic is missing."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from typing import Any

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


def stream(name: str) -> Any:
    """A stream that has ended. Its rows are in a table of the same name."""
    started = spark.readStream.format("pykafka").option("kafka.bootstrap.servers", bootstrap_servers)
    frame = started.option("subscribe", name).option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 300)
    table = name.replace("-", "_")
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.load().writeStream.format("memory").queryName(table).option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        with contextlib.suppress(PySparkException):
            query.awaitTermination()
    return query


query = stream(topic)
told["streamed"] = spark.table(query.name).select("partition", "offset").distinct().count()
told["latest"] = json.loads(query.lastProgress["sources"][0]["latestOffset"])[topic]["0"]
told["stream error"] = type(kafka_sink.error_of(stream("nobody-made-this"))).__name__
print(json.dumps(told))

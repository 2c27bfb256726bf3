"""An export and a stream over Spark Connect, with a server that the client starts."""

from __future__ import annotations

import os

from pyspark.sql import SparkSession

import kafka_sink

spark = SparkSession.builder.remote("local[2]").getOrCreate()
kafka = {"key": "id", "value": "json", "create_topics": True, "bootstrap_servers": os.environ["SERVERS"]}
print(kafka_sink.export(spark.range(1_000), "connect-export", **kafka))

spark.range(1_000).write.parquet("for-connect")
incoming = spark.readStream.schema("id BIGINT").parquet(os.path.abspath("for-connect"))
query = kafka_sink.to_kafka(
    incoming, "connect-stream", checkpoint_location=os.path.abspath("connect"), trigger={"availableNow": True}, **kafka
)
query.awaitTermination()
spark.stop()

"""A pandas and a pyarrow frame, INSERT INTO a view of a topic, and `df.write` in a thread, without an activated
environment. Then a read of a port where nothing listens: it fails within seconds, and its error names the step."""

from __future__ import annotations

import os
import threading
import time

import pandas as pd
import pyarrow as pa
from pyspark.sql import SparkSession

import kafka_sink

SERVERS = os.environ["SERVERS"]
spark = SparkSession.builder.getOrCreate()
kafka = {"bootstrap_servers": SERVERS, "value": "json", "create_topics": True}
frame = pd.DataFrame({"id": range(1_000)})
print(kafka_sink.export(frame, "from-pandas", **kafka))
print(kafka_sink.export(pa.Table.from_pandas(frame), "from-pyarrow", **kafka))

spark.sql(
    "CREATE TEMPORARY VIEW from_sql (key STRING, value STRING) USING pykafka "
    f"OPTIONS (`kafka.bootstrap.servers` '{SERVERS}', topic 'from-sql', createTopics 'true')"
)
spark.sql("INSERT INTO from_sql SELECT CAST(id AS STRING), to_json(struct(*)) FROM range(1000)")


def write() -> None:
    spark.createDataFrame([], "x INT")  # makes the session the thread's active one
    rows = spark.range(1_000).selectExpr("to_json(struct(*)) AS value")
    options = {"kafka.bootstrap.servers": SERVERS, "topic": "from-thread", "createTopics": "true"}
    rows.write.format("pykafka").mode("append").options(**options).save()


thread = threading.Thread(target=write)
thread.start()
thread.join()

closed = spark.read.format("pykafka").option("kafka.bootstrap.servers", "127.0.0.1:1").option("subscribe", "orders")
started = time.monotonic()
try:
    closed.load().count()
except Exception as failure:
    error = kafka_sink.error_of(failure)
    assert isinstance(error, kafka_sink.errors.BrokersUnreachable), repr(error)
    assert "127.0.0.1:1" in str(error), error
else:
    raise AssertionError("nothing listens there, and the read succeeded")
assert time.monotonic() - started < 30, "a port that refuses is waited for"

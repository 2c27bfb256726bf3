"""Writes over Spark Connect, on a server of its own: with options, with the session's conf and interceptors, and wrong.

python spark_connect_app.py BOOTSTRAP_SERVERS TOPIC OTHER_TOPIC FOLDER writes 0 to 1,999 to TOPIC, which options name,
and -1 to -1,999 to OTHER_TOPIC, which the conf names and an interceptor makes negative; each half by a batch write,
half by a stream. It prints, as JSON, what the users of a wrong option, of a wrong conf and of an interceptor that
raises read.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kafka_sink
from spark_writes import finish, pykafka, save

bootstrap_servers, topic, other_topic, folder = sys.argv[1:]
spark = SparkSession.builder.remote("local[2]").getOrCreate()
kafka_sink.register(spark)


def numbers(first: int, end: int) -> Any:
    return spark.range(first, end, 1, 1).selectExpr("cast(id AS STRING) AS value")


def stream_of(frame: Any, name: str) -> Any:
    """The writer of a stream of the rows of `frame`, with a checkpoint of its own."""
    frame.write.parquet(f"{folder}/{name}")
    source = spark.readStream.schema("value STRING").parquet(f"{folder}/{name}")
    return source.writeStream.option("checkpointLocation", f"{folder}/{name}-checkpoint").trigger(availableNow=True)


class Negative(kafka_sink.Interceptor):
    def on_send(self, arrow_batch: Any) -> Any:
        import pyarrow.compute as pc

        return arrow_batch.set_column(0, "value", pc.binary_join_element_wise("-", arrow_batch["value"], ""))


class Raising(kafka_sink.Interceptor):
    def on_send(self, arrow_batch: Any) -> Any:
        raise RuntimeError("this row is not for the eyes of others")


def failure_of(frame: Any, options: dict[str, str]) -> str:
    try:
        frame.write.format("pykafka").mode("append").options(**options).save()
    except PySparkException as error:
        return str(error)
    raise AssertionError("the write must fail")


save(numbers(0, 1_000), bootstrap_servers, topic)
finish(pykafka(stream_of(numbers(1_000, 2_000), "options"), bootstrap_servers, topic).start())
of_option = failure_of(
    numbers(0, 1), {"kafka.bootstrap.servers": bootstrap_servers, "topic": topic, "kafka.compression.type": "brotli"}
)

spark.conf.set("spark.pykafka.kafka.bootstrap.servers", bootstrap_servers)
spark.conf.set("spark.pykafka.topic", other_topic)
kafka_sink.register(spark, interceptors=[Negative()])
numbers(1, 1_000).write.format("pykafka").mode("append").save()
finish(stream_of(numbers(1_000, 2_000), "conf").format("pykafka").start())
kafka_sink.register(spark, interceptors=[Negative(), Raising()])
of_interceptor = failure_of(numbers(0, 1), {})

spark.conf.set("spark.pykafka.kafka.acks", "2")
of_conf = failure_of(numbers(0, 1), {})
print(json.dumps({"option": of_option, "conf": of_conf, "interceptor": of_interceptor}))
spark.stop()

"""Writes over Spark Connect, on a server of its own: with options, with the session's conf and interceptors, and wrong.

python spark_connect_app.py BOOTSTRAP_SERVERS TOPIC OTHER_TOPIC EXPORTED FOLDER writes 0 to 1,999 to TOPIC, which
options name, and -1 to -1,999 to OTHER_TOPIC, which the conf names and an interceptor makes negative; each half by a
batch write, half by a stream. To EXPORTED, of several partitions, it writes 0 to 1,999 by `export` and `to_kafka`, a
task for each partition. It prints, as JSON, what the users of a wrong option, of a wrong conf and of an interceptor
that raises read, what the export's receipt says, and which errors Python gets where a topic is missing.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import kafka_sink
from kafka_sink.errors import KafkaSinkError
from spark_writes import finish, pykafka, save

bootstrap_servers, topic, other_topic, exported, folder = sys.argv[1:]
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


def failed(write: Any) -> dict[str, Any]:
    """Return the attributes of the sink's error that `write` raises."""
    try:
        write()
    except KafkaSinkError as error:
        cause = type(error.__cause__).__module__
        return {"class": type(error).__name__, "topic": vars(error).get("topic"), "text": str(error), "cause": cause}
    raise AssertionError("the write must fail")


missing: dict[str, Any] = {"topic": "nobody-made-this", "max_block_ms": 30_000, "bootstrap_servers": bootstrap_servers}

save(numbers(0, 1_000), bootstrap_servers, topic)
finish(pykafka(stream_of(numbers(1_000, 2_000), "options"), bootstrap_servers, topic).start())
of_option = failure_of(
    numbers(0, 1), {"kafka.bootstrap.servers": bootstrap_servers, "topic": topic, "kafka.compression.type": "brotli"}
)

to_exported: dict[str, Any] = {
    "topic": exported, "key": F.col("value"), "co_partition": True, "bootstrap_servers": bootstrap_servers
}  # fmt: skip
named = numbers(0, 1_000).withColumn("order.id", F.col("value")).repartition(3)
receipt = kafka_sink.export(named, order_by=F.col("value").cast("int"), **to_exported | {"key": "order.id"})
numbers(1_000, 2_000).write.parquet(f"{folder}/exported")
source = spark.readStream.schema("value STRING").parquet(f"{folder}/exported")
finish(
    kafka_sink.to_kafka(
        source, trigger={"availableNow": True}, checkpoint_location=f"{folder}/to-kafka-checkpoint", **to_exported
    )
)

of_export = failed(lambda: kafka_sink.export(numbers(0, 1), **missing))
query = kafka_sink.to_kafka(
    source, trigger={"availableNow": True}, checkpoint_location=f"{folder}/missing-checkpoint", **missing
)
of_stream = failed(lambda: query.awaitTermination(120))
assert str(kafka_sink.error_of(query)) == of_stream["text"]

spark.conf.set("spark.pykafka.kafka.bootstrap.servers", bootstrap_servers)
spark.conf.set("spark.pykafka.topic", other_topic)
kafka_sink.register(spark, interceptors=[Negative()])
numbers(1, 1_000).write.format("pykafka").mode("append").save()
finish(stream_of(numbers(1_000, 2_000), "conf").format("pykafka").start())
kafka_sink.register(spark, interceptors=[Negative(), Raising()])
of_interceptor = failure_of(numbers(0, 1), {})

spark.conf.set("spark.pykafka.kafka.acks", "2")
of_conf = failure_of(numbers(0, 1), {})
offsets = {each.partition: [each.first_offset, each.last_offset] for each in receipt.partitions}
told = {
    "export": of_export, "stream": of_stream, "option": of_option, "conf": of_conf, "interceptor": of_interceptor,
    "rows": receipt.rows, "offsets": offsets,
}  # fmt: skip
print(json.dumps(told))
spark.stop()

"""Two streams from a topic, one of each guarantee, that run until they are killed. Run as a script:

    killed_app.py <bootstrap servers> <folder> on|now

Rows with a 7 at the end of their hundred are bad ones. An interceptor marks all values with a `!`. Each stream shows
its progress in a group. Topics, groups and checkpoints have the names of the guarantees. `now`: read what is there.
"""

import sys

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

import kafka_sink
from kafka_sink.spark.interceptors import Interceptor

GUARANTEES = ("at-least-once", "exactly-once")
SOURCE = "numbers"
DEAD = "dead-"
GROUP = "group-"


class Marked(Interceptor):
    def on_send(self, arrow_batch: pa.RecordBatch) -> pa.RecordBatch:
        place = arrow_batch.schema.get_field_index("value")
        marked = pc.binary_join_element_wise(arrow_batch.column(place), pa.scalar(b"!"), pa.scalar(b""))
        return arrow_batch.set_column(place, "value", marked)


def main(servers: str, folder: str, until: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    # On a busy machine a worker's connection to its JVM takes longer than Spark's 15 s.
    builder = builder.config("spark.python.authenticate.socketTimeout", "300s")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    kafka_sink.register(spark, interceptors=[Marked()])
    kafka = {"kafka.bootstrap.servers": servers}
    for guarantee in GUARANTEES:
        reads = {"subscribe": SOURCE, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "200"}
        read = spark.readStream.format("pykafka").options(**kafka, **reads, groupId=GROUP + guarantee).load()
        bad = "if(cast(cast(value AS STRING) AS INT) % 100 = 7, 99, null) AS partition"
        writes = {"topic": guarantee, "deliveryGuarantee": guarantee, "rowIdentity": "true"}
        letters = {"badRows": "deadLetter", "deadLetterTopic": DEAD + guarantee, "maxBadRows": "100000"}
        writer = read.selectExpr("value", bad).writeStream.format("pykafka").options(**kafka, **writes, **letters)
        writer = writer.option("checkpointLocation", f"{folder}/{guarantee}")
        (writer.trigger(availableNow=True) if until == "now" else writer).start()
    for query in spark.streams.active:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

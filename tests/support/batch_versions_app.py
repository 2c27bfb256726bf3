"""Batch writes under a txnAppId, which is the topic's name. Run as a script:

batch_versions_app.py <bootstrap servers> <topic> once <version> <rows> <tasks>
batch_versions_app.py <bootstrap servers> <topic> stream <folder of JSON files> <checkpoint>

`once`: the numbers below <rows>, from so many tasks. `stream`: how often each last digit has come so far, as digit and
count in one number, of two files a micro-batch, in update mode through foreachBatch; ends when all files are read."""

import sys
from collections.abc import Callable

from pyspark.sql import DataFrame, SparkSession

import kafka_sink

# A number is its digit times this, and its count.
DIGIT = 1_000


def write(frame: DataFrame, servers: str, topic: str, version: int) -> None:
    writer = frame.write.format("pykafka").mode("append").option("kafka.bootstrap.servers", servers)
    writer = writer.option("topic", topic).option("deliveryGuarantee", "exactly-once")
    writer.option("txnAppId", topic).option("txnVersion", version).save()


def once(spark: SparkSession, servers: str, topic: str, version: str, rows: str, tasks: str) -> None:
    frame = spark.range(0, int(rows), 1, int(tasks)).selectExpr("CAST(id AS STRING) AS value")
    write(frame, servers, topic, int(version))


def stream(spark: SparkSession, servers: str, topic: str, folder: str, checkpoint: str) -> None:
    rows = spark.readStream.schema("value STRING").option("maxFilesPerTrigger", "2").json(folder)
    counts = rows.groupBy((rows.value % 10).cast("int").alias("digit")).count()

    def write_counts(batch: DataFrame, batch_id: int) -> None:
        write(batch.selectExpr(f"CAST(digit * {DIGIT} + count AS STRING) AS value"), servers, topic, batch_id)

    writer = counts.writeStream.outputMode("update").foreachBatch(write_counts)
    query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()


def main(servers: str, topic: str, how: str, *arguments: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.ui.showConsoleProgress", "false")
    spark = builder.getOrCreate()
    kafka_sink.register(spark)
    run: Callable[..., None] = once if how == "once" else stream
    run(spark, servers, topic, *arguments)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A stream of files into Kafka, exactly once, that ends when all files are written. Run as a script:

exactly_once_app.py <bootstrap servers> <topic> <folder of JSON files> <checkpoint> [<option>=<value> ...]

Two files a micro-batch, each a Spark partition, so two slots."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import kafka_sink


def main(servers: str, topic: str, folder: str, checkpoint: str, *options: str) -> None:
    # A task may fail three times before its micro-batch does.
    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    kafka_sink.register(spark)
    rows = spark.readStream.schema("value STRING").option("maxFilesPerTrigger", "2").json(folder)
    writer = (
        rows.writeStream.format("pykafka")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", topic)
        .option("deliveryGuarantee", "exactly-once")
        .option("transactionalIdPrefix", topic)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
    )
    for option in options:
        name, _, value = option.partition("=")
        writer = writer.option(name, value)
    query = writer.start()
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

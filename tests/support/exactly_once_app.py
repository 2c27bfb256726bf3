"""A stream of files into Kafka, exactly once, that ends when all files are written. Run as a script:

    exactly_once_app.py <bootstrap servers> <topic> <folder of JSON files> <checkpoint> [<option>=<value> ...]
        [--files 2] [--slots N] [--key EXPRESSION] [--prefix SINK | --derived-name] [--submitted]

Each file is a Spark partition, and so a slot, unless `--slots` says into how many their rows go.
"""

import argparse
import sys
from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import kafka_sink


def main() -> None:
    arguments = parse(sys.argv[1:])
    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    if not arguments.submitted:
        # As many cores as slots, or Spark would put two files into one. A task may fail three times before its
        # micro-batch.
        builder = builder.master(f"local[{arguments.files},4]")
        # It lives for seconds: what the optimising compiler does for it never pays.
        builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    start(spark, arguments).awaitTermination()
    spark.stop()


def start(spark: SparkSession, arguments: argparse.Namespace) -> StreamingQuery:
    kafka_sink.register(spark)
    source = spark.readStream.schema("value STRING").option("maxFilesPerTrigger", str(arguments.files))
    rows = source.json(arguments.folder)
    if arguments.slots:
        rows = rows.repartition(arguments.slots)
    if arguments.key:
        rows = rows.selectExpr("value", f"CAST({arguments.key} AS STRING) AS key")
    named = {} if arguments.derived_name else {"transactionalIdPrefix": arguments.prefix or arguments.topic}
    return (
        rows.writeStream.format("pykafka")
        .option("kafka.bootstrap.servers", arguments.servers)
        .option("topic", arguments.topic)
        .option("deliveryGuarantee", "exactly-once")
        .options(**named)
        .option("checkpointLocation", arguments.checkpoint)
        .options(**dict(option.split("=", 1) for option in arguments.options))
        .trigger(availableNow=True)
        .start()
    )


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("servers", "topic", "folder", "checkpoint"):
        parser.add_argument(name)
    parser.add_argument("options", nargs="*")
    parser.add_argument("--files", type=int, default=2, help="of a micro-batch")
    parser.add_argument("--slots", type=int)
    parser.add_argument("--key")
    parser.add_argument("--prefix")
    parser.add_argument("--derived-name", action="store_true", help="set no prefix")
    parser.add_argument("--submitted", action="store_true", help="by spark-submit, which names the master")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()

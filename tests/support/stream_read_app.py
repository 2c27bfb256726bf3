"""A stream from a topic into a folder, in an application of its own that can be killed. Run as a script:

stream_read_app.py <bootstrap servers> <topic> <folder> <kill in> [<option>=<value> ...]

The folder gets the checkpoint, and a file for each micro-batch with its rows, as JSON. `kill in`: the number of the
micro-batch in which all processes of the application are killed, after Spark has logged the micro-batch and its rows
are written, before it is committed; or "none": the application reads what is there and ends. Prints the name of our
error if there is one."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import kafka_sink


def main(servers: str, topic: str, folder: str, kill_in: str, *options: str) -> None:
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    kafka_sink.register(spark)

    def take(frame: DataFrame, number: int) -> None:
        rows = [[row.partition, row.offset] for row in frame.select("partition", "offset").collect()]
        Path(folder, f"{number}.json").write_text(json.dumps(sorted(rows)))
        if str(number) == kill_in:
            os.killpg(0, signal.SIGKILL)

    read = spark.readStream.format("pykafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    frame = read.options(**dict(option.split("=", 1) for option in options)).load()
    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", f"{folder}/checkpoint")
    try:
        writer.trigger(availableNow=True).start().awaitTermination()
    except PySparkException as failure:
        print(type(kafka_sink.error_of(failure)).__name__)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A Spark application that reads a topic when it is told to: a process of its own, so that what it uses can be counted.

    bench_read.py ──a line of JSON──> read_driver.py ──> its JVM ──> Python daemon ──> Python workers
                  <──a line of JSON──

It fills topics too, with pykafka's sink. A read goes into Spark's `noop` sink, which takes every row and every column
and keeps nothing. Local Spark with two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from process_tree import cpu_s
from ready_batches import ReadyDataSource
from spark_driver import KEY, Cost, session, value
from spark_peers import UNIX
from waiting import wait_until

# Formats that read. READY has the rows of the topic's shape made beforehand: what Spark takes for any Python source.
PYKAFKA, JVM, READY = "pykafka", "kafka", ReadyDataSource.name()

STREAM_TIMEOUT_S = 600


def fill(spark: SparkSession, servers: str, asked: dict[str, Any]) -> None:
    """Write rows of random keys, and of values that compress as JSON does."""
    columns = [KEY, value(asked["value_bytes"])]
    if asked["headers"]:
        pairs = (f"struct('header-{number}' AS key, binary(string(id)) AS value)" for number in range(asked["headers"]))
        columns.append(f"array({', '.join(pairs)}) AS headers")
    (
        spark.range(0, asked["rows"], 1, 2)
        .selectExpr(*columns)
        .write.format("pykafka")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.compression.type", asked["compression"])
        .option("topic", asked["topic"])
        .mode("append")
        .save()
    )


def frame_of(spark: SparkSession, servers: str, asked: dict[str, Any]) -> DataFrame:
    reader = spark.read.format(asked["reader"])
    if asked["reader"] == READY:
        shape = {name: str(asked[name]) for name in ("rows", "value_bytes", "headers", "partitions")}
        return reader.options(**shape).load()
    return reader.options(
        **{
            "kafka.bootstrap.servers": servers,
            "subscribe": asked["topic"],
            "includeHeaders": str(bool(asked["headers"])).lower(),
        }
    ).load()


def read(spark: SparkSession, servers: str, asked: dict[str, Any]) -> Cost:
    frame = frame_of(spark, servers, asked)
    started_s, cpu_before_s = time.perf_counter(), cpu_s(os.getpid())
    frame.write.format("noop").mode("overwrite").save()
    return Cost(wall_s=time.perf_counter() - started_s, cpu_s=cpu_s(os.getpid()) - cpu_before_s)


def stream(spark: SparkSession, servers: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Read the topic in micro-batches. Return the cost, and rows and milliseconds of each micro-batch with rows."""
    started_s, cpu_before_s = time.perf_counter(), cpu_s(os.getpid())
    rows = spark.readStream.format(asked["reader"]).options(
        **{"kafka.bootstrap.servers": servers, "subscribe": asked["topic"]}
    )
    if asked["arrives"]:
        query = rows.option("startingOffsets", "latest").load().writeStream.format("noop").start()
        arrive(query, servers, asked)
        query.stop()
    else:
        rows = rows.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", str(asked["per_trigger"]))
        query = rows.load().writeStream.format("noop").trigger(availableNow=True).start()
        if not query.awaitTermination(STREAM_TIMEOUT_S):
            raise SystemExit(f"a query did not end within {STREAM_TIMEOUT_S} s")
    cost = Cost(wall_s=time.perf_counter() - started_s, cpu_s=cpu_s(os.getpid()) - cpu_before_s)
    with_rows = [each for each in query.recentProgress if each.numInputRows]
    return {
        **asdict(cost),
        "rows": [each.numInputRows for each in with_rows],
        "micro_batches_ms": [each.durationMs["triggerExecution"] for each in with_rows],
        "parts_ms": [dict(each.durationMs) for each in with_rows],
    }


def arrive(query: StreamingQuery, servers: str, asked: dict[str, Any]) -> None:
    """Write a row once the row before it was read. The first follows when the query has planned for the first time."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})

    def has_read(count: int) -> bool:
        if not query.isActive:
            raise SystemExit(f"the query has ended: {query.exception()}")
        return sum(each.numInputRows for each in query.recentProgress) >= count

    wait_until(lambda: query.recentProgress, STREAM_TIMEOUT_S, "the first plan")
    for count in range(1, asked["rows"] + 1):
        producer.produce(asked["topic"], os.urandom(asked["value_bytes"]), key=str(count))
        producer.flush()
        wait_until(partial(has_read, count), STREAM_TIMEOUT_S, f"row {count}")


def digest(spark: SparkSession, servers: str, asked: dict[str, Any]) -> list[int]:
    """Rows, and a sum over all that is in them: equal for readers that read the same."""
    frame = frame_of(spark, servers, asked)
    columns = [F.col(name) for name in sorted(frame.columns)]
    (row,) = frame.agg(F.count(F.lit(1)), F.sum(F.crc32(F.to_json(F.struct(*columns)).cast("binary")))).collect()
    return [int(row[0]), int(row[1] or 0)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jars", required=True, help="of Spark's Kafka source, by commas")
    parser.add_argument("--servers", required=True)
    parser.add_argument("--folder", type=Path, required=True, help="of what Spark leaves behind")
    options = parser.parse_args()
    spark = session(UNIX, options.jars, options.folder)
    spark.dataSource.register(ReadyDataSource)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        match asked["do"]:
            case "fill":
                fill(spark, options.servers, asked)
                answer: object = None
            case "digest":
                answer = digest(spark, options.servers, asked)
            case "stream":
                answer = stream(spark, options.servers, asked)
            case _:
                answer = asdict(read(spark, options.servers, asked))
        print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()

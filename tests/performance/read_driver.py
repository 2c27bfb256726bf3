"""A Spark application that reads a topic when it is told to: a process of its own, so that what it uses can be counted.

    bench_read.py ──a line of JSON──> read_driver.py ──> its JVM ──> Python daemon ──> Python workers
                  <──a line of JSON──

It fills topics too, with pykafka's sink. A read goes into Spark's `noop` sink, which takes every row and every column
and keeps nothing. Local Spark with two cores.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from ready_batches import ReadyDataSource
from spark_driver import KEY, Cost, serve, session, timed, value
from spark_peers import UNIX
from waiting import wait_until

# Formats that read. READY has the rows of the topic's shape made beforehand: what Spark takes for any Python source.
PYKAFKA, JVM, READY = "pykafka", "kafka", ReadyDataSource.name()

STREAM_TIMEOUT_S = 600


def fill(spark: SparkSession, servers: str, asked: SimpleNamespace) -> None:
    """Write rows of random keys, and of values that compress as JSON does."""
    columns = [KEY, value(asked.value_bytes)]
    if asked.headers:
        pairs = (f"struct('header-{number}' AS key, binary(string(id)) AS value)" for number in range(asked.headers))
        columns.append(f"array({', '.join(pairs)}) AS headers")
    options = {"kafka.bootstrap.servers": servers, "kafka.compression.type": asked.compression, "topic": asked.topic}
    rows = spark.range(0, asked.rows, 1, 2).selectExpr(*columns)
    rows.write.format("pykafka").mode("append").options(**options).save()


def frame_of(spark: SparkSession, servers: str, asked: SimpleNamespace) -> DataFrame:
    reader = spark.read.format(asked.reader)
    if asked.reader == READY:
        shape = {name: str(getattr(asked, name)) for name in ("rows", "value_bytes", "headers", "partitions")}
        return reader.options(**shape).load()
    options = {"kafka.bootstrap.servers": servers, "subscribe": asked.topic, "includeHeaders": bool(asked.headers)}
    if asked.max_partitions:
        # Spark's source ignores it.
        options["maxPartitions"] = str(asked.max_partitions)
    return reader.options(**options).load()


def stream(spark: SparkSession, servers: str, asked: SimpleNamespace) -> dict[str, Any]:
    """Read the topic in micro-batches. Return the cost, and rows and milliseconds of each micro-batch with rows."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": asked.topic}
    options |= {"startingOffsets": "latest"} if asked.arrives else {"startingOffsets": "earliest"}
    options |= {} if asked.arrives else {"maxOffsetsPerTrigger": str(asked.per_trigger)}
    writer = spark.readStream.format(asked.reader).options(**options).load().writeStream.format("noop")
    queries: list[StreamingQuery] = []

    def run() -> None:
        query = (writer if asked.arrives else writer.trigger(availableNow=True)).start()
        queries.append(query)
        if asked.arrives:
            arrive(query, servers, asked)
            query.stop()
        elif not query.awaitTermination(STREAM_TIMEOUT_S):
            raise SystemExit(f"a query did not end within {STREAM_TIMEOUT_S} s")

    cost = timed(run)
    with_rows = [each for each in queries[0].recentProgress if each.numInputRows]
    micro_batches_ms = [each.durationMs["triggerExecution"] for each in with_rows]
    return {**asdict(cost), "rows": [each.numInputRows for each in with_rows], "micro_batches_ms": micro_batches_ms}


def arrive(query: StreamingQuery, servers: str, asked: SimpleNamespace) -> None:
    """Write a row once the row before it was read. The first follows when the query has planned for the first time."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})

    def has_read(count: int) -> bool:
        if not query.isActive:
            raise SystemExit(f"the query has ended: {query.exception()}")
        return sum(each.numInputRows for each in query.recentProgress) >= count

    wait_until(lambda: query.recentProgress, STREAM_TIMEOUT_S, "the first plan")
    for count in range(1, asked.rows + 1):
        producer.produce(asked.topic, os.urandom(asked.value_bytes), key=str(count))
        producer.flush()
        wait_until(partial(has_read, count), STREAM_TIMEOUT_S, f"row {count}")


def digest(spark: SparkSession, servers: str, asked: SimpleNamespace) -> list[int]:
    """Rows, and a sum over all that is in them: equal for readers that read the same."""
    frame = frame_of(spark, servers, asked)
    columns = [F.col(name) for name in sorted(frame.columns)]
    (row,) = frame.agg(F.count(F.lit(1)), F.sum(F.crc32(F.to_json(F.struct(*columns)).cast("binary")))).collect()
    return [int(row[0]), int(row[1] or 0)]


def main(servers: str, jars: str, folder: str) -> None:
    """`jars`: of Spark's Kafka source, by commas. `folder`: of what Spark leaves behind."""
    spark = session(UNIX, jars, Path(folder))
    spark.dataSource.register(ReadyDataSource)

    def read(asked: SimpleNamespace) -> Cost:
        frame = frame_of(spark, servers, asked)
        return timed(lambda: frame.write.format("noop").mode("overwrite").save())

    answers: dict[str, Callable[[SimpleNamespace], object]] = {
        "fill": partial(fill, spark, servers),
        "digest": partial(digest, spark, servers),
        "read": read,
    }
    answers["stream"] = partial(stream, spark, servers)
    serve(spark, lambda asked: answers[asked.do](asked))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))

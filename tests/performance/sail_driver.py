"""An application of `make bench-sail`, on Sail or on a local Spark, by the Python that it runs in: reads and writes,
one for each line of JSON that comes to stdin. What each cost goes to stdout."""

import json
import os
import sys
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import kafka_sink
from spark_sessions import A_PARTITION_A_FILE, COUNTED, UNIX_CONF, Cost, local_session, timed

SPARK, SAIL = "Spark", "Sail"
READ, WRITE = "read", "write"
CORES = 2


def session(engine: str, scratch: str) -> tuple[SparkSession, object]:
    """And what has to live as long."""
    if engine == SPARK:
        confs = {UNIX_CONF: True, **A_PARTITION_A_FILE, **COUNTED}
        return local_session("sail", f"local[{CORES}]", Path(scratch), **confs), None
    from pysail.spark import SparkConnectServer  # type: ignore[import-not-found]

    server = SparkConnectServer()
    server.start()
    return SparkSession.builder.remote(f"sc://localhost:{server.listening_address[1]}").getOrCreate(), server


def read(spark: SparkSession, options: dict[str, str], rows: int) -> Cost:
    """Of all rows, whose bytes are added up."""
    frame = spark.read.format("pykafka").options(**options).load()
    of_bytes = frame.selectExpr("count(*) AS n", "sum(length(key) + length(value)) AS bytes")
    found = []
    cost = timed(lambda: found.extend(of_bytes.collect()))
    if found[0].n != rows or found[0].bytes <= 0:
        raise AssertionError(f"{found} instead of {rows} rows")
    return cost


def write(spark: SparkSession, engine: str, options: dict[str, str], files: str, partitions: int) -> Cost:
    """Of parquet, in as many partitions."""
    frame = spark.read.parquet(files)
    if engine == SAIL:
        frame = frame.coalesce(1) if partitions == 1 else frame.repartition(partitions)
        options["sailPartitions"] = str(partitions)
    elif partitions == 1:
        frame = frame.coalesce(1)
    return timed(lambda: frame.write.format("pykafka").mode("append").options(**options).save())


def answer(spark: SparkSession, engine: str, asked: dict[str, Any]) -> Cost:
    options = {"kafka.bootstrap.servers": asked["servers"]}
    if asked["what"] == READ:
        return read(spark, options | {"subscribe": asked["topic"]}, asked["rows"])
    return write(spark, engine, options | {"topic": asked["topic"]}, asked["files"], asked["partitions"])


def main(engine: str, scratch: str) -> None:
    spark, _server = session(engine, scratch)
    kafka_sink.register(spark)
    packages = ("pyarrow", "pyspark") if engine == SPARK else ("pyarrow", "pysail", "pyspark-client")
    print(json.dumps({name: version(name) for name in packages}), flush=True)
    for line in sys.stdin:
        print(json.dumps(asdict(answer(spark, engine, json.loads(line)))), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
    # Threads of Sail's server outlive a stop.
    os._exit(0)

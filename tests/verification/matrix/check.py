"""Four writes to each of some brokers, read back: run in an environment of the matrix, which holds the wheel.

    check.py classic|connect KAFKA_VERSION=BOOTSTRAP_SERVERS ...

A batch and a stream, each at-least-once and exactly-once, by one Spark session: one of its own process, or, with
`connect`, one of Spark Connect's. `reader.py`, run by the interpreter that MATRIX_READER names, must find each row
once. So must the source, in a batch and in a stream of several micro-batches. Spark before 4.2 has no limit on a
micro-batch: there the stream must be refused with the limit, and read all without.

Prints a JSON object, the outcome by Kafka version: "yes", what was refused, or what went wrong. A refusal counts only
if it names the requests that the brokers lack, and a refused write only if it left no topic.
"""

import itertools
import json
import os
import subprocess
import sys
import tempfile
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kafka_sink

ROWS = 2_000
DEADLINE_S = 120
QUIET: dict[str, Any] = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
FAILURES = (PySparkException, TimeoutError)
# Of each topic.
EXPECTED = Counter(str(number) for number in range(ROWS))
LIMIT = {"maxOffsetsPerTrigger": str(ROWS)}


class Wrong(Exception):
    """What went wrong, for the table."""


def main() -> None:
    session, *addresses = sys.argv[1:]
    spark = start(session)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        rows(spark).write.parquet(f"{folder}/rows")
        for version, servers in (address.split("=", 1) for address in addresses):
            # The brokers serve all environments, one after the other.
            found[version] = outcome(spark, servers, folder, f"{session}-{uuid.uuid4()}")
    print(json.dumps(found), flush=True)
    spark.stop()


def start(session: str) -> SparkSession:
    if session == "connect":
        spark: SparkSession = SparkSession.builder.remote("local[2]").getOrCreate()
        # As users of Spark Connect are told to.
        kafka_sink.register(spark)
        return spark
    return SparkSession.builder.master("local[2]").config(map=QUIET).getOrCreate()


def rows(spark: SparkSession) -> Any:
    return spark.range(0, ROWS, 1, 2).selectExpr("CAST(id AS STRING) AS value")


def outcome(spark: SparkSession, servers: str, folder: str, name: str) -> str:
    try:
        topics, refused = written(spark, servers, folder, name)
        return ", ".join(refused + read(spark, servers, folder, topics)) or "yes"
    except Wrong as wrong:
        return str(wrong)


def written(spark: SparkSession, servers: str, folder: str, name: str) -> tuple[list[str], list[str]]:
    """Return the topics, each with every row once, and what was refused."""
    topics = []
    refused: Counter[str] = Counter()
    for what, guarantee in itertools.product(("batch", "stream"), ("at-least-once", "exactly-once")):
        topic = f"{name}-{what}-{guarantee}"
        # Kafka before 2.4 needs both counts.
        options = {"kafka.bootstrap.servers": servers, "topic": topic, "createTopics": "partitions=2,replicas=1",
                   "deliveryGuarantee": guarantee}  # fmt: skip
        try:
            if what == "batch":
                rows(spark).write.format("pykafka").mode("append").options(**options).save()
            else:
                stream(spark, folder, options)
            check(f"{what}, {guarantee}", committed(servers, topic) or Counter(), EXPECTED)
            topics.append(topic)
        except FAILURES as error:
            if lacks(guarantee, "ListTransactions", error) and committed(servers, topic) is None:
                refused[guarantee] += 1
                continue
            raise wrong(f"{what}, {guarantee}", error) from None
    if set(refused.values()) - {2}:
        raise Wrong(f"only one of a batch and a stream is refused: {dict(refused)}")
    return topics, [f"no {guarantee}" for guarantee in refused]


def read(spark: SparkSession, servers: str, folder: str, topics: list[str]) -> list[str]:
    """Read all topics with the source. Return what was refused."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": ",".join(topics), "startingOffsets": "earliest",
               "kafka.isolation.level": "read_committed"}  # fmt: skip
    expected = Counter({(topic, value): 1 for topic in topics for value in EXPECTED})
    refused = []
    for what, reading in (("batch", read_batch), ("stream", read_stream)):
        try:
            check(f"read by a {what}", reading(spark, folder, options), expected)
        except FAILURES as error:
            if not lacks("reading", "Fetch", error):
                raise wrong(f"read by a {what}", error) from None
            refused.append(what)
    if len(refused) == 1:
        raise Wrong(f"only a {refused[0]} is refused reading")
    return ["no reading"] if refused else []


def read_batch(spark: SparkSession, folder: str, options: dict[str, str]) -> Counter[tuple[str, str]]:
    return counted(spark.read.format("pykafka").options(**options).load())


def read_stream(spark: SparkSession, folder: str, options: dict[str, str]) -> Counter[tuple[str, str]]:
    if tuple(map(int, spark.version.split(".")[:2])) < (4, 2):
        try:
            streamed(spark, folder, options | LIMIT)
        except PySparkException as error:
            if "RefusedOption" not in str(error) or "needs Spark 4.2" not in str(error):
                raise
        else:
            raise Wrong(f"{LIMIT} is taken")
        return counted(streamed(spark, folder, options)[0])
    table, progress = streamed(spark, folder, options | LIMIT)
    micro_batches = sum(of_batch.numInputRows > 0 for of_batch in progress)
    at_least = len(options["subscribe"].split(","))
    if micro_batches < at_least:
        raise Wrong(f"{micro_batches} micro-batches with {LIMIT}, at least {at_least} are needed")
    return counted(table)


def streamed(spark: SparkSession, folder: str, options: dict[str, str]) -> tuple[Any, Any]:
    name = f"rows_{uuid.uuid4().hex}"
    source = spark.readStream.format("pykafka").options(**options).load()
    writer = source.writeStream.format("memory").queryName(name).trigger(availableNow=True)
    query = started(writer.option("checkpointLocation", f"{folder}/{name}"))
    return spark.table(name), query.recentProgress


def counted(frame: Any) -> Counter[tuple[str, str]]:
    found = frame.selectExpr("topic", "CAST(value AS STRING) AS value").collect()
    return Counter((row["topic"], row["value"]) for row in found)


def check(what: str, seen: Counter[Any], expected: Counter[Any]) -> None:
    if seen != expected:
        raise Wrong(f"{what}: {seen.total()} rows, {len(seen)} different, instead of {expected.total()}")


def wrong(what: str, error: Exception) -> Wrong:
    return Wrong(f"{what}: {type(error).__name__}: {str(error).strip().partition(chr(10))[0][:200]}")


def lacks(what: str, request: str, error: Exception) -> bool:
    said = str(error)
    return "BrokerUnsupported" in said and f"lacks what {what} needs" in said and request in said


def stream(spark: SparkSession, folder: str, options: dict[str, str]) -> None:
    source = spark.readStream.schema("value STRING").option("maxFilesPerTrigger", "1").parquet(f"{folder}/rows")
    writer = source.writeStream.format("pykafka").options(**options).trigger(availableNow=True)
    started(writer.option("checkpointLocation", f"{folder}/{options['topic']}"))


def started(writer: Any) -> Any:
    query = writer.start()
    if not query.awaitTermination(DEADLINE_S):
        query.stop()
        raise TimeoutError(f"the stream did not end in {DEADLINE_S} s")
    return query


def committed(servers: str, topic: str) -> Counter[str] | None:
    """What the reader finds, or None where there is no such topic."""
    command = [os.environ["MATRIX_READER"], str(Path(__file__).with_name("reader.py")), servers, topic]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=2 * DEADLINE_S)
    if ended.returncode:
        raise Wrong(f"{topic} was not read: {ended.stderr.strip().splitlines()[-1]}")
    found = json.loads(ended.stdout)
    return None if found is None else Counter(found)


if __name__ == "__main__":
    main()

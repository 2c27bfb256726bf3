"""Four writes to each of some brokers, read back: run in an environment of the matrix, which holds the wheel.

    check.py classic|connect KAFKA_VERSION=BOOTSTRAP_SERVERS ...

A batch and a stream, each at-least-once and exactly-once, by one Spark session: one of its own process, or, with
`connect`, one of Spark Connect's. confluent-kafka reads each topic with read_committed and must find each row once.
Prints a JSON object, the outcome by Kafka version: "yes", "at-least-once" if the sink refused exactly-once by the names
of requests that the brokers lack and wrote nothing, or what went wrong.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import tempfile
import uuid
from collections import Counter
from typing import Any

os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kafka_sink

ROWS = 2_000
DEADLINE_S = 120
PARTITION_EOF = -191
QUIET: dict[str, Any] = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
EXPECTED = Counter(str(number) for number in range(ROWS))


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
    refused = []
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
            seen = committed(servers, topic)
        except (PySparkException, KafkaException, TimeoutError) as error:
            if guarantee == "exactly-once" and is_refusal(str(error)) and not exists(servers, topic):
                refused.append(what)
                continue
            first_line = str(error).strip().partition("\n")[0]
            return f"{what}, {guarantee}: {type(error).__name__}: {first_line[:200]}"
        if seen != EXPECTED:
            return f"{what}, {guarantee}: {seen.total()} rows, {len(seen)} different, instead of {ROWS}"
    return {0: "yes", 2: "at-least-once"}.get(len(refused), f"exactly-once is refused for a {refused} only")


def is_refusal(said: str) -> bool:
    return "BrokerUnsupported" in said and "lacks what exactly-once needs" in said and "ListTransactions" in said


def exists(servers: str, topic: str) -> bool:
    return topic in AdminClient({"bootstrap.servers": servers}).list_topics(timeout=DEADLINE_S).topics


def stream(spark: SparkSession, folder: str, options: dict[str, str]) -> None:
    source = spark.readStream.schema("value STRING").option("maxFilesPerTrigger", "1").parquet(f"{folder}/rows")
    writer = source.writeStream.format("pykafka").options(**options).trigger(availableNow=True)
    query = writer.option("checkpointLocation", f"{folder}/{options['topic']}").start()
    if not query.awaitTermination(DEADLINE_S):
        query.stop()
        raise TimeoutError(f"the stream did not end in {DEADLINE_S} s")


def committed(servers: str, topic: str) -> Counter[str]:
    consumer = Consumer({
        "bootstrap.servers": servers, "group.id": "matrix", "enable.auto.commit": False, "enable.partition.eof": True,
        "isolation.level": "read_committed", "auto.offset.reset": "earliest",
    })  # fmt: skip
    seen: Counter[str] = Counter()
    try:
        partitions = consumer.list_topics(topic, DEADLINE_S).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        ended: set[int | None] = set()
        while len(ended) < len(partitions):
            message = consumer.poll(DEADLINE_S)
            if message is None:
                raise TimeoutError(f"{topic} could not be read to its end in {DEADLINE_S} s")
            error = message.error()
            if error is None:
                seen[(message.value() or b"").decode()] += 1
            elif error.code() == PARTITION_EOF:
                ended.add(message.partition())
            else:
                raise KafkaException(error)
    finally:
        consumer.close()
    return seen


if __name__ == "__main__":
    main()

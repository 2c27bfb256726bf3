"""Later actions on a DataFrame of a batch read, on a cluster, in executors that have run no task of the first action.

python read_again_app.py SOURCE BOOTSTRAP_SERVERS FACTS TOPIC... prints what each of them showed: a number of rows, or
the name of the error. Each takes a topic that is empty at first. It gets two records before the later action.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import kafka_sink
from broker_admin import send
from kafka_reads import JVM, add_jvm_source

# Spark makes the folders of executors in it.
FOLDER = tempfile.mkdtemp()
CONF: dict[str, bool | float | int | str | None] = {
    "spark.local.dir": FOLDER,
    "spark.ui.enabled": False,
    "spark.sql.shuffle.partitions": 1,
    "spark.task.maxFailures": 1,
}
SOURCE, SERVERS, FACTS, *TOPICS = sys.argv[1:]

spark = SparkSession.builder.master("local-cluster[2,1,1024]").config(map=CONF).getOrCreate()
writer = Producer({"bootstrap.servers": SERVERS})


def options(topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": SERVERS, "subscribe": topic}


def load(topic: str, **more: str) -> DataFrame:
    return spark.read.format(SOURCE).options(**options(topic), **more).load()


def arrive(topic: str) -> None:
    """Two records, and executors that know of no plan."""
    for notes in list(Path(FOLDER).rglob("pykafka-plans-*")):
        shutil.rmtree(notes)
    send(writer, topic, [b"0", b"1"])


def count_again(topic: str) -> int:
    frame = load(topic)
    assert frame.isEmpty()
    arrive(topic)
    return frame.count()


def ask_a_view_again(topic: str) -> int:
    load(topic).createOrReplaceTempView("again")
    assert spark.sql("SELECT count(*) FROM again").first() == (0,)
    arrive(topic)
    return len(spark.sql("SELECT * FROM again").collect())


def join_a_stream(topic: str) -> int:
    """Each micro-batch sees the static side."""
    static = load(topic).selectExpr("offset", "value AS name")
    facts = spark.readStream.format(SOURCE).options(**options(FACTS), startingOffsets="earliest").load()
    seen: list[int] = []
    query = (
        facts.select("partition").join(static).writeStream
        .foreachBatch(lambda rows, _: seen.append(rows.count()))
        .option("checkpointLocation", tempfile.mkdtemp(dir=FOLDER)).start()
    )  # fmt: skip
    try:
        query.processAllAvailable()
        arrive(topic)
        send(writer, FACTS, [b"later"])
        query.processAllAvailable()
    finally:
        query.stop()
    return seen[-1]


def cache_and_explain_first(topic: str) -> int:
    """Neither plans a read."""
    frame = load(topic).cache()
    frame.explain()
    arrive(topic)
    return frame.count()


def let_spark_plan_each_query(topic: str) -> int:
    """Spark hands filters to the source, and plans with them."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    frame = load(topic).where("offset >= 0")
    try:
        assert frame.isEmpty()
        arrive(topic)
        return frame.count()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def shown_by(later_action: Callable[[str], int], topic: str) -> int | str:
    try:
        return later_action(topic)
    except PySparkException as error:
        return type(kafka_sink.error_of(error)).__name__


ACTIONS = count_again, ask_a_view_again, join_a_stream, cache_and_explain_first, let_spark_plan_each_query

if __name__ == "__main__":
    if SOURCE == JVM:
        add_jvm_source(spark)
    send(writer, FACTS, [b"first"])
    print(json.dumps({each.__name__: shown_by(each, topic) for each, topic in zip(ACTIONS, TOPICS, strict=True)}))

"""A DataFrame of a batch read that is used again shows what has arrived since, as that of Spark's own source does."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import spark_jars
from applications import told_by
from broker_admin import delete_records, produce
from kafka_reads import options_of
from kafka_sink.broker import LocalKafka
from variants import variants

SOURCES = variants("pykafka", "kafka")


def load(spark: SparkSession, source: str, kafka: LocalKafka, topic: str, **more: str) -> DataFrame:
    return spark.read.format(source).options(**options_of(kafka, {"subscribe": topic, **more})).load()


@pytest.mark.parametrize("source", SOURCES)
def test_a_later_action_shows_new_rows(
    both: SparkSession, kafka: LocalKafka, topic: Callable[..., str], source: str
) -> None:
    name = topic(2)
    frame = load(both, source, kafka, name)
    frame.createOrReplaceTempView("again")
    assert frame.isEmpty()
    produce(kafka, name, 3)
    assert frame.count() == 3
    produce(kafka, name, 4)
    assert both.sql("SELECT count(*) FROM again").first() == (7,)
    # One action on both: a join of the frame with itself.
    assert frame.alias("a").join(frame.alias("b"), ["partition", "offset"]).count() == 7


@pytest.mark.long
@pytest.mark.parametrize("source", ["pykafka", "kafka"])
def test_a_later_action_misses_nothing_that_retention_took_in_between(
    both: SparkSession, kafka: LocalKafka, topic: Callable[..., str], source: str
) -> None:
    name = topic(1)
    produce(kafka, name, 3)
    frame = load(both, source, kafka, name)
    assert frame.count() == 3
    delete_records(kafka, name, 3)
    assert frame.isEmpty()
    produce(kafka, name, 4)
    assert frame.union(frame).count() == 8
    # Jobs of an RDD, which Spark runs in no query.
    assert frame.rdd.count() == 4
    produce(kafka, name, 1)
    assert frame.rdd.count() == 5


@pytest.mark.parametrize("source", SOURCES)
def test_a_stream_sees_new_rows_of_a_static_topic(
    both: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path, source: str
) -> None:
    facts, names = topic(1), topic(1)
    produce(kafka, names, 1)
    produce(kafka, facts, 1)
    static = load(both, source, kafka, names).selectExpr("offset", "value AS name")
    options = options_of(kafka, {"subscribe": facts, "startingOffsets": "earliest"})
    stream = both.readStream.format(source).options(**options).load()
    joined = stream.select("offset").join(static, "offset")
    seen: list[int] = []
    query = (
        joined.writeStream.foreachBatch(lambda rows, _: seen.extend(row["offset"] for row in rows.collect()))
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    try:
        query.processAllAvailable()
        produce(kafka, names, 2)
        produce(kafka, facts, 2)
        query.processAllAvailable()
    finally:
        query.stop()
    assert sorted(seen) == [0, 1, 2]


def test_the_first_offsets_are_read_again_where_that_is_asked_for(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str]
) -> None:
    name = topic(1)
    produce(kafka, name, 3)
    frame = load(spark, "pykafka", kafka, name, reuseOffsets="true")
    assert frame.count() == 3
    produce(kafka, name, 4)
    assert frame.count() == 3
    assert load(spark, "pykafka", kafka, name).count() == 7


@pytest.mark.long
@pytest.mark.parametrize("source", ["pykafka", "kafka"])
def test_no_later_action_is_stale_on_a_cluster(
    kafka: LocalKafka, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch, source: str
) -> None:
    """In executors that have run no task of the first action, the time of the query tells."""
    monkeypatch.setenv("PYTHONPATH", str(Path(spark_jars.__file__).parent), prepend=os.pathsep)
    told = told_by("read_again_app.py", source, kafka.bootstrap_servers, *(topic(1) for _ in range(6)))
    later = "PlanReused" if source == "pykafka" else 2
    assert told == {
        "count_again": later,
        "ask_a_view_again": later,
        "join_a_stream": later,
        "cache_and_explain_first": 2,
        "let_spark_plan_each_query": 2,
    }

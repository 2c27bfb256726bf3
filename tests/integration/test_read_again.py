"""A DataFrame of a batch read that is used again shows what has arrived since, as that of Spark's own source does."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from applications import told_by
from broker_admin import create_again, delete_records, produce
from effort import variants
from kafka_reads import frame as frame_of
from kafka_reads import stream
from kafka_sink.broker import LocalKafka

SOURCES = variants("pykafka", "kafka")


@pytest.mark.parametrize("source", SOURCES)
def test_a_later_action_shows_new_rows(
    both: SparkSession, kafka: LocalKafka, topic: Callable[..., str], source: str
) -> None:
    name = topic(2)
    frame = frame_of(both, source, kafka, subscribe=name)
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
    frame = frame_of(both, source, kafka, subscribe=name)
    assert frame.count() == 3
    delete_records(kafka, name, 3)
    assert frame.isEmpty()
    produce(kafka, name, 4)
    assert frame.union(frame).count() == 8
    # Jobs of an RDD, which Spark runs in no query.
    assert frame.rdd.count() == 4
    produce(kafka, name, 1)
    assert frame.rdd.count() == 5


@pytest.mark.long
@pytest.mark.parametrize(("source", "start"), [("pykafka", "earliest"), ("pykafka", "latest-4"), ("kafka", "earliest")])
def test_a_later_action_reads_a_topic_that_was_created_again_whole(
    both: SparkSession, kafka: LocalKafka, topic: Callable[..., str], source: str, start: str
) -> None:
    name = topic(1)
    produce(kafka, name, 5)
    frame = frame_of(both, source, kafka, subscribe=name, startingOffsets=start)
    assert frame.count() == (4 if start == "latest-4" else 5)
    for count in (3, 5, 8):
        create_again(kafka, name)
        produce(kafka, name, count)
        assert [row["offset"] for row in frame.sort("offset").collect()] == list(range(count))


@pytest.mark.parametrize("source", SOURCES)
def test_a_stream_sees_new_rows_of_a_static_topic(
    both: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path, source: str
) -> None:
    facts, names = topic(1), topic(1)
    produce(kafka, names, 1)
    produce(kafka, facts, 1)
    static = frame_of(both, source, kafka, subscribe=names).selectExpr("offset", "value AS name")
    facts_read = stream(both, source, kafka, subscribe=facts, startingOffsets="earliest")
    joined = facts_read.select("offset").join(static, "offset")
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
    frame = frame_of(spark, "pykafka", kafka, subscribe=name, reuseOffsets="true")
    assert frame.count() == 3
    produce(kafka, name, 4)
    assert frame.count() == 3
    assert frame_of(spark, "pykafka", kafka, subscribe=name).count() == 7


@pytest.mark.long
@pytest.mark.parametrize("source", ["pykafka", "kafka"])
def test_no_later_action_is_stale_on_a_cluster(kafka: LocalKafka, topic: Callable[..., str], source: str) -> None:
    """In executors that have run no task of the first action, the time of the query tells."""
    told = told_by("apps.py", "read_again", source, kafka.bootstrap_servers, *(topic(1) for _ in range(5)))
    later = "PlanReused" if source == "pykafka" else 2
    as_planned = {"cache_and_explain_first": 2, "let_spark_plan_each_query": 2}
    assert told == {"count_again": later, "join_a_stream": later, **as_planned}

"""A micro-batch that is written twice, and what `kafka_sink.dedupe` makes of the topic; confluent-kafka reads it."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

import kafka_sink
from exactly_once_runs import is_unrecorded
from kafka_sink.broker import LocalKafka
from read_back import read_topic
from spark_writes import Here, finish

DEADLINE_S = 60
ROWS = 2_000
PARTS = ("topic", "query", "batch", "slot", "row")
# The schema of Spark's own source with includeHeaders=true.
SOURCE_SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


def as_sparks_source(spark: SparkSession, kafka: LocalKafka, topic: str) -> DataFrame:
    """Everything in `topic`, as `format("kafka")` would give it."""
    rows = [
        (record.key, record.value, topic, partition, offset, record.timestamp_ms, list(record.headers) or None)
        for partition, offset, record in read_topic(kafka.bootstrap_servers, topic, DEADLINE_S)
    ]
    read = spark.createDataFrame(rows, SOURCE_SCHEMA.replace("timestamp TIMESTAMP", "timestamp BIGINT"))
    return read.selectExpr(*("timestamp_millis(timestamp) timestamp" if n == "timestamp" else n for n in read.columns))


def test_a_micro_batch_that_is_written_again_is_read_once(here: Here) -> None:
    name = here.topic(3)
    halves = (here.numbers(ROWS // 2, first=first) for first in (0, ROWS // 2))
    rows = here.arriving(*halves, at_once=2).selectExpr(
        "if(value % 2 = 0, value, null) AS key",
        "value",
        "if(value % 3 = 0, array(struct('own' AS key, cast(value AS BINARY) AS value)), null) AS headers",
    )
    for _ in range(2):
        finish(here.start(rows, name, {"rowIdentity": "true"}))
        is_unrecorded(here.folder)
    # Records without an identity, alike: each is a row.
    here.save(here.spark.range(3).selectExpr("'-1' AS value"), name)

    in_topic = as_sparks_source(here.spark, here.kafka, name).cache()
    assert in_topic.count() == 2 * ROWS + 3
    expected = here.spark.sql(
        f"SELECT id, if(id % 3 = 0, array(cast(id AS STRING)), null) AS own FROM range({ROWS}) "
        "UNION ALL SELECT -1 AS id, null AS own FROM range(3)"
    )

    def assert_read_once(read: DataFrame) -> None:
        assert read.columns == in_topic.columns
        own = "transform(headers, h -> concat_ws('=', nullif(h.key, 'own'), cast(h.value AS STRING))) AS own"
        told = read.selectExpr("cast(cast(value AS STRING) AS BIGINT) AS id", own)
        assert_df_equality(told, expected, ignore_row_order=True, ignore_nullable=True)

    assert_read_once(kafka_sink.dedupe(in_topic))

    in_topic.repartition(2).write.parquet(str(here.folder / "topic"))
    stream = (
        here.spark.readStream.schema(in_topic.schema)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(here.folder / "topic"))
    )
    once = kafka_sink.dedupe(stream, watermark="1 hour")
    finish(once.writeStream.format("memory").queryName("read_once").trigger(availableNow=True).start())
    assert_read_once(here.spark.table("read_once"))


def test_only_what_is_the_same_row_of_the_same_topic_is_left_out(spark: SparkSession) -> None:
    def told(*origin: str) -> list[tuple[str, bytes]]:
        return [(f"pykafka.{name}", part.encode()) for name, part in zip(PARTS, origin, strict=False)]

    row, of_row = told("a", "q", "7", "1", "3"), ("q", "7", "1", "3")
    # As records/dead_letters.py has them.
    letter = [("pykafka.reason", b"TopicNull"), *told("letters", *of_row)[1:], ("pykafka.topic", b"a")]
    records = {
        "first": ("a", row),
        "again": ("a", row),
        "again, read elsewhere before": ("a", [*told("b", "other", "1", "1", "1"), ("own", b"1"), *row]),
        "in another topic": ("b", told("b", *of_row)),
        "read from another topic and written on, one part": ("b", row),
        "read from another topic and written on, another part": ("b", row),
        "with more behind it": ("a", [*row, ("own", b"1")]),
        "the same, another part": ("a", [*row, ("own", b"1")]),
        "in another slot": ("a", told("a", "q", "7", "2", "3")),
        "in another micro-batch": ("a", told("a", "q", "71", "", "3")),
        "of another query": ("a", told("a", "p", "7", "1", "3")),
        "without all of it": ("a", row[1:]),
        "the same once more": ("a", row[1:]),
        "with a null in it": ("a", [*row[:4], ("pykafka.row", None)]),
        "with a null in it, once more": ("a", [*row[:4], ("pykafka.row", None)]),
        "a dead letter": ("letters", letter),
        "another of the same place": ("letters", letter),
        "a dead letter, written on": ("a", letter),
        "a dead letter, written on, another part": ("a", letter),
        "a dead letter that was written on and is known": ("a", [*letter, *row[:4], ("pykafka.row", b"4")]),
        "with none": ("a", None),
        "with an empty list": ("a", []),
        "with others": ("a", [("own", None)]),
    }
    rows = [
        (None, said.encode(), topic, 0, offset, None, headers)
        for offset, (said, (topic, headers)) in enumerate(records.items())
    ]
    read = kafka_sink.dedupe(spark.createDataFrame(rows, SOURCE_SCHEMA).coalesce(1))
    kept = {bytes(one.value).decode(): one.headers for one in read.collect()}
    assert kept.keys() == records.keys() - {"again", "again, read elsewhere before"}
    letters = {said for said in records if "dead letter" in said} | {"another of the same place"}
    own = {"with others", "with more behind it", "the same, another part"}
    assert {said for said, headers in kept.items() if headers is not None} == letters | own
    assert all([tuple(header) for header in kept[said]] == letter for said in letters)


@pytest.mark.long
def test_records_without_an_identity_are_kept_where_places_repeat_or_are_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    # A topic that was made again, or another cluster's: the same places, and here the very same records.
    hours = (5, 0, 0, 5)
    rows = [(None, b"v", "a", 0, 7, datetime(2026, 1, 1, hour, tzinfo=UTC), None) for hour in hours]
    spark.createDataFrame(rows, SOURCE_SCHEMA).repartition(len(rows)).write.parquet(str(tmp_path / "topic"))
    assert kafka_sink.dedupe(spark.read.parquet(str(tmp_path / "topic"))).count() == len(rows)

    stream = spark.readStream.schema(SOURCE_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "topic"))
    once = kafka_sink.dedupe(stream, watermark="1 hour")
    query = once.writeStream.format("memory").queryName("places").trigger(availableNow=True).start()
    finish(query)
    assert spark.table("places").count() == len(rows)
    assert {operator["numRowsTotal"] for one in query.recentProgress for operator in one["stateOperators"]} == {0}

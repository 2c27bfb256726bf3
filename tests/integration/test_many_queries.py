"""Exactly-once queries, many of them in one application, which are stopped again and again: each row is there once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from broker_admin import producer, send
from committed_rows import held_back, read_values
from kafka_sink.broker import LocalKafka
from stream_reads import assert_group_is_not_ahead, committed, logged
from waiting import wait_until

pytestmark = pytest.mark.long
QUERIES, ROWS, STOPS = 16, 40, 4
DEADLINE_S = 300


def started(
    spark: SparkSession, kafka: LocalKafka, source: str, target: str, folder: Path, **more: str
) -> StreamingQuery:
    """`more`: options of the source."""
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    reader = spark.readStream.format("pykafka").options(**options, subscribe=source, startingOffsets="earliest", **more)
    frame = reader.load()
    writer = frame.select("value").writeStream.format("pykafka").options(**options, topic=target)
    writer = writer.option("deliveryGuarantee", "exactly-once").option("checkpointLocation", str(folder))
    return (writer.trigger(processingTime="1 second") if not more else writer).start()


@pytest.mark.timeout(900)
def test_queries_that_are_stopped_again_and_again_have_each_row_once(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    """A stop comes at any moment: some queries have planned, some are in a task, some in a commit."""
    source, targets = topic(2), [topic(2) for _ in range(QUERIES)]
    folders = [tmp_path / str(number) for number in range(QUERIES)]
    sent = 0
    for stop in range(STOPS + 1):
        queries = [started(spark, kafka, source, *each) for each in zip(targets, folders, strict=True)]
        send(producer(kafka), source, (b"%d" % number for number in range(sent, sent + ROWS)))
        sent += ROWS
        if stop < STOPS:
            wait_until(lambda: any(query.recentProgress for query in queries), DEADLINE_S, "the first micro-batch")  # noqa: B023
        else:
            for query in queries:
                query.processAllAvailable()
        for query in queries:
            assert query.exception() is None
            query.stop()
    expected = Counter({b"%d" % number: 1 for number in range(sent)})
    assert [read_values(kafka, target) for target in targets] == [expected] * QUERIES


@pytest.mark.timeout(900)
def test_a_query_that_is_stopped_in_each_phase_is_not_behind_its_group(
    spark: SparkSession, kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    source, target, sent = topic(2), topic(2), 0
    options = {"groupId": source, "maxOffsetsPerTrigger": "40"}
    for stop in range(20):
        for partition in range(2):
            values = [b"%d" % number for number in range(sent, sent + ROWS)]
            send(producer(kafka), source, values, partition=partition)
            sent += ROWS
        planned, recorded = len(logged(tmp_path)), len(committed(tmp_path))
        query = started(spark, kafka, source, target, tmp_path, **options)
        phases: list[Callable[[], object]] = [
            lambda: True,
            lambda: query.status["isTriggerActive"],  # noqa: B023
            lambda: len(logged(tmp_path)) > planned,  # noqa: B023
            spark.sparkContext.statusTracker().getActiveStageIds,
            lambda: len(committed(tmp_path)) > recorded + 1,  # noqa: B023
        ]
        wait_until(phases[stop % len(phases)], DEADLINE_S, "the phase")
        assert_group_is_not_ahead(kafka, source, tmp_path, source, 2)
        query.stop()
        assert query.exception() is None
        assert_group_is_not_ahead(kafka, source, tmp_path, source, 2)
    query = started(spark, kafka, source, target, tmp_path, **options)
    query.processAllAvailable()
    wait_until(lambda: assert_group_is_not_ahead(kafka, source, tmp_path, source, 2), DEADLINE_S, "the group's offsets")
    query.stop()
    assert read_values(kafka, target) == Counter(b"%d" % number for number in range(sent))
    assert held_back(kafka, target) == 0

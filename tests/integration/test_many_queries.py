"""Many exactly-once queries in one application, which are stopped again and again: each row is there once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from broker_admin import producer, send
from committed_rows import read_values
from kafka_sink.broker import LocalKafka
from waiting import wait_until

pytestmark = pytest.mark.long
QUERIES, ROWS, STOPS = 16, 40, 4
DEADLINE_S = 300


def started(spark: SparkSession, kafka: LocalKafka, source: str, target: str, folder: Path) -> StreamingQuery:
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    frame = spark.readStream.format("pykafka").options(**options, subscribe=source, startingOffsets="earliest").load()
    writer = frame.select("value").writeStream.format("pykafka").options(**options, topic=target)
    writer = writer.option("deliveryGuarantee", "exactly-once").option("checkpointLocation", str(folder))
    return writer.trigger(processingTime="1 second").start()


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

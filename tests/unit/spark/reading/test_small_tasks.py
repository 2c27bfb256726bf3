"""Advice for reads of many small tasks: when it is given, what it says, and once a query."""

import logging
import uuid
from typing import Any

import pytest

from kafka_sink import kept
from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.options.config import given_options
from kafka_sink.options.reading import READING, ReadConfig, read_config
from kafka_sink.spark.reading.divide import Tasks, described, enough_tasks
from kafka_sink.spark.source import KafkaDataSource
from scripted_kafka import ScriptedKafka
from scripted_reads import ScriptedLog, connect_reads, serve

OPTIONS = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
LINE = (
    "a read of t has 200 tasks of about 40 records. To start a task costs more than to read its records: "
    "maxPartitions=8 would make 8 tasks."
)


def config(**options: str) -> ReadConfig:
    return read_config(given_options(OPTIONS | options, table=READING))


def tasks(count: int, records: int) -> Tasks:
    return [(FetchRange("t", None, number, 0, records, leader_epoch=0),) for number in range(count)]


@pytest.mark.parametrize(("count", "records", "enough"), [
    (200, 40, 8),
    (32, 1, 8),
    (31, 1, None),
    (200, 10_000, 40),  # two million records
    (160, 10_000, 32),
    (200, 12_500, 50),
    (200, 12_501, None),
    (4, 1, None),
])  # fmt: skip
def test_tasks_are_advised_that_have_50_000_records_each_or_are_eight(
    count: int, records: int, enough: int | None
) -> None:
    assert enough_tasks(tasks(count, records), config()) == enough


@pytest.mark.parametrize("option", ["maxPartitions", "minPartitions", "maxRecordsPerPartition"])
def test_who_says_how_many_tasks_there_are_gets_no_advice(option: str) -> None:
    assert enough_tasks(tasks(200, 40), config(**{option: "100"})) is None


def test_sizes_in_words() -> None:
    words = [described(each) for each in ([], tasks(1, 7), tasks(200, 40), tasks(3, 1_234))]
    assert words == [
        "no records to read now",
        "1 task of 7 records",
        "200 tasks of about 40 records",
        "3 tasks of about 1,234 records",
    ]


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> ScriptedKafka:
    made = ScriptedKafka()
    serve(made, {("t", number): ScriptedLog(0, 40) for number in range(200)})
    made.topic_ids["t"] = uuid.UUID(int=1)
    connect_reads(made, monkeypatch)
    monkeypatch.setattr(kept, "KEPT", kept.Kept())
    return made


def test_a_batch_and_a_stream_log_one_line(kafka: ScriptedKafka, caplog: pytest.LogCaptureFixture) -> None:
    source: Any = KafkaDataSource(OPTIONS)
    with caplog.at_level(logging.WARNING):
        assert len(source.reader(source.schema()).partitions()) == 200
        assert caplog.messages == [LINE]
        caplog.clear()
        stream = KafkaDataSource(OPTIONS | {"startingOffsets": "earliest"}).streamReader(source.schema())
        start = stream.initialOffset()
        end = stream.latestOffset()
        for _ in range(2):
            assert len(stream.partitions(start, end)) == 200
        assert caplog.messages == [LINE]

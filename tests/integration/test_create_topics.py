"""createTopics on a real broker: the topic that a write makes, as another client describes it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import export_to_kafka
import kafka_sink
from broker_admin import admin, topics
from kafka_sink.broker import LocalKafka
from kafka_sink.errors import InvalidOption, TopicNotCreated, WriteWouldFail
from spark_writes import arriving, finish, start
from variants import variants

DEADLINE_S = 60
ROWS = 100
ASKED = "partitions=3,replicas=1,retention.ms=86400000,cleanup.policy=compact,delete"
MADE = (3, 1, {"retention.ms": "86400000", "cleanup.policy": "compact,delete"})
numbers = itertools.count()


@pytest.fixture
def name() -> str:
    return f"created-{next(numbers)}"


@pytest.fixture
def frame(spark: SparkSession) -> Iterator[DataFrame]:
    kafka_sink.register(spark)
    yield spark.range(0, ROWS, 1, 2).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")


def described(kafka: LocalKafka, name: str) -> tuple[int, int, dict[str, str]]:
    """Partitions, replicas of each, and the settings that are the topic's own."""
    client = admin(kafka)
    partitions = client.list_topics(name, timeout=DEADLINE_S).topics[name].partitions
    (replicas,) = {len(partition.replicas) for partition in partitions.values()}
    resource = ConfigResource(ResourceType.TOPIC, name)
    entries = client.describe_configs([resource])[resource].result(DEADLINE_S)
    own = {key: entry.value for key, entry in entries.items() if entry.source == 1}  # DYNAMIC_TOPIC_CONFIG
    return len(partitions), replicas, own


def options(kafka: LocalKafka, name: str, **others: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": name, "createTopics": ASKED, **others}


@pytest.mark.parametrize("guarantee", variants("at-least-once", "exactly-once"))
def test_a_batch_write(frame: DataFrame, kafka: LocalKafka, name: str, guarantee: str) -> None:
    said = options(kafka, name, deliveryGuarantee=guarantee)
    frame.write.format("pykafka").mode("append").options(**said).save()
    assert described(kafka, name) == MADE


@pytest.mark.long
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_stream(frame: DataFrame, kafka: LocalKafka, name: str, tmp_path: Path, guarantee: str) -> None:
    rows, said = arriving(tmp_path / "in", frame), {"createTopics": ASKED, "deliveryGuarantee": guarantee}
    finish(start(rows, kafka, name, tmp_path, said))
    assert described(kafka, name) == MADE


@pytest.mark.parametrize("more", variants({}, {"exactly_once": True}, {"co_partition": True}))
def test_an_export(frame: DataFrame, kafka: LocalKafka, name: str, more: dict[str, Any]) -> None:
    asked = {"partitions": 3, "replicas": 1, "retention.ms": 86_400_000, "cleanup.policy": "compact,delete"}
    done = kafka_sink.export(frame, name, create_topics=asked, bootstrap_servers=kafka.bootstrap_servers, **more)
    assert done.rows == ROWS
    assert described(kafka, name) == MADE


def test_a_job(frame: DataFrame, kafka: LocalKafka, name: str, tmp_path: Path) -> None:
    frame.write.parquet(str(tmp_path / "in"))
    line = ["--source", str(tmp_path / "in"), "--topic", name, "--create-topics", ASKED, "--key", "key"]
    args = export_to_kafka.parse([*line, "--bootstrap-servers", kafka.bootstrap_servers])
    assert export_to_kafka.export(frame.sparkSession, args, threading.Event()) == 0
    assert described(kafka, name) == MADE


def test_a_topic_that_exists_is_left_as_it_is(frame: DataFrame, kafka: LocalKafka, name: str) -> None:
    kafka.create_topic(name, 2)
    before = described(kafka, name)
    frame.write.format("pykafka").mode("append").options(**options(kafka, name)).save()
    assert described(kafka, name) == before != MADE


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"replicas": 9}, ("INVALID_REPLICATION_FACTOR", "9 time(s)", "createTopics=replicas=1")),
        ({"retention.sm": 5}, ("INVALID_CONFIG", "retention.sm", "correct the topic settings in createTopics")),
    ],
)
def test_what_the_broker_refuses_is_said_with_its_words(
    frame: DataFrame, kafka: LocalKafka, name: str, asked: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(WriteWouldFail) as refused:
        kafka_sink.export(frame, name, create_topics=asked, bootstrap_servers=kafka.bootstrap_servers)
    assert all(word in str(refused.value) for word in words), str(refused.value)
    text = ",".join(f"{key}={value}" for key, value in asked.items())
    said = options(kafka, name, createTopics=text)
    with pytest.raises(PySparkException) as failed:
        frame.write.format("pykafka").mode("append").options(**said).save()
    assert isinstance(kafka_sink.error_of(failed.value), TopicNotCreated)
    assert all(word in str(failed.value) for word in words)
    assert name not in topics(kafka)


def test_a_wrong_value_is_refused_before_brokers_are_asked(frame: DataFrame, name: str) -> None:
    asked = {"replication-factor": 3}
    with pytest.raises(InvalidOption, match="replication-factor is called replicas here"):
        kafka_sink.export(frame, name, create_topics=asked, bootstrap_servers="nowhere.invalid:9092")

"""createTopics on a real broker: the topic that a write makes, as another client describes it."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import ConfigResource, ResourceType
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import kafka_sink
from broker_admin import admin, topics
from effort import variants
from kafka_sink.broker import LocalKafka
from kafka_sink.errors import TopicNotCreated, WriteWouldFail
from spark_writes import Here, finish

DEADLINE_S = 60
ROWS = 100
ASKED = "partitions=3,replicas=1,retention.ms=86400000,cleanup.policy=compact,delete"
MADE = (3, 1, {"retention.ms": "86400000", "cleanup.policy": "compact,delete"})


@pytest.fixture
def name(topic: Callable[..., str]) -> str:
    return f"{topic()}-created"


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    kafka_sink.register(spark)
    return spark.range(0, ROWS, 1, 2).selectExpr("CAST(id AS STRING) AS key", "CAST(id AS STRING) AS value")


def described(kafka: LocalKafka, name: str) -> tuple[int, int, dict[str, str]]:
    """Partitions, replicas of each, and the settings that are the topic's own."""
    client = admin(kafka)
    partitions = client.list_topics(name, timeout=DEADLINE_S).topics[name].partitions
    (replicas,) = {len(partition.replicas) for partition in partitions.values()}
    resource = ConfigResource(ResourceType.TOPIC, name)
    entries = client.describe_configs([resource])[resource].result(DEADLINE_S)
    own = {key: entry.value for key, entry in entries.items() if entry.source == 1}  # DYNAMIC_TOPIC_CONFIG
    return len(partitions), replicas, own


@pytest.mark.parametrize("guarantee", variants("at-least-once", "exactly-once"))
def test_a_batch_write(here: Here, frame: DataFrame, name: str, guarantee: str) -> None:
    given = {"deliveryGuarantee": guarantee, "createTopics": ASKED}
    frame.write.format("pykafka").mode("append").options(**here.to(name), **given).save()
    assert described(here.kafka, name) == MADE
    # A topic that exists is left as it is.
    frame.write.format("pykafka").mode("append").options(**here.to(name), createTopics="partitions=5").save()
    assert described(here.kafka, name) == MADE


@pytest.mark.long
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_stream(here: Here, frame: DataFrame, name: str, guarantee: str) -> None:
    finish(here.start(here.arriving(frame), name, {"createTopics": ASKED, "deliveryGuarantee": guarantee}))
    assert described(here.kafka, name) == MADE


@pytest.mark.parametrize("more", variants({}, {"exactly_once": True}, {"co_partition": True}))
def test_an_export(frame: DataFrame, kafka: LocalKafka, name: str, more: dict[str, Any]) -> None:
    asked = {"partitions": 3, "replicas": 1, "retention.ms": 86_400_000, "cleanup.policy": "compact,delete"}
    done = kafka_sink.export(frame, name, create_topics=asked, bootstrap_servers=kafka.bootstrap_servers, **more)
    assert done.rows == ROWS
    assert described(kafka, name) == MADE


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"replicas": 9}, ("INVALID_REPLICATION_FACTOR", "9 time(s)", "createTopics=replicas=1")),
        ({"retention.sm": 5}, ("INVALID_CONFIG", "retention.sm", "correct the topic settings in createTopics")),
    ],
)
def test_what_the_broker_refuses_is_said_with_its_words(
    here: Here, frame: DataFrame, name: str, asked: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(WriteWouldFail) as refused:
        kafka_sink.export(frame, name, create_topics=asked, bootstrap_servers=here.servers)
    assert all(word in str(refused.value) for word in words), str(refused.value)
    text = ",".join(f"{key}={value}" for key, value in asked.items())
    with pytest.raises(PySparkException) as failed:
        frame.write.format("pykafka").mode("append").options(**here.to(name), createTopics=text).save()
    assert isinstance(kafka_sink.error_of(failed.value), TopicNotCreated)
    assert all(word in str(failed.value) for word in words)
    assert name not in topics(here.kafka)

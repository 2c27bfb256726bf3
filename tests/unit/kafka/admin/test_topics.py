"""What is asked of topics, over scripted brokers whose time only polls move."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import kafka_sink
from kafka_sink.errors import MissingOption, TopicAuthorizationFailed, TopicNameInvalid, TopicNotFound
from kafka_sink.kafka.admin import topics
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.config import ProducerConfig
from kafka_sink.kafka.metadata import ABSENT_PATIENCE_MS
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest
from kafka_sink.kept import once
from kafka_sink.options.config import sink_config
from scripted_kafka import ScriptedKafka, ScriptedNetwork

NOT_YET, INVALID_TOPIC, DENIED = 5, 17, 29
OPTIONS = {"kafka.bootstrap.servers": "localhost:1"}

pytestmark = pytest.mark.usefixtures("network")


@pytest.fixture
def kafka() -> ScriptedKafka:
    made = ScriptedKafka()
    made.partitions = 7
    return made


def config() -> ProducerConfig:
    return sink_config({**OPTIONS, "topic": "t"}).producer


def partition_count(config: ProducerConfig, topic: str) -> int:
    with once(AdminClient, config) as client:
        return topics.partition_count(client, topic)


def test_partitions_are_counted_over_a_client_that_is_closed_again(
    kafka: ScriptedKafka, network: ScriptedNetwork
) -> None:
    assert partition_count(config(), "t") == 7
    assert network.closed
    # As for a write: brokers that make topics make this one.
    assert MetadataRequest(("t",), allow_auto_topic_creation=True) in [request for _, request in kafka.received]


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [(DENIED, TopicAuthorizationFailed, "for principal User:ANONYMOUS"), (INVALID_TOPIC, TopicNameInvalid, "'t'")],
)
def test_what_waiting_does_not_change_is_an_error_at_once(
    kafka: ScriptedKafka, network: ScriptedNetwork, code: int, error: type[Exception], words: str
) -> None:
    kafka.topic_error = code
    with pytest.raises(error, match=words):
        partition_count(config(), "t")
    assert (kafka.now_ms, network.closed) == (0, True)


def test_a_topic_that_is_being_made_is_waited_for(kafka: ScriptedKafka) -> None:
    kafka.topic_error = NOT_YET
    kafka.at = [(ABSENT_PATIENCE_MS + 2_000, lambda: setattr(kafka, "topic_error", 0))]
    assert partition_count(config(), "t") == 7


def test_a_topic_that_is_not_there_is_waited_for_a_few_seconds(kafka: ScriptedKafka) -> None:
    kafka.partitions = 0
    with pytest.raises(TopicNotFound) as raised:
        partition_count(config(), "t")
    assert ABSENT_PATIENCE_MS <= raised.value.waited_ms == kafka.now_ms < ABSENT_PATIENCE_MS + 2_000


def test_the_public_count_takes_the_sinks_options_and_what_the_sessions_conf_says() -> None:
    assert kafka_sink.partition_count({**OPTIONS, "Topic": "t"}) == 7
    with pytest.raises(MissingOption, match="'topic' is required"):
        kafka_sink.partition_count(OPTIONS)
    conf = {"spark.pykafka.kafka.bootstrap.servers": "localhost:1", "spark.pykafka.topic": "t", "spark.app.name": "x"}
    session = SimpleNamespace(conf=SimpleNamespace(getAll=conf))
    assert kafka_sink.partition_count({}, session) == 7  # type: ignore[arg-type]

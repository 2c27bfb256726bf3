from __future__ import annotations

import pytest

from kafka_sink.errors import InvalidOption
from kafka_sink.kafka.new_topic import NewTopic
from kafka_sink.options.config import sink_config


def create_topics(text: str) -> object:
    return sink_config({"kafka.bootstrap.servers": "b:9092", "topic": "t", "createTopics": text}).create_topics


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("true", NewTopic()),
        ("TRUE", NewTopic()),
        ("partitions=12", NewTopic(12)),
        ("replicas=3, partitions=12", NewTopic(12, 3)),
        ("retention.ms=-1", NewTopic(settings=(("retention.ms", "-1"),))),
        (
            "cleanup.policy=compact,delete,partitions=1,min.insync.replicas=2",
            NewTopic(1, settings=(("cleanup.policy", "compact,delete"), ("min.insync.replicas", "2"))),
        ),
    ],
)
def test_what_a_topic_is_to_have(text: str, topic: NewTopic) -> None:
    assert create_topics(text) == topic
    assert create_topics(str(topic)) == topic


def test_no_topic_is_created_without_it() -> None:
    assert not create_topics("false")
    assert not sink_config({"kafka.bootstrap.servers": "b:9092"}).create_topics


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("yes", "begins with no name=value, as partitions=12,replicas=3"),
        ("true,partitions=12", "begins with no name=value"),
        ("partitions=0", "partitions is a whole number from 1 to 2147483647, as partitions=3"),
        ("partitions=many", "partitions is a whole number"),
        ("partitions=99999999999", "partitions is a whole number"),
        ("replicas=40000", "replicas is a whole number from 1 to 32767"),
        ("replicas=1,2", "replicas is a whole number"),
        ("replication-factor=3", "replication-factor is called replicas here"),
        ("num.partitions=3", "num.partitions is called partitions here"),
        ("partitions=1,partitions=2", "partitions is given twice"),
        ("retention.ms=", "retention.ms has no value"),
        ("=3", "a name before = is none"),
        ("{'partitions'=3}", "a name before = is none"),
    ],
)
def test_a_wrong_value_is_refused_with_what_to_write(text: str, words: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        create_topics(text)
    assert refused.value.option == "createTopics"
    assert words in str(refused.value)

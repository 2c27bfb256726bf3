"""The lines of a JVM client's client.properties, pasted as `kafka.` options, work or name the line to change; and what
createTopics takes."""

from pathlib import Path

import pytest

from client_properties import FILES, SECRET, ClientProperties, read_properties
from effort import each
from kafka_sink.errors import ConfigError, InvalidOption, RefusedOption
from kafka_sink.kafka.new_topic import NewTopic
from kafka_sink.options.config import sink_config
from kafka_sink.options.table import WRITING


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_pasted_lines_work_or_are_named_one_by_one(file: ClientProperties) -> None:
    options = {f"kafka.{key}": value for key, value in read_properties(file.text).items()}
    changed: dict[str, str | None] = {}
    while True:
        try:
            config = sink_config(options)
            break
        except ConfigError as error:
            name: str = error.option  # type: ignore[attr-defined]
            assert SECRET not in str(error)
            assert name in file.instead, error
            assert name not in changed, f"changing it did not help: {error}"
            changed[name] = file.instead[name]
        # As a user does what the message says.
        if changed[name] is None:
            del options[name]
        else:
            options[name] = changed[name] or ""
    assert changed == file.instead
    assert SECRET not in repr(config)
    assert config.producer.security.security_protocol == options["kafka.security.protocol"]


# org.apache.kafka.clients.producer.ProducerConfig.configNames() of 3.9.2 and of 4.3.1.
@each("name", (Path(__file__).parents[2] / "support" / "producer_configs.txt").read_text().split())
def test_every_line_that_a_jvm_producer_takes_is_taken_or_refused_with_what_to_do(name: str) -> None:
    try:
        assert WRITING.named(f"kafka.{name}") is not None
    except RefusedOption as refused:
        assert refused.option == f"kafka.{name}"


def test_a_line_that_no_client_knows_is_named() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.sasl\.mechanisms.*Did you mean 'kafka\.sasl\.mechanism'"):
        sink_config({"kafka.bootstrap.servers": "a:1", "kafka.sasl.mechanisms": "PLAIN"})


def create_topics(text: str) -> object:
    return sink_config({"kafka.bootstrap.servers": "b:9092", "topic": "t", "createTopics": text}).create_topics


@pytest.mark.parametrize(("text", "topic"), [
    ("true", NewTopic()),
    ("TRUE", NewTopic()),
    ("partitions=12", NewTopic(12)),
    ("replicas=3, partitions=12", NewTopic(12, 3)),
    ("retention.ms=-1", NewTopic(settings=(("retention.ms", "-1"),))),
    ("cleanup.policy=compact,delete,partitions=1,min.insync.replicas=2",
     NewTopic(1, settings=(("cleanup.policy", "compact,delete"), ("min.insync.replicas", "2")))),
])  # fmt: skip
def test_what_a_topic_is_to_have(text: str, topic: NewTopic) -> None:
    assert create_topics(text) == create_topics(str(topic)) == topic
    assert not create_topics("false")
    assert not sink_config({"kafka.bootstrap.servers": "b:9092"}).create_topics


@pytest.mark.parametrize(("text", "words"), [
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
])  # fmt: skip
def test_a_wrong_value_is_refused_with_what_to_write(text: str, words: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        create_topics(text)
    assert refused.value.option == "createTopics"
    assert words in str(refused.value)

"""`pykafka check` looks at the brokers' topics with the state of exactly-once."""

from __future__ import annotations

import uuid

import pytest

from kafka_sink.doctor import judging
from kafka_sink.doctor.judging import MIN_ISR, STATE_TOPICS, UNCLEAN
from kafka_sink.doctor.report import Status
from kafka_sink.kafka.protocol.apis.describe_configs import TopicConfigs
from kafka_sink.kafka.protocol.apis.metadata import PartitionMetadata, TopicMetadata
from kafka_sink.options.config import sink_config

OK, WARNING, FAILED, SKIPPED = Status
CONFIG = sink_config({"kafka.bootstrap.servers": "b:9092", "topic": "t"})
UNKNOWN, DENIED = 3, 29
SAFE = {MIN_ISR: "2", UNCLEAN: "false"}


def topic(name: str, replicas: int = 3, code: int = 0) -> TopicMetadata:
    partitions = (PartitionMetadata(0, 0, 1, 0, tuple(range(replicas)), (1,)),)
    return TopicMetadata(code, name, uuid.UUID(int=1), () if code else partitions, -1)


@pytest.mark.parametrize(
    ("replicas", "code", "values", "config_code", "status", "found"),
    [
        (3, 0, SAFE, 0, OK, "__transaction_state has replication factor 3"),
        (3, UNKNOWN, {}, 0, OK, "__transaction_state is not created yet"),
        (1, 0, SAFE | {MIN_ISR: "1"}, 0, WARNING, "__transaction_state has one replica: if it loses"),
        (3, 0, SAFE | {UNCLEAN: "true"}, 0, WARNING, f"__transaction_state has {UNCLEAN}=true"),
        (3, 0, SAFE | {MIN_ISR: "1"}, 0, WARNING, f"__transaction_state has {MIN_ISR}=1"),
        (1, 0, {}, DENIED, WARNING, "twice; not seen: the settings of __transaction_state"),
        (3, 0, {}, DENIED, SKIPPED, "does not show the settings of __transaction_state"),
        (3, DENIED, {}, 0, SKIPPED, "does not show __transaction_state (TOPIC_AUTHORIZATION_FAILED (error 29))"),
    ],
)
def test_topics_of_state(
    replicas: int, code: int, values: dict[str, str], config_code: int, status: Status, found: str
) -> None:
    offsets, transactions = STATE_TOPICS
    topics = [topic(offsets), topic(transactions, replicas, code)]
    configs = [TopicConfigs(offsets, 0, SAFE), TopicConfigs(transactions, config_code, values)]
    finding = judging.state_topics(topics, configs, CONFIG)
    assert (finding.status, found in finding.found) == (status, True), finding
    if status is SKIPPED:
        assert "DESCRIBE_CONFIGS" in finding.remedy
    if status is WARNING:
        assert f"3 replicas, {MIN_ISR}=2 and {UNCLEAN}=false" in finding.remedy

"""The topic that createTopics asks for, over scripted brokers whose time only polls move."""

import os
from itertools import count

import pytest

import apis
from kafka_sink.errors import BrokersUnreachable, TopicNotCreated
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.options.config import SinkConfig, sink_config
from kafka_sink.spark.created_topic import LOOK_MS, ensure_topic, ensure_topic_by
from scripted_kafka import HANG_UP, ScriptedKafka, ScriptedNetwork, connect_clients

TIMED_OUT, DENIED, EXISTS, NOT_CONTROLLER = 7, 29, 36, 41
# Larger than any that Linux gives.
PROCESS_IDS = count(2**23)


@pytest.fixture
def kafka() -> ScriptedKafka:
    return ScriptedKafka()


@pytest.fixture(autouse=True)
def network(kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch) -> ScriptedNetwork:
    # What was found in another process does not count.
    process_id = next(PROCESS_IDS)
    monkeypatch.setattr(os, "getpid", lambda: process_id)
    return connect_clients(ScriptedNetwork(kafka, known={1}), monkeypatch)


def config(**more: str) -> SinkConfig:
    return sink_config({"kafka.bootstrap.servers": "b1:9092", "topic": "t", "createTopics": "true", **more})


def asked(kafka: ScriptedKafka) -> list[apis.CreateTopicsRequest]:
    return [request for _, request in kafka.asked(apis.CreateTopicsRequest)]


def test_a_missing_topic_is_made_as_asked_and_once(kafka: ScriptedKafka, network: ScriptedNetwork) -> None:
    wanted = config(createTopics="partitions=3,replicas=2,retention.ms=5")
    for _ in range(3):
        ensure_topic(wanted)
    assert network.closed
    (request,) = asked(kafka)
    assert (request.topic, request.partition_count, request.replication_factor) == ("t", 3, 2)
    assert request.settings == (("retention.ms", "5"),)
    seen = len(kafka.received)
    ensure_topic(wanted)
    assert len(kafka.received) == seen
    ensure_topic(config(topic="u"))
    assert [each.topic for each in asked(kafka)] == ["t", "u"]


def test_a_topic_that_exists_is_left_as_it_is_and_others_only_if_asked_for(kafka: ScriptedKafka) -> None:
    ensure_topic(sink_config({"kafka.bootstrap.servers": "b1:9092", "topic": "t"}))
    ensure_topic(sink_config({"kafka.bootstrap.servers": "b1:9092", "createTopics": "true"}))
    assert kafka.received == []
    kafka.leaders = {("t", 0): 1}
    ensure_topic(config())
    assert asked(kafka) == []


@pytest.mark.parametrize("codes", [[TIMED_OUT, EXISTS], [NOT_CONTROLLER, 0]])
def test_a_busy_controller_is_asked_again(kafka: ScriptedKafka, codes: list[int]) -> None:
    kafka.script(apis.CreateTopicsRequest, *codes)
    ensure_topic(config())
    assert len(asked(kafka)) == 2
    # Leaders of a new topic are waited for a while.
    kafka.script(apis.CreateTopicsRequest, apis.CreateTopicsResponse(0, 0, None))
    kafka.at = [(kafka.now_ms + 1_000, lambda: kafka.leaders.update({("u", 0): -1}))]
    ensure_topic(config(topic="u"))


def test_a_refusal_is_an_error_with_the_acl_and_is_not_waited_for(kafka: ScriptedKafka) -> None:
    kafka.script(apis.CreateTopicsRequest, DENIED, DENIED)
    # It may have been allowed meanwhile.
    for _ in range(2):
        with pytest.raises(TopicNotCreated, match=r"the controller says why.*To fix it: .*TOPIC t CREATE") as refused:
            ensure_topic(config())
        assert refused.value.topic == "t"
    assert kafka.now_ms < 1_000
    kafka.topic_codes = {"t": DENIED}
    with pytest.raises(TopicNotCreated, match="not allowed to see it"):
        ensure_topic(config())


def test_brokers_that_are_not_reached_stop_a_plan_and_are_left_to_a_tasks_write(kafka: ScriptedKafka) -> None:
    kafka.always(apis.MetadataRequest, HANG_UP)
    ensure_topic(config())
    assert kafka.now_ms <= LOOK_MS + 1_000
    assert asked(kafka) == []
    with pytest.raises(BrokersUnreachable):
        ensure_topic_by(AdminClient(config().producer), config())

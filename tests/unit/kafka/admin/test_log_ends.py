"""Where logs end, asked again and again: how many requests that takes, and which answers count."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from kafka_sink.errors import TopicAuthorizationFailed
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.admin.log_ends import Logs, Topics, epoch_ends, log_ends
from kafka_sink.kafka.isolation import IsolationLevel
from kafka_sink.kafka.metadata import ABSENT_PATIENCE_MS
from kafka_sink.kafka.protocol.apis.list_offsets import ListedOffset, ListOffsetsRequest, ListOffsetsResponse
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest
from kafka_sink.kafka.protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.kept import once
from kafka_sink.options.config import given_options
from kafka_sink.options.reading import READING, read_config
from scripted_kafka import ScriptedKafka, ScriptedNetwork
from scripted_logs import ScriptedLog, serve

UNKNOWN, DENIED, FENCED = 3, 29, 74
P, Q = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def logs() -> dict[tuple[str, int], ScriptedLog]:
    return {P: ScriptedLog(0, 10, stable=8, leader_epoch=2), Q: ScriptedLog(0, 5)}


@pytest.fixture
def kafka(logs: dict[tuple[str, int], ScriptedLog]) -> ScriptedKafka:
    made = ScriptedKafka()
    serve(made, logs)
    made.leaders[Q] = 2
    made.topic_ids["t"] = uuid.UUID(int=1)
    return made


@pytest.fixture
def client(network: ScriptedNetwork) -> Iterator[AdminClient]:
    options = given_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t"}, table=READING)
    with once(AdminClient, read_config(options).consumer) as made:
        yield made


def every(topics: Topics) -> list[TopicPartition]:
    return [TopicPartition(name, each.partition) for name, topic in topics.items() for each in topic.partitions]


def ends(client: AdminClient, earlier: Logs, level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED) -> Logs:
    return log_ends(client, ("t",), every, level, earlier)


def offsets(found: Logs) -> dict[TopicPartition, int]:
    return {each: end.offset for each, end in found.ends.items()}


def test_the_first_answer(client: AdminClient) -> None:
    assert offsets(ends(client, Logs())) == {P: 10, Q: 5}
    assert offsets(ends(client, Logs(), IsolationLevel.READ_COMMITTED)) == {P: 8, Q: 5}


def test_each_leader_is_asked_once(client: AdminClient, kafka: ScriptedKafka) -> None:
    earlier = ends(client, Logs())
    del kafka.received[:]
    assert offsets(ends(client, earlier)) == {P: 10, Q: 5}
    assert sorted(node for node, _ in kafka.asked(ListOffsetsRequest)) == [1, 2]
    assert len(kafka.received) == len(kafka.asked(MetadataRequest)) + 2


def test_only_what_is_new_is_asked_again(
    client: AdminClient, kafka: ScriptedKafka, logs: dict[tuple[str, int], ScriptedLog]
) -> None:
    earlier = ends(client, Logs())
    new = TopicPartition("t", 2)
    logs[new], kafka.leaders[new] = ScriptedLog(0, 7), 1
    del kafka.received[:]
    assert offsets(ends(client, earlier)) == {P: 10, Q: 5, new: 7}
    assert [len(request.asked) for _, request in kafka.asked(ListOffsetsRequest)] == [1, 1, 1]


def test_the_answer_about_an_earlier_topic_does_not_count(client: AdminClient, kafka: ScriptedKafka) -> None:
    earlier = ends(client, Logs())
    kafka.topic_ids["t"] = uuid.UUID(int=2)
    del kafka.received[:]
    found = ends(client, earlier)
    assert found.topics["t"].topic_id == uuid.UUID(int=2)
    assert len(kafka.asked(ListOffsetsRequest)) == 4


def test_a_partition_that_is_gone_is_in_no_answer(client: AdminClient, kafka: ScriptedKafka) -> None:
    earlier = ends(client, Logs())
    del kafka.leaders[Q]
    assert offsets(ends(client, earlier)) == {P: 10}


@pytest.mark.parametrize("goes", ["the partition", "the topic"])
def test_what_goes_while_it_is_asked_for_is_in_no_answer(client: AdminClient, kafka: ScriptedKafka, goes: str) -> None:
    """Its leader does not have it any more, and later no broker does."""
    earlier = ends(client, Logs())

    def refuse(request: ListOffsetsRequest) -> ListOffsetsResponse:
        if goes == "the topic":
            kafka.topic_codes["t"] = UNKNOWN
        else:
            kafka.leaders.pop(Q, None)
        of_each = {0: (0, -1, 10, 0), 1: (UNKNOWN, -1, -1, -1)}
        answers = (ListedOffset("t", each.partition, *of_each[each.partition]) for each in request.asked)
        return ListOffsetsResponse(0, tuple(answers))

    kafka.always(ListOffsetsRequest, refuse)
    before_ms = client.caller.now_ms()
    assert offsets(ends(client, earlier)) == {P: 10}
    assert ABSENT_PATIENCE_MS <= client.caller.now_ms() - before_ms < 2 * ABSENT_PATIENCE_MS


def test_a_missing_acl_is_an_error(client: AdminClient, kafka: ScriptedKafka) -> None:
    earlier = ends(client, Logs())

    def deny(request: ListOffsetsRequest) -> ListOffsetsResponse:
        refused = (ListedOffset(each.topic, each.partition, DENIED, -1, -1, -1) for each in request.asked)
        return ListOffsetsResponse(0, tuple(refused))

    kafka.always(ListOffsetsRequest, deny)
    for known in (Logs(), earlier):
        with pytest.raises(TopicAuthorizationFailed, match="READ"):
            ends(client, known)


def test_where_epochs_end(client: AdminClient, kafka: ScriptedKafka) -> None:
    def answer(request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        return OffsetForLeaderEpochResponse(0, FENCED if request.partition else 0, 1, 7)

    kafka.always(OffsetForLeaderEpochRequest, answer)
    now = ends(client, Logs())
    found = epoch_ends(client, now, {P: 1, Q: 0})
    assert found == {P: OffsetForLeaderEpochResponse(0, 0, 1, 7)}, "whose leader answers"
    assert sorted(kafka.asked(OffsetForLeaderEpochRequest), key=repr) == [
        (1, OffsetForLeaderEpochRequest("t", 0, 2, 1)),
        (2, OffsetForLeaderEpochRequest("t", 1, 0, 0)),
    ]


def test_nobody_is_asked_where_no_epoch_ends_or_brokers_lack_the_request(
    client: AdminClient, kafka: ScriptedKafka
) -> None:
    now = ends(client, Logs())
    del kafka.received[:]
    assert epoch_ends(client, now, {}) == {}
    assert not kafka.received
    kafka.spoken = lambda request: None
    assert epoch_ends(client, now, {P: 1}) == {P: None}
    assert not kafka.asked(OffsetForLeaderEpochRequest)

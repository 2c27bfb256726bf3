"""Offsets of partitions by time, over scripted brokers."""

from __future__ import annotations

import pytest

from kafka_sink.errors import LeaderUnavailable, TopicAuthorizationFailed, TopicToReadMissing
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.admin.offsets import list_offsets
from kafka_sink.kafka.isolation import IsolationLevel
from kafka_sink.kafka.protocol.apis.list_offsets import (
    EARLIEST,
    LATEST,
    NO_OFFSET,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.kept import once
from kafka_sink.options.config import sink_config
from scripted_kafka import HANG_UP, ScriptedKafka
from scripted_logs import ScriptedLog, serve

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LOGS = {T0: ScriptedLog(3, 9, stable=7, times={3: 100, 8: 200}), T1: ScriptedLog(0, 0)}
UNCOMMITTED, COMMITTED = IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED
UNKNOWN, OFFLINE, NOT_LEADER, DENIED = 3, 5, 6, 29

pytestmark = pytest.mark.usefixtures("network")


@pytest.fixture
def kafka() -> ScriptedKafka:
    made = ScriptedKafka()
    serve(made, LOGS)
    return made


def offsets(timestamps_ms: dict[TopicPartition, int], isolation_level: IsolationLevel) -> dict[TopicPartition, int]:
    config = sink_config({"kafka.bootstrap.servers": "a:1", "topic": "t", "kafka.max.block.ms": "10000"}).producer
    with once(AdminClient, config) as client:
        return {each: found.offset for each, found in list_offsets(client, timestamps_ms, isolation_level).items()}


def refusal(code: int, of: TopicPartition = T0) -> ListOffsetsResponse:
    return ListOffsetsResponse(0, (ListedOffset(*of, code, -1, -1, -1),))


@pytest.mark.parametrize(
    ("time_ms", "isolation_level", "expected"),
    [
        (EARLIEST, UNCOMMITTED, {T0: 3, T1: 0}),
        (LATEST, UNCOMMITTED, {T0: 9, T1: 0}),
        (LATEST, COMMITTED, {T0: 7, T1: 0}),
        (150, UNCOMMITTED, {T0: 8, T1: NO_OFFSET}),
        (150, COMMITTED, {T0: NO_OFFSET, T1: NO_OFFSET}),
    ],
)
def test_each_partition_has_an_offset_or_none(
    time_ms: int, isolation_level: IsolationLevel, expected: dict[TopicPartition, int]
) -> None:
    assert offsets(dict.fromkeys([T0, T1], time_ms), isolation_level) == expected


def test_each_partition_has_its_own_time_and_its_own_leader(kafka: ScriptedKafka) -> None:
    kafka.leaders[T1] = 2
    assert offsets({T0: 150, T1: EARLIEST}, UNCOMMITTED) == {T0: 8, T1: 0}
    assert [node_id for node_id, _ in kafka.asked(ListOffsetsRequest)] == [1, 2]


@pytest.mark.parametrize("trouble", [HANG_UP, refusal(NOT_LEADER), refusal(OFFLINE)])
def test_trouble_that_passes_is_waited_out(kafka: ScriptedKafka, trouble: object) -> None:
    kafka.script(ListOffsetsRequest, trouble, trouble)
    assert offsets({T0: EARLIEST}, UNCOMMITTED) == {T0: 3}


def test_trouble_that_stays_ends_in_time_and_is_named(kafka: ScriptedKafka) -> None:
    kafka.always(ListOffsetsRequest, refusal(NOT_LEADER))
    with pytest.raises(LeaderUnavailable, match="NOT_LEADER_OR_FOLLOWER"):
        offsets({T0: EARLIEST}, UNCOMMITTED)
    assert 9_000 <= kafka.now_ms <= 10_000


def test_a_topic_that_is_gone_is_not_waited_for_as_a_leader_is(kafka: ScriptedKafka) -> None:
    kafka.always(ListOffsetsRequest, refusal(UNKNOWN))
    kafka.topic_codes["t"] = UNKNOWN
    with pytest.raises(TopicToReadMissing):
        offsets({T0: EARLIEST}, UNCOMMITTED)


def test_a_missing_acl_is_an_error_at_once(kafka: ScriptedKafka) -> None:
    kafka.always(ListOffsetsRequest, refusal(DENIED))
    with pytest.raises(TopicAuthorizationFailed, match=r"READ.*principal User:ANONYMOUS") as failure:
        offsets({T0: EARLIEST}, UNCOMMITTED)
    assert (failure.value.topic, kafka.now_ms) == ("t", 0)

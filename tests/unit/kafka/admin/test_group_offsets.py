"""Offsets of a group without members, over scripted brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_sink.errors import GroupCommitFailed
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.admin.group_offsets import COMMIT_PATIENCE_MS, commit_group_offsets, refusal_of
from kafka_sink.kafka.protocol.api import PartitionResult
from kafka_sink.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from kafka_sink.kafka.protocol.apis.offset_commit import ProgressCommitRequest, ProgressCommitResponse
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.kept import once
from kafka_sink.options.config import given_options
from kafka_sink.options.reading import READING, read_config
from scripted_kafka import HANG_UP, ScriptedKafka

OFFSETS = {TopicPartition("t", 0): 7, TopicPartition("t", 1): 0, TopicPartition("u", 0): 9}
UNKNOWN_TOPIC, LOADING, NOT_AVAILABLE, NOT_COORDINATOR = 3, 14, 15, 16
NO_MEMBER, REBALANCE, TOPIC_DENIED, GROUP_DENIED, TOO_LARGE, NO_GROUP = 25, 27, 29, 30, 28, 69

pytestmark = pytest.mark.usefixtures("network")


@pytest.fixture
def kafka() -> ScriptedKafka:
    made = ScriptedKafka()
    made.always(ProgressCommitRequest, answer())
    return made


def answer(code: int = 0, **of_topic: int) -> Callable[[ProgressCommitRequest], ProgressCommitResponse]:
    """The same code for each partition, other than for those of the topics that are named."""

    def made(request: ProgressCommitRequest) -> ProgressCommitResponse:
        return ProgressCommitResponse(
            0, tuple(PartitionResult(*each, of_topic.get(each.topic, code)) for each in request.offsets)
        )

    return made


def commit(**options: str) -> None:
    given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"} | {k.replace("_", "."): v for k, v in options.items()}
    with once(AdminClient, read_config(given_options(given, table=READING)).consumer) as client:
        commit_group_offsets(client, "g", OFFSETS)


def refused(**options: str) -> GroupCommitFailed:
    with pytest.raises(GroupCommitFailed) as failure:
        commit(**options)
    return failure.value


def test_one_request_to_the_coordinator_has_all_offsets(kafka: ScriptedKafka) -> None:
    kafka.coordinator = 2
    commit()
    assert kafka.asked(ProgressCommitRequest) == [(2, ProgressCommitRequest("g", OFFSETS))]
    assert kafka.now_ms == 0


@pytest.mark.parametrize("trouble", [HANG_UP, answer(LOADING), answer(NOT_AVAILABLE), answer(NOT_COORDINATOR)])
def test_trouble_that_passes_is_waited_out(kafka: ScriptedKafka, trouble: Any) -> None:
    kafka.script(ProgressCommitRequest, trouble, trouble)
    commit()
    assert len(kafka.asked(ProgressCommitRequest)) == 3


def test_a_coordinator_that_has_moved_is_found(kafka: ScriptedKafka) -> None:
    def moved(request: ProgressCommitRequest) -> ProgressCommitResponse:
        kafka.coordinator = 3
        return answer(NOT_COORDINATOR)(request)

    kafka.script(ProgressCommitRequest, moved)
    commit()
    assert [node_id for node_id, _ in kafka.asked(ProgressCommitRequest)] == [1, 3]


@pytest.mark.parametrize("options", [{}, {"kafka_default_api_timeout_ms": "2000"}], ids=str)
def test_a_coordinator_that_does_not_answer_is_given_up_in_time(kafka: ScriptedKafka, options: dict[str, str]) -> None:
    kafka.coordinator, kafka.silent = 2, {2}
    patience_ms = 2_000 if options else COMMIT_PATIENCE_MS
    assert f"no definite answer within {patience_ms} ms" in refused(**options).reason
    assert kafka.now_ms == patience_ms


def test_a_coordinator_that_loads_for_long_is_given_up_in_time(kafka: ScriptedKafka) -> None:
    kafka.always(ProgressCommitRequest, answer(LOADING))
    error = refused()
    assert "COORDINATOR_LOAD_IN_PROGRESS" in error.reason and "__consumer_offsets" in error.remedy
    assert kafka.now_ms == COMMIT_PATIENCE_MS


REMEDIES = [
    (NO_MEMBER, "consumers are members"),
    (REBALANCE, "consumers are members"),
    (TOPIC_DENIED, "ACL TOPIC t READ (it implies DESCRIBE) for principal User:ANONYMOUS"),
    (GROUP_DENIED, "ACL GROUP g READ (it implies DESCRIBE) for principal User:ANONYMOUS"),
    (UNKNOWN_TOPIC, "if topic t was deleted"),
    (NO_GROUP, "share group"),
    (TOO_LARGE, "max.message.bytes"),
    (1234, "the log"),
]


@pytest.mark.parametrize(("code", "remedy"), REMEDIES)
def test_a_refusal_says_at_once_what_to_do(kafka: ScriptedKafka, code: int, remedy: str) -> None:
    kafka.always(ProgressCommitRequest, answer(code))
    error = refused()
    assert (remedy in error.remedy, f"(error {code}) for t-0 and 2 of 2 others" in error.reason) == (True, True)
    assert (len(kafka.asked(ProgressCommitRequest)), kafka.now_ms) == (1, 0)


def test_a_group_whose_coordinator_is_not_told_is_refused_at_once(kafka: ScriptedKafka) -> None:
    kafka.always(FindCoordinatorRequest, GROUP_DENIED)
    error = refused()
    assert "GROUP_AUTHORIZATION_FAILED" in error.reason and "ACL GROUP g READ" in error.remedy
    assert (kafka.asked(ProgressCommitRequest), kafka.now_ms) == ([], 0)


def test_the_topic_that_is_refused_is_the_one_that_is_named(kafka: ScriptedKafka) -> None:
    kafka.always(ProgressCommitRequest, answer(u=TOPIC_DENIED))
    error = refused()
    assert "TOPIC_AUTHORIZATION_FAILED (error 29) for u-0 and 0 of 2 others" in error.reason
    assert "ACL TOPIC u READ" in error.remedy


def test_a_single_partition_has_no_others() -> None:
    assert refusal_of("g", [PartitionResult("t", 0, 0)], None) is None
    error = refusal_of("g", [PartitionResult("t", 0, GROUP_DENIED)], None)
    assert error is not None
    assert error.reason == "GROUP_AUTHORIZATION_FAILED (error 30) for t-0"
    assert "for this principal" in error.remedy

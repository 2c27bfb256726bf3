"""The progress of a stream in a consumer group: failures are warnings, and warnings are few."""

import logging
from unittest import mock

import pytest

from kafka_sink.errors import AuthenticationFailed
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.protocol.api import PartitionResult
from kafka_sink.kafka.protocol.apis.groups import ProgressCommitRequest, ProgressCommitResponse
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.config import given_options
from kafka_sink.options.reading import READING, read_config
from kafka_sink.spark.reading.stream_reader import PAUSE_FACTOR, SAME_OFFSETS_PAUSE_MS, GroupProgress
from scripted_kafka import ScriptedKafka, ScriptedNetwork, connect_clients

T0 = TopicPartition("t", 0)
NO_MEMBER, DENIED = 25, 29
CONFIG = read_config(given_options({"kafka.bootstrap.servers": "a:1", "subscribe": "t"}, table=READING)).consumer


@pytest.fixture
def kafka() -> ScriptedKafka:
    made = ScriptedKafka()
    answer(made, 0)
    return made


@pytest.fixture(autouse=True)
def network(kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch) -> ScriptedNetwork:
    return connect_clients(ScriptedNetwork(kafka), monkeypatch)


@pytest.fixture
def progress(kafka: ScriptedKafka) -> GroupProgress:
    return GroupProgress(CONFIG, "g", clock_ms=lambda: kafka.now_ms)


def answer(kafka: ScriptedKafka, code: int) -> None:
    kafka.always(ProgressCommitRequest, ProgressCommitResponse(0, (PartitionResult("t", 0, code),)))


def committed(kafka: ScriptedKafka) -> list[int]:
    return [request.offsets[T0] for _, request in kafka.asked(ProgressCommitRequest)]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert all(record.levelno == logging.WARNING for record in caplog.records)
    return [record.getMessage() for record in caplog.records]


def test_a_failure_is_told_when_it_begins_when_it_changes_and_when_it_is_over(
    kafka: ScriptedKafka, progress: GroupProgress, caplog: pytest.LogCaptureFixture
) -> None:
    for code, offset in ((NO_MEMBER, 0), (NO_MEMBER, 1), (DENIED, 2), (DENIED, 3), (0, 4), (0, 5), (DENIED, 6)):
        answer(kafka, code)
        progress.commit({T0: offset})
    assert committed(kafka) == list(range(7))
    members, denied, again, denied_again = warnings(caplog)
    assert "'g': UNKNOWN_MEMBER_ID (error 25) for t-0. To fix it: set groupId to" in members
    assert "TOPIC_AUTHORIZATION_FAILED" in denied and denied == denied_again
    assert "committed to consumer group 'g' again" in again
    # What a failed write or read means for the data is not what this failure means.
    assert all("reads on" in text and "sent again" not in text for text in (members, denied))


def test_a_coordinator_that_is_away_takes_a_tenth_of_the_streams_time(
    kafka: ScriptedKafka, progress: GroupProgress, caplog: pytest.LogCaptureFixture
) -> None:
    kafka.coordinator, kafka.silent = 2, {2}
    waited_ms, minutes_ms = 0, 600_000
    while kafka.now_ms < minutes_ms:
        began_ms = kafka.now_ms
        progress.commit({T0: began_ms})
        waited_ms += kafka.now_ms - began_ms
        kafka.pass_time(100)
    assert minutes_ms / 20 < waited_ms <= minutes_ms / PAUSE_FACTOR
    assert len(warnings(caplog)) == 1
    # Then it is back, and the newest offsets are committed.
    kafka.silent = set()
    kafka.pass_time(minutes_ms)
    progress.commit({T0: 7})
    assert committed(kafka)[-1] == 7
    assert "again" in warnings(caplog)[-1]


def test_offsets_that_the_group_has_are_not_sent_again(kafka: ScriptedKafka, progress: GroupProgress) -> None:
    """An idle stream comes with the same ones at each look."""
    for offset in (5, 5, 5, 6, 6, 4):
        progress.commit({T0: offset})
        kafka.pass_time(60_000)
    assert committed(kafka) == [5, 6, 4]


def test_the_same_offsets_are_sent_again_after_a_pause_if_they_were_refused(
    kafka: ScriptedKafka, progress: GroupProgress, caplog: pytest.LogCaptureFixture
) -> None:
    answer(kafka, NO_MEMBER)
    for _ in range(10):
        progress.commit({T0: 5})
        kafka.pass_time(SAME_OFFSETS_PAUSE_MS // 5)
    assert committed(kafka) == [5, 5]
    answer(kafka, 0)
    kafka.pass_time(SAME_OFFSETS_PAUSE_MS)
    for _ in range(3):
        progress.commit({T0: 5})
    assert committed(kafka) == [5, 5, 5]
    refused, again = warnings(caplog)
    assert "UNKNOWN_MEMBER_ID" in refused and "again" in again


def test_no_error_of_the_connection_ends_the_stream_or_shows_a_secret(
    progress: GroupProgress, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refusal = AuthenticationFailed(broker="a:1", mechanism="PLAIN", user="bob", reason="Authentication failed")
    monkeypatch.setattr(AdminClient, "ask_all", mock.Mock(side_effect=[refusal, ZeroDivisionError]))
    progress.commit({T0: 1})
    (warning,) = warnings(caplog)
    assert "user 'bob' were not authenticated" in warning and "rows" not in warning
    # A mistake of ours is not hidden.
    with pytest.raises(ZeroDivisionError):
        progress.commit({T0: 2})

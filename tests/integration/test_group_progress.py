"""The progress of a stream in a consumer group, at real brokers: as other clients and Kafka's own tool read it."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as TheirPartition
from kafka import KafkaAdminClient
from kafka.errors import RetriableError

from broker_admin import produce
from kafka_reads import PYKAFKA, read_now, running, stream
from kafka_sink.broker import LocalKafka
from kafka_sink.kafka.admin.group_offsets import COMMIT_PATIENCE_MS
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.config import given_options
from kafka_sink.options.reading import READING, read_config
from kafka_sink.spark.reading.stream_reader import GroupProgress
from processes import stopped
from spark_writes import Here
from waiting import wait_until

DEADLINE_S = 30
GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def progress_in(kafka: LocalKafka, group_id: str) -> GroupProgress:
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": "t"}
    return GroupProgress(read_config(given_options(options, table=READING)).consumer, group_id)


def offsets_in(servers: str, group_id: str) -> dict[TopicPartition, int]:
    """Return what is committed, as kafka-python reads it. Waits until the coordinator is ready.

    librdkafka's list_consumer_group_offsets ends the process if a broker answers NOT_COORDINATOR (librdkafka 5040).
    """
    found = {}

    def is_answered() -> bool:
        try:
            found.update(admin.list_group_offsets(group_id)[group_id])
        except RetriableError:
            return False
        return True

    with KafkaAdminClient(bootstrap_servers=servers) as admin:
        wait_until(is_answered, DEADLINE_S, "the coordinator's answer")
    return {TopicPartition(each.topic, each.partition): committed.offset for each, committed in found.items()}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_other_clients_read_what_is_committed_and_kafkas_tool_shows_the_lag(
    kafka: LocalKafka, topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    name = topic(2)
    produce(kafka, name, 10)
    progress = progress_in(kafka, name)
    progress.commit({TopicPartition(name, 0): 3, TopicPartition(name, 1): 0})
    progress.commit({TopicPartition(name, 0): 7, TopicPartition(name, 1): 0})
    assert offsets_in(kafka.bootstrap_servers, name) == {TopicPartition(name, 0): 7, TopicPartition(name, 1): 0}
    theirs = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": name})
    assert [each.offset for each in theirs.committed([TheirPartition(name, 0)], DEADLINE_S)] == [7]
    theirs.close()
    assert rows_of_tool(kafka, name) == [(name, "0", "7", "10", "3"), (name, "1", "0", "0", "0")]
    assert warnings(caplog) == []


def test_a_stream_that_has_read_all_shows_no_lag(here: Here) -> None:
    """Also while it is idle, and after trigger availableNow has ended."""
    name = here.topic(1)
    options = {"subscribe": name, "startingOffsets": "earliest", "groupId": name}
    frame, no_lag = stream(here.spark, PYKAFKA, here.kafka, **options), {TopicPartition(name, 0): 10}
    produce(here.kafka, name, 10)
    with running(frame, here.folder) as read:
        assert len(read.catch_up()) == 10
        wait_until(lambda: offsets_in(here.servers, name) == no_lag, DEADLINE_S, "the idle stream's offsets")
    produce(here.kafka, name, 5)
    assert len(read_now(frame, here.folder, read).rows) == 15
    assert rows_of_tool(here.kafka, name) == [(name, "0", "15", "15", "0")]


def rows_of_tool(kafka: LocalKafka, group_id: str) -> list[tuple[str, ...]]:
    """Topic, partition, committed offset, end and lag."""
    told = kafka.run_tool(
        GROUP_COMMAND, "--bootstrap-server", kafka.bootstrap_servers, "--describe", "--group", group_id
    )
    return sorted(tuple(words[1:6]) for line in told.splitlines() if (words := line.split())[:1] == [group_id])


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_a_member_takes_no_progress_until_the_member_has_left(
    kafka: LocalKafka, topic: Callable[..., str], caplog: pytest.LogCaptureFixture, protocol: str
) -> None:
    name = topic(1)
    progress = progress_in(kafka, name)
    with member_of(kafka, name, protocol):
        progress.commit({TopicPartition(name, 0): 1})
        (warning,) = warnings(caplog)
        assert "UNKNOWN_MEMBER_ID" in warning and "set groupId to a group that no consumer is a member of" in warning
        assert offsets_in(kafka.bootstrap_servers, name) == {}
    until_committed(progress, kafka, name, {TopicPartition(name, 0): 2})
    assert warnings(caplog)[1:] == [f"groupId: the stream's progress is committed to consumer group {name!r} again"]


@contextmanager
def member_of(kafka: LocalKafka, topic: str, protocol: str) -> Iterator[None]:
    """A consumer of the group that is named as its topic, which commits nothing."""
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": topic, "enable.auto.commit": False}
    consumer = Consumer(settings | {"group.protocol": protocol})
    try:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.1) or consumer.assignment(), DEADLINE_S, "an assignment")
        yield
    finally:
        consumer.close()


def until_committed(
    progress: GroupProgress, kafka: LocalKafka, group_id: str, offsets: dict[TopicPartition, int]
) -> None:
    """Commit as a stream does, with each micro-batch: after a failure some commits are left out."""

    def is_committed() -> bool:
        progress.commit(offsets)
        return offsets_in(kafka.bootstrap_servers, group_id) == offsets

    wait_until(is_committed, DEADLINE_S + 10 * COMMIT_PATIENCE_MS / 1000, "the commit")


def test_a_topic_that_is_deleted_keeps_no_other_from_being_committed(
    kafka: LocalKafka, topic: Callable[..., str], caplog: pytest.LogCaptureFixture
) -> None:
    name = topic(1)
    began = time.monotonic()
    progress_in(kafka, name).commit({TopicPartition("deleted", 0): 5, TopicPartition(name, 0): 6})
    assert time.monotonic() - began < COMMIT_PATIENCE_MS / 1000
    assert offsets_in(kafka.bootstrap_servers, name) == {TopicPartition(name, 0): 6}
    (warning,) = warnings(caplog)
    assert "UNKNOWN_TOPIC_OR_PARTITION (error 3) for deleted-0 and 0 of 1 others" in warning


@pytest.mark.long
def test_a_coordinator_that_hangs_holds_a_stream_up_for_a_bounded_time(
    own_kafka: LocalKafka, caplog: pytest.LogCaptureFixture
) -> None:
    own_kafka.create_topic("t", 1)
    progress = progress_in(own_kafka, "lag")
    until_committed(progress, own_kafka, "lag", {TopicPartition("t", 0): 1})
    with stopped(own_kafka.pid(1)):
        began = time.monotonic()
        progress.commit({TopicPartition("t", 0): 2})
        elapsed_ms = 1000 * (time.monotonic() - began)
        assert COMMIT_PATIENCE_MS <= elapsed_ms < 1.5 * COMMIT_PATIENCE_MS
        progress.commit({TopicPartition("t", 0): 3})
        assert 1000 * (time.monotonic() - began) < 1.5 * COMMIT_PATIENCE_MS
    (warning,) = warnings(caplog)
    assert f"gave no definite answer within {COMMIT_PATIENCE_MS} ms" in warning
    # Another stream, which leaves no commit out.
    until_committed(progress_in(own_kafka, "lag"), own_kafka, "lag", {TopicPartition("t", 0): 4})

"""The progress of a stream in a consumer group, at real brokers: as other clients and Kafka's own tool read it."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as TheirPartition
from confluent_kafka.admin import AclOperation, ResourceType
from kafka import KafkaAdminClient
from kafka.errors import RetriableError

from broker_admin import produce
from here import Here
from kafka_reads import PYKAFKA
from kafka_sink.broker import DEFAULT_KAFKA_VERSION, LocalKafka
from kafka_sink.doctor.reading import examine_read
from kafka_sink.doctor.report import Status, Verdict
from kafka_sink.kafka.admin.group_offsets import COMMIT_PATIENCE_MS
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.config import given_options
from kafka_sink.options.reading import READING, ReadConfig, read_config
from kafka_sink.spark.reading.group_progress import GroupProgress
from processes import stopped
from secure_kafka import Acl, SecureKafka
from stream_reads import read_now, running, stream
from waiting import wait_until
from zookeeper_kafka import kafka_of

DEADLINE_S = 30
GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


def config_of(kafka: LocalKafka, **options: str) -> ReadConfig:
    return configured({"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": "t", **options})


def configured(options: dict[str, str]) -> ReadConfig:
    return read_config(given_options(options, table=READING))


def progress_in(kafka: LocalKafka, group_id: str) -> GroupProgress:
    return GroupProgress(config_of(kafka).consumer, group_id)


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
@pytest.mark.parametrize("secure", [DEFAULT_KAFKA_VERSION], indirect=True)
def test_each_missing_acl_is_named_by_the_warning_and_by_the_check(
    secure: SecureKafka, caplog: pytest.LogCaptureFixture
) -> None:
    secure.kafka.create_topic("progress", 1)
    offsets = {TopicPartition("progress", 0): 4}
    config = configured({**secure.sasl("SCRAM-SHA-512", "bob"), "subscribe": "progress", "groupId": "lag"})
    progress = GroupProgress(config.consumer, "lag")
    secure.allow(Acl(ResourceType.TOPIC, "progress", AclOperation.READ))
    assert (group_verdict(config).status, examine_read(config).ok) == (Status.WARNING, True)
    assert "add the ACL GROUP lag READ for principal User:bob" in group_verdict(config).finding.remedy
    progress.commit(offsets)
    secure.allow(Acl(ResourceType.GROUP, "lag", AclOperation.READ))
    secure.revoke(Acl(ResourceType.TOPIC, "progress", AclOperation.READ))
    wait_until(lambda: commits_anew(progress, offsets, caplog, 2), DEADLINE_S, "the second warning")
    group, of_topic = warnings(caplog)
    assert "ACL GROUP lag READ (it implies DESCRIBE) for principal User:bob" in group
    assert "ACL TOPIC progress READ (it implies DESCRIBE) for principal User:bob" in of_topic
    assert "secret" not in group + of_topic
    secure.allow(Acl(ResourceType.TOPIC, "progress", AclOperation.READ))
    until_committed(progress, secure.kafka, "lag", offsets)
    assert group_verdict(config).status is Status.OK


def group_verdict(config: ReadConfig) -> Verdict:
    (verdict,) = (each for each in examine_read(config).verdicts if each.step == "group acl")
    return verdict


def commits_anew(
    progress: GroupProgress, offsets: dict[TopicPartition, int], caplog: pytest.LogCaptureFixture, count: int
) -> bool:
    progress.commit(offsets)
    return len(warnings(caplog)) == count


@pytest.mark.long
@pytest.mark.parametrize(
    "version", [DEFAULT_KAFKA_VERSION, *(pytest.param(each, marks=pytest.mark.long) for each in ("2.8.2", "3.9.2"))]
)
def test_a_coordinator_that_hangs_holds_a_stream_up_for_a_bounded_time(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    with kafka_of(version) as kafka:
        kafka.create_topic("t", 1)
        progress = progress_in(kafka, "lag")
        until_committed(progress, kafka, "lag", {TopicPartition("t", 0): 1})
        with stopped(kafka.pid(1)):
            began = time.monotonic()
            progress.commit({TopicPartition("t", 0): 2})
            elapsed_ms = 1000 * (time.monotonic() - began)
            assert COMMIT_PATIENCE_MS <= elapsed_ms < 1.5 * COMMIT_PATIENCE_MS
            progress.commit({TopicPartition("t", 0): 3})
            assert 1000 * (time.monotonic() - began) < 1.5 * COMMIT_PATIENCE_MS
        (warning,) = warnings(caplog)
        assert f"gave no definite answer within {COMMIT_PATIENCE_MS} ms" in warning
        # Another stream, which leaves no commit out.
        until_committed(progress_in(kafka, "lag"), kafka, "lag", {TopicPartition("t", 0): 4})

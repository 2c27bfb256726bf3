from __future__ import annotations

import uuid
from collections.abc import Mapping

import pytest

from kafka_sink.doctor import judging
from kafka_sink.doctor.report import Finding, Status
from kafka_sink.kafka.new_topic import NewTopic
from kafka_sink.kafka.protocol.acl_operation import NOT_TOLD, AclOperation
from kafka_sink.kafka.protocol.apis.create_topics import CreateTopicsResponse
from kafka_sink.kafka.protocol.apis.describe_configs import TopicConfigs
from kafka_sink.kafka.protocol.apis.metadata import Broker, MetadataResponse, PartitionMetadata, TopicMetadata
from kafka_sink.options.config import SinkConfig, sink_config

OK, WARNING, FAILED, SKIPPED = Status
NONE, UNKNOWN, TOPIC_DENIED, GROUP_DENIED, ID_DENIED, CLUSTER_DENIED = 0, 3, 29, 30, 53, 31
INVALID_NAME, LOADING, NO_MAPPING, EXISTS, BAD_FACTOR = 17, 14, 49, 36, 38
BAD_CONFIG, POLICY = 40, 44
CREATED = CreateTopicsResponse(0, 0, None)


def config(**more: str) -> SinkConfig:
    return sink_config({
        "kafka.bootstrap.servers": "b:9092", "topic": "t",
        **{name.replace("_", "."): value for name, value in more.items()},
    })  # fmt: skip


def partition(number: int = 0, *, leader: int = 1, replicas: int = 3, in_sync: int = 3) -> PartitionMetadata:
    return PartitionMetadata(0, number, leader, 0, tuple(range(replicas)), tuple(range(in_sync)))


def topic(*partitions: PartitionMetadata, code: int = NONE, allowed: int = NOT_TOLD) -> TopicMetadata:
    return TopicMetadata(code, "t", uuid.UUID(int=1), partitions, allowed)


def judged(finding: Finding, status: Status, found: str, remedy: str = "") -> None:
    assert finding.status is status, finding
    assert found in finding.found
    assert remedy in finding.remedy
    assert bool(finding.remedy) is (status in (WARNING, FAILED)) or status is SKIPPED


def test_a_cluster_has_brokers() -> None:
    brokers = (Broker(2, "b", 1), Broker(1, "a", 1))
    judged(judging.cluster(MetadataResponse(0, "id", 1, brokers, ())), OK, "id; brokers 1, 2")
    judged(judging.cluster(MetadataResponse(0, None, 1, (), ())), FAILED, "no broker", "log")


@pytest.mark.parametrize(
    ("said", "status", "found", "remedy"),
    [
        (topic(partition(), partition(1)), OK, "2 partitions", ""),
        (topic(partition(), code=5), OK, "1 partition", ""),
        (topic(code=5), FAILED, "LEADER_NOT_AVAILABLE (error 5)", "check again"),
        (topic(code=UNKNOWN), FAILED, "no such topic", "kafka-topics.sh --bootstrap-server b:9092 --create --topic t"),
        (topic(code=TOPIC_DENIED), FAILED, "not allowed", "TOPIC t WRITE (it implies DESCRIBE) for principal"),
        (topic(code=INVALID_NAME), FAILED, "name", "topic option"),
    ],
)
def test_a_topic(said: TopicMetadata, status: Status, found: str, remedy: str) -> None:
    judged(judging.topic(said, config()), status, found, remedy)


@pytest.mark.parametrize(
    ("auto_create", "status", "found"),
    [
        ("false", FAILED, "there is no such topic"),
        ("true", WARNING, "the brokers create it for the write"),
        (None, WARNING, "only if the brokers create topics automatically"),
    ],
)
def test_a_topic_that_brokers_may_make(auto_create: str | None, status: Status, found: str) -> None:
    finding = judging.missing("t", auto_create, config())
    judged(finding, status, found, "kafka-topics.sh --bootstrap-server b:9092 --create --topic t), or set createTopics")
    letters = judging.missing("t", auto_create, config(), option="deadLetterTopic")
    judged(letters, status, found, "correct the deadLetterTopic option, or create it (kafka-topics.sh")
    assert "createTopics" not in letters.remedy


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        (NONE, OK, ""),
        (EXISTS, OK, ""),
        (TOPIC_DENIED, FAILED, "the ACL TOPIC t CREATE"),
        (CLUSTER_DENIED, FAILED, "the ACL TOPIC t CREATE"),
        (BAD_FACTOR, FAILED, "replicas=1"),
        (BAD_CONFIG, FAILED, "correct the topic settings"),
        (POLICY, FAILED, "the cluster allows"),
        (BAD_FACTOR + 1, FAILED, "--create --topic t"),
    ],
)
def test_a_topic_that_was_to_be_made(code: int, status: Status, words: str) -> None:
    said = CreateTopicsResponse(0, code, "the broker's words" if code else None)
    finding = judging.created(said, "t", NewTopic(replicas=9), config())
    assert status is OK or "it was not created with replicas=9" in finding.found
    judged(finding, status, "the broker's words" if status is FAILED else "created", words)


def test_a_secret_among_the_settings_is_shown_by_neither_side() -> None:
    wanted = NewTopic(settings=(("retention.ms", "password=hunter2"),))
    said = CreateTopicsResponse(0, BAD_CONFIG, "Invalid value password=hunter2 for configuration retention.ms")
    for finding in (judging.created(said, "t", wanted, config()), judging.created(CREATED, "t", wanted, config())):
        assert "hunter2" not in finding.found and "retention.ms=password=***" in finding.found
    assert "hunter2" not in repr(wanted)


def test_leaders() -> None:
    judged(judging.leaders(topic(partition(leader=0), partition(1, leader=2))), OK, "on 2 brokers")
    lost = [partition(number, leader=-1) for number in range(9)]
    judged(judging.leaders(topic(*lost)), FAILED, "partitions 0, 1, 2, 3, 4 and 4 more", "start the brokers")
    judged(judging.leaders(topic(lost[3], partition(0))), FAILED, "no leader for partition 3", "start the brokers")


def test_replication() -> None:
    judged(judging.replication(topic(partition(), partition(1, replicas=2))), OK, "replication factor 2")
    judged(judging.replication(topic(partition(), partition(1, replicas=1))), WARNING, "partition 1 is", "to 3")


@pytest.mark.parametrize(
    ("replicas", "in_sync", "minimum", "acks", "status", "words"),
    [
        (3, 3, "2", "all", OK, "3 in sync"),
        (3, 2, "2", "all", OK, "2 in sync"),
        (3, 1, "2", "all", FAILED, "start the brokers"),
        (3, 1, "2", "1", OK, "1 in sync"),
        (3, 3, "1", "all", WARNING, "to 2"),
        (1, 1, "1", "all", OK, "1 in sync"),
        (2, 2, "3", "all", FAILED, "at most 1, or raise"),
        (1, 1, "2", "all", FAILED, "at most 1, or raise"),
        (1, 1, "2", "0", OK, "1 in sync"),
    ],
)
def test_replicas_in_sync(replicas: int, in_sync: int, minimum: str, acks: str, status: Status, words: str) -> None:
    said = topic(*(partition(number, replicas=replicas, in_sync=in_sync) for number in range(2)))
    finding = judging.in_sync(said, {judging.MIN_ISR: minimum}, acks)
    judged(finding, status, words if status is OK else minimum, words if status is not OK else "")


def test_one_partition_of_many_with_too_few_in_sync() -> None:
    said = topic(partition(0), partition(1, in_sync=1))
    judged(judging.in_sync(said, {judging.MIN_ISR: "2"}, "all"), FAILED, "partition 1 (1 to 3 in sync)", "start")


@pytest.mark.parametrize(
    ("values", "status", "words"),
    [({judging.UNCLEAN: "false"}, OK, "=false"), ({}, OK, "unknown"), ({judging.UNCLEAN: "true"}, WARNING, "=true")],
)
def test_unclean_election(values: Mapping[str, str], status: Status, words: str) -> None:
    judged(judging.unclean(values), status, words, "false" if status is WARNING else "")


@pytest.mark.parametrize(
    ("limit", "status", "remedy"),
    [
        (2**20, OK, ""),
        (2**20 - 1, WARNING, "kafka.max.request.size to 1048575"),
        (600_000, WARNING, "max.message.bytes of the topic to 1048576"),
    ],
)
def test_message_size(limit: int, status: Status, remedy: str) -> None:
    judged(judging.message_size({judging.MAX_MESSAGE: str(limit)}, config().producer), status, str(limit), remedy)


def test_batches_above_the_limit_only() -> None:
    small = config(kafka_max_request_size="500000").producer
    judged(judging.message_size({judging.MAX_MESSAGE: "600000"}, small), WARNING, "kafka.batch.size", "at most 600000")
    judged(judging.message_size({}, small), OK, "unknown")


@pytest.mark.parametrize(
    ("values", "status", "words"),
    [
        ({}, OK, "CreateTime"),
        ({judging.TIMESTAMP_TYPE: "LogAppendTime"}, WARNING, "`timestamp` column"),
        ({judging.BEFORE: str(2**63 - 1), judging.AFTER: "3600000"}, OK, "3600000 ms ahead"),
        ({judging.BEFORE: "86400000"}, WARNING, "86400000"),
    ],
)
def test_timestamps(values: Mapping[str, str], status: Status, words: str) -> None:
    judged(judging.timestamps(values), status, words)


@pytest.mark.parametrize(("acks", "status"), [("all", OK), ("1", WARNING), ("0", WARNING)])
def test_acks(acks: str, status: Status) -> None:
    judged(judging.acks(config(kafka_acks=acks).producer), status, acks)


def test_settings_that_are_not_told_are_no_failure() -> None:
    judged(judging.settings(TopicConfigs("t", 0, {"b": "1", "a": "2"}), config()), OK, "known")
    refused = judging.settings(TopicConfigs("t", TOPIC_DENIED, {}), config())
    judged(refused, SKIPPED, "TOPIC_AUTHORIZATION_FAILED", "TOPIC t DESCRIBE_CONFIGS")


@pytest.mark.parametrize(
    ("allowed", "status"), [(1 << 4 | 1 << 8, OK), (1 << 3 | 1 << 8, FAILED), (0, FAILED), (NOT_TOLD, SKIPPED)]
)
def test_what_may_be_done_with_a_topic(allowed: int, status: Status) -> None:
    finding = judging.may(AclOperation.WRITE, topic(allowed=allowed), config().producer)
    judged(finding, status, "", "TOPIC t WRITE for principal User:ANONYMOUS" if status is FAILED else "")


@pytest.mark.parametrize(
    ("code", "status", "remedy"),
    [(NONE, OK, ""), (CLUSTER_DENIED, FAILED, "IDEMPOTENT_WRITE"), (LOADING, FAILED, "controller")],
)
def test_a_producer_id(code: int, status: Status, remedy: str) -> None:
    judged(judging.producer_id(code, "t", config()), status, "", remedy)


@pytest.mark.parametrize(
    ("code", "status", "remedy"),
    [
        (NO_MAPPING, OK, ""),
        (ID_DENIED, FAILED, "TRANSACTIONAL_ID p WRITE (prefixed) for"),
        (LOADING, FAILED, "__transaction_state"),
    ],
)
def test_a_transactional_id(code: int, status: Status, remedy: str) -> None:
    judged(judging.transactional_id(code, "p", config()), status, "", remedy)


@pytest.mark.parametrize(
    ("code", "allowed", "status", "remedy"),
    [
        (NONE, 1 << 3, OK, ""),
        (NONE, 1 << 8, FAILED, "GROUP p READ (prefixed) for"),
        (NONE, NOT_TOLD, SKIPPED, ""),
        (GROUP_DENIED, NOT_TOLD, FAILED, "GROUP p READ (prefixed) for"),
        (LOADING, NOT_TOLD, FAILED, "__consumer_offsets"),
    ],
)
def test_a_group(code: int, allowed: int, status: Status, remedy: str) -> None:
    judged(judging.group(code, allowed, "p", config()), status, "", remedy)


def test_the_group_of_a_streams_progress_is_never_more_than_a_warning() -> None:
    client = config().producer
    judged(judging.progress_group(0, 1 << 3, "g", client), OK, "GROUP g READ")
    judged(judging.progress_group(0, NOT_TOLD, "g", client), SKIPPED, "permissions")
    for code, allowed in ((0, 0), (0, 1 << 8), (GROUP_DENIED, NOT_TOLD)):
        judged(judging.progress_group(code, allowed, "g", client), WARNING, "reads even so", "ACL GROUP g READ for")
    judged(judging.progress_group(LOADING, NOT_TOLD, "g", client), WARNING, "LOAD_IN_PROGRESS", "__consumer_offsets")


def test_a_dead_letter_topic() -> None:
    letters = {"badRows": "deadLetter", "deadLetterTopic": "letters"}
    once = config(**letters, deliveryGuarantee="exactly-once")
    write, read = 1 << 4, 1 << 3
    judged(judging.dead_letter_topic(topic(partition(), allowed=write), config(**letters)), OK, "1 partition")
    judged(judging.dead_letter_topic(topic(partition(), allowed=write), once), FAILED, "", "TOPIC t READ")
    judged(judging.dead_letter_topic(topic(partition(), allowed=write | read), once), OK, "1 partition")
    judged(judging.dead_letter_topic(topic(partition(), allowed=read), once), FAILED, "", "TOPIC t WRITE")
    judged(judging.dead_letter_topic(topic(code=INVALID_NAME), once), FAILED, "name", "the deadLetterTopic option")
    judged(judging.dead_letter_topic(topic(code=TOPIC_DENIED), once), FAILED, "see", "TOPIC t WRITE")


def test_the_commit_topic() -> None:
    two = partition(), partition()
    judged(judging.commit_topic(topic(*two, allowed=1 << 3), None, config()), OK, "TOPIC t READ")
    judged(judging.commit_topic(topic(*two, allowed=0), None, config()), FAILED, "", "TOPIC t READ")
    one = topic(partition(), allowed=1 << 3)
    judged(judging.commit_topic(one, None, config()), FAILED, "1 partition", "--alter --topic t --partitions 2")
    judged(judging.commit_topic(topic(code=TOPIC_DENIED), None, config()), FAILED, "see", "TOPIC t READ")
    missing = topic(code=UNKNOWN)
    judged(
        judging.commit_topic(missing, CreateTopicsResponse(0, NONE, None), config()), OK, "the first write creates it"
    )
    for code, words, remedy in (
        (5, "LEADER_NOT_AVAILABLE (error 5)", "check again"),
        (INVALID_NAME, "name", "correct the commitTopic option"),
        (LOADING, "does not describe it", "check again"),
    ):
        finding = judging.commit_topic(topic(code=code), None, config())
        judged(finding, FAILED, words, remedy)
        assert "--alter" not in finding.remedy
    refused = CreateTopicsResponse(0, TOPIC_DENIED, None)
    judged(judging.commit_topic(missing, refused, config()), FAILED, "may not create it", "TOPIC t CREATE")


@pytest.mark.parametrize(
    ("value", "status", "words"),
    [("900000", OK, "900000"), ("899999", FAILED, "at most 899999"), (None, SKIPPED, "CLUSTER DESCRIBE_CONFIGS")],
)
def test_the_ceiling_of_transactions(value: str | None, status: Status, words: str) -> None:
    finding = judging.ceiling(value, 900_000)
    assert finding.status is status
    assert words in finding.found + finding.remedy


WEEK_MINUTES, WEEK_MS = "10080", "604800000"


@pytest.mark.parametrize(
    ("offsets_minutes", "ids_ms", "status", "words"),
    [
        (WEEK_MINUTES, WEEK_MS, OK, "offsets.retention.minutes=10080, transactional.id.expiration.ms=604800000"),
        ("10079", WEEK_MS, WARNING, "10079 minutes after the last"),
        (WEEK_MINUTES, "604799999", WARNING, "raise transactional.id.expiration.ms"),
        ("16", WEEK_MS, WARNING, "raise offsets.retention.minutes"),
        ("15", WEEK_MS, FAILED, "raise offsets.retention.minutes"),
        (WEEK_MINUTES, "900000", FAILED, "raise transactional.id.expiration.ms"),
        (WEEK_MINUTES, "900001", WARNING, "StateExpired"),
        (None, WEEK_MS, SKIPPED, "CLUSTER DESCRIBE_CONFIGS"),
        (WEEK_MINUTES, None, SKIPPED, "CLUSTER DESCRIBE_CONFIGS"),
    ],
)
def test_how_long_brokers_remember_what_is_committed(
    offsets_minutes: str | None, ids_ms: str | None, status: Status, words: str
) -> None:
    finding = judging.retention(offsets_minutes, ids_ms, 900_000)
    assert finding.status is status
    assert words in finding.found + finding.remedy

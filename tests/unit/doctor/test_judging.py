"""Each finding of `judging`: its status, what it found, and the remedy."""

from __future__ import annotations

import uuid

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
NONE, UNKNOWN, NO_LEADER, LOADING, INVALID_NAME = 0, 3, 5, 14, 17
TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED = 29, 30, 31
EXISTS, BAD_FACTOR, BAD_CONFIG, POLICY, NO_MAPPING, ID_DENIED = 36, 38, 40, 44, 49, 53
READ, WRITE, DESCRIBE = 1 << 3, 1 << 4, 1 << 8


def config(**more: str) -> SinkConfig:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return sink_config({"kafka.bootstrap.servers": "b:9092", "topic": "t", **named})


SINK = config()
CLIENT = SINK.producer
LETTERS = {"badRows": "deadLetter", "deadLetterTopic": "letters"}
AT_LEAST_ONCE, ONCE = config(**LETTERS), config(**LETTERS, deliveryGuarantee="exactly-once")
SMALL = config(kafka_max_request_size="500000").producer


def partition(number: int = 0, *, leader: int = 1, replicas: int = 3, in_sync: int = 3) -> PartitionMetadata:
    return PartitionMetadata(0, number, leader, 0, tuple(range(replicas)), tuple(range(in_sync)))


def topic(*partitions: PartitionMetadata, code: int = NONE, allowed: int = NOT_TOLD) -> TopicMetadata:
    return TopicMetadata(code, "t", uuid.UUID(int=1), partitions, allowed)


BROKERS = (Broker(2, "b", 1), Broker(1, "a", 1))
ONE, TWO, LEADERLESS = partition(), partition(1), [partition(number, leader=-1) for number in range(9)]


def in_sync(replicas: int, in_sync: int, minimum: str, acks: str) -> Finding:
    said = topic(*(partition(number, replicas=replicas, in_sync=in_sync) for number in range(2)))
    return judging.in_sync(said, {judging.MIN_ISR: minimum}, acks)


def created(code: int) -> Finding:
    said = CreateTopicsResponse(0, code, "the broker's words" if code else None)
    return judging.created(said, "t", NewTopic(replicas=9), SINK)


def commit_topic(said: TopicMetadata, code: int | None = None) -> Finding:
    """`code`: of the attempt to create it."""
    return judging.commit_topic(said, None if code is None else CreateTopicsResponse(0, code, None), SINK)


@pytest.mark.parametrize(
    ("finding", "status", "found", "remedy"),
    [
        (judging.cluster(MetadataResponse(0, "id", 1, BROKERS, ())), OK, "id; brokers 1, 2", ""),
        (judging.cluster(MetadataResponse(0, None, 1, (), ())), FAILED, "no broker", "log"),
        # A topic.
        (judging.topic(topic(ONE, TWO), SINK), OK, "2 partitions", ""),
        (judging.topic(topic(ONE, code=NO_LEADER), SINK), OK, "1 partition", ""),
        (judging.topic(topic(code=NO_LEADER), SINK), FAILED, "LEADER_NOT_AVAILABLE (error 5)", "check again"),
        (judging.topic(topic(code=UNKNOWN), SINK), FAILED, "no such topic", "-server b:9092 --create --topic t"),
        (judging.topic(topic(code=TOPIC_DENIED), SINK), FAILED, "not allowed", "t WRITE (it implies DESCRIBE) for"),
        (judging.topic(topic(code=INVALID_NAME), SINK), FAILED, "name", "topic option"),
        # A topic that brokers may make.
        (judging.missing("t", "false", SINK), FAILED, "there is no such topic", "--topic t), or set createTopics"),
        (judging.missing("t", "true", SINK), WARNING, "the brokers create it for the write", "or set createTopics"),
        (judging.missing("t", None, SINK), WARNING, "only if the brokers create topics automatically", "--create"),
        (judging.missing("t", "false", SINK, option="deadLetterTopic"), FAILED, "there is no such topic",
         "correct the deadLetterTopic option, or create it (kafka-topics.sh"),
        # A topic that was to be made.
        (created(NONE), OK, "created", ""),
        (created(EXISTS), OK, "created", ""),
        (created(TOPIC_DENIED), FAILED, "it was not created with replicas=9", "the ACL TOPIC t CREATE"),
        (created(CLUSTER_DENIED), FAILED, "the broker's words", "the ACL TOPIC t CREATE"),
        (created(BAD_FACTOR), FAILED, "the broker's words", "replicas=1"),
        (created(BAD_CONFIG), FAILED, "the broker's words", "correct the topic settings"),
        (created(POLICY), FAILED, "the broker's words", "the cluster allows"),
        (created(BAD_FACTOR + 1), FAILED, "the broker's words", "--create --topic t"),
        # Leaders and replicas.
        (judging.leaders(topic(partition(leader=0), partition(1, leader=2))), OK, "on 2 brokers", ""),
        (judging.leaders(topic(*LEADERLESS)), FAILED, "partitions 0, 1, 2, 3, 4 and 4 more", "start the brokers"),
        (judging.leaders(topic(LEADERLESS[3], ONE)), FAILED, "no leader for partition 3", "start the brokers"),
        (judging.replication(topic(ONE, partition(1, replicas=2))), OK, "replication factor 2", ""),
        (judging.replication(topic(ONE, partition(1, replicas=1))), WARNING, "partition 1 is", "to 3"),
        (in_sync(3, 3, "2", "all"), OK, "3 in sync", ""),
        (in_sync(3, 2, "2", "all"), OK, "2 in sync", ""),
        (in_sync(3, 1, "2", "all"), FAILED, "2", "start the brokers"),
        (in_sync(3, 1, "2", "1"), OK, "1 in sync", ""),
        (in_sync(3, 3, "1", "all"), WARNING, "1", "to 2"),
        (in_sync(1, 1, "1", "all"), OK, "1 in sync", ""),
        (in_sync(2, 2, "3", "all"), FAILED, "3", "at most 1, or raise"),
        (in_sync(1, 1, "2", "all"), FAILED, "2", "at most 1, or raise"),
        (in_sync(1, 1, "2", "0"), OK, "1 in sync", ""),
        (judging.in_sync(topic(ONE, partition(1, in_sync=1)), {judging.MIN_ISR: "2"}, "all"), FAILED,
         "partition 1 (1 to 3 in sync)", "start"),
        # A topic's settings.
        (judging.settings(TopicConfigs("t", 0, {"b": "1", "a": "2"}), SINK), OK, "known", ""),
        (judging.settings(TopicConfigs("t", TOPIC_DENIED, {}), SINK), SKIPPED, "TOPIC_AUTHORIZATION_FAILED",
         "TOPIC t DESCRIBE_CONFIGS"),
        (judging.unclean({judging.UNCLEAN: "false"}), OK, "=false", ""),
        (judging.unclean({}), OK, "unknown", ""),
        (judging.unclean({judging.UNCLEAN: "true"}), WARNING, "=true", "false"),
        (judging.message_size({judging.MAX_MESSAGE: str(2**20)}, CLIENT), OK, "1048576", ""),
        (judging.message_size({judging.MAX_MESSAGE: "1048575"}, CLIENT), WARNING, "1048575",
         "kafka.max.request.size to 1048575"),
        (judging.message_size({judging.MAX_MESSAGE: "600000"}, CLIENT), WARNING, "600000",
         "max.message.bytes of the topic to 1048576"),
        (judging.message_size({judging.MAX_MESSAGE: "600000"}, SMALL), WARNING, "kafka.batch.size", "at most 600000"),
        (judging.message_size({}, SMALL), OK, "unknown", ""),
        (judging.timestamps({}), OK, "CreateTime", ""),
        (judging.timestamps({judging.TIMESTAMP_TYPE: "LogAppendTime"}), WARNING, "`timestamp` column", ""),
        (judging.timestamps({judging.BEFORE: str(2**63 - 1), judging.AFTER: "3600000"}), OK, "3600000 ms ahead", ""),
        (judging.timestamps({judging.BEFORE: "86400000"}), WARNING, "86400000", ""),
        (judging.acks(config(kafka_acks="all").producer), OK, "all", ""),
        (judging.acks(config(kafka_acks="1").producer), WARNING, "1", ""),
        (judging.acks(config(kafka_acks="0").producer), WARNING, "0", ""),
        # Permissions, producer ids, groups.
        (judging.may(AclOperation.WRITE, topic(allowed=WRITE | DESCRIBE), CLIENT), OK, "", ""),
        (judging.may(AclOperation.WRITE, topic(allowed=READ | DESCRIBE), CLIENT), FAILED, "",
         "TOPIC t WRITE for principal User:ANONYMOUS"),
        (judging.may(AclOperation.WRITE, topic(allowed=0), CLIENT), FAILED, "", "TOPIC t WRITE for principal"),
        (judging.may(AclOperation.WRITE, topic(), CLIENT), SKIPPED, "", ""),
        (judging.producer_id(NONE, "t", SINK), OK, "", ""),
        (judging.producer_id(CLUSTER_DENIED, "t", SINK), FAILED, "", "IDEMPOTENT_WRITE"),
        (judging.producer_id(LOADING, "t", SINK), FAILED, "", "controller"),
        (judging.transactional_id(NO_MAPPING, "p", SINK), OK, "", ""),
        (judging.transactional_id(ID_DENIED, "p", SINK), FAILED, "", "TRANSACTIONAL_ID p WRITE (prefixed) for"),
        (judging.transactional_id(LOADING, "p", SINK), FAILED, "", "__transaction_state"),
        (judging.group(NONE, READ, "p", SINK), OK, "", ""),
        (judging.group(NONE, DESCRIBE, "p", SINK), FAILED, "", "GROUP p READ (prefixed) for"),
        (judging.group(NONE, NOT_TOLD, "p", SINK), SKIPPED, "", ""),
        (judging.group(GROUP_DENIED, NOT_TOLD, "p", SINK), FAILED, "", "GROUP p READ (prefixed) for"),
        (judging.group(LOADING, NOT_TOLD, "p", SINK), FAILED, "", "__consumer_offsets"),
        # The group of a stream's progress: never more than a warning.
        (judging.progress_group(0, READ, "g", CLIENT), OK, "GROUP g READ", ""),
        (judging.progress_group(0, NOT_TOLD, "g", CLIENT), SKIPPED, "permissions", ""),
        (judging.progress_group(0, DESCRIBE, "g", CLIENT), WARNING, "reads even so", "ACL GROUP g READ for"),
        (judging.progress_group(GROUP_DENIED, NOT_TOLD, "g", CLIENT), WARNING, "reads even so", "ACL GROUP g READ"),
        (judging.progress_group(LOADING, NOT_TOLD, "g", CLIENT), WARNING, "LOAD_IN_PROGRESS", "__consumer_offsets"),
        # A dead letter topic.
        (judging.dead_letter_topic(topic(ONE, allowed=WRITE), AT_LEAST_ONCE), OK, "1 partition", ""),
        (judging.dead_letter_topic(topic(ONE, allowed=WRITE), ONCE), FAILED, "", "TOPIC t READ"),
        (judging.dead_letter_topic(topic(ONE, allowed=WRITE | READ), ONCE), OK, "1 partition", ""),
        (judging.dead_letter_topic(topic(ONE, allowed=READ), ONCE), FAILED, "", "TOPIC t WRITE"),
        (judging.dead_letter_topic(topic(code=INVALID_NAME), ONCE), FAILED, "name", "the deadLetterTopic option"),
        (judging.dead_letter_topic(topic(code=TOPIC_DENIED), ONCE), FAILED, "see", "TOPIC t WRITE"),
        # The commit topic.
        (commit_topic(topic(ONE, TWO, allowed=READ)), OK, "TOPIC t READ", ""),
        (commit_topic(topic(ONE, TWO, allowed=0)), FAILED, "", "TOPIC t READ"),
        (commit_topic(topic(ONE, allowed=READ)), FAILED, "1 partition", "--alter --topic t --partitions 2"),
        (commit_topic(topic(code=TOPIC_DENIED)), FAILED, "see", "TOPIC t READ"),
        (commit_topic(topic(code=UNKNOWN), NONE), OK, "the first write creates it", ""),
        (commit_topic(topic(code=UNKNOWN), TOPIC_DENIED), FAILED, "may not create it", "TOPIC t CREATE"),
        (commit_topic(topic(code=NO_LEADER)), FAILED, "LEADER_NOT_AVAILABLE (error 5)", "check again"),
        (commit_topic(topic(code=INVALID_NAME)), FAILED, "name", "correct the commitTopic option"),
        (commit_topic(topic(code=LOADING)), FAILED, "does not describe it", "check again"),
        # Transactions.
        (judging.ceiling("900000", 900_000), OK, "900000", ""),
        (judging.ceiling("899999", 900_000), FAILED, "", "at most 899999"),
        (judging.ceiling(None, 900_000), SKIPPED, "CLUSTER DESCRIBE_CONFIGS", ""),
    ],
)  # fmt: skip
def test_a_finding_has_its_status_and_its_remedy(finding: Finding, status: Status, found: str, remedy: str) -> None:
    assert finding.status is status, finding
    assert found in finding.found
    assert remedy in finding.remedy
    assert bool(finding.remedy) is (status in (WARNING, FAILED)) or status is SKIPPED


def test_what_does_not_help_is_not_advised() -> None:
    assert "createTopics" not in judging.missing("t", "false", SINK, option="deadLetterTopic").remedy
    assert not [
        code for code in (NO_LEADER, INVALID_NAME, LOADING) if "--alter" in commit_topic(topic(code=code)).remedy
    ]


def test_a_secret_among_the_settings_is_shown_by_neither_side() -> None:
    wanted = NewTopic(settings=(("retention.ms", "password=hunter2"),))
    said = CreateTopicsResponse(0, BAD_CONFIG, "Invalid value password=hunter2 for configuration retention.ms")
    for answer in (said, CreateTopicsResponse(0, 0, None)):
        finding = judging.created(answer, "t", wanted, SINK)
        assert "hunter2" not in finding.found and "retention.ms=password=***" in finding.found
    assert "hunter2" not in repr(wanted)


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

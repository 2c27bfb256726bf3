"""Each finding: its status, what it found, and the remedy; of topics, of a service, of interpreters."""

import sys
import uuid
from dataclasses import replace

import pytest

import apis
from kafka_sink.doctor import engine, findings, interpreter
from kafka_sink.doctor.findings import MIN_ISR, STATE_TOPICS, UNCLEAN
from kafka_sink.doctor.interpreter import Interpreter, interpreter_of, judged, this_interpreter
from kafka_sink.doctor.report import Finding, Status
from kafka_sink.kafka.new_topic import NewTopic
from kafka_sink.kafka.protocol.api import NOT_REPORTED, AclOperation
from kafka_sink.kafka.protocol.apis import all_apis
from kafka_sink.options.config import SinkConfig, sink_config
from kafka_sink.records.kernel import Loss, fallback

OK, WARNING, FAILED, SKIPPED = Status
NONE, UNKNOWN, NO_LEADER, LOADING, INVALID_NAME = 0, 3, 5, 14, 17
TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED = 29, 30, 31
EXISTS, BAD_FACTOR, BAD_CONFIG, POLICY, NO_MAPPING, ID_DENIED = 36, 38, 40, 44, 49, 53
READ, WRITE, DESCRIBE = 1 << 3, 1 << 4, 1 << 8
WEEK_MINUTES, WEEK_MS = "10080", "604800000"
CONFIG = sink_config({"kafka.bootstrap.servers": "b:9092", "topic": "t"})
SAFE = {MIN_ISR: "2", UNCLEAN: "false"}
EVERYTHING = {api.key: (0, api.max_version) for api in all_apis()}
# As brokers of 2.1.1 and 2.8.2 told them, as far as it matters here.
KAFKA_2_1 = {0: (0, 7), 3: (0, 7), 18: (0, 2), 22: (0, 1), 10: (0, 2), 9: (0, 5)}
KAFKA_2_8 = KAFKA_2_1 | {0: (0, 9), 3: (0, 11), 18: (0, 3), 22: (0, 4), 10: (0, 3), 9: (0, 7), 61: (0, 0)}
DRIVER = Interpreter("/venv/bin/python", "3.11.7", "0.1.0", "/venv/lib", "compiled")


def config(**more: str) -> SinkConfig:
    named = {name.replace("_", "."): value for name, value in more.items()}
    return sink_config({"kafka.bootstrap.servers": "b:9092", "topic": "t", **named})


SINK = config()
CLIENT = SINK.producer
LETTERS = {"badRows": "deadLetter", "deadLetterTopic": "letters"}
AT_LEAST_ONCE, ONCE = config(**LETTERS), config(**LETTERS, deliveryGuarantee="exactly-once")
SMALL = config(kafka_max_request_size="500000").producer


def partition(number: int = 0, *, leader: int = 1, replicas: int = 3, in_sync: int = 3) -> apis.PartitionMetadata:
    return apis.PartitionMetadata(0, number, leader, 0, tuple(range(replicas)), tuple(range(in_sync)))


def topic(*partitions: apis.PartitionMetadata, code: int = NONE, allowed: int = NOT_REPORTED) -> apis.TopicMetadata:
    return apis.TopicMetadata(code, "t", uuid.UUID(int=1), partitions, allowed)


BROKERS = (apis.Broker(2, "b", 1), apis.Broker(1, "a", 1))
ONE, TWO, LEADERLESS = partition(), partition(1), [partition(number, leader=-1) for number in range(9)]


def in_sync(replicas: int, in_sync: int, minimum: str, acks: str) -> Finding:
    said = topic(*(partition(number, replicas=replicas, in_sync=in_sync) for number in range(2)))
    return findings.in_sync(said, {findings.MIN_ISR: minimum}, acks)


def created(code: int) -> Finding:
    said = apis.CreateTopicsResponse(0, code, "the broker's words" if code else None)
    return findings.created(said, "t", NewTopic(replicas=9), SINK)


def commit_topic(said: apis.TopicMetadata, code: int | None = None) -> Finding:
    """`code`: of the attempt to create it."""
    return findings.commit_topic(said, None if code is None else apis.CreateTopicsResponse(0, code, None), SINK)


@pytest.mark.parametrize(("finding", "status", "found", "remedy"), [
    (findings.cluster(apis.MetadataResponse(0, "id", 1, BROKERS, ())), OK, "id; brokers 1, 2", ""),
    (findings.cluster(apis.MetadataResponse(0, None, 1, (), ())), FAILED, "no broker", "log"),
    # A topic.
    (findings.topic(topic(ONE, TWO), SINK), OK, "2 partitions", ""),
    (findings.topic(topic(ONE, code=NO_LEADER), SINK), OK, "1 partition", ""),
    (findings.topic(topic(code=NO_LEADER), SINK), FAILED, "LEADER_NOT_AVAILABLE (error 5)", "check again"),
    (findings.topic(topic(code=UNKNOWN), SINK), FAILED, "no such topic", "-server b:9092 --create --topic t"),
    (findings.topic(topic(code=TOPIC_DENIED), SINK), FAILED, "not allowed", "t WRITE (it implies DESCRIBE) for"),
    (findings.topic(topic(code=INVALID_NAME), SINK), FAILED, "name", "topic option"),
    # A topic that brokers may make.
    (findings.missing("t", "false", SINK), FAILED, "there is no such topic", "--topic t), or set createTopics"),
    (findings.missing("t", "true", SINK), WARNING, "the brokers create it for the write", "or set createTopics"),
    (findings.missing("t", None, SINK), WARNING, "only if the brokers create topics automatically", "--create"),
    (findings.missing("t", "false", SINK, option="deadLetterTopic"), FAILED, "there is no such topic",
     "correct the deadLetterTopic option, or create it (kafka-topics.sh"),
    # A topic that was to be made.
    (created(NONE), OK, "created", ""), (created(EXISTS), OK, "created", ""),
    (created(TOPIC_DENIED), FAILED, "it was not created with replicas=9", "the ACL TOPIC t CREATE"),
    (created(CLUSTER_DENIED), FAILED, "the broker's words", "the ACL TOPIC t CREATE"),
    (created(BAD_FACTOR), FAILED, "the broker's words", "replicas=1"),
    (created(BAD_CONFIG), FAILED, "the broker's words", "correct the topic settings"),
    (created(POLICY), FAILED, "the broker's words", "the cluster allows"),
    (created(BAD_FACTOR + 1), FAILED, "the broker's words", "--create --topic t"),
    # Leaders and replicas.
    (findings.leaders(topic(partition(leader=0), partition(1, leader=2))), OK, "on 2 brokers", ""),
    (findings.leaders(topic(*LEADERLESS)), FAILED, "partitions 0, 1, 2, 3, 4 and 4 more", "start the brokers"),
    (findings.leaders(topic(LEADERLESS[3], ONE)), FAILED, "no leader for partition 3", "start the brokers"),
    (findings.replication(topic(ONE, partition(1, replicas=2))), OK, "replication factor 2", ""),
    (findings.replication(topic(ONE, partition(1, replicas=1))), WARNING, "partition 1 is", "to 3"),
    (in_sync(3, 3, "2", "all"), OK, "3 in sync", ""), (in_sync(3, 2, "2", "all"), OK, "2 in sync", ""),
    (in_sync(3, 1, "2", "all"), FAILED, "2", "start the brokers"), (in_sync(3, 1, "2", "1"), OK, "1 in sync", ""),
    (in_sync(3, 3, "1", "all"), WARNING, "1", "to 2"), (in_sync(1, 1, "1", "all"), OK, "1 in sync", ""),
    (in_sync(2, 2, "3", "all"), FAILED, "3", "at most 1, or raise"),
    (in_sync(1, 1, "2", "all"), FAILED, "2", "at most 1, or raise"), (in_sync(1, 1, "2", "0"), OK, "1 in sync", ""),
    (findings.in_sync(topic(ONE, partition(1, in_sync=1)), {findings.MIN_ISR: "2"}, "all"), FAILED,
     "partition 1 (1 to 3 in sync)", "start"),
    # A topic's settings.
    (findings.settings(apis.TopicConfigs("t", 0, {"b": "1", "a": "2"}), SINK), OK, "known", ""),
    (findings.settings(apis.TopicConfigs("t", TOPIC_DENIED, {}), SINK), SKIPPED, "TOPIC_AUTHORIZATION_FAILED",
     "TOPIC t DESCRIBE_CONFIGS"),
    (findings.settings(apis.TopicConfigs("t", 0, {"diskless.enable": "true"}), ONCE), FAILED, "diskless.enable=true",
     "deliveryGuarantee=at-least-once"),
    (findings.settings(apis.TopicConfigs("t", 0, {"inkless.enable": "true"}), ONCE), FAILED, "inkless.enable=true",
     "not diskless"),
    (findings.settings(apis.TopicConfigs("t", 0, {"inkless.enable": "false"}), ONCE), OK, "known", ""),
    (findings.settings(apis.TopicConfigs("t", 0, {"diskless.enable": "true"}), AT_LEAST_ONCE), OK, "known", ""),
    (findings.unclean({findings.UNCLEAN: "false"}), OK, "=false", ""), (findings.unclean({}), OK, "unknown", ""),
    (findings.unclean({findings.UNCLEAN: "true"}), WARNING, "=true", "false"),
    (findings.message_size({findings.MAX_MESSAGE: str(2**20)}, CLIENT), OK, "1048576", ""),
    (findings.message_size({findings.MAX_MESSAGE: "1048575"}, CLIENT), WARNING, "1048575",
     "kafka.max.request.size to 1048575"),
    (findings.message_size({findings.MAX_MESSAGE: "600000"}, CLIENT), WARNING, "600000",
     "max.message.bytes of the topic to 1048576"),
    (findings.message_size({findings.MAX_MESSAGE: "600000"}, SMALL), WARNING, "kafka.batch.size", "at most 600000"),
    (findings.message_size({}, SMALL), OK, "unknown", ""), (findings.timestamps({}), OK, "CreateTime", ""),
    (findings.timestamps({findings.TIMESTAMP_TYPE: "LogAppendTime"}), WARNING, "`timestamp` column", ""),
    (findings.timestamps({findings.BEFORE: str(2**63 - 1), findings.AFTER: "3600000"}), OK, "3600000 ms ahead", ""),
    (findings.timestamps({findings.BEFORE: "86400000"}), WARNING, "86400000", ""),
    (findings.acks(config(kafka_acks="all").producer), OK, "all", ""),
    (findings.acks(config(kafka_acks="1").producer), WARNING, "1", ""),
    (findings.acks(config(kafka_acks="0").producer), WARNING, "0", ""),
    # Permissions, producer ids, groups.
    (findings.may(AclOperation.WRITE, topic(allowed=WRITE | DESCRIBE), CLIENT), OK, "", ""),
    (findings.may(AclOperation.WRITE, topic(allowed=READ | DESCRIBE), CLIENT), FAILED, "",
     "TOPIC t WRITE for principal User:ANONYMOUS"),
    (findings.may(AclOperation.WRITE, topic(allowed=0), CLIENT), FAILED, "", "TOPIC t WRITE for principal"),
    (findings.may(AclOperation.WRITE, topic(), CLIENT), SKIPPED, "", ""),
    (findings.producer_id(NONE, "t", SINK), OK, "", ""),
    (findings.producer_id(CLUSTER_DENIED, "t", SINK), FAILED, "", "IDEMPOTENT_WRITE"),
    (findings.producer_id(LOADING, "t", SINK), FAILED, "", "controller"),
    (findings.transactional_id(NO_MAPPING, "p", SINK), OK, "", ""),
    (findings.transactional_id(ID_DENIED, "p", SINK), FAILED, "", "TRANSACTIONAL_ID p WRITE (prefixed) for"),
    (findings.transactional_id(LOADING, "p", SINK), FAILED, "", "__transaction_state"),
    (findings.group(NONE, READ, "p", SINK), OK, "", ""),
    (findings.group(NONE, DESCRIBE, "p", SINK), FAILED, "", "GROUP p READ (prefixed) for"),
    (findings.group(NONE, NOT_REPORTED, "p", SINK), SKIPPED, "", ""),
    (findings.group(GROUP_DENIED, NOT_REPORTED, "p", SINK), FAILED, "", "GROUP p READ (prefixed) for"),
    (findings.group(LOADING, NOT_REPORTED, "p", SINK), FAILED, "", "__consumer_offsets"),
    # The group of a stream's progress: never more than a warning.
    (findings.progress_group(0, READ, "g", CLIENT), OK, "GROUP g READ", ""),
    (findings.progress_group(0, NOT_REPORTED, "g", CLIENT), SKIPPED, "permissions", ""),
    (findings.progress_group(0, DESCRIBE, "g", CLIENT), WARNING, "reads even so", "ACL GROUP g READ for"),
    (findings.progress_group(GROUP_DENIED, NOT_REPORTED, "g", CLIENT), WARNING, "reads even so",
     "ACL GROUP g READ"),
    (findings.progress_group(LOADING, NOT_REPORTED, "g", CLIENT), WARNING, "LOAD_IN_PROGRESS",
     "__consumer_offsets"),
    # A dead letter topic.
    (findings.dead_letter_topic(topic(ONE, allowed=WRITE), AT_LEAST_ONCE), OK, "1 partition", ""),
    (findings.dead_letter_topic(topic(ONE, allowed=WRITE), ONCE), FAILED, "", "TOPIC t READ"),
    (findings.dead_letter_topic(topic(ONE, allowed=WRITE | READ), ONCE), OK, "1 partition", ""),
    (findings.dead_letter_topic(topic(ONE, allowed=READ), ONCE), FAILED, "", "TOPIC t WRITE"),
    (findings.dead_letter_topic(topic(code=INVALID_NAME), ONCE), FAILED, "name", "the deadLetterTopic option"),
    (findings.dead_letter_topic(topic(code=TOPIC_DENIED), ONCE), FAILED, "see", "TOPIC t WRITE"),
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
    (findings.ceiling("900000", 900_000), OK, "900000", ""),
    (findings.ceiling("899999", 900_000), FAILED, "", "at most 899999"),
    (findings.ceiling(None, 900_000), SKIPPED, "CLUSTER DESCRIBE_CONFIGS", ""),
])  # fmt: skip
def test_a_finding_has_its_status_and_its_remedy(finding: Finding, status: Status, found: str, remedy: str) -> None:
    assert finding.status is status, finding
    assert found in finding.found
    assert remedy in finding.remedy
    assert bool(finding.remedy) is (status in (WARNING, FAILED)) or status is SKIPPED


def test_what_does_not_help_is_not_advised() -> None:
    assert "createTopics" not in findings.missing("t", "false", SINK, option="deadLetterTopic").remedy
    remedies = [commit_topic(topic(code=code)).remedy for code in (NO_LEADER, INVALID_NAME, LOADING)]
    assert not [remedy for remedy in remedies if "--alter" in remedy]


def test_a_secret_among_the_settings_is_shown_by_neither_side() -> None:
    wanted = NewTopic(settings=(("retention.ms", "password=hunter2"),))
    said = apis.CreateTopicsResponse(0, BAD_CONFIG, "Invalid value password=hunter2 for configuration retention.ms")
    for answer in (said, apis.CreateTopicsResponse(0, 0, None)):
        finding = findings.created(answer, "t", wanted, SINK)
        assert "hunter2" not in finding.found and "retention.ms=password=***" in finding.found
    assert "hunter2" not in repr(wanted)


def test_how_long_brokers_remember_what_is_committed() -> None:
    for offsets_minutes, ids_ms, status, words in (
        (WEEK_MINUTES, WEEK_MS, OK, "offsets.retention.minutes=10080, transactional.id.expiration.ms=604800000"),
        ("10079", WEEK_MS, WARNING, "10079 minutes after the last"),
        (WEEK_MINUTES, "604799999", WARNING, "raise transactional.id.expiration.ms"),
        ("16", WEEK_MS, WARNING, "raise offsets.retention.minutes"),
        ("15", WEEK_MS, FAILED, "raise offsets.retention.minutes"),
        (WEEK_MINUTES, "900000", FAILED, "raise transactional.id.expiration.ms"),
        (WEEK_MINUTES, "900001", WARNING, "StateExpired"),
        (None, WEEK_MS, SKIPPED, "CLUSTER DESCRIBE_CONFIGS"),
        (WEEK_MINUTES, None, SKIPPED, "CLUSTER DESCRIBE_CONFIGS"),
    ):
        finding = findings.retention(offsets_minutes, ids_ms, 900_000)
        assert finding.status is status
        assert words in finding.found + finding.remedy


def state_topic(name: str, replicas: int = 3, code: int = 0) -> apis.TopicMetadata:
    partitions = (apis.PartitionMetadata(0, 0, 1, 0, tuple(range(replicas)), (1,)),)
    return apis.TopicMetadata(code, name, uuid.UUID(int=1), () if code else partitions, -1)


def test_topics_of_state() -> None:
    for replicas, code, values, config_code, status, found in (
        (3, 0, SAFE, 0, OK, "__transaction_state has replication factor 3"),
        (3, UNKNOWN, {}, 0, OK, "__transaction_state is not created yet"),
        (1, 0, SAFE | {MIN_ISR: "1"}, 0, WARNING, "__transaction_state has one replica: if it loses"),
        (3, 0, SAFE | {UNCLEAN: "true"}, 0, WARNING, f"__transaction_state has {UNCLEAN}=true"),
        (3, 0, SAFE | {MIN_ISR: "1"}, 0, WARNING, f"__transaction_state has {MIN_ISR}=1"),
        (1, 0, {}, TOPIC_DENIED, WARNING, "twice; not seen: the settings of __transaction_state"),
        (3, 0, {}, TOPIC_DENIED, SKIPPED, "does not show the settings of __transaction_state"),
        (3, TOPIC_DENIED, {}, 0, SKIPPED, "does not show __transaction_state (TOPIC_AUTHORIZATION_FAILED (error 29))"),
    ):
        offsets, transactions = STATE_TOPICS
        topics = [state_topic(offsets), state_topic(transactions, replicas, code)]
        configs = [apis.TopicConfigs(offsets, 0, SAFE), apis.TopicConfigs(transactions, config_code, values)]
        finding = findings.state_topics(topics, configs, CONFIG)
        assert (finding.status, found in finding.found) == (status, True), finding
        if status is SKIPPED:
            assert "DESCRIBE_CONFIGS" in finding.remedy
        if status is WARNING:
            assert f"3 replicas, {MIN_ISR}=2 and {UNCLEAN}=false" in finding.remedy


def test_a_release_is_told_by_the_newest_request() -> None:
    for ranges, release in (
        (KAFKA_2_1, "2.1"), (KAFKA_2_1 | {18: (0, 3)}, "2.4"), (KAFKA_2_8, "2.8"), (KAFKA_2_8 | {66: (0, 0)}, "3.0"),
        (KAFKA_2_8 | {66: (0, 1)}, "3.8"), (KAFKA_2_8 | {66: (0, 1), 26: (0, 5)}, "4.0"),
        (EVERYTHING | {18: (0, 4)}, "4.1"), (EVERYTHING, "4.4"),
    ):  # fmt: skip
        found = engine.service({"kafka-1"}, "5L6g3nShT", ranges)
        assert (found.status, found.found) == (OK, f"takes requests as Apache Kafka {release} or later does")


def test_a_service_is_told_by_its_names() -> None:
    for host, cluster_id, name in (
        ("pkc-12345.eu-west-1.aws.confluent.cloud", "lkc-1", "Confluent Cloud"),
        ("b-1.demo.abc123.c2.kafka.eu-west-1.amazonaws.com", None, "Amazon MSK"),
        ("boot-abc.c1.kafka-serverless.us-east-1.amazonaws.com", None, "Amazon MSK Serverless"),
        ("NAMESPACE.servicebus.windows.net", None, "Azure Event Hubs"),
        ("kafka-1.example.com", "redpanda.0f6b-1", "Redpanda"),
    ):
        found = engine.service({"10.0.0.1", host}, cluster_id, KAFKA_2_8).found
        assert found == f"{name}, by its names; it takes requests as Apache Kafka 2.8 or later does"
    # A name that only has a service's name in it is none.
    for host in ("confluent.cloud.example.com", "my-confluent.cloud.evil", "xconfluent.cloud"):
        assert engine.service({host}, "not-redpanda.x", EVERYTHING).found.startswith("takes requests")
        assert "fewer requests than Kafka 2.1" in engine.service({host}, None, {0: (0, 6)}).found


def test_an_idempotent_write_needs_producer_ids() -> None:
    brokers = {"broker 1": {0: (0, 7), 3: (0, 5)}}
    found = engine.at_least_once(brokers, is_idempotent=True)
    assert found.status is Status.FAILED
    assert "broker 1 lacks InitProducerId 0 to 5" in found.found
    assert "kafka.enable.idempotence=false" in found.remedy
    assert engine.at_least_once(brokers, is_idempotent=False).status is Status.OK


@pytest.mark.parametrize("is_wanted", [True, False])
def test_exactly_once_names_what_is_missing_and_where(is_wanted: bool) -> None:
    """In a cluster that is being upgraded some brokers have more than others. A write that is at-least-once is told
    what exactly-once would need."""
    brokers = {"broker 1": EVERYTHING, "broker 2": KAFKA_2_8, "broker 3": KAFKA_2_8}
    found = engine.exactly_once(brokers, is_wanted=is_wanted)
    assert found.status is (Status.FAILED if is_wanted else Status.SKIPPED)
    assert found.found.startswith(f"{'' if is_wanted else 'not asked for; '}broker 2, broker 3 lack ")
    lacks = "ListTransactions 0 to 2 (Kafka 3.0; finds what an earlier run left open (KIP-664)): it has none"
    assert lacks in found.found
    assert ("deliveryGuarantee=at-least-once" in found.remedy) is is_wanted


def test_a_process_knows_its_python_and_why_it_has_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    here = this_interpreter()
    assert (here.executable, here.python) == (sys.executable, ".".join(map(str, sys.version_info[:3])))
    assert interpreter_of(here.to_json()) == here
    monkeypatch.setattr(interpreter, "KERNEL", replace(fallback(), loss=Loss("nobody built it", "build it")))
    here = this_interpreter()
    assert (here.kernel, here.loss, here.remedy) == ("vectorised", "nobody built it", "build it")


def test_a_write_wants_one_version_and_the_kernel() -> None:
    of_other_python = replace(DRIVER, executable="/usr/bin/python3", python="3.12.1")
    unkerneled = replace(DRIVER, kernel="vectorised")
    for found, status, says, remedy in (
        (DRIVER, OK, "kafka_sink 0.1.0 in /venv/lib, compiled kernel", ""), (of_other_python, OK, "Python 3.12.1", ""),
        (unkerneled, OK, "vectorised kernel", ""),
        (replace(DRIVER, version="0.0.9"), WARNING, "another version", "install pyspark-pykafka 0.1.0"),
        (replace(unkerneled, loss="in a zip", remedy="unzip"), WARNING, "in a zip", "unzip"),
    ):  # fmt: skip
        finding = judged(found, DRIVER)
        assert (finding.status, says in finding.found, remedy in finding.remedy) == (status, True, True)

"""Faults of real brokers, and what the doctor answers: where, at which step, what to do, in time; nothing where
nothing is wrong. Peers that are no brokers: unit/doctor; faults of TLS and SASL: test_security.py."""

import itertools
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, ResourceType
from pyspark.sql import SparkSession

import kafka_sink
from broker_admin import groups, topics, transactions
from effort import variants
from kafka_sink.broker import LocalKafka
from kafka_sink.cli import check
from kafka_sink.doctor.examinations import examine_read
from kafka_sink.doctor.report import Report, Status
from kafka_sink.errors import InvalidOption, MissingColumn, UnknownOption
from kafka_sink.options.config import given_options
from kafka_sink.options.reading import READING, read_config
from secure_kafka import Acl, SecureKafka, examined, failure_found, verdict_of
from spark_writes import Here

DEADLINE_S = 60
OK, WARNING, FAILED, SKIPPED = Status
topic_numbers = itertools.count(1)
NOWHERE = "nowhere.invalid"


def at(servers: str, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": servers, "topic": "any", **more}


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_nothing_fails_where_nothing_is_wrong(kafka: LocalKafka, topic: Callable[..., str], guarantee: str) -> None:
    name, letters = topic(3), topic(1)
    more = {"deliveryGuarantee": guarantee, "badRows": "deadLetter", "deadLetterTopic": letters}
    more |= {"transactionalIdPrefix": name} if guarantee == "exactly-once" else {}
    report = examined(at(kafka.bootstrap_servers, topic=name, **more))
    assert report.ok, report
    assert verdict_of(report, "dead letter topic").where == f"topic {letters}"
    # One broker holds one replica of everything.
    single = {"replication"} | ({"topics of state"} if guarantee == "exactly-once" else set())
    assert {verdict.step for verdict in report.verdicts if verdict.status is not OK} == single, report
    # It leaves nothing behind.
    assert not transactions(kafka, name) and groups(kafka, name) == []


def test_what_is_missing_and_what_its_settings_refuse(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    letters = f"{topic(1)}-letters"
    failure = failure_found(at(kafka.bootstrap_servers, topic=topic(1), badRows="deadLetter", deadLetterTopic=letters))
    assert (failure.step, failure.where) == ("dead letter topic", f"topic {letters}")
    assert f"--create --topic {letters}" in failure.finding.remedy
    failure = failure_found(at(kafka.bootstrap_servers, topic="missing"))
    assert (failure.step, failure.where) == ("topic", "topic missing")
    assert "kafka-topics.sh" in failure.finding.remedy and "createTopics=true" in failure.finding.remedy
    few = at(kafka.bootstrap_servers, topic=topic(1, {"min.insync.replicas": "2"}), deliveryGuarantee="exactly-once")
    report = examined(few | {"kafka.transaction.timeout.ms": "600000000"})
    assert {verdict.step for verdict in report.failures} == {"in-sync replicas", "transaction timeout"}
    assert "min.insync.replicas=2 is more than the 1 replicas" in verdict_of(report, "in-sync replicas").finding.found
    assert "transaction.max.timeout.ms=900000" in verdict_of(report, "transaction timeout").finding.found


def test_a_topic_that_is_made(kafka: LocalKafka) -> None:
    name = f"made-{next(topic_numbers)}"
    report = examined(at(kafka.bootstrap_servers, topic=name, createTopics="true"))
    assert report.ok, report
    assert "created" in verdict_of(report, "topic").finding.found
    assert name in topics(kafka)
    assert "1 partition" in verdict_of(examined(at(kafka.bootstrap_servers, topic=name)), "topic").finding.found


def test_settings_that_lose_rows_or_refuse_them(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    name = topic(1, {
        "unclean.leader.election.enable": "true", "max.message.bytes": "100000",
        "message.timestamp.type": "LogAppendTime",
    })  # fmt: skip
    report = examined(at(kafka.bootstrap_servers, topic=name, **{"kafka.acks": "1"}))
    assert report.ok
    warned = {verdict.step: verdict.finding for verdict in report.verdicts if verdict.status is WARNING}
    assert warned.keys() == {"replication", "unclean election", "message size", "timestamps", "acks"}
    assert "replication factor 1" in warned["replication"].found
    assert "raise the factor to 3" in warned["replication"].remedy
    assert "unclean.leader.election.enable=false" in warned["unclean election"].remedy
    assert "100000" in warned["message size"].found
    assert "1048576" in warned["message size"].found
    assert "kafka.max.request.size to 100000" in warned["message size"].remedy
    assert "kafka.acks=all" in warned["acks"].remedy


def of_bob(secure: SecureKafka, topic: str, **more: str) -> dict[str, str]:
    return {**secure.sasl("SCRAM-SHA-512", "bob"), "topic": topic, **more}


def new_topic(secure: SecureKafka) -> str:
    name = f"checked-{next(topic_numbers)}"
    secure.kafka.create_topic(name, 1)
    return name


def exactly_once_acls(topic: str) -> dict[str, Acl]:
    """Those of docs/security.md, each by the step that misses it."""
    return {
        "write acl": Acl(ResourceType.TOPIC, topic, AclOperation.WRITE),
        "read acl": Acl(ResourceType.TOPIC, topic, AclOperation.READ),
        "transactional id acl": Acl(ResourceType.TRANSACTIONAL_ID, topic, AclOperation.WRITE, prefixed=True),
        "group acl": Acl(ResourceType.GROUP, topic, AclOperation.READ, prefixed=True),
        "commit topic": Acl(ResourceType.TOPIC, f"{topic}-commits", AclOperation.READ),
    }


def test_a_topic_that_may_not_be_written_to(secure: SecureKafka) -> None:
    topic = new_topic(secure)
    failure = failure_found(of_bob(secure, topic))
    assert (failure.step, failure.where) == ("topic", f"topic {topic}")
    assert f"TOPIC {topic} WRITE" in failure.finding.remedy
    assert "User:bob" in failure.finding.remedy
    secure.allow(Acl(ResourceType.TOPIC, topic, AclOperation.READ))
    failure = failure_found(of_bob(secure, topic))
    assert failure.step == "write acl"
    assert f"TOPIC {topic} WRITE" in failure.finding.remedy
    secure.allow(Acl(ResourceType.TOPIC, topic, AclOperation.WRITE))
    report = examined(of_bob(secure, topic))
    assert report.ok, report
    assert "DESCRIBE_CONFIGS" in verdict_of(report, "settings").finding.remedy
    assert verdict_of(report, "in-sync replicas").status is SKIPPED


@pytest.mark.parametrize("missing", [None, *exactly_once_acls("")])
def test_acls_of_exactly_once(secure: SecureKafka, missing: str | None) -> None:
    topic = new_topic(secure)
    commits = f"{topic}-commits"
    secure.kafka.create_topic(commits, 2)
    acls = exactly_once_acls(topic)
    secure.allow(*(acl for step, acl in acls.items() if step != missing))
    once = of_bob(secure, topic, deliveryGuarantee="exactly-once", transactionalIdPrefix=topic, commitTopic=commits)
    if missing is None:
        report = examined(once)
        assert report.ok, report
        return
    failure = failure_found(once)
    acl = acls[missing]
    assert failure.step == missing
    assert f"{acl.kind.name} {acl.name} {acl.operation.name}" in failure.finding.remedy
    assert "User:bob" in failure.finding.remedy


def test_a_commit_topic_that_may_not_be_made(secure: SecureKafka) -> None:
    topic = new_topic(secure)
    secure.allow(*exactly_once_acls(topic).values())
    once = of_bob(
        secure, topic, deliveryGuarantee="exactly-once", transactionalIdPrefix=topic, commitTopic=f"{topic}-commits"
    )
    failure = failure_found(once)
    assert (failure.step, failure.where) == ("commit topic", f"topic {topic}-commits")
    assert f"TOPIC {topic}-commits CREATE" in failure.finding.remedy
    secure.allow(Acl(ResourceType.TOPIC, f"{topic}-commits", AclOperation.CREATE))
    report = examined(once)
    assert report.ok
    assert "the first write creates it" in verdict_of(report, "commit topic").finding.found
    assert f"{topic}-commits" not in secure.admin.list_topics(timeout=30).topics, "nothing was made"


def test_the_command(kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path) -> None:
    preset = tmp_path / "sink.conf"
    preset.write_text(f"kafka.bootstrap.servers = {kafka.bootstrap_servers}\n")
    arguments = [sys.executable, "-m", "kafka_sink", "check", "--preset", str(preset), "--topic"]
    good = subprocess.run([*arguments, topic()], capture_output=True, text=True, timeout=DEADLINE_S)
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout.splitlines()[0].split() == ["VERDICT", "STEP", "WHERE", "FOUND"]
    bad = subprocess.run([*arguments, "missing"], capture_output=True, text=True, timeout=DEADLINE_S)
    assert bad.returncode == 1
    assert re.search(r"^FAILED +topic +topic missing +there is no such topic$", bad.stdout, re.MULTILINE)


@pytest.mark.parametrize("python", variants("", "/nowhere/python"))
def test_the_command_from_executors(
    here: Here, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], python: str
) -> None:
    monkeypatch.setattr(SparkSession, "stop", lambda session: None)  # the tests' own
    monkeypatch.setattr(here.spark.sparkContext, "pythonExec", python or here.spark.sparkContext.pythonExec)
    option = f"kafka.bootstrap.servers={NOWHERE}:9092,{here.servers}"
    assert check.main(["--option", option, "--topic", here.topic(), "--spark"]) == 0
    said = capsys.readouterr().out
    if python:
        assert re.search(r"^WARNING +executors +python +functions +", said, re.MULTILINE) and python in said
        return
    host = re.escape(socket.gethostname())
    assert re.search(rf"^OK +{host} +sasl +{here.servers} ", said, re.MULTILINE)
    assert re.search(r"^OK +driver +topic ", said, re.MULTILINE)
    for seen_from, process in (("driver", "driver"), ("driver", "planner"), (host, "tasks")):
        assert re.search(rf"^[A-Z]+ +{seen_from} +python +{process} +{sys.executable}, ", said, re.MULTILINE)


def test_validate_a_batch_with_options_and_with_the_conf_of_the_session(here: Here) -> None:
    frame = here.spark.range(1).selectExpr("cast(id as string) as value")
    report = kafka_sink.validate(frame, here.topic(), executors=True, bootstrap_servers=here.servers)
    assert report.ok, report
    assert "value string" in verdict_of(report, "columns").finding.found
    assert {verdict.seen_from for verdict in report.verdicts} == {"driver", socket.gethostname()}
    here.spark.conf.set("spark.pykafka.kafka.bootstrap.servers", here.servers)
    try:
        assert kafka_sink.validate(frame, here.topic(), include_headers=True).ok
    finally:
        here.spark.conf.unset("spark.pykafka.kafka.bootstrap.servers")
    report = kafka_sink.validate(frame, options=at(here.servers, topic="missing"))
    assert [failure.step for failure in report.failures] == ["topic"]
    assert "<td>FAILED</td>" in report._repr_html_()


def test_validate_a_stream(here: Here) -> None:
    frame = here.spark.readStream.format("rate").load()
    rows = frame.selectExpr("cast(value as string) as value")
    once = at(here.servers, topic=here.topic(), deliveryGuarantee="exactly-once", checkpointLocation="/c")
    report = kafka_sink.validate(rows, options=once)
    assert report.ok, report
    assert verdict_of(report, "group acl").where == "pykafka-*"
    with pytest.raises(MissingColumn):
        kafka_sink.validate(frame.drop("value"), options=once)
    with pytest.raises(UnknownOption):
        kafka_sink.validate(rows, options=once, topics="t")
    with pytest.raises(InvalidOption):
        kafka_sink.validate(rows, options=once, acks=2)


# --- reads -----------------------------------------------------------------------------------------------------------


def read_examined(options: dict[str, str]) -> Report:
    return examine_read(read_config(given_options(options, table=READING)))


def found(report: Report, step: str) -> list[tuple[str, Status]]:
    return [(verdict.where, verdict.status) for verdict in report.verdicts if verdict.step == step]


def test_topics_to_read_that_are_there_and_one_that_is_not(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    name = topic(3)
    report = read_examined({"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": f"{name},nope-at-all"})
    assert found(report, "reading") == [("cluster", OK)]
    assert found(report, "topic") == [(f"topic {name}", OK), ("topic nope-at-all", FAILED)]
    assert found(report, "leaders") == [(f"topic {name}", OK), ("topic nope-at-all", SKIPPED)]
    (failure,) = report.failures
    assert "there is no such topic" in str(failure.finding)


def test_a_pattern_to_read(kafka: LocalKafka, topic: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    name = topic(1)
    servers = ["--bootstrap-servers", kafka.bootstrap_servers]
    assert check.main(["--read", *servers, "--option", f"subscribePattern={name[1:]}"]) == 0
    assert f"topic {name}" in capsys.readouterr().out
    assert check.main(["--read", *servers, "--option", "subscribePattern=none-of-these"]) == 1
    assert "it matches none of the topics" in capsys.readouterr().out
    # Options of a stream, and of a batch.
    for option in ("startingOffsets=latest", "endingOffsets=latest"):
        assert check.main(["--read", *servers, "--topic", name, "--option", option]) == 0
    # An option of writes.
    assert check.main(["--read", *servers, "--topic", name, "--option", "kafka.acks=1"]) == 2


def test_a_missing_acl_of_a_read_is_named_and_with_it_all_is_well(secure: SecureKafka) -> None:
    secure.kafka.create_topic("check-read", 1)
    options = {**secure.sasl("SCRAM-SHA-512", "bob"), "subscribe": "check-read"}
    report = read_examined(options)
    (failure,) = report.failures
    assert failure.step == "topic"
    assert "add the ACL TOPIC check-read READ (it implies DESCRIBE) for principal User:bob" in str(failure.finding)
    secure.allow(Acl(ResourceType.TOPIC, "check-read", AclOperation.READ))
    report = read_examined(options)
    assert report.ok
    assert found(report, "read acl") == [("topic check-read", OK)]


def test_many_small_tasks_and_a_read_that_cannot_be_planned(
    kafka: LocalKafka, topic: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    name = topic(40)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for number in range(80):
        producer.produce(name, b"", partition=number % 40)
    producer.flush()
    read = ["--read", "--json", "--bootstrap-servers", kafka.bootstrap_servers, "--topic", name, "--option"]
    for option, code, text in (
        ("startingOffsets=earliest", 0, "40 tasks of about 2 records: each costs more than that"),
        ("startingOffsets=latest", 0, "no records to read now"),
        (f'endingOffsets={{"{name}": {{"0": 2}}}}', 1, "a value for each partition of the read and no other"),
    ):
        assert check.main([*read, option]) == code
        assert text in capsys.readouterr().out

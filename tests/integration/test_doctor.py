"""Faults, each injected into real brokers or scripted peers, and what the doctor answers: where, at which step, what to
do, in time. And that where nothing is wrong it finds nothing. Faults of TLS and SASL are in test_security.py."""

from __future__ import annotations

import itertools
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
from confluent_kafka.admin import AclOperation, ResourceType
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import kafka_sink
from broker_admin import topics
from committed_rows import groups, transactions
from doctor_reports import examined, failure_found, verdict_of
from here import Here
from kafka_sink.broker import LocalKafka
from kafka_sink.cli import check
from kafka_sink.doctor.report import Status, Verdict
from kafka_sink.errors import BrokersUnreachable, InvalidOption, MissingColumn, UnknownOption
from scripted_kafka import advertises
from scripted_peers import hangs_up, peer, says_nothing, silent_host, speaks_http
from secure_kafka import Acl, SecureKafka
from variants import variants
from waiting import wait_until

DEADLINE_S = 60
OK, WARNING, FAILED, SKIPPED = Status
topic_numbers = itertools.count(1)
NOWHERE = "nowhere.invalid"


def at(servers: str, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": servers, "topic": "any", **more}


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_nothing_fails_where_nothing_is_wrong(kafka: LocalKafka, topic: Callable[..., str], guarantee: str) -> None:
    letters = topic(1)
    options = at(
        kafka.bootstrap_servers,
        topic=topic(3),
        deliveryGuarantee=guarantee,
        badRows="deadLetter",
        deadLetterTopic=letters,
    )
    report = examined(options)
    assert report.ok, report
    assert verdict_of(report, "dead letter topic").where == f"topic {letters}"
    # One broker holds one replica of everything.
    single = {"replication"} | ({"topics of state"} if guarantee == "exactly-once" else set())
    assert {verdict.step for verdict in report.verdicts if verdict.status is not OK} == single, report


def test_a_dead_letter_topic_that_is_not_there(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    letters = f"{topic(1)}-letters"
    options = at(kafka.bootstrap_servers, topic=topic(1), badRows="deadLetter", deadLetterTopic=letters)
    failure = failure_found(options)
    assert (failure.step, failure.where) == ("dead letter topic", f"topic {letters}")
    assert f"--create --topic {letters}" in failure.finding.remedy


def closed() -> AbstractContextManager[int]:
    return nullcontext(closed_port())


SSL = {"kafka.security.protocol": "SSL"}


@pytest.mark.parametrize(
    ("host", "more", "step", "found", "remedy"),
    [
        (closed, {}, "tcp", "refused", "check the port"),
        pytest.param(silent_host, {}, "tcp", "does not answer at all", "firewall", marks=pytest.mark.long),
        pytest.param(lambda: peer(says_nothing), {}, "api versions", "", "load balancer", marks=pytest.mark.long),
        pytest.param(lambda: peer(says_nothing), SSL, "tls", "", "load balancer", marks=pytest.mark.long),
        (lambda: peer(speaks_http), {}, "api versions", "HTTP", "REST proxy"),
        (lambda: peer(speaks_http), SSL, "tls", "does not speak TLS", ""),
        (lambda: peer(hangs_up), {}, "api versions", "closed the connection", ""),
    ],
    ids=[
        "a closed port", "a host that answers nothing", "a port that accepts and says nothing", "the same with TLS",
        "a port that speaks HTTP", "HTTP with TLS", "a port that hangs up",
    ],
)  # fmt: skip
def test_a_host_that_is_no_broker(
    host: Callable[[], AbstractContextManager[int]], more: dict[str, str], step: str, found: str, remedy: str
) -> None:
    with host() as port:
        failure = failure_found(at(f"127.0.0.1:{port}", **more))
    assert (failure.step, failure.where) == (step, f"127.0.0.1:{port}")
    assert found in failure.finding.found
    assert remedy in failure.finding.remedy


def test_a_bootstrap_name_that_cannot_be_resolved() -> None:
    failure = failure_found(at(f"{NOWHERE}:9092"))
    assert (failure.step, failure.where) == ("dns", f"{NOWHERE}:9092")
    assert "/etc/hosts" in failure.finding.remedy


def test_one_of_two_bootstrap_servers_is_only_warned_of(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    report = examined(at(f"{NOWHERE}:9092,{kafka.bootstrap_servers}", topic=topic()))
    assert report.ok
    warned = next(verdict for verdict in report.verdicts if verdict.step == "dns")
    assert (warned.status, warned.where) == (WARNING, f"{NOWHERE}:9092")


def test_an_advertised_name_that_cannot_be_resolved() -> None:
    with peer(advertises(NOWHERE, 9092)) as port:
        report = examined(at(f"127.0.0.1:{port}"))
    failure = next(iter(report.failures))
    assert (failure.step, failure.where) == ("dns", f"broker 7, {NOWHERE}:9092")
    assert "advertised.listeners" in failure.finding.remedy


def test_an_advertised_listener_that_cannot_be_reached() -> None:
    port = closed_port()
    with LocalKafka(listeners={"OUTSIDE": "PLAINTEXT"}, advertised={"OUTSIDE": {1: port}}) as kafka:
        kafka.create_topic("any", 1)
        failure = failure_found(at(kafka.addresses_of("OUTSIDE")))
    assert (failure.step, failure.where) == ("tcp", f"broker 1, 127.0.0.1:{port}")
    assert "advertised.listeners" in failure.finding.remedy


def test_a_topic_that_is_missing(kafka: LocalKafka) -> None:
    failure = failure_found(at(kafka.bootstrap_servers, topic="missing"))
    assert (failure.step, failure.where) == ("topic", "topic missing")
    assert "kafka-topics.sh" in failure.finding.remedy
    assert "createTopics=true" in failure.finding.remedy


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


def test_fewer_replicas_than_have_to_be_in_sync(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    failure = failure_found(at(kafka.bootstrap_servers, topic=topic(1, {"min.insync.replicas": "2"})))
    assert failure.step == "in-sync replicas"
    assert "min.insync.replicas=2 is more than the 1 replicas" in failure.finding.found
    assert "replication factor" in failure.finding.remedy


@pytest.mark.long
def test_brokers_that_are_down() -> None:
    """A partition without its leader, one with too few in sync, and the broker itself."""
    with LocalKafka(nodes=3) as kafka:
        kafka.create_topic("alone", 3)
        kafka.create_topic("together", 3, 3, {"min.insync.replicas": "3"})
        wait_until(lambda: examined(at(kafka.bootstrap_servers, topic="together")).ok, DEADLINE_S, "all are in sync")
        kafka.kill(3)
        servers = kafka.bootstrap_servers

        def failures(name: str) -> dict[str, Verdict]:
            return {each.step: each for each in examined(at(servers, topic=name)).failures}

        wait_until(lambda: not examined(at(servers, topic="alone")).ok, DEADLINE_S, "the others notice")
        assert failures("alone").keys() == {"leaders"}
        finding = failures("alone")["leaders"].finding
        assert re.search(r"no leader for partition \d$", finding.found)
        assert "start the brokers" in finding.remedy
        finding = failures("together")["in-sync replicas"].finding
        assert "min.insync.replicas=3" in finding.found
        assert "partitions 0, 1, 2 (2 in sync)" in finding.found


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


def test_a_transaction_timeout_above_the_ceiling(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    failure = failure_found(at(
        kafka.bootstrap_servers, topic=topic(), deliveryGuarantee="exactly-once",
        **{"kafka.transaction.timeout.ms": "600000000"},
    ))  # fmt: skip
    assert failure.step == "transaction timeout"
    assert "transaction.max.timeout.ms=900000" in failure.finding.found
    assert "at most 900000" in failure.finding.remedy


def test_it_leaves_no_transaction_behind(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    name = topic()
    options = at(kafka.bootstrap_servers, topic=name, deliveryGuarantee="exactly-once", transactionalIdPrefix=name)
    assert examined(options).ok
    assert not transactions(kafka, name)
    assert groups(kafka, name) == []


def test_the_command(kafka: LocalKafka, topic: Callable[..., str], tmp_path: Path) -> None:
    preset = tmp_path / "sink.conf"
    preset.write_text(f"kafka.bootstrap.servers = {kafka.bootstrap_servers}\n")
    arguments = [sys.executable, "-m", "kafka_sink.check", "--preset", str(preset), "--topic"]
    good = subprocess.run([*arguments, topic()], capture_output=True, text=True, timeout=DEADLINE_S)
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout.splitlines()[0].split() == ["VERDICT", "STEP", "WHERE", "FOUND"]
    bad = subprocess.run([*arguments, "missing"], capture_output=True, text=True, timeout=DEADLINE_S)
    assert bad.returncode == 1
    assert re.search(r"^FAILED +topic +topic missing +there is no such topic$", bad.stdout, re.MULTILINE)


@pytest.mark.parametrize("other_python", variants(False, True))
def test_the_command_from_executors(
    here: Here, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], other_python: bool
) -> None:
    monkeypatch.setattr(SparkSession, "stop", lambda session: None)  # the tests' own
    if other_python:
        monkeypatch.setattr(here.spark.sparkContext, "pythonExec", "/nowhere/python")
    option = f"kafka.bootstrap.servers={NOWHERE}:9092,{here.servers}"
    assert check.main(["--option", option, "--topic", here.topic(), "--spark"]) == 0
    said = capsys.readouterr().out
    if other_python:
        assert re.search(r"^WARNING +executors +python +functions +", said, re.MULTILINE)
        assert "/nowhere/python" in said
        return
    host = re.escape(socket.gethostname())
    assert re.search(rf"^OK +{host} +sasl +{here.servers} ", said, re.MULTILINE)
    assert re.search(r"^OK +driver +topic ", said, re.MULTILINE)
    for seen_from, process in (("driver", "driver"), ("driver", "planner"), (host, "tasks")):
        assert re.search(rf"^[A-Z]+ +{seen_from} +python +{process} +{sys.executable}, ", said, re.MULTILINE)


@pytest.mark.long
def test_a_write_that_reaches_nobody_says_at_which_step(spark: SparkSession) -> None:
    kafka_sink.register(spark)
    frame = spark.range(1).selectExpr("cast(id as string) as value")
    with pytest.raises(PySparkException) as failure:
        frame.write.format("pykafka").mode("append").options(
            **at(f"{NOWHERE}:9092", **{"kafka.max.block.ms": "500"})
        ).save()
    message = str(failure.value)
    assert f"step 'dns' of {NOWHERE}:9092 fails" in message
    assert f"pykafka check --bootstrap-servers {NOWHERE}:9092" in message
    with pytest.raises(BrokersUnreachable) as unreachable:
        kafka_sink.partition_count(at(f"{NOWHERE}:9092", **{"kafka.max.block.ms": "500"}))
    assert (unreachable.value.step, unreachable.value.where) == ("dns", f"{NOWHERE}:9092")


def test_validate_a_batch(here: Here) -> None:
    frame = here.spark.range(1).selectExpr("cast(id as string) as value")
    report = kafka_sink.validate(frame, here.topic(), executors=True, bootstrap_servers=here.servers)
    assert report.ok, report
    assert "value string" in verdict_of(report, "columns").finding.found
    assert {verdict.seen_from for verdict in report.verdicts} == {"driver", socket.gethostname()}
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


def test_validate_takes_the_conf_of_the_session(here: Here) -> None:
    frame = here.spark.range(1).selectExpr("cast(id as string) as value")
    here.spark.conf.set("spark.pykafka.kafka.bootstrap.servers", here.servers)
    try:
        assert kafka_sink.validate(frame, here.topic(), include_headers=True).ok
    finally:
        here.spark.conf.unset("spark.pykafka.kafka.bootstrap.servers")

"""`pykafka check --read` at real brokers: what a read needs is named, and what is there is OK."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AclOperation, ResourceType

from kafka_sink.broker import LocalKafka
from kafka_sink.cli.check import main
from kafka_sink.doctor.reading import examine_read
from kafka_sink.doctor.report import Report, Status
from kafka_sink.options.config import given_options
from kafka_sink.options.reading import READING, read_config
from secure_kafka import Acl, SecureKafka


def examined(options: dict[str, str]) -> Report:
    return examine_read(read_config(given_options(options, table=READING)))


def found(report: Report, step: str) -> list[tuple[str, Status]]:
    return [(verdict.where, verdict.status) for verdict in report.verdicts if verdict.step == step]


def test_topics_that_are_there_and_one_that_is_not(kafka: LocalKafka, topic: Callable[..., str]) -> None:
    name = topic(3)
    report = examined({"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": f"{name},nope-at-all"})
    assert found(report, "reading") == [("cluster", Status.OK)]
    assert found(report, "topic") == [(f"topic {name}", Status.OK), ("topic nope-at-all", Status.FAILED)]
    assert found(report, "leaders") == [(f"topic {name}", Status.OK), ("topic nope-at-all", Status.SKIPPED)]
    (failure,) = report.failures
    assert "there is no such topic" in str(failure.finding)


def test_a_pattern(kafka: LocalKafka, topic: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    name = topic(1)
    servers = ["--bootstrap-servers", kafka.bootstrap_servers]
    assert main(["--read", *servers, "--option", f"subscribePattern={name[1:]}"]) == 0
    assert f"topic {name}" in capsys.readouterr().out
    assert main(["--read", *servers, "--option", "subscribePattern=none-of-these"]) == 1
    assert "it matches none of the topics" in capsys.readouterr().out
    # Options of a stream, and of a batch.
    for option in ("startingOffsets=latest", "endingOffsets=latest"):
        assert main(["--read", *servers, "--topic", name, "--option", option]) == 0
    # An option of writes.
    assert main(["--read", *servers, "--topic", name, "--option", "kafka.acks=1"]) == 2


def test_a_missing_acl_is_named_and_with_it_all_is_well(secure: SecureKafka) -> None:
    secure.kafka.create_topic("check-read", 1)
    options = {**secure.sasl("SCRAM-SHA-512", "bob"), "subscribe": "check-read"}
    report = examined(options)
    (failure,) = report.failures
    assert failure.step == "topic"
    assert "add the ACL TOPIC check-read READ (it implies DESCRIBE) for principal User:bob" in str(failure.finding)
    secure.allow(Acl(ResourceType.TOPIC, "check-read", AclOperation.READ))
    report = examined(options)
    assert report.ok
    assert found(report, "read acl") == [("topic check-read", Status.OK)]


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
        assert main([*read, option]) == code
        assert text in capsys.readouterr().out

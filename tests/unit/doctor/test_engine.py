"""What is asked and of whom, of scripted peers; the faults are in tests/broker/test_doctor.py."""

from __future__ import annotations

import threading

import pytest

from kafka_sink.config import SinkConfig, sink_config
from kafka_sink.doctor import engine
from kafka_sink.doctor.engine import examine, examine_hosts, first_failure, make_topic
from kafka_sink.doctor.report import Report, Status, Verdict, failed, ok
from kafka_sink.doctor.steps import HOST_STEPS, STEPS
from scripted_peers import advertises, peer

NOWHERE = "nowhere.invalid"


def config(*ports: int, **more: str) -> SinkConfig:
    servers = ",".join(f"127.0.0.1:{port}" for port in ports) or f"{NOWHERE}:9092"
    return sink_config({"kafka.bootstrap.servers": servers, **more})


def steps_of(report: Report, where: str) -> list[str]:
    return [verdict.step for verdict in report.verdicts if verdict.where == where]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_all_that_needs_a_cluster_is_skipped_without_one(guarantee: str) -> None:
    report = examine(config(topic="t", deliveryGuarantee=guarantee))
    assert [failure.step for failure in report.failures] == ["dns"]
    assert {verdict.step for verdict in report.verdicts if verdict.status is Status.OK} == {"acks"}
    assert {verdict.step for verdict in report.verdicts} <= set(STEPS)
    asked = {verdict.step for verdict in report.verdicts}
    assert ("transactional id acl" in asked, "producer id" in asked) == (
        (True, False) if guarantee == "exactly-once" else (False, True)
    )


def test_each_broker_is_looked_for_where_it_says_that_it_is() -> None:
    with peer(advertises(NOWHERE, 9092)) as port:
        report = examine_hosts(config(port).producer)
    assert steps_of(report, f"127.0.0.1:{port}") == list(HOST_STEPS)
    assert steps_of(report, f"broker 7, {NOWHERE}:9092") == list(HOST_STEPS)
    failure = first_failure(report)
    assert failure is not None
    assert (failure.step, failure.where) == ("dns", f"broker 7, {NOWHERE}:9092")


def test_a_broker_that_is_a_bootstrap_server_is_looked_at_once() -> None:
    ports: list[int] = []
    opened = threading.Event()

    def behaviour(sock: object) -> None:
        opened.wait(10)
        advertises("127.0.0.1", ports[0])(sock)  # type: ignore[arg-type]

    with peer(behaviour) as port:
        ports.append(port)
        opened.set()
        report = examine_hosts(config(port, port).producer)
    assert report.ok
    assert [verdict.step for verdict in report.verdicts] == list(HOST_STEPS)


def test_rows_that_name_their_topics() -> None:
    with peer(advertises(NOWHERE, 9092)) as port:
        report = examine(config(port))
    topic = next(verdict for verdict in report.verdicts if verdict.step == "topic")
    assert (topic.status, topic.where) == (Status.SKIPPED, "topic")
    assert "name one of them" in topic.finding.remedy


def test_the_first_failure_is_one_that_this_host_sees() -> None:
    elsewhere = Verdict("dns", "b:1", failed("f", "m"), seen_from="worker-7")
    here = Verdict("tcp", "b:1", failed("f", "m"))
    assert first_failure(Report((elsewhere, Verdict("dns", "b:1", ok("")), here))) is here
    assert first_failure(Report((elsewhere,))) is None


def test_a_topic_cannot_be_made_without_a_cluster() -> None:
    assert make_topic(config(topic="t", createTopics="true")).status is Status.SKIPPED


def test_a_cluster_that_answers_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says who the brokers are, and then what nobody asked for."""
    monkeypatch.setattr(engine, "PATIENCE_S", 0.1)
    with peer(advertises(NOWHERE, 9092)) as port:
        report = examine(config(port, topic="t", deliveryGuarantee="exactly-once"))
    found = {verdict.step: verdict.finding for verdict in report.verdicts}
    assert "no answer to Metadata" in found["topic"].found
    assert found["write acl"].found == "because of topic"
    assert found["transaction timeout"].status is Status.SKIPPED
    assert "was not reached" in found["transaction timeout"].found

"""What is asked and of whom, of scripted peers; the faults are in tests/integration/test_doctor.py."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable

import pytest

from kafka_sink.doctor import dialogue, engine
from kafka_sink.doctor.engine import examine_hosts, first_failure
from kafka_sink.doctor.report import Finding, Report, Status, Verdict, failed, ok
from kafka_sink.doctor.steps import HOST_STEPS, STEPS
from kafka_sink.doctor.writing import examine
from kafka_sink.kafka.net.resolver import resolve
from kafka_sink.kafka.net.transport import Address
from kafka_sink.kafka.protocol.apis.create_topics import CreateTopicsRequest
from kafka_sink.kafka.protocol.apis.describe_configs import TopicConfigsRequest
from kafka_sink.kafka.protocol.apis.init_producer_id import InitProducerIdRequest
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest
from kafka_sink.kafka.protocol.requests import Request
from kafka_sink.options.config import SinkConfig, sink_config
from scripted_kafka import advertises, scripted
from scripted_peers import peer, says_nothing

NOWHERE = "nowhere.invalid"


def config(*ports: int, **more: str) -> SinkConfig:
    servers = ",".join(f"127.0.0.1:{port}" for port in ports) or f"{NOWHERE}:9092"
    return sink_config({"kafka.bootstrap.servers": servers, **more})


def steps_of(report: Report, where: str) -> list[str]:
    return [verdict.step for verdict in report.verdicts if verdict.where == where]


def topic_of(examined: SinkConfig) -> Finding:
    """Return the finding about the topic. The peer may hang up after that."""
    (finding,) = (verdict.finding for verdict in examine(examined).verdicts if verdict.step == "topic")
    return finding


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
    assert "advertised.listeners" in failure.finding.remedy


def test_one_bootstrap_server_is_enough() -> None:
    with peer(advertises("127.0.0.1", 1)) as port:
        servers = {"kafka.bootstrap.servers": f"{NOWHERE}:9092,127.0.0.1:{port}"}
        report = examine_hosts(sink_config(servers).producer)
    assert [failure.where for failure in report.failures] == ["broker 7, 127.0.0.1:1"]
    statuses = [verdict.status for verdict in report.verdicts if verdict.where == f"{NOWHERE}:9092"]
    assert statuses == [Status.WARNING, *[Status.SKIPPED] * 4]


def test_a_broker_that_is_a_bootstrap_server_is_looked_at_once() -> None:
    with peer(lambda sock: advertises("127.0.0.1", sock.getsockname()[1])(sock)) as port:
        report = examine_hosts(config(port, port).producer)
    assert report.ok
    assert [verdict.step for verdict in report.verdicts] == list(HOST_STEPS)


def test_the_first_failure_is_one_that_this_host_sees() -> None:
    elsewhere = Verdict("dns", "b:1", failed("f", "m"), seen_from="worker-7")
    here = Verdict("tcp", "b:1", failed("f", "m"))
    assert first_failure(Report((elsewhere, Verdict("dns", "b:1", ok("")), here))) is here
    assert first_failure(Report((elsewhere,))) is None


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


PARTITION = {"error_code": 0, "partition_index": 0, "leader_id": 7, "replica_nodes": [7], "isr_nodes": [7]}
THERE = {"error_code": 0, "name": "t", "partitions": [PARTITION], "topic_authorized_operations": 1 << 3 | 1 << 4}
MISSING = {"error_code": 3, "name": "t", "partitions": []}
PRODUCER_ID = InitProducerIdRequest(1)
CREATE = CreateTopicsRequest("t", 1, 1)


def said(*topics: dict[str, object]) -> tuple[Request, dict[str, object]]:
    brokers = [{"node_id": 7, "host": NOWHERE, "port": 9092}]
    return MetadataRequest(("t",), False), {"brokers": brokers, "topics": list(topics)}


def test_a_broker_that_has_to_fetch_producer_ids_is_asked_again() -> None:
    answers = [said(), said(THERE), *((PRODUCER_ID, {"error_code": code}) for code in (14, 0))]
    denied = {"error_code": 29, "resource_name": "t", "configs": []}
    answers.append((TopicConfigsRequest(("t",), ()), {"results": [denied]}))
    with peer(scripted(answers)) as port:
        report = examine(config(port, topic="t"))
    found = {verdict.step: verdict.finding for verdict in report.verdicts}
    assert found["producer id"].status is Status.OK
    assert (found["settings"].status, found["in-sync replicas"].found) == (Status.SKIPPED, "because of settings")


def made(code: int, **more: object) -> tuple[Request, dict[str, object]]:
    return CREATE, {"topics": [{"name": "t", "error_code": code, **more}]}


def test_a_topic_that_takes_a_moment_to_be_there() -> None:
    with peer(scripted([said(), said(MISSING), made(0), said(MISSING), said(THERE)])) as port:
        finding = topic_of(config(port, topic="t", createTopics="true"))
    assert (finding.status, "created" in finding.found) == (Status.OK, True)


def test_a_topic_that_is_refused_is_not_waited_for() -> None:
    with peer(scripted([said(), said(MISSING), made(29, error_message="no")])) as port:
        finding = topic_of(config(port, topic="t", createTopics="true"))
    assert (finding.status, "TOPIC t CREATE" in finding.remedy) == (Status.FAILED, True)
    with peer(scripted([said(), said(MISSING)])) as port:
        assert "there is no such topic" in topic_of(config(port, topic="t")).found
    assert topic_of(config(topic="t", createTopics="true")).status is Status.SKIPPED


def test_a_busy_controller_is_asked_again() -> None:
    def behaviour(sock: socket.socket) -> None:
        brokers = [{"node_id": 7, "host": "127.0.0.1", "port": sock.getsockname()[1]}]
        told = [(MetadataRequest(("t",), False), {"brokers": brokers, "topics": each}) for each in ([], [MISSING])]
        scripted([*told, made(41), made(0), said(THERE)])(sock)

    with peer(behaviour) as port:
        finding = topic_of(config(port, topic="t", createTopics="true"))
    assert (finding.status, "created" in finding.found) == (Status.OK, True)


@pytest.mark.parametrize(
    ("then", "words"), [(socket.socket.close, ": the peer closed the connection"), (says_nothing, "")]
)
def test_a_broker_that_does_not_answer_create_topics_fails_the_check_in_time(
    monkeypatch: pytest.MonkeyPatch, then: Callable[[socket.socket], None], words: str
) -> None:
    monkeypatch.setattr(dialogue, "STEP_TIMEOUT_S", 0.5)
    begun = time.monotonic()
    with peer(scripted([said(), said(MISSING)], then)) as port:
        finding = topic_of(config(port, topic="t", createTopics="true"))
    assert time.monotonic() - begun < 60
    assert (finding.status, f"no answer to CreateTopics{words}" in finding.found) == (Status.FAILED, True)


def test_topics_that_brokers_may_make_are_no_failure() -> None:
    """The one broker is not reached, and does not tell whether it makes them."""
    letters = {"badRows": "deadLetter", "deadLetterTopic": "u"}
    with peer(scripted([said(), said(MISSING), said({**MISSING, "name": "u"})])) as port:
        report = examine(config(port, topic="t", **letters))
    found = {verdict.step: verdict.finding for verdict in report.verdicts}
    assert {found[step].status for step in ("topic", "dead letter topic")} == {Status.WARNING}
    assert found["write acl"].found == "because of topic, which does not exist yet"
    assert {verdict.step for verdict in report.failures} == {"dns"}


def test_a_cluster_that_names_brokers_without_end_is_looked_at_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "HOSTS_TIMEOUT_S", 0.5)

    def look_up(host: str, port: int, *, timeout_s: float) -> list[Address]:
        if host == "127.0.0.1":
            return resolve(host, port)
        threading.Event().wait(0.2)
        raise OSError(f"no {host}")

    monkeypatch.setattr(dialogue, "resolve", look_up)
    begun = time.monotonic()
    named = [{"node_id": number, "host": f"b-{number}", "port": 9092} for number in range(2_000)]
    with peer(scripted([(MetadataRequest((), False), {"brokers": named, "topics": []})])) as port:
        report = examine_hosts(config(port).producer)
    assert time.monotonic() - begun < 60
    last = report.verdicts[-1]
    assert last.status is Status.SKIPPED
    assert re.fullmatch(r"1?[0-9]{3} more brokers", last.where)
    assert "not checked" in last.finding.found

"""What is asked and of whom, of scripted peers, and the report; the faults are in tests/integration/test_doctor.py."""

import errno
import pickle
import re
import socket
import threading
import time
from copy import copy

import pytest

import apis
from kafka_sink.doctor import dialogue, engine
from kafka_sink.doctor.engine import examine_hosts, first_failure
from kafka_sink.doctor.examinations import examine, examine_read, look_at_hosts
from kafka_sink.doctor.report import (
    HOST_STEPS,
    STEPS,
    Finding,
    Report,
    Status,
    Verdict,
    because_of,
    failed,
    from_json,
    ok,
    skipped,
    to_json,
    warning,
)
from kafka_sink.errors import BrokersUnreachable, TopicNotFound
from kafka_sink.kafka.net.resolver import resolve
from kafka_sink.kafka.net.transport import Address
from kafka_sink.kafka.protocol.api import Request
from kafka_sink.options.config import SinkConfig, given_options, sink_config
from kafka_sink.options.reading import READING, ReadConfig, read_config
from scripted_peers import Behaviour, advertises, peer, says_nothing, scripted

NOWHERE = "nowhere.invalid"
PARTITION = {"error_code": 0, "partition_index": 0, "leader_id": 7, "replica_nodes": [7], "isr_nodes": [7]}
THERE = {"error_code": 0, "name": "t", "partitions": [PARTITION], "topic_authorized_operations": 1 << 3 | 1 << 4}
MISSING = {"error_code": 3, "name": "t", "partitions": []}
PRODUCER_ID = apis.InitProducerIdRequest(1)
CREATE = apis.CreateTopicsRequest("t", 1, 1)
UNREACHABLE = BrokersUnreachable(bootstrap_servers="b:9092", waited_ms=5, last_error="b:9092: Connection refused")
WELL = Verdict("dns", "kafka-1:9092", ok("10.0.0.1"))
WARNED = Verdict("replication", "topic t", warning("replication factor 1", "raise it"))
BROKEN = Verdict("tcp", "kafka-1:9092", failed("refused", "check the <port>"))
PASSED_OVER = Verdict("tls", "kafka-1:9092", skipped("because of tcp"))


def config(*ports: int, **more: str) -> SinkConfig:
    servers = ",".join(f"127.0.0.1:{port}" for port in ports) or f"{NOWHERE}:9092"
    return sink_config({"kafka.bootstrap.servers": servers, **more})


def findings(report: Report) -> dict[str, Finding]:
    return {verdict.step: verdict.finding for verdict in report.verdicts}


def topic_told(
    *answers: tuple[Request, dict[str, object]], creates: bool = True, then: Behaviour = socket.socket.close
) -> Finding:
    """What is found of topic t, of a peer that answers so; after that it may hang up."""
    with peer(scripted([said(), *answers], then)) as port:
        return findings(examine(config(port, topic="t", createTopics=str(creates).lower())))["topic"]


def steps_of(report: Report, where: str) -> list[str]:
    return [verdict.step for verdict in report.verdicts if verdict.where == where]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_all_that_needs_a_cluster_is_skipped_without_one(guarantee: str) -> None:
    report = examine(config(topic="t", deliveryGuarantee=guarantee))
    assert [failure.step for failure in report.failures] == ["dns"]
    assert [step for step, finding in findings(report).items() if finding.status is Status.OK] == ["acks"]
    assert findings(report).keys() <= STEPS.keys()
    asked = {"transactional id acl", "producer id"} & findings(report).keys()
    assert asked == {"transactional id acl" if guarantee == "exactly-once" else "producer id"}


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
        found = findings(examine(config(port, topic="t", deliveryGuarantee="exactly-once")))
    assert "no answer to Metadata" in found["topic"].found
    assert found["write acl"].found == "because of topic"
    assert found["transaction timeout"].status is Status.SKIPPED
    assert "was not reached" in found["transaction timeout"].found


def said(*topics: dict[str, object]) -> tuple[Request, dict[str, object]]:
    brokers = [{"node_id": 7, "host": NOWHERE, "port": 9092}]
    return apis.MetadataRequest(("t",), False), {"brokers": brokers, "topics": list(topics)}


def test_a_broker_that_has_to_fetch_producer_ids_is_asked_again() -> None:
    answers = [said(), said(THERE), *((PRODUCER_ID, {"error_code": code}) for code in (14, 0))]
    denied = {"error_code": 29, "resource_name": "t", "configs": []}
    answers.append((apis.TopicConfigsRequest(("t",), ()), {"results": [denied]}))
    with peer(scripted(answers)) as port:
        found = findings(examine(config(port, topic="t")))
    assert found["producer id"].status is Status.OK
    assert (found["settings"].status, found["in-sync replicas"].found) == (Status.SKIPPED, "because of settings")


def made(code: int, **more: object) -> tuple[Request, dict[str, object]]:
    return CREATE, {"topics": [{"name": "t", "error_code": code, **more}]}


def test_a_topic_that_takes_a_moment_to_be_there() -> None:
    finding = topic_told(said(MISSING), made(0), said(MISSING), said(THERE))
    assert (finding.status, "created" in finding.found) == (Status.OK, True)


def test_a_topic_that_is_refused_is_not_waited_for() -> None:
    finding = topic_told(said(MISSING), made(29, error_message="no"))
    assert (finding.status, "TOPIC t CREATE" in finding.remedy) == (Status.FAILED, True)
    assert "there is no such topic" in topic_told(said(MISSING), creates=False).found
    assert findings(examine(config(topic="t", createTopics="true")))["topic"].status is Status.SKIPPED


def test_a_busy_controller_is_asked_again() -> None:
    def behaviour(sock: socket.socket) -> None:
        brokers = [{"node_id": 7, "host": "127.0.0.1", "port": sock.getsockname()[1]}]
        told = [(apis.MetadataRequest(("t",), False), {"brokers": brokers, "topics": each}) for each in ([], [MISSING])]
        scripted([*told, made(41), made(0), said(THERE)])(sock)

    with peer(behaviour) as port:
        finding = findings(examine(config(port, topic="t", createTopics="true")))["topic"]
    assert (finding.status, "created" in finding.found) == (Status.OK, True)


@pytest.mark.parametrize(("then", "words"), [
    (socket.socket.close, ": the peer closed the connection"), (says_nothing, ""),
])  # fmt: skip
def test_a_broker_that_does_not_answer_create_topics_fails_the_check_in_time(
    monkeypatch: pytest.MonkeyPatch, then: Behaviour, words: str
) -> None:
    monkeypatch.setattr(dialogue, "STEP_TIMEOUT_S", 0.5)
    begun = time.monotonic()
    finding = topic_told(said(MISSING), then=then)
    assert time.monotonic() - begun < 60
    assert (finding.status, f"no answer to CreateTopics{words}" in finding.found) == (Status.FAILED, True)


def test_topics_that_brokers_may_make_are_no_failure() -> None:
    """The one broker is not reached, and does not tell whether it makes them."""
    letters = {"badRows": "deadLetter", "deadLetterTopic": "u"}
    with peer(scripted([said(), said(MISSING), said({**MISSING, "name": "u"})])) as port:
        report = examine(config(port, topic="t", **letters))
    found = findings(report)
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
    with peer(scripted([(apis.MetadataRequest((), False), {"brokers": named, "topics": []})])) as port:
        report = examine_hosts(config(port).producer)
    assert time.monotonic() - begun < 60
    last = report.verdicts[-1]
    assert last.status is Status.SKIPPED
    assert re.fullmatch(r"1?[0-9]{3} more brokers", last.where)
    assert "not checked" in last.finding.found


def of_a_read(**options: str) -> ReadConfig:
    return read_config(given_options({"kafka.bootstrap.servers": "nowhere.invalid:9092", **options}, table=READING))


@pytest.mark.parametrize("options", [
    {"subscribe": "a,b"}, {"assign": '{"a": [0], "b": [1]}'}, {"subscribePattern": "a|b"},
], ids=str)  # fmt: skip
def test_a_read_skips_what_needs_a_cluster_without_one(options: dict[str, str]) -> None:
    report = examine_read(of_a_read(**options, groupId="lag"))
    assert [failure.step for failure in report.failures] == ["dns"]
    assert findings(report).keys() <= STEPS.keys()
    rest = [(verdict.step, verdict.where) for verdict in report.verdicts if verdict.status is Status.SKIPPED]
    topics = [(step, f"topic {name}") for name in "ab" for step in ("topic", "read acl", "leaders")]
    of_hosts = [(step, "nowhere.invalid:9092") for step in ("tcp", "tls", "api versions", "sasl")]
    assert [each for each in rest if each not in of_hosts] == [
        ("cluster", "cluster"), ("service", "cluster"), ("reading", "cluster"),
        *([("topic", "subscribePattern")] if "subscribePattern" in options else topics), ("group acl", "group lag"),
    ]  # fmt: skip
    assert "group acl" not in findings(examine_read(of_a_read(**options)))


def of_a_write() -> SinkConfig:
    return sink_config({"kafka.bootstrap.servers": "b:9092", "topic": "t"})


def test_the_first_failure_is_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Report((Verdict("dns", "b:9092", ok("")), Verdict("tcp", "b:9092", failed("nothing listens", "check it"))))
    monkeypatch.setattr(engine, "examine_hosts", lambda of_a_write: found)
    error = copy(UNREACHABLE)
    look_at_hosts(error, of_a_write().producer)
    assert (error.step, error.where, error.remedy) == ("tcp", "b:9092", "check it")
    happened, data, advice = error.parts()
    assert happened.endswith("step 'tcp' of b:9092 fails: nothing listens.")
    assert advice.startswith("To fix it: check it. All steps, ")
    assert "`pykafka check --bootstrap-servers b:9092`." in advice
    assert advice.endswith("To outlast a longer outage, raise kafka.max.block.ms.")
    assert "Check kafka.bootstrap.servers, and" not in str(error)
    assert data == UNREACHABLE.parts().data


@pytest.mark.parametrize("lack", [
    None, RuntimeError("can't start new thread"), OSError(errno.EMFILE, "files"), MemoryError(),
])  # fmt: skip
def test_an_error_stays_if_brokers_are_back_or_not_seen(
    monkeypatch: pytest.MonkeyPatch, lack: Exception | None
) -> None:
    def examine(of_a_write: object) -> Report:
        if lack is not None:
            raise lack
        return Report((Verdict("dns", "b:9092", ok("")),))

    monkeypatch.setattr(engine, "examine_hosts", examine)
    error = copy(UNREACHABLE)
    look_at_hosts(error, of_a_write().producer)
    assert str(error) == str(UNREACHABLE)
    # Others are not looked at.
    monkeypatch.delattr(engine, "examine_hosts")
    look_at_hosts(TopicNotFound(topic="t", waited_ms=1), of_a_write().producer)


def test_every_need_is_a_step_before_it() -> None:
    before: set[str] = set()
    for step, needs in STEPS.items():
        assert set(needs) <= before
        before.add(step)
    assert before >= set(HOST_STEPS)


@pytest.mark.parametrize("status", Status)
@pytest.mark.parametrize("step", ["topic", "write acl", "in-sync replicas", "producer id", "group acl"])
def test_all_that_follows_names_the_first_cause(step: str, status: Status) -> None:
    cause = Verdict("cluster", "c", Finding(status, ""))
    verdicts = [cause, Verdict("acks", "t", failed("", ""))]
    if status in (Status.FAILED, Status.SKIPPED):
        verdicts.insert(1, Verdict("topic", "t", skipped("because of cluster")))
        assert because_of(step, verdicts) is cause
    else:
        assert because_of(step, verdicts) is None
    # A partition without a leader is one failure: nothing is in sync then, which says nothing new.
    cause = Verdict("leaders", "t", failed("", "r"))
    assert because_of("in-sync replicas", [Verdict("settings", "t", ok("")), cause]) is cause


def test_the_table_and_the_document() -> None:
    assert repr(Report((WELL, BROKEN, PASSED_OVER, WARNED))) == (
        "VERDICT  STEP         WHERE         FOUND\n"
        "OK       dns          kafka-1:9092  10.0.0.1\n"
        "FAILED   tcp          kafka-1:9092  refused\n"
        "                                    to fix it: check the <port>\n"
        "SKIPPED  tls          kafka-1:9092  because of tcp\n"
        "WARNING  replication  topic t       replication factor 1\n"
        "                                    to fix it: raise it\n"
        "\n"
        "1 OK, 1 WARNING, 1 FAILED, 1 SKIPPED"
    )
    assert repr(Report(())).splitlines()[0].split() == ["VERDICT", "STEP", "WHERE", "FOUND"]
    html = Report((WELL, BROKEN))._repr_html_()
    assert html.count("<tr>") == 3 and "<td>check the &lt;port&gt;</td>" in html and "1 OK, 1 FAILED" in html
    document = Report((WELL, BROKEN)).document()
    assert (document["ok"], document["counts"]) == (False, {"OK": 1, "WARNING": 0, "FAILED": 1, "SKIPPED": 0})
    assert document["verdicts"][1] == {
        "status": "FAILED", "step": "tcp", "where": "kafka-1:9092", "seen_from": "driver", "found": "refused",
        "remedy": "check the <port>",
    }  # fmt: skip


def test_what_executors_saw_comes_back_as_it_was_with_whence() -> None:
    every = (WELL, WARNED, BROKEN, PASSED_OVER)
    back = from_json(to_json(every), seen_from="driver")
    assert back == pickle.loads(pickle.dumps(back)) == every
    assert all(isinstance(verdict.status, Status) and isinstance(verdict.finding, Finding) for verdict in back)
    assert "FROM" not in repr(Report((WELL,)))
    from_there = from_json(to_json([BROKEN]), seen_from="worker-7")
    lines = repr(Report((WELL,)) + Report(from_there)).splitlines()
    assert lines[0].split() == ["VERDICT", "FROM", "STEP", "WHERE", "FOUND"]
    assert [line.split()[:3] for line in lines[1:3]] == [["OK", "driver", "dns"], ["FAILED", "worker-7", "tcp"]]

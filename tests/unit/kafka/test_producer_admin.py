"""The admin client of a producer: one network and one thread for rows and for all other requests."""

import threading
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest

import apis
from kafka_sink import errors
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.client import Producer
from kafka_sink.kafka.producer import sender
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.kafka.write import Write
from kafka_sink.spark import kept_clients
from kafka_sink.spark.kept_clients import lease_producer
from producer_core import Live, config, in_background, let_wait, rows
from waiting import wait_until


def commit(key: str) -> tuple[apis.CoordinatorKind, str, apis.EndTxnRequest]:
    return apis.CoordinatorKind.TRANSACTION, key, apis.EndTxnRequest(key, 7, 0, committed=True, transaction_version=2)


@pytest.fixture(autouse=True)
def closes_kept() -> Iterator[None]:
    yield
    kept_clients.KEPT.close()


def test_coordinators_are_asked_and_found_once_for_all_tasks(network: Live) -> None:
    for _ in range(2):
        with lease_producer(config(1)) as producer:
            (answer,) = producer.admin.ask_all([commit("s.0")])
            assert answer.error_code == ErrorCode.NONE  # type: ignore[union-attr]
            assert producer.admin.partitions(("t",)) == ((("t", 0),), ())
    asked = [
        len(network.kafka.asked(each))
        for each in (apis.FindCoordinatorRequest, apis.EndTxnRequest, apis.InitProducerIdRequest)
    ]
    assert asked == [1, 2, 0], "without rows none asks for a producer id"


@pytest.mark.parametrize("ask", [
    lambda admin: admin.topic_settings(["t"], ("retention.ms",)),
    lambda admin: admin.ask_leaders([TopicPartition("t", 0)], apis.DescribeProducersRequest),
], ids=["settings", "leaders"])  # fmt: skip
def test_requests_count_for_what_a_broker_may_have_unanswered(
    network: Live, ask: Callable[[AdminClient], object]
) -> None:
    network.kafka.leaders = {("t", 0): 0}
    producer = network.producer(linger_ms=0)
    # The answer about the topic is good for a second.
    producer.admin.topics(("t",))
    network.max_in_flight = 1
    network.hold()
    write = Write(producer, topic="t")
    write.append(rows(1))
    assert network.arrived.wait(30)
    asked = len(network.kafka.received)
    thread, outcome = in_background(lambda: ask(producer.admin))
    network.wakeup()
    thread.join(0.05)
    assert (outcome, len(network.kafka.received)) == ([], asked)
    network.release()
    thread.join(30)
    assert len(outcome) == 1 and outcome[0] and not isinstance(outcome[0], Exception)
    write.finish()


@pytest.fixture
def waiting(network: Live) -> tuple[Producer, threading.Thread, list[object]]:
    """A producer, and a thread that waits for an answer over its connections."""
    network.kafka.held = {apis.EndTxnRequest}
    producer = network.producer(linger_ms=0)
    thread, outcome = in_background(lambda: producer.admin.ask_all([commit("s.0")]))
    wait_until(lambda: network.kafka.asked(apis.EndTxnRequest), 30, "a request without an answer")
    return producer, thread, outcome


@pytest.mark.parametrize(("how", "error"), [
    ("no retry helps", errors.AuthenticationFailed), ("rows are refused", errors.ProduceRejected),
    ("closed", errors.ProducerClosed), ("a bug", errors.ProducerClosed),
])  # fmt: skip
def test_the_producers_end_ends_the_wait(
    waiting: Any, network: Live, monkeypatch: pytest.MonkeyPatch, how: str, error: type[Exception]
) -> None:
    producer, thread, outcome = waiting
    match how:
        case "no retry helps":
            network.failure = errors.AuthenticationFailed(broker="b", mechanism="PLAIN", user="alice", reason="no")
        case "rows are refused":
            network.kafka.always(apis.ProduceRequest, 87)
            Write(producer, topic="t").append(rows(1))
        case "closed":
            producer.close()
        case "a bug":
            monkeypatch.setattr(threading, "excepthook", lambda _: None)
            monkeypatch.setattr(sender.Sender, "run_once", Mock(side_effect=ZeroDivisionError("a bug")))
    network.wakeup()
    thread.join(30)
    assert [type(each) for each in outcome] == [error]
    assert how != "a bug" or how in str(outcome[0])
    wait_until(lambda: not producer.usable, 30, "the end of the producer")
    with pytest.raises(error):
        producer.admin.ask_all([commit("s.1")])
    with pytest.raises(error):
        producer.admin.ask_leaders([("t", 0)], lambda partitions: pytest.fail("asked"))


def test_a_producer_whose_question_failed_is_not_used_again(network: Live) -> None:
    network.kafka.leaders = {("t", 0): -1}
    asking = lease_producer(config(1))
    # The second on a machine that is too busy to ask for the leader again in time.
    with pytest.raises((errors.LeaderUnavailable, errors.BrokersUnreachable)), asking as first:
        first.admin.topics(("t",))
        let_wait(first, 300)
        first.admin.ask_leaders([("t", 0)], lambda partitions: pytest.fail("asked"))  # type: ignore[call-overload]
    with lease_producer(config(1)) as second:
        assert second is not first

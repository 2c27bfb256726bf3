from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from kafka_sink.commit import runner
from kafka_sink.commit.effects import BrokerSetting, Pause, Steps, ToCoordinator, ToEveryBroker, ToLeaders
from kafka_sink.errors import CoordinatorUnavailable
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.protocol.api import PartitionResult
from kafka_sink.kafka.protocol.apis.describe_producers import DescribeProducersRequest, DescribeProducersResponse
from kafka_sink.kafka.protocol.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionDescription,
)
from kafka_sink.kafka.protocol.apis.find_coordinator import CoordinatorKind, FindCoordinatorRequest
from kafka_sink.kafka.protocol.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kafka_sink.kafka.protocol.apis.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.config import sink_config
from scripted_kafka import ScriptedKafka, ScriptedNetwork, connect_clients

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def described(request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    names = request.transactional_ids
    return DescribeTransactionsResponse(
        0, tuple(TransactionDescription(name, 0, "Empty", 60_000, -1, 7, 0, ()) for name in names)
    )


@pytest.fixture
def kafka() -> ScriptedKafka:
    made = ScriptedKafka(brokers=[2, 5])
    made.leaders = {("t", 0): 2, ("t", 1): 5, ("t", 2): 2, ("t", 3): 5}
    made.settings = {(2, "s"): "value of s"}
    made.always(DescribeTransactionsRequest, described)
    return made


@pytest.fixture
def client(kafka: ScriptedKafka, monkeypatch: pytest.MonkeyPatch) -> Iterator[AdminClient]:
    connect_clients(ScriptedNetwork(kafka), monkeypatch)
    with closing(AdminClient(sink_config({"kafka.bootstrap.servers": "b:9092"}).producer)) as made:
        yield made


def to(key: str) -> ToCoordinator:
    return ToCoordinator(CoordinatorKind.TRANSACTION, key, DescribeTransactionsRequest((key,)))


def test_answers_are_in_the_order_of_effects_and_coordinators_are_asked_together(
    kafka: ScriptedKafka, client: AdminClient
) -> None:
    leaders = ToLeaders(DescribeProducersRequest(partitions=(("t", 0), ("t", 3))))
    markers = ToLeaders(WriteTxnMarkersRequest(7, 2, True, 5, (("t", 0), ("t", 3))))
    kafka.always(WriteTxnMarkersRequest, DENIED)

    def steps() -> Steps[list[Any]]:
        first = yield [to("a"), ToEveryBroker(ListTransactionsRequest()), to("b"), leaders]
        assert kafka.asked(WriteTxnMarkersRequest) == []
        second = yield [to("c"), Pause(4), BrokerSetting("s"), markers]
        return [*first, *second]

    a, brokers, b, of_leaders, c, paused, setting, written = runner.run(client, steps())
    assert setting == "value of s"
    assert written == WriteTxnMarkersResponse((PartitionResult("t", 0, DENIED), PartitionResult("t", 3, DENIED)))
    assert [each.transactions[0].transactional_id for each in (a, b, c)] == ["a", "b", "c"]
    assert brokers == [ListTransactionsResponse(0, 0, ())] * 2
    assert isinstance(of_leaders, DescribeProducersResponse)
    assert [(each.topic, each.partition) for each in of_leaders.partitions] == [("t", 0), ("t", 3)]
    assert paused is None
    assert kafka.now_ms == 4
    assert kafka.asked(WriteTxnMarkersRequest) == [
        (2, WriteTxnMarkersRequest(7, 2, True, 5, (("t", 0),))), (5, WriteTxnMarkersRequest(7, 2, True, 5, (("t", 3),)))
    ]  # fmt: skip
    assert [request.keys for _, request in kafka.asked(FindCoordinatorRequest)] == [("a", "b"), ("c",)]
    # The coordinators are at work while the brokers are asked.
    apis = [type(request) for _, request in kafka.received]
    assert apis.index(DescribeTransactionsRequest) <= apis.index(ListTransactionsRequest)


def test_brokers_without_write_txn_markers_are_not_asked_to_write_one(
    kafka: ScriptedKafka, client: AdminClient
) -> None:
    kafka.lacking = ("WriteTxnMarkers",)

    def steps() -> Steps[Any]:
        return (yield [ToLeaders(WriteTxnMarkersRequest(7, 2, True, 5, (TopicPartition("t", 0),)))])

    lacking = PartitionResult("t", 0, ErrorCode.UNSUPPORTED_VERSION)
    assert runner.run(client, steps()) == [WriteTxnMarkersResponse((lacking,))]
    assert kafka.asked(WriteTxnMarkersRequest) == []


def test_what_steps_raise_and_what_clients_raise_comes_out_and_ends_the_steps(
    kafka: ScriptedKafka, client: AdminClient
) -> None:
    ended = []

    def steps(fail: bool) -> Steps[None]:
        try:
            yield [to("a")]
            if fail:
                raise ValueError("of the steps")
        finally:
            ended.append(fail)

    with pytest.raises(ValueError, match="of the steps"):
        runner.run(client, steps(True))
    kafka.down = kafka.brokers
    with pytest.raises(CoordinatorUnavailable):
        runner.run(client, steps(False))
    assert ended == [True, False]

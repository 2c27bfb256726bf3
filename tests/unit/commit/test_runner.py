from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kafka_sink.commit import runner
from kafka_sink.commit.effects import BrokerSetting, Pause, Steps, ToCoordinator, ToEveryBroker, ToLeaders
from kafka_sink.protocol.transactions import (
    CoordinatorKind,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
    PartitionResult,
    ProducersOfPartition,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


class Client:
    """Answers everything with what it was asked, and remembers what was asked together."""

    def __init__(self) -> None:
        self.together: list[list[str]] = []
        self.awaited: list[list[str]] = []

    def begin_all(self, requests: Sequence[tuple[CoordinatorKind, str, Any]]) -> list[str]:
        self.together.append([key for _, key, _ in requests])
        return [key for _, key, _ in requests]

    def await_all(self, begun: list[str]) -> list[Any]:
        self.awaited.append(begun)
        return [f"answer of {key}" for key in begun]

    def ask_brokers(self, request: Any) -> dict[int, Any]:
        assert len(self.together) > len(self.awaited), "the coordinators are at work meanwhile"
        assert request == ListTransactionsRequest()
        return {2: "of 2", 5: "of 5"}

    def ask_leaders(
        self, partitions: Sequence[tuple[str, int]], request_of: Callable[..., Any]
    ) -> dict[tuple[str, int], Any]:
        if isinstance(request_of((("t", 0),)), WriteTxnMarkersRequest):
            assert request_of((("t", 0),)) == WriteTxnMarkersRequest(7, 2, True, 5, (("t", 0),))
            return {(topic, number): PartitionResult(topic, number, 31) for topic, number in partitions}
        assert request_of((("t", 0),)) == DescribeProducersRequest(partitions=(("t", 0),))
        return {(topic, number): ProducersOfPartition(topic, number, 0, None, ()) for topic, number in partitions}

    def broker_setting(self, name: str) -> str:
        return f"value of {name}"


def to(key: str) -> ToCoordinator:
    return ToCoordinator(CoordinatorKind.TRANSACTION, key, DescribeTransactionsRequest((key,)))


def test_answers_come_in_the_order_of_their_effects_and_those_of_coordinators_are_asked_together() -> None:
    client = Client()
    leaders = ToLeaders(DescribeProducersRequest(partitions=(("t", 0), ("t", 3))))
    markers = ToLeaders(WriteTxnMarkersRequest(7, 2, True, 5, (("t", 0), ("t", 3))))

    def steps() -> Steps[list[Any]]:
        first = yield [to("a"), ToEveryBroker(ListTransactionsRequest()), to("b"), leaders]
        second = yield [to("c"), Pause(0), BrokerSetting("s"), markers]
        return [*first, *second]

    a, brokers, b, of_leaders, c, paused, setting, written = runner.run(client, steps())  # type: ignore[arg-type]
    assert setting == "value of s"
    assert written == WriteTxnMarkersResponse((PartitionResult("t", 0, 31), PartitionResult("t", 3, 31)))
    assert (a, b, c) == ("answer of a", "answer of b", "answer of c")
    assert brokers == ["of 2", "of 5"]
    assert isinstance(of_leaders, DescribeProducersResponse)
    assert [(each.topic, each.partition) for each in of_leaders.partitions] == [("t", 0), ("t", 3)]
    assert paused is None
    assert client.together == [["a", "b"], ["c"]]


def test_what_steps_raise_and_what_clients_raise_comes_out_and_ends_the_steps() -> None:
    ended = []

    def steps(fail: bool) -> Steps[None]:
        try:
            yield [to("a")]
            if fail:
                raise ValueError("of the steps")
        finally:
            ended.append(fail)

    with pytest.raises(ValueError, match="of the steps"):
        runner.run(Client(), steps(True))  # type: ignore[arg-type]

    class Broken(Client):
        def await_all(self, begun: list[str]) -> list[Any]:
            raise ConnectionError("of the client")

    with pytest.raises(ConnectionError, match="of the client"):
        runner.run(Broken(), steps(False))  # type: ignore[arg-type]
    assert ended == [True, False]

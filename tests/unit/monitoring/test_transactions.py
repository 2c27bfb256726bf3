"""Who hears about open transactions, and what happens while the cluster does not answer. Brokers: tests/integration."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from threading import Event

import pytest

from kafka_sink.errors import ConfigError
from kafka_sink.kafka.protocol.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionDescription,
)
from kafka_sink.kafka.protocol.apis.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.monitoring import transactions
from kafka_sink.monitoring.bounded import MOST_NAMED, OTHER
from kafka_sink.monitoring.transactions import OpenOfSink, OpenTransactions, TransactionWatch
from scripted_kafka import ScriptedKafka, ScriptedNetwork, connect_clients

OPTIONS = {"kafka.bootstrap.servers": "localhost:9092"}


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> ScriptedKafka:
    made = ScriptedKafka(brokers=[1])
    connect_clients(ScriptedNetwork(made), monkeypatch)
    monkeypatch.setattr(transactions, "wall_clock_ms", lambda: 10_000)
    return made


def has_open(kafka: ScriptedKafka, *looks: Mapping[str, int] | int) -> None:
    """What is open at each look, by transactional id with the time of its begin; the last again and again. Of one that
    is an error code, nothing is answered but that."""
    began_ms: dict[str, int] = {}

    def listed(look: Mapping[str, int]) -> Callable[[ListTransactionsRequest], ListTransactionsResponse]:
        def answer(request: ListTransactionsRequest) -> ListTransactionsResponse:
            began_ms.update(look)
            return ListTransactionsResponse(0, 0, tuple(ListedTransaction(name, 7, "Ongoing") for name in look))

        return answer

    def described(request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
        names = request.transactional_ids
        return DescribeTransactionsResponse(
            0, tuple(TransactionDescription(name, 0, "Ongoing", 60_000, began_ms[name], 7, 0, ()) for name in names)
        )

    answers = [look if isinstance(look, int) else listed(look) for look in looks]
    kafka.script(ListTransactionsRequest, *answers[:-1])
    kafka.always(ListTransactionsRequest, answers[-1])
    kafka.always(DescribeTransactionsRequest, described)


def prefixes(kafka: ScriptedKafka) -> list[str]:
    return [request.transactional_id_prefix for _, request in kafka.asked(ListTransactionsRequest)]


class Told:
    def __init__(self, until: int, *, raises: bool = False) -> None:
        self.found: list[OpenTransactions] = []
        self.enough, self._until, self._raises = Event(), until, raises

    def open_transactions(self, found: OpenTransactions) -> None:
        self.found.append(found)
        if len(self.found) == self._until:
            self.enough.set()
        if self._raises:
            raise ConnectionRefusedError("nobody there")


def test_transactions_are_counted_by_sink_with_the_oldest_and_most_are_named(kafka: ScriptedKafka) -> None:
    has_open(kafka, {"a.0": 9_000, "a.1": 4_000, "a.driver": 9_500, "b.0": 12_000, "another program's": 0})
    found = TransactionWatch(OPTIONS).look()
    assert found == OpenTransactions("pykafka", {"a": OpenOfSink(3, 6.0), "b": OpenOfSink(1, 0.0)}, 10.0)
    assert prefixes(kafka) == ["pykafka"]
    has_open(kafka, {f"s{number:03}.0": 1_000 * (number % 10) for number in range(MOST_NAMED + 20)})
    found = TransactionWatch(OPTIONS).look().by_sink
    assert len(found) == MOST_NAMED + 1
    assert found[OTHER] == OpenOfSink(20, 10.0)


def test_a_name_that_brokers_say_is_told_in_one_line(kafka: ScriptedKafka) -> None:
    has_open(kafka, {f"pykafka-\x1b[2J\r\nERROR{'x' * 20_000}.0": 2_000})
    (sink,) = TransactionWatch(OPTIONS).look().by_sink
    assert sink.startswith(r"pykafka-\x1b[2J\r\nERRORx") and len(sink) == 1_000


def test_sinks_are_those_of_the_writes_own_prefix(kafka: ScriptedKafka) -> None:
    has_open(kafka, {})
    assert TransactionWatch({**OPTIONS, "transactionalIdPrefix": "orders"}).look().prefix == "orders"
    assert prefixes(kafka) == ["orders"]
    with pytest.raises(ConfigError):
        TransactionWatch({"kafka.bootstrap.server": "localhost:9092"})


def test_it_asks_until_it_is_stopped_and_one_that_is_away_keeps_nobody(
    kafka: ScriptedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    has_open(kafka, {"a.0": 9_000}, {})
    away, told = Told(2, raises=True), Told(2)
    with TransactionWatch(OPTIONS, away, told, every_s=0.001):
        assert told.enough.wait(60)
        assert [each.name for each in threading.enumerate()].count("pykafka-transaction-watch") == 1
    assert "pykafka-transaction-watch" not in [each.name for each in threading.enumerate()]
    assert [each.by_sink for each in told.found[:2]] == [{"a": OpenOfSink(1, 1.0)}, {}]
    assert "Told was not notified of open transactions: nobody there" in caplog.text


def test_while_the_cluster_does_not_answer_nothing_is_told_and_that_is_logged_once(
    kafka: ScriptedKafka, caplog: pytest.LogCaptureFixture
) -> None:
    away = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    has_open(kafka, away, away, {"a.0": 9_000})
    told = Told(1)
    with TransactionWatch(OPTIONS, told, every_s=0.001):
        assert told.enough.wait(60)
    assert len([record for record in caplog.records if "are unknown until" in record.getMessage()]) == 1
    assert told.found[0].by_sink == {"a": OpenOfSink(1, 1.0)}

"""Who is told of open transactions, and what happens while the cluster does not answer. Brokers: tests/integration."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_sink.errors import BrokersUnreachable, ConfigError
from kafka_sink.monitoring import transactions
from kafka_sink.monitoring.bounded import MOST_NAMED, OTHER
from kafka_sink.monitoring.transactions import OpenOfSink, OpenTransactions, TransactionWatch

OPTIONS = {"kafka.bootstrap.servers": "localhost:9092"}


class Coordinators:
    """What they say at each question, the last again and again; an error is raised."""

    def __init__(self, *says: dict[str, int] | Exception) -> None:
        self.says, self.prefixes = list(says), list[str]()

    def open_now(self, prefix: str) -> str:
        self.prefixes.append(prefix)
        return prefix

    def run(self, client: object, steps: object) -> dict[str, Any]:
        said = self.says.pop(0) if len(self.says) > 1 else self.says[0]
        if isinstance(said, Exception):
            raise said
        return {name: SimpleNamespace(start_time_ms=began_ms) for name, began_ms in said.items()}

    @contextmanager
    def lease(self, config: object) -> Iterator[Any]:
        @contextmanager
        def within(milliseconds: int) -> Iterator[None]:
            yield

        yield SimpleNamespace(within=within)


@pytest.fixture
def saying(monkeypatch: pytest.MonkeyPatch) -> Any:
    def say(*says: dict[str, int] | Exception) -> Coordinators:
        coordinators = Coordinators(*says)
        for name in ("open_now", "run", "lease"):
            monkeypatch.setattr(transactions, name, getattr(coordinators, name))
        monkeypatch.setattr(transactions, "wall_clock_ms", lambda: 10_000)
        return coordinators

    return say


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


def test_transactions_are_counted_by_sink_and_the_oldest_tells_the_age(saying: Any) -> None:
    asked = saying({"a.0": 9_000, "a.1": 4_000, "a.driver": 9_500, "b.0": 12_000, "another program's": 0})
    found = TransactionWatch(OPTIONS).look()
    assert found == OpenTransactions("pykafka", {"a": OpenOfSink(3, 6.0), "b": OpenOfSink(1, 0.0)}, 10.0)
    assert asked.prefixes == ["pykafka"]


def test_sinks_are_those_of_the_writes_own_prefix(saying: Any) -> None:
    asked = saying({})
    assert TransactionWatch({**OPTIONS, "transactionalIdPrefix": "orders"}).look().prefix == "orders"
    assert asked.prefixes == ["orders"]
    with pytest.raises(ConfigError):
        TransactionWatch({"kafka.bootstrap.server": "localhost:9092"})


def test_so_many_sinks_are_named_and_the_others_are_one(saying: Any) -> None:
    saying({f"s{number:03}.0": 1_000 * (number % 10) for number in range(MOST_NAMED + 20)})
    found = TransactionWatch(OPTIONS).look().by_sink
    assert len(found) == MOST_NAMED + 1
    assert found[OTHER] == OpenOfSink(20, 10.0)


def test_it_asks_until_it_is_stopped_and_one_that_is_away_keeps_nobody(
    saying: Any, caplog: pytest.LogCaptureFixture
) -> None:
    saying({"a.0": 9_000}, {})
    away, told = Told(2, raises=True), Told(2)
    with TransactionWatch(OPTIONS, away, told, every_s=0.001) as watch:
        assert told.enough.wait(10)
    assert not watch._thread.is_alive()
    assert [each.by_sink for each in told.found[:2]] == [{"a": OpenOfSink(1, 1.0)}, {}]
    assert "Told was not told of open transactions: nobody there" in caplog.text


def test_while_the_cluster_does_not_answer_nothing_is_told_and_that_is_logged_once(
    saying: Any, caplog: pytest.LogCaptureFixture
) -> None:
    away = BrokersUnreachable(bootstrap_servers="localhost:9092", waited_ms=1, last_error="refused")
    saying(away, away, {"a.0": 9_000})
    told = Told(1)
    with TransactionWatch(OPTIONS, told, every_s=0.001):
        assert told.enough.wait(10)
    assert len([record for record in caplog.records if "are not known until" in record.getMessage()]) == 1
    assert told.found[0].by_sink == {"a": OpenOfSink(1, 1.0)}

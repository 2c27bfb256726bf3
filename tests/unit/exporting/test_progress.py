"""Where an export has a bar, and by which format it then writes."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import Accumulator

from kafka_sink import Interceptor
from kafka_sink.exporting import progress
from kafka_sink.exporting.progress import is_looked_at, watched
from kafka_sink.monitoring.bar import ExportBar
from kafka_sink.spark import source
from kafka_sink.spark.source import KafkaDataSource, register_source, source_with


class Session:
    """What of a SparkSession is used here."""

    def __init__(self) -> None:
        self.registered: list[type[KafkaDataSource]] = []
        self.dataSource = SimpleNamespace(register=self.registered.append)
        self.sparkContext = SimpleNamespace(accumulator=lambda value, param: Accumulator(0, value, param))


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_registered", {})


def format_of(session: Any, *, wanted: bool | None = True, is_remote: bool = False) -> str:
    with watched(session, "orders", wanted=wanted, is_remote=is_remote) as name:
        return name


def test_a_bar_stands_behind_the_users_interceptors_in_a_format_of_its_own() -> None:
    session: Any = Session()
    mask = Interceptor()
    register_source(session, source_with((mask,), lambda: ("token", 60.0)))
    names = [format_of(session), format_of(session)]
    users, *with_bars = session.registered
    assert users.name() == "pykafka"
    assert len({*names, "pykafka"}) == 3
    assert [each.name() for each in with_bars] == names
    for each in with_bars:
        assert each.interceptors[0] is mask and isinstance(each.interceptors[1], ExportBar)
        assert each.token_callable == users.token_callable is not None
    assert users.interceptors == (mask,)


def test_without_anything_registered_the_bar_is_alone() -> None:
    session: Any = Session()
    format_of(session)
    assert [type(each) for each in session.registered[0].interceptors] == [ExportBar]


def test_where_it_is_not_known_what_is_registered_there_is_no_bar() -> None:
    """Else an interceptor that masks something could be left out."""
    other: Any = Session()
    session: Any = Session()
    register_source(other, source_with((Interceptor(),)))
    assert format_of(session) == "pykafka"
    assert session.registered == []


@pytest.mark.parametrize(("wanted", "is_remote"), [(False, False), (True, True), (None, False)])
def test_no_bar_where_none_is_wanted_seen_or_possible(
    monkeypatch: pytest.MonkeyPatch, wanted: bool | None, is_remote: bool
) -> None:
    monkeypatch.setattr(progress, "is_looked_at", lambda: False)
    session: Any = Session()
    assert format_of(session, wanted=wanted, is_remote=is_remote) == "pykafka"
    assert session.registered == []


def test_nor_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    assert format_of(Session()) == "pykafka"


def test_a_terminal_and_a_notebook_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    shells: list[Any] = [None, SimpleNamespace(), SimpleNamespace(kernel=object())]
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: False))
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert not is_looked_at()
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shells.pop(0)))  # type: ignore[misc]
    assert [is_looked_at() for _ in range(3)] == [False, False, True]
    monkeypatch.delitem(sys.modules, "IPython")
    monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda: True))
    assert is_looked_at()

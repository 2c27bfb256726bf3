"""Where an export has a bar, and by which format it then writes."""

from __future__ import annotations

import gc
import sys
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
from pyspark import Accumulator
from pyspark.sql import SparkSession

from kafka_sink import Interceptor
from kafka_sink.exporting import progress
from kafka_sink.exporting.progress import is_looked_at, watched
from kafka_sink.monitoring import bar
from kafka_sink.spark import source
from kafka_sink.spark.source import KafkaDataSource, register_source, source_with
from kafka_sink.spark.tally import Tally


class Context:
    def __init__(self) -> None:
        self.made = 0

    def accumulator(self, value: Any, param: Any) -> Accumulator[Any]:
        self.made += 1
        return Accumulator(0, value, param)


class Session:
    """What of a SparkSession is used here."""

    def __init__(self, context: Context | None = None) -> None:
        self.registered: list[type[KafkaDataSource]] = []
        self.dataSource = SimpleNamespace(register=self.registered.append)
        self.sparkContext = context or Context()


def session(context: Context | None = None) -> Any:
    return Session(context)


@pytest.fixture(autouse=True)
def nothing_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "REGISTERED", {})


def format_of(session: Any, *, wanted: bool | None = True, is_remote: bool = False) -> str:
    with watched(session, "orders", wanted=wanted, is_remote=is_remote) as name:
        return name


def test_a_bar_stands_behind_the_users_interceptors_in_a_format_of_its_own() -> None:
    main, mask = session(), Interceptor()
    register_source(main, source_with((mask,), lambda: ("token", 60.0)))
    with watched(main, "a", wanted=True, is_remote=False) as one:
        names = [one, format_of(main)]
    users, *with_bars = main.registered
    assert (users.name(), users.interceptors) == ("pykafka", (mask,))
    assert len({*names, "pykafka"}) == 3
    assert [each.name() for each in with_bars] == names
    for each in with_bars:
        assert each.interceptors[0] is mask and isinstance(each.interceptors[1], Tally)
        assert each.token_callable == users.token_callable is not None
    # What is registered later takes the place of what was.
    later = Interceptor()
    register_source(main, source_with((later,)))
    assert format_of(main) == names[0]
    assert main.registered[-1].name() == names[0] and main.registered[-1].interceptors[0] is later


def test_many_exports_have_one_format_and_one_accumulator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither can be taken back: of each call they would be a leak."""
    bars: list[ref[bar.ExportBar]] = []

    class Known(bar.ExportBar):
        def __enter__(self) -> bar.ExportBar:
            bars.append(ref(self))
            return super().__enter__()

    monkeypatch.setattr(bar, "ExportBar", Known)
    main = session()
    assert len({format_of(main) for _ in range(50)}) == 1
    assert (len(main.registered), main.sparkContext.made) == (1, 1)
    gc.collect()
    assert [one() for one in bars] == [None] * 50, "the accumulator outlives the bar"


def test_copies_of_a_session_share_a_name_and_contexts_no_accumulator() -> None:
    # foreachBatch has another object of the same copy in each micro-batch.
    context = Context()
    batches = [session(context) for _ in range(20)]
    assert len({format_of(batch) for batch in batches}) == 1
    assert context.made == 1 and all(len(batch.registered) == 1 for batch in batches)
    one, other = session(), session()
    assert format_of(one) == format_of(other)
    assert (one.sparkContext.made, other.sparkContext.made) == (1, 1)
    assert one.registered[0].interceptors[0] is not other.registered[0].interceptors[0]


def test_only_the_main_session_has_a_bar_that_nobody_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "is_looked_at", lambda: True)
    main, copy = session(), session()
    monkeypatch.setattr(SparkSession, "_instantiatedSession", main)
    assert format_of(main, wanted=None) != "pykafka"
    assert format_of(copy, wanted=None) == "pykafka"
    assert copy.registered == []


@pytest.mark.parametrize(("wanted", "is_remote"), [(False, False), (True, True), (None, False)])
def test_no_bar_where_none_is_wanted_seen_or_possible(
    monkeypatch: pytest.MonkeyPatch, wanted: bool | None, is_remote: bool
) -> None:
    monkeypatch.setattr(progress, "is_looked_at", lambda: False)
    main = session()
    assert format_of(main, wanted=wanted, is_remote=is_remote) == "pykafka"
    # Where it is not known what is registered: else an interceptor that masks something could be left out.
    register_source(session(), source_with((Interceptor(),)))
    assert format_of(main) == "pykafka"
    assert main.registered == []


def test_nor_without_the_extra_which_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    progress.can_draw.cache_clear()
    try:
        assert format_of(Session(), wanted=False) == format_of(Session()) == format_of(Session()) == "pykafka"
    finally:
        progress.can_draw.cache_clear()
    assert [each.getMessage() for each in caplog.records] == [
        "there is no progress bar without tqdm: pip install 'pyspark-pykafka[progress]'"
    ]


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

"""Keyword arguments as options, columns, places and a bar of an export. Spark's rows: integration/test_export.py."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from weakref import ref

import pytest
from pyspark import Accumulator
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from kafka_sink import Interceptor
from kafka_sink.errors import ColumnTypeMismatch, InvalidArgument, RefusedOption, UnknownOption
from kafka_sink.exporting import columns, progress
from kafka_sink.exporting.co_partition import check, co_partitioned
from kafka_sink.exporting.columns import ColumnArguments
from kafka_sink.exporting.progress import is_looked_at, watched
from kafka_sink.exporting.writing import NAME_OF_WORD, sink_options
from kafka_sink.monitoring import bar
from kafka_sink.options.config import SinkConfig, sink_config
from kafka_sink.options.table import OPTIONS, SPARK_OPTIONS, WRITING
from kafka_sink.spark import source
from kafka_sink.spark.source import KafkaDataSource, register_source, source_with
from kafka_sink.spark.tally import Tally

KEYED = {"key": None, "value": None}


def said(topic: str | None = "orders", *, exactly_once: bool = False, **words: Any) -> dict[str, str]:
    options = words.pop("options", {})
    return sink_options(topic, exactly_once=exactly_once, options=options, words=words)


def test_every_option_has_a_word_of_its_own_also_that_of_its_field() -> None:
    assert len(NAME_OF_WORD) == len(OPTIONS) + len(SPARK_OPTIONS)
    assert all(word.isidentifier() for word in NAME_OF_WORD)
    # Who knows kafka_sink.options.config by its fields finds them here.
    for option in OPTIONS:
        if option.field is not None and option.field in NAME_OF_WORD:
            assert WRITING.named(NAME_OF_WORD[option.field]) is option


def test_values_are_texts_and_none_says_nothing() -> None:
    given = said(linger_ms=5, create_topics=True, max_bad_rows=None, options={"kafka.acks": "all"})
    assert given == {"topic": "orders", "kafka.linger.ms": "5", "createTopics": "true", "kafka.acks": "all"}
    assert said(None) == {}
    asked = {"partitions": 12, "retention.ms": 86_400_000, "unclean.leader.election.enable": False, "replicas": None}
    text = "partitions=12,retention.ms=86400000,unclean.leader.election.enable=false"
    assert [said(create_topics=each)["createTopics"] for each in (asked, {})] == [text, "true"]
    assert said(exactly_once=True)["deliveryGuarantee"] == "exactly-once"


def test_what_is_said_twice_is_an_error() -> None:
    for given, argument in (
        ({"linger_ms": 5, "options": {"kafka.linger.ms": 5}}, "kafka.linger.ms"),
        ({"bad_rows": "drop", "options": {"badRows": "drop"}}, "badRows"),
        ({"options": {"badRows": "drop", "BADROWS": "drop"}}, "badRows"),
        ({"options": {"Topic": "other"}}, "topic"),
        ({"exactly_once": True, "delivery_guarantee": "at-least-once"}, "deliveryGuarantee"),
        ({"checkpoint_location": "/a", "options": {"checkpointlocation": "/b"}}, "checkpoint"),
    ):
        with pytest.raises(InvalidArgument, match="given twice") as failure:
            said(**given)
        assert failure.value.argument.startswith(argument)


def test_an_argument_in_another_spelling_is_told_the_one() -> None:
    for word, argument in (
        ("exactlyOnce", "exactly_once"), ("coPartition", "co_partition"), ("badRows", "bad_rows"),
        ("badrows", "bad_rows"), ("checkpointLocation", "checkpoint_location"), ("queryname", "query_name"),
        ("kafka.linger.ms", "linger_ms"),
    ):  # fmt: skip
        with pytest.raises(InvalidArgument, match=f"spelled {argument}[.;]") as refused:
            said(**{word: True})
        assert refused.value.argument == word


def test_a_misspelled_argument_is_told_the_nearest() -> None:
    for word, nearest in (
        ("bootstrap_server", "bootstrap_servers"), ("checkpoint_locaton", "checkpoint_location"),
        ("exactly_onse", "exactly_once"), ("kafka_linger_ms", "linger_ms"),
    ):  # fmt: skip
        with pytest.raises(UnknownOption, match="As an argument, an option is in snake case") as unknown:
            said(**{word: "x"})
        assert (unknown.value.option, unknown.value.nearest) == (word, (nearest,))
        with pytest.raises(UnknownOption, match="Options of the Kafka client start with"):
            said(options={"kafka.lingerms": 5})


def test_options_have_their_own_names_in_any_case_and_are_those_of_a_write() -> None:
    given = said(options={"BADROWS": "drop", "checkpointlocation": "/c", "Kafka.Linger.Ms": 5})
    assert given == {"topic": "orders", "badRows": "drop", "checkpointLocation": "/c", "kafka.linger.ms": "5"}
    for word in ("linger_ms", "bad_rows"):
        with pytest.raises(UnknownOption):
            said(options={word: "x"})
    with pytest.raises(RefusedOption):
        said(options={"kafka.interceptor.classes": "x"})


class Cast:
    """A column that remembers what it is made into."""

    def __init__(self, into: str = "") -> None:
        self.into = into

    def cast(self, into: str) -> Cast:
        return Cast(into)

    def alias(self, name: str) -> Cast:
        return self


@pytest.fixture
def record_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """The record's columns, of a DataFrame whose columns x and value are of this type."""
    monkeypatch.setattr(columns.F, "col", lambda name: Cast())

    def record(spark_type: T.DataType, **said: Any) -> dict[str, Any]:
        schema = {f"{columns.STAGED}{name}": SimpleNamespace(dataType=spark_type) for name in (*said, "value")}
        frame: Any = SimpleNamespace(columns=["x", "value"], select=lambda *of: SimpleNamespace(schema=schema))
        return dict(columns.staged(frame, ColumnArguments(topic="t", value="value", **said))[1])

    return record


def test_a_partition_is_an_int_and_a_key_a_text(record_of: Callable[..., dict[str, Any]]) -> None:
    for spark_type, column, into in (
        *((each(), "partition", "int") for each in (T.ByteType, T.ShortType, T.IntegerType, T.NullType)),
        # A decimal whose text is one everywhere becomes it.
        *((T.DecimalType(*size), "key", "string") for size in ((38, 0), (9, 2), (38, 6))),
    ):
        assert record_of(spark_type, **{column: "x"})[column].into == into


def test_of_nothing_else_is_a_partition_or_a_key_made(record_of: Callable[..., dict[str, Any]]) -> None:
    for spark_type, column, words in (
        *((each(), "partition", "'partition' is") for each in (
            T.DoubleType, T.FloatType, T.StringType, T.BooleanType, T.DateType, T.TimestampType, T.BinaryType,
        )),
        (T.DecimalType(9, 0), "partition", "'partition' is"),
        # Text that depends on ANSI, 0.0000001 with it, 1E-7 without: another partition of the same key.
        *((T.DecimalType(38, scale), "key", r"at most 6 decimal places.*cast") for scale in (7, 18, -2)),
    ):  # fmt: skip
        with pytest.raises(ColumnTypeMismatch, match=words) as failure:
            record_of(spark_type, **{column: "x"})
        assert failure.value.found == spark_type.simpleString()


def test_json_is_told_to_keep_microseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, str] = {}

    def to_json(whole: object, options: dict[str, str] | None = None) -> object:
        told.update(options or {})
        return Cast()

    monkeypatch.setattr(columns.F, "to_json", to_json)
    monkeypatch.setattr(columns.F, "struct", lambda *names: names)
    monkeypatch.setattr(columns.F, "col", lambda name: Cast())
    frame: Any = SimpleNamespace(columns=["x"], select=lambda *of: SimpleNamespace(schema={
        f"{columns.STAGED}value": SimpleNamespace(dataType=T.StringType())
    }))  # fmt: skip
    columns.staged(frame, ColumnArguments(topic="t", value="json"))
    assert {name: text.count("S") for name, text in told.items()} == {"timestampFormat": 6, "timestampNTZFormat": 6}
    assert "timeZone" not in told, "the session's"


def config(**options: str) -> SinkConfig:
    return sink_config({"kafka.bootstrap.servers": "a:1", "topic": "t", **options})


@pytest.mark.parametrize(("options", "record", "told"), [
    ({}, {"value": None}, "key or a partition"), ({}, {**KEYED, "topic": None}, "one topic"),
    ({"partitioner": "fnv1a"}, KEYED, "murmur2"),
])  # fmt: skip
def test_what_cannot_be_placed_is_told(options: dict[str, str], record: dict[str, None], told: str) -> None:
    with pytest.raises(InvalidArgument, match=told):
        check(config(**options), record, ())
    for placed in (KEYED, {"partition": None, "value": None}):
        check(config(), placed, ())
    frame: Any = object()
    with pytest.raises(InvalidArgument, match=r"needs Spark 4\.1"):
        co_partitioned(frame, {}, 3, ())


def test_rows_are_not_known_by_an_order_that_a_shuffle_does_not_keep() -> None:
    """`dedupe` would leave out rows that were written once."""
    with pytest.raises(InvalidArgument, match=r"order_by.*exactly_once") as refused:
        check(config(rowIdentity="true"), KEYED, ())
    assert refused.value.argument == "co_partition"
    check(config(rowIdentity="true"), KEYED, ("id",))
    check(config(rowIdentity="true", deliveryGuarantee="exactly-once"), KEYED, ())


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
def test_no_bar_where_nobody_wants_one(monkeypatch: pytest.MonkeyPatch, wanted: bool | None, is_remote: bool) -> None:
    monkeypatch.setattr(progress, "is_looked_at", lambda: False)
    main = session()
    assert format_of(main, wanted=wanted, is_remote=is_remote) == "pykafka"
    # Where it is not known what is registered: else an interceptor that masks something could be left out.
    register_source(session(), source_with((Interceptor(),)))
    assert format_of(main) == "pykafka"
    assert main.registered == []


def test_no_extra_no_bar_which_is_said_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
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

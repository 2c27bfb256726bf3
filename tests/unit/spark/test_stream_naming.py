"""Which name a stream gets, and that it keeps it; the last run of each name; and which session is active."""

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from py4j.protocol import Py4JError

from kafka_sink.commit.markers import Ids
from kafka_sink.commit.stream_name import (
    FILE_NAME,
    StreamName,
    expected_name,
    name_stream,
    query_name,
    spelled_name,
    stream_name,
)
from kafka_sink.errors import CheckpointUnusable, MissingOption
from kafka_sink.options.config import given_options
from kafka_sink.spark.exactly_once.plan import recall, remember
from kafka_sink.spark.session import active

QUERY = "3e0a1c1e-8a2b-4c57-9d5e-0d4f5ad0b0d1"
GIVEN = given_options({"topic": "t"})
NAMED = given_options({"topic": "t", "transactionalIdPrefix": "orders"})


@pytest.fixture
def location(tmp_path: Path) -> str:
    (tmp_path / "metadata").write_text(json.dumps({"id": QUERY}))
    return str(tmp_path)


never = mock.Mock(side_effect=AssertionError("nothing is to be asked"))


def test_a_new_stream_is_named_by_its_query(location: str) -> None:
    assert stream_name(GIVEN, location) is None
    named = StreamName(query_name(QUERY), QUERY, is_derived=True)
    began_as = mock.Mock(return_value=False)
    assert name_stream(GIVEN, location, began_as) == named
    began_as.assert_called_once_with(spelled_name(location), QUERY)
    # From then on by what is written in its checkpoint.
    assert name_stream(GIVEN, location, never) == stream_name(GIVEN, f"file:{location}") == named


def test_a_stream_of_an_earlier_build_keeps_its_name_wherever_it_goes(location: str) -> None:
    named = StreamName(spelled_name(location), QUERY, is_derived=True)
    assert name_stream(GIVEN, location, lambda earlier, query_id: True) == named
    assert name_stream(GIVEN, f"{location}/.", never) == named


def test_the_users_name_comes_first_and_one_of_both_is_needed(location: str) -> None:
    assert name_stream(NAMED, location, never) == StreamName("orders", QUERY)
    assert stream_name(GIVEN, location) == StreamName("orders", QUERY, is_derived=True)
    with pytest.raises(MissingOption, match="transactionalIdPrefix"):
        stream_name(GIVEN, None)
    assert name_stream(NAMED, None, never) == StreamName("orders")


@pytest.mark.parametrize("spoilt", ["metadata", FILE_NAME])
def test_the_users_name_needs_no_checkpoint(location: str, spoilt: str) -> None:
    (Path(location) / spoilt).write_text("no json")
    assert name_stream(NAMED, location, never).sink == "orders"
    with pytest.raises(CheckpointUnusable):
        name_stream(GIVEN, location, never)


@pytest.mark.parametrize("location", ["s3a://bucket/checkpoint", "hdfs://nn/a b/ü", "/nowhere/on/this/host"])
def test_a_checkpoint_elsewhere_is_named_by_its_plain_spelling(location: str) -> None:
    named = StreamName(spelled_name(location), is_derived=True)
    assert stream_name(GIVEN, location) == name_stream(GIVEN, location, never) == named
    assert name_stream(NAMED, location, never).sink == "orders"
    for spelled in (f"{location}/", location.replace("/", "//", 5).replace(":////", "://"), f"{location}/x/.."):
        began_as = mock.Mock(return_value=False)
        assert stream_name(GIVEN, spelled) is None
        assert name_stream(GIVEN, spelled, began_as) == named
        began_as.assert_called_once_with(spelled_name(spelled), None)


def test_a_stream_elsewhere_of_an_earlier_build_keeps_the_name_of_its_spelling() -> None:
    location = "s3://bucket/checkpoint/"
    named = StreamName(spelled_name(location), is_derived=True)
    assert name_stream(GIVEN, location, lambda earlier, query_id: True) == named


def test_before_its_start_a_stream_is_expected_to_be_named_by_its_query(location: str, tmp_path: Path) -> None:
    for to_come in (location, str(tmp_path / "not yet there")):
        assert expected_name(GIVEN, to_come) == "pykafka-"
    assert expected_name(GIVEN, "s3a://bucket/checkpoint") == spelled_name("s3a://bucket/checkpoint")
    # Only the cluster knows which.
    assert expected_name(GIVEN, "s3://bucket/checkpoint") == "pykafka-"
    assert expected_name(NAMED, location) == "orders"
    name_stream(GIVEN, location, lambda earlier, query_id: False)
    assert expected_name(GIVEN, location) == query_name(QUERY)


def test_the_last_run_of_each_sink_is_known_to_its_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/another/disk")
    assert recall("orders") is None
    for epoch, where in ((0, "/checkpoints/one"), (1, "/checkpoints/other")):
        # Two queries that have one prefix by mistake.
        remember("orders", Ids(5, epoch), where)
    assert recall("orders") is None
    assert [recall("orders", f"/checkpoints/{name}") for name in ("one", "other")] == [Ids(5, 0), Ids(5, 1)]
    for ids, sink in ((Ids(6, 0), "orders"), (Ids(7, 1), "a/sink with any name"), (Ids(6, 1), "orders")):
        remember(sink, ids)
    assert (recall("orders"), recall("a/sink with any name")) == (Ids(6, 1), Ids(7, 1))
    assert len(list(tmp_path.iterdir())) == 4
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "another"))
    assert recall("orders") is None
    monkeypatch.delenv("SPARK_LOCAL_DIRS")
    assert recall("orders") is None


class InJvm:
    """The JVM's SparkSession, as one thread sees it."""

    def __init__(self, session: str | None) -> None:
        self.session, self.is_gone = session, False

    def getActiveSession(self) -> Any:
        session = self.session
        return SimpleNamespace(isDefined=lambda: session is not None, get=lambda: session)

    def setActiveSession(self, session: str) -> None:
        self.session = session

    def clearActiveSession(self) -> None:
        if self.is_gone:
            raise Py4JError("the JVM has ended")
        self.session = None


@pytest.mark.parametrize("before", [None, "before"])
def test_the_session_is_the_frames_and_then_what_it_was(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """While an export runs. A JVM that has ended hides no error."""
    jvm, spark = InJvm(before), SimpleNamespace(_jvm=None, _jsparkSession="the frame's")
    monkeypatch.setattr("pyspark.sql.SparkSession._get_j_spark_session_class", lambda _: jvm)
    for fails in (False, True):
        with pytest.raises(KeyError) if fails else nullcontext(), active(spark):
            assert jvm.session == "the frame's"
            if fails:
                raise KeyError("of the write")
        assert jvm.session == before
    with pytest.raises(KeyError), active(spark):
        jvm.is_gone = True
        raise KeyError("of the write")

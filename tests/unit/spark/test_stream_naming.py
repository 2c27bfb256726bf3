"""Which name a stream gets, and that it keeps it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kafka_sink.commit.stream_name import FILE_NAME, StreamName, query_name, spelled_name
from kafka_sink.errors import CheckpointUnusable, MissingOption
from kafka_sink.options.config import given_options
from kafka_sink.spark.stream_naming import expected_name, name_stream, stream_name

QUERY = "3e0a1c1e-8a2b-4c57-9d5e-0d4f5ad0b0d1"
GIVEN = given_options({"topic": "t"})
NAMED = given_options({"topic": "t", "transactionalIdPrefix": "orders"})


@pytest.fixture
def location(tmp_path: Path) -> str:
    (tmp_path / "metadata").write_text(json.dumps({"id": QUERY}))
    return str(tmp_path)


def never(earlier: str, query_id: str) -> bool:
    raise AssertionError("nothing is to be asked")


def test_a_new_stream_is_named_by_its_query(location: str) -> None:
    asked = []

    def began_as(earlier: str, query_id: str) -> bool:
        asked.append((earlier, query_id))
        return False

    assert stream_name(GIVEN, location) is None
    named = StreamName(query_name(QUERY), QUERY, is_derived=True)
    assert name_stream(GIVEN, location, began_as) == named
    assert asked == [(spelled_name(location), QUERY)]
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


@pytest.mark.parametrize("location", ["s3://bucket/checkpoint", "/nowhere/on/this/host"])
def test_a_checkpoint_elsewhere_is_named_by_its_spelling(location: str) -> None:
    named = StreamName(spelled_name(location), is_derived=True)
    assert stream_name(GIVEN, location) == name_stream(GIVEN, location, never) == named
    assert name_stream(NAMED, location, never).sink == "orders"


def test_before_its_start_a_stream_is_expected_to_be_named_by_its_query(location: str, tmp_path: Path) -> None:
    for to_come in (location, str(tmp_path / "not yet there")):
        assert expected_name(GIVEN, to_come) == "pykafka-"
    assert expected_name(GIVEN, "s3://bucket/checkpoint") == spelled_name("s3://bucket/checkpoint")
    assert expected_name(NAMED, location) == "orders"
    name_stream(GIVEN, location, lambda earlier, query_id: False)
    assert expected_name(GIVEN, location) == query_name(QUERY)

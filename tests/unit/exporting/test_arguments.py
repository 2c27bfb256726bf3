"""What Python's keyword arguments say, as options of the sink."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_sink.errors import InvalidArgument, RefusedOption, UnknownOption
from kafka_sink.exporting.arguments import NAME_OF_WORD, sink_options
from kafka_sink.options.table import OPTIONS, SPARK_OPTIONS, WRITING


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


def test_a_topic_to_be_created_is_a_mapping() -> None:
    asked = {"partitions": 12, "retention.ms": 86_400_000, "unclean.leader.election.enable": False, "replicas": None}
    text = "partitions=12,retention.ms=86400000,unclean.leader.election.enable=false"
    assert said(create_topics=asked)["createTopics"] == text
    assert said(create_topics={})["createTopics"] == "true"
    assert said(exactly_once=True)["deliveryGuarantee"] == "exactly-once"


@pytest.mark.parametrize(
    ("given", "argument"),
    [
        ({"linger_ms": 5, "options": {"kafka.linger.ms": 5}}, "kafka.linger.ms"),
        ({"bad_rows": "drop", "options": {"badRows": "drop"}}, "badRows"),
        ({"options": {"badRows": "drop", "BADROWS": "drop"}}, "badRows"),
        ({"options": {"Topic": "other"}}, "topic"),
        ({"exactly_once": True, "delivery_guarantee": "at-least-once"}, "deliveryGuarantee"),
        ({"checkpoint_location": "/a", "options": {"checkpointlocation": "/b"}}, "checkpoint"),
    ],
)
def test_what_is_said_twice_is_an_error(given: dict[str, Any], argument: str) -> None:
    with pytest.raises(InvalidArgument, match="given twice") as failure:
        said(**given)
    assert failure.value.argument.startswith(argument)


@pytest.mark.parametrize(
    ("word", "argument"),
    [
        ("exactlyOnce", "exactly_once"), ("coPartition", "co_partition"), ("badRows", "bad_rows"),
        ("badrows", "bad_rows"), ("checkpointLocation", "checkpoint_location"), ("queryname", "query_name"),
        ("kafka.linger.ms", "linger_ms"),
    ],
)  # fmt: skip
def test_an_argument_in_another_spelling_is_told_the_one(word: str, argument: str) -> None:
    with pytest.raises(InvalidArgument, match=f"spelled {argument}[.;]") as refused:
        sink_options("orders", exactly_once=False, options={}, words={word: True})
    assert refused.value.argument == word


def test_options_have_their_own_names_in_any_case_and_are_those_of_a_write() -> None:
    given = said(options={"BADROWS": "drop", "checkpointlocation": "/c", "Kafka.Linger.Ms": 5})
    assert given == {"topic": "orders", "badRows": "drop", "checkpointLocation": "/c", "kafka.linger.ms": "5"}
    for word in ("linger_ms", "bad_rows"):
        with pytest.raises(UnknownOption):
            said(options={word: "x"})
    with pytest.raises(RefusedOption):
        said(options={"kafka.interceptor.classes": "x"})


@pytest.mark.parametrize(
    ("word", "nearest"),
    [
        ("bootstrap_server", ("bootstrap_servers",)), ("checkpoint_locaton", ("checkpoint_location",)),
        ("exactly_onse", ("exactly_once",)), ("kafka_linger_ms", ("linger_ms",)),
    ],
)  # fmt: skip
def test_a_misspelled_argument_is_told_the_nearest(word: str, nearest: tuple[str, ...]) -> None:
    with pytest.raises(UnknownOption, match="As an argument, an option is in snake case") as unknown:
        sink_options("orders", exactly_once=False, options={}, words={word: "x"})
    assert (unknown.value.option, unknown.value.nearest) == (word, nearest)
    with pytest.raises(UnknownOption, match="Options of the Kafka client start with"):
        sink_options("orders", exactly_once=False, options={"kafka.lingerms": 5}, words={})

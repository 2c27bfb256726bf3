"""The texts that say what a read reads, where it begins, and where it ends."""

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from effort import each
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.bounds import (
    ASSIGNED,
    EARLIEST,
    ENDING_OFFSETS,
    LATEST,
    STARTING_OFFSETS,
    SUBSCRIBED,
    TIMESTAMP,
    TIMESTAMPS,
    AtOffset,
    AtOffsets,
    AtTime,
    AtTimes,
    is_reversed,
)
from kafka_sink.options.kinds import INT64_MAX, Kind, Problem

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
BY_PARTITION = (STARTING_OFFSETS, ENDING_OFFSETS, TIMESTAMPS)


@pytest.mark.parametrize(("kind", "text", "expected"), [
    (STARTING_OFFSETS, "earliest", AtOffset(EARLIEST)), (STARTING_OFFSETS, "EARLIEST", AtOffset(EARLIEST)),
    (STARTING_OFFSETS, "latest", AtOffset(LATEST)), (ENDING_OFFSETS, "Latest", AtOffset(LATEST)),
    (STARTING_OFFSETS, '{"a":{"0":23,"1":-2},"b":{"0":0}}', AtOffsets({A0: 23, A1: EARLIEST, B0: 0})),
    (ENDING_OFFSETS, '{"a": {"0": -1, "1": 9223372036854775807}}', AtOffsets({A0: LATEST, A1: INT64_MAX})),
    (STARTING_OFFSETS, '{"a":"eArLiEst","b":{"0":23},"c":"latest"}', AtOffsets({B0: 23}, {"a": EARLIEST, "c": LATEST})),
    (ENDING_OFFSETS, '{"a":"latest"}', AtOffsets({}, {"a": LATEST})), (TIMESTAMP, "0", AtTime(0)),
    (TIMESTAMP, "1700000000000", AtTime(1_700_000_000_000)),
    (TIMESTAMPS, '{"a":{"0":1,"1":2}}', AtTimes({A0: 1, A1: 2})), (ASSIGNED, '{"b":[0],"a":[1,0,1]}', (B0, A0, A1)),
    (SUBSCRIBED, " a, b ,,a", ("a", "b")),
])  # fmt: skip
def test_texts_are_read_as_sparks_source_reads_them(kind: Kind, text: str, expected: object) -> None:
    assert kind.read(text) == expected


@each("kind", [*BY_PARTITION, ASSIGNED])
def test_what_is_no_json_of_topics_is_refused(kind: Kind) -> None:
    texts = (
        "", "a", "1", "null", "[]", "{}", '"a"', '{"a": 1}', '{"a": null}', '{"a": "first"}', '"earliest"',
        '{"a": {"0": 1}, "a": {"1": 1}}', '{"no spaces": {"0": 1}}', "[" * 99_999,
    )  # fmt: skip
    for text in (*texts, '{"no spaces": [0]}', '{"a": []}' if kind is ASSIGNED else '{"a": [0]}'):
        with pytest.raises(ValueError):
            kind.read(text)


@each("kind", BY_PARTITION)
def test_what_is_no_partition_or_no_number_is_refused(kind: Kind) -> None:
    numbers = ("-1", "x", "", "0.0", "\N{ARABIC-INDIC DIGIT ONE}", " 0")
    values = (1.5, "1", None, True, [1], -3, INT64_MAX + 1)
    for said in [*({"a": {number: 1}} for number in numbers), *({"a": {"0": value}} for value in values)]:
        with pytest.raises(ValueError):
            kind.read(json.dumps(said))


@each("said", [
    *((ASSIGNED, text) for text in ('{"a":[-1]}', '{"a":[0.5]}', '{"a":["0"]}', '{"a":[true]}', '{"a":{"0":1}}')),
    *((TIMESTAMP, text) for text in ("", "-1", "+1", "1.0", "2024-01-01", "\u0661", str(INT64_MAX + 1))),
])  # fmt: skip
def test_only_numbers_of_partitions_are_assigned_and_a_time_is_in_milliseconds(said: tuple[Kind, str]) -> None:
    with pytest.raises(ValueError):
        said[0].read(said[1])


@pytest.mark.parametrize(("kind", "text", "why"), [
    (ENDING_OFFSETS, "earliest", "ends at the earliest offset has no rows"),
    (STARTING_OFFSETS, '{"a":"earliest","a":{"0":23}}', "a name is there twice"),
    (ENDING_OFFSETS, '{"a":"earliest"}', "cannot end at the earliest offset, -2"),
    (ENDING_OFFSETS, '{"a":{"0":-2}}', "cannot end at the earliest offset, -2"),
    (STARTING_OFFSETS, '{"a":{"0":-3}}', "-3 is no offset"), (TIMESTAMPS, '{"a":{"0":-1}}', "-1 is no time"),
    (STARTING_OFFSETS, "beginning", "it is no JSON"), (SUBSCRIBED, "a,b c", "'b c' is no topic name"),
    (SUBSCRIBED, "a/..", "'a/..' is no topic name"),
])  # fmt: skip
def test_what_a_batch_cannot_mean_says_why(kind: Kind, text: str, why: str) -> None:
    with pytest.raises(Problem, match=why):
        kind.read(text)


@given(
    st.text(max_size=40)
    | st.recursive(st.none() | st.integers() | st.text(), lambda of: st.dictionaries(st.text(), of))
)
def test_any_text_is_read_or_refused(said: Any) -> None:
    text = said if isinstance(said, str) else json.dumps(said)
    for kind in (*BY_PARTITION, TIMESTAMP, ASSIGNED, SUBSCRIBED):
        with contextlib.suppress(ValueError):
            kind.read(text)


@pytest.mark.parametrize(("starting", "ending", "expected"), [
    (AtOffset(EARLIEST), AtOffset(LATEST), False), (AtOffsets({A0: 5}), AtOffsets({A0: 5}), False),
    (AtOffsets({A0: 5, A1: 6}), AtOffsets({A0: 5, A1: 5}), True), (AtOffsets({A0: 5}), AtOffsets({A0: LATEST}), False),
    (AtOffsets({A0: EARLIEST}), AtOffsets({A0: 0}), False), (AtOffsets({A0: 5}), AtOffsets({A1: 0}), False),
    (AtTime(2), AtTime(1), True), (AtTime(1), AtTime(1), False), (AtTimes({A0: 2}), AtTimes({A0: 1}), True),
    (AtTime(2), AtTimes({A0: 1}), False), (AtOffset(EARLIEST), AtOffsets({A0: 0}), False),
    (AtOffsets({A0: 5}), AtOffsets({}, {"a": LATEST}), False),
])  # fmt: skip
def test_a_read_that_ends_before_it_begins_is_found_by_its_options(starting: Any, ending: Any, expected: bool) -> None:
    assert is_reversed(starting, ending) is expected

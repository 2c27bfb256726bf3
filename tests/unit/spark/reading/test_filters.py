"""What filters leave of a read: never less than the rows that pass them."""

import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import datasource

from kafka_sink.options.kinds import INT64_MAX
from kafka_sink.spark.reading.plan import Wanted

if not hasattr(datasource, "EqualTo"):
    pytest.skip("Spark before 4.1 pushes no filters down", allow_module_level=True)
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

NOON = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)
NOON_MS = 1_714_564_800_000
OFFSET, TIMESTAMP = ("offset",), ("timestamp",)


@pytest.mark.parametrize(("filters", "expected"), [
    ([], Wanted()), ([EqualTo(("topic",), "a")], Wanted(topics=frozenset("a"))),
    ([In(("topic",), ["a", "b"]), EqualTo(("topic",), "b")], Wanted(topics=frozenset("b"))),
    ([EqualTo(("topic",), "a"), EqualTo(("topic",), "b")], Wanted(topics=frozenset())),
    ([EqualTo(("partition",), 3)], Wanted(partitions=frozenset({3}))),
    ([In(("partition",), [1, 2])], Wanted(partitions=frozenset({1, 2}))),
    ([EqualTo(OFFSET, 7)], Wanted(first_offset=7, end_offset=8)),
    ([In(OFFSET, [9, 4])], Wanted(first_offset=4, end_offset=10)), ([GreaterThan(OFFSET, 7)], Wanted(first_offset=8)),
    ([GreaterThanOrEqual(OFFSET, 7), LessThan(OFFSET, 9)], Wanted(first_offset=7, end_offset=9)),
    ([LessThanOrEqual(OFFSET, 9)], Wanted(end_offset=10)), ([GreaterThan(OFFSET, -5)], Wanted()),
    ([GreaterThanOrEqual(TIMESTAMP, NOON)], Wanted(timestamp_ms=NOON_MS)),
    ([GreaterThan(TIMESTAMP, NOON)], Wanted(timestamp_ms=NOON_MS)),
    ([EqualTo(TIMESTAMP, NOON)], Wanted(timestamp_ms=NOON_MS)),
    ([GreaterThan(TIMESTAMP, NOON + datetime.timedelta(microseconds=999))], Wanted(timestamp_ms=NOON_MS)),
    ([GreaterThan(TIMESTAMP, NOON), GreaterThan(TIMESTAMP, NOON - datetime.timedelta(1))],
     Wanted(timestamp_ms=NOON_MS)),
])  # fmt: skip
def test_filters_narrow_a_read(filters: list[Any], expected: Wanted) -> None:
    assert Wanted().narrowed(filters) == expected


@pytest.mark.parametrize("filter_", [
    Not(EqualTo(("partition",), 3)), Not(In(("topic",), ["a"])), EqualNullSafe(("partition",), 3), IsNotNull(OFFSET),
    IsNull(OFFSET), GreaterThan(("partition",), 1), StringStartsWith(("topic",), "a"), EqualTo(("value",), b"v"),
    EqualTo(("headers", "key"), "a"), EqualTo(OFFSET, None), In(OFFSET, [None, 3]), In(OFFSET, [3, None]),
    In(OFFSET, []), In(("partition",), []), LessThan(TIMESTAMP, NOON), LessThanOrEqual(TIMESTAMP, NOON),
    GreaterThan(TIMESTAMP, NOON.replace(tzinfo=None)),
    GreaterThan(TIMESTAMP, datetime.datetime(1969, 1, 1, tzinfo=datetime.UTC)), EqualTo(TIMESTAMP, "2024-05-01"),
])  # fmt: skip
def test_filters_that_say_nothing_of_partitions_and_offsets_leave_all(filter_: Any) -> None:
    assert Wanted().narrowed([filter_]) == Wanted()


OPERATORS = {
    EqualTo: lambda row, value: row == value, GreaterThan: lambda row, value: row > value,
    GreaterThanOrEqual: lambda row, value: row >= value, LessThan: lambda row, value: row < value,
    LessThanOrEqual: lambda row, value: row <= value, In: lambda row, value: row in value,
}  # fmt: skip
SMALL = st.integers(-3, 12)
FILTERS = st.sampled_from(list(OPERATORS)).flatmap(
    lambda kind: st.tuples(st.just(kind), st.lists(SMALL, min_size=1, max_size=3) if kind is In else SMALL)
)


@given(st.lists(FILTERS, max_size=4), st.integers(0, 12))
def test_a_row_that_passes_all_filters_is_wanted(filters: list[Any], offset: int) -> None:
    wanted = Wanted().narrowed(kind(OFFSET, value) for kind, value in filters)
    passes = all(OPERATORS[kind](offset, value) for kind, value in filters)
    assert not passes or wanted.first_offset <= offset < wanted.end_offset
    assert wanted.first_offset >= 0 and wanted.end_offset <= INT64_MAX

"""Ranges of tasks: those of Spark's source, and never an offset lost or doubled."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.spark.reading.divide import divide

Spans = list[tuple[int, int, int]]


def ranges(spans: Spans) -> list[FetchRange]:
    return [FetchRange("t", None, partition, first, end, leader_epoch=3) for partition, first, end in spans]


def divided(spans: Spans, min_partitions: int | None = None, most: int | None = None) -> Spans:
    return [(each.partition, each.first, each.end) for each in divide(ranges(spans), min_partitions, most)]


# org.apache.spark.sql.kafka010.KafkaOffsetRangeCalculatorSuite: ranges, minPartitions, ranges of tasks.
SPARKS_CASES: list[tuple[Spans, int | None, Spans]] = [
    ([(1, 1, 2)], None, [(1, 1, 2)]),
    ([(1, 1, 2), (2, 1, 1)], None, [(1, 1, 2)]),
    ([(1, 1, 2), (2, 1, 2), (3, 1, 2)], 3, [(1, 1, 2), (2, 1, 2), (3, 1, 2)]),
    ([(1, 1, 5)], 4, [(1, 1, 2), (1, 2, 3), (1, 3, 4), (1, 4, 5)]),
    ([(1, 1, 5), (2, 1, 21)], 4, [(1, 1, 5), (2, 1, 7), (2, 7, 14), (2, 14, 21)]),
    ([(1, 1, 1), (2, 1, 21)], 4, [(2, 1, 6), (2, 6, 11), (2, 11, 16), (2, 16, 21)]),
    ([(1, 1, 2), (2, 1, 1001)], 4, [(1, 1, 2), (2, 1, 334), (2, 334, 667), (2, 667, 1001)]),
    ([(1, 1, 5), (2, 1, 21)], 1, [(1, 1, 5), (2, 1, 21)]),
    ([(1, 1, 11)], 3, [(1, 1, 4), (1, 4, 7), (1, 7, 11)]),
    ([(1, 0, 10), (2, 0, 10), (3, 0, 1)], 6,
     [(1, 0, 3), (1, 3, 6), (1, 6, 10), (2, 0, 3), (2, 3, 6), (2, 6, 10), (3, 0, 1)]),
    ([(1, 0, 10_000), (2, 0, 15_000), (3, 0, 20_000)], 9,
     [(number, first, first + 5_000) for number in (1, 2, 3) for first in range(0, 5_000 * (number + 1), 5_000)]),
    ([(1, 1, 5), (2, 1, 21), (3, 1, 1)], 4, [(1, 1, 5), (2, 1, 7), (2, 7, 14), (2, 14, 21)]),
    ([(1, 0, 500), (2, 0, 12_000), (3, 0, 15_001)], 6,
     [(1, 0, 500), (2, 0, 6_000), (2, 6_000, 12_000), (3, 0, 5_000), (3, 5_000, 10_000), (3, 10_000, 15_001)]),
    ([(1, 0, 1), (2, 0, 1), (3, 0, 10_000)], 6,
     [(1, 0, 1), (2, 0, 1), (3, 0, 2_500), (3, 2_500, 5_000), (3, 5_000, 7_500), (3, 7_500, 10_000)]),
    ([(1, 0, 1), (2, 0, 1), (3, 0, 2)], 4, [(1, 0, 1), (2, 0, 1), (3, 0, 1), (3, 1, 2)]),
]  # fmt: skip


@pytest.mark.parametrize(("spans", "min_partitions", "expected"), SPARKS_CASES)
def test_ranges_are_divided_as_sparks_source_divides_them(
    spans: Spans, min_partitions: int | None, expected: Spans
) -> None:
    assert divided(spans, min_partitions) == expected


def test_no_range_has_more_offsets_than_wanted_whatever_the_least_count() -> None:
    assert divided([(0, 0, 10), (1, 5, 6)], most=4) == [(0, 0, 3), (0, 3, 6), (0, 6, 10), (1, 5, 6)]
    assert divided([(0, 0, 10)], 2, 4) == [(0, 0, 3), (0, 3, 6), (0, 6, 10)]
    # Those of Spark's suite.
    assert divided([(1, 1, 6)], most=4) == [(1, 1, 3), (1, 3, 6)]
    assert divided([(1, 1, 40), (2, 1, 50), (3, 1, 60)], most=20) == [
        (1, 1, 20), (1, 20, 40), (2, 1, 17), (2, 17, 33), (2, 33, 50), (3, 1, 20), (3, 20, 40), (3, 40, 60),
    ]  # fmt: skip
    assert divided([(1, 1, 40)], 1, 20) == [(1, 1, 20), (1, 20, 40)]
    assert divided([(1, 1, 40)], 4, 20) == [(1, 1, 10), (1, 10, 20), (1, 20, 30), (1, 30, 40)]
    assert divided([(0, 0, 10)], 4, 6) == [(0, 0, 2), (0, 2, 5), (0, 5, 7), (0, 7, 10)]
    assert divided([(0, 0, 3)], min_partitions=2**31 - 1) == [(0, 0, 1), (0, 1, 2), (0, 2, 3)]


SPANS = st.lists(
    st.tuples(st.integers(0, 50), st.integers(0, 2**40), st.integers(-5, 300)).map(lambda t: (t[0], t[1], t[1] + t[2])),
    max_size=12,
    unique_by=lambda span: span[0],
)


@given(SPANS, st.none() | st.integers(1, 200), st.none() | st.integers(1, 400))
def test_every_offset_is_in_one_range_and_ranges_keep_what_they_know(
    spans: Spans, min_partitions: int | None, most: int | None
) -> None:
    found = divide(ranges(spans), min_partitions, most)
    by_partition: dict[int, list[FetchRange]] = {}
    for each in found:
        assert each.first < each.end
        assert (each.topic, each.leader_epoch) == ("t", 3)
        assert most is None or each.end - each.first <= most
        by_partition.setdefault(each.partition, []).append(each)
    expected: dict[int, Any] = {number: (first, end) for number, first, end in spans if first < end}
    assert by_partition.keys() == expected.keys()
    for number, parts in by_partition.items():
        assert (parts[0].first, parts[-1].end) == expected[number]
        assert all(one.end == following.first for one, following in itertools.pairwise(parts))

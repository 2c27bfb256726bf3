"""How much a micro-batch reads: as Spark's Kafka source divides a limit, and how long it waits."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.spark.reading.admission import Delay, rate_limited
from kafka_sink.spark.reading.positions import Positions

LARGEST = 2**63 - 1


def partitions(count: int) -> list[TopicPartition]:
    return [TopicPartition("t", number) for number in range(count)]


@st.composite
def logs(draw: st.DrawFn, largest: int = LARGEST) -> tuple[Positions, Positions]:
    """Where partitions begin and end. An end may be before the start."""
    of = partitions(draw(st.integers(1, 8)))
    offsets = st.integers(0, largest) | st.integers(0, min(largest, 50))
    return {each: draw(offsets) for each in of}, {each: draw(offsets) for each in of}


LIMITS = st.integers(1, LARGEST) | st.integers(1, 100)


def as_spark_does(limit: int, start: Positions, ends: Positions) -> Positions:
    """KafkaMicroBatchStream.rateLimit, in doubles as Java has them."""
    sizes = {each: ends[each] - start[each] for each in ends if ends[each] > start[each]}
    total = float(sum(sizes.values()))
    if total < 1:
        return ends
    found = dict(ends)
    for each, size in sizes.items():
        prorated = float(limit) * (float(size) / total)
        share = math.ceil(prorated) if prorated < 1 else math.floor(prorated)
        found[each] = min(ends[each], start[each] + share)
    return found


@given(LIMITS, logs())
def test_never_beyond_an_end_and_always_beyond_a_start(limit: int, of: tuple[Positions, Positions]) -> None:
    start, ends = of
    limited = rate_limited(limit, start, ends)
    assert limited.keys() == ends.keys()
    for each, end in ends.items():
        assert limited[each] == end if end <= start[each] else start[each] < limited[each] <= end


@given(st.integers(1, 2**40), logs(2**40))
def test_the_same_as_sparks_source(limit: int, of: tuple[Positions, Positions]) -> None:
    start, ends = of
    new = sum(end - start[each] for each, end in ends.items() if end > start[each])
    expected = as_spark_does(limit, start, ends) if new > limit else ends
    assert rate_limited(limit, start, ends) == expected


@pytest.mark.parametrize(
    ("limit", "sizes", "shares"),
    [
        (10, [100, 300, 0], [2, 7, 0]),
        (10, [5, 5, 0], [5, 5, 0]),
        (1, [1_000, 1, 1], [1, 1, 1]),
        (10, [1_000, 1, 0], [9, 1, 0]),
        # 0.1 * 3 is more than 0.3 in doubles.
        (3, [1, 9], [1, 2]),
        (LARGEST, [1, 9], [1, 9]),
        # A double has no 2**63 - 1: the share would be one more than there is.
        (LARGEST - 1, [LARGEST], [LARGEST]),
    ],
)
def test_each_gets_its_share(limit: int, sizes: list[int], shares: list[int]) -> None:
    of = partitions(len(sizes))
    found = rate_limited(limit, dict.fromkeys(of, 0), dict(zip(of, sizes, strict=True)))
    assert [found[each] for each in of] == shares


A, B = partitions(2)


def test_a_delay_ends_with_enough_records_or_in_time() -> None:
    delay = Delay(10, 1_000)
    assert not delay.puts_off({A: 0}, {A: 1}, 5_000), "the first micro-batch is not put off"
    assert delay.puts_off({A: 1}, {A: 10}, 5_999)
    assert not delay.puts_off({A: 1}, {A: 11}, 5_999), "enough"
    assert delay.puts_off({A: 11}, {A: 12}, 6_998), "counts from the last micro-batch"
    assert not delay.puts_off({A: 11}, {A: 12}, 6_999), "in time"


def test_a_delay_counts_the_records_of_all_partitions_and_of_new_ones() -> None:
    delay = Delay(10, 1_000)
    assert not delay.puts_off({}, {}, 0)
    assert delay.puts_off({A: 5}, {A: 9, B: 5}, 1)
    assert not delay.puts_off({A: 5}, {A: 9, B: 6}, 1)

"""Ranges of tasks: those of Spark's source, packed if asked for, and never an offset lost or doubled; and advice for
reads of many small tasks: when it is given, what it says, and once a query."""

import itertools
import logging
import math
import uuid
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.spark import kept_clients
from kafka_sink.spark.reading.divide import Tasks, described, divide, enough_tasks, packed
from kafka_sink.spark.reading.positions import Positions
from kafka_sink.spark.reading.stream_plan import Delay, rate_limited
from kafka_sink.spark.source import KafkaDataSource
from scripted_kafka import ScriptedKafka
from scripted_reads import ScriptedLog, asked, connect_reads, serve

Spans = list[tuple[int, int, int]]


def ranges(spans: Spans) -> list[FetchRange]:
    return [FetchRange("t", None, partition, first, end, leader_epoch=3) for partition, first, end in spans]


def divided(spans: Spans, min_partitions: int | None = None, most: int | None = None) -> Spans:
    return [(each.partition, each.first, each.end) for each in divide(ranges(spans), min_partitions, most)]


# org.apache.spark.sql.kafka010.KafkaOffsetRangeCalculatorSuite: ranges, minPartitions, ranges of tasks.
@pytest.mark.parametrize(("spans", "min_partitions", "expected"), [
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
])  # fmt: skip
def test_ranges_are_divided_as_by_sparks_source(spans: Spans, min_partitions: int | None, expected: Spans) -> None:
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
def test_every_offset_is_in_one_range(spans: Spans, min_partitions: int | None, most: int | None) -> None:
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


def led(*of_leaders: tuple[int, list[int]]) -> list[FetchRange]:
    """Ranges of these leaders and sizes, one partition each."""
    sizes = [(leader, size) for leader, sizes in of_leaders for size in sizes]
    return [
        FetchRange("t", None, number, 5, 5 + size, leader=leader) for number, (leader, size) in enumerate(sizes)
    ]  # fmt: skip


def size(task: Iterable[FetchRange]) -> int:
    return sum(each.end - each.first for each in task)


def test_without_a_limit_each_range_is_a_task() -> None:
    ranges = led((0, [3, 1]), (1, [2]))
    for limit in (None, 3, 10):
        assert packed(ranges, limit) == [(each,) for each in ranges]


@pytest.mark.parametrize(("of_leaders", "limit", "sizes", "leaders"), [
    # Each leader has tasks of its own where that is as even.
    ([(0, [10] * 8), (1, [10] * 8)], 2, [80, 80], [{0}, {1}]),
    ([(0, [10] * 8), (1, [10] * 8)], 4, [40] * 4, [{0}, {0}, {1}, {1}]),
    ([(leader, [7] * 64) for leader in range(3)], 6, [7 * 32] * 6, [{0}, {0}, {1}, {1}, {2}, {2}]),
    # One that has more than its share has a part of another's task.
    ([(0, [10] * 6), (1, [10] * 2)], 2, [40, 40], [{0}, {0, 1}]),
    # Evenness counts more.
    ([(0, [9, 1]), (1, [5, 5])], 3, [5, 6, 9], None), ([(0, [4, 9, 9]), (1, [6, 6, 8])], 2, [21, 21], None),
    ([(0, [100, 1, 1, 1]), (1, [1, 1])], 2, [5, 100], None),
])  # fmt: skip
def test_tasks_are_even_and_of_few_leaders(
    of_leaders: list[tuple[int, list[int]]], limit: int, sizes: list[int], leaders: list[set[int]] | None
) -> None:
    tasks = packed(led(*of_leaders), limit)
    assert sorted(map(size, tasks)) == sorted(sizes)
    if leaders is not None:
        assert [{each.leader for each in task} for task in tasks] == leaders


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 300)), min_size=1, max_size=60),
    st.integers(1, 20),
    st.none() | st.integers(1, 80),
)
def test_packing_loses_and_doubles_no_range_and_keeps_their_order(
    drawn: list[tuple[int, int]], limit: int, min_partitions: int | None
) -> None:
    whole = led(*((leader, [size]) for leader, size in drawn))
    ranges = divide(whole, None if min_partitions is None else min(min_partitions, limit), None)
    tasks = packed(ranges, limit)
    assert len(tasks) == min(limit, len(ranges))
    assert all(tasks)
    places = {id(each): place for place, each in enumerate(ranges)}
    assert sorted(places[id(each)] for task in tasks for each in task) == list(range(len(ranges)))
    for task in tasks:
        assert [places[id(each)] for each in task] == sorted(places[id(each)] for each in task)
    # No packing at all has a largest task of less than the mean and the largest range (Graham).
    largest = max(size([each]) for each in ranges)
    assert max(map(size, tasks)) <= max(largest, size(ranges) / len(tasks) + largest * (1 - 1 / len(tasks)))


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
    assert rate_limited(limit, start, ends) == (as_spark_does(limit, start, ends) if new > limit else ends)


@pytest.mark.parametrize(("limit", "sizes", "shares"), [
    (10, [100, 300, 0], [2, 7, 0]), (10, [5, 5, 0], [5, 5, 0]), (1, [1_000, 1, 1], [1, 1, 1]),
    (10, [1_000, 1, 0], [9, 1, 0]),
    # 0.1 * 3 is more than 0.3 in doubles.
    (3, [1, 9], [1, 2]), (LARGEST, [1, 9], [1, 9]),
    # A double has no 2**63 - 1: the share would be one more than there is.
    (LARGEST - 1, [LARGEST], [LARGEST]),
])  # fmt: skip
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


# --- many small tasks -------------------------------------------------------------------------------------------------


def tasks(count: int, records: int) -> Tasks:
    return [(FetchRange("t", None, number, 0, records, leader_epoch=0),) for number in range(count)]


@pytest.mark.parametrize(("count", "records", "enough"), [
    (200, 40, 8), (32, 1, 8), (31, 1, None), (4, 1, None),
    # Two million records.
    (200, 10_000, 40), (160, 10_000, 32), (200, 12_500, 50), (200, 12_501, None),
])  # fmt: skip
def test_tasks_are_advised_that_have_50_000_records_each_or_are_eight(
    count: int, records: int, enough: int | None
) -> None:
    assert enough_tasks(tasks(count, records), asked({})) == enough
    # Who says how many there are gets no advice.
    for option in ("maxPartitions", "minPartitions", "maxRecordsPerPartition"):
        assert enough_tasks(tasks(count, records), asked({option: "100"})) is None


def test_sizes_in_words() -> None:
    assert [described(each) for each in ([], tasks(1, 7), tasks(200, 40), tasks(3, 1_234))] == [
        "no records to read now", "1 task of 7 records", "200 tasks of about 40 records",
        "3 tasks of about 1,234 records",
    ]  # fmt: skip


def test_a_batch_and_a_stream_of_many_small_tasks_log_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kafka = ScriptedKafka()
    serve(kafka, {("t", number): ScriptedLog(0, 40) for number in range(200)})
    kafka.topic_ids["t"] = uuid.UUID(int=1)
    connect_reads(kafka, monkeypatch)
    monkeypatch.setattr(kept_clients, "KEPT", kept_clients.Kept())
    line = (
        "a read of t has 200 tasks of about 40 records. To start a task costs more than to read its records: "
        "maxPartitions=8 would make 8 tasks."
    )
    options = {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}
    source: Any = KafkaDataSource(options)
    with caplog.at_level(logging.WARNING):
        assert len(source.reader(source.schema()).partitions()) == 200
        assert caplog.messages == [line]
        caplog.clear()
        stream = KafkaDataSource(options | {"startingOffsets": "earliest"}).streamReader(source.schema())
        start = stream.initialOffset()
        end = stream.latestOffset()
        for _ in range(2):
            assert len(stream.partitions(start, end)) == 200
        assert caplog.messages == [line]

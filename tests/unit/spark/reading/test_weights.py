"""How many bytes a micro-batch has: what samples of a log say, how a limit is shared out, and streams over logs whose
weights are known."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.kafka.admin.offsets import SAMPLE_BYTES, Place, Sample, sample_of
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.spark.reading.weights import LEAST_SAMPLES, MOST_SAMPLES, MOST_TURNS, Backlog, ByteLimit, shared_out
from record_sets import plain

KIB, MIB = 1024, 1024 * 1024


def partitions(count: int) -> list[TopicPartition]:
    return [TopicPartition("t", number) for number in range(count)]


# --- a sample ---------------------------------------------------------------------------------------------------------


def test_a_sample_has_the_whole_batches_and_the_offsets_that_none_has() -> None:
    first, second = plain(b"a", b"b", base_offset=10), plain(b"c", base_offset=20)
    both, size = memoryview(bytes(first) + bytes(second)), len(bytes(first))
    assert sample_of(both, 11) == Sample(10, 21, 12, size + len(bytes(second)))
    assert sample_of(both[:-1], 11) == Sample(10, 20, 12, size), "the next is cut off"
    assert sample_of(both[: size + 9], 11) == Sample(10, 12, 12, size), "before one can see what it is"
    assert sample_of(both, 4) == Sample(10, 21, 12, len(both)), "compaction has taken what was before"
    assert sample_of(both[:size], 4) == Sample(4, 12, 12, size, begins_in_gap=True)
    assert sample_of(both[:20], 11) is None
    assert sample_of(memoryview(b""), 11) is None
    # A batch that does not ascend is damaged, and not weighed.
    assert sample_of(memoryview(bytes(first) * 2), 11) == Sample(10, 12, 12, size)
    assert sample_of(both, 30) is None


# --- a backlog --------------------------------------------------------------------------------------------------------


def test_between_samples_a_log_weighs_as_much_as_they_do_on_average() -> None:
    backlog = Backlog(100, 200, (Sample(90, 100, 95, 100), Sample(150, 160, 155, 300)))
    # 20 bytes an offset up to 150, and 30 behind it.
    assert backlog.bytes == 50 * 20 + 50 * 30
    assert [backlog.up_to(size) for size in (0, 20, 990, 1_000, 1_030, 9_999)] == [101, 101, 149, 150, 151, 200]
    assert Backlog(0, 10, (Sample(90, 100, 95, 100),)).bytes == 100, "none before: as much as the first"


def test_a_micro_batch_ends_between_batches_where_a_sample_shows_one() -> None:
    backlog = Backlog(0, 20, (Sample(10, 30, 18, 100),))
    assert [backlog.between_batches(offset) for offset in (9, 10, 11, 17, 18, 19)] == [9, 10, 18, 18, 18, 19]
    assert Backlog(0, 15, backlog.samples).between_batches(12) == 15


@pytest.mark.parametrize(("sample", "end"), [
    (Sample(0, 9, 4, 9), 4), (Sample(0, 2, 2, 9), 4), (Sample(-9, 1, 1, 9), 12), (Sample(0, 99, 99, 9), 50),
    (Sample(7, 9, 8, 9), 8),
])  # fmt: skip
def test_the_first_batch_is_as_long_as_the_one_before(sample: Sample, end: int) -> None:
    assert Backlog(2, 50, (sample,)).one_batch.end == end


# --- shares -----------------------------------------------------------------------------------------------------------


def uniform(size: int, weight: int, batch: int = 1, turns: int = 0) -> Backlog:
    """So many offsets of so many bytes, in batches of `batch` records."""
    return Backlog(0, size, (Sample(0, batch, batch, batch * weight),), turns)


def shares(limit: int, *backlogs: Backlog) -> list[int]:
    return list(shared_out(limit, dict(zip(partitions(len(backlogs)), backlogs, strict=True))).values())


def test_each_gets_bytes_in_proportion_to_those_that_it_has() -> None:
    assert shares(1_000, uniform(10, 10), uniform(20, 10)) == [10, 20], "all"
    assert shares(300, uniform(100, 10), uniform(20, 100)) == [10, 2]
    assert shares(300, uniform(100, 10), uniform(0, 100)) == [30, 0]
    # The records of the second weigh a hundred times as much.
    assert shares(1_100, uniform(1_000, 1), uniform(100, 100)) == [100, 10]


def test_a_share_that_is_less_than_a_batch_goes_to_who_has_waited_for_longest() -> None:
    def small(turns: int) -> Backlog:
        return uniform(100, 10, batch=10, turns=turns)

    assert shares(150, small(0), small(2), small(1)) == [0, 10, 10]
    assert shares(1, small(0), small(0)) == [10, 0], "never nothing at all"
    assert shares(50, small(MOST_TURNS), small(1), small(MOST_TURNS + 1)) == [10, 0, 10], "whatever it weighs"
    # The share of the large one is its own.
    assert shares(1_000, uniform(1_000, 10, batch=10), *[uniform(10, 100, batch=10, turns=1)] * 2) == [83, 10, 0]


@st.composite
def backlogs(draw: st.DrawFn) -> Backlog:
    first = draw(st.integers(0, 2**62))
    size = draw(st.integers(1, 50) | st.integers(1, 2**62))
    found = []
    for offset in draw(st.lists(st.integers(max(0, first - 100), first + size), min_size=1, max_size=4)):
        batch = draw(st.integers(1, 1_000))
        span = batch + draw(st.integers(0, 10_000))
        found.append(Sample(offset, offset + span, offset + batch, draw(st.integers(61, 128 * MIB))))
    turns = draw(st.integers(0, MOST_TURNS + 2))
    return Backlog(first, first + size, tuple(sorted(found, key=lambda each: each.first)), turns)


@given(st.integers(1, 2**63 - 1) | st.integers(1, MIB), st.lists(backlogs(), min_size=1, max_size=6))
def test_shares_are_of_what_there_is_and_never_nothing(limit: int, of: list[Backlog]) -> None:
    ends = shares(limit, *of)
    assert all(each.first <= end <= each.end for each, end in zip(of, ends, strict=True))
    assert any(end > each.first for each, end in zip(of, ends, strict=True))
    got = [Backlog(each.first, end, each.samples).bytes for each, end in zip(of, ends, strict=True)]
    waited = sum(each.one_batch.bytes for each in of if each.turns >= MOST_TURNS)
    # One more batch, and an offset of each.
    heaviest = max(sample.size_bytes for each in of for sample in each.samples)
    over = waited + max(each.one_batch.bytes for each in of) + len(of) * heaviest
    assert sum(got) <= (limit + over) * (1 + 1e-9)


@given(st.integers(1, MIB), st.lists(st.integers(1, 1_000), min_size=1, max_size=12))
def test_none_waits_for_more_than_its_turns(limit: int, batches: list[int]) -> None:
    turns = [0] * len(batches)
    for _ in range(3 * MOST_TURNS):
        of = [uniform(10**9, KIB, batch, waited) for batch, waited in zip(batches, turns, strict=True)]
        turns = [0 if end else waited + 1 for end, waited in zip(shares(limit, *of), turns, strict=True)]
        assert max(turns) <= MOST_TURNS


# --- streams ----------------------------------------------------------------------------------------------------------


@dataclass
class Log:
    """`batches`: base offset, offset after the last record, and bytes of each."""

    batches: list[tuple[int, int, int]] = field(default_factory=list)

    def add(self, count: int, records: int, size_bytes: int, gap: int = 0) -> None:
        for _ in range(count):
            base = self.end + gap
            self.batches.append((base, base + records, size_bytes))

    @property
    def end(self) -> int:
        return self.batches[-1][1] if self.batches else 0

    def bytes(self, first: int, end: int) -> int:
        """As a task fetches them: batches that it shares with another are fetched twice."""
        return sum(size for base, following, size in self.batches if base < end and following > first)

    def sample(self, offset: int) -> Sample | None:
        found = [each for each in self.batches if each[1] > offset]
        fitting = sum(1 for total in accumulate(size for _, _, size in found) if total <= SAMPLE_BYTES)
        if not found:
            return None
        whole = found[: max(fitting, 1)]
        base, batch_end, _ = whole[0]
        size = sum(size for _, _, size in whole)
        is_next_seen = len(found) > len(whole) and size < SAMPLE_BYTES
        end = found[len(whole)][0] if is_next_seen else whole[-1][1]
        begins_in_gap = end == batch_end and base > offset
        return Sample(offset if begins_in_gap else base, end, batch_end, size, begins_in_gap)


class Reading:
    """A stream over logs. `sizes`: bytes of its micro-batches."""

    def __init__(self, limit: int, *logs: Log, answers: bool = True) -> None:
        self.limit = ByteLimit(limit)
        self.logs = dict(zip(partitions(len(logs)), logs, strict=True))
        self.at = dict.fromkeys(self.logs, 0)
        self.answers = answers
        self.sizes: list[int] = []
        self.asked: list[int] = []
        self.sampled_bytes = 0

    def weigh(self, places: Sequence[Place]) -> dict[Place, Sample]:
        assert len(set(places)) == len(places) <= MOST_SAMPLES
        assert all(self.at[each] <= offset < self.logs[each].end for each, offset in places)
        self.asked[-1] += len(places)
        found = {(each, offset): self.logs[each].sample(offset) for each, offset in places if self.answers}
        self.sampled_bytes += sum(sample.size_bytes for sample in found.values() if sample)
        return {place: sample for place, sample in found.items() if sample}

    def goes_on(self) -> int:
        """A micro-batch. Return how many bytes it has."""
        ends = {each: log.end for each, log in self.logs.items()}
        self.asked.append(0)
        found = dict(self.limit.limited(self.at, ends, self.weigh))
        assert found.keys() == ends.keys()
        assert all(self.at[each] <= found[each] <= end for each, end in ends.items())
        assert found != self.at or self.at == ends, "a stream that has something to read goes on"
        self.sizes.append(sum(log.bytes(self.at[each], found[each]) for each, log in self.logs.items()))
        self.at = found
        return self.sizes[-1]

    def drain(self, most: int = 10_000) -> list[int]:
        """Read all, in at most so many micro-batches, as trigger availableNow does."""
        while any(self.at[each] < log.end for each, log in self.logs.items()):
            assert len(self.sizes) < most, self.sizes[-5:]
            self.goes_on()
        return self.sizes


def log_of(*parts: tuple[int, int, int]) -> Log:
    log = Log()
    for count, records, size_bytes in parts:
        log.add(count, records, size_bytes)
    return log


@pytest.mark.parametrize("count", [1, 7, 200])
def test_micro_batches_have_the_bytes_of_the_limit(count: int) -> None:
    reading = Reading(16 * MIB, *(log_of((40_000 // count, 10, 16 * KIB)) for _ in range(count)))
    *sizes, _ = reading.drain()
    assert all(0.9 * 16 * MIB <= size <= 1.3 * 16 * MIB for size in sizes), sizes
    assert reading.sampled_bytes <= sum(reading.sizes) / 8


def test_a_stream_that_has_caught_up_reads_all_and_asks_little() -> None:
    logs = [log_of((10, 100, 10 * KIB)) for _ in range(50)]
    reading = Reading(100 * MIB, *logs)
    assert reading.drain() == [50 * 10 * 10 * KIB]
    for _ in range(20):
        for log in logs:
            log.add(1, 100, 10 * KIB)
        reading.goes_on()
    assert set(reading.sizes[1:]) == {50 * 10 * KIB}
    assert max(reading.asked[1:]) <= 2 * LEAST_SAMPLES
    asked = sum(reading.asked)
    reading.goes_on()
    assert (reading.sizes[-1], sum(reading.asked)) == (0, asked), "nothing is there, and nothing is asked"


@pytest.mark.parametrize(("before", "after"), [(100, 100_000), (100_000, 100), (61, 1_000_000)])
@pytest.mark.parametrize("at", [1, 777, 3_000])
def test_a_sudden_change_of_the_size_of_records(before: int, after: int, at: int) -> None:
    limit = 16 * MIB
    reading = Reading(limit, log_of((at, 10, 10 * before), (4_000, 10, 10 * after)))
    sizes = reading.drain()
    assert max(sizes) <= 2 * limit + 20 * max(before, after)
    # A few small ones, until it is known where they change.
    assert len(sizes) <= 12 + 1.3 * sum(sizes) / limit


def test_records_of_some_partitions_weigh_more() -> None:
    limit = 16 * MIB
    light, heavy = log_of((4_000, 1_000, 10 * KIB)), log_of((4_000, 1, 10 * KIB))
    reading = Reading(limit, light, heavy)
    *sizes, _ = reading.drain()
    assert all(0.8 * limit <= size <= 1.3 * limit for size in sizes), sizes
    assert [log.bytes(0, reading.at[each]) for each, log in reading.logs.items()] == [4_000 * 10 * KIB] * 2


def test_what_compaction_took_weighs_nothing() -> None:
    for size_bytes, limit in ((10 * KIB, MIB), (100 * KIB, 10 * MIB)):
        log = Log()
        log.add(2_000, 3, size_bytes, gap=1_000)
        reading = Reading(limit, log)
        *sizes, _ = reading.drain()
        assert max(sizes) <= 1.2 * limit
        # Of a large batch one sees no more than where it begins, and half of a gap.
        assert sum(sizes) / len(sizes) >= 0.4 * limit


def test_partitions_take_turns_if_a_batch_of_each_is_more_than_the_limit() -> None:
    count = 40
    reading = Reading(10 * MIB, *(log_of((8, 10, MIB)) for _ in range(count)))
    last = Counter[TopicPartition]()
    before = dict(reading.at)
    for number in range(1, 9):
        assert 10 * MIB <= reading.goes_on() <= 12 * MIB
        last.update({each: number - last[each] for each, at in reading.at.items() if at > before[each]})
        before = dict(reading.at)
    assert min(last[each] for each in reading.logs) >= 4, "each of them was served in four micro-batches"
    assert all(at % 10 == 0 for at in reading.at.values()), "whole batches"
    reading.drain()


def test_a_hot_partition_keeps_no_other_waiting_for_ever() -> None:
    hot, cold = log_of((5_000, 10, 100 * KIB)), log_of((3, 10, 100 * KIB))
    reading = Reading(MIB, hot, cold)
    for _ in range(3 * (MOST_TURNS + 1)):
        reading.goes_on()
    assert reading.at[TopicPartition("t", 1)] == cold.end
    assert max(reading.sizes) <= 2 * MIB


def test_without_answers_a_stream_goes_on_by_single_records() -> None:
    reading = Reading(MIB, log_of((100, 10, 100 * KIB)), log_of((100, 10, 100 * KIB)), answers=False)
    reading.goes_on()
    assert set(reading.at.values()) == {1}
    reading.answers = True
    reading.goes_on()
    assert 0.8 * MIB <= reading.goes_on() <= 1.3 * MIB
    reading.drain()


def test_a_restart_needs_no_history() -> None:
    log = log_of((1_000, 10, 100 * KIB))
    reading = Reading(10 * MIB, log)
    reading.goes_on()
    again = Reading(10 * MIB, log)
    again.at = reading.at
    assert 0.9 * 10 * MIB <= again.goes_on() <= 1.2 * 10 * MIB


def test_batches_behind_the_first_of_a_sample_are_not_read_record_by_record() -> None:
    """One sample shows both, and where the first one ends."""
    reading = Reading(1, log_of((1, 1, 61), (1, 6, 61)))
    assert reading.drain() == [61, 61]


@st.composite
def any_logs(draw: st.DrawFn) -> list[Log]:
    found = []
    for _ in range(draw(st.integers(1, 4))):
        log = Log()
        for _ in range(draw(st.integers(0, 3))):
            sizes = st.integers(61, 1_000) | st.integers(61, MIB)
            log.add(
                draw(st.integers(1, 60)), draw(st.integers(1, 50)), draw(sizes), gap=draw(st.sampled_from([0, 0, 7]))
            )
        found.append(log)
    return found


@given(st.integers(1, 16 * MIB) | st.integers(1, KIB), any_logs(), st.booleans())
def test_a_stream_comes_to_its_end_whatever_its_logs_weigh(limit: int, logs: list[Log], answers: bool) -> None:
    reading = Reading(limit, *logs, answers=answers)
    sizes = reading.drain()
    assert reading.at == {each: log.end for each, log in reading.logs.items()}
    if answers:
        # Every micro-batch but for the last of a partition has a batch or more.
        assert len(sizes) <= sum(len(log.batches) for log in logs) * 2 + len(logs)

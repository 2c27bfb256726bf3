"""Divides ranges of offsets as Spark's Kafka source does, packs them into tasks, and advises if tasks are too small.

Source: org.apache.spark.sql.kafka010.KafkaOffsetRangeCalculator. It has no packing: each range is a task there.
"""

from __future__ import annotations

import heapq
import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.options.reading import ReadConfig

log = logging.getLogger("kafka_sink")


def divide(
    ranges: Iterable[FetchRange], min_partitions: int | None, max_records_per_partition: int | None
) -> list[FetchRange]:
    """Return the ranges, cut where they have more than `max_records_per_partition` offsets, and then in proportion to
    their sizes where there are fewer than `min_partitions`. Empty ranges are left out."""
    found = [each for each in ranges if _size(each) > 0]
    if max_records_per_partition is not None:
        found = [part for each in found for part in _cut(each, -(-_size(each) // max_records_per_partition))]
    if min_partitions is None or len(found) >= min_partitions:
        return found
    total = sum(map(_size, found))
    whole = {each for each in found if _parts(_size(each), total, min_partitions) == 1}
    # The parts of small ranges are not counted for the others.
    rest = total - sum(map(_size, whole))
    wanted = max(min_partitions - len(whole), 1)
    return [part for each in found for part in _cut(each, 1 if each in whole else _parts(_size(each), rest, wanted))]


def packed(ranges: Sequence[FetchRange], max_partitions: int | None) -> list[tuple[FetchRange, ...]]:
    """Return the ranges of each task, at most `max_partitions` of them. Tasks have about as many offsets, and the
    ranges of one leader are in few tasks. The ranges of a task keep their order."""
    if max_partitions is None or len(ranges) <= max_partitions:
        return [(each,) for each in ranges]
    largest_first = sorted(range(len(ranges)), key=lambda number: -_size(ranges[number]))
    tasks = _even(ranges, largest_first, max_partitions)
    most = max(_total(ranges, task) for task in tasks)
    tasks = _by_leader(ranges, largest_first, max_partitions, most) or tasks
    return [tuple(ranges[number] for number in sorted(task)) for task in sorted(tasks, key=min)]


def _even(ranges: Sequence[FetchRange], largest_first: Iterable[int], count: int) -> list[list[int]]:
    """Give each range to the task that has the fewest offsets (LPT)."""
    tasks: list[list[int]] = [[] for _ in range(count)]
    sizes = [(0, place) for place in range(count)]
    for number in largest_first:
        size, place = heapq.heappop(sizes)
        tasks[place].append(number)
        heapq.heappush(sizes, (size + _size(ranges[number]), place))
    return tasks


def _by_leader(
    ranges: Sequence[FetchRange], largest_first: Sequence[int], count: int, most: int
) -> list[list[int]] | None:
    """Give the ranges of one leader to as few tasks as hold them, with at most `most` offsets in each. None if they do
    not fit so."""
    led: dict[int, list[int]] = defaultdict(list)
    for number in largest_first:
        led[ranges[number].leader].append(number)
    tasks: list[list[int]] = [[] for _ in range(count)]
    sizes = [0] * count
    if len(led) == 1:
        return None
    for of_leader in sorted(led.values(), key=lambda numbers: -_total(ranges, numbers)):
        own: list[int] = []
        for number in of_leader:
            size = _size(ranges[number])
            place = next((place for place in own if sizes[place] + size <= most), None)
            if place is None:
                place = min(range(count), key=sizes.__getitem__)
                own.append(place)
            tasks[place].append(number)
            sizes[place] += size
            if sizes[place] > most:
                return None
    return tasks if all(tasks) else None


def _total(ranges: Sequence[FetchRange], numbers: Iterable[int]) -> int:
    return sum(_size(ranges[number]) for number in numbers)


def _size(range_: FetchRange) -> int:
    return range_.end - range_.first


def _parts(size: int, total: int, wanted: int) -> int:
    """Return how many parts of at least one offset a range gets of those `wanted`, by its share of `total`. Halves are
    rounded up, as Java does."""
    return min(max((2 * size * wanted + total) // (2 * total), 1), size)


def _cut(range_: FetchRange, parts: int) -> Iterator[FetchRange]:
    """The last parts are the larger ones."""
    first, left = range_.first, _size(range_)
    for part in range(parts):
        size = left // (parts - part)
        left -= size
        yield replace(range_, first=first, end=first + size)
        first += size


# --- advice about small tasks -----------------------------------------------------------------------------------------

# A task costs 25 to 50 ms of CPU, as much as reading so many records (docs/design/performance.md, "Reads in Spark").
RECORDS_WORTH_A_TASK = 50_000
# Enough to keep a small cluster busy. With fewer tasks than four times as many there is little to gain.
FEWEST, WORTHWHILE = 8, 4

Tasks = Sequence[Sequence[FetchRange]]


def enough_tasks(tasks: Tasks, config: ReadConfig) -> int | None:
    """Return the maxPartitions to advise. None: tasks are worth their cost, or an option says how many."""
    if config.max_partitions or config.min_partitions or config.max_records_per_partition:
        return None
    enough = max(FEWEST, -(-_records(tasks) // RECORDS_WORTH_A_TASK))
    return enough if len(tasks) >= WORTHWHILE * enough else None


def described(tasks: Tasks) -> str:
    """Return how many there are, and how large. Offsets are counted: a compacted topic has fewer records."""
    if not tasks:
        return "no records to read now"
    each = f"{round(_records(tasks) / len(tasks)):,} records"
    return f"1 task of {each}" if len(tasks) == 1 else f"{len(tasks)} tasks of about {each}"


def advise(tasks: Tasks, config: ReadConfig) -> bool:
    """Log a line if the tasks are too small. Return True if it did."""
    enough = enough_tasks(tasks, config)
    if enough is not None:
        topics = sorted({each.topic for ranges in tasks for each in ranges})
        log.warning(
            "a read of %s has %s. To start a task costs more than to read its records: "
            "maxPartitions=%d would make %d tasks.",
            topics[0] if len(topics) == 1 else f"{len(topics)} topics",
            described(tasks),
            enough,
            enough,
        )
    return enough is not None


def _records(tasks: Tasks) -> int:
    return sum(_size(each) for ranges in tasks for each in ranges)

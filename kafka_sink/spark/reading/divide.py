"""Divides ranges of offsets into those of tasks, as Spark's Kafka source does. Pure.

Source: org.apache.spark.sql.kafka010.KafkaOffsetRangeCalculator.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from kafka_sink.kafka.consumer.fetch_range import FetchRange


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

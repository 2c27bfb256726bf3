"""Compares the topic that a transformation reads with the topic that it writes: each record once, and in order. Pure.

A record of the written topic names where it comes from: its value is `<partition>:<offset>:<VALUE>`. The transformation
leaves out records whose value ends with DROPPED.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from read_back import Placed

VALUE = "concat(partition, ':', offset, ':', upper(CAST(value AS STRING)))"
DROPPED = "7"
WHERE = f"NOT endswith(CAST(value AS STRING), '{DROPPED}')"

# Partition and offset in the topic that is read.
Origin = tuple[int, int]
# Key and value of the record in the topic that is written.
Transformed = tuple[bytes | None, bytes]


@dataclass(frozen=True, slots=True)
class Differences:
    expected: int
    found: int
    lost: int
    doubled: int
    # Never in the topic that is read, aborted there, or another function of it.
    wrong: int
    # Pairs of neighbours: behind a record that comes from a later offset of the same partition.
    out_of_order: int

    @property
    def none(self) -> bool:
        return self.expected == self.found and not (self.lost or self.doubled or self.wrong or self.out_of_order)


def transformed(read: Iterable[Placed]) -> dict[Origin, Transformed]:
    return {
        (partition, offset): (record.key, b"%d:%d:%s" % (partition, offset, (record.value or b"").upper()))
        for partition, offset, record in read
        if not (record.value or b"").endswith(DROPPED.encode())
    }


def compared(expected: dict[Origin, Transformed], written: Iterable[Placed]) -> Differences:
    """`written`: the records of each partition in their order.

    Records that come from one partition and are in one partition keep their order: a task reads a partition of Kafka,
    and micro-batches become visible one after another.
    """
    seen: set[Origin] = set()
    last: dict[tuple[int, int], int] = {}
    found = doubled = wrong = out_of_order = 0
    for partition, _, record in written:
        found += 1
        origin = origin_of(record.value or b"")
        if origin is None or expected.get(origin) != (record.key, record.value):
            wrong += 1
        elif origin in seen:
            doubled += 1
        else:
            seen.add(origin)
            source, offset = origin
            out_of_order += offset < last.get((source, partition), -1)
            last[source, partition] = offset
    lost = len(expected.keys() - seen)
    return Differences(len(expected), found, lost, doubled, wrong, out_of_order)


def origin_of(value: bytes) -> Origin | None:
    partition, _, rest = value.partition(b":")
    offset, _, _ = rest.partition(b":")
    return (int(partition), int(offset)) if partition.isdigit() and offset.isdigit() else None

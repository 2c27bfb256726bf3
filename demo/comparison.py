"""Compares what was read from a topic with what had to be written: records, copies, places and order.

A record is known by a digest of its key, value, headers and timestamp. No two expected records are alike,
so a digest tells the file and the row it came from: order is checked without a number in the data. One file
is one Spark partition in the demo, so rows of a file that share a Kafka partition must come back in the
file's order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from record_digest import Checksum, Record


@dataclass(slots=True)
class PartitionSeen:
    """What came out of one Kafka partition."""

    records: int = 0
    first_offset: int = -1
    last_offset: int = -1
    value_bytes: int = 0
    keys: set[bytes] = field(default_factory=set)


class Comparison:
    """`expect` every source in its order, then `see` every record in each partition's order."""

    def __init__(self) -> None:
        self.expected_checksum = Checksum()
        self.seen_checksum = Checksum()
        self.partitions: dict[int, PartitionSeen] = {}
        self.without_key = 0
        self.unexpected = 0
        self.repeated = 0
        self.out_of_order = 0
        self._places: dict[bytes, tuple[int, int]] = {}  # digest -> (source, row)
        self._seen: set[bytes] = set()
        self._last_row: dict[tuple[int, int], int] = {}  # (source, partition) -> row
        self._sources = 0

    def expect(self, source: Iterable[Record]) -> None:
        """The records of one file, in order. ValueError if two are alike: nobody could tell their places."""
        for row, record in enumerate(source):
            digest = record.digest()
            if digest in self._places:
                raise ValueError(f"row {row} of source {self._sources} is like another row")
            self._places[digest] = (self._sources, row)
            self.expected_checksum.add(digest)
            self.without_key += record.key is None
        self._sources += 1

    def see(self, partition: int, offset: int, record: Record) -> None:
        """The next record of `partition`."""
        digest = record.digest()
        self.seen_checksum.add(digest)
        self._count(partition, offset, record)
        place = self._places.get(digest)
        if place is None:
            self.unexpected += 1
        elif digest in self._seen:
            self.repeated += 1
        else:
            self._seen.add(digest)
            source, row = place
            self.out_of_order += row < self._last_row.get((source, partition), -1)
            self._last_row[source, partition] = row

    def _count(self, partition: int, offset: int, record: Record) -> None:
        seen = self.partitions.setdefault(partition, PartitionSeen(first_offset=offset))
        seen.records += 1
        seen.last_offset = offset
        seen.value_bytes += len(record.value or b"")
        if record.key is not None:
            seen.keys.add(record.key)

    @property
    def expected_count(self) -> int:
        return len(self._places)

    @property
    def seen_count(self) -> int:
        return sum(seen.records for seen in self.partitions.values())

    @property
    def missing(self) -> int:
        return len(self._places) - len(self._seen)

    @property
    def keys(self) -> set[bytes]:
        return set().union(*(seen.keys for seen in self.partitions.values()))

    @property
    def scattered_keys(self) -> int:
        """Keys found in more than one partition, each counted as often as it is too many."""
        return sum(len(seen.keys) for seen in self.partitions.values()) - len(self.keys)

    @property
    def ordered_runs(self) -> int:
        """Pairs of a source and a partition whose order was followed."""
        return len(self._last_row)

    def differences(self) -> list[str]:
        """What is wrong, in words; empty when topic and source agree."""
        found = {
            "missing from the topic": self.missing,
            "in the topic and not in the source": self.unexpected,
            "in the topic more than once": self.repeated,
            "out of order": self.out_of_order,
            "keys in more than one partition": self.scattered_keys,
        }
        words = [f"{count:,} {what}" for what, count in found.items() if count]
        if self.expected_checksum != self.seen_checksum:
            words.append("checksums differ")
        return words

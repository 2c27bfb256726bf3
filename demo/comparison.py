"""Compares the records of a topic with the expected records: content, duplicates, partitions and order.

A record is identified by a digest of its key, value, headers and timestamp. All expected records differ, so a digest
identifies the file and the row. So the order is checked without a number in the data. In the demo one file is one Spark
partition. So rows of a file in the same Kafka partition must be in the file's order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from record_digest import Checksum, Record


@dataclass(slots=True)
class PartitionSeen:
    """The records that were read from one Kafka partition."""

    records: int = 0
    first_offset: int = -1
    last_offset: int = -1
    value_bytes: int = 0
    keys: set[bytes] = field(default_factory=set)


class Comparison:
    """Call `expect` for each source in order, then `see` for each record in the partition's order."""

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
        """Add the expected records of one file, in order. Raises ValueError if two are equal, as their places would be
        ambiguous."""
        for row, record in enumerate(source):
            digest = record.digest()
            if digest in self._places:
                raise ValueError(f"row {row} of source {self._sources} is like another row")
            self._places[digest] = (self._sources, row)
            self.expected_checksum.add(digest)
            self.without_key += record.key is None
        self._sources += 1

    def anew(self) -> Comparison:
        """Return a comparison with the same expected records, of which none is seen yet."""
        made = Comparison()
        made.expected_checksum, made.without_key = self.expected_checksum, self.without_key
        made._places, made._sources = self._places, self._sources
        return made

    def see(self, partition: int, offset: int, record: Record) -> None:
        """Add the next record of `partition`."""
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
        """Count of surplus partitions over all keys. 0 if each key is in one partition."""
        return sum(len(seen.keys) for seen in self.partitions.values()) - len(self.keys)

    @property
    def ordered_runs(self) -> int:
        """Count of pairs of a source and a partition whose order was checked."""
        return len(self._last_row)

    def differences(self) -> list[str]:
        """Return the differences in words; empty if topic and source agree."""
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

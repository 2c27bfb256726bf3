"""Compares what was read from a topic with what had to be written: records, copies, places and order.

A record is known by a digest of its key, value, headers and timestamp. No two expected records are alike,
so a digest tells the file and the row it came from: order is checked without a number in the data. One file
is one Spark partition in the demo, so rows of a file that share a Kafka partition must come back in the
file's order.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b

DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Record:
    """A record as a Kafka reader sees it."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int

    def digest(self) -> bytes:
        """16 bytes; every part goes in with its length, so that no two records share an encoding."""
        parts = [framed(self.key), framed(self.value), struct.pack(">q", self.timestamp_ms)]
        for name, value in self.headers:
            parts += [framed(name.encode()), framed(value)]
        return blake2b(b"".join(parts), digest_size=DIGEST_BYTES).digest()


def framed(part: bytes | None) -> bytes:
    return struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part


@dataclass(slots=True)
class Checksum:
    """The sum of digests: the same in any order, another when a record is missing, doubled or changed."""

    total: int = 0

    def add(self, digest: bytes) -> None:
        self.total = (self.total + int.from_bytes(digest, "big")) % (1 << 8 * DIGEST_BYTES)

    def __str__(self) -> str:
        return f"{self.total:0{2 * DIGEST_BYTES}x}"


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

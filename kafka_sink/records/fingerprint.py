"""The fingerprint of a slot's rows, by which a replay of a micro-batch is told from other rows.

Scope: the sum of the rows' hashes (row_hashes.py says which) and their number, as a short string for a marker and for
messages. Two fingerprints are equal if and only if the rows were, in any order and in any Arrow batches, but for one
chance in 2^64; a row that comes twice counts twice.

A row is what a record is made of, as Spark delivered it: topic, partition, key, value, headers in their order,
timestamp. A null is not an empty value; but a column that is not there is one of nulls, a null list of headers an empty
one, text its UTF-8 bytes and a time its millisecond, as they become the same records. Nothing that the sink adds is in
it, as that would differ from run to run: the time of rows without one, the partition of rows that name none, offsets,
batches, compression. Nor are options, such as `topic`.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.kernel import KERNEL, Kernel

# Says what is hashed and how. Fingerprints of two versions cannot be compared: to change one is to change this.
VERSION = 1

_WORD = 2**64


class Fingerprint:
    """Of the rows seen so far; at first there are none."""

    __slots__ = ("_high", "_kernel", "_low", "row_count")

    def __init__(self, kernel: Kernel = KERNEL) -> None:
        self._kernel = kernel
        self._low = self._high = 0
        self.row_count = 0

    def update(self, columns: RecordColumns) -> None:
        """Adds the rows of an Arrow batch. Raises ValueError if that is corrupt."""
        low, high = self._kernel.sum_row_hashes(columns)
        self._low = (self._low + low) % _WORD
        self._high = (self._high + high) % _WORD
        self.row_count += columns.num_rows

    def digest(self) -> str:
        """version:rows:sum, the sum as 32 hexadecimal digits."""
        return f"{VERSION}:{self.row_count}:{self._high:016x}{self._low:016x}"


def total(digests: Iterable[str]) -> str:
    """The digest of all their rows together, however these were spread; of several versions it equals none of one."""
    versions: set[str] = set()
    rows = low = high = 0
    for digest in digests:
        version, row_count, sums = digest.split(":")
        versions.add(version)
        rows += int(row_count)
        high += int(sums[:16], 16)
        low += int(sums[16:], 16)
    return f"{','.join(sorted(versions))}:{rows}:{high % _WORD:016x}{low % _WORD:016x}"

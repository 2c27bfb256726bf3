"""The fingerprint of a slot's rows. It shows if a replay of a micro-batch has the same rows.

Scope: the sum of the rows' hashes (defined in row_hashes.py) and their number, as a short string for a marker and for
messages. Two fingerprints are equal if and only if the rows are equal, in any order and in any Arrow batches, except
with a probability of 2^-64. A row that occurs twice counts twice.

A row is what a record is made of, as Spark delivered it: topic, partition, key, value, headers in order, timestamp. A
null differs from an empty value. But values that become the same record are equal: a missing column and a column of
nulls, a null list of headers and an empty one, a text and its UTF-8 bytes, a time and its millisecond. Nothing that the
sink adds is included, because it would differ from run to run: the default time, the chosen partition, offsets,
batches, compression. Options such as `topic` are not included either.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafka_sink.records.columns import RecordColumns
from kafka_sink.records.kernel import KERNEL, Kernel

# Identifies what is hashed and how. Increase it with any change: fingerprints of two versions cannot be compared.
VERSION = 1

_WORD = 2**64


class Fingerprint:
    """The fingerprint of the rows seen so far, initially none."""

    __slots__ = ("_high", "_kernel", "_low", "row_count")

    def __init__(self, kernel: Kernel = KERNEL) -> None:
        self._kernel = kernel
        self._low = self._high = 0
        self.row_count = 0

    def update(self, columns: RecordColumns) -> None:
        """Add the rows of an Arrow batch. Raises ValueError if the batch is corrupt."""
        low, high = self._kernel.sum_row_hashes(columns)
        self._low = (self._low + low) % _WORD
        self._high = (self._high + high) % _WORD
        self.row_count += columns.num_rows

    def digest(self) -> str:
        """Return version:rows:sum, with the sum as 32 hexadecimal digits."""
        return f"{VERSION}:{self.row_count}:{self._high:016x}{self._low:016x}"


def total(digests: Iterable[str]) -> str:
    """Return the digest of all rows of `digests` together. With several versions, it differs from any digest of one."""
    versions: set[str] = set()
    rows = low = high = 0
    for digest in digests:
        version, row_count, sums = digest.split(":")
        versions.add(version)
        rows += int(row_count)
        high += int(sums[:16], 16)
        low += int(sums[16:], 16)
    return f"{','.join(sorted(versions))}:{rows}:{high % _WORD:016x}{low % _WORD:016x}"

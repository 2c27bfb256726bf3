"""A record as a Kafka reader sees it, its digest, and the checksum of many records, for comparisons.

A digest covers key, value, headers and timestamp. The checksum of records does not depend on their order, so it can be
computed from the source, in any order, and compared with what consumers of a topic's partitions have seen.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
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
        """Return 16 bytes. Every part is hashed with its length, so that different records have different encodings."""
        parts = [framed(self.key), framed(self.value), struct.pack(">q", self.timestamp_ms)]
        for name, value in self.headers:
            parts += [framed(name.encode()), framed(value)]
        return blake2b(b"".join(parts), digest_size=DIGEST_BYTES).digest()


def framed(part: bytes | None) -> bytes:
    return struct.pack(">i", -1) if part is None else struct.pack(">i", len(part)) + part


@dataclass(slots=True)
class Checksum:
    """The sum of digests. It does not depend on the order, and changes if a record is missing, doubled or changed."""

    total: int = 0

    def add(self, digest: bytes) -> None:
        self.total = (self.total + int.from_bytes(digest, "big")) % (1 << 8 * DIGEST_BYTES)

    def __str__(self) -> str:
        return f"{self.total:0{2 * DIGEST_BYTES}x}"

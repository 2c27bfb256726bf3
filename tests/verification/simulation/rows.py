"""The rows of a write, as Arrow batches for the writer and as the records that must be read back.

A value, or where that is null the key, starts with who wrote it: writer, write, and a number that counts through the
write. So every record of a log names its row, and the rows of a write that share a partition must have ascending
numbers there.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

# What the virtual clock's 0 is for rows without a timestamp.
EPOCH_MS = 1_700_000_000_000


class RowId(NamedTuple):
    writer: int
    write: int
    number: int


@dataclass(frozen=True, slots=True)
class Row:
    """One row. `partition` is what the row asks for; None: the partitioner decides. `timestamp_ms` None: now."""

    row_id: RowId
    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int | None


@dataclass(frozen=True, slots=True)
class RowShape:
    """What the rows of a write look like."""

    topics: tuple[str, ...]
    value_bytes: tuple[int, ...]
    keyed: float
    explicit_partitions: int
    with_headers: bool
    with_timestamps: bool
    with_tombstones: bool
    keys: int = 20


def make_rows(rng: random.Random, shape: RowShape, writer: int, write: int, start: int, count: int) -> list[Row]:
    return [_row(rng, shape, RowId(writer, write, number)) for number in range(start, start + count)]


def _row(rng: random.Random, shape: RowShape, row_id: RowId) -> Row:
    explicit = shape.explicit_partitions and rng.random() < 0.5
    headers = [(f"h{i}", rng.choice([None, b"", rng.randbytes(5)])) for i in range(rng.randint(0, 2))]
    key = b"key-%d" % rng.randrange(shape.keys) if rng.random() < shape.keyed else None
    tombstone = shape.with_tombstones and rng.random() < 0.2
    return Row(
        row_id=row_id,
        topic=rng.choice(shape.topics),
        partition=rng.randrange(shape.explicit_partitions) if explicit else None,
        key=_identify(row_id) if tombstone else key,
        value=None if tombstone else _identify(row_id) + rng.randbytes(rng.choice(shape.value_bytes)),
        headers=tuple(headers) if shape.with_headers else (),
        timestamp_ms=rng.randrange(EPOCH_MS) if shape.with_timestamps and rng.random() < 0.5 else None,
    )


def _identify(row_id: RowId) -> bytes:
    return b"%d/%d/%d|" % row_id


def row_id_of(key: bytes | None, value: bytes | None) -> RowId | None:
    """None for a record that nobody wrote."""
    text, bar, _ = (value or key or b"").partition(b"|")
    try:
        return RowId(*map(int, text.split(b"/"))) if bar else None
    except (ValueError, TypeError):
        return None


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def arrow_batch(rows: list[Row]) -> pa.RecordBatch:
    """As Spark would hand it over."""
    return pa.record_batch(
        {
            "value": pa.array([row.value for row in rows], pa.binary()),
            "key": pa.array([row.key for row in rows], pa.binary()),
            "topic": pa.array([row.topic for row in rows], pa.string()),
            "partition": pa.array([row.partition for row in rows], pa.int32()),
            "headers": pa.array(
                [[{"key": key, "value": value} for key, value in row.headers] for row in rows], HEADERS
            ),
            "timestamp": pa.array([row.timestamp_ms for row in rows], pa.timestamp("ms")),
        }
    )

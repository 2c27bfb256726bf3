"""Recovers rows from their records, for dead letters of rows that their leader refused.

Uses Python per row, because such rows are few or their batches were refused before. Two facts cannot be recovered: if
the row or the partitioner chose the partition, and if the time was the row's own or the write's.

Source: DefaultRecord.readFrom.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SentRow:
    """`body`: key, value and headers as in a record (`record_runs.records_at`)."""

    topic: str
    partition: int
    timestamp_ms: int
    body: bytes


def rows_before(sent: Iterable[SentRow], *, added_headers: int) -> pa.RecordBatch:
    """Return the rows as in `bad_rows.plain`. `added_headers`: the number of last headers that the sink has added."""
    binary = pa.large_binary()
    entry = pa.struct([("key", binary), ("value", binary)])
    rows = [(row, *_read(row.body)) for row in sent]
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([key for _, key, _, _ in rows], binary),
            "value": pa.array([value for _, _, value, _ in rows], binary),
            "topic": pa.array([row.topic for row, *_ in rows], pa.string()),
            "partition": pa.array([row.partition for row, *_ in rows], pa.int32()),
            "timestamp": pa.array([row.timestamp_ms for row, *_ in rows], pa.timestamp("ms")),
            "headers": pa.array(
                [_entries(headers[: len(headers) - added_headers]) for *_, headers in rows], pa.large_list(entry)
            ),
        }
    )


def key_bytes_of(body: bytes) -> int | None:
    """Return the length of the key in bytes, or None without a key."""
    key = _Reader(body).text()
    return None if key is None else len(key)


def _entries(headers: list[tuple[bytes | None, bytes | None]]) -> list[dict[str, bytes | None]]:
    return [{"key": key, "value": value} for key, value in headers]


def _read(body: bytes) -> tuple[bytes | None, bytes | None, list[tuple[bytes | None, bytes | None]]]:
    reader = _Reader(body)
    key, value = reader.text(), reader.text()
    count = reader.number()
    return key, value, [(reader.text(), reader.text()) for _ in range(count)]


class _Reader:
    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def number(self) -> int:
        zigzag = shift = 0
        while (byte := self._body[self._at]) > 0x7F:
            zigzag |= (byte & 0x7F) << shift
            shift += 7
            self._at += 1
        self._at += 1
        zigzag |= byte << shift
        return (zigzag >> 1) ^ -(zigzag & 1)

    def text(self) -> bytes | None:
        size = self.number()
        if size < 0:
            return None
        self._at += size
        return self._body[self._at - size : self._at]

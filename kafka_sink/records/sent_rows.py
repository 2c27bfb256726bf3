"""Rows as they were before they were records: what a dead letter has of one that its leader refused.

Python a row, as they are few, or every batch of them was refused before. What the sink did not get apart is not told:
a partition that the row named from one that the partitioner chose, its own time from that of the write.

Source: DefaultRecord.readFrom.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SentRow:
    """`body`: key, value and headers as they stand in a record (`record_runs.records_at`)."""

    topic: str
    partition: int
    timestamp_ms: int
    body: bytes


def rows_before(sent: Iterable[SentRow], *, added_headers: int) -> pa.RecordBatch:
    """As `bad_rows.plain` has them. `added_headers`: so many of each one's last are the sink's own."""
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
    """How long the key is. None: there is none."""
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

"""Arrow batches of many partitions: small ones are joined."""

from __future__ import annotations

import pyarrow as pa

from kafka_sink.records.decoder import DEFAULT_LIMITS


class Joined:
    """Joins record batches of many partitions into few, in their order: Spark takes each apart at a cost of its own.

    Until one is full it holds `most_rows` and `most_bytes` at most, and the same again while they are copied.
    """

    def __init__(self, most_rows: int = DEFAULT_LIMITS.most_rows, most_bytes: int = DEFAULT_LIMITS.most_bytes) -> None:
        self._most_rows, self._most_bytes = most_rows, most_bytes
        self._parts: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """Take a record batch. Return those before it as one, if it does not fit beside them."""
        rows, size_bytes = self._rows + batch.num_rows, self._bytes + batch.nbytes
        full = self.rest() if rows > self._most_rows or size_bytes > self._most_bytes else None
        self._parts.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        return full

    def rest(self) -> pa.RecordBatch | None:
        """Return what was taken and not returned yet."""
        parts, self._parts, self._rows, self._bytes = self._parts, [], 0, 0
        if len(parts) < 2:
            return parts[0] if parts else None
        (whole,) = pa.Table.from_batches(parts).combine_chunks().to_batches()
        return whole

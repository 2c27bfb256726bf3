"""Limits how fast one task may hand over its rows: a token bucket that begins empty and holds little.

    limit = RateLimit(Rate(rows_per_s=250.0), now_ms=0)
    limit.rows_at_once(10_000, 1_000_000)       # 25: a tenth of a second's worth is cut off an Arrow batch at a time
    limit.take(25, 2_500, now_ms=0)             # 100: they may go in 100 ms

Tokens are paid before rows go. So from the start of the task to any moment, the task never exceeds the rate. A series
of short micro-batches is not faster than one long task. A task that fell behind (a slow source, a busy CPU) may catch
up with at most BURST_MS worth of tokens.

The bucket is stored as one time: until when all taken tokens are paid. This is ATM's generic cell rate algorithm (ITU-T
I.371), which is equivalent to a bucket. Rows and bytes have one bucket each, and both must be paid. Pure: the client
waits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kafka_sink.errors import RateOutlastsTransaction

# Also the size of a slice: smaller slices would be more, and each costs about 0.2 ms whatever its size.
BURST_MS = 100


@dataclass(frozen=True, slots=True)
class Rate:
    """The limits of one task; None: no limit. Bytes count keys, values and headers."""

    rows_per_s: float | None = None
    bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The transaction of a task. Brokers abort it `timeout_ms` after its begin; a slow task may take longer."""

    transactional_id: str
    timeout_ms: int


class _Bucket:
    def __init__(self, per_s: float, now_ms: int) -> None:
        self._ms_each = 1000 / per_s
        self._paid_until_ms = float(now_ms)

    def fits(self) -> float:
        """Return how many tokens BURST_MS is worth."""
        return BURST_MS / self._ms_each

    def take(self, count: int, now_ms: int) -> float:
        """Take `count` tokens. Return when they are paid (ms)."""
        self._paid_until_ms = max(self._paid_until_ms, now_ms - BURST_MS) + count * self._ms_each
        return self._paid_until_ms


class RateLimit:
    """The rate limit of one task from `now_ms` on, on a clock that never goes back. `transaction`: the transaction of
    the rows, begun at `now_ms` or earlier."""

    def __init__(self, rate: Rate, *, now_ms: int, transaction: OpenTransaction | None = None) -> None:
        self._rows = None if rate.rows_per_s is None else _Bucket(rate.rows_per_s, now_ms)
        self._bytes = None if rate.bytes_per_s is None else _Bucket(rate.bytes_per_s, now_ms)
        self._began_ms = now_ms
        self._transaction = transaction
        self._row_count = 0

    def rows_at_once(self, row_count: int, byte_count: int) -> int:
        """Return how many of `row_count` rows, with `byte_count` bytes in all, are worth about BURST_MS; at least 1."""
        fit = float(row_count)
        if self._rows is not None:
            fit = min(fit, self._rows.fits())
        if self._bytes is not None and byte_count:
            fit = min(fit, self._bytes.fits() * row_count / byte_count)
        return max(1, int(fit))

    def take(self, row_count: int, byte_count: int, now_ms: int) -> int:
        """Take tokens for rows that are ready at `now_ms`. Return when they may go (ms): `now_ms` or later. The caller
        must wait until then before it takes tokens for the next rows.

        Raises RateOutlastsTransaction if the brokers will have aborted the transaction by then.
        """
        goes_ms = float(now_ms)
        if self._rows is not None:
            goes_ms = max(goes_ms, self._rows.take(row_count, now_ms))
        if self._bytes is not None:
            goes_ms = max(goes_ms, self._bytes.take(byte_count, now_ms))
        transaction = self._transaction
        if transaction is not None and goes_ms >= self._began_ms + transaction.timeout_ms:
            raise RateOutlastsTransaction(
                transactional_id=transaction.transactional_id,
                timeout_ms=transaction.timeout_ms,
                row_count=self._row_count,
            )
        self._row_count += row_count
        return math.ceil(goes_ms)

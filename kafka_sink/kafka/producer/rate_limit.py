"""How fast one task may hand its rows over: a token bucket that begins empty and holds little.

    limit = RateLimit(Rate(rows_per_s=250.0), now_ms=0)
    limit.rows_at_once(10_000, 1_000_000)       # 25: a tenth of a second's worth is cut off an Arrow batch at a time
    limit.take(25, 2_500, now_ms=0)             # 100: they may go in 100 ms

Tokens are paid before rows go, so that from the task's begin to any moment no more has gone than the rate allows, and a
stream of short micro-batches is no faster than one long task. A task that comes late (its source was slow, or the
processor busy with others) may catch up with BURST_MS worth and no more.

The bucket is kept as one time: until when all that was taken is paid for (ATM's generic cell rate algorithm, ITU-T
I.371, which is the same as a bucket). Rows and bytes have one each; both must be paid. Pure: who waits is the client.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from kafka_sink.errors import RateOutlastsTransaction

# Also how much goes at once: less would be more slices, each of which costs some 0.2 ms whatever is in it.
BURST_MS = 100


@dataclass(frozen=True, slots=True)
class Rate:
    """Of one task. None: no such bound. Bytes are those of keys, values and headers."""

    rows_per_s: float | None = None
    bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """What a slow task may outlast: brokers abort it `timeout_ms` after its begin."""

    transactional_id: str
    timeout_ms: int


class _Bucket:
    def __init__(self, per_s: float, now_ms: int) -> None:
        self._ms_each = 1000 / per_s
        self._paid_until_ms = float(now_ms)

    def fits(self) -> float:
        """How many are BURST_MS worth."""
        return BURST_MS / self._ms_each

    def take(self, count: int, now_ms: int) -> float:
        """When `count` are paid for."""
        self._paid_until_ms = max(self._paid_until_ms, now_ms - BURST_MS) + count * self._ms_each
        return self._paid_until_ms


class RateLimit:
    """Of one task, from `now_ms` on, a clock that never goes back. `transaction`: the one its rows are in, which began
    no later."""

    def __init__(self, rate: Rate, *, now_ms: int, transaction: OpenTransaction | None = None) -> None:
        self._rows = None if rate.rows_per_s is None else _Bucket(rate.rows_per_s, now_ms)
        self._bytes = None if rate.bytes_per_s is None else _Bucket(rate.bytes_per_s, now_ms)
        self._began_ms = now_ms
        self._transaction = transaction
        self._row_count = 0

    def rows_at_once(self, row_count: int, byte_count: int) -> int:
        """How many of `row_count` rows, of `byte_count` bytes together, are about BURST_MS worth; at least one."""
        fit = float(row_count)
        if self._rows is not None:
            fit = min(fit, self._rows.fits())
        if self._bytes is not None and byte_count:
            fit = min(fit, self._bytes.fits() * row_count / byte_count)
        return max(1, int(fit))

    def take(self, row_count: int, byte_count: int, now_ms: int) -> int:
        """When rows may go that are to be handed over at `now_ms`: then, or later. Rows are to wait for it before the
        next are taken.

        Raises RateOutlastsTransaction: by then the brokers have aborted the transaction.
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

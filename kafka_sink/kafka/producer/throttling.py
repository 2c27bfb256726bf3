"""What slows one write down: the quotas of brokers (`Throttling`), and the rate limit of its options (`RateLimit`).

A broker that takes a Produce above the client's quota answers at once. Then it reads nothing for B/T - W, without an
upper bound. B is the bytes of its last window W (about ten seconds), and T is the quota (KIP-219; ClientQuotaManager,
QuotaUtils). With a quota of processor time, a broker pauses the connection for up to quota.window.size.seconds.

The rate covers only the last minutes, because a quota may change. It starts at the first throttle, because brokers let
a first window pass. The rest of the current throttle counts at once: 1 MB and then 4 s of nothing are 250 kB/s.

Pure: times are arguments, from a clock that never goes back. `waiting`: bytes that wait for a node, by node id.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kafka_sink.errors import RateOutlastsTransaction

# A rate covers the last one to two of these windows.
WINDOW_MS = 60_000
# A node counts as throttling for this long after a throttle ends, because the next throttle is likely.
JUST_NOW_MS = 1_000
# A write logs throttling after the first value of throttled time, and then after each further second value.
FIRST_REPORT_MS, REPORT_EVERY_MS = 5_000, 30_000


@dataclass(frozen=True, slots=True)
class Throttled:
    """`throttled_ms`: throttled time of the write until now. `bytes_per_s`: what the throttling brokers take, or None
    if nothing yet. `rest_ms`: how long they need for the waiting bytes, as far as known."""

    throttled_ms: int
    bytes_per_s: float | None
    waiting_bytes: int
    rest_ms: int


@dataclass(slots=True)
class _Window:
    since_ms: int
    taken_bytes: int = 0


@dataclass(slots=True)
class _Node:
    """`windows`: at most two, the older one first."""

    until_ms: int
    windows: list[_Window]

    def take(self, size_bytes: int, now_ms: int) -> None:
        if now_ms - self.windows[-1].since_ms >= WINDOW_MS:
            self.windows = [self.windows[-1], _Window(now_ms)]
        self.windows[-1].taken_bytes += size_bytes

    def throttles(self, now_ms: int) -> bool:
        return now_ms <= self.until_ms + JUST_NOW_MS

    def bytes_per_s(self, now_ms: int) -> float:
        taken_bytes = sum(window.taken_bytes for window in self.windows)
        return taken_bytes * 1_000 / max(1, max(now_ms, self.until_ms) - self.windows[0].since_ms)

    def rest_ms(self, waiting_bytes: int, now_ms: int) -> int:
        """Return the least time (ms) until `waiting_bytes` are taken. With no rate yet, only the throttle is known."""
        rate = self.bytes_per_s(now_ms)
        return max(self.until_ms - now_ms, round(waiting_bytes * 1_000 / rate) if rate else 0)


@dataclass(slots=True)
class Throttling:
    _before_ms: int = 0
    _now_ms: int = 0
    _report_at_ms: int = FIRST_REPORT_MS
    _nodes: dict[int, _Node] = field(default_factory=dict)

    def began(self, throttled_ms: int) -> None:
        """Begin a write. `throttled_ms` is the throttled time of the writes before it."""
        self._before_ms = self._now_ms = throttled_ms
        self._report_at_ms = FIRST_REPORT_MS
        self._nodes.clear()

    def looked(self, now_ms: int, throttled_ms: int, until_ms: Mapping[int, int]) -> None:
        """`throttled_ms`: of all writes until now. `until_ms`: node id -> end of its last throttle, past or future."""
        self._now_ms = throttled_ms
        for node_id, its_until_ms in until_ms.items():
            node = self._nodes.get(node_id)
            if node is not None:
                node.until_ms = its_until_ms
            elif its_until_ms > now_ms:
                self._nodes[node_id] = _Node(its_until_ms, [_Window(now_ms)])

    def acknowledged(self, node_id: int, size_bytes: int, now_ms: int) -> None:
        """Count an acknowledged batch for the node that it was sent to."""
        node = self._nodes.get(node_id)
        if node is not None:
            node.take(size_bytes, now_ms)

    @property
    def is_felt(self) -> bool:
        """True if any broker has throttled this write."""
        return bool(self._nodes)

    @property
    def throttled_ms(self) -> int:
        """Throttled time of this write (ms), as of the last `looked`."""
        return self._now_ms - self._before_ms

    def has_room(self, waiting: Mapping[int, int], now_ms: int, part_ms: int) -> bool:
        """Return True if more rows may come: each throttling node takes its waiting bytes within `part_ms`."""
        return all(
            waiting_bytes <= node.bytes_per_s(now_ms) * part_ms / 1_000
            for node, waiting_bytes in self._throttling(waiting, now_ms)
        )

    def outlasts(self, left_ms: int, waiting: Mapping[int, int], now_ms: int, measured_ms: int) -> Throttled | None:
        """Return the throttling if the waiting bytes need longer than `left_ms`, or None. A rate counts only after
        `measured_ms`; a throttle counts at once."""
        for node, waiting_bytes in self._throttling(waiting, now_ms):
            is_known = now_ms - node.windows[0].since_ms >= measured_ms or node.until_ms - now_ms > left_ms
            if (is_known or left_ms <= 0) and node.rest_ms(waiting_bytes, now_ms) > left_ms:
                return self._effect(waiting, now_ms)
        return None

    def is_report_due(self) -> bool:
        return self.throttled_ms >= self._report_at_ms

    def report(self, waiting: Mapping[int, int], now_ms: int) -> Throttled | None:
        """Return what to log now, or None if no throttling node has bytes waiting."""
        self._report_at_ms = self.throttled_ms + REPORT_EVERY_MS
        return self._effect(waiting, now_ms)

    def _effect(self, waiting: Mapping[int, int], now_ms: int) -> Throttled | None:
        found = list(self._throttling(waiting, now_ms))
        if not found:
            return None
        return Throttled(
            throttled_ms=self.throttled_ms,
            bytes_per_s=sum(node.bytes_per_s(now_ms) for node, _ in found) or None,
            waiting_bytes=sum(waiting_bytes for _, waiting_bytes in found),
            rest_ms=max(node.rest_ms(waiting_bytes, now_ms) for node, waiting_bytes in found),
        )

    def _throttling(self, waiting: Mapping[int, int], now_ms: int) -> Iterator[tuple[_Node, int]]:
        """Yield the nodes that throttle now, or did a moment ago, and have bytes waiting."""
        for node_id, node in self._nodes.items():
            if node.throttles(now_ms) and (waiting_bytes := waiting.get(node_id, 0)):
                yield node, waiting_bytes


# --- the rate limit of a task -----------------------------------------------------------------------------------------

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
    """A token bucket that begins empty, stored as one time: until when all taken tokens are paid. This is ATM's generic
    cell rate algorithm (ITU-T I.371)."""

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
    """Limits how fast one task may hand over its rows.

        limit = RateLimit(Rate(rows_per_s=250.0), now_ms=0)
        limit.rows_at_once(10_000, 1_000_000)       # 25: a tenth of a second's worth is cut off an Arrow batch
        limit.take(25, 2_500, now_ms=0)             # 100: they may go in 100 ms

    Tokens are paid before rows go. So from the start of the task to any moment, the task never exceeds the rate. A task
    that fell behind (a slow source, a busy CPU) may catch up with at most BURST_MS worth of tokens.
    """

    def __init__(self, rate: Rate, *, now_ms: int, transaction: OpenTransaction | None = None) -> None:
        """`transaction`: the transaction of the rows, begun at `now_ms` or earlier."""
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

"""How much a micro-batch reads of what is there: `maxOffsetsPerTrigger`, `minOffsetsPerTrigger` and `maxTriggerDelay`.

Source: org.apache.spark.sql.kafka010.KafkaMicroBatchStream (rateLimit, delayBatch).
"""

from __future__ import annotations

import math

from kafka_sink.spark.reading.positions import Positions


def rate_limited(limit: int, start: Positions, ends: Positions) -> Positions:
    """Return where a micro-batch of about `limit` offsets ends: each partition in proportion to what it has.

    `start`: of each partition of `ends`. Where that has no new offset, the end stays. A partition with new offsets gets
    one at least, so there may be more than `limit`.
    """
    sizes = {each: end - start[each] for each, end in ends.items() if end > start[each]}
    total = sum(sizes.values())
    if total <= limit:
        return ends
    return dict(ends) | {each: start[each] + min(size, _share(limit * (size / total))) for each, size in sizes.items()}


def _share(prorated: float) -> int:
    return math.ceil(prorated) if prorated < 1 else math.floor(prorated)


class Delay:
    """Puts a micro-batch off until there are `min_offsets`, or `max_delay_ms` have passed since the last one."""

    def __init__(self, min_offsets: int, max_delay_ms: int) -> None:
        self._min_offsets = min_offsets
        self._max_delay_ms = max_delay_ms
        # None: the first is never put off.
        self._last_ms: int | None = None

    def puts_off(self, start: Positions, ends: Positions, now_ms: int) -> bool:
        """Return whether to wait for more; if not, the micro-batch counts as begun. A partition without a start is
        new, and counts from 0."""
        is_due = self._last_ms is None or now_ms - self._last_ms >= self._max_delay_ms
        if not is_due and sum(end - start.get(each, 0) for each, end in ends.items()) < self._min_offsets:
            return True
        self._last_ms = now_ms
        return False

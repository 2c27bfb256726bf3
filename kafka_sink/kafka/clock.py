"""The clocks of this process, in the milliseconds that Kafka counts in. Pure modules are handed what these say."""

from __future__ import annotations

import time


def monotonic_ms() -> int:
    """For durations and deadlines: never set back, and no date."""
    return time.monotonic_ns() // 1_000_000


def wall_clock_ms() -> int:
    """Since 1970, UTC: for what other machines and people read."""
    return time.time_ns() // 1_000_000

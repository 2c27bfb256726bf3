"""The clocks of this process, in milliseconds as in Kafka. Pure modules get the time as an argument."""

from __future__ import annotations

import time


def monotonic_ms() -> int:
    """Return ms for durations and deadlines. Never goes back, and is not a date."""
    return time.monotonic_ns() // 1_000_000


def wall_clock_ms() -> int:
    """Return ms since 1970, UTC, for other machines and for people."""
    return time.time_ns() // 1_000_000

"""Exponential backoff with jitter (KIP-580, Kafka's org.apache.kafka.common.utils.ExponentialBackoff)."""

from __future__ import annotations

import random

JITTER = 0.2


def backoff_ms(attempts: int, initial_ms: int, max_ms: int, rng: random.Random) -> int:
    """Return ms to wait after `attempts` (>= 1) failures in a row: initial x 2^(attempts - 1), plus or minus 20 %, at
    most `max_ms`."""
    # 2^30 is beyond any sensible ratio of max to initial. Without this limit the power exceeds a float's range.
    exponential = initial_ms * 2.0 ** min(attempts - 1, 30)
    return int(min(exponential * rng.uniform(1 - JITTER, 1 + JITTER), max_ms))

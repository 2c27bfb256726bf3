"""How far a throttle of a broker may delay (KIP-219).

A throttle is a number in an answer, of up to 24.8 days. A quota delays a request and keeps nothing back, so the time in
which brokers throttle does not count as waiting. But a peer must not be able to stop a deadline:

* One throttle lasts for at most `MAX_THROTTLE_MS`.
* Throttled time counts for a tenth. So a step lasts for at most ten times its limit, whatever brokers say.

Pure.
"""

from __future__ import annotations

# A broker delays by what its last window (about 10 s) had too much. An hour is 360 times a quota.
MAX_THROTTLE_MS = 3_600_000
# A step lasts for at most so many times its limit.
THROTTLED_LIMITS = 10


def without_throttles(now_ms: int, throttled_ms: int) -> int:
    """Return the time on a clock that goes at a tenth of its speed while brokers throttle. `throttled_ms`: for how long
    they have until now."""
    return now_ms - throttled_ms + throttled_ms // THROTTLED_LIMITS

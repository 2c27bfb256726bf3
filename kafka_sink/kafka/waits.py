"""How long a client waits: between retries, for a throttle, and while no broker answers. Pure.

| A broker has answered before | The bootstrap servers | The client gives up |
|---|---|---|
| here, in this application, or in an earlier run of the query | any | when its option says so, after six minutes |
| never | every one refuses | after FIRST_MS |
| never, and the client asks alone | every one refuses or hangs up | after FIRST_MS |
| never, and the client asks alone | every one refuses, hangs up or is silent | after FIRST_SILENCE_MS |
| never | others | after FIRST_PATIENCE_MS, or when its option says so |

What has worked once has an outage, which is waited for. What has never worked has more likely a wrong address, so it
fails early. FIRST_MS leaves time to a broker that is just starting. A broker that takes a connection and is silent is
busy more often than it is no broker. A client asks alone where Spark plans. Tasks start
together, and brokers that limit new connections (KIP-612) hang up on some of them, or let them wait.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime

FIRST_MS = 6_000
FIRST_SILENCE_MS = 20_000
FIRST_PATIENCE_MS = 60_000
# A wait is logged once it has lasted for so long, and no more often than that.
FIRST_LOG_MS = 8_000
LOG_AGAIN_MS = 60_000


@dataclass(frozen=True, slots=True)
class Contact:
    """What a client knows of its servers now.

    `is_reached`: a broker of the cluster's list has let the client in.
    `began_ms`: when the client first tried to connect, None if it has not.
    `away_since_ms`: when it began to try since the last open connection, None if one is open or nothing was tried.
    `is_refused`: each bootstrap server refused the last attempt, or answered as no broker does, and none ever let the
    client in. `is_unanswered`: each refused the last attempt, hung up, or is connected and silent, and none ever did.
    `is_silent`: at least one of those is silent.
    """

    is_reached: bool = False
    began_ms: int | None = None
    away_since_ms: int | None = None
    is_refused: bool = False
    is_unanswered: bool = False
    is_silent: bool = False


def first_patience_ms(contact: Contact, *, has_worked: bool, asks_alone: bool) -> int | None:
    """Return how long a client waits from its first attempt on. None: as long as its options say."""
    if has_worked or contact.is_reached:
        return None
    if contact.is_refused or (asks_alone and contact.is_unanswered):
        return FIRST_SILENCE_MS if contact.is_silent else FIRST_MS
    return FIRST_PATIENCE_MS


@dataclass(frozen=True, slots=True)
class FirstWait:
    """`left_ms`: the client gives up when nothing is left."""

    waited_ms: int
    left_ms: int


def limit_text(first: FirstWait | None, option: str, limit_ms: int) -> str:
    """Return what ends a wait, for its log."""
    return f"{option} = {limit_ms} ms" if first is None else "no broker has answered before"


def time_of_day(unix_ms: int) -> str:
    """Return a time as messages tell it."""
    return f"{datetime.fromtimestamp(unix_ms / 1_000, UTC):%H:%M:%S} UTC"


class Outage:
    """Applies the policy to one client. `has_worked`: whether a broker has answered before; may be set at any time."""

    def __init__(self, *, asks_alone: bool, has_worked: bool = False) -> None:
        self.has_worked = has_worked
        self._asks_alone = asks_alone
        self._logged_ms: int | None = None

    def first_wait(self, contact: Contact, now_ms: int) -> FirstWait | None:
        """Return the wait for the first answer of all; None if the client waits for as long as its options say."""
        self.has_worked |= contact.is_reached
        patience_ms = first_patience_ms(contact, has_worked=self.has_worked, asks_alone=self._asks_alone)
        if patience_ms is None:
            return None
        waited_ms = 0 if contact.began_ms is None else now_ms - contact.began_ms
        return FirstWait(waited_ms, patience_ms - waited_ms)

    def is_log_due(self, waited_ms: int, now_ms: int) -> bool:
        """Return whether to log a wait that has lasted for `waited_ms`. True once for each wait."""
        if waited_ms < FIRST_LOG_MS:
            return False
        began_ms = now_ms - waited_ms
        if self._logged_ms is not None and (began_ms <= self._logged_ms or now_ms < self._logged_ms + LOG_AGAIN_MS):
            return False
        self._logged_ms = now_ms
        return True


# --- backoff and throttles --------------------------------------------------------------------------------------------

JITTER = 0.2
# A broker delays by what its last window (about 10 s) had too much. An hour is 360 times a quota.
MAX_THROTTLE_MS = 3_600_000
# A step lasts for at most so many times its limit.
THROTTLED_LIMITS = 10


def backoff_ms(attempts: int, initial_ms: int, max_ms: int, rng: random.Random) -> int:
    """Return ms to wait after `attempts` (>= 1) failures in a row: initial x 2^(attempts - 1), plus or minus 20 %, at
    most `max_ms` (KIP-580, Kafka's ExponentialBackoff)."""
    # 2^30 is beyond any sensible ratio of max to initial. Without this limit the power exceeds a float's range.
    exponential = initial_ms * 2.0 ** min(attempts - 1, 30)
    return int(min(exponential * rng.uniform(1 - JITTER, 1 + JITTER), max_ms))


def without_throttles(now_ms: int, throttled_ms: int) -> int:
    """Return the time on a clock that goes at a tenth of its speed while brokers throttle. `throttled_ms`: for how long
    they have until now.

    A quota delays a request and keeps nothing back (KIP-219), so throttled time hardly counts as waiting. But a
    throttle is a number in an answer, of up to 24.8 days, and no peer may stop a deadline. So one throttle lasts for at
    most MAX_THROTTLE_MS, and a step for at most ten times its limit.
    """
    return now_ms - throttled_ms + throttled_ms // THROTTLED_LIMITS

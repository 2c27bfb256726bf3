"""How long a caller waits for a record set before the range fails (`kafkaConsumer.pollTimeoutMs`).

The time in which the caller works does not count. Nor does the time in which brokers throttle, because a quota delays
records and keeps none back: unless that lasts for many times the limit. A batch that is larger than a quota lets
through in its whole window never comes.
"""

from __future__ import annotations

from kafka_sink.kafka.throttles import THROTTLED_LIMITS


class Patience:
    """`throttled_ms`: for how long brokers have throttled the client so far."""

    def __init__(self, limit_ms: int) -> None:
        self.limit_ms = limit_ms
        # Now, and `throttled_ms`, when the wait began. None: nobody waits.
        self._began: tuple[int, int] | None = None

    def begin(self, now_ms: int, throttled_ms: int) -> None:
        """Note that the caller waits, if it does not already."""
        if self._began is None:
            self._began = now_ms, throttled_ms

    def end(self) -> None:
        """Note that the caller got a record set."""
        self._began = None

    def throttled_ms(self, throttled_ms: int) -> int:
        """Return for how long brokers have throttled the client in this wait."""
        return 0 if self._began is None else throttled_ms - self._began[1]

    def waited_ms(self, now_ms: int, throttled_ms: int) -> int:
        """Return how long the caller has waited, without throttles."""
        return 0 if self._began is None else now_ms - self._began[0] - self.throttled_ms(throttled_ms)

    def is_over(self, now_ms: int, throttled_ms: int) -> bool:
        if self._began is None:
            return False
        of_throttles_ms = self.throttled_ms(throttled_ms)
        waited_ms = self.waited_ms(now_ms, throttled_ms)
        return waited_ms >= self.limit_ms or of_throttles_ms >= THROTTLED_LIMITS * self.limit_ms

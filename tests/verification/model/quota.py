"""A broker's quota of produced bytes, or of read ones, of all clients together as those of one client id have it.

Source: ClientQuotaManager, QuotaUtils, SampledStat and Rate in Kafka: bytes in samples of a second, of which eleven
count; a rate over at least ten seconds; a client over the quota is held back for as long as brings the rate down to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SAMPLE_MS = 1_000
SAMPLES = 11


@dataclass(slots=True)
class _Sample:
    since_ms: int
    taken_bytes: int = 0


@dataclass(slots=True)
class Quota:
    bytes_per_s: float
    _samples: list[_Sample] = field(default_factory=list)

    def throttle_time_ms(self, size_bytes: int, now_ms: int) -> int:
        """Takes a request of that size. 0: within the quota."""
        self._samples = [each for each in self._samples if now_ms - each.since_ms < SAMPLES * SAMPLE_MS]
        if not self._samples or now_ms - self._samples[-1].since_ms >= SAMPLE_MS:
            self._samples.append(_Sample(now_ms))
        self._samples[-1].taken_bytes += size_bytes
        window_ms = max(now_ms - self._samples[0].since_ms, (SAMPLES - 1) * SAMPLE_MS)
        rate = sum(each.taken_bytes for each in self._samples) * 1_000 / window_ms
        return max(0, round((rate - self.bytes_per_s) / self.bytes_per_s * window_ms))

    def throttle_time_or_take_ms(self, size_bytes: int, now_ms: int) -> int:
        """Of an answer, which is not sent when it is over the quota: then it does not count."""
        throttle_time_ms = self.throttle_time_ms(size_bytes, now_ms)
        if throttle_time_ms:
            self._samples[-1].taken_bytes -= size_bytes
        return throttle_time_ms

    def window_bytes(self) -> int:
        """The most that an answer may have without being over the quota when nothing else is read."""
        return int(self.bytes_per_s * (SAMPLES - 1))

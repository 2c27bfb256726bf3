"""What a write took, beside what leaders acknowledged. Whoever watches writes reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class WriteStatistics:
    """Of one task attempt that succeeded. `retried`: by topic, records that were sent again, each time it was counted;
    a topic without any is not there. `throttled_ms`: how long at least one broker held the task back by a quota.
    `dropped`, `dead_lettered`: bad rows, by reason."""

    retried: Mapping[str, int] = field(default_factory=dict)
    throttled_ms: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    dead_lettered: Mapping[str, int] = field(default_factory=dict)

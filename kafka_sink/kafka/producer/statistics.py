"""Statistics of a write for code that monitors writes, in addition to what leaders acknowledged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class WriteStatistics:
    """The statistics of one successful task attempt.

    `retried`: by topic, how often records were sent again; a topic without retries is absent.
    `throttled_ms`: how long at least one broker throttled the task.
    `dropped`, `dead_lettered`: bad rows, by reason.
    """

    retried: Mapping[str, int] = field(default_factory=dict)
    throttled_ms: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    dead_lettered: Mapping[str, int] = field(default_factory=dict)

"""Statistics of a read and of a write, for code that monitors them, in addition to what leaders acknowledged."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ReadStatistics:
    """What one successful task attempt read of one partition.

    - `row_count`: rows that Spark received. Offsets of transaction markers and of aborted records have no row.
    - `byte_count`: the record batches as brokers sent them, compressed. A batch that is sent twice counts twice: an
      answer may end within a batch, and ranges of two tasks may share one.
    - `left_out_count`: offsets that could not be read, if `failOnDataLoss` is false.
    """

    topic: str
    partition: int
    row_count: int
    byte_count: int
    left_out_count: int = 0

    def plus(self, other: ReadStatistics) -> ReadStatistics:
        """Return the sum of `self` and `other`, which are of the same partition."""
        return ReadStatistics(
            self.topic,
            self.partition,
            row_count=self.row_count + other.row_count,
            byte_count=self.byte_count + other.byte_count,
            left_out_count=self.left_out_count + other.left_out_count,
        )


@dataclass(frozen=True, slots=True)
class WriteStatistics:
    """What happened to the rows that one successful task attempt wrote.

    `retried`: by topic, how often records were sent again; a topic without retries is absent.
    `throttled_ms`: how long at least one broker throttled the task.
    `dropped`, `dead_lettered`: bad rows, by reason.
    """

    retried: Mapping[str, int] = field(default_factory=dict)
    throttled_ms: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    dead_lettered: Mapping[str, int] = field(default_factory=dict)

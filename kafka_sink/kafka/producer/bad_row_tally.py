"""Counts a write's bad rows by reason, checks the counts against the limits, and adds them to the receipt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kafka_sink.errors import TooManyBadRows

# A commit sums the counts, and has no rows.
if TYPE_CHECKING:
    from kafka_sink.kafka.producer.row_limits import TopicRules
    from kafka_sink.records.bad_rows import Reasons
    from kafka_sink.records.dead_letters import Origin

Int64s = npt.NDArray[np.int64]

# Enough to see what the bad rows have in common.
FIRST_ROWS = 10


@dataclass(frozen=True, slots=True)
class BadRowLimits:
    """`max_rows`: the most bad rows. `max_fraction`: the largest fraction of all rows. None: no limit."""

    max_rows: int | None = None
    max_fraction: float | None = None


@dataclass(frozen=True, slots=True)
class BadRowPolicy:
    """What to do with bad rows if they do not end the write: send them to `dead_letter_topic`, or drop them if it is
    None. `rules` asks the cluster for the rules of topics, and returns the rules of each."""

    dead_letter_topic: str | None
    limits: BadRowLimits
    origin: Origin
    rules: Callable[[Collection[str]], Mapping[str, TopicRules]]


@dataclass(frozen=True, slots=True)
class BadRowCounts:
    """The bad rows of one write, by reason: dropped, or acknowledged by the leaders of the dead-letter topic.

    `first_rows`: (Spark partition, row of its task) of some bad rows. `limits`: the limits of the write.
    """

    dropped: Mapping[str, int] = field(default_factory=dict)
    dead_lettered: Mapping[str, int] = field(default_factory=dict)
    first_rows: tuple[tuple[int | None, int], ...] = ()
    limits: BadRowLimits = field(default_factory=BadRowLimits)

    @property
    def dropped_count(self) -> int:
        return sum(self.dropped.values())

    @property
    def dead_lettered_count(self) -> int:
        return sum(self.dead_lettered.values())

    @property
    def by_reason(self) -> Counter[str]:
        """The count of bad rows by reason. A write either drops all of them or dead-letters all of them."""
        return Counter(self.dropped) + Counter(self.dead_lettered)


def total(acknowledgements: Iterable[BadRowCounts]) -> BadRowCounts:
    """Return the sum for all tasks of a write, which have the same limits."""
    dropped, dead_lettered = Counter[str](), Counter[str]()
    first_rows: list[tuple[int | None, int]] = []
    limits = BadRowLimits()
    for receipt in acknowledgements:
        dropped.update(receipt.dropped)
        dead_lettered.update(receipt.dead_lettered)
        first_rows += receipt.first_rows
        # A task whose transaction is already visible handles no row, and its receipt has no limits.
        limits = limits if receipt.limits == BadRowLimits() else receipt.limits
    return BadRowCounts(dict(dropped), dict(dead_lettered), tuple(first_rows[:FIRST_ROWS]), limits)


def check_limits(bad: BadRowCounts, rows: int, *, rows_are_written: bool) -> None:
    """Raise TooManyBadRows if `bad` exceeds its limits.

    `rows`: the count of all delivered rows. `rows_are_written`: the other rows are in Kafka and readable.
    """
    count, limits = bad.by_reason.total(), bad.limits
    exceeded: tuple[str, float] | None = None
    if limits.max_rows is not None and count > limits.max_rows:
        exceeded = "maxBadRows", limits.max_rows
    elif limits.max_fraction is not None and count > limits.max_fraction * rows:
        exceeded = "maxBadRowFraction", limits.max_fraction
    if exceeded is not None:
        raise TooManyBadRows(
            counts=bad.by_reason,
            rows=rows,
            limit=exceeded[0],
            allowed=exceeded[1],
            first_rows=bad.first_rows,
            rows_are_written=rows_are_written,
        )


class BadRowTally:
    """The tally of one task."""

    def __init__(self, policy: BadRowPolicy) -> None:
        self._policy = policy
        self._counts = Counter[str]()
        self._first_rows: list[tuple[int | None, int]] = []

    def add(self, reasons: Reasons, numbers: Int64s) -> None:
        """Count bad rows. `reasons`: uint8[k]. `numbers`: int64[k], their row numbers in the task.

        Raises TooManyBadRows once there are more than `max_rows`. The fraction is checked at the end.
        """
        from kafka_sink.records.bad_rows import GOOD, Reason

        counts = np.bincount(reasons, minlength=max(Reason) + 1)
        assert not counts[GOOD]
        self._counts.update({reason.name: int(counts[reason]) for reason in Reason if counts[reason]})
        room = FIRST_ROWS - len(self._first_rows)
        self._first_rows += [(self._policy.origin.slot, number) for number in numbers[:room].tolist()]
        self._check_count(int(numbers[-1]) + 1)

    def add_refused(self, count: int, rows: int) -> None:
        """Count rows that leaders refused. Their row numbers in the task are unknown. `rows`: rows delivered so far.

        Raises TooManyBadRows.
        """
        from kafka_sink.records.bad_rows import Reason

        self._counts[Reason.RefusedByLeader.name] += count
        self._check_count(rows)

    def _check_count(self, rows: int) -> None:
        so_far = BadRowLimits(max_rows=self._policy.limits.max_rows)
        check_limits(self._receipt(so_far), rows, rows_are_written=False)

    def receipt(self) -> BadRowCounts:
        return self._receipt(self._policy.limits)

    def _receipt(self, limits: BadRowLimits) -> BadRowCounts:
        counts, first_rows = dict(self._counts), tuple(self._first_rows)
        if self._policy.dead_letter_topic is None:
            return BadRowCounts(counts, {}, first_rows, limits)
        return BadRowCounts({}, counts, first_rows, limits)

"""How many rows of a write were bad and what became of them: counted against the limits, and told in its receipt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kafka_sink.errors import TooManyBadRows
from kafka_sink.kafka.producer.row_limits import TopicRules
from kafka_sink.records.bad_rows import GOOD, Reason, Reasons
from kafka_sink.records.dead_letters import Origin

Int64s = npt.NDArray[np.int64]

# Enough to find what they have in common.
FIRST_ROWS = 10


@dataclass(frozen=True, slots=True)
class BadRowLimits:
    """`max_rows`: how many there may be; `max_fraction`: which part of all rows. None: any."""

    max_rows: int | None = None
    max_fraction: float | None = None


@dataclass(frozen=True, slots=True)
class BadRowPolicy:
    """What becomes of bad rows where they do not end the write: they go to `dead_letter_topic`, or None: nowhere.
    `rules` asks the cluster for those of topics, and has each one's."""

    dead_letter_topic: str | None
    limits: BadRowLimits
    origin: Origin
    rules: Callable[[Collection[str]], Mapping[str, TopicRules]]


@dataclass(frozen=True, slots=True)
class BadRowCounts:
    """What one write did about its bad rows, by reason: it dropped them, or the leaders of the dead-letter topic have
    acknowledged them. `first_rows`: (Spark partition, row of its task) of some. `limits`: by which the write goes."""

    dropped: Mapping[str, int] = field(default_factory=dict)
    dead_lettered: Mapping[str, int] = field(default_factory=dict)
    first_rows: tuple[tuple[int, int], ...] = ()
    limits: BadRowLimits = field(default_factory=BadRowLimits)

    @property
    def dropped_count(self) -> int:
        return sum(self.dropped.values())

    @property
    def dead_lettered_count(self) -> int:
        return sum(self.dead_lettered.values())

    @property
    def by_reason(self) -> Counter[str]:
        """A write does one or the other."""
        return Counter(self.dropped) + Counter(self.dead_lettered)


def total(acknowledgements: Iterable[BadRowCounts]) -> BadRowCounts:
    """Of all of a write's tasks, which have the same limits."""
    dropped, dead_lettered = Counter[str](), Counter[str]()
    first_rows: list[tuple[int, int]] = []
    limits = BadRowLimits()
    for receipt in acknowledgements:
        dropped.update(receipt.dropped)
        dead_lettered.update(receipt.dead_lettered)
        first_rows += receipt.first_rows
        # One that met no row in a transaction that is visible already brings none.
        limits = limits if receipt.limits == BadRowLimits() else receipt.limits
    return BadRowCounts(dict(dropped), dict(dead_lettered), tuple(first_rows[:FIRST_ROWS]), limits)


def check_limits(bad: BadRowCounts, rows: int, *, rows_are_written: bool) -> None:
    """`rows`: of all that were delivered. `rows_are_written`: the others are in Kafka, for everybody to read. Raises
    TooManyBadRows."""
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
    """Of one task."""

    def __init__(self, policy: BadRowPolicy) -> None:
        self._policy = policy
        self._counts = Counter[str]()
        self._first_rows: list[tuple[int, int]] = []

    def add(self, reasons: Reasons, numbers: Int64s) -> None:
        """`reasons` (uint8[k]) of bad rows, whose numbers in the task are int64[k]. Raises TooManyBadRows as soon as
        there are more than `max_rows`; the fraction is known at the end only."""
        counts = np.bincount(reasons, minlength=max(Reason) + 1)
        assert not counts[GOOD]
        self._counts.update({reason.name: int(counts[reason]) for reason in Reason if counts[reason]})
        room = FIRST_ROWS - len(self._first_rows)
        self._first_rows += [(self._policy.origin.slot, number) for number in numbers[:room].tolist()]
        so_far = BadRowLimits(max_rows=self._policy.limits.max_rows)
        rows = int(numbers[-1]) + 1
        check_limits(self._receipt(so_far), rows, rows_are_written=False)

    def add_refused(self, count: int, rows: int) -> None:
        """Of those that leaders refused, of which it is not known which rows of the task they were. `rows`: as many
        were delivered so far. Raises TooManyBadRows."""
        self._counts[Reason.RefusedByLeader.name] += count
        so_far = BadRowLimits(max_rows=self._policy.limits.max_rows)
        check_limits(self._receipt(so_far), rows, rows_are_written=False)

    def receipt(self) -> BadRowCounts:
        return self._receipt(self._policy.limits)

    def _receipt(self, limits: BadRowLimits) -> BadRowCounts:
        counts, first_rows = dict(self._counts), tuple(self._first_rows)
        if self._policy.dead_letter_topic is None:
            return BadRowCounts(counts, {}, first_rows, limits)
        return BadRowCounts({}, counts, first_rows, limits)

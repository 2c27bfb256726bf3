"""Compares a topic, read by librdkafka, with the numbers from 0 that two streams have committed."""

from collections import Counter
from dataclasses import dataclass, field

from broker_admin import read_on


@dataclass(slots=True)
class ReadTopic:
    """The rows of a topic that were committed, as far as they were read; later ones come with `read_on`. `records`:
    how many were read in all."""

    servers: str
    topic: str
    rows: Counter[int] = field(default_factory=Counter)
    records: int = 0
    _positions: dict[int, int] = field(default_factory=dict)

    def read_on(self) -> None:
        """To the end, or the first transaction that is open, of each partition that there is by now."""
        for message in read_on(self.servers, self.topic, self._positions):
            self.rows[int(message.value() or b"")] += 1
            self.records += 1

    def begin_anew(self) -> None:
        """Another topic has the name."""
        self.rows.clear()
        self._positions.clear()


@dataclass(frozen=True, slots=True)
class Difference:
    """`lost`: rows that were committed and are not there; `doubled`: rows that are there more than once, each time but
    the first; `too_early`: rows before the first that can be there."""

    lost: int
    doubled: int
    too_early: int


def difference(rows: Counter[int], *, first: int, committed: int) -> Difference:
    """Of rows `first` to `committed`, that one not included; those behind it may be there as well."""
    return Difference(
        lost=sum(row not in rows for row in range(first, committed)),
        doubled=rows.total() - len(rows),
        too_early=sum(row < first for row in rows),
    )


def first_whole(rows: Counter[int], micro_batch_rows: int) -> int:
    """The row that a topic that was made again can begin with: that of the first micro-batch of which it has a row."""
    return min(rows, default=0) // micro_batch_rows * micro_batch_rows

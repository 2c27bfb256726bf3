"""Virtual time: what is to happen when, in one order for one seed; and requests between brokers, which take time.

Two things at the same ms happen in the order in which they were planned.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar


class Planned(NamedTuple):
    at_ms: int
    number: int
    action: Callable[[], None]


class Timeline:
    def __init__(self, now_ms: int = 0) -> None:
        self.now_ms = now_ms
        self._planned: list[Planned] = []
        self._cancelled: set[int] = set()
        self._number = 0

    def call_in(self, delay_ms: int, action: Callable[[], None]) -> Planned:
        self._number += 1
        planned = Planned(self.now_ms + delay_ms, self._number, action)
        heapq.heappush(self._planned, planned)
        return planned

    def cancel(self, planned: Planned) -> None:
        self._cancelled.add(planned.number)

    def next_ms(self) -> int | None:
        while self._planned and self._planned[0].number in self._cancelled:
            self._cancelled.remove(heapq.heappop(self._planned).number)
        return self._planned[0].at_ms if self._planned else None

    def run_until(self, now_ms: int) -> None:
        """Everything up to and including `now_ms`, what is planned meanwhile included."""
        while (due_ms := self.next_ms()) is not None and due_ms <= now_ms:
            self.now_ms = max(self.now_ms, due_ms)
            heapq.heappop(self._planned).action()
        self.now_ms = max(self.now_ms, now_ms)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class InterBroker:
    """`latency_ms`: the range for one way."""

    _timeline: Timeline
    _rng: random.Random
    _latency_ms: tuple[int, int]

    def ask(self, request: Callable[[Callable[[T], None]], None], on_answer: Callable[[T], None]) -> None:
        """`request` is run at the receiver and given what takes its answer."""
        self._later(lambda: request(lambda answer: self._later(lambda: on_answer(answer))))

    def _later(self, action: Callable[[], None]) -> None:
        self._timeline.call_in(self._rng.randint(*self._latency_ms), action)

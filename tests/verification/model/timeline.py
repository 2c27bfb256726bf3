"""Virtual time: what is to happen when, in one order for one seed; and requests between brokers, which take time.

Two things at the same ms happen in the order in which they were planned.
"""

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar


@dataclass(slots=True, eq=False)
class Timer:
    """A planned event. Cancelled, it stays where it is and does nothing."""

    at_ms: int
    action: Callable[..., None]
    args: tuple[Any, ...]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass(slots=True)
class Timeline:
    """`events`: how many have happened by `step`."""

    now_ms: int = 0
    events: int = 0
    _heap: list[tuple[int, int, Timer]] = field(default_factory=list)
    _planned: int = 0

    def clock_ms(self) -> int:
        return self.now_ms

    def at(self, at_ms: int, action: Callable[..., None], *args: Any) -> Timer:
        """Plans `action(*args)`; a time that is over means now."""
        timer = Timer(max(at_ms, self.now_ms), action, args)
        heapq.heappush(self._heap, (timer.at_ms, self._planned, timer))
        self._planned += 1
        return timer

    def after(self, delay_ms: int, action: Callable[..., None], *args: Any) -> Timer:
        return self.at(self.now_ms + delay_ms, action, *args)

    def next_ms(self) -> int | None:
        """When something is planned next; None: nothing is."""
        while self._heap and self._heap[0][2].cancelled:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def step(self) -> None:
        if self.next_ms() is not None:
            self.now_ms, _, timer = heapq.heappop(self._heap)
            self.events += 1
            timer.action(*timer.args)

    def run_until(self, now_ms: int) -> None:
        """Everything up to and including `now_ms`, what is planned meanwhile included."""
        while (due_ms := self.next_ms()) is not None and due_ms <= now_ms:
            self.step()
        self.now_ms = max(self.now_ms, now_ms)


T = TypeVar("T")


# The range for one way.
_INTER_BROKER_MS = 0, 2


@dataclass(frozen=True, slots=True)
class InterBroker:
    _timeline: Timeline
    _rng: random.Random

    def ask(self, request: Callable[[Callable[[T], None]], None], on_answer: Callable[[T], None]) -> None:
        """`request` is run at the receiver and given what takes its answer."""
        self._later(lambda: request(lambda answer: self._later(lambda: on_answer(answer))))

    def _later(self, action: Callable[[], None]) -> None:
        self._timeline.after(self._rng.randint(*_INTER_BROKER_MS), action)

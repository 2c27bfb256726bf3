"""Virtual time: what is to happen, in order, and a clock that jumps from one event to the next.

Nothing in a simulation reads a real clock. Two events of the same millisecond happen in the order in which they were
planned, so a run is a function of its seed.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


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
class Scheduler:
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
        if self.next_ms() is None:
            return
        _, _, timer = heapq.heappop(self._heap)
        self.now_ms = timer.at_ms
        self.events += 1
        timer.action(*timer.args)

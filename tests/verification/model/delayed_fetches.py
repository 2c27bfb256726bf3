"""Fetch requests of clients that wait for more bytes.

A request waits until it is ready, as the caller decides, or until its time is over. It is looked at when something
changed for one of its partitions.

Source: DelayedFetch, DelayedOperationPurgatory in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from model.image import TopicIdPartition
from model.timeline import Planned, Timeline


@dataclass(slots=True, eq=False)
class DelayedFetch:
    keys: Sequence[TopicIdPartition]
    is_ready: Callable[[], bool]
    on_complete: Callable[[], None]
    timeout: Planned | None = None


class DelayedFetches:
    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._waiting: list[DelayedFetch] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(
        self, keys: Sequence[TopicIdPartition], timeout_ms: int, is_ready: Callable[[], bool],
        on_complete: Callable[[], None],
    ) -> None:  # fmt: skip
        """`on_complete` is called once, later."""
        waiting = DelayedFetch(keys, is_ready, on_complete)
        self._waiting.append(waiting)
        waiting.timeout = self._timeline.call_in(timeout_ms, lambda: self._complete(waiting))

    def check(self, key: TopicIdPartition) -> None:
        for waiting in list(self._waiting):
            # An answer lets the next request of its connection in, which may get here again.
            if waiting.timeout is not None and key in waiting.keys and waiting.is_ready():
                self._timeline.cancel(waiting.timeout)
                self._complete(waiting)

    def clear(self) -> None:
        for waiting in self._waiting:
            if waiting.timeout is not None:
                self._timeline.cancel(waiting.timeout)
                waiting.timeout = None
        self._waiting.clear()

    def _complete(self, waiting: DelayedFetch) -> None:
        waiting.timeout = None
        self._waiting.remove(waiting)
        waiting.on_complete()

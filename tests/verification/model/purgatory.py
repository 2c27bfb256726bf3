"""Produce requests with acks=all that wait for the followers.

A request waits for all its partitions. Each is settled once: by the high watermark, or by an error; what is not
settled in time gets REQUEST_TIMED_OUT. Then the request is answered, and all its entries are removed.

Source: DelayedProduce, DelayedOperationPurgatory in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kio.schema.errors import ErrorCode

from model.image import TopicIdPartition
from model.timeline import Planned, Timeline

# The code for a batch that ends before the offset, None while it must wait.
Check = Callable[[TopicIdPartition, int], ErrorCode | None]
Codes = dict[TopicIdPartition, ErrorCode]


@dataclass(slots=True, eq=False)
class DelayedProduce:
    """`required_offsets`: of each partition that was appended to. `codes`: of those that are settled."""

    required_offsets: Mapping[TopicIdPartition, int]
    codes: Codes
    on_complete: Callable[[Codes], None]
    timeout: Planned | None = None


class Purgatory:
    def __init__(self, timeline: Timeline, check: Check) -> None:
        self._timeline = timeline
        self._check = check
        self._watchers: dict[TopicIdPartition, list[DelayedProduce]] = {}

    def __len__(self) -> int:
        """Entries in the watchers' lists: one for each partition of each waiting request."""
        return sum(map(len, self._watchers.values()))

    def add(
        self, required_offsets: Mapping[TopicIdPartition, int], timeout_ms: int, on_complete: Callable[[Codes], None]
    ) -> None:
        """`on_complete` gets a code for each of `required_offsets`, perhaps before this returns."""
        waiting = DelayedProduce(required_offsets, {}, on_complete)
        if self._settle(waiting):
            on_complete(waiting.codes)
            return
        for key in required_offsets:
            self._watchers.setdefault(key, []).append(waiting)
        waiting.timeout = self._timeline.call_in(max(0, timeout_ms), lambda: self._expire(waiting))

    def check(self, key: TopicIdPartition) -> None:
        for waiting in list(self._watchers.get(key, ())):
            # An answer lets the next request of its connection in, which may get here again.
            if waiting.timeout is not None and self._settle(waiting):
                self._timeline.cancel(waiting.timeout)
                self._complete(waiting)

    def clear(self) -> None:
        for waiting in [waiting for watchers in self._watchers.values() for waiting in watchers]:
            if waiting.timeout is not None:
                self._timeline.cancel(waiting.timeout)
                waiting.timeout = None
        self._watchers.clear()

    def _settle(self, waiting: DelayedProduce) -> bool:
        for key, required_offset in waiting.required_offsets.items():
            if key not in waiting.codes:
                code = self._check(key, required_offset)
                if code is not None:
                    waiting.codes[key] = code
        return len(waiting.codes) == len(waiting.required_offsets)

    def _expire(self, waiting: DelayedProduce) -> None:
        for key in waiting.required_offsets:
            waiting.codes.setdefault(key, ErrorCode.request_timed_out)
        self._complete(waiting)

    def _complete(self, waiting: DelayedProduce) -> None:
        waiting.timeout = None
        for key in waiting.required_offsets:
            self._watchers[key].remove(waiting)
            if not self._watchers[key]:
                del self._watchers[key]
        waiting.on_complete(waiting.codes)

"""A bounded amount of memory for record batches (Kafka's BufferPool), in one piece.

    |  buffer  |  buffer  | a row of three buffers' size |  buffer  |  never used yet ...

All memory is one array, cut into buffers of one size, the effective `batch.size`. A larger row takes several adjacent
buffers. There are two reasons for one piece. The kernel gets one memory and positions in it, so it need not ask the
interpreter for thousands of buffers per call. The operating system can use huge pages. Pages that no buffer has touched
cost nothing.

`try_allocate` never waits. If it returns None, it sets `exhausted`, which makes every partition ready to be drained.
`exhausted` is cleared when 1/16 of the memory is available, so that a waiting writer need not wake up for each buffer.
A row that finds enough memory but not enough adjacent buffers also gets None. Then all memory returns in time, and is
one piece again.

`overdraw` always succeeds. It is for rows that are in the pool already and change their form (the parts of a split
batch): if they waited for memory, they would wait for themselves. It takes memory outside of the array. `try_allocate`
then gives nothing until the total is below the bound again.

A buffer may return only when no request that carries it can still be in flight. Reuse while in flight wrote rows to
wrong topics in the Java client for ten years (KAFKA-19012).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

OUTSIDE = -1
# `exhausted` is cleared when 1/16 of the memory is available.
_RELIEF = 16


@dataclass(slots=True, eq=False)
class Buffer:
    """`size` bytes of a pool's memory from `start` on, as the memoryview `view`."""

    view: memoryview
    start: int
    size: int


class BufferPool:
    """`total_bytes` in all. Not thread-safe: the accumulator's lock guards it.

    `memory`: uint8[total_bytes]. `buffer_bytes`: the size of a buffer. One row can have as many whole buffers as fit
    into the total.
    """

    def __init__(self, *, total_bytes: int, buffer_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.buffer_bytes = buffer_bytes
        self.exhausted = False
        self.memory: npt.NDArray[np.uint8] = np.empty(total_bytes, np.uint8)
        # Last in, first out: a buffer used a moment ago is still in the CPU cache.
        self._free: list[Buffer] = []
        # Buffers of larger rows, by size. They stay whole until other sizes run short.
        self._large: dict[int, list[Buffer]] = {}
        # The start of the memory that was never cut into buffers.
        self._uncut = 0
        self._allocated_bytes = 0

    @property
    def available_bytes(self) -> int:
        """Bytes that no batch holds. Negative when overdrawn."""
        return self.total_bytes - self._allocated_bytes

    def try_allocate(self, size_bytes: int) -> Buffer | None:
        """Return a buffer of at least `size_bytes` with undefined content, or None if that much is not available
        now."""
        # The usual case. A shortcut that matters with thousands of partitions.
        if size_bytes <= self.buffer_bytes <= self.total_bytes - self._allocated_bytes and self._free:
            self._allocated_bytes += self.buffer_bytes
            return self._free.pop()
        count = -(-size_bytes // self.buffer_bytes)
        buffer = None
        if count * self.buffer_bytes <= self.available_bytes:
            buffer = self._several(count) if count > 1 else self._one()
        if buffer is None:
            self.exhausted = True
        else:
            self._allocated_bytes += buffer.size
        return buffer

    def overdraw(self, size_bytes: int) -> Buffer:
        """Return a buffer of `size_bytes` with undefined content, even if that much is not available. Its `start` is
        OUTSIDE, because it is not part of `memory`."""
        buffer = Buffer(memoryview(bytearray(size_bytes)), OUTSIDE, size_bytes)
        self._allocated_bytes += size_bytes
        return buffer

    def _one(self) -> Buffer | None:
        if not self._free and (cut := self._cut()) is not None:
            return cut
        if not self._free:
            self._cut_up_large()
        return self._free.pop() if self._free else None

    def _cut_up_large(self) -> None:
        for buffers in self._large.values():
            for buffer in buffers:
                self._free += self._parts(buffer)
        self._large.clear()

    def _cut(self) -> Buffer | None:
        if self._uncut + self.buffer_bytes > self.total_bytes:
            return None
        start, self._uncut = self._uncut, self._uncut + self.buffer_bytes
        return self._part(start, self.buffer_bytes)

    def _several(self, count: int) -> Buffer | None:
        """Return `count` adjacent buffers as one, or None."""
        if whole := self._large.get(count * self.buffer_bytes):
            return whole.pop()
        if self._uncut + count * self.buffer_bytes <= self.total_bytes:
            start, self._uncut = self._uncut, self._uncut + count * self.buffer_bytes
            return self._part(start, count * self.buffer_bytes)
        self._cut_up_large()
        while (cut := self._cut()) is not None:
            self._free.append(cut)
        starts = np.sort(np.array([buffer.start for buffer in self._free], np.int64))
        spans = starts[count - 1 :] - starts[: max(0, len(starts) - count + 1)]
        runs = np.flatnonzero(spans == (count - 1) * self.buffer_bytes)
        if not runs.size:
            return None
        start, size = int(starts[runs[0]]), count * self.buffer_bytes
        self._free = [buffer for buffer in self._free if not start <= buffer.start < start + size]
        return self._part(start, size)

    def deallocate(self, buffer: Buffer) -> None:
        """Take back a buffer from `try_allocate` or `overdraw`."""
        self._allocated_bytes -= buffer.size
        if self.available_bytes >= self.total_bytes // _RELIEF:
            self.exhausted = False
        if buffer.start == OUTSIDE:
            return
        if buffer.size == self.buffer_bytes:
            self._free.append(buffer)
        else:
            self._large.setdefault(buffer.size, []).append(buffer)

    def give_back(self) -> None:
        """Release the memory to the operating system if no batch holds any. New memory costs nothing until it is
        touched."""
        if self._uncut and not self._allocated_bytes:
            self.memory = np.empty(self.total_bytes, np.uint8)
            self._free.clear()
            self._large.clear()
            self._uncut = 0

    def _parts(self, buffer: Buffer) -> list[Buffer]:
        starts = range(buffer.start, buffer.start + buffer.size, self.buffer_bytes)
        return [self._part(start, self.buffer_bytes) for start in starts]

    def _part(self, start: int, size: int) -> Buffer:
        return Buffer(self.memory.data[start : start + size], start, size)

    def shrink_buffers(self, buffer_bytes: int) -> None:
        """Set the buffer size to `buffer_bytes`, which must divide the old size. Buffers of the old size are cut up
        when they return."""
        self.buffer_bytes = buffer_bytes
        self._cut_up_large()
        self._free = [part for buffer in self._free for part in self._parts(buffer)]

"""A bounded amount of memory for record batches (Kafka's BufferPool), in one piece.

    |  buffer  |  buffer  | a row of three buffers' size |  buffer  |  never used yet ...

All memory is one array, cut into buffers of one size, the effective `batch.size`. A larger row takes several adjacent
buffers. There are two reasons for one piece. The kernel gets one memory and positions in it, so it need not ask the
interpreter for thousands of buffers per call. The operating system can use huge pages. Pages that no buffer has touched
cost nothing.

`try_allocate` never waits. If it returns None, it sets `exhausted`, which makes every partition ready to be drained.
`exhausted` is cleared when 1/16 of the memory is available, or half of what the pool may use of it. So a waiting writer
need not wake up for each buffer. A row that finds enough memory but not enough adjacent buffers also gets None. Then
all memory returns in time, and is one piece again.

`overdraw` always succeeds. It is for rows that are in the pool already and change their form (the parts of a split
batch): if they waited for memory, they would wait for themselves. It takes memory outside of the array. `try_allocate`
then gives nothing until the total is below the bound again.

The memory may be shared with a relay, and with a budget that several processes have in common (`MemorySource`). A pool
without a buffer in use always gets one, whatever the budget says, so no write waits for another process. A pool that
has more than its part of the budget releases the memory of buffers that return.

A buffer may return only when no request that carries it can still be in flight. Reuse while in flight wrote rows to
wrong topics in the Java client for ten years (KAFKA-19012).
"""

from __future__ import annotations

from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

OUTSIDE = -1
# `exhausted` is cleared when 1/16 of the memory is available, or half of what the source allows.
_RELIEF = 16


class MemorySource(Protocol):
    """Where a pool's memory comes from.

    `fresh`: memory of the pool's size that nobody uses. It replaces the memory before.
    `allows`: whether the pool may touch `more_bytes` of it. `took`: it does. `release`: it no longer does, from `start`
    on.
    `part_bytes`: the pool's part of what it shares with others. `exceeds_part`: it has touched more.
    """

    @property
    def part_bytes(self) -> int: ...
    def fresh(self) -> npt.NDArray[np.uint8]: ...
    def allows(self, more_bytes: int) -> bool: ...
    def took(self, more_bytes: int) -> None: ...
    def release(self, start: int, size_bytes: int) -> None: ...
    @property
    def exceeds_part(self) -> bool: ...


class OwnMemory:
    """A `MemorySource` of this process alone."""

    exceeds_part = False

    def __init__(self, size_bytes: int) -> None:
        self.part_bytes = size_bytes

    def fresh(self) -> npt.NDArray[np.uint8]:
        return np.empty(self.part_bytes, np.uint8)

    def allows(self, more_bytes: int) -> bool:
        return True

    def took(self, more_bytes: int) -> None:
        """Nobody counts."""

    def release(self, start: int, size_bytes: int) -> None:
        """Nobody waits for it."""


class Buffer:
    """`size` bytes of a pool's memory from `start` on, as the memoryview `view`."""

    __slots__ = ("size", "start", "view")

    def __init__(self, view: memoryview, start: int, size: int) -> None:
        self.view = view
        self.start = start
        self.size = size


class BufferPool:
    """`total_bytes` in all. Not thread-safe: the accumulator's lock guards it.

    `memory`: uint8[total_bytes]. `buffer_bytes`: the size of a buffer. One row can have as many whole buffers as fit
    into the total.
    """

    def __init__(self, *, total_bytes: int, buffer_bytes: int, source: MemorySource | None = None) -> None:
        self.total_bytes = total_bytes
        self.buffer_bytes = self._largest_buffer_bytes = buffer_bytes
        self.exhausted = False
        self._source = source or OwnMemory(total_bytes)
        self.memory: npt.NDArray[np.uint8] = self._source.fresh()
        # Last in, first out: a buffer used a moment ago is still in the CPU cache.
        self._free: list[Buffer] = []
        # Buffers whose memory was released to others.
        self._released: list[Buffer] = []
        # Buffers of larger rows, by size. They stay whole until other sizes run short.
        self._large: dict[int, list[Buffer]] = {}
        # The start of the memory that was never cut into buffers.
        self._uncut = 0
        self._allocated_bytes = 0
        # What `try_allocate` last found to be the bound: all memory, or what the source allowed.
        self._bound_bytes = total_bytes

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
        buffer, self._bound_bytes = None, self.total_bytes
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
        if not self._free and (untouched := self._untouched()) is not None:
            return untouched
        if not self._free:
            self._cut_up_large()
        return self._free.pop() if self._free else None

    def _untouched(self) -> Buffer | None:
        """Return a buffer of memory that was released, or never used yet, or None."""
        if not self._released:
            return self._cut()
        return self._released.pop() if self._may_touch(self.buffer_bytes) else None

    def _cut_up_large(self) -> None:
        for buffers in self._large.values():
            for buffer in buffers:
                self._free += self._parts(buffer)
        self._large.clear()

    def _cut(self, count: int = 1) -> Buffer | None:
        """Return `count` adjacent buffers as one, of memory that was never used yet, or None."""
        size = count * self.buffer_bytes
        if self._uncut + size > self.total_bytes or not self._may_touch(size):
            return None
        start, self._uncut = self._uncut, self._uncut + size
        return self._part(start, size)

    def _may_touch(self, size: int) -> bool:
        """Return whether the pool may have `size` bytes more. If so, they count from now on."""
        if self._allocated_bytes and not self._source.allows(size):
            self._bound_bytes = self._uncut - len(self._released) * self.buffer_bytes
            return False
        self._source.took(size)
        return True

    def _several(self, count: int) -> Buffer | None:
        """Return `count` adjacent buffers as one, or None."""
        if whole := self._large.get(count * self.buffer_bytes):
            return whole.pop()
        if (cut := self._cut(count)) is not None:
            return cut
        self._cut_up_large()
        while (untouched := self._untouched()) is not None:
            self._free.append(untouched)
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
        if self._bound_bytes - self._allocated_bytes >= min(self._bound_bytes // 2, self.total_bytes // _RELIEF):
            self.exhausted = False
        if cast(object, buffer.view.obj) is not self.memory:
            return  # it was outside, or of memory that is not used any more
        if self._source.exceeds_part:
            self._source.release(buffer.start, buffer.size)
            self._released += self._parts(buffer)
        elif buffer.size == self.buffer_bytes:
            self._free.append(buffer)
        else:
            self._large.setdefault(buffer.size, []).append(buffer)

    def give_back(self) -> None:
        """Release the memory to the operating system if no batch holds any. New memory costs nothing until it is
        touched."""
        if self._uncut and not self._allocated_bytes:
            self.renew()

    @property
    def part_bytes(self) -> int:
        """The pool's part of the memory, which is less than all if other processes share it now."""
        return self._source.part_bytes

    @property
    def exceeds_part(self) -> bool:
        """True if the pool has more memory than its part, because other processes share it by now."""
        return self._source.exceeds_part

    def renew(self) -> None:
        """Use other memory from now on. Buffers of the memory before stay valid, and are not used again."""
        self.memory = self._source.fresh()
        self.buffer_bytes = self._largest_buffer_bytes
        self._free.clear()
        self._released.clear()
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
        self._released = [part for buffer in self._released for part in self._parts(buffer)]

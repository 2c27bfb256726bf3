"""A bounded amount of memory for record batches (Kafka's BufferPool), in one piece.

    |  buffer  |  buffer  | a row of three buffers' size |  buffer  |  never used yet ...

All memory is one array, cut into buffers of one size, the effective `batch.size`; a row larger than that takes several
neighbours. In one piece, since a kernel that is given one memory and positions in it need not ask the interpreter for
thousands of buffers a call, and since the system backs it by huge pages, where it has them. Pages that no buffer has
touched cost nothing.

`try_allocate` never waits: it says no, and remembers that somebody was turned away, which makes every partition ready
to be drained until memory comes back, and enough of it that who waits need not come for each buffer. A row that finds
enough memory but no neighbours is turned away, too: what comes back then comes back altogether, and the whole memory is
one piece again. `overdraw` never says no: it is for rows that are in the pool already and change their shape (the parts
of a split batch), for which waiting would be waiting for themselves. It takes from beside the memory, and nothing more
is handed out until that is paid back.

A buffer returns only when no request that carries it can still be on its way: reuse while in flight wrote rows to wrong
topics in the Java client for ten years (KAFKA-19012).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

OUTSIDE = -1
# The part of the memory that is enough.
_RELIEF = 16


class Buffer:
    """`size` bytes of a pool's memory from `start` on, as the memoryview `view`."""

    __slots__ = ("size", "start", "view")

    def __init__(self, view: memoryview, start: int, size: int) -> None:
        self.view = view
        self.start = start
        self.size = size


class BufferPool:
    """`total_bytes` in all. Not thread-safe: the accumulator's lock guards it.

    `memory`: uint8[total_bytes]. `buffer_bytes`: the size of a buffer; a multiple of it, rounded down from the total,
    is what one row can have.
    """

    def __init__(self, *, total_bytes: int, buffer_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.buffer_bytes = buffer_bytes
        self.exhausted = False
        self.memory: npt.NDArray[np.uint8] = np.empty(total_bytes, np.uint8)
        # Last in, first out: what was used a moment ago is still in the processor's cache.
        self._free: list[Buffer] = []
        # Of rows larger than a buffer, by size; in one piece until singles or other sizes run short.
        self._large: dict[int, list[Buffer]] = {}
        # Where the memory begins that was never cut into buffers.
        self._uncut = 0
        self._allocated_bytes = 0

    @property
    def available_bytes(self) -> int:
        """Bytes that no batch holds. Negative when overdrawn."""
        return self.total_bytes - self._allocated_bytes

    def try_allocate(self, size_bytes: int) -> Buffer | None:
        """A buffer of at least `size_bytes`, content undefined; None when that much is not available now."""
        # Nearly always; with thousands of partitions it is worth not to work it out.
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
        """A buffer of `size_bytes`, content undefined, whether that much is available or not. Its `start` is OUTSIDE:
        it is no part of `memory`."""
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
        """`count` neighbours as one buffer."""
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
        """Takes back a buffer that `try_allocate` or `overdraw` gave."""
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
        """Lets the system have the memory, if no batch holds any of it. It costs nothing again until it is touched."""
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
        """From now on buffers have `buffer_bytes`, of which the old size is a multiple; those of the old size are cut
        up as they return."""
        self.buffer_bytes = buffer_bytes
        self._cut_up_large()
        self._free = [part for buffer in self._free for part in self._parts(buffer)]

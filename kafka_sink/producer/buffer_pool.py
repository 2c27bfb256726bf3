"""A bounded amount of memory for record batches (Kafka's BufferPool).

Buffers of one size, the effective `batch.size`, are kept and reused; others (a single row larger than that) come from
what is left and go back to it. `try_allocate` never waits: it says no, and remembers that somebody was turned away,
which makes every partition ready to be drained until memory comes back. `overdraw` never says no: it is for rows that
are in the pool already and change their shape (the parts of a split batch), for which waiting would be waiting for
themselves. Until that is paid back nothing is handed out.

A buffer returns only when no request that carries it can still be on its way: reuse while in flight wrote rows to wrong
topics in the Java client for ten years (KAFKA-19012).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Buffer = npt.NDArray[np.uint8]


class BufferPool:
    """`total_bytes` in all, handed out as uint8 arrays. Not thread-safe: the accumulator's lock guards it."""

    def __init__(self, *, total_bytes: int, buffer_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.buffer_bytes = buffer_bytes
        self.exhausted = False
        self._free: list[Buffer] = []
        self._allocated_bytes = 0

    @property
    def available_bytes(self) -> int:
        """Bytes that no batch holds: kept buffers and memory never or no longer allocated. Negative when overdrawn."""
        return self.total_bytes - self._allocated_bytes

    def try_allocate(self, size_bytes: int) -> Buffer | None:
        """A buffer of `size_bytes`, content undefined; None when that much is not available now."""
        if size_bytes > self.available_bytes:
            self.exhausted = True
            return None
        self._allocated_bytes += size_bytes
        if size_bytes == self.buffer_bytes and self._free:
            return self._free.pop()
        self._drop_surplus()
        return np.empty(size_bytes, dtype=np.uint8)

    def overdraw(self, size_bytes: int) -> Buffer:
        """A buffer of `size_bytes`, content undefined, whether that much is available or not."""
        self._allocated_bytes += size_bytes
        self._drop_surplus()
        return np.empty(size_bytes, dtype=np.uint8)

    def deallocate(self, buffer: Buffer) -> None:
        """Takes back a buffer that `try_allocate` or `overdraw` gave."""
        self._allocated_bytes -= buffer.size
        self.exhausted = False
        if buffer.size == self.buffer_bytes:
            self._free.append(buffer)
            self._drop_surplus()

    def _drop_surplus(self) -> None:
        """Keeps no more free buffers than the total has room for."""
        while self._free and self._allocated_bytes + len(self._free) * self.buffer_bytes > self.total_bytes:
            self._free.pop()

    def shrink_buffers(self, buffer_bytes: int) -> None:
        """From now on buffers of `buffer_bytes` are the kept ones. The old size drains away as its buffers return."""
        self.buffer_bytes = buffer_bytes
        self._free.clear()

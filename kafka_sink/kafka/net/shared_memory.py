"""Memory of a worker that its relay can read, and the ledger in which all workers of an executor note their share.

Both are anonymous files (memfd), which have no name in /dev/shm and end with their last process, however it ends.

Source: memfd_create(2), madvise(2) MADV_REMOVE.
"""

from __future__ import annotations

import mmap
import os

import numpy as np
import numpy.typing as npt

# The most workers of one executor that share a ledger.
LEDGER_PLACES = 1024
# A worker may take this much, even if the others have taken everything.
FLOOR_BYTES = 1024 * 1024
_PAGE_BYTES = mmap.PAGESIZE
_MADV_REMOVE = getattr(mmap, "MADV_REMOVE", None)


def is_possible() -> bool:
    """Return True if this system has what workers and a relay need to share memory."""
    return hasattr(os, "memfd_create") and _MADV_REMOVE is not None


class SharedMemory:
    """`array`: uint8[size_bytes], zero-filled. `fd` is its file, for the relay."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.fd = os.memfd_create("pykafka-rows", os.MFD_CLOEXEC)
        try:
            os.ftruncate(self.fd, size_bytes)
            self._map = mmap.mmap(self.fd, size_bytes)
        except BaseException:
            os.close(self.fd)
            raise
        self.array: npt.NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)
        self._start = _address(self._map)

    def offset_of(self, view: memoryview) -> int | None:
        """Return where `view` begins in this memory, or None if it is not in it."""
        offset = _address(view) - self._start
        return offset if 0 <= offset < self.size_bytes else None

    def release(self, start: int, size_bytes: int) -> None:
        """Give the pages that lie in this part back to the operating system. Their content becomes zero."""
        assert _MADV_REMOVE is not None
        first, end = -(-start // _PAGE_BYTES), (start + size_bytes) // _PAGE_BYTES
        if first < end:
            self._map.madvise(_MADV_REMOVE, first * _PAGE_BYTES, (end - first) * _PAGE_BYTES)

    def close(self) -> None:
        """Close the file. The memory itself stays until nothing refers to `array`."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _address(buffer: mmap.mmap | memoryview) -> int:
    address: int = np.frombuffer(buffer, np.uint8).__array_interface__["data"][0]
    return address


class Ledger:
    """How much memory each worker of an executor has taken, in bytes. Each worker writes its own place only, so no lock
    is needed: two workers that look at the same moment may take one buffer each too much."""

    def __init__(self, fd: int | None = None) -> None:
        """`fd`: of an existing ledger; None: a new one."""
        size = LEDGER_PLACES * 8
        if fd is None:
            self.fd = os.memfd_create("pykafka-ledger", os.MFD_CLOEXEC)
            os.ftruncate(self.fd, size)
        else:
            self.fd = fd
        self._taken: npt.NDArray[np.int64] = np.frombuffer(mmap.mmap(self.fd, size), np.int64)

    def clear(self, place: int) -> None:
        """Note that the worker of `place` is gone."""
        self._taken[place] = 0

    def free_place(self, places: set[int]) -> int | None:
        """Return a place that is not in `places`, or None."""
        return next((place for place in range(LEDGER_PLACES) if place not in places), None)

    def note(self, place: int, taken_bytes: int) -> None:
        self._taken[place] = taken_bytes

    def others(self, place: int) -> tuple[int, int]:
        """Return the bytes that the workers of other places have taken, and how many workers have taken any."""
        # What it has of its own place may be cleared at any time, by a relay that drops the worker.
        taken = self._taken.copy()
        taken[place] = 0
        return int(taken.sum()), int(np.count_nonzero(taken))

    def close(self) -> None:
        """Close the file. The mapping stays until nothing refers to it."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class RelayedMemory:
    """A worker's memory for rows, and its share of the memory of its executor: a `MemorySource` of its pool.

    A worker may grow up to an equal part of `size_bytes` among the workers that have memory now, as long as all of them
    together stay below it. FLOOR_BYTES are always allowed. A worker that has more than its part, because others came
    later, gives back what it no longer needs.
    """

    def __init__(self, size_bytes: int) -> None:
        self.shared = SharedMemory(size_bytes)
        # True once a relay may read the memory without this worker knowing until when.
        self.is_tainted = False
        self._taken = 0
        self._ledger: Ledger | None = None
        self._place = 0

    def join(self, ledger: Ledger, place: int) -> None:
        """Count this worker's memory in another ledger from now on."""
        if self._ledger is not None:
            self._ledger.close()
        self._ledger, self._place = ledger, place
        ledger.note(place, self._taken)

    def fresh(self) -> npt.NDArray[np.uint8]:
        """Return memory that nobody reads. Call when no buffer of the last one is in use, or after it was tainted."""
        if self.is_tainted:
            self.shared.close()
            self.shared, self.is_tainted = SharedMemory(self.shared.size_bytes), False
        elif self._taken:
            self.shared.release(0, self.shared.size_bytes)
        self._note(0)
        return self.shared.array

    def allows(self, more_bytes: int) -> bool:
        wanted = self._taken + more_bytes
        if wanted <= FLOOR_BYTES or self._ledger is None:
            return True
        taken, others = self._ledger.others(self._place)
        return wanted <= self.shared.size_bytes // (others + 1) and taken + wanted <= self.shared.size_bytes

    @property
    def part_bytes(self) -> int:
        """An equal part among the workers that have memory now and this one."""
        if self._ledger is None:
            return self.shared.size_bytes
        _, others = self._ledger.others(self._place)
        return self.shared.size_bytes // (others + 1)

    @property
    def exceeds_part(self) -> bool:
        """True if this worker has more than its part by now, because other workers came later."""
        return self._taken > max(FLOOR_BYTES, self.part_bytes)

    def took(self, more_bytes: int) -> None:
        self._note(self._taken + more_bytes)

    def release(self, start: int, size_bytes: int) -> None:
        self.shared.release(start, size_bytes)
        self._note(self._taken - size_bytes)

    def close(self) -> None:
        self._note(0)
        self.shared.close()
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None

    def _note(self, taken_bytes: int) -> None:
        self._taken = taken_bytes
        if self._ledger is not None:
            self._ledger.note(self._place, taken_bytes)

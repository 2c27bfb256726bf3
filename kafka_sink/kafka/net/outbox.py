"""Bytes that wait until a non-blocking socket takes them."""

from __future__ import annotations

import itertools
import socket
from collections import deque
from collections.abc import Iterable

from kafka_sink.kafka.net.channel import IOV_MAX

Buffer = bytes | memoryview


class Outbox:
    """Buffers are not copied, and must not change until they are written."""

    def __init__(self) -> None:
        self._buffers: deque[memoryview] = deque()

    def __bool__(self) -> bool:
        return bool(self._buffers)

    def add(self, buffers: Iterable[Buffer]) -> None:
        self._buffers.extend(memoryview(buffer).cast("B") for buffer in buffers if len(buffer))

    def clear(self) -> None:
        self._buffers.clear()

    def flush(self, sock: socket.socket) -> int:
        """Write what `sock` takes now. Return the number of bytes. Raises OSError if the connection has ended."""
        total = 0
        while self._buffers:
            try:
                written = sock.sendmsg(list(itertools.islice(self._buffers, IOV_MAX)))
            except BlockingIOError:
                break
            total += written
            self._advance(written)
        return total

    def _advance(self, written: int) -> None:
        while written:
            front = self._buffers[0]
            if written < front.nbytes:
                self._buffers[0] = front[written:]
                return
            written -= front.nbytes
            self._buffers.popleft()

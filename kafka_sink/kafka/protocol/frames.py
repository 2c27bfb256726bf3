"""Requests of another client, in their bytes on the wire, and the answers to them.

A relay (`kafka_sink/relay`) forwards them over connections of its own, where another request may have the same
correlation id. Only that field changes, on the way there and back.

Source: the header of a request, clients/src/main/resources/common/message/RequestHeader.json in Kafka.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

Buffer = bytes | memoryview

_SIZE_BYTES = 4
_VERSION = slice(6, 8)
_CORRELATION_ID = slice(8, 12)
_CORRELATION_ID_BYTES = 4


@dataclass(frozen=True, slots=True)
class Frame:
    """A request with its size in front. The first buffer has at least the size and the fields up to the correlation
    id."""

    buffers: tuple[Buffer, ...] = field(repr=False)

    @property
    def version(self) -> int:
        return int.from_bytes(self.buffers[0][_VERSION], "big", signed=True)

    def numbered(self, correlation_id: int) -> list[Buffer]:
        """Return the buffers with another correlation id. Only the first buffer is copied."""
        first = bytearray(self.buffers[0])
        first[_CORRELATION_ID] = correlation_id.to_bytes(_CORRELATION_ID_BYTES, "big", signed=True)
        return [memoryview(first), *self.buffers[1:]]

    def answer(self, frame: bytes) -> list[Buffer]:
        """Return the answer `frame` (without its size) as it goes to the client that sent this request: with its size,
        and under the correlation id that this client gave."""
        size = len(frame).to_bytes(_SIZE_BYTES, "big")
        return [size + bytes(self.buffers[0][_CORRELATION_ID]), memoryview(frame)[_CORRELATION_ID_BYTES:]]


@dataclass(frozen=True, slots=True)
class FrameAnswer:
    """The answer to a Frame: `frame` begins with the correlation id. Its throttle time is for the client that reads
    it."""

    frame: bytes = field(repr=False)
    throttle_time_ms: int = 0


def is_frame(buffers: Sequence[Buffer]) -> bool:
    """Return True if `buffers` can be a Frame: the first one has the fields that are looked at, and the size in front
    is that of the rest."""
    if not buffers or len(buffers[0]) < _CORRELATION_ID.stop:
        return False
    return int.from_bytes(buffers[0][:_SIZE_BYTES], "big") == sum(map(len, buffers)) - _SIZE_BYTES

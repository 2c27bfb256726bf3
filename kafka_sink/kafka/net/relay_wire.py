"""Messages between a worker and its relay, over a Unix socket.

    header (kind, flag, number of segments, key, size)  segments (offset, size)...  body

`key` is the worker's number of a connection to a broker. A SEND carries one request in segments: each is a place in the
memory that the worker shares with the relay, or INLINE, in the body. So rows do not travel over the socket.

Pure. Both ends run the same version of this code: they are processes of one executor.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

Buffer = bytes | memoryview

# The largest body: a request whose rows are all inline.
MAX_BODY_BYTES = 2**31 - 1
INLINE = -1

_HEADER = struct.Struct("!BBHII")
_SEGMENT = struct.Struct("!qI")


class Kind(IntEnum):
    # From a worker.
    HELLO = 1
    """The body has the version of this code, a zero byte, and the worker's configuration."""
    MEMORY = 2
    """The body has the size of the memory whose file descriptor comes with the message."""
    OPEN = 3
    """Connect to a broker. The body has its host and port."""
    SEND = 4
    """Flag: the broker sends no answer."""
    CLOSE = 5
    THROTTLED = 6
    """From both: the broker takes no request for some milliseconds, which the body has (KIP-219)."""
    # From a relay.
    WELCOME = 7
    """With the file descriptor of the ledger of memory. The body has the worker's place in it."""
    REFUSED = 8
    """The relay has another configuration."""
    OPENED = 9
    RECEIVED = 10
    """The body has bytes from the broker."""
    SENT = 11
    """A request without an answer is written."""
    CLOSED = 12
    """The connection ended, or CLOSE is carried out: the relay reads no memory for it any more. The body says why."""


@dataclass(frozen=True, slots=True)
class Message:
    kind: Kind
    key: int
    flag: bool
    segments: tuple[tuple[int, int], ...]
    body: memoryview = field(repr=False)


def encode(
    kind: Kind,
    key: int = 0,
    body: Sequence[Buffer] = (),
    *,
    flag: bool = False,
    segments: Sequence[tuple[int, int]] = (),
) -> list[Buffer]:
    """Return the bytes of a message. The buffers of `body` are not copied."""
    table = b"".join([_SEGMENT.pack(*segment) for segment in segments])
    size = sum(map(len, body))
    return [_HEADER.pack(kind, flag, len(segments), key, size) + table, *body]


class Reader:
    """Turns the bytes of a stream into messages."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, data: Buffer) -> Iterator[Message]:
        """Yield the messages that are complete with `data`. Raises ValueError for bytes that are no message."""
        self._received += data
        while (message := self._next()) is not None:
            yield message

    def _next(self) -> Message | None:
        received = self._received
        if len(received) < _HEADER.size:
            return None
        kind, flag, count, key, size = _HEADER.unpack_from(received)
        if size > MAX_BODY_BYTES:
            raise ValueError(f"a message of {size} bytes")
        start = _HEADER.size + count * _SEGMENT.size
        end = start + size
        if len(received) < end:
            return None
        segments = tuple(_SEGMENT.iter_unpack(bytes(received[_HEADER.size : start])))
        body = memoryview(bytes(received[start:end]))
        del received[:end]
        return Message(Kind(kind), key, bool(flag), segments, body)

"""One socket of the selector: how it is established, read and written, in plaintext; `tls_channel` has those with TLS.

No method waits. `establish` returns the event to wait for. Reading raises BlockingIOError, and writing writes less.
"""

from __future__ import annotations

import errno
import itertools
import os
import socket
from collections import deque
from dataclasses import dataclass, field

from kafka_sink.kafka.net.transport import TlsFailure

# The most buffers that one sendmsg takes (1024 on Linux and macOS).
IOV_MAX = os.sysconf("SC_IOV_MAX")


@dataclass(slots=True, eq=False)
class Channel:
    """`outgoing`: buffers left to write. `sends`: how many of these buffers each `send` call has left, oldest first.
    `tell_at_once`: for each `send` call, True if its last buffer ends a poll."""

    key: int
    sock: socket.socket
    connected: bool = False
    writing: bool = False
    outgoing: deque[memoryview] = field(default_factory=deque)
    sends: deque[int] = field(default_factory=deque)
    tell_at_once: deque[bool] = field(default_factory=deque)

    def establish(self) -> int | None:
        """Continue to establish the connection. Return None once bytes may flow, or else the event (of `selectors`) at
        which to call again. Raises OSError if the connection fails."""
        check_connected(self.sock)
        return None

    def read_into(self, chunk: memoryview) -> int:
        """Return the number of bytes read, 0 if the peer has closed."""
        return self.sock.recv_into(chunk)

    def write(self) -> int:
        """Return the number of bytes written from `outgoing`. The caller removes them with `advance`."""
        try:
            return self.sock.sendmsg(list(itertools.islice(self.outgoing, IOV_MAX)))
        except BlockingIOError:
            return 0

    def explain(self, error: OSError) -> TlsFailure | None:
        """Return the TLS failure that `error` is about, or None."""
        return None

    def advance(self, written: int) -> None:
        """Remove `written` bytes from the front. Each `send` owns the next `sends[i]` buffers."""
        outgoing, sends = self.outgoing, self.sends
        position = 0
        while written:
            while sends[position] == 0:
                position += 1
            front = outgoing[0]
            if written < front.nbytes:
                outgoing[0] = front[written:]
                return
            written -= front.nbytes
            outgoing.popleft()
            sends[position] -= 1


def check_connected(sock: socket.socket) -> None:
    """Raise the OSError of the attempt to connect, if it failed."""
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    # TCP's simultaneous open: on loopback without a listener, our own port may be the port that we connect to.
    if not code and sock.getsockname() == sock.getpeername():
        code = errno.ECONNREFUSED
    if code:
        raise OSError(code, os.strerror(code))

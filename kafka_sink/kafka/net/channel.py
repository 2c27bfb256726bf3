"""One socket of the selector: how it is established, read and written, in plaintext or with TLS.

No method waits. `establish` returns the event to wait for. Reading raises BlockingIOError, and writing writes less.

Non-obvious, for TLS:

* `SSLSocket` has no `sendmsg`. A buffer is passed to OpenSSL whole instead of in records of 16 KiB. Each call releases
  the GIL, and with a busy writer it may take 5 ms to get the GIL back.
* OpenSSL requires that an interrupted write is repeated with the same bytes. So the first buffer of `outgoing` must not
  be joined with the next one.
* One read returns at most one record, of at most 16 KiB. A larger buffer leaves no decrypted bytes inside OpenSSL; a
  selector would not report those.
"""

from __future__ import annotations

import errno
import itertools
import os
import selectors
import socket
import ssl
from collections import deque
from dataclasses import dataclass, field
from typing import cast

from kafka_sink.kafka.net.tls import HUNG_UP, explain
from kafka_sink.kafka.net.transport import TlsFailure

# The most buffers that one sendmsg takes (1024 on Linux and macOS).
IOV_MAX = os.sysconf("SC_IOV_MAX")
# The most bytes that one connection encrypts before the next connection has its turn.
_TLS_TURN_BYTES = 1024 * 1024


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
        _check_connected(self.sock)
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


@dataclass(slots=True, eq=False, kw_only=True)
class TlsChannel(Channel):
    """`server_name`: the host that the certificate must be valid for."""

    context: ssl.SSLContext
    server_name: str
    _wrapped: bool = False

    def establish(self) -> int | None:
        if not self._wrapped:
            _check_connected(self.sock)
            # The file descriptor stays the same, so the selector's registration stays valid. No certificate has the dot
            # at the end of an absolute name.
            self.sock = self.context.wrap_socket(
                self.sock, server_hostname=self.server_name.removesuffix("."), do_handshake_on_connect=False
            )
            self._wrapped = True
        try:
            cast(ssl.SSLSocket, self.sock).do_handshake()
        except ssl.SSLWantReadError:
            return selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            return selectors.EVENT_WRITE
        return None

    def read_into(self, chunk: memoryview) -> int:
        try:
            return self.sock.recv_into(chunk)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error

    def write(self) -> int:
        written = 0
        for buffer in self.outgoing:
            try:
                sent = self.sock.send(buffer[:_TLS_TURN_BYTES])
            except ssl.SSLWantWriteError:
                break
            except ssl.SSLEOFError as error:
                raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)) from error
            written += sent
            if sent < buffer.nbytes or written >= _TLS_TURN_BYTES:
                break
        return written

    def explain(self, error: OSError) -> TlsFailure | None:
        if self._wrapped and not self.connected and isinstance(error, ConnectionError | ssl.SSLEOFError):
            return HUNG_UP
        return explain(error)


def _check_connected(sock: socket.socket) -> None:
    """Raise the OSError of the attempt to connect, if it failed."""
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    # TCP's simultaneous open: on loopback without a listener, our own port may be the port that we connect to.
    if not code and sock.getsockname() == sock.getpeername():
        code = errno.ECONNREFUSED
    if code:
        raise OSError(code, os.strerror(code))

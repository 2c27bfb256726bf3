"""One socket of the selector: how it comes to stand, and how bytes go in and out of it, in plaintext or in TLS.

Every method does what can be done now and never waits. What it would have to wait for: `establish` returns it, and
reading and writing raise BlockingIOError or write less.

Non-obvious, of TLS:

* `SSLSocket` has no `sendmsg`. A buffer goes to OpenSSL whole rather than in records of 16 KiB: each call gives the GIL
  up, and with a busy writer getting it back may take 5 ms.
* OpenSSL wants a write that was interrupted repeated with the same bytes. So the front of `outgoing` must not be
  joined with what comes after it.
* One read returns at most one record, of at most 16 KiB. With a larger buffer nothing decrypted is left inside, of
  which no selector would tell.
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

# sendmsg refuses more buffers at once than this (1024 on Linux and macOS).
IOV_MAX = os.sysconf("SC_IOV_MAX")
# What one connection may encrypt before the next one has its turn.
_TLS_TURN_BYTES = 1024 * 1024


@dataclass(slots=True, eq=False)
class Channel:
    """`outgoing`: buffers left to write. `sends`: how many of them each `send` call has left, oldest first, and
    `tell_at_once`: whether the last of them ends a poll."""

    key: int
    sock: socket.socket
    connected: bool = False
    writing: bool = False
    outgoing: deque[memoryview] = field(default_factory=deque)
    sends: deque[int] = field(default_factory=deque)
    tell_at_once: deque[bool] = field(default_factory=deque)

    def establish(self) -> int | None:
        """Goes on with what comes before bytes of ours. None when they may flow, else the event (of `selectors`) to
        call this again at. Raises OSError when the connection cannot be had."""
        _check_connected(self.sock)
        return None

    def read_into(self, chunk: memoryview) -> int:
        """The number of bytes, 0 at the peer's end."""
        return self.sock.recv_into(chunk)

    def write(self) -> int:
        """The number of bytes that went out of `outgoing`, whose front the caller takes them off."""
        try:
            return self.sock.sendmsg(list(itertools.islice(self.outgoing, IOV_MAX)))
        except BlockingIOError:
            return 0

    def explain(self, error: OSError) -> TlsFailure | None:
        """What of TLS failed, where `error` is about that."""
        return None

    def advance(self, written: int) -> None:
        """Takes `written` bytes off the front. Each `send` owns the next `sends[i]` buffers."""
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
    """`server_name`: whom the certificate must be for."""

    context: ssl.SSLContext
    server_name: str
    _wrapped: bool = False

    def establish(self) -> int | None:
        if not self._wrapped:
            _check_connected(self.sock)
            # The same descriptor, so that the selector's registration stays.
            self.sock = self.context.wrap_socket(
                self.sock, server_hostname=self.server_name, do_handshake_on_connect=False
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
    """Raises the OSError that the attempt to connect ended with, if it did."""
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    # TCP's simultaneous open: where nobody listens on a loopback port, the port we were given may be that very one.
    if not code and sock.getsockname() == sock.getpeername():
        code = errno.ECONNREFUSED
    if code:
        raise OSError(code, os.strerror(code))

"""A socket of the selector with TLS. Only connections with TLS import it.

Non-obvious:

* `SSLSocket` has no `sendmsg`. A buffer is passed to OpenSSL whole instead of in records of 16 KiB. Each call releases
  the GIL, and with a busy writer it may take 5 ms to get the GIL back.
* OpenSSL requires that an interrupted write is repeated with the same bytes. So the first buffer of `outgoing` must not
  be joined with the next one.
* One read returns at most one record, of at most 16 KiB. A larger buffer leaves no decrypted bytes inside OpenSSL; a
  selector would not report those.
"""

from __future__ import annotations

import errno
import os
import selectors
import ssl
from dataclasses import dataclass
from typing import cast

from kafka_sink.kafka.net.selector import Channel, check_connected
from kafka_sink.kafka.net.tls import HUNG_UP, explain
from kafka_sink.kafka.net.transport import TlsFailure

# The most bytes that one connection encrypts before the next connection has its turn.
_TLS_TURN_BYTES = 1024 * 1024


@dataclass(slots=True, eq=False, kw_only=True)
class TlsChannel(Channel):
    """`server_name`: the host that the certificate must be valid for."""

    context: ssl.SSLContext
    server_name: str
    _wrapped: bool = False

    def establish(self) -> int | None:
        if not self._wrapped:
            check_connected(self.sock)
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

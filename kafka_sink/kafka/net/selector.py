"""The transport over non-blocking sockets, with or without TLS, and the operating system's selector.

One round of `poll` writes what was queued, waits, and then serves each ready connection once: one `recv`, one
`sendmsg`. So a fast peer delays another by at most that. The selector watches for writability only while bytes wait for
room. Most requests are written in the first attempt.

Source: org.apache.kafka.common.network.Selector.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import selectors
import socket
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafka_sink.errors import ConfigError
from kafka_sink.errors.exhaustion import is_exhaustion
from kafka_sink.kafka.net.transport import Address, Buffer, Connected, Disconnected, Event, Received, Sent, TlsFailure

if TYPE_CHECKING:
    from kafka_sink.kafka.net.tls import Contexts


# --- one socket -------------------------------------------------------------------------------------------------------

# The most buffers that one sendmsg takes (1024 on Linux and macOS).
IOV_MAX = os.sysconf("SC_IOV_MAX")


@dataclass(slots=True, eq=False)
class Channel:
    """One socket in plaintext; `TlsChannel` has those with TLS. No method waits: reading raises BlockingIOError, and
    writing writes less.

    `outgoing`: buffers left to write. `sends`: how many of these buffers each `send` call has left, oldest first.
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


# --- selector ---------------------------------------------------------------------------------------------------------

RECEIVE_CHUNK_BYTES = 64 * 1024
_WAKEUP = None


class Selector:
    """Implements `Transport`. Buffer sizes are SO_SNDBUF and SO_RCVBUF in bytes; -1 for the system's default. With
    `tls`, all connections are encrypted and all peers verified."""

    def __init__(
        self,
        *,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        receive_chunk_bytes: int = RECEIVE_CHUNK_BYTES,
        tls: Contexts | None = None,
    ) -> None:
        """`receive_chunk_bytes`: the most that is read at once."""
        self._tls = tls
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        self._channels: dict[int, Channel] = {}
        # Connections with buffers queued since the last poll, in order.
        self._queued: dict[int, None] = {}
        # Events that occurred outside of poll. The next poll returns them.
        self._staged: list[Event] = []
        self._chunk = memoryview(bytearray(receive_chunk_bytes))
        self._selector = selectors.DefaultSelector()
        try:
            self._wakeup_receiver, self._wakeup_sender = socket.socketpair()
        except BaseException:
            self._selector.close()
            raise
        for end in (self._wakeup_receiver, self._wakeup_sender):
            end.setblocking(False)
        self._selector.register(self._wakeup_receiver, selectors.EVENT_READ, _WAKEUP)

    def connect(self, key: int, address: Address) -> None:
        try:
            sock = self._socket(address.family)
        except OSError as error:
            self._staged.append(_failed(key, error))
            return
        try:
            context = None if self._tls is None else self._tls.current()
        except ConfigError as unusable:
            # The file may be in the middle of a write: the next attempt may find it complete.
            sock.close()
            self._staged.append(Disconnected(key, unusable.parts().happened))
            return
        code = sock.connect_ex(address.sockaddr)
        if code not in (0, errno.EINPROGRESS):
            sock.close()
            self._staged.append(Disconnected(key, os.strerror(code)))
            return
        if context is None:
            channel = Channel(key, sock)
        else:
            # OpenSSL and readers of key stores are for connections with TLS.
            from kafka_sink.kafka.net.tls import TlsChannel

            channel = TlsChannel(key, sock, context=context, server_name=address.host)
        # A socket becomes writable when its connection is established or has failed.
        try:
            self._selector.register(sock, selectors.EVENT_WRITE, channel)
        except OSError as error:
            sock.close()
            self._staged.append(_failed(key, error))
            return
        self._channels[key] = channel

    def _socket(self, family: int) -> socket.socket:
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # Before connecting, because the handshake negotiates the window scale.
        if self._send_buffer_bytes >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
        if self._receive_buffer_bytes >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
        return sock

    def send(self, key: int, buffers: Sequence[Buffer], *, tell_at_once: bool = True) -> None:
        channel = self._channels.get(key)
        if channel is None:
            return
        views = [view for view in (memoryview(buffer).cast("B") for buffer in buffers) if view.nbytes]
        channel.outgoing.extend(views)
        channel.sends.append(len(views))
        channel.tell_at_once.append(tell_at_once)
        self._queued[key] = None

    def poll(self, timeout_ms: int) -> list[Event]:
        events, self._staged = self._staged, []
        queued, self._queued = self._queued, {}
        ends_poll = bool(events)
        for key in queued:
            if key in self._channels:
                ends_poll |= self._write(self._channels[key], events)
        for selected, mask in self._selector.select(0 if ends_poll else max(0, timeout_ms) / 1000):
            channel: Channel | None = selected.data
            if channel is _WAKEUP:
                self._drain_wakeups()
            elif not channel.connected:
                self._finish_connecting(channel, events)
            else:
                if mask & selectors.EVENT_WRITE:
                    self._write(channel, events)
                if mask & selectors.EVENT_READ and channel.key in self._channels:
                    self._read(channel, events)
        return events

    def _finish_connecting(self, channel: Channel, events: list[Event]) -> None:
        try:
            waits_for = channel.establish()
        # ValueError: no certificate can be valid for this host.
        except (OSError, ValueError) as error:
            self._lost(channel, error, events)
            return
        if waits_for is not None:
            self._selector.modify(channel.sock, waits_for, channel)
            return
        channel.connected = True
        self._selector.modify(channel.sock, selectors.EVENT_READ, channel)
        events.append(Connected(channel.key))

    def _read(self, channel: Channel, events: list[Event]) -> None:
        try:
            if not self._receive(channel, events):
                self._lost(channel, None, events)
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(channel, error, events)

    def _receive(self, channel: Channel, events: list[Event]) -> int:
        """One `recv`. Return the number of bytes, 0 if the peer has closed."""
        received = channel.read_into(self._chunk)
        if received:
            events.append(Received(channel.key, bytes(self._chunk[:received])))
        return received

    def _write(self, channel: Channel, events: list[Event]) -> bool:
        """Write once. The rest follows when the socket is writable again. Return True if an event has to end the
        poll."""
        if channel.outgoing:
            try:
                written = channel.write()
            except ConnectionError as error:
                self._lost(channel, self._read_to_the_end(channel, events) or error, events)
                return True
            except OSError as error:
                self._lost(channel, error, events)
                return True
            if written:
                channel.advance(written)
        ends_poll = False
        while channel.sends and channel.sends[0] == 0:
            channel.sends.popleft()
            ends_poll |= channel.tell_at_once.popleft()
            events.append(Sent(channel.key))
        if channel.writing != bool(channel.outgoing):
            channel.writing = not channel.writing
            interest = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.writing else 0)
            self._selector.modify(channel.sock, interest, channel)
        return ends_poll

    def _read_to_the_end(self, channel: Channel, events: list[Event]) -> OSError | None:
        """Read what the peer sent before it closed, for example responses to earlier requests. Return the error that
        ended the reading if it is a TLS error, which says more than the end of the connection, or None."""
        try:
            while self._receive(channel, events):
                pass
        except OSError as error:
            return error if channel.explain(error) else None
        return None

    def _lost(self, channel: Channel, error: OSError | ValueError | None, events: list[Event]) -> None:
        """`error` is None if the peer closed in an orderly way."""
        tls = channel.explain(error) if isinstance(error, OSError) else None
        self.close(channel.key)
        reason = "the peer closed the connection" if error is None else _reason(error)
        events.append(Disconnected(channel.key, reason if tls is None else f"{tls.step}; {tls.advice}", tls))

    def close(self, key: int) -> None:
        self._staged = [event for event in self._staged if event.key != key]
        channel = self._channels.pop(key, None)
        if channel is not None:
            self._selector.unregister(channel.sock)
            channel.sock.close()

    def wakeup(self) -> None:
        # A full pipe wakes the poll as well, and a closed pipe has no poll to wake.
        with contextlib.suppress(OSError):
            self._wakeup_sender.send(b"\0")

    def _drain_wakeups(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wakeup_receiver.recv_into(self._chunk) == len(self._chunk):
                pass

    def close_all(self) -> None:
        for key in list(self._channels):
            self.close(key)
        self._wakeup_sender.close()
        self._wakeup_receiver.close()
        self._selector.close()


def _failed(key: int, error: OSError) -> Disconnected:
    return Disconnected(key, _reason(error), lacks=error.errno if is_exhaustion(error.errno) else None)


def _reason(error: OSError | ValueError) -> str:
    return getattr(error, "strerror", None) or str(error)

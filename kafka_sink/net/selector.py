"""The transport over non-blocking sockets and the operating system's selector.

A round of `poll`: write what was queued, wait, then serve each connection that is ready once: one `recv`, one
`sendmsg`. So no peer, however fast, keeps another waiting for more than that. Interest in writability is registered
only while bytes wait for room; most requests go out in the first attempt and never need it.

Source: org.apache.kafka.common.network.Selector.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from kafka_sink.metrics import Metrics
from kafka_sink.net.transport import Address, Buffer, Connected, Disconnected, Event, Received, Sent

RECEIVE_CHUNK_BYTES = 64 * 1024
# sendmsg refuses more buffers at once than this (1024 on Linux and macOS).
IOV_MAX = os.sysconf("SC_IOV_MAX")
_WAKEUP = None


@dataclass(slots=True, eq=False)
class _Channel:
    """`outgoing`: buffers left to write. `sends`: how many of them each `send` call has left, oldest first."""

    key: int
    sock: socket.socket
    connected: bool = False
    writing: bool = False
    outgoing: deque[memoryview] = field(default_factory=deque)
    sends: deque[int] = field(default_factory=deque)


class Selector:
    """Implements `Transport`. Buffer sizes are SO_SNDBUF and SO_RCVBUF in bytes; -1 leaves them to the system."""

    def __init__(self, *, metrics: Metrics, send_buffer_bytes: int = -1, receive_buffer_bytes: int = -1) -> None:
        self._metrics = metrics
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        self._channels: dict[int, _Channel] = {}
        # Connections with something queued since the last poll, in order.
        self._queued: dict[int, None] = {}
        # What happened outside of poll, to be told by the next one.
        self._staged: list[Event] = []
        self._chunk = memoryview(bytearray(RECEIVE_CHUNK_BYTES))
        self._selector = selectors.DefaultSelector()
        self._wakeup_receiver, self._wakeup_sender = socket.socketpair()
        for end in (self._wakeup_receiver, self._wakeup_sender):
            end.setblocking(False)
        self._selector.register(self._wakeup_receiver, selectors.EVENT_READ, _WAKEUP)

    def connect(self, key: int, address: Address) -> None:
        try:
            sock = self._socket(address.family)
        except OSError as error:
            self._staged.append(Disconnected(key, _reason(error)))
            return
        code = sock.connect_ex(address.sockaddr)
        if code not in (0, errno.EINPROGRESS):
            sock.close()
            self._staged.append(Disconnected(key, os.strerror(code)))
            return
        channel = _Channel(key, sock)
        # A socket becomes writable when its connection stands, or cannot be made.
        try:
            self._selector.register(sock, selectors.EVENT_WRITE, channel)
        except OSError as error:
            sock.close()
            self._staged.append(Disconnected(key, _reason(error)))
            return
        self._channels[key] = channel
        self._metrics.connections_now(len(self._channels))

    def _socket(self, family: int) -> socket.socket:
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # Before connecting: the window's scale is agreed on in the handshake.
        if self._send_buffer_bytes >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
        if self._receive_buffer_bytes >= 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
        return sock

    def send(self, key: int, buffers: Sequence[Buffer]) -> None:
        channel = self._channels.get(key)
        if channel is None:
            return
        views = [view for view in (memoryview(buffer).cast("B") for buffer in buffers) if view.nbytes]
        channel.outgoing.extend(views)
        channel.sends.append(len(views))
        self._queued[key] = None

    def poll(self, timeout_ms: int) -> list[Event]:
        started_ns = time.monotonic_ns()
        events, self._staged = self._staged, []
        queued, self._queued = self._queued, {}
        for key in queued:
            if key in self._channels:
                self._write(self._channels[key], events)
        waiting_ns = time.monotonic_ns()
        ready = self._selector.select(0 if events else max(0, timeout_ms) / 1000)
        waited_ns = time.monotonic_ns()
        for selected, mask in ready:
            channel: _Channel | None = selected.data
            if channel is _WAKEUP:
                self._drain_wakeups()
            elif not channel.connected:
                self._finish_connecting(channel, events)
            else:
                if mask & selectors.EVENT_WRITE:
                    self._write(channel, events)
                if mask & selectors.EVENT_READ and channel.key in self._channels:
                    self._read(channel, events)
        ended_ns = time.monotonic_ns()
        self._metrics.polled(wait_ns=waited_ns - waiting_ns, io_ns=waiting_ns - started_ns + ended_ns - waited_ns)
        return events

    def _finish_connecting(self, channel: _Channel, events: list[Event]) -> None:
        try:
            _check_connected(channel.sock)
        except OSError as error:
            self._lost(channel, _reason(error), events)
            return
        channel.connected = True
        self._metrics.connection_created()
        self._selector.modify(channel.sock, selectors.EVENT_READ, channel)
        events.append(Connected(channel.key))

    def _read(self, channel: _Channel, events: list[Event]) -> None:
        try:
            if not self._receive(channel, events):
                self._lost(channel, "the peer closed the connection", events)
        except BlockingIOError:
            return
        except OSError as error:
            self._lost(channel, _reason(error), events)

    def _receive(self, channel: _Channel, events: list[Event]) -> int:
        """One `recv`. Returns the number of bytes, 0 at the peer's end."""
        received = channel.sock.recv_into(self._chunk)
        if received:
            self._metrics.bytes_received(received)
            events.append(Received(channel.key, bytes(self._chunk[:received])))
        return received

    def _write(self, channel: _Channel, events: list[Event]) -> None:
        """One `sendmsg`. What remains goes on when the socket is writable again."""
        if channel.outgoing:
            try:
                written = channel.sock.sendmsg(list(itertools.islice(channel.outgoing, IOV_MAX)))
            except BlockingIOError:
                written = 0
            except ConnectionError as error:
                # The peer is gone; but what it said before, perhaps answers to earlier requests, can still be read.
                with contextlib.suppress(OSError):
                    while self._receive(channel, events):
                        pass
                self._lost(channel, _reason(error), events)
                return
            except OSError as error:
                self._lost(channel, _reason(error), events)
                return
            if written:
                self._metrics.bytes_sent(written)
                _advance(channel, written)
        while channel.sends and channel.sends[0] == 0:
            channel.sends.popleft()
            events.append(Sent(channel.key))
        if channel.writing != bool(channel.outgoing):
            channel.writing = not channel.writing
            interest = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.writing else 0)
            self._selector.modify(channel.sock, interest, channel)

    def _lost(self, channel: _Channel, reason: str, events: list[Event]) -> None:
        self.close(channel.key)
        events.append(Disconnected(channel.key, reason))

    def close(self, key: int) -> None:
        self._staged = [event for event in self._staged if event.key != key]
        channel = self._channels.pop(key, None)
        if channel is not None:
            self._selector.unregister(channel.sock)
            channel.sock.close()
            self._metrics.connections_now(len(self._channels))
            self._metrics.connection_closed()

    def wakeup(self) -> None:
        # A full pipe wakes just as well, and a closed one has nobody to wake.
        with contextlib.suppress(OSError):
            self._wakeup_sender.send(b"\0")

    def _drain_wakeups(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wakeup_receiver.recv_into(self._chunk) == RECEIVE_CHUNK_BYTES:
                pass

    def close_all(self) -> None:
        for key in list(self._channels):
            self.close(key)
        self._wakeup_sender.close()
        self._wakeup_receiver.close()
        self._selector.close()


def _check_connected(sock: socket.socket) -> None:
    """Raises the OSError that the attempt to connect ended with, if it did."""
    code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    # TCP's simultaneous open: where nobody listens on a loopback port, the port we were given may be that very one.
    if not code and sock.getsockname() == sock.getpeername():
        code = errno.ECONNREFUSED
    if code:
        raise OSError(code, os.strerror(code))


def _advance(channel: _Channel, written: int) -> None:
    """Takes `written` bytes off the front. Each `send` owns the next `sends[i]` buffers."""
    outgoing, sends = channel.outgoing, channel.sends
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


def _reason(error: OSError) -> str:
    return error.strerror or str(error)

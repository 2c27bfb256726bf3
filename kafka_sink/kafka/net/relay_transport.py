"""A transport over the connections of the executor's relay.

    NetworkClient ── connect, send, close ──> RelayTransport ── Unix socket ──> relay ── TCP, TLS, SASL ──> brokers

A connection here is a numbered stream in one Unix socket. The relay has connected, encrypted and authenticated, and
shares each of its connections between the workers. So a worker's client has plaintext and no authentication, and
otherwise works as over its own sockets: it negotiates versions, asks for the cluster's id, and applies its own
timeouts. If a connection of the relay ends, the streams over it end too.

Rows stay in memory that the relay reads. After `send`, a buffer may change only when its request was answered, when
the relay has confirmed the end of the stream (it has copied what it had not written yet), or when the relay has ended.
If a relay confirms nothing for CONFIRM_S, because it is stopped, the memory is tainted: the buffers of requests in
flight are never written again (`RelayedMemory.fresh`).
"""

from __future__ import annotations

import contextlib
import pickle
import selectors
import socket
import time
from collections.abc import Callable, Sequence

from kafka_sink.errors import ClusterError
from kafka_sink.kafka.metrics import Metrics
from kafka_sink.kafka.net.outbox import Outbox
from kafka_sink.kafka.net.relay_wire import INLINE, Kind, Message, Reader, encode
from kafka_sink.kafka.net.shared_memory import RelayedMemory, SharedMemory
from kafka_sink.kafka.net.transport import Address, Buffer, Connected, Disconnected, Event, Received, Sent, Throttled

# The longest wait for the relay's confirmation that it reads a stream's buffers no more. It takes less than 1 ms.
CONFIRM_S = 1.0
_WAKEUP = None
_GONE = "the relay of this executor, the process that holds the connections to brokers, has ended"
_SILENT = f"the relay of this executor, the process that holds the connections to brokers, was silent for {CONFIRM_S} s"

# Returns a socket of a relay that has welcomed this worker, and its first messages. Raises OSError.
FindRelay = Callable[[RelayedMemory], socket.socket]


class RelayTransport:
    """Implements `Transport`. `memory`: where the buffers are whose content does not travel over the socket."""

    def __init__(self, find_relay: FindRelay, memory: RelayedMemory, metrics: Metrics) -> None:
        self._find_relay = find_relay
        self._memory = memory
        self._metrics = metrics
        self._relay: socket.socket | None = None
        # The memory whose file the relay has.
        self._known: SharedMemory | None = None
        self._reader = Reader()
        self._outbox = Outbox()
        # Connections that are open or being opened, and those whose end the relay has yet to confirm.
        self._keys: set[int] = set()
        self._ending: set[int] = set()
        # Events that occurred outside of poll. The next poll returns them.
        self._staged: list[Event] = []
        self._chunk = memoryview(bytearray(64 * 1024))
        self._selector = selectors.DefaultSelector()
        try:
            self._wakeup_receiver, self._wakeup_sender = socket.socketpair()
        except BaseException:
            self._selector.close()
            raise
        for end in (self._wakeup_receiver, self._wakeup_sender):
            end.setblocking(False)
        self._selector.register(self._wakeup_receiver, selectors.EVENT_READ, _WAKEUP)

    # --- what the client asks for -------------------------------------------------------------------------------------

    def connect(self, key: int, address: Address) -> None:
        try:
            self.meet()
        except OSError as error:
            self._staged.append(Disconnected(key, f"the relay of this executor cannot be reached: {error}"))
            return
        self._keys.add(key)
        self._outbox.add(encode(Kind.OPEN, key, [pickle.dumps((address.host, address.sockaddr[1]))]))

    def meet(self) -> None:
        """Find the relay, unless there is one. Raises OSError."""
        if self._relay is None:
            relay = self._find_relay(self._memory)
            self._selector.register(relay, selectors.EVENT_READ, relay)
            self._relay, self._reader, self._known = relay, Reader(), self._memory.shared

    def send(self, key: int, buffers: Sequence[Buffer], *, tell_at_once: bool = True) -> None:
        if key not in self._keys:
            return
        segments, inline = [], []
        for buffer in buffers:
            offset = self._offset_of(buffer)
            segments.append((INLINE if offset is None else offset, len(buffer)))
            if offset is None:
                inline.append(buffer)
        self._outbox.add(encode(Kind.SEND, key, inline, flag=tell_at_once, segments=segments))
        if not tell_at_once:
            # The answer says enough. Until then the buffers do not change.
            self._staged.append(Sent(key))

    def _offset_of(self, buffer: Buffer) -> int | None:
        """Return where the relay finds the buffer, or None if its bytes have to travel."""
        if not isinstance(buffer, memoryview) or not len(buffer) or self._known is not self._memory.shared:
            return None
        return self._known.offset_of(buffer)

    def throttled(self, key: int, milliseconds: int) -> None:
        if key in self._keys:
            self._outbox.add(encode(Kind.THROTTLED, key, [milliseconds.to_bytes(4, "big")]))

    def close(self, key: int) -> None:
        self._staged = [event for event in self._staged if event.key != key]
        if key not in self._keys:
            return
        self._keys.remove(key)
        self._ending.add(key)
        self._outbox.add(encode(Kind.CLOSE, key))
        self._await_confirmation(key)

    def _await_confirmation(self, key: int) -> None:
        deadline_s = time.monotonic() + CONFIRM_S
        while key in self._ending and self._relay is not None:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                self._memory.is_tainted = True
                self._lose(_SILENT)
                return
            self._staged += self._exchange(left_s)

    def wakeup(self) -> None:
        # A full pipe wakes the poll as well, and a closed pipe has no poll to wake.
        with contextlib.suppress(OSError):
            self._wakeup_sender.send(b"\0")

    def close_all(self) -> None:
        for key in list(self._keys):
            self.close(key)
        if self._relay is not None:
            self._selector.unregister(self._relay)
            self._relay.close()
            self._relay = None
        self._wakeup_sender.close()
        self._wakeup_receiver.close()
        self._selector.close()

    # --- the socket ---------------------------------------------------------------------------------------------------

    def poll(self, timeout_ms: int) -> list[Event]:
        started_ns = time.monotonic_ns()
        events, self._staged = self._staged, []
        # A Sent alone does not end a poll.
        has_news = any(not isinstance(event, Sent) for event in events)
        self._write(events)
        waiting_ns = time.monotonic_ns()
        events += self._exchange(0 if has_news else max(0, timeout_ms) / 1000)
        ended_ns = time.monotonic_ns()
        self._metrics.polled(wait_ns=ended_ns - waiting_ns, io_ns=waiting_ns - started_ns)
        return events

    def _exchange(self, timeout_s: float) -> list[Event]:
        """Write and read once, after waiting for up to `timeout_s`."""
        events: list[Event] = []
        self._write(events)
        for selected, mask in self._selector.select(timeout_s):
            if selected.data is _WAKEUP:
                self._drain_wakeups()
                continue
            if mask & selectors.EVENT_WRITE:
                self._write(events)
            if mask & selectors.EVENT_READ:
                self._read(events)
        return events

    def _write(self, events: list[Event]) -> None:
        if self._relay is None or not self._outbox:
            return
        try:
            self._metrics.bytes_sent(self._outbox.flush(self._relay))
        except OSError:
            self._lose(_GONE, events)
            return
        interest = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outbox else 0)
        self._selector.modify(self._relay, interest, self._relay)

    def _read(self, events: list[Event]) -> None:
        if self._relay is None:
            return
        try:
            received = self._relay.recv_into(self._chunk)
        except BlockingIOError:
            return
        except OSError:
            received = 0
        if not received:
            self._lose(_GONE, events)
            return
        self._metrics.bytes_received(received)
        for message in self._reader.feed(self._chunk[:received]):
            event = self._event_of(message)
            if event is not None:
                events.append(event)

    def _event_of(self, message: Message) -> Event | None:
        key = message.key
        if message.kind is Kind.CLOSED:
            self._ending.discard(key)
        if key not in self._keys:
            return None
        match message.kind:
            case Kind.OPENED:
                self._metrics.connection_created()
                return Connected(key)
            case Kind.RECEIVED:
                return Received(key, bytes(message.body))
            case Kind.SENT:
                return Sent(key)
            case Kind.THROTTLED:
                return Throttled(key, int.from_bytes(message.body, "big"))
            case Kind.CLOSED:
                self._keys.remove(key)
                reason, failure = pickle.loads(message.body)
                assert failure is None or isinstance(failure, ClusterError)
                return Disconnected(key, reason, failure=failure)
            case _:
                raise AssertionError(f"a relay sends no {message.kind.name}")

    def _lose(self, reason: str, events: list[Event] | None = None) -> None:
        """End all connections, because the relay has ended or is silent."""
        assert self._relay is not None
        self._selector.unregister(self._relay)
        self._relay.close()
        self._relay = None
        self._outbox.clear()
        self._ending.clear()
        lost = [Disconnected(key, reason) for key in sorted(self._keys)]
        self._keys.clear()
        (self._staged if events is None else events).extend(lost)

    def _drain_wakeups(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self._wakeup_receiver.recv_into(self._chunk) == len(self._chunk):
                pass

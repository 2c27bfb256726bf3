"""The selector over real sockets on loopback. Nothing here sleeps: each wait is a poll that something ends."""

import errno
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from unittest.mock import patch

import pytest

from kafka_sink.kafka.net.selector import IOV_MAX, RECEIVE_CHUNK_BYTES, Selector
from kafka_sink.kafka.net.transport import Address, Connected, Disconnected, Event, Received, Sent

DEADLINE_S = 20


@pytest.fixture
def selector() -> Iterator[Selector]:
    made = Selector()
    yield made
    made.close_all()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with closing(socket.create_server(("127.0.0.1", 0))) as made:
        made.settimeout(DEADLINE_S)
        yield made


def address_of(listener: socket.socket) -> Address:
    return Address(socket.AF_INET, listener.getsockname())


def poll_until(selector: Selector, enough: Callable[[list[Event]], bool]) -> list[Event]:
    events: list[Event] = []
    deadline = time.monotonic() + DEADLINE_S
    while not enough(events):
        assert time.monotonic() < deadline, events
        events += selector.poll(1000)
    return events


class Watched(socket.socket):
    """Knows the options that it was given."""

    given: frozenset[int] = frozenset()

    def setsockopt(self, level: int, option: int, *value: Any) -> None:
        self.given |= {option}
        super().setsockopt(level, option, *value)


def connect(
    selector: Selector, address: Address, key: int = 1, made: Callable[[int, int], socket.socket] = Watched
) -> Any:
    """The selector's own end, which `made` gives it."""
    ends: list[socket.socket] = []

    def make(family: int, kind: int) -> socket.socket:
        ends.append(made(family, kind))
        return ends[-1]

    with patch.object(socket, "socket", make):
        selector.connect(key, address)
    (end,) = ends
    return end


def connected(selector: Selector, listener: socket.socket, key: int = 1) -> socket.socket:
    selector.connect(key, address_of(listener))
    assert poll_until(selector, bool) == [Connected(key)]
    peer, _ = listener.accept()
    peer.settimeout(DEADLINE_S)
    return peer


def received(events: list[Event], key: int = 1) -> bytes:
    return b"".join(event.data for event in events if isinstance(event, Received) and event.key == key)


def has_ended(events: list[Event]) -> bool:
    return any(isinstance(event, Disconnected) for event in events)


class TestConnect:
    def test_sockets_are_set_up(self, listener: socket.socket) -> None:
        selector = Selector(send_buffer_bytes=100_000, receive_buffer_bytes=50_000)
        sock = connect(selector, address_of(listener))
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        # Linux doubles what is asked for, for its bookkeeping.
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) in (100_000, 200_000)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) in (50_000, 100_000)
        selector.close_all()
        # Where nothing is said, buffers are the system's.
        selector = Selector()
        assert connect(selector, address_of(listener)).given == {socket.TCP_NODELAY, socket.SO_KEEPALIVE}
        selector.close_all()

    def test_refused(self, selector: Selector, listener: socket.socket) -> None:
        address = address_of(listener)
        listener.close()
        selector.connect(1, address)
        assert poll_until(selector, bool) == [Disconnected(1, os.strerror(errno.ECONNREFUSED))]

    @pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "255.255.255.255"), (12345, "127.0.0.1")])
    def test_an_address_that_cannot_be_connected_to_at_all(self, selector: Selector, family: int, host: str) -> None:
        """Known at once, told by poll unless it is closed."""
        selector.connect(1, Address(family, (host, 9)))
        selector.close(1)
        assert selector.poll(0) == []
        selector.connect(2, Address(family, (host, 9)))
        (event,) = poll_until(selector, bool)
        assert isinstance(event, Disconnected)

    def test_to_itself(self, selector: Selector) -> None:
        """A loopback port nobody listens on, which the system picked for our own end: TCP connects that to itself."""
        with closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            own = Address(socket.AF_INET, probe.getsockname())

        def bound(family: int, kind: int) -> socket.socket:
            sock = Watched(family, kind)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(own.sockaddr)
            return sock

        connect(selector, own, key=2, made=bound)
        assert poll_until(selector, bool) == [Disconnected(2, os.strerror(errno.ECONNREFUSED))]


class TestSend:
    def test_more_than_the_socket_takes_at_once(self, selector: Selector, listener: socket.socket) -> None:
        peer = connected(selector, listener)
        payload = os.urandom(1 << 20) * 16
        pieces = [payload[:100], b"", memoryview(payload)[100:3_000_000], memoryview(payload)[3_000_000:]]
        selector.send(1, pieces)
        selector.send(1, [b"second"])
        got = bytearray()
        reader = threading.Thread(target=read_all, args=(peer, got, len(payload) + 6))
        assert selector.poll(0) == []  # 16 MB do not go out in one call
        reader.start()
        events = poll_until(selector, lambda events: events.count(Sent(1)) == 2)
        reader.join(DEADLINE_S)
        assert (bytes(got), events) == (payload + b"second", [Sent(1), Sent(1)])
        assert waits(selector), "it has nothing to write any more"

    def test_more_buffers_than_one_call_takes(self, selector: Selector, listener: socket.socket) -> None:
        peer = connected(selector, listener)
        count = IOV_MAX * 2 + 7
        selector.send(1, [struct.pack(">I", i) for i in range(count)])
        poll_until(selector, lambda events: Sent(1) in events)
        got = bytearray()
        read_all(peer, got, 4 * count)
        assert struct.unpack(f">{count}I", got) == tuple(range(count))

    def test_what_happened_between_polls_ends_the_next(self, selector: Selector) -> None:
        def refuse(family: int, kind: int) -> socket.socket:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        with patch.object(socket, "socket", refuse):
            selector.connect(7, Address(socket.AF_INET, ("127.0.0.1", 1)))
        assert ends_soon(selector) == [Disconnected(7, os.strerror(errno.EMFILE), lacks=errno.EMFILE)]

    def test_is_told_with_what_happens_next_where_that_does(self, selector: Selector, listener: socket.socket) -> None:
        """An answer usually follows. A poll for each request would take the GIL from the threads that write."""
        peer = connected(selector, listener)
        selector.send(1, [b"question"], tell_at_once=False)
        answering = threading.Thread(target=lambda: peer.sendall(peer.recv(8)[::-1]))
        answering.start()
        assert selector.poll(1000 * DEADLINE_S) == [Sent(1), Received(1, b"noitseuq")]
        answering.join(DEADLINE_S)
        selector.send(1, [b"x"], tell_at_once=False)
        assert selector.poll(1) == [Sent(1)]
        # One that is to be told ends the poll behind others.
        for silent in (1, 0):
            for _ in range(silent):
                selector.send(1, [b"a"], tell_at_once=False)
            selector.send(1, [b"b"])
            assert ends_soon(selector) == [Sent(1)] * (silent + 1)
        peer.close()


def ends_soon(selector: Selector) -> list[Event]:
    """The events of a poll that has a long timeout."""
    started = time.monotonic()
    events = selector.poll(1000 * DEADLINE_S)
    assert time.monotonic() - started < DEADLINE_S / 2
    return events


def waits(selector: Selector) -> bool:
    """Whether a poll takes its whole timeout."""
    started = time.monotonic()
    assert selector.poll(50) == []
    return time.monotonic() - started > 0.04


def read_all(peer: socket.socket, into: bytearray, size: int) -> None:
    while len(into) < size:
        chunk = peer.recv(1 << 20)
        assert chunk
        into += chunk


def await_bytes(sock: socket.socket, size: int) -> None:
    """Until `size` bytes can be read, without reading them."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        assert time.monotonic() < deadline
        select.select([sock], [], [], DEADLINE_S)
        if len(sock.recv(size, socket.MSG_PEEK)) == size:
            return


def reset(peer: socket.socket) -> None:
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


class TestReceive:
    @pytest.mark.parametrize("size", [10, 3 * RECEIVE_CHUNK_BYTES + 7], ids=["little", "more than one read takes"])
    def test_bytes_then_the_end(self, selector: Selector, listener: socket.socket, size: int) -> None:
        peer = connected(selector, listener)
        words = os.urandom(size)
        writer = threading.Thread(target=lambda: (peer.sendall(words), peer.close()))
        writer.start()
        events = poll_until(selector, has_ended)
        writer.join(DEADLINE_S)
        assert (received(events), events[-1]) == (words, Disconnected(1, "the peer closed the connection"))
        assert selector.poll(0) == []

    def test_bytes_before_a_reset_that_a_write_meets_first(self, selector: Selector, listener: socket.socket) -> None:
        """They may be the answers to requests that a leader has carried out."""
        sock = connect(selector, address_of(listener))
        assert poll_until(selector, bool) == [Connected(1)]
        peer, _ = listener.accept()
        words = os.urandom(RECEIVE_CHUNK_BYTES + 7)
        peer.sendall(words)
        await_bytes(sock, len(words))
        reset(peer)
        selector.send(1, [b"a request on its heels"])
        events = poll_until(selector, has_ended)
        assert received(events) == words
        assert isinstance(events[-1], Disconnected)
        assert not any(isinstance(event, Sent) for event in events)
        reset(connected(selector, listener, key=2))
        assert poll_until(selector, bool) == [Disconnected(2, os.strerror(errno.ECONNRESET))]

    def test_a_peer_that_floods_takes_one_turn_a_poll(self, selector: Selector, listener: socket.socket) -> None:
        loud = connected(selector, listener, key=1)
        quiet = connected(selector, listener, key=2)
        flood = bytes(4 * RECEIVE_CHUNK_BYTES)
        writer = threading.Thread(target=loud.sendall, args=(flood,))
        writer.start()
        quiet.sendall(b"me too")
        total, heard = 0, False
        while total < len(flood) or not heard:
            events = selector.poll(1000)
            turns = [event for event in events if isinstance(event, Received) and event.key == 1]
            assert len(turns) <= 1
            assert all(len(event.data) <= RECEIVE_CHUNK_BYTES for event in turns)
            total += len(received(events, key=1))
            heard = heard or received(events, key=2) == b"me too"
        writer.join(DEADLINE_S)

    def test_what_was_received_stays_when_more_comes(self, selector: Selector, listener: socket.socket) -> None:
        peer = connected(selector, listener)
        peer.sendall(b"first")
        first = poll_until(selector, lambda events: len(received(events)) == 5)
        peer.sendall(b"other")
        poll_until(selector, lambda events: len(received(events)) == 5)
        assert received(first) == b"first"


class TestClose:
    def test_ends_the_connection_without_an_event(self, selector: Selector, listener: socket.socket) -> None:
        peer = connected(selector, listener)
        selector.send(1, [b"never sent"])
        selector.close(1)
        selector.close(1)
        selector.send(1, [b"late"])
        assert selector.poll(0) == []
        assert peer.recv(100) == b""
        connected(selector, listener, key=2)
        buffer = bytearray(64 << 20)
        selector.send(2, [memoryview(buffer)])
        selector.poll(0)
        selector.close(2)
        buffer += b"a bytearray with a view on it would refuse to grow"
        peers = [connected(selector, listener, key) for key in (3, 4)]
        selector.close_all()
        selector.close_all()
        selector.wakeup()
        assert [peer.recv(1) for peer in peers] == [b"", b""]


class TestWakeup:
    def test_from_another_thread_ends_a_poll(self, selector: Selector) -> None:
        waker = threading.Timer(0.05, selector.wakeup)
        waker.start()
        assert ends_soon(selector) == []
        waker.join(DEADLINE_S)

    def test_before_a_poll_ends_the_next_one_only(self, selector: Selector) -> None:
        for _ in range(100_000):  # more than the pipe holds
            selector.wakeup()
        ends_soon(selector)
        assert waits(selector)

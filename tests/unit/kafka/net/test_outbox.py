from __future__ import annotations

import socket

from kafka_sink.kafka.net.channel import IOV_MAX
from kafka_sink.kafka.net.outbox import Outbox


def read_all(sock: socket.socket, size: int) -> bytes:
    return b"".join(iter(lambda: sock.recv(size), b""))


def test_what_the_socket_does_not_take_waits_in_order() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    parts = [bytes([number % 251]) * 3_000 for number in range(2 * IOV_MAX)]
    outbox = Outbox()
    outbox.add([b"", *parts])
    received = bytearray()
    while outbox:
        outbox.flush(ours)
        received += theirs.recv(100_000)
    ours.close()
    received += read_all(theirs, 100_000)
    assert received == b"".join(parts)
    theirs.close()


def test_a_flush_returns_what_it_wrote() -> None:
    ours, theirs = socket.socketpair()
    outbox = Outbox()
    outbox.add([b"abc", memoryview(b"de")])
    assert outbox.flush(ours) == 5 and not outbox
    assert theirs.recv(10) == b"abcde"
    ours.close()
    theirs.close()


def test_nothing_is_left_after_clear() -> None:
    outbox = Outbox()
    outbox.add([b"abc"])
    outbox.clear()
    assert not outbox

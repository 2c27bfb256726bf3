"""Peers behind a listening socket that are not brokers; `scripted_kafka.sockets` has brokers."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

Behaviour = Callable[[socket.socket], None]


@contextmanager
def peer(behaviour: Behaviour) -> Iterator[int]:
    """Open a port that handles each connection by `behaviour`."""
    open_sockets: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            open_sockets.append(sock)
            threading.Thread(target=treat, args=(sock,), daemon=True).start()

    def treat(sock: socket.socket) -> None:
        with suppress(OSError):
            behaviour(sock)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            for sock in open_sockets:
                # This also ends a blocked read in another thread.
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
                sock.close()


def says_nothing(sock: socket.socket) -> None:
    while sock.recv(4096):
        pass


def speaks_http(sock: socket.socket) -> None:
    sock.recv(4096)
    sock.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
    sock.close()


def hangs_up(sock: socket.socket) -> None:
    sock.recv(4096)
    sock.close()


def drips(first: bytes, byte: bytes = b"x", pause_s: float = 0.05) -> Behaviour:
    """Send `first`, then 300 single bytes, each before a `recv` times out: a client must limit the total time."""

    def behave(sock: socket.socket) -> None:
        sock.sendall(first)
        for _ in range(300):
            time.sleep(pause_s)
            sock.sendall(byte)

    return behave


@contextmanager
def silent_host() -> Iterator[int]:
    """Open a port with a full backlog: the kernel drops new connections, as a firewall does."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for filling in (first, second):
            filling.setblocking(False)
            filling.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]

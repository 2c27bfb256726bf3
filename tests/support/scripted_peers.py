"""Peers that are no brokers, or brokers that tell what they should not: each a listening socket and what it says."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from fuzz.answers import Said, answer
from kafka_sink.protocol.requests import APIS, ApiVersionsRequest, MetadataRequest, Request, api_of

Behaviour = Callable[[socket.socket], None]


@contextmanager
def peer(behaviour: Behaviour) -> Iterator[int]:
    """A port on which each connection is treated so."""
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
                # It also ends whoever reads from it.
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
    """Says this, and then a byte at a time for longer than anybody should wait: each sooner than a `recv` gives up."""

    def behave(sock: socket.socket) -> None:
        sock.sendall(first)
        for _ in range(300):
            time.sleep(pause_s)
            sock.sendall(byte)

    return behave


def advertises(host: str, port: int) -> Behaviour:
    """A broker with one broker in its cluster, at an address of its choice; it knows of no topics."""
    return scripted([(_CLUSTER, {"brokers": [{"node_id": 7, "host": host, "port": port}], "topics": []})])


def scripted(answers: Sequence[tuple[Request, Said]]) -> Behaviour:
    """A broker that gives these answers, whatever it is asked: to requests of an API in their order, the last one for
    ever. A Metadata request without topics gets the next answer as well, or what that says of the brokers where it says
    more. A connection is closed upon a request of an API without an answer."""

    def behave(sock: socket.socket) -> None:
        left: dict[int, list[tuple[Request, Said]]] = {api_of(_SOFTWARE).key: [(_SOFTWARE, {"api_keys": _RANGES})]}
        for request, said in answers:
            left.setdefault(api_of(request).key, []).append((request, said))
        for api_key, version, correlation_id, body in requests_on(sock):
            if api_key not in left:
                sock.close()
                return
            if api_key == api_of(_CLUSTER).key and body[:1] == _NO_TOPICS and left[api_key][0][1]["topics"]:
                request, said = _CLUSTER, {**left[api_key][0][1], "topics": []}
            else:
                request, said = left[api_key].pop(0) if len(left[api_key]) > 1 else left[api_key][0]
            frame = answer(request, version, {"error_code": 0, **said}, correlation_id)
            sock.sendall(struct.pack(">i", len(frame)) + frame)

    return behave


_SOFTWARE = ApiVersionsRequest("any", "1")
_CLUSTER = MetadataRequest((), allow_auto_topic_creation=False)
# How the body of such a request begins, from version 9 on.
_NO_TOPICS = b"\1"
_RANGES = [{"api_key": each.key, "min_version": each.min_version, "max_version": each.max_version} for each in APIS]


def requests_on(sock: socket.socket) -> Iterator[tuple[int, int, int, bytes]]:
    """The API key, the version and the correlation id of each request, and its body where the header has tags."""
    with sock.makefile("rb") as stream:
        while size := stream.read(4):
            frame = stream.read(struct.unpack(">i", size)[0])
            key, version, correlation_id, id_length = struct.unpack(">hhih", frame[:10])
            yield key, version, correlation_id, frame[10 + max(0, id_length) + 1 :]


@contextmanager
def silent_host() -> Iterator[int]:
    """A port whose queue of connections is full, so that what comes is dropped, as by firewalls."""
    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for filling in (first, second):
            filling.setblocking(False)
            filling.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]

"""Peers that are no brokers, or brokers that tell what they should not: each a listening socket and what it says."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from fuzz.answers import answer
from kafka_sink.protocol.requests import APIS, ApiVersionsRequest, MetadataRequest, api_of

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


def advertises(host: str, port: int) -> Behaviour:
    """A broker with one broker in its cluster, at an address of its choice; it answers nothing else."""
    software = ApiVersionsRequest("any", "1")
    cluster = MetadataRequest((), allow_auto_topic_creation=False)
    ranges = [{"api_key": each.key, "min_version": each.min_version, "max_version": each.max_version} for each in APIS]
    brokers = [{"node_id": 7, "host": host, "port": port}]

    def behave(sock: socket.socket) -> None:
        for api_key, correlation_id in requests_on(sock):
            if api_key == api_of(software).key:
                said = answer(software, 3, {"error_code": 0, "api_keys": ranges}, correlation_id)
            else:
                said = answer(cluster, 13, {"error_code": 0, "brokers": brokers, "topics": []}, correlation_id)
            sock.sendall(struct.pack(">i", len(said)) + said)

    return behave


def requests_on(sock: socket.socket) -> Iterator[tuple[int, int]]:
    """The API key and the correlation id of each request."""
    with sock.makefile("rb") as stream:
        while size := stream.read(4):
            api_key, _, correlation_id = struct.unpack(">hhi", stream.read(struct.unpack(">i", size)[0])[:8])
            yield api_key, correlation_id

"""Peers behind a listening socket: brokers that answer by a script, with kio's names of fields, and no brokers."""

import socket
import struct
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from fuzz.answers import Said, answer
from kafka_sink.kafka.protocol.api import Request
from kafka_sink.kafka.protocol.apis import all_apis
from kafka_sink.kafka.protocol.apis.handshake import ApiVersionsRequest
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest

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
            time.sleep(pause_s)  # the slowness that is tried
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


_SOFTWARE = ApiVersionsRequest("any", "1")
_CLUSTER = MetadataRequest((), allow_auto_topic_creation=False)
# How the body of such a request begins, from version 9 on.
_NO_TOPICS = b"\1"
_RANGES = [
    {"api_key": each.key, "min_version": each.min_version, "max_version": each.max_version} for each in all_apis()
]


class ByteScript:
    """Answers the requests of each API in order, without regard to their content. The last answer repeats.
    A Metadata request without topics gets the next answer without topics, and does not use it up."""

    def __init__(self, answers: Sequence[tuple[Request, Said]]) -> None:
        self._left: defaultdict[int, deque[tuple[Request, Said]]] = defaultdict(deque)
        for request, said in [(_SOFTWARE, {"api_keys": _RANGES}), *answers]:
            self._left[request.api.key].append((request, said))

    def answer(self, frame: bytes) -> bytes | None:
        """Return the answer. Neither frame has its size prefix. None: there is no answer, so the broker hangs up."""
        api_key, version, correlation_id, id_length = struct.unpack(">hhih", frame[:10])
        # Where the header has tags.
        body = frame[10 + max(0, id_length) + 1 :]
        left = self._left[api_key]
        if not left:
            return None
        request, said = left[0]
        if api_key == _CLUSTER.api.key and body[:1] == _NO_TOPICS and said["topics"]:
            request, said = _CLUSTER, {**said, "topics": []}
        elif len(left) > 1:
            left.popleft()
        return answer(request, version, {"error_code": 0, **said}, correlation_id)


def scripted(
    answers: Sequence[tuple[Request, Said]], then: Callable[[socket.socket], None] = socket.socket.close
) -> Callable[[socket.socket], None]:
    """A broker that restarts its script for each connection. `then`: called when the script has no answer."""

    def behave(sock: socket.socket) -> None:
        script = ByteScript(answers)
        with sock.makefile("rb") as stream:
            while size := stream.read(4):
                frame = script.answer(stream.read(struct.unpack(">i", size)[0]))
                if frame is None:
                    then(sock)
                    return
                sock.sendall(struct.pack(">i", len(frame)) + frame)

    return behave


def advertises(
    host: str, port: int, then: Callable[[socket.socket], None] = socket.socket.close
) -> Callable[[socket.socket], None]:
    """A broker that answers Metadata with one broker, at the given address, and with no topics."""
    brokers = [{"node_id": 7, "host": host, "port": port}]
    return scripted([(_CLUSTER, {"brokers": brokers, "topics": []})], then)

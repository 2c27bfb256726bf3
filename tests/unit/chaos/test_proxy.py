"""chaos.proxy: between a client and a server that answers each message with itself, both of them plain sockets."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import struct
import threading
from collections.abc import Iterator

import pytest

from chaos.fates import Direction, Kind, Schedule
from chaos.proxy import Proxies
from waiting import wait_until

DEADLINE_S = 10
MESSAGE = b"x" * 5_000


class Echo(socketserver.ThreadingTCPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.received: list[bytes] = []


class Answer(socketserver.StreamRequestHandler):
    server: Echo

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # reset
            while message := self.rfile.read(4 + len(MESSAGE)):
                self.server.received.append(message)
                self.wfile.write(message)


@pytest.fixture
def server() -> Iterator[Echo]:
    with Echo() as echo:
        thread = threading.Thread(target=echo.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield echo
        echo.shutdown()
        thread.join()


@pytest.fixture
def proxies(server: Echo) -> Iterator[Proxies]:
    host, port = server.server_address[:2]
    with Proxies([3], lambda node: (str(host), int(port))) as made:
        yield made


@pytest.fixture
def client(proxies: Proxies) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxies.ports[3]), DEADLINE_S) as made:
        yield made


def ask(client: socket.socket) -> bytes:
    """What comes back for a message, without its length; ConnectionResetError, and TimeoutError, as they come."""
    client.sendall(struct.pack(">i", len(MESSAGE)) + MESSAGE)
    got = b""
    while len(got) < 4 + len(MESSAGE):
        part = client.recv(65_536)
        if not part:
            break
        got += part
    return got[4:]


def always(direction: Direction, kind: Kind) -> Schedule:
    return Schedule(1, {(direction, kind): 1000})


def test_messages_pass_through_before_and_after(proxies: Proxies, client: socket.socket) -> None:
    assert ask(client) == MESSAGE
    with proxies.harm(always(Direction.REQUEST, Kind.DELAYED)):
        assert ask(client) == MESSAGE
    assert ask(client) == MESSAGE
    assert proxies.happened == {"request delayed": 1}
    assert proxies.bootstrap_servers == f"127.0.0.1:{proxies.ports[3]}"


@pytest.mark.parametrize(("direction", "arrived"), [(Direction.REQUEST, 0), (Direction.ANSWER, 1)])
def test_a_message_that_is_cut_off(
    proxies: Proxies, client: socket.socket, server: Echo, direction: Direction, arrived: int
) -> None:
    with proxies.harm(always(direction, Kind.CUT)), pytest.raises(ConnectionResetError):
        ask(client)
    assert [len(message) for message in server.received] == [4 + len(MESSAGE)] * arrived
    assert proxies.happened == {f"{direction} cut off": 1}


def test_an_answer_that_is_half_sent(proxies: Proxies, client: socket.socket) -> None:
    with proxies.harm(always(Direction.ANSWER, Kind.HALF)):
        client.sendall(struct.pack(">i", len(MESSAGE)) + MESSAGE)
        got = b""
        with pytest.raises(ConnectionResetError):
            while part := client.recv(65_536):
                got += part
    assert 0 < len(got) < 4 + len(MESSAGE)


def test_a_request_that_is_half_sent(proxies: Proxies, client: socket.socket, server: Echo) -> None:
    with proxies.harm(always(Direction.REQUEST, Kind.HALF)), pytest.raises(ConnectionResetError):
        ask(client)
    assert all(len(message) < 4 + len(MESSAGE) for message in server.received)


def test_what_is_swallowed_is_followed_by_silence(proxies: Proxies, client: socket.socket, server: Echo) -> None:
    with proxies.harm(always(Direction.ANSWER, Kind.SWALLOWED)):
        client.sendall(struct.pack(">i", len(MESSAGE)) + MESSAGE)
        wait_until(lambda: proxies.happened, DEADLINE_S, "the answer is swallowed")
    client.sendall(struct.pack(">i", len(MESSAGE)) + MESSAGE)
    wait_until(lambda: len(server.received) == 2, DEADLINE_S, "the server has the second")
    # Another connection says when the second answer would have been there.
    with socket.create_connection(("127.0.0.1", proxies.ports[3]), DEADLINE_S) as other:
        assert ask(other) == MESSAGE
    client.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.recv(1)
    assert proxies.happened == {"answer swallowed": 1}

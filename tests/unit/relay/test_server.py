"""The relay's process and how workers find it, without brokers."""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from kafka_sink.errors import AuthenticationFailed
from kafka_sink.kafka.config import VERSION, ProducerConfig
from kafka_sink.kafka.net import relay_search
from kafka_sink.kafka.net.relay_search import find_relay
from kafka_sink.kafka.net.relay_wire import INLINE, Kind, Reader, encode
from kafka_sink.kafka.net.shared_memory import LEDGER_PLACES, Ledger, RelayedMemory, is_possible
from kafka_sink.relay import server
from kafka_sink.relay.server import Server
from live_producers import config
from waiting import wait_until as wait_for

pytestmark = pytest.mark.skipif(not is_possible(), reason="memfd is Linux's")

MIB = 1024 * 1024
CONFIG = config(1)


def wait_until(happened: Callable[[], bool]) -> None:
    wait_for(happened, 20, "what the relay does")


class Relay:
    """A relay in a thread of this process. `start` takes the place of starting a process."""

    def __init__(self, parent_pid: int) -> None:
        self.parent_pid = parent_pid
        self.threads: list[threading.Thread] = []
        self.servers: list[Server] = []

    def start(self, command: list[str], **more: object) -> Relay:
        listener = socket.socket(fileno=os.dup(int(command[-2])))
        self.servers.append(Server(listener, self.parent_pid))
        self.threads.append(threading.Thread(target=self._run, args=(self.servers[-1],), daemon=True))
        self.threads[-1].start()
        return self

    def _run(self, server: Server) -> None:
        try:
            server.run()
        except SystemExit:
            pass
        finally:
            server._listener.close()

    def poll(self) -> int | None:
        return None

    @property
    def is_running(self) -> bool:
        return any(thread.is_alive() for thread in self.threads)


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


@pytest.fixture
def relay(parent: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[Relay]:
    relay = Relay(parent.pid)
    monkeypatch.setattr(relay_search.subprocess, "Popen", relay.start)
    monkeypatch.setattr(relay_search.os, "getppid", lambda: parent.pid)
    monkeypatch.setattr(relay_search, "_avoided_until_s", {})
    yield relay
    parent.kill()
    parent.wait()
    wait_until(lambda: not relay.is_running)


@pytest.fixture
def worker(relay: Relay) -> Iterator[Callable[..., tuple[socket.socket, RelayedMemory]]]:
    made: list[tuple[socket.socket, RelayedMemory]] = []

    def worker(config: ProducerConfig = CONFIG) -> tuple[socket.socket, RelayedMemory]:
        memory = RelayedMemory(MIB)
        made.append((find_relay(config, memory), memory))
        return made[-1]

    yield worker
    for sock, memory in made:
        sock.close()
        memory.close()


Worker = Callable[..., tuple[socket.socket, RelayedMemory]]


def has_ended(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_workers_of_one_executor_share_a_relay(relay: Relay, worker: Worker) -> None:
    for _ in range(5):
        worker()
    assert len(relay.servers) == 1 and len(relay.servers[0]._workers) == 5


def test_workers_that_come_together_start_one_relay(relay: Relay, worker: Worker) -> None:
    together = [threading.Thread(target=worker) for _ in range(8)]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join(20)
    assert len(relay.servers) == 1 and len(relay.servers[0]._workers) == 8


def test_another_configuration_has_a_relay_of_its_own(relay: Relay, worker: Worker) -> None:
    worker()
    worker(replace(CONFIG, client_id="another"))
    worker(replace(CONFIG, security=replace(CONFIG.security, sasl_username="another")))
    worker()
    assert [len(each._workers) for each in relay.servers] == [2, 1, 1]


def test_workers_count_their_memory_in_one_ledger(relay: Relay, worker: Worker) -> None:
    (_, first), (end, second) = worker(), worker()
    first.took(1_000)
    second.took(500)
    ledger: Ledger = relay.servers[0]._ledger
    assert ledger.others(LEDGER_PLACES - 1) == (1_500, 2)
    end.close()
    wait_until(lambda: ledger.others(LEDGER_PLACES - 1) == (1_000, 1))


def test_a_worker_that_talks_nonsense_is_sent_away_and_the_others_stay(
    relay: Relay, worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    (bad, _), (good, _) = worker(), worker()
    bad.sendall(b"".join(encode(Kind.OPEN, 1, [pickle.dumps(("b", 1))])))
    bad.sendall(b"".join(encode(Kind.SEND, 1, [b""], segments=[(2**40, 10)])))
    wait_until(lambda: has_ended(bad))
    assert not has_ended(good) and "sent away" in caplog.text


def test_bytes_that_are_no_message_end_only_their_worker(relay: Relay, worker: Worker) -> None:
    (bad, _), (good, _) = worker(), worker()
    bad.sendall(b"\xff" * 100)
    wait_until(lambda: has_ended(bad))
    assert not has_ended(good)


def test_a_worker_that_shows_no_configuration_is_not_served(relay: Relay, worker: Worker) -> None:
    worker()
    stranger = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stranger.connect(relay.servers[0]._listener.getsockname())
    stranger.sendall(b"".join(encode(Kind.HELLO, body=[VERSION.encode(), b"\0", pickle.dumps("no configuration")])))
    stranger.settimeout(5)
    (message,) = Reader().feed(stranger.recv(100))
    assert message.kind is Kind.REFUSED
    stranger.sendall(b"".join(encode(Kind.CLOSE, 1)))
    stranger.settimeout(0.2)
    with pytest.raises(TimeoutError):
        stranger.recv(1)
    stranger.close()


def test_a_worker_of_another_version_is_not_understood(relay: Relay, worker: Worker) -> None:
    """Its configuration may be of a class that is not there, so nobody looks at it."""
    good, _ = worker()
    stranger = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stranger.connect(relay.servers[0]._listener.getsockname())
    stranger.sendall(b"".join(encode(Kind.HELLO, body=[b"another", b"\0", b"cno_such_module\nClass\n."])))
    stranger.settimeout(5)
    (message,) = Reader().feed(stranger.recv(100))
    assert message.kind is Kind.REFUSED and relay.is_running and not has_ended(good)
    stranger.close()


def test_a_relay_that_failed_leaves_its_name_to_the_next(relay: Relay, worker: Worker) -> None:
    refused = AuthenticationFailed(broker="b", mechanism="PLAIN", user="u", reason="no", remedy="")
    first, _ = worker()
    upstream = relay.servers[0]._upstream
    assert upstream is not None
    upstream.network.failure = refused
    first.sendall(b"".join(encode(Kind.CLOSE, 1)))
    wait_until(lambda: relay.servers[0]._listener.fileno() < 0)
    worker()
    assert len(relay.servers) == 2


def test_another_user_is_not_served(relay: Relay, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    worker()
    monkeypatch.setattr(server, "peer_uid", lambda sock: os.getuid() + 1)
    stranger = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stranger.connect(relay.servers[0]._listener.getsockname())
    stranger.settimeout(5)
    assert stranger.recv(1) == b""
    stranger.close()


def test_a_worker_shows_nothing_to_a_relay_of_another_user(
    relay: Relay, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_search, "peer_uid", lambda sock: os.getuid() + 1)
    with pytest.raises(OSError, match="names"):
        worker()
    assert all(each._upstream is None for each in relay.servers)


def test_a_relay_that_does_not_answer_is_avoided(
    relay: Relay, worker: Worker, parent: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_search, "WELCOME_S", 0.1)
    silent = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    silent.bind(f"\0pykafka/{os.getuid()}/{relay_search._namespace()}/{parent.pid}/0")
    silent.listen()
    with pytest.raises(TimeoutError):
        worker()
    monkeypatch.setattr(relay_search, "WELCOME_S", 10)
    worker()
    assert len(relay.servers) == 1
    silent.close()


def test_a_relay_that_ends_at_once_is_no_relay(relay: Relay, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_search.subprocess, "Popen", lambda command, **more: relay)
    with pytest.raises(OSError, match="it has ended"):
        worker()


def test_a_relay_that_ends_as_a_worker_comes_is_replaced(
    relay: Relay, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = iter([True])

    def start(command: list[str], **more: object) -> Relay:
        return relay if next(ended, False) else relay.start(command)

    monkeypatch.setattr(relay_search.subprocess, "Popen", start)
    worker()
    assert len(relay.servers) == 1


def test_a_relay_ends_with_the_parent_of_its_workers(
    relay: Relay, worker: Worker, parent: subprocess.Popen[bytes]
) -> None:
    worker()
    parent.kill()
    parent.wait()
    wait_until(lambda: not relay.is_running)


def test_a_relay_without_workers_ends(relay: Relay, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    end, _ = worker()
    monkeypatch.setattr(server, "IDLE_MS", 0)
    end.close()
    wait_until(lambda: not relay.is_running)


def test_the_memory_of_a_worker_that_is_gone_can_still_be_read(relay: Relay, worker: Worker) -> None:
    """A request that was begun is written to its end."""
    end, memory = worker()
    memory.shared.array[:4] = list(b"rows")
    end.sendall(b"".join(encode(Kind.OPEN, 1, [pickle.dumps(("127.0.0.1", 1))])))
    head = (14).to_bytes(4, "big") + bytes(10)
    end.sendall(b"".join(encode(Kind.SEND, 1, [head], segments=[(INLINE, 14), (0, 4)])))
    (served,) = relay.servers[0]._workers
    wait_until(lambda: len(served.memory) == MIB)
    view = served.memory[:4]
    end.close()
    memory.close()
    wait_until(lambda: not relay.servers[0]._workers)
    assert bytes(view) == b"rows"

from __future__ import annotations

import socket
import threading
import time
from typing import Any

import pytest

from kafka_sink.kafka.net.resolver import resolve


def test_a_name_has_each_of_its_addresses_once(monkeypatch: pytest.MonkeyPatch) -> None:
    six = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 9092, 0, 0))
    four = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9092))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: [six, four, six])
    found = resolve("localhost", 9092)
    assert found == [
        (socket.AF_INET6, ("::1", 9092, 0, 0), "localhost"), (socket.AF_INET, ("127.0.0.1", 9092), "localhost")
    ]  # fmt: skip
    assert [str(address) for address in found] == ["[::1]:9092", "127.0.0.1:9092"]


def test_an_address_is_its_own_name() -> None:
    assert resolve("127.0.0.1", 9092) == [(socket.AF_INET, ("127.0.0.1", 9092), "127.0.0.1")]


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example", "nowhere.invalid", "a\0b", "\x1b[2J", "x" * 100_000])
def test_a_name_that_is_none_is_an_os_error(host: str) -> None:
    with pytest.raises(OSError):
        resolve(host, 9092)


def test_silent_name_servers_are_waited_for_in_time_and_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    over, asked = threading.Event(), []
    threads: list[threading.Thread] = []

    system_look_up = socket.getaddrinfo

    def look_up(host: str, *args: Any, **named: Any) -> list[Any]:
        if host != "kafka-1":  # Spark's client looks names up in threads of its own.
            return system_look_up(host, *args, **named)
        asked.append(host)
        threads.append(threading.current_thread())
        over.wait(30)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9092))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    begun = time.monotonic()
    for _ in range(3):
        with pytest.raises(TimeoutError, match=r"no name server answered within 0\.1 s"):
            resolve("kafka-1", 9092, timeout_s=0.1)
    assert time.monotonic() - begun < 25
    assert asked == ["kafka-1"]
    over.set()
    threads[0].join(30)
    assert not threads[0].is_alive()
    # What was found when nobody waited is not kept, nor is what somebody waited for.
    for number in (2, 3):
        assert resolve("kafka-1", 9092)[0].sockaddr == ("127.0.0.1", 9092)
        assert asked == ["kafka-1"] * number

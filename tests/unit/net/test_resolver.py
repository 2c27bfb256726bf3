from __future__ import annotations

import socket

import pytest

from kafka_sink.net.resolver import resolve


def test_a_name_has_each_of_its_addresses_once(monkeypatch: pytest.MonkeyPatch) -> None:
    six = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 9092, 0, 0))
    four = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9092))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: [six, four, six])
    assert resolve("localhost", 9092) == [
        (socket.AF_INET6, ("::1", 9092, 0, 0), "localhost"),
        (socket.AF_INET, ("127.0.0.1", 9092), "localhost"),
    ]


def test_an_address_is_its_own_name() -> None:
    assert resolve("127.0.0.1", 9092) == [(socket.AF_INET, ("127.0.0.1", 9092), "127.0.0.1")]


@pytest.mark.parametrize("host", ["a..b", "x" * 64 + ".example", "nowhere.invalid"])
def test_a_name_that_is_none_is_an_os_error(host: str) -> None:
    with pytest.raises(OSError):
        resolve(host, 9092)

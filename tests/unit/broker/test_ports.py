"""kafka_sink.broker.ports: free, different, and outside the kernel's range for connections."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest

from kafka_sink.broker import ports
from kafka_sink.broker.errors import LocalKafkaError


def test_ports_are_different_and_a_taken_one_is_not_chosen() -> None:
    assert len(set(ports.free_ports(6, random.Random(1)))) == 6
    first, second = ports.free_ports(2, random.Random(7))
    with socket.create_server((ports.HOST, first)):
        assert not ports.is_free(first)
        assert ports.free_ports(1, random.Random(7)) == [second]


def test_below_the_ephemeral_range() -> None:
    file = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if not file.exists():
        pytest.skip("this system does not tell its range here")
    lowest, highest = map(int, file.read_text().split())
    assert lowest > ports.HIGHEST_PORT or highest < ports.LOWEST_PORT


def test_no_port_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "is_free", lambda port: False)
    with pytest.raises(LocalKafkaError, match="no 2 free ports between"):
        ports.free_ports(2, random.Random(1))

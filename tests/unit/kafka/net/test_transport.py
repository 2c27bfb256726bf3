from __future__ import annotations

import socket

import pytest

from kafka_sink.kafka.net.transport import Address


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (Address(socket.AF_INET, ("10.0.0.1", 9092)), "10.0.0.1:9092"),
        (Address(socket.AF_INET6, ("::1", 9092, 0, 0)), "[::1]:9092"),
    ],
)
def test_an_address_reads_as_users_write_it(address: Address, text: str) -> None:
    assert str(address) == text

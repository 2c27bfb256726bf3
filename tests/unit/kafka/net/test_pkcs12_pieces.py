"""PKCS#12 stores whose octet strings are in pieces of pieces: the iterations in them count."""

from __future__ import annotations

import pytest

from fuzz.java_stores import ber, der, derivation, integer, pkcs12_file
from kafka_sink.kafka.net.pkcs12_cost import TooCostly, iterations

OCTETS, CONSTRUCTED_OCTETS, SEQUENCE, EXPLICIT = 0x04, 0x24, 0x30, 0xA0
WHOLE = pkcs12_file(derivation(10), derivation(200), mac=3000)


def store(content: bytes) -> bytes:
    return ber(SEQUENCE, integer(3), ber(EXPLICIT, content))


def nested(content: bytes, depth: int) -> bytes:
    """Two pieces at each depth."""
    if depth == 0:
        return der(OCTETS, content)
    half = len(content) // 3
    return ber(CONSTRUCTED_OCTETS, nested(content[:half], depth - 1), nested(content[half:], depth - 1))


@pytest.mark.parametrize("depth", range(6))
def test_pieces_of_pieces_hide_nothing(depth: int) -> None:
    assert iterations(store(nested(WHOLE, depth))) == 3210


def test_a_store_that_is_nested_too_deep_is_refused() -> None:
    content = der(OCTETS, WHOLE)
    for _ in range(200):
        content = ber(CONSTRUCTED_OCTETS, content)
    with pytest.raises(TooCostly):
        iterations(store(content))

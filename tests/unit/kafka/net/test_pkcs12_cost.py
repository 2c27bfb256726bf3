"""The iterations that a PKCS#12 store asks for, found before anything is computed."""

from __future__ import annotations

import contextlib
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.java_stores import SALT, ber, der, derivation, integer, pkcs12_file
from kafka_sink.kafka.net.pkcs12_cost import NotPkcs12, TooCostly, iterations

SCRYPT = bytes.fromhex("06092b06010401da47040b")
HUGE = 2**31


def test_all_forms_are_counted() -> None:
    assert iterations(pkcs12_file(derivation(10), derivation(200), mac=3000)) == 3210
    # PBKDF2-params may name the length of the key and the function, behind the count.
    pbkdf2 = der(0x30, der(0x04, SALT), integer(10), integer(32), der(0x30, SCRYPT[:2]))
    assert iterations(pkcs12_file(pbkdf2)) == 10


def store(content: bytes) -> bytes:
    return ber(0x30, integer(3), ber(0xA0, content))


def nested(content: bytes, depth: int) -> bytes:
    """Two pieces at each depth."""
    if depth == 0:
        return der(0x04, content)
    half = len(content) // 3
    return ber(0x24, nested(content[:half], depth - 1), nested(content[half:], depth - 1))


@pytest.mark.parametrize("depth", range(6))
def test_pieces_of_pieces_hide_nothing(depth: int) -> None:
    """Their lengths are known at the end only."""
    assert iterations(store(nested(pkcs12_file(derivation(10), derivation(200), mac=3000), depth))) == 3210


def test_a_store_that_is_nested_too_deep_is_refused() -> None:
    content = der(0x04, pkcs12_file(derivation(10)))
    for _ in range(200):
        content = ber(0x24, content)
    with pytest.raises(TooCostly):
        iterations(store(content))


def test_what_is_damaged_hides_nothing_behind_it() -> None:
    damaged = der(0x31, b"\x30\x7f\x00")
    for inner in (der(0x30, damaged, derivation(HUGE)), der(0x30, der(0x04, b"0\x7f"), derivation(HUGE))):
        assert iterations(der(0x30, integer(3), inner)) == HUGE
        assert iterations(der(0x30, integer(3), der(0xA0, der(0x04, inner)))) == HUGE


def test_scrypt_is_not_computed() -> None:
    with pytest.raises(TooCostly):
        iterations(pkcs12_file(der(0x30, SCRYPT, der(0x30, der(0x04, SALT), integer(1)))))


@pytest.mark.parametrize(
    "content",
    [b"0\x80" * 1_000_000, der(0x30, b"\x05\x00" * 1_000_000), der(0x30, der(0x04, der(0x30, b"\x05\x00" * 900_000)))],
    ids=["deep", "wide", "wide within"],
)
def test_the_search_itself_ends_soon(content: bytes) -> None:
    begun_s = time.process_time()
    with pytest.raises(TooCostly):
        iterations(content)
    assert time.process_time() - begun_s < 5


@given(st.binary(max_size=300))
def test_any_bytes(content: bytes) -> None:
    for whole in (content, der(0x30, content), ber(0x30, content), der(0x30, der(0x04, der(0x30, content)))):
        with contextlib.suppress(NotPkcs12, TooCostly):
            assert iterations(whole) >= 0

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


def test_lengths_that_are_known_at_the_end_only() -> None:
    inner = pkcs12_file(derivation(HUGE))
    pieces = [der(0x04, inner[at : at + 10]) for at in range(0, len(inner), 10)]
    for octets in (ber(0x24, *pieces), der(0x24, *pieces)):
        assert iterations(ber(0x30, integer(3), ber(0xA0, octets))) == HUGE


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

"""PKCS#12 stores, damaged and hostile. Those of keytool and openssl are in test_stores.py."""

from __future__ import annotations

import contextlib
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import PrivateFormat, load_pem_private_key, pkcs12
from hypothesis import given
from hypothesis import strategies as st

from certificates import Authority
from kafka_sink.kafka.net.pkcs12 import Refused, Unreadable, WrongPassword, read_pkcs12

CA = Authority()
ALICE = CA.issue("alice")
QUICK = PrivateFormat.PKCS12.encryption_builder().kdf_rounds(1).hmac_hash(hashes.SHA256()).build(b"changeit")
CERTIFICATES = x509.load_pem_x509_certificates((ALICE.chain + CA.certificate).encode())


def store(*others: x509.Certificate) -> bytes:
    key = load_pem_private_key(ALICE.key.encode(), None)
    return pkcs12.serialize_key_and_certificates(b"me", key, CERTIFICATES[0], others, QUICK)  # type: ignore[arg-type]


WHOLE = store(CERTIFICATES[1])


def test_a_chain_is_in_order_whatever_the_order_in_the_file() -> None:
    root, issuer, stranger = Authority("Root"), CA, Authority()
    strangers = x509.load_pem_x509_certificates((root.certificate + stranger.certificate).encode())
    found = read_pkcs12(store(*strangers, CERTIFICATES[1]), "changeit")
    # `stranger` has the name of the issuer, and another key.
    assert found.chain == tuple(map(ssl.PEM_cert_to_DER_cert, (ALICE.chain, issuer.certificate)))
    assert len(found.certificates) == 4


@given(st.data())
def test_damaged_bytes_are_understood_or_refused(data: st.DataObject) -> None:
    changed = bytearray(WHOLE)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(0, len(WHOLE) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(Unreadable, Refused, WrongPassword):
        read_pkcs12(bytes(changed), "changeit")


@given(st.integers(0, len(WHOLE) - 1))
def test_a_store_that_was_cut(size: int) -> None:
    with pytest.raises((Unreadable, WrongPassword)):
        read_pkcs12(WHOLE[:size], "changeit")


@pytest.mark.parametrize("password", ["", "wrong", "\N{KEY}", "\ud800", "canary\0"])
def test_any_text_as_a_password(password: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((WrongPassword, Unreadable)):
        read_pkcs12(WHOLE, password)
    assert capfd.readouterr() == ("", "")


def test_a_panic_of_the_library_is_an_unreadable_store(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    for raised, expected in ((PanicException, Unreadable), (KeyboardInterrupt, KeyboardInterrupt)):

        def load(*_: object, raised: type[BaseException] = raised) -> None:
            raise raised

        monkeypatch.setattr(pkcs12, "load_pkcs12", load)
        with pytest.raises(expected):
            read_pkcs12(WHOLE, "changeit")

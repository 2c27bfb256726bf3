"""JKS and PKCS#12 stores, byte by byte: damaged and hostile. Stores of tools are in test_stores.py."""

import contextlib
import pickle
import ssl
from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import PrivateFormat, load_pem_private_key, pkcs12
from hypothesis import given
from hypothesis import strategies as st

from certificates import Authority
from fuzz.java_stores import jks_file, protected_key
from kafka_sink.kafka.net import jks
from kafka_sink.kafka.net.jks import DamagedStore, read_jks
from kafka_sink.kafka.net.pkcs12 import Unreadable, WrongPassword, read_pkcs12

PLAIN = b"a private key of more than one block of the stream, in truth DER"
STORE = jks_file([b"ca"], [(protected_key(PLAIN, "of the key"), [b"leaf", b"root"])])

CA = Authority()
ALICE = CA.issue("alice")
QUICK = PrivateFormat.PKCS12.encryption_builder().kdf_rounds(1).hmac_hash(hashes.SHA256()).build(b"changeit")
CERTIFICATES = x509.load_pem_x509_certificates((ALICE.chain + CA.certificate).encode())


def pkcs12_store(*others: x509.Certificate) -> bytes:
    key = load_pem_private_key(ALICE.key.encode(), None)
    return pkcs12.serialize_key_and_certificates(b"me", key, CERTIFICATES[0], others, QUICK)  # type: ignore[arg-type]


WHOLE = pkcs12_store(CERTIFICATES[1])


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("password", ["changeit", "pässwörd", "鍵", "\N{KEY}"])
def test_entries_of_both_kinds_and_versions_with_any_password_of_java(version: int, password: str) -> None:
    key = protected_key(PLAIN, password), [b"leaf", b"root"]
    store = read_jks(jks_file([b"a", b"b"], [key], version=version, password=password), password)
    assert (store.trusted, store.certificates) == ((b"a", b"b"), (b"a", b"b", b"leaf", b"root"))
    assert store.keys[0].unlocked(password) == PLAIN


def test_the_key_has_a_password_of_its_own_and_is_not_shown() -> None:
    store = read_jks(STORE, "changeit")
    (key,) = store.keys
    assert key.unlocked("of the key") == PLAIN
    with pytest.raises(jks.WrongPassword):
        key.unlocked("changeit")
    assert "protected" not in repr(store) + repr(store.keys)
    assert pickle.loads(pickle.dumps(store)) == store


def test_a_wrong_password_of_the_store_and_none_as_in_java() -> None:
    changed = STORE[:-1] + bytes([STORE[-1] ^ 1])
    for content, password in ((STORE, "wrong"), (STORE, ""), (changed, "changeit")):
        with pytest.raises(jks.WrongPassword):
            read_jks(content, password)
    # Without a password nothing is verified.
    assert read_jks(changed, None).trusted == (b"ca",)
    with pytest.raises(DamagedStore, match="longer"):
        read_jks(STORE + b"x", None)


@given(st.data())
def test_a_store_that_was_changed_is_noticed(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(STORE) - 1))
    changed = bytearray(STORE)
    changed[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises((jks.WrongPassword, DamagedStore)):
        read_jks(bytes(changed), "changeit")


@given(st.integers(0, len(STORE) - 1), st.integers(0, len(WHOLE) - 1))
def test_a_store_that_was_cut_is_noticed_a_jks_without_a_password_too(of_jks: int, of_pkcs12: int) -> None:
    with pytest.raises(DamagedStore):
        read_jks(STORE[:of_jks], None)
    with pytest.raises((Unreadable, WrongPassword)):
        read_pkcs12(WHOLE[:of_pkcs12], "changeit")


@pytest.mark.parametrize(("whole", "first", "read"), [
    (STORE, 4, lambda content: [key.unlocked("of the key") for key in read_jks(content, None).keys]),
    (WHOLE, 0, lambda content: read_pkcs12(content, "changeit")),
], ids=["JKS", "PKCS#12"])  # fmt: skip
@given(st.data())
def test_damaged_bytes_are_understood_or_refused(
    whole: bytes, first: int, read: Callable[[bytes], object], data: st.DataObject
) -> None:
    changed = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(first, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(jks.WrongPassword, DamagedStore, Unreadable, WrongPassword):
        read(bytes(changed))


@given(st.binary(max_size=300))
def test_any_bytes_as_a_key(protected: bytes) -> None:
    (key,) = read_jks(jks_file([], [(protected, [])]), "changeit").keys
    with pytest.raises((jks.WrongPassword, DamagedStore)):
        key.unlocked("changeit")


def test_a_chain_of_pkcs12_is_in_order_whatever_the_order_in_the_file() -> None:
    root, stranger = Authority("Root"), Authority()
    strangers = x509.load_pem_x509_certificates((root.certificate + stranger.certificate).encode())
    found = read_pkcs12(pkcs12_store(*strangers, CERTIFICATES[1]), "changeit")
    # `stranger` has the name of the issuer, and another key.
    assert found.chain == tuple(map(ssl.PEM_cert_to_DER_cert, (ALICE.chain, CA.certificate)))
    assert len(found.certificates) == 4


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

"""JKS stores, byte by byte. Those of keytool are in test_stores.py."""

from __future__ import annotations

import contextlib
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fuzz.java_stores import jks_file, protected_key
from kafka_sink.kafka.net.jks import DamagedStore, JavaKeyStore, WrongPassword, read_jks

PLAIN = b"a private key of more than one block of the stream, in truth DER"
STORE = jks_file([b"ca"], [(protected_key(PLAIN, "of the key"), [b"leaf", b"root"])])


@pytest.mark.parametrize("version", [1, 2])
def test_entries_of_both_kinds_and_versions(version: int) -> None:
    store = read_jks(jks_file([b"a", b"b"], [(protected_key(PLAIN), [b"leaf", b"root"])], version=version), "changeit")
    assert store.trusted == (b"a", b"b")
    assert store.certificates == (b"a", b"b", b"leaf", b"root")
    assert store.keys[0].unlocked("changeit") == PLAIN


@pytest.mark.parametrize("password", ["changeit", "pässwörd", "鍵", "\N{KEY}"])
def test_any_password_of_java(password: str) -> None:
    store = read_jks(jks_file([], [(protected_key(PLAIN, password), [b"leaf"])], password=password), password)
    assert store.keys[0].unlocked(password) == PLAIN


def test_the_key_has_a_password_of_its_own_and_is_not_shown() -> None:
    store = read_jks(STORE, "changeit")
    (key,) = store.keys
    assert key.unlocked("of the key") == PLAIN
    with pytest.raises(WrongPassword):
        key.unlocked("changeit")
    assert "protected" not in repr(store) + repr(store.keys)
    assert pickle.loads(pickle.dumps(store)) == store


def test_a_wrong_password_of_the_store_and_none_as_in_java() -> None:
    changed = STORE[:-1] + bytes([STORE[-1] ^ 1])
    for content, password in ((STORE, "wrong"), (STORE, ""), (changed, "changeit")):
        with pytest.raises(WrongPassword):
            read_jks(content, password)
    # Without a password nothing is verified.
    assert read_jks(changed, None).trusted == (b"ca",)


@given(st.data())
def test_a_store_that_was_changed_is_noticed(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(STORE) - 1))
    changed = bytearray(STORE)
    changed[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises((WrongPassword, DamagedStore)):
        read_jks(bytes(changed), "changeit")


@given(st.integers(0, len(STORE) - 1))
def test_a_store_that_was_cut_is_noticed_without_a_password_too(size: int) -> None:
    with pytest.raises(DamagedStore):
        read_jks(STORE[:size], None)


@given(st.data())
def test_damaged_bytes_are_understood_or_refused(data: st.DataObject) -> None:
    changed = bytearray(STORE)
    for _ in range(data.draw(st.integers(1, 4))):
        changed[data.draw(st.integers(4, len(STORE) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(WrongPassword, DamagedStore):
        use(read_jks(bytes(changed), None))


@given(st.binary(max_size=300))
def test_any_bytes_as_a_key(protected: bytes) -> None:
    (key,) = read_jks(jks_file([], [(protected, [])]), "changeit").keys
    with pytest.raises((WrongPassword, DamagedStore)):
        key.unlocked("changeit")


def use(store: JavaKeyStore) -> None:
    for key in store.keys:
        key.unlocked("of the key")

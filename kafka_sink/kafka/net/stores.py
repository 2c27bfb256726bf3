"""Reads truststores and keystores from files: PEM, PKCS12 and JKS, told apart by their content.

    truststore_pem("/etc/kafka/truststore.jks", password="changeit")
    keystore_pem("/etc/kafka/keystore.p12", password="changeit", key_password=None)

Everything becomes PEM text, which OpenSSL takes. Passwords and keys are in no message. Every certificate of a
truststore is trusted, the chains of its private keys too.

Source: org.apache.kafka.common.security.ssl.DefaultSslEngineFactory.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from kafka_sink.errors import InvalidOption, MissingOption, RefusedOption
from kafka_sink.errors.exhaustion import is_exhaustion
from kafka_sink.errors.redaction import redacted
from kafka_sink.kafka.net import jks, pkcs12
from kafka_sink.kafka.net.java_store import EXTRA, as_pem, as_pkcs12

# A bundle of every public CA takes 230 KB.
MAX_STORE_BYTES = 16 * 1024 * 1024
_TRUSTSTORE, _KEYSTORE = "kafka.ssl.truststore", "kafka.ssl.keystore"
_KEY_PASSWORD = "kafka.ssl.key.password"
_PEM = b"-----BEGIN"
_SEQUENCE = b"\x30"
# PFX begins with its version, the INTEGER 3 (RFC 7292, section 4). The lengths before it take 1 to 5 bytes.
_VERSION, _MOST_BEFORE_VERSION = b"\x02\x01\x03", 6
# JCEKS has the form of JKS and another protection of keys. Stores of BouncyCastle begin with their version.
_FOREIGN: Mapping[bytes, str] = {b"\xce\xce\xce\xce": "JCEKS", b"\0\0\0\1": "BKS", b"\0\0\0\2": "BKS"}
Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class _File:
    """A store as read. `name` is its option without `.location`."""

    name: str
    location: str
    password: str | None = field(repr=False)
    content: bytes = field(repr=False)

    @property
    def option(self) -> str:
        return f"{self.name}.location"

    def unusable(self, expected: str) -> InvalidOption:
        return InvalidOption(option=self.option, value=self.location, expected=expected)

    def wrong_password(self, option: str, of: str) -> InvalidOption | MissingOption:
        shown = redacted(self.location)
        if option == f"{self.name}.password" and self.password is None:
            return MissingOption(option=option, hint=f"{of} {shown} needs it.")
        expected = f"the password of {of} {shown} (a damaged file looks the same)"
        return InvalidOption(option=option, value=None, expected=expected)


@dataclass(frozen=True, slots=True)
class KeystorePem:
    """A private key and its certificate chain as PEM. Both are the whole file if that is PEM. `password`: of the key,
    or None."""

    key: str = field(repr=False)
    chain: str = field(repr=False)
    password: str | None = field(repr=False)

    @property
    def pem(self) -> str:
        return self.key if self.key == self.chain else self.key + self.chain


def truststore_pem(location: str, password: str | None) -> str:
    """Return all certificates of a truststore as PEM.

    Raises InvalidOption, MissingOption or RefusedOption for a file or a password that cannot be used.
    """
    file = _read(_TRUSTSTORE, location, password)
    if _is_jks(file):
        return _as_pem(file, _read_jks(file).certificates)
    if _is_pkcs12(file):
        return _as_pem(file, _read_pkcs12(file).certificates)
    return _pem(file)


def keystore_pem(location: str, password: str | None, key_password: str | None) -> KeystorePem:
    """Return a private key of a keystore with its chain as PEM: the first private key in the file.

    Raises as `truststore_pem`.
    """
    file = _read(_KEYSTORE, location, password)
    if _is_jks(file):
        key, chain = _jks_identity(file, key_password or None)
    elif _is_pkcs12(file):
        key, chain = _pkcs12_identity(file, key_password or None)
    else:
        pem = _pem(file)
        return KeystorePem(pem, pem, key_password)
    return KeystorePem(_key_as_pem(key), _as_pem(file, chain), None)


def is_java_store(location: str) -> bool:
    """Return True if the file at `location` is there, and other programs cannot read it as PEM."""
    try:
        with Path(location).open("rb") as file:
            head = file.read(len(jks.MAGIC))
    except OSError:
        return False
    return head.startswith((jks.MAGIC, _SEQUENCE, *_FOREIGN))


# --- files ------------------------------------------------------------------------------------------------------------


def _read(name: str, location: str, password: str | None) -> _File:
    try:
        with Path(location).open("rb") as opened:
            content = opened.read(MAX_STORE_BYTES + 1)
    except OSError as error:
        if is_exhaustion(error.errno):
            raise
        raise InvalidOption(
            option=f"{name}.location",
            value=location,
            expected=f"a file that every executor can read ({error.strerror or type(error).__name__})",
        ) from None
    file = _File(name, location, password, content)
    if len(content) > MAX_STORE_BYTES:
        raise file.unusable(f"a file of at most {MAX_STORE_BYTES} bytes")
    return file


def _is_jks(file: _File) -> bool:
    return file.content.startswith(jks.MAGIC)


def _is_pkcs12(file: _File) -> bool:
    content = file.content
    return content[:1] == _SEQUENCE and content[: _MOST_BEFORE_VERSION + len(_VERSION)].find(_VERSION) > 0


def _pem(file: _File) -> str:
    """Return the text of a PEM file. Raises RefusedOption, InvalidOption for a store of another format."""
    for magic, store_type in _FOREIGN.items():
        if file.content.startswith(magic):
            instead = as_pkcs12(file.option, file.location, store_type)
            raise RefusedOption(option=file.option, instead=f"it is a {store_type} store. Convert it: {instead}.")
    if file.content[:1] == _SEQUENCE:
        raise file.unusable(
            "PEM, PKCS12 or JKS. A certificate in DER becomes PEM by openssl x509 -inform DER. A BCFKS store becomes "
            "PKCS12 by keytool -importkeystore -srcstoretype BCFKS -deststoretype PKCS12"
        )
    if file.password is not None and _PEM in file.content:
        key = f" For the password of the private key use {_KEY_PASSWORD}." if file.name == _KEYSTORE else ""
        raise RefusedOption(
            option=f"{file.name}.password", instead=f"the file is PEM, which has no such password: remove it.{key}"
        )
    return file.content.decode("utf-8-sig", "replace")


def _as_pem(file: _File, certificates: Iterable[bytes]) -> str:
    pem = "".join(map(ssl.DER_cert_to_PEM_cert, certificates))
    if not pem:
        raise file.unusable("a store with certificates; this one has none")
    return pem


def _key_as_pem(key: bytes) -> str:
    return f"-----BEGIN PRIVATE KEY-----\n{base64.encodebytes(key).decode()}-----END PRIVATE KEY-----\n"


# --- JKS --------------------------------------------------------------------------------------------------------------


def _read_jks(file: _File) -> jks.JavaKeyStore:
    return _jks(file, f"{file.name}.password", "the JKS store", lambda: jks.read_jks(file.content, file.password))


def _jks_identity(file: _File, key_password: str | None) -> tuple[bytes, tuple[bytes, ...]]:
    keys = _read_jks(file).keys
    if not keys:
        raise file.unusable("a store with a private key; this one has none")
    password = key_password if key_password is not None else file.password
    if password is None:
        raise MissingOption(option=f"{file.name}.password", hint="it protects the private key.")
    return _jks(file, _KEY_PASSWORD, "the first private key in", lambda: keys[0].unlocked(password)), keys[0].chain


def _jks(file: _File, option: str, of: str, read: Callable[[], Read]) -> Read:
    problem: Exception
    try:
        return read()
    except jks.WrongPassword:
        problem = file.wrong_password(option, of)
    except jks.DamagedStore as damage:
        problem = file.unusable(f"a JKS store that is whole ({damage})")
    raise problem


# --- PKCS12 -----------------------------------------------------------------------------------------------------------


def _read_pkcs12(file: _File) -> pkcs12.Pkcs12:
    problem: Exception
    try:
        return pkcs12.read_pkcs12(file.content, file.password)
    except pkcs12.WrongPassword:
        problem = file.wrong_password(f"{file.name}.password", "the PKCS12 store")
    except pkcs12.Unreadable:
        problem = file.unusable(
            "a PKCS12 store that is whole, and that the package cryptography reads. To try it, run "
            f"{as_pem(file.option, file.location)}"
        )
    except pkcs12.CryptographyMissing:
        problem = RefusedOption(
            option=file.option,
            instead="it is a PKCS12 store, and the package cryptography, which reads it, cannot be imported. On the "
            f"driver and on executors: {EXTRA}. Or convert it: {as_pem(file.option, file.location)}.",
        )
    # Raised outside of the handlers, so that no error of a library is chained.
    raise problem


def _pkcs12_identity(file: _File, key_password: str | None) -> tuple[bytes, tuple[bytes, ...]]:
    store = _read_pkcs12(file)
    if key_password is not None and key_password != file.password:
        raise InvalidOption(
            option=_KEY_PASSWORD,
            value=None,
            expected=f"the same as {file.name}.password, or nothing: a PKCS12 store has one password",
        )
    if store.key is None or not store.chain:
        raise file.unusable("a store with a private key and its certificate; this one has none")
    return store.key, store.chain

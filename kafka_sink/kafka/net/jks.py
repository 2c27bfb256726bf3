"""Reads JKS, the store that Java's keytool made by default before Java 9.

    store = read_jks(content, password="changeit")
    store.certificates                      # DER, of all entries
    store.keys[0].unlocked("changeit")      # PKCS#8, DER

Sources: sun.security.provider.JavaKeyStore (the file), sun.security.provider.KeyProtector (a private key).
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass, field

MAGIC = b"\xfe\xed\xfe\xed"
_WHITENER = b"Mighty Aphrodite"
_DIGEST_BYTES = 20
_KEY, _CERTIFICATE = 1, 2
# EncryptedPrivateKeyInfo's AlgorithmIdentifier: 1.3.6.1.4.1.42.2.17.1.1 (JAVASOFT_JDKKeyProtector), NULL.
_SUN_PROTECTION = bytes.fromhex("300e060a2b060104012a021101010500")
_SHORT_LENGTHS = 0x80
_OCTET_STRING, _SEQUENCE = 0x04, 0x30


class DamagedStore(ValueError):
    """The bytes are no complete JKS store. The message has nothing of them."""


class WrongPassword(ValueError):
    """The password is wrong, or what it protects was changed."""


@dataclass(frozen=True, slots=True, repr=False)
class LockedKey:
    """A private key, protected by a password, with its certificate chain in DER, the key's own certificate first."""

    protected: bytes
    chain: tuple[bytes, ...]

    def unlocked(self, password: str) -> bytes:
        """Return the key as PKCS#8 in DER. Raises WrongPassword, DamagedStore."""
        sealed = _sealed(self.protected)
        salt, body, check = sealed[:_DIGEST_BYTES], sealed[_DIGEST_BYTES:-_DIGEST_BYTES], sealed[-_DIGEST_BYTES:]
        if len(sealed) <= 2 * _DIGEST_BYTES:
            raise DamagedStore("a private key is too short")
        secret = _java_chars(password)
        stream, block = bytearray(), salt
        while len(stream) < len(body):
            block = hashlib.sha1(secret + block).digest()
            stream += block
        mask = int.from_bytes(stream[: len(body)], "big")
        plain = (int.from_bytes(body, "big") ^ mask).to_bytes(len(body), "big")
        if not hmac.compare_digest(hashlib.sha1(secret + plain).digest(), check):
            raise WrongPassword
        return plain


@dataclass(frozen=True, slots=True, repr=False)
class JavaKeyStore:
    """`trusted`: certificates without a private key, DER. `keys`: in the order of the file."""

    trusted: tuple[bytes, ...]
    keys: tuple[LockedKey, ...]

    @property
    def certificates(self) -> tuple[bytes, ...]:
        return (*self.trusted, *(each for key in self.keys for each in key.chain))


def read_jks(content: bytes, password: str | None) -> JavaKeyStore:
    """Return the entries of a JKS store. Without a password its integrity is not verified, as in Java.

    Raises WrongPassword if the store's digest does not match. Raises DamagedStore.
    """
    if not content.startswith(MAGIC) or len(content) < len(MAGIC) + _DIGEST_BYTES:
        raise DamagedStore("it ends too early")
    signed, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
    if password is not None:
        expected = hashlib.sha1(_java_chars(password) + _WHITENER + signed).digest()
        if not hmac.compare_digest(expected, digest):
            raise WrongPassword
    return _entries(_Reader(signed, at=len(MAGIC)))


def _entries(reader: _Reader) -> JavaKeyStore:
    version, count = reader.integer(), reader.integer()
    if version not in (1, 2):
        raise DamagedStore("its version is unknown")
    trusted, keys = [], []
    for _ in range(count):
        kind = reader.integer()
        reader.bytes(reader.short())  # the alias
        reader.bytes(8)  # the time of creation
        if kind == _CERTIFICATE:
            trusted.append(_certificate(reader, version))
        elif kind == _KEY:
            protected = reader.bytes(reader.integer())
            chain = tuple([_certificate(reader, version) for _ in range(reader.integer())])
            keys.append(LockedKey(protected, chain))
        else:
            raise DamagedStore("it has an entry of an unknown kind")
    if reader.at != len(reader.data):
        raise DamagedStore("it is longer than its entries")
    return JavaKeyStore(tuple(trusted), tuple(keys))


def _certificate(reader: _Reader, version: int) -> bytes:
    if version > 1 and reader.bytes(reader.short()) != b"X.509":
        raise DamagedStore("it has a certificate of an unknown kind")
    return reader.bytes(reader.integer())


@dataclass(slots=True)
class _Reader:
    """Reads what java.io.DataOutputStream writes. Every read consumes bytes, so no count can outlast the file."""

    data: bytes = field(repr=False)
    at: int

    def bytes(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise DamagedStore("it ends too early")
        self.at += size
        return self.data[self.at - size : self.at]

    def integer(self) -> int:
        return int(struct.unpack(">I", self.bytes(4))[0])

    def short(self) -> int:
        return int(struct.unpack(">H", self.bytes(2))[0])


def _java_chars(password: str) -> bytes:
    return password.encode("utf-16-be", "surrogatepass")


# --- EncryptedPrivateKeyInfo ------------------------------------------------------------------------------------------


def _sealed(der: bytes) -> bytes:
    """Return the octet string of an EncryptedPrivateKeyInfo: salt, encrypted key, digest."""
    info = _body(der, _SEQUENCE)
    if not info.startswith(_SUN_PROTECTION):
        raise DamagedStore("a private key has an unknown protection")
    return _body(info[len(_SUN_PROTECTION) :], _OCTET_STRING)


def _body(der: bytes, tag: int) -> bytes:
    """Return the content of `der`, one DER element with `tag` and nothing behind it."""
    if len(der) < 2 or der[0] != tag:
        raise DamagedStore("a private key is not DER")
    begin, size = 2, der[1]
    if size >= _SHORT_LENGTHS:
        begin += size - _SHORT_LENGTHS
        size = int.from_bytes(der[2:begin], "big")
    if begin + size != len(der):
        raise DamagedStore("a private key is not DER")
    return der[begin:]

"""JKS stores, byte by byte, as valid and as hostile as a test needs them."""

import hashlib
import itertools
import struct
from collections.abc import Iterable, Sequence

SUN_PROTECTION = bytes.fromhex("300e060a2b060104012a021101010500")
SALT = bytes(range(20))


def jks_file(
    trusted: Iterable[bytes] = (), keys: Iterable[tuple[bytes, Sequence[bytes]]] = (), *, password: str = "changeit",
    version: int = 2,
) -> bytes:  # fmt: skip
    """A JKS store: certificates, and private keys (protected already) with their chains."""
    entries = [_entry(2, _certificate(each, version)) for each in trusted]
    for key, chain in keys:
        certificates = b"".join(_certificate(each, version) for each in chain)
        entries.append(_entry(1, _sized(key) + struct.pack(">I", len(chain)) + certificates))
    content = struct.pack(">III", 0xFEEDFEED, version, len(entries)) + b"".join(entries)
    return content + hashlib.sha1(password.encode("utf-16-be") + b"Mighty Aphrodite" + content).digest()


def protected_key(plain: bytes, password: str = "changeit") -> bytes:
    """As sun.security.provider.KeyProtector."""
    secret, blocks = password.encode("utf-16-be"), [SALT]
    while 20 * len(blocks) < len(plain) + 20:
        blocks.append(hashlib.sha1(secret + blocks[-1]).digest())
    mixed = bytes(a ^ b for a, b in zip(plain, itertools.chain(*blocks[1:]), strict=False))
    return der(0x30, SUN_PROTECTION, der(0x04, SALT, mixed, hashlib.sha1(secret + plain).digest()))


def _entry(kind: int, body: bytes) -> bytes:
    return struct.pack(">IH5sQ", kind, 5, b"alias", 1_700_000_000_000) + body


def _certificate(content: bytes, version: int) -> bytes:
    kind = struct.pack(">H5s", 5, b"X.509") if version > 1 else b""
    return kind + _sized(content)


def _sized(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


def der(tag: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    if len(body) < 0x80:
        return bytes([tag, len(body)]) + body
    size = len(body).to_bytes((len(body).bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 + len(size)]) + size + body

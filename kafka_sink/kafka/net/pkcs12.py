"""Reads PKCS#12 stores with the package cryptography, which the extra `keystores` installs."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

_MISMATCH = "Invalid password"
_PANIC = "PanicException"


class CryptographyMissing(ImportError):
    """The package cryptography cannot be imported."""


class Unreadable(ValueError):
    """The store is damaged, or has something in it that the package cryptography does not read."""


class WrongPassword(ValueError):
    """The password is wrong or missing, or the store was changed. PKCS#12 does not tell them apart."""


@dataclass(frozen=True, slots=True, repr=False)
class Pkcs12:
    """`certificates`: all of them, DER. `key`: the first private key, PKCS#8 in DER, or None. `chain`: the certificate
    of `key` and those that lead to its CA."""

    certificates: tuple[bytes, ...]
    key: bytes | None
    chain: tuple[bytes, ...]


def read_pkcs12(content: bytes, password: str | None) -> Pkcs12:
    """Return what is in a PKCS#12 store. Raises CryptographyMissing, Unreadable, WrongPassword.

    A store without MAC is read without a look at the password, unless it is needed to decrypt.
    """
    try:
        serialization: Any = importlib.import_module("cryptography.hazmat.primitives.serialization")
        load = importlib.import_module("cryptography.hazmat.primitives.serialization.pkcs12").load_pkcs12
    except ImportError as error:
        raise CryptographyMissing(str(error)) from None
    store = _loaded(load, content, password)
    own = [] if store.cert is None else [store.cert.certificate]
    others = [each.certificate for each in store.additional_certs]
    der = serialization.Encoding.DER
    key = None
    if store.key is not None:
        plain = serialization.NoEncryption()
        key = store.key.private_bytes(der, serialization.PrivateFormat.PKCS8, plain)
    return Pkcs12(
        tuple(each.public_bytes(der) for each in (*own, *others)),
        key,
        tuple(each.public_bytes(der) for each in _chain(own, others)),
    )


def _loaded(load: Any, content: bytes, password: str | None) -> Any:
    problem: type[ValueError] = Unreadable
    if password is not None and "\0" in password:
        # cryptography would end with a panic that prints the password.
        raise WrongPassword
    try:
        return load(content, None if password is None else password.encode())
    except ValueError as error:
        if str(error).startswith(_MISMATCH):
            problem = WrongPassword
    except BaseException as error:
        # cryptography has its own classes for an unknown algorithm or curve. A panic of Rust is no Exception.
        if not isinstance(error, Exception) and type(error).__name__ != _PANIC:
            raise
    # Raised outside of the handlers: the library's error may quote what is in the store.
    raise problem


def _chain(own: list[Any], others: list[Any]) -> list[Any]:
    """Return the certificates from the key's own to its CA. The file has them in any order."""
    chain, left = list(own), list(others)
    while chain and (issuer := next((each for each in left if _issued(each, chain[-1])), None)) is not None:
        left.remove(issuer)
        chain.append(issuer)
    return chain


def _issued(issuer: Any, certificate: Any) -> bool:
    if certificate.subject == certificate.issuer:
        return False
    try:
        certificate.verify_directly_issued_by(issuer)
    except Exception:
        # Another name, another key, or an algorithm that cryptography does not verify.
        return False
    return True

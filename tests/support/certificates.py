"""Certificates for tests: an authority, and the valid and invalid certificates that it signs."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Identity:
    """PEM texts: the chain (without the authority's own certificate) and the key, PKCS#8."""

    chain: str
    key: str

    @property
    def pem(self) -> str:
        return self.key + self.chain


class Authority:
    """A CA, of its own or below `parent`. Its certificates are valid from yesterday until tomorrow."""

    def __init__(self, name: str = "Test CA", parent: Authority | None = None) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        issuer = self if parent is None else parent
        builder = _builder(self._name, issuer._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate = _pem(builder.sign(issuer._key, hashes.SHA256()))

    def issue(
        self,
        common_name: str,
        *,
        hosts: tuple[str, ...] = ("localhost", "127.0.0.1"),
        mails: tuple[str, ...] = (),
        expired: bool = False,
        password: str | None = None,
        rsa_bits: int | None = None,
    ) -> Identity:
        """A certificate for `hosts` (names and addresses) and `mails`, and its key, encrypted if there is a `password`.
        With neither it has no subjectAltName. `rsa_bits`: an RSA key of that length, not one of an elliptic curve."""
        key = ec.generate_private_key(ec.SECP256R1()) if rsa_bits is None else rsa.generate_private_key(65537, rsa_bits)
        builder = _builder(_name(common_name), self._name, key.public_key(), expired=expired)
        names = [*map(_general, hosts), *map(x509.RFC822Name, mails)]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        encryption = (
            serialization.NoEncryption()
            if password is None
            else serialization.BestAvailableEncryption(password.encode())
        )
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        return Identity(_pem(builder.sign(self._key, hashes.SHA256())), pem.decode())


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
    *,
    expired: bool = False,
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    begin, end = (now - 3 * DAY, now - 2 * DAY) if expired else (now - DAY, now + DAY)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
    )


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()

"""Certificates for tests: an authority, and the valid and invalid certificates that it signs."""

from __future__ import annotations

import datetime
import ipaddress
import os
import ssl
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from kafka_sink.broker.resolve import find_java

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Identity:
    """PEM texts: the chain (without the authority's own certificate) and the key, PKCS#8."""

    chain: str
    key: str

    @property
    def pem(self) -> str:
        return self.key + self.chain

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write(self.pem)
            file.flush()
            context.load_cert_chain(file.name)
        return context


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
        self, common_name: str, *, hosts: tuple[str, ...] = ("localhost", "127.0.0.1"), mails: tuple[str, ...] = (),
        expired: bool = False, password: str | None = None, rsa_bits: int | None = None,
    ) -> Identity:  # fmt: skip
        """A certificate for `hosts` (names and addresses) and `mails`, and its key, encrypted if there is a `password`.
        With neither it has no subjectAltName. `rsa_bits`: an RSA key of that length, not one of an elliptic curve."""
        key = ec.generate_private_key(ec.SECP256R1()) if rsa_bits is None else rsa.generate_private_key(65537, rsa_bits)
        builder = _builder(_name(common_name), self._name, key.public_key(), expired=expired)
        names = [*map(_general, hosts), *map(x509.RFC822Name, mails)]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        plain, locked = serialization.NoEncryption, serialization.BestAvailableEncryption
        encryption = plain() if password is None else locked(password.encode())
        pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        return Identity(_pem(builder.sign(self._key, hashes.SHA256())), pem.decode())


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey, *, expired: bool = False
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    begin, end = (now - 3 * DAY, now - 2 * DAY) if expired else (now - DAY, now + DAY)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


PASSWORD = "store-canary-51"
# Arguments of keytool for each form of store that it makes.
FORMS: Mapping[str, tuple[str, ...]] = {
    "JKS": ("-storetype", "JKS"),
    "PKCS12": ("-storetype", "PKCS12"),
    "PKCS12 of Java 8": ("-storetype", "PKCS12", "-J-Dkeystore.pkcs12.legacy"),
}
# As the cacerts of Java 18 and later, and of many container images.
WITHOUT_PASSWORD = (
    "-storetype", "PKCS12", "-J-Dkeystore.pkcs12.certProtectionAlgorithm=NONE", "-J-Dkeystore.pkcs12.macAlgorithm=NONE",
)  # fmt: skip

# Half of its time is the compiler's.
_QUICK = ("-J-XX:TieredStopAtLevel=1", "-J-XX:+UseSerialGC")


def keytool(command: str, store: Path, *arguments: str, password: str = PASSWORD) -> None:
    program = find_java(os.environ).resolve().with_name("keytool")
    _run(program, *_QUICK, f"-{command}", "-noprompt", "-keystore", store, "-storepass", password, *arguments)


def openssl(*arguments: str | Path) -> None:
    _run("openssl", *arguments)


def truststore(store: Path, certificates: Sequence[str], *form: str, password: str = PASSWORD) -> Path:
    """A store of PEM certificates, by `keytool -importcert`."""
    for number, certificate in enumerate(certificates):
        pem = store.with_name(f"{store.name}.{number}.pem")
        pem.write_text(certificate)
        keytool("importcert", store, "-alias", f"ca-{number}", "-file", str(pem), *form, password=password)
        pem.unlink()
    return store


def keystore(
    store: Path, identity: Identity, *form: str, password: str = PASSWORD, key_password: str | None = None
) -> Path:
    """A store with a private key and its chain, by `keytool -importkeystore`. `key_password`: for JKS only."""
    source = pkcs12(store.with_name(f"{store.name}.source"), identity)
    own = ("-srcalias", "me", "-destkeypass", key_password) if key_password is not None else ()
    keytool(
        "importkeystore", store, "-srckeystore", str(source), "-srcstorepass", PASSWORD, "-deststorepass", password,
        *(each.replace("-storetype", "-deststoretype") for each in form), *own, password=password,
    )  # fmt: skip
    source.unlink()
    return store


def pkcs12(store: Path, identity: Identity, *arguments: str, password: str = PASSWORD) -> Path:
    """A store with a private key and its chain, by `openssl pkcs12 -export`."""
    pem = store.with_name(f"{store.name}.pem")
    pem.write_text(identity.pem)
    export = ("-export", "-name", "me", "-in", pem, "-out", store, "-passout", f"pass:{password}")
    openssl("pkcs12", *export, *arguments)
    pem.unlink()
    return store


def _run(*command: str | Path) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env=os.environ | {"LC_ALL": "C.UTF-8"}, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"

"""Truststores and keystores made by the programs that users make them with: Java's keytool, and openssl."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from certificates import Identity
from kafka_sink.broker.java import find_java

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

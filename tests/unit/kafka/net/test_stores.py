"""Truststores and keystores of keytool and openssl, read as PEM."""

import pickle
import shutil
import ssl
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from certificates import FORMS, PASSWORD, WITHOUT_PASSWORD, Authority, keystore, keytool, openssl, pkcs12, truststore
from fuzz.java_stores import jks_file
from kafka_sink.errors import ConfigError, InvalidOption, MissingOption, RefusedOption
from kafka_sink.kafka.net.stores import keystore_pem, truststore_pem
from kafka_sink.kafka.net.tls import TlsSettings, client_context

pytestmark = pytest.mark.programs

CA, OTHER_CA = Authority(), Authority("Other CA")
ALICE = CA.issue("alice")
KEY_PASSWORD = "key-canary-52"
LOCATION = "truststore.location"


def certificates(pem: str) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(pem.encode())


def pem_of(*texts: str) -> list[x509.Certificate]:
    return certificates("".join(texts))


def trusted(store: Path, password: str | None = PASSWORD) -> list[x509.Certificate]:
    return sorted(certificates(truststore_pem(str(store), password)), key=lambda each: each.serial_number)


def loads(store: Path, password: str | None = PASSWORD, key_password: str | None = None) -> ssl.SSLContext:
    """What OpenSSL made of it: it refuses a key that does not belong to the certificate."""
    return client_context(
        TlsSettings(keystore_location=str(store), keystore_password=password, key_password=key_password)
    )


def failure_of(
    read: Callable[..., object], *given: Any, option: str = LOCATION, kind: type[ConfigError] = InvalidOption
) -> str:
    """What it says, about this option."""
    with pytest.raises(kind) as failure:
        read(*given)
    error: Any = failure.value
    assert error.option == f"kafka.ssl.{option}"
    assert "password" not in option or getattr(error, "value", None) is None
    assert error.__cause__ is error.__context__ is None
    for secret in (PASSWORD, KEY_PASSWORD, "wrong-canary"):
        assert secret not in f"{error} {error!r} {pickle.dumps(error)!r}"
    return str(error)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Path]:
    """A truststore with CA, or a keystore of ALICE, of a form, made once."""
    folder = tmp_path_factory.mktemp("stores")

    def store(kind: str, form: str) -> Path:
        path = folder / f"{kind}-{form.replace(' ', '-')}"
        if not path.exists() and kind == "truststore":
            truststore(path, [CA.certificate], *FORMS[form])
        elif not path.exists():
            keystore(path, ALICE, *FORMS[form])
        return path

    return store


@pytest.mark.parametrize("form", FORMS)
def test_every_ca_of_a_truststore(tmp_path: Path, form: str) -> None:
    # The form is read from the content.
    store = truststore(tmp_path / "trust.pem", [CA.certificate, OTHER_CA.certificate], *FORMS[form])
    assert trusted(store) == sorted(pem_of(CA.certificate, OTHER_CA.certificate), key=lambda each: each.serial_number)
    context = client_context(TlsSettings(truststore_location=str(store), truststore_password=PASSWORD))
    assert context.cert_store_stats()["x509_ca"] == 2


READ: dict[str, Callable[..., object]] = {
    "truststore": lambda store, password: truststore_pem(str(store), password),
    "keystore": lambda store, password, key_password=None: keystore_pem(str(store), password, key_password),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", READ)
def test_a_wrong_or_missing_password_of_a_store(made: Callable[[str, str], Path], kind: str, form: str) -> None:
    store, option = made(kind, form), f"{kind}.password"
    assert str(store) in failure_of(READ[kind], store, "wrong-canary", option=option)
    if (kind, form) == ("truststore", "JKS"):
        # As Java: then the digest of the store is not verified.
        assert trusted(store, None) == pem_of(CA.certificate)
    else:
        failure_of(READ[kind], store, None, option=option, kind=MissingOption)


@pytest.mark.parametrize("password", [None, PASSWORD, "any other"])
def test_a_truststore_without_password_and_mac(tmp_path: Path, password: str | None) -> None:
    store = truststore(tmp_path / "trust.p12", [CA.certificate], *WITHOUT_PASSWORD)
    assert trusted(store, password) == pem_of(CA.certificate)


def test_a_password_that_is_not_ascii(tmp_path: Path) -> None:
    # keytool takes no such password for PKCS12.
    store = truststore(tmp_path / "trust.jks", [CA.certificate], *FORMS["JKS"], password="pässwörd")
    assert trusted(store, "pässwörd") == pem_of(CA.certificate)
    for arguments in ((), ("-legacy",)):
        assert loads(pkcs12(tmp_path / "mine.p12", ALICE, *arguments, password="pässwörd"), "pässwörd")


@pytest.mark.parametrize("form", FORMS)
def test_an_empty_store(tmp_path: Path, form: str) -> None:
    store = truststore(tmp_path / "trust", [CA.certificate], *FORMS[form])
    keytool("delete", store, "-alias", "ca-0", *FORMS[form])
    for kind, read in READ.items():
        assert "this one has none" in failure_of(read, store, PASSWORD, option=f"{kind}.location")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("algorithm", "kind"), [
    ("RSA", rsa.RSAPrivateKey), ("EC", ec.EllipticCurvePrivateKey), ("Ed25519", ed25519.Ed25519PrivateKey),
])  # fmt: skip
def test_every_kind_of_key(tmp_path: Path, form: str, algorithm: str, kind: type) -> None:
    store = tmp_path / "mine"
    keytool("genkeypair", store, "-alias", "me", "-keyalg", algorithm, "-dname", "CN=me", *FORMS[form])
    found = keystore_pem(str(store), PASSWORD, None)
    assert isinstance(load_pem_private_key(found.key.encode(), None), kind)
    assert found.password is None
    assert loads(store)


@pytest.mark.parametrize("form", FORMS)
def test_a_chain_begins_with_the_certificate_of_the_key(tmp_path: Path, form: str) -> None:
    store = keystore(tmp_path / "mine", replace(ALICE, chain=ALICE.chain + CA.certificate), *FORMS[form])
    assert certificates(keystore_pem(str(store), PASSWORD, None).chain) == pem_of(ALICE.chain, CA.certificate)
    # A CA that was imported as well, as Kafka's documentation does it, is not sent to brokers.
    truststore(store, [OTHER_CA.certificate], *FORMS[form])
    assert certificates(keystore_pem(str(store), PASSWORD, None).chain) == pem_of(ALICE.chain, CA.certificate)
    assert len(trusted(store)) == 3
    assert loads(store)


@pytest.mark.parametrize("form", FORMS)
def test_of_several_keys_the_first_in_the_file(tmp_path: Path, form: str) -> None:
    store = tmp_path / "mine"
    for name in ("first", "second"):
        keytool("genkeypair", store, "-alias", name, "-keyalg", "EC", "-dname", f"CN={name}", *FORMS[form])
    (chosen,) = certificates(keystore_pem(str(store), PASSWORD, None).chain)
    # A JKS file has the order of a hash table.
    assert form == "JKS" or chosen.subject.rfc4514_string() == "CN=first"
    assert loads(store)


def test_a_key_of_jks_with_a_password_of_its_own(tmp_path: Path, made: Callable[[str, str], Path]) -> None:
    store = keystore(tmp_path / "mine.jks", ALICE, *FORMS["JKS"], key_password=KEY_PASSWORD)
    assert loads(store, PASSWORD, KEY_PASSWORD)
    assert loads(store, None, KEY_PASSWORD)
    for key_password in (None, "wrong-canary"):
        failure_of(READ["keystore"], store, PASSWORD, key_password, option="key.password")
    # A key of PKCS12 has the password of the store.
    store = made("keystore", "PKCS12")
    assert loads(store, PASSWORD, PASSWORD)
    failure_of(READ["keystore"], store, PASSWORD, KEY_PASSWORD, option="key.password")


@pytest.mark.parametrize(
    "arguments", [(), ("-legacy",), ("-nomac",), ("-keypbe", "NONE", "-certpbe", "NONE"), ("-iter", "1")]
)
def test_a_keystore_of_openssl(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    assert loads(pkcs12(tmp_path / "mine.p12", ALICE, *arguments))
    without_password = pkcs12(tmp_path / "open.p12", ALICE, *arguments, password="")
    for password in (None, ""):
        assert loads(without_password, password)


def test_other_stores_are_refused_with_what_converts_them(tmp_path: Path) -> None:
    store = truststore(tmp_path / "trust.jceks", [CA.certificate], "-storetype", "JCEKS")
    # What the message says works.
    target = tmp_path / "trust.jceks.p12"
    words = f"-srckeystore {store} -srcstoretype JCEKS -destkeystore {target} -deststoretype PKCS12"
    for kind, read in READ.items():
        assert words in failure_of(read, store, PASSWORD, option=f"{kind}.location", kind=RefusedOption)
    keytool(
        "importkeystore", target, "-srckeystore", str(store), "-srcstoretype", "JCEKS", "-deststoretype", "PKCS12",
        "-srcstorepass", PASSWORD, "-deststorepass", PASSWORD,
    )  # fmt: skip
    assert trusted(target) == pem_of(CA.certificate)


@pytest.mark.parametrize("kind", READ)
def test_pem_has_no_password_of_a_store(tmp_path: Path, kind: str) -> None:
    store = tmp_path / "both.pem"
    store.write_text(ALICE.pem)
    said = failure_of(READ[kind], store, PASSWORD, option=f"{kind}.password", kind=RefusedOption)
    assert ("kafka.ssl.key.password" in said) == (kind == "keystore")
    # A certificate in DER is told how it becomes PEM.
    store.write_bytes(ssl.PEM_cert_to_DER_cert(CA.certificate))
    assert "openssl x509 -inform DER" in failure_of(READ["truststore"], store, None, kind=ConfigError)


def test_without_cryptography_a_pkcs12_store_says_what_to_install_or_to_convert(
    made: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, jks = tmp_path / "trust.p12", made("truststore", "JKS")
    shutil.copy(made("truststore", "PKCS12"), store)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    said, pem = failure_of(READ["truststore"], store, PASSWORD, kind=RefusedOption), tmp_path / "trust.pem"
    assert "pip install 'pyspark-pykafka[keystores]'" in said
    assert f"openssl pkcs12 -in {store} -out {pem} -nokeys, then set kafka.ssl.truststore.location={pem}" in said
    openssl("pkcs12", "-in", store, "-out", pem, "-nokeys", "-passin", f"pass:{PASSWORD}")
    assert trusted(pem, None) == trusted(jks) == pem_of(CA.certificate)


@pytest.mark.parametrize("form", FORMS)
def test_a_damaged_store(made: Callable[[str, str], Path], tmp_path: Path, form: str) -> None:
    store, whole = tmp_path / "trust", made("truststore", form).read_bytes()
    for damaged in (whole[:-30], whole[:40], whole[:8], whole[:-200] + bytes(200)):
        store.write_bytes(damaged)
        with pytest.raises(InvalidOption, match=r"kafka\.ssl\.truststore\.(location|password)"):
            truststore_pem(str(store), PASSWORD)
    # One of something else than certificates.
    store.write_bytes(jks_file([b"nonsense"]))
    settings = TlsSettings(truststore_location=str(store), truststore_password="changeit")
    assert "CA certificates" in failure_of(client_context, settings)


def test_a_store_that_is_too_large(tmp_path: Path) -> None:
    store = tmp_path / "large"
    for head in (b"\xfe\xed\xfe\xed", b"0\x82\x01\x01\x02\x01\x03"):
        with store.open("wb") as file:
            file.write(head)
            file.truncate(16 * 1024 * 1024 + 1)
        assert "at most 16777216 bytes" in failure_of(READ["truststore"], store, PASSWORD)

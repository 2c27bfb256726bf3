"""TLS contexts from PEM, and each way in which a handshake ends: the selector against a server of the standard
library."""

import os
import pickle
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from certificates import Authority, Identity
from fuzz.java_stores import jks_file, protected_key
from kafka_sink.errors import InvalidOption
from kafka_sink.kafka.net.selector import Selector
from kafka_sink.kafka.net.tls import Contexts, TlsSettings, client_context, explain
from kafka_sink.kafka.net.transport import Address, Connected, Disconnected, Event, Received, Sent
from scripted_peers import peer

DEADLINE_S = 20

CA = Authority()
OTHER_CA = Authority("Other CA")
BROKER = CA.issue("broker")
TRUSTING = TlsSettings(truststore_certificates=CA.certificate)
Port = AbstractContextManager[int]
HOSTS = ("localhost", "127.0.0.1")


def served(identity: Identity | None, serve: Callable[[socket.socket], object], **settings: Any) -> Port:
    """A port where `serve` gets each socket after the handshake, or as it is without an identity."""
    context = None if identity is None else server_context(identity, **settings)

    def behave(sock: socket.socket) -> None:
        with sock if context is None else context.wrap_socket(sock, server_side=True) as opened:
            serve(opened)

    return peer(behave)


def server_context(identity: Identity, *, client_ca: Authority | None = None, version: str = "") -> ssl.SSLContext:
    context = identity.server_context()
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=client_ca.certificate)
    if version:
        context.minimum_version = context.maximum_version = getattr(ssl.TLSVersion, version)
    return context


def echo(sock: socket.socket) -> None:
    while data := sock.recv(1 << 16):
        sock.sendall(data)


def at(port: int, host: str = "localhost") -> Address:
    return Address(socket.AF_INET, ("127.0.0.1", port), host)


def talk(selector: Selector, server: Port, host: str = "localhost") -> list[Event]:
    """What it tells that connects to `server` and says hello, until it has an answer or the end."""
    events: list[Event] = []
    deadline = time.monotonic() + DEADLINE_S
    with server as port:
        selector.connect(1, at(port, host))
        while not any(isinstance(event, Disconnected | Received) for event in events):
            assert time.monotonic() < deadline, events
            new = selector.poll(1000)
            if Connected(1) in new:
                selector.send(1, [b"hello"])
            events += new
        selector.close(1)
    return events


def events_of(server: Port, settings: TlsSettings = TRUSTING, *, host: str = "localhost") -> list[Event]:
    selector = Selector(tls=Contexts(settings))
    try:
        return talk(selector, server, host)
    finally:
        selector.close_all()


def failure_of(server: Port, settings: TlsSettings = TRUSTING, *, host: str = "localhost") -> Disconnected:
    event = events_of(server, settings, host=host)[-1]
    assert isinstance(event, Disconnected), event
    return event


@pytest.fixture
def dialling() -> Iterator[Callable[[Port, TlsSettings], Event]]:
    """Connects to a server with what one selector has, as a worker that lives on does; the last event."""
    selectors: list[Selector] = []

    def dial(server: Port, settings: TlsSettings) -> Event:
        if not selectors:
            selectors.append(Selector(tls=Contexts(settings)))
        return talk(selectors[0], server)[-1]

    yield dial
    for selector in selectors:
        selector.close_all()


def common_name(sock: socket.socket) -> None:
    assert isinstance(sock, ssl.SSLSocket)
    sock.recv(1 << 16)
    certificate = sock.getpeercert()
    assert certificate
    sock.sendall(str(certificate["subject"]).encode())


def shown(settings: TlsSettings) -> bytes:
    """The subject of the certificate that the client shows to a broker that wants one."""
    answer = events_of(served(BROKER, common_name, client_ca=CA), settings)[-1]
    assert isinstance(answer, Received)
    return answer.data


def replace_file(path: Path, content: bytes, *, linked: bool = False) -> None:
    """In one moment; `linked`: as Kubernetes does it, by a link to another folder."""
    new = path.with_name(f"{path.name}.{time.monotonic_ns()}")
    new.write_bytes(content)
    if not linked:
        new.rename(path)
        return
    link = path.with_name("link")
    link.symlink_to(new)
    link.rename(path)


def java_store(identity: Identity) -> bytes:
    key = load_pem_private_key(identity.key.encode(), None)
    plain = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    return jks_file([], [(protected_key(plain), [ssl.PEM_cert_to_DER_cert(identity.chain)])])


@pytest.mark.parametrize("form", ["file", "link", "Java store"])
def test_a_renewed_certificate_goes_with_the_next_connection(
    tmp_path: Path, dialling: Callable[..., Event], form: str
) -> None:
    keystore, password = tmp_path / "client", "changeit" if form == "Java store" else None
    settings = replace(TRUSTING, keystore_location=str(keystore), keystore_password=password)
    for name in ("first", "first", "second"):
        identity = CA.issue(name)
        content = java_store(identity) if password else identity.pem.encode()
        replace_file(keystore, content, linked=form == "link")
        last = dialling(served(BROKER, common_name, client_ca=CA), settings)
        assert isinstance(last, Received)
        assert name in last.data.decode()


def test_another_truststore_holds_for_the_next_connection(tmp_path: Path, dialling: Callable[..., Event]) -> None:
    truststore = tmp_path / "ca.pem"
    settings = TlsSettings(truststore_location=str(truststore))
    for authority, is_trusted in ((CA, True), (OTHER_CA, False), (CA, True)):
        replace_file(truststore, authority.certificate.encode())
        assert isinstance(dialling(served(BROKER, echo), settings), Received) == is_trusted
    contexts = Contexts(settings)
    assert contexts.current() is contexts.current(), "files that stay are read once"


@pytest.mark.parametrize("content", ["half of a certifi", None])
def test_a_file_that_cannot_be_used_is_trouble_until_it_can(
    tmp_path: Path, dialling: Callable[..., Event], content: str | None
) -> None:
    """What was loaded before is not used on: a CA may have been taken out."""
    truststore = tmp_path / "ca.pem"
    settings = TlsSettings(truststore_location=str(truststore))
    truststore.write_text(CA.certificate)
    assert isinstance(dialling(served(BROKER, echo), settings), Received)
    truststore.unlink()
    if content is not None:
        truststore.write_text(content)
    for _ in range(2):
        refused = dialling(nullcontext(1), settings)
        assert isinstance(refused, Disconnected)
        assert refused.tls is None
        assert "kafka.ssl.truststore.location" in refused.reason
        assert "No row of this write was sent" not in refused.reason
    truststore.write_text(CA.certificate)
    assert isinstance(dialling(served(BROKER, echo), settings), Received)


MIDDLE = Authority("Intermediate CA", CA)
OF_MIDDLE = MIDDLE.issue("broker")
WITH_CHAIN = replace(OF_MIDDLE, chain=OF_MIDDLE.chain + MIDDLE.certificate)
ODD_HOSTS = CA.issue("broker", hosts=("my_broker.example", "localhost"))
ANY_HOST = replace(TRUSTING, verify_host_name=False)


@pytest.mark.parametrize(("identity", "settings", "host", "version"), [
    *((BROKER, TRUSTING, host, version) for host in HOSTS for version in ("TLSv1_2", "TLSv1_3")),
    *((ODD_HOSTS, TRUSTING, host, "") for host in ("my_broker.example", "localhost.", "my_broker.example.")),
    (CA.issue("127.0.0.1", hosts=("127.0.0.1",)), TRUSTING, "127.0.0.1", ""),
    *((CA.issue("localhost", hosts=hosts), ANY_HOST, "localhost", "") for hosts in ((), ("elsewhere.example",))),
    # A truststore may have an intermediate CA or the broker alone, as in Java, where it is a set of anchors.
    *((WITH_CHAIN, TlsSettings(truststore_certificates=each), "localhost", "")
      for each in (CA.certificate, MIDDLE.certificate, OF_MIDDLE.chain)),
])  # fmt: skip
def test_bytes_go_to_and_from_a_broker_that_is_trusted(
    identity: Identity, settings: TlsSettings, host: str, version: str
) -> None:
    events = events_of(served(identity, echo, version=version), settings, host=host)
    assert events == [Connected(1), Sent(1), Received(1, b"hello")]


def test_more_than_the_socket_takes_at_once() -> None:
    payload = os.urandom(1 << 20) * 8
    got = bytearray()
    go = threading.Event()

    def swallow(sock: socket.socket) -> None:
        go.wait(DEADLINE_S)
        while len(got) < len(payload) + 9:
            got.extend(sock.recv(1 << 16))
        sock.sendall(b"thanks" * 20_000)

    selector = Selector(tls=Contexts(TRUSTING))
    events: list[Event] = []

    def poll_until(enough: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not enough():
            assert time.monotonic() < deadline
            events.extend(selector.poll(1000))

    with served(BROKER, swallow) as port:
        selector.connect(1, at(port))
        poll_until(lambda: Connected(1) in events)
        view = memoryview(payload)
        selector.send(1, [b"head", view[:3_000_000], b"", view[3_000_000:]])
        selector.send(1, [b"after"])
        assert Sent(1) not in selector.poll(0)
        go.set()
        poll_until(lambda: sum(len(event.data) for event in events if isinstance(event, Received)) >= 120_000)
        selector.close_all()
    assert (bytes(got), events.count(Sent(1))) == (b"head" + payload + b"after", 2)


def test_a_client_certificate_is_shown(tmp_path: Path) -> None:
    plain, locked = CA.issue("alice"), CA.issue("alice", password="opensesame")
    (tmp_path / "client.pem").write_text(plain.pem)
    for mutual in (
        replace(TRUSTING, keystore_location=str(tmp_path / "client.pem")),
        replace(TRUSTING, keystore_certificate_chain=plain.chain, keystore_key=plain.key),
        replace(TRUSTING, keystore_certificate_chain=locked.chain, keystore_key=locked.key, key_password="opensesame"),
    ):
        assert b"alice" in shown(mutual)


@pytest.mark.parametrize("line_end", ["\\n", " ", "\r\n", "\\n\n"])
def test_inline_pem_in_one_line(line_end: str) -> None:
    alice = CA.issue("alice", password="opensesame")
    pems = CA.certificate * 2, alice.chain + CA.certificate, alice.key
    trusted, chain, key = (pem.replace("\n", line_end) for pem in pems)
    pair = {"keystore_certificate_chain": chain, "keystore_key": key, "key_password": "opensesame"}
    assert b"alice" in shown(TlsSettings(truststore_certificates=trusted, **pair))  # type: ignore[arg-type]


RSA_CLIENT = CA.issue("alice", rsa_bits=2048)


@pytest.mark.parametrize("password", [None, "opensesame"], ids=["plain", "encrypted"])
@pytest.mark.parametrize("key_format", [PrivateFormat.TraditionalOpenSSL, PrivateFormat.PKCS8])
@pytest.mark.parametrize("alice", [CA.issue("alice"), RSA_CLIENT], ids=["EC", "RSA"])
def test_a_private_key_of_each_format(alice: Identity, key_format: PrivateFormat, password: str | None) -> None:
    """PKCS#1 and SEC 1, which OpenSSL calls traditional, and PKCS#8."""
    encryption = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    key = load_pem_private_key(alice.key.encode(), None).private_bytes(Encoding.PEM, key_format, encryption).decode()
    settings = replace(TRUSTING, keystore_certificate_chain=alice.chain, keystore_key=key)
    if password:
        with pytest.raises(InvalidOption, match=r"kafka\.ssl\.key\.password"):
            client_context(settings)
    assert b"alice" in shown(replace(settings, key_password=password))


@pytest.mark.parametrize("text", [
    lambda pem: "\ufeff" + pem,
    lambda pem: pem.replace("\n", "\r\n"),
    lambda pem: "subject=CN = alice, über\nENCRYPTED: no\n" + pem + "the end",
    lambda pem: "\n".join(f"  {line} " for line in pem.split("\n")),
], ids=["byte order mark", "CRLF", "text around", "blanks"])  # fmt: skip
@pytest.mark.parametrize("key_first", [True, False])
def test_pem_files_as_tools_write_them(tmp_path: Path, text: Callable[[str], str], key_first: bool) -> None:
    store, trusted = tmp_path / "client.pem", tmp_path / "ca.pem"
    parts = [RSA_CLIENT.key, RSA_CLIENT.chain + CA.certificate]
    store.write_text(text("".join(parts if key_first else reversed(parts))), newline="")
    trusted.write_text(text(OTHER_CA.certificate + CA.certificate), newline="")
    assert b"alice" in shown(TlsSettings(truststore_location=str(trusted), keystore_location=str(store)))


@pytest.mark.parametrize("code", [24, 26, 66, 67, 68, 79])
def test_a_certificate_that_is_not_fit_is_not_called_unknown(code: int) -> None:
    """The purpose, no CA, a weak key: none of it is found in the truststore."""
    error = ssl.SSLCertVerificationError(ssl.SSL_ERROR_SSL, "")
    error.verify_code, error.verify_message = code, "EE certificate key too weak"
    failure = explain(error)
    assert failure is not None
    assert "not fit" in failure.step
    assert "truststore" not in failure.advice


NO_ADDRESS = CA.issue("127.0.0.1", hosts=("localhost",))


@pytest.mark.parametrize(("identity", "settings", "step"), [
    (CA.issue("broker", expired=True), TRUSTING, "certificate has expired"),
    (CA.issue("broker", hosts=("elsewhere.example",)), TRUSTING, "another host name"),
    (CA.issue("localhost", hosts=()), TRUSTING, "lacks a subjectAltName"),
    (CA.issue("localhost", hosts=("127.0.0.1",)), TRUSTING, "lacks a subjectAltName"),
    (CA.issue("localhost", hosts=(), mails=("a@b.example",)), TRUSTING, "lacks a subjectAltName"),
    (OTHER_CA.issue("broker"), TRUSTING, "CA that is not trusted"),
    (BROKER, TlsSettings(), "CA that is not trusted"),
    (OF_MIDDLE, TlsSettings(truststore_certificates=BROKER.chain), "not trusted"),
    (NO_ADDRESS, TRUSTING, "another host name"),
], ids=[
    "expired", "host", "common name", "common name beside an address", "beside a mail", "ca", "system", "another",
    "an address is looked for among addresses",
])  # fmt: skip
def test_a_broker_that_is_not_verified_hears_nothing(identity: Identity, settings: TlsSettings, step: str) -> None:
    heard = bytearray()
    server = served(identity, lambda sock: heard.extend(sock.recv(100)), version="TLSv1_3")
    failure = failure_of(server, settings, host=HOSTS[identity is NO_ADDRESS])
    assert failure.tls is not None and failure.tls.final
    assert step in failure.reason
    assert not heard


OF_ANOTHER_CA = OTHER_CA.issue("alice")
MUTUAL = replace(TRUSTING, keystore_certificate_chain=OF_ANOTHER_CA.chain, keystore_key=OF_ANOTHER_CA.key)


@pytest.mark.parametrize(("identity", "serve", "of_server", "settings", "words"), [
    (BROKER, echo, {"client_ca": CA, "version": "TLSv1_2"}, TRUSTING, "client certificate"),
    (BROKER, echo, {"client_ca": CA, "version": "TLSv1_3"}, TRUSTING, "kafka.ssl.keystore.location"),
    (BROKER, echo, {"client_ca": CA}, MUTUAL, "CA of the client's certificate"),
    (BROKER, echo, {"version": "TLSv1_2"}, replace(TRUSTING, protocols=("TLSv1.3",)), "in common"),
    (None, lambda sock: sock.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"), {}, TRUSTING, "does not speak TLS"),
    (None, lambda sock: sock.recv(1), {}, TRUSTING, "plaintext listener"),
], ids=["TLS 1.2", "TLS 1.3", "of another CA", "no common version", "plaintext", "hangs up"])  # fmt: skip
def test_a_handshake_that_fails_says_why(
    identity: Identity | None, serve: Callable[[socket.socket], object], of_server: dict[str, Any],
    settings: TlsSettings, words: str,
) -> None:  # fmt: skip
    failure = failure_of(served(identity, serve, **of_server), settings)
    assert failure.tls is not None
    assert failure.tls.final == (words != "plaintext listener"), "a peer that hangs up may be one that goes down"
    assert words in failure.reason
    # The end of a connection that stood is no matter of TLS.
    assert failure_of(served(BROKER, lambda sock: None)).tls is None


CANARY = "canary-9f1c"
PAIR = replace(TRUSTING, keystore_certificate_chain=BROKER.chain, keystore_key=BROKER.key)


SHORT, LOCKED = CA.issue("alice", rsa_bits=1024), CA.issue("b", password="right")
ORDER = "the certificate of the private key first"


def with_chain(chain: str, key: str) -> TlsSettings:
    return replace(TRUSTING, keystore_certificate_chain=chain, keystore_key=key)


@pytest.mark.parametrize(("settings", "option", "words"), [
    (TlsSettings(truststore_location="/nonexistent/ca.pem"), "truststore.location", ""),
    (TlsSettings(truststore_location="/"), "truststore.location", ""),
    (TlsSettings(truststore_certificates=CANARY), "truststore.certificates", ""),
    (TlsSettings(truststore_certificates="é"), "truststore.certificates", ""),
    (replace(PAIR, keystore_key=CANARY), "keystore.key", ""),
    (replace(PAIR, keystore_key=CA.issue("other").key), "keystore.key", ""),
    (replace(PAIR, keystore_key=CA.issue("b", password=CANARY).key), "keystore.key", ""),
    (replace(PAIR, keystore_key=LOCKED.key, key_password=CANARY), "key.password", ""),
    (with_chain(CA.certificate + RSA_CLIENT.chain, RSA_CLIENT.key), "keystore.key", ORDER),
    (with_chain(CA.certificate + BROKER.chain, BROKER.key), "keystore.key", ORDER),
    (with_chain(BROKER.chain, RSA_CLIENT.key), "keystore.key", "another key"),
    (with_chain(SHORT.chain, SHORT.key), "keystore.key", "2,048 bits"),
])  # fmt: skip
def test_what_cannot_be_used_is_named_and_not_shown(settings: TlsSettings, option: str, words: str) -> None:
    with pytest.raises(InvalidOption, match=words or None) as failure:
        client_context(settings)
    assert failure.value.option == f"kafka.ssl.{option}"
    assert CANARY not in repr(pickle.dumps(failure.value))
    assert failure.value.__context__ is None or failure.value.__suppress_context__
    secrets = dict.fromkeys(("keystore_key", "key_password", "truststore_password", "keystore_password"), CANARY)
    assert CANARY not in repr(replace(TRUSTING, **secrets))  # type: ignore[arg-type]


def test_a_private_key_needs_no_disk_and_is_left_in_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    client_context(PAIR)  # on a disk that is full, too
    # Where a system has no files in memory.
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    client_context(PAIR)
    with pytest.raises(InvalidOption):
        client_context(replace(PAIR, keystore_key="nonsense"))
    assert list(tmp_path.iterdir()) == []


def test_the_system_is_trusted_where_nothing_is_said() -> None:
    context = client_context(TlsSettings())
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2

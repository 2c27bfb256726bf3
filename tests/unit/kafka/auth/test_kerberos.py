"""Credentials and contexts with a scripted library, and the table of failures."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kafka_sink.errors import SaslRefused
from kafka_sink.kafka.auth import kerberos
from kafka_sink.kafka.auth.kerberos import GssError, Kerberos, KerberosIdentity, LibraryMissing, library
from kafka_sink.kafka.auth.kerberos_failures import CREDENTIALS_EXPIRED, STATUSES, Place, broker_refused, read_status

KRB5 = -1765328384
NO_CACHE, FAILURE = KRB5 + 195, 13 << 16
PLACE = Place("kafka", "broker-1.example", "/app.keytab", None)


@dataclass
class Library:
    """Plays MIT's library: what it is asked for, and how it fails at which call."""

    failing: dict[str, list[GssError]] = field(default_factory=dict)
    asked: list[tuple[Any, ...]] = field(default_factory=list)

    def __call__(self, *call: object) -> Any:
        self.asked.append(call)
        errors = self.failing.get(str(call[0]))
        if errors:
            raise errors.pop(0)
        return self

    def credential(self, principal: str | None, store: dict[str, str]) -> Any:
        return self("credential", principal, store)

    def check(self) -> Any:
        return self("check")

    def context(self, service: str, credential: object) -> Any:
        return self("context", service)

    def step(self, token: bytes) -> tuple[bytes, bool]:
        self("step", token)
        return b"token", bool(token)

    def wrap(self, message: bytes) -> bytes:
        self("wrap", message)
        return message

    unwrap = wrap

    def calls(self, name: str) -> list[tuple[Any, ...]]:
        return [call[1:] for call in self.asked if call[0] == name]


@pytest.fixture
def keytab(tmp_path: Path) -> str:
    (tmp_path / "app.keytab").write_bytes(b"\x05\x02rest")
    return str(tmp_path / "app.keytab")


def made(gss: Library, **of: str) -> Kerberos:
    return Kerberos(KerberosIdentity("kafka", **of), lambda: gss)  # type: ignore[arg-type, return-value]


def begin(logins: Kerberos, host: str = "host") -> tuple[bytes, bool]:
    return logins.login(host).context.step(b"")


def refused(call: Callable[[], object]) -> SaslRefused:
    with pytest.raises(SaslRefused) as failure:
        call()
    return failure.value


def test_connections_share_the_tickets_of_a_keytab_in_memory(keytab: str) -> None:
    gss = Library()
    logins = made(gss, keytab=keytab, principal="app@R")
    for host in ("broker-1.example", "broker-2.example"):
        context = logins.login(host).context
        assert (context.step(b""), context.step(b"answer")) == ((b"token", False), (b"token", True))
        assert (context.wrap(b"choice"), context.unwrap(b"offer")) == (b"choice", b"offer")
    (principal, first), (_, second) = gss.calls("credential")
    assert (principal, first) == ("app@R", second)
    assert first["client_keytab"] == f"FILE:{keytab}"
    assert first["ccache"].startswith("MEMORY:")
    assert gss.calls("context") == [("kafka@broker-1.example",), ("kafka@broker-2.example",)]


@pytest.mark.parametrize(
    ("of", "store"), [({}, {}), ({"ticket_cache": "/tmp/cc", "principal": "app@R"}, {"ccache": "/tmp/cc"})]
)
def test_a_ticket_cache_is_read_for_each_connection(of: dict[str, str], store: dict[str, str]) -> None:
    gss = Library()
    logins = made(gss, **of)
    # Nobody is asked before the first step.
    login = logins.login("host")
    assert gss.asked == [] and "context" not in repr(login)
    for _ in range(2):
        begin(logins)
    assert gss.calls("credential") == [(of.get("principal"), store)] * 2


def test_why_an_expired_ticket_of_a_keytab_is_not_replaced_is_found_in_an_empty_cache(keytab: str) -> None:
    away = GssError(7 << 16, KRB5 + 156, "no credentials; Cannot contact any KDC for realm 'R'")
    gss = Library({"check": [GssError(CREDENTIALS_EXPIRED, 0, "expired")]})
    logins = made(gss, keytab=keytab, principal="app@R")
    assert begin(logins) == (b"token", False)
    (_, first), (_, second) = gss.calls("credential")
    assert first["ccache"] != second["ccache"]

    gss.failing = {"check": [GssError(CREDENTIALS_EXPIRED, 0, "expired")] * 2}
    failure = refused(lambda: begin(logins))
    assert "has expired" in failure.reason
    assert "clocks" in failure.remedy

    gss.failing = {"check": [GssError(CREDENTIALS_EXPIRED, 0, "expired"), away]}
    failure = refused(lambda: begin(logins))
    assert "the KDC cannot be reached (Cannot contact any KDC for realm 'R')" in failure.reason
    assert not failure.is_final

    # One of a cache is final.
    gss = Library({"check": [GssError(CREDENTIALS_EXPIRED, 0, "The credential has expired; Success")]})
    failure = refused(lambda: begin(made(gss, ticket_cache="/tmp/cc")))
    assert failure.reason == "the ticket in '/tmp/cc' has expired (The credential has expired)"
    assert "run kinit" in failure.remedy and failure.is_final
    assert len(gss.calls("credential")) == 1


def test_a_missing_library_is_told_with_the_commands_that_install_it() -> None:
    for name in ("libgssapi_of_nobody.so.9", "libc.so.6"):
        with pytest.raises(LibraryMissing):
            library(name)
        failure = refused(lambda name=name: begin(Kerberos(KerberosIdentity("kafka"), lambda: library(name))))
        assert "libgssapi_krb5" in failure.reason
        assert "apt-get install libgssapi-krb5-2" in failure.remedy and "yum install krb5-libs" in failure.remedy


@pytest.mark.parametrize(("content", "words"), [(None, "there is no keytab"), (b"text", "is no keytab")])
def test_what_is_no_keytab_is_told_before_the_library_is_asked(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    path = tmp_path / "of {braces}.keytab"
    if content is not None:
        path.write_bytes(content)
    gss = Library()
    failure = refused(lambda: begin(made(gss, keytab=str(path), principal="a")))
    assert words in failure.reason and str(path) in failure.reason
    assert gss.asked == []


def test_a_turn_that_does_not_come_is_a_kdc_that_does_not_answer(monkeypatch: pytest.MonkeyPatch, keytab: str) -> None:
    monkeypatch.setattr(kerberos, "TURN_S", 0.01)
    entered, goes_on = threading.Event(), threading.Event()

    class Slow(Library):
        def check(self) -> Any:
            entered.set()
            assert goes_on.wait(30)

    logins = made(Slow(), keytab=keytab, principal="a")
    asking = threading.Thread(target=logins.login("one").context.step, args=(b"",))
    asking.start()
    assert entered.wait(30)
    failure = refused(lambda: begin(logins, "two"))
    assert "did not answer in time" in failure.reason
    assert not failure.is_final
    goes_on.set()
    asking.join(30)
    assert begin(logins, "three") == (b"token", False)


@pytest.mark.parametrize("minor", [*STATUSES, 0, 100_001])
def test_every_status_has_a_reason_and_a_remedy(minor: int) -> None:
    for place in (PLACE, Place("kafka", "h{o}st", None, "/tmp/cc"), Place("kafka", "host", None, None)):
        failure = read_status(FAILURE, minor, "Unspecified; the library's words", place)
        assert failure.reason.endswith("(the library's words)")
        assert failure.remedy
        assert "{s" not in failure.reason + failure.remedy
        # Only what may pass is tried again.
        assert failure.is_final is (minor - KRB5 not in {21, 33, 34, 155, 156})


@pytest.mark.parametrize(("major", "minor", "said", "words"), [
    (FAILURE, KRB5 + 6, "words", "does not know this principal"),
    (FAILURE, KRB5 + 7, "words", "kafka/broker-1.example"),
    (FAILURE, KRB5 + 37, "words", "clocks"),
    (FAILURE, NO_CACHE, "words", "'/app.keytab' has no key of this principal"),
    (2 << 16, KRB5 + 134, "invalid; Malformed", "a principal is not valid"),
    (9 << 16, 0, "Invalid token; Success", "is not Kerberos'"),
    (FAILURE, 1, "Only this", "(Only this)"),
    (FAILURE, 1, "Major; Success", "(Major)"),
])  # fmt: skip
def test_facts_are_named(major: int, minor: int, said: str, words: str) -> None:
    assert words in read_status(major, minor, said, PLACE).reason
    assert "sasl.kerberos.principal.to.local.rules" in broker_refused(PLACE)

from __future__ import annotations

import errno
import http.client
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from kafka_sink.errors import InvalidOption, MissingOption, WorkerExhausted, WriteKind
from kafka_sink.errors.exhaustion import exhausted, exhaustion_named, is_exhaustion
from kafka_sink.kafka.metrics import Metrics
from kafka_sink.kafka.net import resolver
from kafka_sink.kafka.net.selector import Selector
from kafka_sink.kafka.net.tls import TlsSettings, client_context
from kafka_sink.kafka.net.transport import Address, Disconnected
from kafka_sink.kafka.oauth import TokenEndpoint
from kafka_sink.spark.exactly_once.transactional_errors import told_of_a_transaction

NO_FILE = OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def no_file(*given: Any, **named: Any) -> Any:
    raise NO_FILE


@pytest.mark.parametrize(("error", "what"), [
    (MemoryError(), "memory"), (pa.ArrowMemoryError("malloc failed"), "memory"),
    (OSError(errno.ENOMEM, "Cannot allocate memory"), "memory"),
    (OSError(errno.ENOBUFS, "No buffer space available"), "memory"),
    (RuntimeError("can't start new thread"), "threads"), (NO_FILE, "open files"),
    (OSError(errno.ENFILE, "Too many open files in system"), "open files"),
])  # fmt: skip
def test_what_is_named(error: Exception, what: str) -> None:
    named = exhausted(error)
    assert named is not None
    assert named.what == what
    with pytest.raises(WorkerExhausted) as raised, exhaustion_named():
        raise error
    assert raised.value.__cause__ is error


@pytest.mark.parametrize(
    "error", [OSError(errno.EACCES, "no"), OSError("no number"), RuntimeError("another"), ValueError(), KeyError("x")]
)
def test_what_is_not(error: Exception) -> None:
    assert exhausted(error) is None
    with pytest.raises(type(error)) as raised, exhaustion_named():
        raise error
    assert raised.value is error
    assert not is_exhaustion(getattr(error, "errno", None))


def test_an_error_with_a_name_keeps_it_and_one_of_a_transaction_says_so() -> None:
    named = MissingOption(option="x", hint="y")
    with pytest.raises(MissingOption) as raised, exhaustion_named():
        raise named
    assert raised.value is named
    invisible = pytest.raises(WorkerExhausted, match="no row of this attempt is visible")
    with invisible as raised, told_of_a_transaction(None):
        raise MemoryError
    assert raised.value.write_kind is WriteKind.STREAM


def test_a_connection_that_has_no_file_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    selector = Selector(metrics=Metrics())
    monkeypatch.setattr(socket, "socket", no_file)
    try:
        selector.connect(0, Address(socket.AF_INET, ("127.0.0.1", 9)))
        assert selector.poll(0) == [Disconnected(0, NO_FILE.strerror, lacks=errno.EMFILE)]
    finally:
        selector.close_all()


def test_a_selector_without_a_pipe_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = list[bool]()
    monkeypatch.setattr("selectors.DefaultSelector", lambda: SimpleNamespace(close=lambda: closed.append(True)))
    monkeypatch.setattr(socket, "socketpair", no_file)
    with pytest.raises(OSError, match="Too many open files"):
        Selector(metrics=Metrics())
    assert closed == [True]


@pytest.mark.parametrize("without_files", [True, False])
def test_a_name_not_looked_up_for_want_of_files_says_so(monkeypatch: pytest.MonkeyPatch, without_files: bool) -> None:
    """The C library calls it a name that is not known."""

    def not_known(*given: Any, **named: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", not_known)
    if without_files:
        monkeypatch.setattr(os, "open", no_file)
    with pytest.raises(OSError) as raised:
        resolver.resolve("broker", 9092)
    assert is_exhaustion(raised.value.errno) == without_files
    assert isinstance(raised.value, socket.gaierror) != without_files


def test_a_certificate_not_opened_for_want_of_files_is_no_option(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = TlsSettings(truststore_location=str(tmp_path / "ca.pem"))
    with pytest.raises(InvalidOption):
        client_context(settings)
    monkeypatch.setattr(Path, "open", no_file)
    with pytest.raises(WorkerExhausted), exhaustion_named():
        client_context(settings)


def test_a_token_is_not_asked_for_again_without_files(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def connect(connection: http.client.HTTPConnection) -> None:
        asked.append(connection)
        raise NO_FILE

    monkeypatch.setattr(http.client.HTTPConnection, "connect", connect)
    endpoint = TokenEndpoint(
        url="http://h/t", client_id="id", client_secret="s", scope=None, header_urlencode=False, contexts=None
    )
    with pytest.raises(WorkerExhausted), exhaustion_named():
        endpoint.fetch(lambda: 0.0)
    assert len(asked) == 1

"""TLS with the standard library: a context from the settings, a socket of the selector with TLS, and the meaning of
OpenSSL's errors for a Kafka user.

    contexts = Contexts(TlsSettings(truststore_location="/etc/pki/ca.pem"))
    contexts.current()      # the same context until a file is replaced

A failure is reported as the step that failed and what to change; `explain` is a pure function of the exception. Some
failures are final: every attempt with the same certificates fails. Others are not: the peer may hang up because the
broker is shutting down, or because it takes no more connections for now (KIP-612).

Non-obvious:

* The side that verifies a certificate reports a failure with an alert. With TLS 1.3 a client's handshake ends before
  the broker has seen the client's certificate. So a missing or untrusted certificate causes an alert where the client
  expects the first response.
* Since Python 3.13, `ssl.create_default_context` checks X.509 strictly and refuses private CAs that Java accepts. So
  this module does not use it.
* OpenSSL reads private keys and chains only from files. Inline keys and chains are written to a file that only the
  owner can read, and that is removed at once.
* `SSLSocket` has no `sendmsg`. A buffer is passed to OpenSSL whole instead of in records of 16 KiB. Each call releases
  the GIL, and with a busy writer it may take 5 ms to get the GIL back.
* OpenSSL requires that an interrupted write is repeated with the same bytes. So the first buffer of `outgoing` must not
  be joined with the next one.
* One read returns at most one record, of at most 16 KiB. A larger buffer leaves no decrypted bytes inside OpenSSL; a
  selector would not report those.

Source: KIP-651 (PEM stores), org.apache.kafka.common.security.ssl.DefaultSslEngineFactory; OpenSSL's verify(1) for the
codes in `SSLCertVerificationError.verify_code`; RFC 8446, section 6 (alerts).
"""

from __future__ import annotations

import errno
import os
import re
import selectors
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from kafka_sink.errors import InvalidOption
from kafka_sink.errors.redaction import Discreet
from kafka_sink.kafka.net.resolver import is_address
from kafka_sink.kafka.net.selector import Channel, check_connected
from kafka_sink.kafka.net.stores import keystore_pem, truststore_pem
from kafka_sink.kafka.net.transport import TlsFailure

# The most bytes that one connection encrypts before the next connection has its turn.
_TLS_TURN_BYTES = 1024 * 1024
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TlsSettings(Discreet):
    """Kafka's `ssl.*` options. `*_location` are files, `*_certificates`, `*_chain` and `keystore_key` PEM texts; None:
    not set. Without a truststore, the system's CAs are trusted. `protocols`: the allowed versions, TLSv1.2 or TLSv1.3
    or both."""

    truststore_location: str | None = None
    truststore_password: str | None = field(default=None, repr=False)
    truststore_certificates: str | None = None
    keystore_location: str | None = None
    keystore_password: str | None = field(default=None, repr=False)
    keystore_certificate_chain: str | None = None
    keystore_key: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    verify_host_name: bool = True
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context of all connections with `settings`.

    Raises RefusedOption for a store of a format that is not read, with the command that converts it. Raises
    MissingOption for a password that is needed, and InvalidOption for a file, text or password that cannot be used. The
    message contains nothing from the file.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    versions = [_VERSIONS[name] for name in settings.protocols]
    context.minimum_version, context.maximum_version = min(versions), max(versions)
    # During a renegotiation writes would wait for reads. Kafka's brokers never ask for one.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.check_hostname = settings.verify_host_name
    # As in Java, every certificate of the truststore is trusted for itself: an intermediate CA's, or a broker's own.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.sslsocket_class = _NamedPeer
    _trust(context, settings)
    _identify(context, settings)
    return context


class Contexts:
    """The context for new connections. It is created again when one of its files was replaced, so that a certificate
    can be renewed while a worker runs. Existing connections keep their context."""

    def __init__(self, settings: TlsSettings, *, and_system: bool = False) -> None:
        """`and_system`: trust the system's CAs as well. Raises as `client_context`."""
        self._settings = settings
        self._and_system = and_system
        self._files = _files_of(settings)
        self._context = self._make()

    def current(self) -> ssl.SSLContext:
        """Return the context of the current files. Raises as `client_context` until the files can be used, so that a
        removed CA is not trusted any longer."""
        files = _files_of(self._settings)
        if files != self._files:
            # `files` was taken before reading: a change in between is noticed by the next call.
            self._context, self._files = self._make(), files
        return self._context

    def _make(self) -> ssl.SSLContext:
        context = client_context(self._settings)
        if self._and_system:
            context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return context


def _files_of(settings: TlsSettings) -> tuple[tuple[int, int, int] | None, ...]:
    """Return the identity of the file at each location, with links followed, or None where there is no file."""
    return tuple(
        _file_at(location) for location in (settings.truststore_location, settings.keystore_location) if location
    )


def _file_at(location: str) -> tuple[int, int, int] | None:
    try:
        found = Path(location).stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


class _NamedPeer(ssl.SSLSocket):
    """Refuses a certificate that matches the host only by its common name. OpenSSL accepts it if subjectAltName has no
    host name. RFC 9525, section 1.2: a common name is not meant for host names, and no CA checks it."""

    def do_handshake(self, block: bool = False) -> None:
        super().do_handshake(block)
        names: Any = (self.getpeercert() or {}).get("subjectAltName", ())
        needed = "IP Address" if is_address(self.server_hostname or "") else "DNS"
        if self.context.check_hostname and not any(kind == needed for kind, _ in names):
            error = ssl.SSLCertVerificationError(ssl.SSL_ERROR_SSL, "certificate without a subjectAltName")
            error.verify_code, error.verify_message = _NO_NAME, "no host in subjectAltName"
            raise error


def _trust(context: ssl.SSLContext, settings: TlsSettings) -> None:
    if settings.truststore_location is not None:
        option = "kafka.ssl.truststore.location"
        pem = truststore_pem(settings.truststore_location, settings.truststore_password)
    elif settings.truststore_certificates is not None:
        option, pem = "kafka.ssl.truststore.certificates", settings.truststore_certificates
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return
    loaded = False
    try:
        context.load_verify_locations(cadata=_in_lines(pem).encode("ascii", "replace").decode())
        loaded = context.cert_store_stats()["x509"] > 0
    except (ssl.SSLError, ValueError):
        pass
    if not loaded:
        raise InvalidOption(
            option=option,
            value=None,
            expected="CA certificates as PEM ('-----BEGIN CERTIFICATE-----'), or a JKS or PKCS12 store of them",
        )


def _identify(context: ssl.SSLContext, settings: TlsSettings) -> None:
    """Load the client's own certificate, if there is one."""
    password = settings.key_password
    if settings.keystore_location is not None:
        option = "kafka.ssl.keystore.location"
        store = keystore_pem(settings.keystore_location, settings.keystore_password, settings.key_password)
        pem, password = _in_lines(store.pem), store.password
    elif settings.keystore_certificate_chain is not None:
        option = "kafka.ssl.keystore.key"
        pem = _in_lines(f"{settings.keystore_certificate_chain}\n{settings.keystore_key or ''}")
    else:
        return
    encrypted = _ENCRYPTED.search(pem) is not None
    if encrypted and password is None:
        raise InvalidOption(
            option=option, value=None, expected="a private key without a password, or kafka.ssl.key.password"
        )
    reason: str | None = None
    with _private_file(pem) as path:
        try:
            # Pass a password always: without one, OpenSSL would ask for it at the terminal.
            context.load_cert_chain(path, password=password or "")
        except (ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", None) or ""
    # Raised outside of the handler, so that no OpenSSL exception is chained.
    if reason is None:
        return
    if reason in _OWN_REASONS:
        raise InvalidOption(option=option, value=None, expected=_OWN_REASONS[reason])
    if encrypted:
        raise InvalidOption(
            option="kafka.ssl.key.password",
            value=None,
            expected="the password of the private key; OpenSSL reads no key that is encrypted with MD5, RC2 or single "
            "DES: write it anew with openssl pkcs8 -topk8 -provider legacy -provider default",
        )
    raise InvalidOption(
        option=option,
        value=None,
        expected="PEM: the private key ('-----BEGIN PRIVATE KEY-----'), and the certificate that belongs to it, "
        "followed by those that lead to its CA; or a JKS or PKCS12 store with both",
    )


@contextmanager
def _private_file(text: str) -> Iterator[str]:
    """A file that OpenSSL can open by its name. Where the system allows it, it is in memory: a key is on no disk then,
    and no disk can be full."""
    is_in_memory = hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd")
    if is_in_memory:
        descriptor = os.memfd_create("pykafka")
        path = f"/proc/self/fd/{descriptor}"
    else:
        # mkstemp creates a file that only its owner can read.
        descriptor, path = tempfile.mkstemp(prefix="pykafka-", suffix=".pem")
    try:
        with os.fdopen(descriptor, "w", encoding="ascii", errors="replace") as file:
            file.write(text)
            file.flush()
            yield path
    finally:
        if not is_in_memory:
            Path(path).unlink()


_STRONG = "RSA keys of at least 2,048 bits, and signatures with SHA-256"
_OTHER_KEY = (
    "the certificate of the private key first, then those that lead to its CA; the first one here belongs to another "
    "key"
)
# OpenSSL's reasons not to take the client's certificate -> what is expected.
_OWN_REASONS: Mapping[str, str] = {
    "NO_CERTIFICATE_ASSIGNED": _OTHER_KEY,
    "KEY_VALUES_MISMATCH": _OTHER_KEY,
    **dict.fromkeys(("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK"), _STRONG),
}
# PKCS#8, and the older form of OpenSSL.
_ENCRYPTED = re.compile("-----BEGIN ENCRYPTED|Proc-Type: *4, *ENCRYPTED")
_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\s]+)-----END \1-----")


def _in_lines(text: str) -> str:
    """Return PEM in lines, as OpenSSL requires. In a .properties file a line break is written as backslash and n. Java
    also accepts blanks for it, and blanks, text or a byte order mark before a block."""
    return _PEM_BLOCK.sub(_rewrapped, text.replace("\\n", "\n"))


def _rewrapped(block: re.Match[str]) -> str:
    base64 = "".join(block[2].split())
    lines = [base64[at : at + 64] for at in range(0, len(base64), 64)]
    return "\n".join((f"\n-----BEGIN {block[1]}-----", *lines, f"-----END {block[1]}-----\n"))


# --- a socket ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False, kw_only=True)
class TlsChannel(Channel):
    """`server_name`: the host that the certificate must be valid for."""

    context: ssl.SSLContext
    server_name: str
    _wrapped: bool = False

    def establish(self) -> int | None:
        if not self._wrapped:
            check_connected(self.sock)
            # The file descriptor stays the same, so the selector's registration stays valid. No certificate has the dot
            # at the end of an absolute name.
            self.sock = self.context.wrap_socket(
                self.sock, server_hostname=self.server_name.removesuffix("."), do_handshake_on_connect=False
            )
            self._wrapped = True
        try:
            cast(ssl.SSLSocket, self.sock).do_handshake()
        except ssl.SSLWantReadError:
            return selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            return selectors.EVENT_WRITE
        return None

    def read_into(self, chunk: memoryview) -> int:
        try:
            return self.sock.recv_into(chunk)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error

    def write(self) -> int:
        written = 0
        for buffer in self.outgoing:
            try:
                sent = self.sock.send(buffer[:_TLS_TURN_BYTES])
            except ssl.SSLWantWriteError:
                break
            except ssl.SSLEOFError as error:
                raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)) from error
            written += sent
            if sent < buffer.nbytes or written >= _TLS_TURN_BYTES:
                break
        return written

    def explain(self, error: OSError) -> TlsFailure | None:
        if self._wrapped and not self.connected and isinstance(error, ConnectionError | ssl.SSLEOFError):
            return HUNG_UP
        return explain(error)


# --- what went wrong --------------------------------------------------------------------------------------------------

_CA_ADVICE = (
    "put the CA that signed the broker's certificate into kafka.ssl.truststore.location or "
    "kafka.ssl.truststore.certificates (without either the system's CAs are trusted)"
)
_UNKNOWN_CA = "the broker's certificate is signed by a CA that is not trusted here"
_HOST_NAME = "the broker's certificate is for another host name"
_HOST_NAME_ADVICE = (
    "connect by a name that is in it (kafka.bootstrap.servers, and the advertised.listeners of the brokers), or have "
    "it issued for this one"
)
_NOT_FIT = "the broker's certificate, or one that leads to it, is not fit for this"
_FIT_ADVICE = f"have it issued with {_STRONG}, for servers (extendedKeyUsage), by a CA that is one (basicConstraints)"
# Not an OpenSSL code: `_NamedPeer` sets it.
_NO_NAME = -1
# verify_code (X509_V_ERR_*) -> meaning and advice.
_VERIFY: Mapping[int, tuple[str, str]] = {
    **dict.fromkeys((2, 7, 19, 20, 21), (_UNKNOWN_CA, _CA_ADVICE)),
    9: ("the broker's certificate is not valid yet", "compare the clocks of broker and executors"),
    10: ("the broker's certificate has expired", "have it renewed on the broker, or a CA's in the truststore"),
    18: ("the broker's certificate is self-signed and not trusted here", _CA_ADVICE),
    # The purpose, no CA, and too weak: its key, a CA's key, a signature.
    **dict.fromkeys((26, 24, 79, 66, 67, 68), (_NOT_FIT, _FIT_ADVICE)),
    **dict.fromkeys((62, 64), (_HOST_NAME, _HOST_NAME_ADVICE)),
    _NO_NAME: (
        "the broker's certificate lacks a subjectAltName with its host names; its common name does not count",
        "have it issued with a subjectAltName: a DNS entry for each name that clients connect to, an IP entry for each "
        "address",
    ),
}

_OWN_ADVICE = (
    "give a client certificate that the broker's truststore knows: kafka.ssl.keystore.location, or "
    "kafka.ssl.keystore.certificate.chain and kafka.ssl.keystore.key"
)
_NOT_ACCEPTED = ("the broker did not accept the client's certificate", _OWN_ADVICE)
_NO_COMMON = (
    "broker and client have no TLS version or cipher in common",
    "compare kafka.ssl.enabled.protocols with the broker's ssl.enabled.protocols and ssl.cipher.suites",
)
_PLAINTEXT_PEER = (
    "the peer does not speak TLS",
    "this is most likely a plaintext listener: use the port of the broker's TLS listener, or kafka.security.protocol="
    "PLAINTEXT or SASL_PLAINTEXT",
)
# OpenSSL's reasons. Those with ALERT come from the broker.
_REASONS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"), _PLAINTEXT_PEER),
    **dict.fromkeys(("UNSUPPORTED_PROTOCOL", "NO_PROTOCOLS_AVAILABLE", "TLSV1_ALERT_PROTOCOL_VERSION"), _NO_COMMON),
    "SSLV3_ALERT_HANDSHAKE_FAILURE": (
        "the broker refused the handshake (handshake_failure): it asks for a client certificate, or has no cipher in "
        "common",
        _OWN_ADVICE,
    ),
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": ("the broker asks for a client certificate and got none", _OWN_ADVICE),
    "SSLV3_ALERT_BAD_CERTIFICATE": ("the broker did not accept the client's certificate, or got none", _OWN_ADVICE),
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": _NOT_ACCEPTED,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": (
        "the broker says that the client's certificate has expired",
        "renew the one in kafka.ssl.keystore.*",
    ),
    "SSLV3_ALERT_CERTIFICATE_REVOKED": (
        "the broker says that the client's certificate was revoked",
        "renew the one in kafka.ssl.keystore.*",
    ),
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _NOT_ACCEPTED,
    "TLSV1_ALERT_UNKNOWN_CA": ("the broker does not know the CA of the client's certificate", _OWN_ADVICE),
    "TLSV1_ALERT_ACCESS_DENIED": _NOT_ACCEPTED,
    "TLSV1_ALERT_DECRYPT_ERROR": ("the broker could not verify the client's certificate", _OWN_ADVICE),
}

# A plaintext listener hangs up instead of sending a ServerHello: it takes the ClientHello for a request that is too
# large. But a broker that shuts down hangs up as well, and one that takes no more connections (KIP-612, KIP-402).
HUNG_UP = TlsFailure(
    step="the peer closed the connection during the TLS handshake",
    advice="if it goes on, this is most likely a plaintext listener: use the port of the broker's TLS listener, or "
    "kafka.security.protocol=PLAINTEXT or SASL_PLAINTEXT. If other clients do connect, the broker may take no more "
    "connections: max.connections.per.ip, connection_creation_rate",
    final=False,
)


def explain(error: OSError) -> TlsFailure | None:
    """Return what an exception of `ssl` says about certificates and protocols, or None for a plain network error."""
    if isinstance(error, ssl.SSLCertVerificationError):
        unknown = ("the broker's certificate cannot be verified", _CA_ADVICE)
        step, advice = _VERIFY.get(error.verify_code, unknown)
        return TlsFailure(step=f"{step} ({error.verify_message})", advice=advice, final=True)
    if isinstance(error, ssl.SSLError) and error.reason and not isinstance(error, ssl.SSLEOFError):
        step, advice = _REASONS.get(error.reason, ("TLS failed", "the broker's log may say more"))
        return TlsFailure(step=f"{step} ({error.reason})", advice=advice, final=error.reason in _REASONS)
    return None

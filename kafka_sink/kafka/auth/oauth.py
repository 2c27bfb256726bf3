"""OAUTHBEARER tokens, from a token endpoint or from the user's callable. A token is kept until shortly before it
expires.

    tokens = Tokens(TokenEndpoint(url=url, client_id=client_id, ...).fetch, clock_s=time.monotonic)
    tokens.current()                 # fetches one if none is kept or the kept one grows old

The grant is client credentials (RFC 6749, section 4.4). The options have Kafka's names (KIP-768, KIP-1025, KIP-1139).
Like a name lookup, fetching a token blocks the connection that needs it, for at most `ATTEMPT_TIMEOUT_S` per attempt,
however slowly the endpoint answers. It happens once in a token's life, because all connections of a process share it.

Non-obvious:

* No redirect is followed and no proxy is used: credentials go only to the configured URL.
* A token is renewed from 80 % of its life on, as Java's login thread does. While that fails, the old token is used
  until it expires.

Source: org.apache.kafka.common.security.oauthbearer.internals.secured.HttpJwtRetriever.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import http.client
import json
import re
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote_plus, urlencode, urlsplit

from kafka_sink.errors import ConfigError, TokenUnavailable
from kafka_sink.errors.exhaustion import is_exhaustion
from kafka_sink.errors.redaction import Discreet
from kafka_sink.kafka.clock import within
from kafka_sink.kafka.net.tls import Contexts

ATTEMPTS = 2
ATTEMPT_TIMEOUT_S = 4.0
REFRESH_FACTOR = 0.8
# The lifetime assumed if neither the token nor the endpoint states one.
UNKNOWN_LIFETIME_S = 300.0
# 30,000 years. "exp" comes from a peer, and a JSON number may exceed a float's range.
_MAX_SECONDS = 1e12
# A token takes a few KB; brokers accept 512 KB (sasl.server.max.receive.size).
MAX_ANSWER_BYTES = 256 * 1024
# RFC 6750, section 2.1.
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_ERROR_CODE = re.compile(r"[a-z_]{1,40}")

# A token and its lifetime in seconds.
Fetched = tuple[str, float]
Fetch = Callable[[], Fetched]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TokenEndpoint(Discreet):
    """`header_urlencode`: send client id and secret form-encoded, as RFC 6749 requires; JVM clients do it only if this
    is set. `contexts`: for https; None if the URL is http, which the options allowed."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None
    header_urlencode: bool
    contexts: Contexts | None

    def fetch(self, wall_clock_s: Callable[[], float]) -> Fetched:
        """Return a token and its lifetime. Raises TokenUnavailable."""
        reason = ""
        for _ in range(ATTEMPTS):
            try:
                status, answer = self._post()
            except (OSError, http.client.HTTPException) as error:
                if isinstance(error, OSError) and is_exhaustion(error.errno):
                    raise
                reason = f"no answer: {_why(error)}"
                continue
            except ConfigError as unusable:
                # A certificate file was replaced and cannot be used.
                reason = unusable.parts().happened
                break
            if status == http.HTTPStatus.OK:
                return self._token_in(answer, wall_clock_s())
            reason = f"it answered {status}{_error_in(answer)}"
            if status < http.HTTPStatus.INTERNAL_SERVER_ERROR:
                break
        raise TokenUnavailable(source=self.url, reason=reason)

    def _post(self) -> tuple[int, bytes]:
        parts = urlsplit(self.url)
        host = parts.hostname or ""
        connection = (
            http.client.HTTPConnection(host, parts.port, timeout=ATTEMPT_TIMEOUT_S)
            if self.contexts is None
            else http.client.HTTPSConnection(
                host, parts.port, timeout=ATTEMPT_TIMEOUT_S, context=self.contexts.current()
            )
        )
        form = {"grant_type": "client_credentials"} | ({} if self.scope is None else {"scope": self.scope})
        encode = quote_plus if self.header_urlencode else str
        login = f"{encode(self.client_id)}:{encode(self.client_secret)}"
        headers = {
            "Authorization": f"Basic {base64.b64encode(login.encode()).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
        path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
        hang_up = _HangUp()

        def ask() -> tuple[int, bytes]:
            connection.connect()
            hang_up.take(connection.sock)
            connection.request("POST", path, urlencode(form), headers)
            response = connection.getresponse()
            return response.status, response.read(MAX_ANSWER_BYTES)

        try:
            return within(ATTEMPT_TIMEOUT_S, ask)
        finally:
            # Ends the read of the thread that still waits.
            hang_up()
            connection.close()

    def _token_in(self, answer: bytes, now_s: float) -> Fetched:
        message = _json_object(answer)
        token, lifetime_s = message.get("access_token"), _seconds(message.get("expires_in"))
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise TokenUnavailable(source=self.url, reason="its answer has no access_token")
        if lifetime_s is not None and lifetime_s > 0:
            return token, lifetime_s
        return token, lifetime_of(token, now_s)


class _HangUp:
    """Ends a connection that another thread is opening or has opened."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sock: socket.socket | None = None
        self._is_over = False

    def take(self, sock: socket.socket) -> None:
        """Set the socket. Raises ConnectionAbortedError if the call is already over, so that no credentials are
        sent."""
        with self._lock:
            if self._is_over:
                sock.close()
                raise ConnectionAbortedError
            self._sock = sock

    def __call__(self) -> None:
        with self._lock:
            self._is_over = True
            if self._sock is not None:
                with contextlib.suppress(OSError):
                    # Not the SSLSocket's own shutdown: the other thread may be inside a call of it.
                    socket.socket.shutdown(self._sock, socket.SHUT_RDWR)


def _seconds(value: object) -> float | None:
    """Return `value` in seconds, or None if it is no valid number (NaN included)."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if abs(value) <= _MAX_SECONDS else None


def _why(error: OSError | http.client.HTTPException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, TimeoutError):
        return f"none that was whole within {ATTEMPT_TIMEOUT_S:g} s"
    return getattr(error, "strerror", None) or type(error).__name__


def _error_in(answer: bytes) -> str:
    code = _json_object(answer).get("error")
    return f" ({code})" if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""


def _json_object(text: bytes) -> Mapping[str, Any]:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return message if isinstance(message, dict) else {}


def lifetime_of(token: str, now_s: float) -> float:
    """Return seconds until the JWT's own expiry time, or `UNKNOWN_LIFETIME_S` if it states none."""
    expires_s = _seconds(_claims(token).get("exp"))
    return UNKNOWN_LIFETIME_S if expires_s is None else expires_s - now_s


def subject_of(token: str) -> str:
    """Return the subject in a JWT, not verified, or an empty text if it has none."""
    subject = _claims(token).get("sub")
    return subject if isinstance(subject, str) else ""


def _claims(token: str) -> Mapping[str, Any]:
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        return _json_object(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except binascii.Error:
        return {}


# --- the token that is kept -------------------------------------------------------------------------------------------


class Tokens:
    """The current token, for use from any thread. `clock_s` is monotonic."""

    def __init__(self, fetch: Fetch, *, clock_s: Callable[[], float]) -> None:
        self._fetch = fetch
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._kept = ""
        self._refresh_at_s = self._expires_at_s = float("-inf")

    def current(self) -> str:
        """Return the token. Raises TokenUnavailable."""
        with self._lock:
            now_s = self._clock_s()
            if now_s < self._refresh_at_s:
                return self._kept
            try:
                self._kept, lifetime_s = self._fetch()
            except TokenUnavailable:
                if now_s < self._expires_at_s:
                    return self._kept
                raise
            self._refresh_at_s = now_s + REFRESH_FACTOR * lifetime_s
            self._expires_at_s = now_s + lifetime_s
            return self._kept


def fetched_by(call: Callable[[], object]) -> Fetch:
    """Return a function that calls the user's callable and checks the result. Errors show only the type of an exception
    that the callable raised, and nothing that it returned."""

    def fetch() -> Fetched:
        reason = "it did not return a token and for how many seconds it is good, as (str, float)"
        try:
            result = call()
        except Exception as error:
            reason = f"it raised {type(error).__name__}"
        else:
            match result:
                case (str(token), int() | float() as lifetime_s) if _TOKEN.fullmatch(token) and lifetime_s > 0:
                    return token, float(lifetime_s)
        raise TokenUnavailable(source="the token callable given to kafka_sink.register", reason=reason)

    return fetch

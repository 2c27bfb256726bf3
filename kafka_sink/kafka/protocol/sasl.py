"""SASL mechanisms without a connection: challenges in, responses out.

    exchange = MECHANISMS["SCRAM-SHA-512"](PasswordLogin("alice", password), nonce)
    first = exchange.respond(None)          # then, for each challenge of the broker,
    more = exchange.respond(challenge)      # the next message; None: complete, and the broker is verified

A mechanism is an entry of the table: its name, and a function that begins one exchange. A broker's message that
violates the mechanism raises SaslRefused.

Non-obvious:

* Names and passwords are sent without SASLprep. Kafka's own client and `kafka-configs.sh` use their UTF-8 unchanged
  (ScramFormatter.normalize), so a prepared password would differ.
* A hostile broker may ask for many iterations to keep a client busy, or for few to learn its password. Both are limited
  before anything is computed. If a broker asks for more iterations than Kafka's own default limit, the caller gets a
  `Computation`. It runs this in parallel to its other connections, until its timeout.
* A `SecurityContext` makes the tokens of Kerberos. It may ask a KDC and block, so each response of GSSAPI is a
  `Computation`, too. Kafka has no security layer: TLS encrypts, or nothing does.

Source: RFC 4616 (PLAIN), RFC 5802 and 7677 (SCRAM), RFC 7628 (OAUTHBEARER), RFC 4752 (GSSAPI); KIP-84, KIP-255,
KIP-342; org.apache.kafka.common.security.scram.internals.ScramSaslClient, com.sun.security.sasl.gsskerb.GssKrb5Client.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from kafka_sink.errors import SaslRefused
from kafka_sink.errors.quoting import quoted

_MAX_REASON_CHARACTERS = 300

Nonce = Callable[[], str]
# Computes the response. May block, and raises SaslRefused.
Computation = Callable[[], bytes]


@dataclass(frozen=True, slots=True)
class PasswordLogin:
    """`name`: the user's, as messages may show it. `secret`: the password, which no message may show."""

    name: str
    secret: str = field(repr=False)
    if_refused: ClassVar[str] = ""


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """`name`: the client id, or the token's subject. `secret`: the token. `extensions` are sent with it (KIP-342).
    `if_refused`: what to do if the broker refuses the token; empty: check the credentials."""

    name: str
    secret: str = field(repr=False)
    extensions: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    if_refused: str = ""


class SecurityContext(Protocol):
    """One side of a GSS-API context (RFC 2743). Methods may block. They raise SaslRefused, also for a peer's wrong
    bytes."""

    def step(self, token: bytes) -> tuple[bytes, bool]:
        """Take the peer's token (empty: the first step). Return the next token, maybe empty, and True if the context is
        established."""

    def unwrap(self, message: bytes) -> bytes:
        """Return the content of a message, whose integrity is verified."""

    def wrap(self, message: bytes) -> bytes: ...


@dataclass(frozen=True, slots=True)
class KerberosLogin:
    """`name`: the principal, as messages may show it. `if_refused`: what to do if the broker refuses the ticket."""

    name: str
    context: SecurityContext = field(repr=False)
    if_refused: str = ""
    secret: ClassVar[str] = ""


Login = PasswordLogin | TokenLogin | KerberosLogin


class Exchange(Protocol):
    def respond(self, challenge: bytes | None) -> bytes | Computation | None:
        """Return the response to `challenge` (None: the first message), or a function that computes it. Return None
        once the exchange is complete. Raises SaslRefused."""


# --- PLAIN ------------------------------------------------------------------------------------------------------------


class _Plain:
    def __init__(self, login: PasswordLogin) -> None:
        self._login = login

    def respond(self, challenge: bytes | None) -> bytes | None:
        if challenge is not None:
            return None
        return f"\0{self._login.name}\0{self._login.secret}".encode()


# --- SCRAM ------------------------------------------------------------------------------------------------------------

# RFC 7677, section 4; Kafka's ScramMechanism has the same value.
MIN_ITERATIONS = 4096
# Takes one to two seconds on an idle core.
MAX_ITERATIONS = 1_000_000
# The most that Kafka uses for new credentials (ScramMechanism.MAX_ITERATIONS): 20 to 40 ms.
MAX_ITERATIONS_AT_ONCE = 16_384
TOO_SLOW = (
    f"the password was not hashed in time, because the broker requires too many iterations of SCRAM: Kafka itself uses "
    f"at most {MAX_ITERATIONS_AT_ONCE}"
)
# A broker's nonce and salt have about 30 bytes. The client keeps, hashes and compares a challenge, so it is limited.
MAX_CHALLENGE_BYTES = 8 * 1024
_SERVER_FIRST = re.compile(rb"r=([\x21-\x2b\x2d-\x7e]+),s=([A-Za-z0-9+/=]+),i=([0-9]{1,9})(?:,.*)?", re.DOTALL)
_SERVER_FINAL = re.compile(rb"v=([A-Za-z0-9+/=]+)(?:,.*)?", re.DOTALL)
# No channel binding ("n"), no other identity to act as.
_GS2_HEADER = b"n,,"


class _Scram:
    """Client first -> server first -> client final -> server final."""

    def __init__(self, mechanism: str, digest: str, login: PasswordLogin, nonce: Nonce) -> None:
        self._mechanism = mechanism
        self._digest = digest
        self._login = login
        self._nonce = nonce().encode()
        username = login.name.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = b"n=" + username.encode() + b",r=" + self._nonce
        self._answer_to: Callable[[bytes], bytes | Computation | None] = self._on_server_first
        self._server_signature = b""

    def respond(self, challenge: bytes | None) -> bytes | Computation | None:
        if challenge is None:
            return _GS2_HEADER + self._first_bare
        if len(challenge) > MAX_CHALLENGE_BYTES:
            raise self._refused(f"it sends a challenge of {len(challenge)} bytes")
        return self._answer_to(challenge)

    def _on_server_first(self, challenge: bytes) -> bytes | Computation:
        match = _SERVER_FIRST.fullmatch(challenge)
        if match is None:
            raise self._refused("its first message is not SCRAM's")
        nonce, iterations = match[1], int(match[3])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise self._refused("its nonce does not continue the client's")
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise self._refused(f"it asks for {iterations} iterations, not {MIN_ITERATIONS} to {MAX_ITERATIONS}")
        salt = self._decoded(match[2])
        self._answer_to = self._on_server_final

        def computation() -> bytes:
            return self._final(challenge, nonce, salt, iterations)

        return computation() if iterations <= MAX_ITERATIONS_AT_ONCE else computation

    def _final(self, server_first: bytes, nonce: bytes, salt: bytes, iterations: int) -> bytes:
        salted = hashlib.pbkdf2_hmac(self._digest, self._login.secret.encode(), salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        final_bare = b"c=" + base64.b64encode(_GS2_HEADER) + b",r=" + nonce
        message = b",".join((self._first_bare, server_first, final_bare))
        signature = self._hmac(hashlib.new(self._digest, client_key).digest(), message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return final_bare + b",p=" + base64.b64encode(proof)

    def _on_server_final(self, challenge: bytes) -> None:
        match = _SERVER_FINAL.fullmatch(challenge)
        if match is None:
            raise self._refused("its last message is not SCRAM's")
        if not hmac.compare_digest(self._decoded(match[1]), self._server_signature):
            raise self._refused("its signature is wrong: it does not know the password and is not the broker")
        self._answer_to = self._on_more

    def _on_more(self, challenge: bytes) -> None:
        raise self._refused("it goes on after its last message")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._digest)

    def _decoded(self, text: bytes) -> bytes:
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error:
            raise self._refused("what should be Base64 is not") from None

    def _refused(self, what: str) -> SaslRefused:
        reason = f"the peer breaks the exchange: {what}"
        return SaslRefused(mechanism=self._mechanism, user=self._login.name, reason=reason)


# --- OAUTHBEARER ------------------------------------------------------------------------------------------------------

_SEPARATOR = "\x01"


class _OAuthBearer:
    """A broker that refuses the token sends the reason as a challenge. After the client answers, it sends an error
    code."""

    def __init__(self, login: TokenLogin) -> None:
        self._login = login
        self._was_refused = False

    def respond(self, challenge: bytes | None) -> bytes | None:
        if challenge is None:
            pairs = [("auth", f"Bearer {self._login.secret}"), *self._login.extensions]
            said = "".join(f"{key}={value}{_SEPARATOR}" for key, value in pairs)
            return f"n,,{_SEPARATOR}{said}{_SEPARATOR}".encode()
        if self._was_refused:
            reason = "the peer breaks the exchange: it goes on after it has refused the token"
            raise SaslRefused(mechanism="OAUTHBEARER", user=self._login.name, reason=reason)
        self._was_refused = bool(challenge)
        return _SEPARATOR.encode() if challenge else None


# --- GSSAPI -----------------------------------------------------------------------------------------------------------

NO_ANSWER_OF_KDC = "the KDC did not answer in time"
# A broker's tokens have 100 to 200 bytes, an error about 500.
MAX_TOKEN_BYTES = 64 * 1024
# Kerberos takes two, with DCE style three.
MAX_STEPS = 5
_OFFER_BYTES = 4
_NO_LAYER = 1
# Layer, then the largest message that the client can read under a layer. No authorization identity follows: it is the
# principal of the ticket, as Kafka's authorizers expect.
_CHOICE = bytes([_NO_LAYER, 0, 0, 0])


class Gssapi:
    """First token -> the broker's token -> ... -> (empty) -> the offer of layers -> the choice -> nothing more."""

    def __init__(self, login: KerberosLogin) -> None:
        self._login = login
        self._steps = 0
        self._is_established = False
        self._has_chosen = False

    def respond(self, challenge: bytes | None) -> Callable[[], bytes] | None:
        received = challenge or b""
        if len(received) > MAX_TOKEN_BYTES:
            raise self._refused(f"it sends a token of {len(received)} bytes")
        if self._has_chosen:
            if received:
                raise self._refused("it goes on after its last message")
            return None
        if self._is_established:
            return lambda: self._choice(received)
        if challenge is not None and not received:
            raise self._refused("it sends no token before the exchange is complete")
        if self._steps == MAX_STEPS:
            raise self._refused(f"the exchange is not complete after {MAX_STEPS} tokens")
        self._steps += 1
        return lambda: self._token(received)

    def _token(self, received: bytes) -> bytes:
        token, self._is_established = self._login.context.step(received)
        if not token and not self._is_established:
            raise self._refused("the exchange is not complete, and no token is left to send")
        return token

    def _choice(self, received: bytes) -> bytes:
        if not received:
            raise self._refused("it sends no offer of security layers")
        offer = self._login.context.unwrap(received)
        if len(offer) != _OFFER_BYTES:
            raise self._refused(f"its offer of security layers has {len(offer)} bytes")
        if not offer[0] & _NO_LAYER:
            raise self._refused(
                "it requires integrity or confidentiality by SASL, which Kafka's clients do not have: use SASL_SSL"
            )
        chosen = self._login.context.wrap(_CHOICE)
        self._has_chosen = True
        return chosen

    def _refused(self, what: str) -> SaslRefused:
        reason = f"the peer breaks the exchange: {what}"
        return SaslRefused(mechanism="GSSAPI", user=self._login.name, reason=reason)


# --- the table --------------------------------------------------------------------------------------------------------

# `nonce` returns printable ASCII without commas, unpredictable and different each time.
MECHANISMS: Mapping[str, Callable[[Any, Nonce], Exchange]] = {
    "PLAIN": lambda login, nonce: _Plain(login),
    "SCRAM-SHA-256": lambda login, nonce: _Scram("SCRAM-SHA-256", "sha256", login, nonce),
    "SCRAM-SHA-512": lambda login, nonce: _Scram("SCRAM-SHA-512", "sha512", login, nonce),
    "OAUTHBEARER": lambda login, nonce: _OAuthBearer(login),
    "GSSAPI": lambda login, nonce: Gssapi(login),
    "AWS_MSK_IAM": lambda login, nonce: _OAuthBearer(login),
}
# A mechanism of the options -> its name for brokers, where both differ.
_NAME_FOR_BROKERS = {"AWS_MSK_IAM": "OAUTHBEARER"}


@dataclass(frozen=True, slots=True)
class Authentication:
    """An exchange and its login, for a connection."""

    mechanism: str
    login: Login
    exchange: Exchange

    @property
    def name_for_brokers(self) -> str:
        return _NAME_FOR_BROKERS.get(self.mechanism, self.mechanism)

    def refused(self, reason: str, remedy: str = "") -> SaslRefused:
        return SaslRefused(mechanism=self.mechanism, user=self.login.name, reason=reason, remedy=remedy)

    @property
    def too_slow(self) -> str:
        """What happened if a computation takes too long."""
        return NO_ANSWER_OF_KDC if isinstance(self.login, KerberosLogin) else TOO_SLOW

    def shown(self, text: str | None) -> str:
        """Return a broker's text as a message may show it: printable, short, and without the login's secret."""
        shown, secret = text or "", self.login.secret
        return quoted(shown.replace(secret, "...") if secret else shown, _MAX_REASON_CHARACTERS)


def authentication(mechanism: str, login: Login, nonce: Nonce) -> Authentication:
    """Begin an exchange. `mechanism` is a key of MECHANISMS."""
    return Authentication(mechanism, login, MECHANISMS[mechanism](login, nonce))

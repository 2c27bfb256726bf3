"""The SASL mechanism GSSAPI without a library: tokens of Kerberos in and out, then the offer of security layers.

    step(b"") ── token ──> broker ── token ──> step(...)      until both sides are established
    broker's offer of layers ── unwrap, "none", wrap ──> broker

A `SecurityContext` makes the tokens. It may ask a KDC and block, so each response is a computation, which runs beside
other connections. Kafka has no security layer: TLS encrypts, or nothing does.

Source: RFC 4752; org.apache.kafka.common.security.authenticator.SaslClientAuthenticator, whose SaslClient is
com.sun.security.sasl.gsskerb.GssKrb5Client.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from kafka_sink.errors import SaslRefused

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

    @property
    def secrets(self) -> tuple[str, ...]:
        return ()


class Gssapi:
    """First token -> the broker's token -> (empty) -> the offer of layers -> the choice -> nothing more."""

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

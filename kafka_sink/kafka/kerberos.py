"""Kerberos credentials of this process, from a keytab or a ticket cache, and contexts with brokers.

    kerberos = Kerberos(KerberosIdentity("kafka", keytab="/etc/app.keytab", principal="app@EXAMPLE.COM"))
    login = kerberos.login("broker-1.example")       # asks nobody; the steps of its context do, and may block

- Keytab: tickets are in a cache in this process's memory, which all its connections share. The library fetches a new
  ticket in the second half of the life of the kept one. While that fails, the kept one is used until it expires.
- Ticket cache: read anew for every connection and never written, so the ticket that `kinit` put there last is used.

Steps that may ask a KDC wait for each other, at most `TURN_S`: the first fetches the ticket for all. MIT Kerberos
before 1.20 also empties its cache for a moment when it fetches a ticket.

Every failure is a SaslRefused, which names the step: see `kerberos_failures`.

Source: MIT Kerberos, lib/gssapi/krb5/acquire_cred.c (kg_cred_time_to_refresh);
org.apache.kafka.common.security.kerberos.KerberosLogin.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from kafka_sink.errors import SaslRefused
from kafka_sink.kafka.gss_library import Context, Credential, Gss, GssError, LibraryMissing, library
from kafka_sink.kafka.kerberos_failures import (
    BUSY,
    CREDENTIALS_EXPIRED,
    NO_LIBRARY,
    Failure,
    Place,
    broker_refused,
    keytab_problem,
    read_status,
)
from kafka_sink.kafka.protocol.gssapi import KerberosLogin

T = TypeVar("T")

# Longer than the library waits for a KDC that answers.
TURN_S = 30.0


@dataclass(frozen=True, slots=True)
class KerberosIdentity:
    """Who this process is, and the first part of the brokers' principals, `service_name`.

    With `keytab`, `principal` is its owner. Else the ticket is in `ticket_cache`; None: in the system's default cache.
    """

    service_name: str
    keytab: str | None = None
    principal: str | None = None
    ticket_cache: str | None = None

    @property
    def name(self) -> str:
        return self.principal or "the owner of the ticket cache"


class Kerberos:
    def __init__(self, identity: KerberosIdentity, load: Callable[[], Gss] = library) -> None:
        self._identity = identity
        self._load = load
        self._turn = threading.Lock()
        self._memory = _new_cache()

    def login(self, host: str) -> KerberosLogin:
        """Return a login at the broker on `host`."""
        place = Place(self._identity.service_name, host, self._identity.keytab, self._identity.ticket_cache)
        return KerberosLogin(self._identity.name, _Negotiation(self, place, self._identity.name), broker_refused(place))

    def begin(self, place: Place) -> tuple[Context, bytes, bool]:
        """Return a context with a broker, its first token, and True if it is established. Asks a KDC if need be.

        Raises GssError, _Failed.
        """
        if not self._turn.acquire(timeout=TURN_S):
            raise _Failed(BUSY)
        try:
            gss = self._library()
            credential = self._credential(gss)
            context = gss.context(f"{place.service_name}@{place.host}", credential)
            return context, *context.step(b"")
        finally:
            self._turn.release()

    def _library(self) -> Gss:
        try:
            return self._load()
        except LibraryMissing:
            raise _Failed(NO_LIBRARY) from None

    def _credential(self, gss: Gss) -> Credential:
        identity = self._identity
        if identity.keytab is None:
            store = {} if identity.ticket_cache is None else {"ccache": identity.ticket_cache}
            credential = gss.credential(identity.principal, store)
            credential.check()
            return credential
        if (problem := keytab_problem(identity.keytab)) is not None:
            raise _Failed(problem)
        try:
            return self._of_keytab(gss, identity.keytab)
        except GssError as error:
            if error.major != CREDENTIALS_EXPIRED:
                raise
        # The library hides why it could not replace an expired ticket. In an empty cache it says so.
        self._memory = _new_cache()
        return self._of_keytab(gss, identity.keytab)

    def _of_keytab(self, gss: Gss, keytab: str) -> Credential:
        store = {"client_keytab": f"FILE:{keytab}", "ccache": self._memory}
        credential = gss.credential(self._identity.principal, store)
        credential.check()
        return credential


class _Failed(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__()
        self.failure = failure


class _Negotiation:
    """The SecurityContext of one connection."""

    def __init__(self, kerberos: Kerberos, place: Place, user: str) -> None:
        self._kerberos = kerberos
        self._place = place
        self._user = user
        self._context: Context | None = None

    def step(self, token: bytes) -> tuple[bytes, bool]:
        return self._told(lambda: self._begin() if self._context is None else self._context.step(token))

    def unwrap(self, message: bytes) -> bytes:
        return self._told(lambda: self._begun.unwrap(message))

    def wrap(self, message: bytes) -> bytes:
        return self._told(lambda: self._begun.wrap(message))

    def _begin(self) -> tuple[bytes, bool]:
        self._context, token, is_established = self._kerberos.begin(self._place)
        return token, is_established

    @property
    def _begun(self) -> Context:
        assert self._context is not None, "a step comes first"
        return self._context

    def _told(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except GssError as error:
            failure = read_status(error.major, error.minor, error.text, self._place)
        except _Failed as failed:
            failure = failed.failure
        raise SaslRefused(
            mechanism="GSSAPI", user=self._user, reason=failure.reason, remedy=failure.remedy, is_final=failure.is_final
        )


def _new_cache() -> str:
    return f"MEMORY:pykafka-{secrets.token_hex(8)}"

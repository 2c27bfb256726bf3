"""Kerberos credentials of this process, from a keytab or a ticket cache, and contexts with brokers.

    kerberos = Kerberos(KerberosIdentity("kafka", keytab="/etc/app.keytab", principal="app@EXAMPLE.COM"))
    login = kerberos.login("broker-1.example")       # asks nobody; the steps of its context do, and may block

- Keytab: tickets are in a cache in this process's memory, which all its connections share. The library fetches a new
  ticket in the second half of the life of the kept one. While that fails, the kept one is used until it expires.
- Ticket cache: read anew for every connection and never written, so the ticket that `kinit` put there last is used.

Steps that may ask a KDC wait for each other, at most `TURN_S`: the first fetches the ticket for all. MIT Kerberos
before 1.20 also empties its cache for a moment when it fetches a ticket.

Every failure is a SaslRefused, which names the step: see `kerberos_failures`.

Source: RFC 2744; MIT Kerberos, gssapi/gssapi_ext.h (gss_acquire_cred_from, since 1.11) and
lib/gssapi/krb5/acquire_cred.c (kg_cred_time_to_refresh); org.apache.kafka.common.security.kerberos.KerberosLogin.
"""

from __future__ import annotations

import ctypes
import functools
import secrets
import threading
import weakref
from collections.abc import Callable, Mapping
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint32, c_void_p
from dataclasses import dataclass
from typing import Any, TypeVar

from kafka_sink.errors import SaslRefused
from kafka_sink.kafka.auth.kerberos_failures import (
    BUSY,
    CREDENTIALS_EXPIRED,
    NO_LIBRARY,
    Failure,
    Place,
    broker_refused,
    keytab_problem,
    read_status,
)
from kafka_sink.kafka.protocol.sasl import KerberosLogin

# --- the functions of libgssapi_krb5 (docs/design/decisions.md, "Kerberos by the system's own library") ---------------

LIBRARY = "libgssapi_krb5.so.2"
# RFC 2744, appendix A; the first two bytes of a major status are its errors.
_ERRORS = 0xFFFF0000
_CONTINUE_NEEDED = 1
_INITIATE = 1
_MUTUAL, _REPLAY, _SEQUENCE, _INTEGRITY = 2, 4, 8, 32
FLAGS = _MUTUAL | _REPLAY | _SEQUENCE | _INTEGRITY
_BY_MAJOR, _BY_MECHANISM = 1, 2
_MAX_STATUS_TEXTS = 5
_KRB5 = bytes.fromhex("2a864886f712010202")
_HOST_BASED_SERVICE = bytes.fromhex("2a864886f71201020104")
_PRINCIPAL_NAME = bytes.fromhex("2a864886f71201020201")


class LibraryMissing(Exception):
    """The system has no libgssapi_krb5, or one that lacks a function."""


class GssError(Exception):
    """`major`: the routine error of RFC 2744 in its own bits. `minor`: Kerberos' own code, signed as in krb5.h.
    `text`: the library's words for both."""

    def __init__(self, major: int, minor: int, text: str) -> None:
        super().__init__(text)
        self.major = major
        self.minor = minor
        self.text = text


# The structures of RFC 2744 as Linux lays them out. macOS packs them differently.
class _Buffer(ctypes.Structure):
    _fields_ = (("length", c_size_t), ("value", c_void_p))


class _Oid(ctypes.Structure):
    _fields_ = (("length", c_uint32), ("elements", c_char_p))


class _OidSet(ctypes.Structure):
    _fields_ = (("count", c_size_t), ("elements", POINTER(_Oid)))


class _Pair(ctypes.Structure):
    _fields_ = (("key", c_char_p), ("value", c_char_p))


class _Pairs(ctypes.Structure):
    _fields_ = (("count", c_uint32), ("elements", POINTER(_Pair)))


def _oid(elements: bytes) -> _Oid:
    return _Oid(len(elements), elements)


_Status = POINTER(c_uint32)
_FUNCTIONS: Mapping[str, tuple[Any, ...]] = {
    "gss_import_name": (_Status, POINTER(_Buffer), POINTER(_Oid), POINTER(c_void_p)),
    "gss_release_name": (_Status, POINTER(c_void_p)),
    "gss_release_buffer": (_Status, POINTER(_Buffer)),
    "gss_acquire_cred_from": (
        _Status, c_void_p, c_uint32, POINTER(_OidSet), c_int, POINTER(_Pairs), POINTER(c_void_p), c_void_p,
        POINTER(c_uint32),
    ),
    "gss_inquire_cred": (_Status, c_void_p, POINTER(c_void_p), POINTER(c_uint32), c_void_p, c_void_p),
    "gss_release_cred": (_Status, POINTER(c_void_p)),
    "gss_init_sec_context": (
        _Status, c_void_p, POINTER(c_void_p), c_void_p, POINTER(_Oid), c_uint32, c_uint32, c_void_p, POINTER(_Buffer),
        c_void_p, POINTER(_Buffer), c_void_p, c_void_p,
    ),
    "gss_delete_sec_context": (_Status, POINTER(c_void_p), c_void_p),
    "gss_wrap": (_Status, c_void_p, c_int, c_uint32, POINTER(_Buffer), c_void_p, POINTER(_Buffer)),
    "gss_unwrap": (_Status, c_void_p, POINTER(_Buffer), POINTER(_Buffer), c_void_p, c_void_p),
    "gss_display_status": (_Status, c_uint32, c_int, POINTER(_Oid), POINTER(c_uint32), POINTER(_Buffer)),
}  # fmt: skip


@functools.cache
def library(name: str = LIBRARY) -> Gss:
    """Return the library. Raises LibraryMissing."""
    try:
        return Gss(ctypes.CDLL(name))
    except (OSError, AttributeError) as error:
        raise LibraryMissing(str(error)) from None


class Gss:
    """The functions of MIT Kerberos that a client needs.

        credential = gss.credential(principal, {"client_keytab": f"FILE:{path}", "ccache": "MEMORY:x"})
        context = gss.context("kafka@broker.example", credential)
        token, is_complete = context.step(b"")                      # and so on with the peer's tokens

    Every call may read files and ask a KDC, so it may block. ctypes releases the interpreter's lock meanwhile. A status
    that is no success raises GssError. The library frees what its objects hold when Python drops them.
    """

    def __init__(self, loaded: ctypes.CDLL) -> None:
        self._functions = {name: getattr(loaded, name) for name in _FUNCTIONS}
        for name, arguments in _FUNCTIONS.items():
            self._functions[name].argtypes = arguments
            self._functions[name].restype = c_uint32

    def credential(self, principal: str | None, store: Mapping[str, str]) -> Credential:
        """Return an initiator's credential of `principal` (None: of the one in the store).

        `store`: "ccache" and "client_keytab", as kerberos(7) names them. With a keytab the library fetches a ticket
        into the cache if the cache has none, or one in the second half of its life.
        """
        name = None if principal is None else self._name(principal, _PRINCIPAL_NAME)
        pairs = (_Pair * len(store))(*(_Pair(key.encode(), value.encode()) for key, value in store.items()))
        mechanism = _oid(_KRB5)
        mechanisms = _OidSet(1, ctypes.pointer(mechanism))
        handle = _Handle(self, "gss_release_cred")
        self.call(
            "gss_acquire_cred_from", None if name is None else name.value, 0, byref(mechanisms), _INITIATE,
            byref(_Pairs(len(store), pairs)), handle.reference, None, None,
        )  # fmt: skip
        return Credential(self, handle)

    def context(self, service: str, credential: Credential) -> Context:
        """Return a context that is not established yet, with the service `name@host`."""
        return Context(self, self._name(service, _HOST_BASED_SERVICE), credential)

    def _name(self, text: str, kind: bytes) -> _Handle:
        name = _Handle(self, "gss_release_name")
        self.call("gss_import_name", byref(_in(text.encode())), byref(_oid(kind)), name.reference)
        return name

    def call(self, function: str, *arguments: Any) -> int:
        """Return the major status. Raises GssError."""
        minor = c_uint32()
        major = int(self._functions[function](byref(minor), *arguments))
        if major & _ERRORS:
            texts = [*self._texts(major, _BY_MAJOR), *self._texts(minor.value, _BY_MECHANISM)]
            raise GssError(major & _ERRORS, ctypes.c_int32(minor.value).value, "; ".join(texts))
        return major

    def _texts(self, status: int, kind: int) -> list[str]:
        texts: list[str] = []
        more = c_uint32()
        for _ in range(_MAX_STATUS_TEXTS):
            out = _Buffer()
            minor = c_uint32()
            self._functions["gss_display_status"](
                byref(minor), status, kind, byref(_oid(_KRB5)), byref(more), byref(out)
            )
            if text := self.taken(out).decode(errors="replace"):
                texts.append(text)
            if not more.value:
                break
        return texts

    def taken(self, out: _Buffer) -> bytes:
        """Return the bytes of a buffer of the library, and free it."""
        data = ctypes.string_at(out.value, out.length) if out.value else b""
        self._functions["gss_release_buffer"](byref(c_uint32()), byref(out))
        return data

    def free(self, function: str, place: c_void_p) -> None:
        more = (None,) if function == "gss_delete_sec_context" else ()
        if place.value:
            self._functions[function](byref(c_uint32()), byref(place), *more)


class _Handle:
    """A pointer of the library, freed with this object."""

    def __init__(self, gss: Gss, release: str) -> None:
        self._place = c_void_p()
        self.reference = byref(self._place)
        weakref.finalize(self, gss.free, release, self._place).atexit = False

    @property
    def value(self) -> int | None:
        return self._place.value


class Credential:
    def __init__(self, gss: Gss, handle: _Handle) -> None:
        self._gss = gss
        self.handle = handle

    def check(self) -> None:
        """Raise GssError if there is no ticket, or if it has expired."""
        self._gss.call("gss_inquire_cred", self.handle.value, None, None, None, None)


class Context:
    def __init__(self, gss: Gss, target: _Handle, credential: Credential) -> None:
        self._gss = gss
        self._target = target
        # Kept: the library's context refers to it.
        self._credential = credential
        self._handle = _Handle(gss, "gss_delete_sec_context")

    def step(self, token: bytes) -> tuple[bytes, bool]:
        """Return the token to send (empty: none), and True if the context is established."""
        out = _Buffer()
        try:
            major = self._gss.call(
                "gss_init_sec_context", self._credential.handle.value, self._handle.reference, self._target.value,
                byref(_oid(_KRB5)), FLAGS, 0, None, byref(_in(token)), None, byref(out), None, None,
            )  # fmt: skip
        except GssError:
            self._gss.taken(out)
            raise
        return self._gss.taken(out), not major & _CONTINUE_NEEDED

    def wrap(self, message: bytes) -> bytes:
        out = _Buffer()
        self._gss.call("gss_wrap", self._handle.value, 0, 0, byref(_in(message)), None, byref(out))
        return self._gss.taken(out)

    def unwrap(self, message: bytes) -> bytes:
        out = _Buffer()
        self._gss.call("gss_unwrap", self._handle.value, byref(_in(message)), byref(out), None, None)
        return self._gss.taken(out)


def _in(data: bytes) -> _Buffer:
    """Return a buffer of the caller, which keeps `data` alive."""
    buffer = _Buffer(len(data), ctypes.cast(c_char_p(data), c_void_p))
    buffer.kept = data
    return buffer


# --- the credentials of this process ----------------------------------------------------------------------------------

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
            try:
                gss = self._load()
            except LibraryMissing:
                raise _Failed(NO_LIBRARY) from None
            credential = self._credential(gss)
            context = gss.context(f"{place.service_name}@{place.host}", credential)
            return context, *context.step(b"")
        finally:
            self._turn.release()

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
        return self._run(lambda: self._begin() if self._context is None else self._context.step(token))

    def unwrap(self, message: bytes) -> bytes:
        return self._run(lambda: self._established.unwrap(message))

    def wrap(self, message: bytes) -> bytes:
        return self._run(lambda: self._established.wrap(message))

    def _begin(self) -> tuple[bytes, bool]:
        self._context, token, is_established = self._kerberos.begin(self._place)
        return token, is_established

    @property
    def _established(self) -> Context:
        assert self._context is not None, "a step comes first"
        return self._context

    def _run(self, call: Callable[[], T]) -> T:
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

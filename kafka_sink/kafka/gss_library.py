"""The functions of the system's `libgssapi_krb5` (MIT Kerberos) that a client needs, called by ctypes.

    gss = library()                                             # raises LibraryMissing
    credential = gss.credential(principal, keytab=path, ticket_cache="MEMORY:x")
    context = gss.context("kafka@broker.example", credential)
    token, is_complete = context.step(b"")                      # and so on with the peer's tokens

Every call may read files and ask a KDC, so it may block. ctypes releases the interpreter's lock meanwhile. A status
that is no success raises GssError. The library frees what its objects hold when Python drops them.

The structures are those of RFC 2744 as Linux lays them out. macOS packs them differently. Why ctypes:
docs/design/decisions.md, "Kerberos by the system's own library".

Source: RFC 2744; gssapi/gssapi_ext.h of MIT Kerberos (gss_acquire_cred_from, since 1.11).
"""

from __future__ import annotations

import ctypes
import functools
import weakref
from collections.abc import Mapping
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint32, c_void_p
from typing import Any

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

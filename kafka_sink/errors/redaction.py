"""Removes secrets from a user's values. Messages go into Spark's event log, and users put secrets into wrong options.

    redacted("s3://AKIA:hunter2@bucket/receipts?region=eu")      s3://***@bucket/receipts?***
    redacted("alice:hunter2@kafka-1:9092")                       ***@kafka-1:9092
    redacted("-----BEGIN PRIVATE KEY-----...")                   ***

A value without a sign of a secret is shown unchanged: a bare word could be anything. In doubt too much is hidden,
because the message also has the option's name. The time is linear in the length of the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

from kafka_sink.errors.quoting import quoted

HIDDEN = "***"
# A longer text tells a reader nothing more.
MAX_CHARACTERS = 500

# PEM, a JWT, HTTP credentials.
_OPAQUE = re.compile(r"-----BEGIN|\beyJ[A-Za-z0-9_-]{8}|\b(?:basic|bearer)\s+\S", re.IGNORECASE)
# Base64 without its PEM lines. A hexadecimal hash, which may be in file names, has letters of one case only.
_RUN = re.compile(r"[A-Za-z0-9+=_-]{40,}")
_MIXED = (re.compile("[a-z]"), re.compile("[A-Z]"), re.compile("[0-9]"))
_PLAIN_USER = re.compile(r"[\w.+-]+@[\w.-]+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_AFTER_PATH = re.compile("[?#]")
# `password="..."`, `"password": "..."`, and all text after it, because a value may contain blanks and quotes.
_NAMED = re.compile(
    r"((?:pass|pwd|secret|token|credential|key|signature|sig|jaas|auth)[\w.-]{0,80}(?:\s?=|\"?\s?:[\s\"'])).*",
    re.DOTALL | re.IGNORECASE,
)
# A text in the position of a port that is no port: `user:password` without the rest. IPv6 is excluded.
_NO_PORT = re.compile(r"(\[[0-9A-Fa-f:.%\w]*\])|:(?!//|\d*(?:[,;/\s]|$))[^,/]*")
# A date and a time, whole: its colons are before no port.
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?(?:Z|[+-][0-9:]{4,5})?"
)


def redacted(text: str) -> str:
    """Return `text` without parts that look like a secret, and at most a few lines long."""
    if _TIME.fullmatch(text):
        return text
    runs = (run[0] for run in _RUN.finditer(text))
    if _OPAQUE.search(text) or any(all(kind.search(run) for kind in _MIXED) for run in runs):
        return HIDDEN
    if not _PLAIN_USER.fullmatch(text):
        head, at, rest = text.rpartition("@")
        scheme = _SCHEME.match(head.strip())
        # Split at the last @, because a password may contain an unescaped @.
        text = f"{scheme[0] if scheme else ''}{HIDDEN}@{rest}" if at else text
    if "://" in text and _AFTER_PATH.search(text):
        text = f"{_AFTER_PATH.split(text, maxsplit=1)[0]}?{HIDDEN}"
    text = _NAMED.sub(rf"\1{HIDDEN}", text)
    text = _NO_PORT.sub(lambda found: found[1] or f":{HIDDEN}", text)
    if len(text) <= MAX_CHARACTERS:
        return text
    tail = f"... ({len(text)} characters)"
    return text[: MAX_CHARACTERS - len(tail)] + tail


def reason_for(value: str, error: BaseException) -> str:
    """Return the first line of another library's error about `value`. The error may quote `value`. So if `value` has
    something to hide, return only the error's type."""
    if redacted(value) != value:
        return type(error).__name__
    return quoted(redacted(str(error).partition("\n")[0].rstrip(".")))


@dataclass(frozen=True, slots=True)
class Secret:
    """Hides its value in messages and logs. Code must read `value` explicitly."""

    value: Any

    def __repr__(self) -> str:
        return "Secret(...)"


class Discreet:
    """A base of dataclasses with `repr=False`: their repr shows texts redacted."""

    __slots__ = ()

    def __repr__(self) -> str:
        shown = ((each.name, getattr(self, each.name)) for each in fields(self) if each.repr)  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(f'{name}={_shown(value)}' for name, value in shown)})"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))})"
    return repr(redacted(value)) if isinstance(value, str) else repr(value)


def shown_user(mechanism: str, user: str) -> str:
    """Return a user's name as messages show it. A Kerberos principal (`app/host@REALM`) would look like a password."""
    return user if mechanism == "GSSAPI" else redacted(user)

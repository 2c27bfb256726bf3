"""What may be shown of a value of a user: messages go into Spark's event log, and secrets get into wrong options.

    redacted("s3://AKIA:hunter2@bucket/receipts?region=eu")      s3://***@bucket/receipts?***
    redacted("alice:hunter2@kafka-1:9092")                       ***@kafka-1:9092
    redacted("-----BEGIN PRIVATE KEY-----...")                   ***

A value without such a sign is shown as it is: a bare word could be anything. Where in doubt more is hidden, as the
option's name is in the message too. Takes time in proportion to the text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

from kafka_sink.text.quoting import quoted

HIDDEN = "***"
# What is longer tells a reader nothing more.
MAX_CHARACTERS = 500

# PEM, a JWT, what HTTP calls credentials.
_OPAQUE = re.compile(r"-----BEGIN|\beyJ[A-Za-z0-9_-]{8}|\b(?:basic|bearer)\s+\S", re.IGNORECASE)
# Base64 without its PEM lines. A hash in hexadecimal, which names files, has letters of one case only.
_RUN = re.compile(r"[A-Za-z0-9+=_-]{40,}")
_MIXED = (re.compile("[a-z]"), re.compile("[A-Z]"), re.compile("[0-9]"))
_PLAIN_USER = re.compile(r"[\w.+-]+@[\w.-]+")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_AFTER_PATH = re.compile("[?#]")
# `password="..."`, `"password": "..."`, and all that follows: a value may have blanks and quotes of its own.
_NAMED = re.compile(
    r"((?:pass|pwd|secret|token|credential|key|signature|sig|jaas|auth)[\w.-]{0,80}(?:\s?=|\"?\s?:[\s\"'])).*",
    re.DOTALL | re.IGNORECASE,
)
# What stands where a port is to be and is none: `user:password`, of which the rest was forgotten. Not of IPv6.
_NO_PORT = re.compile(r"(\[[0-9A-Fa-f:.%\w]*\])|:(?!//|\d*(?:[,;/\s]|$))[^,/]*")


def redacted(text: str) -> str:
    """`text` without what looks like a secret, and not longer than a few lines."""
    runs = (run[0] for run in _RUN.finditer(text))
    if _OPAQUE.search(text) or any(all(kind.search(run) for kind in _MIXED) for run in runs):
        return HIDDEN
    if not _PLAIN_USER.fullmatch(text):
        head, at, rest = text.rpartition("@")
        scheme = _SCHEME.match(head.strip())
        # By the last @, as a password may have one that nobody escaped.
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
    """The first line of what another library says of `value`: it may quote it, or a part of it, so that of a value with
    something to hide only the error's kind is told."""
    if redacted(value) != value:
        return type(error).__name__
    return quoted(redacted(str(error).partition("\n")[0].rstrip(".")))


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that shows itself to nobody who does not ask for it by name."""

    value: Any

    def __repr__(self) -> str:
        return "Secret(...)"


class Discreet:
    """Of dataclasses with `repr=False`: their texts are shown redacted."""

    __slots__ = ()

    def __repr__(self) -> str:
        shown = ((each.name, getattr(self, each.name)) for each in fields(self) if each.repr)  # type: ignore[arg-type]
        return f"{type(self).__name__}({', '.join(f'{name}={_shown(value)}' for name, value in shown)})"


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_shown, value))})"
    return repr(redacted(value)) if isinstance(value, str) else repr(value)

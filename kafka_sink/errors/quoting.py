"""Makes foreign text safe to show: text from a peer in a message, and text that a user pastes into a shell.

A peer is the other end of a connection: a broker, a registry, a token endpoint, or another program whose names Kafka
lists. Control characters in its text could move a terminal's cursor, add lines to a log, or reverse text (U+202E).

Pure; imports no other module of the package.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping

# The longest text of a peer in a message. More would only fill a log.
MAX_QUOTED_CHARACTERS = 1_000
MAX_HOST_CHARACTERS = 255
MAX_TAIL_LINES = 30
_CUT = "... (cut)"


def quoted(text: str, most: int = MAX_QUOTED_CHARACTERS) -> str:
    """Return `text` in one line of printable characters, at most `most` long. Other characters become Python
    escapes."""
    shown = escaped(text[:most])
    if len(text) <= most and len(shown) <= most:
        return shown
    return shown[: most - len(_CUT)] + _CUT


def escaped(text: str) -> str:
    """As `quoted`, for any length."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def quoted_tail(text: str) -> str:
    """Return the last lines of a program's output, each as `quoted`."""
    return "\n".join(quoted(line) for line in text.split("\n")[-MAX_TAIL_LINES:])


def json_line(value: object) -> str:
    """Return JSON in one printable line. Parsing it gives the same value."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def several(words: Iterable[object], most: int = 8) -> str:
    """Return the first words, as in `1, 2 and 3 more`."""
    every = list(map(str, words))
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def shell_command(program: str, options: Mapping[str, str | None]) -> str:
    """Return a command to paste: `program`, then each option with its value (None: no value), quoted for a shell."""
    return " ".join((program, *(name if value is None else _option(name, value) for name, value in options.items())))


def _option(name: str, value: str) -> str:
    word = shlex.quote(escaped(value))
    # Otherwise a value that begins with a dash would be taken for an option.
    return f"{name}={word}" if value.startswith("-") else f"{name} {word}"


# --- topic names (org.apache.kafka.common.internals.Topic) ------------------------------------------------------------

LONGEST = 249
_LEGAL = re.compile(rf"[a-zA-Z0-9._-]{{1,{LONGEST}}}")
# The most bytes of a character in UTF-8.
_CHARACTER_BYTES = 4


def is_topic_name(name: str) -> bool:
    return _LEGAL.fullmatch(name) is not None and name not in (".", "..")


def shown(name: bytes) -> str:
    """Return the first characters of an alleged name. Bytes that are not UTF-8 become escapes (`\\xfd`)."""
    return name[: LONGEST * _CHARACTER_BYTES].decode("utf-8", "backslashreplace")[:LONGEST]

"""Text of others in text of ours: what a peer says in a message, and what a user pastes into a shell.

A peer is whoever is at the other end: a broker, a registry, a token endpoint, another program whose names Kafka lists.
Control characters of theirs would move a terminal's cursor, add lines to a log, or turn text round (U+202E).

Pure, and beneath everything.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping

# Of what a peer says; the rest would only fill a log.
MAX_QUOTED_CHARACTERS = 1_000
MAX_HOST_CHARACTERS = 255
MAX_TAIL_LINES = 30
_CUT = "... (cut)"


def quoted(text: str, most: int = MAX_QUOTED_CHARACTERS) -> str:
    """`text` in one line that prints as it reads: of what does not print the escape, as Python writes it, and at most
    `most` characters."""
    shown = escaped(text[:most])
    if len(text) <= most and len(shown) <= most:
        return shown
    return shown[: most - len(_CUT)] + _CUT


def escaped(text: str) -> str:
    """As `quoted`, of any length."""
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def quoted_tail(text: str) -> str:
    """The last lines of a program's output, each as `quoted`."""
    return "\n".join(quoted(line) for line in text.split("\n")[-MAX_TAIL_LINES:])


def json_line(value: object) -> str:
    """JSON in one line that prints, and that is the same value when it is read."""
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def shell_command(program: str, options: Mapping[str, str | None]) -> str:
    """What a user pastes: `program`, then each option with its value (None: it has none), quoted for a shell."""
    return " ".join((program, *(name if value is None else _option(name, value) for name, value in options.items())))


def _option(name: str, value: str) -> str:
    word = shlex.quote(escaped(value))
    # What begins with a dash would be taken for an option itself.
    return f"{name}={word}" if value.startswith("-") else f"{name} {word}"

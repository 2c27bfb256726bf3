"""Text of others in text of ours: what a peer says in a message, and what a user pastes into a shell.

A peer is whoever is at the other end: a broker, a registry, a token endpoint, another program whose names Kafka lists.
Control characters of theirs would move a terminal's cursor, add lines to a log, or turn text round (U+202E).

Pure, and beneath everything.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

# Of what a peer says; the rest would only fill a log.
MAX_QUOTED_CHARACTERS = 1_000


def quoted(text: str, most: int = MAX_QUOTED_CHARACTERS) -> str:
    """`text` in one line that prints as it reads: of what does not print the escape, as Python writes it, and at most
    `most` characters."""
    escaped = _escaped(text[:most])
    if len(text) <= most and len(escaped) <= most:
        return escaped
    cut = f"... ({len(text)} characters)"
    return escaped[: most - len(cut)] + cut


def _escaped(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def shell_command(program: str, options: Mapping[str, str | None]) -> str:
    """What a user pastes: `program`, then each option with its value (None: it has none), quoted for a shell."""
    return " ".join((program, *(name if value is None else _option(name, value) for name, value in options.items())))


def _option(name: str, value: str) -> str:
    word = shlex.quote(quoted(value, len(value) * len(r"\U0010ffff")))
    # What begins with a dash would be taken for an option itself.
    return f"{name}={word}" if value.startswith("-") else f"{name} {word}"

"""One option, and what a table of options says of a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_sink.errors import InvalidOption, RefusedOption, UnknownOption
from kafka_sink.kafka.jaas import JaasProblem
from kafka_sink.options.kinds import Kind, Problem
from kafka_sink.text.redaction import Secret, redacted

REQUIRED = object()


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    `default` is the parsed value, `REQUIRED`, or None for "not set". `field` is None for an option that is checked and
    has no effect. With `redact` the value becomes a `Secret`.
    """

    name: str
    field: str | None
    kind: Kind
    default: Any
    doc: str
    redact: bool = False

    def read(self, text: str, *, prefix: str = "") -> Any:
        """Return the value of `text`. Messages put `prefix` before the option's name. Raises InvalidOption."""
        try:
            value = self.kind.read(text if self.kind.keeps_spaces else text.strip())
        except ValueError as failure:
            is_told = isinstance(failure, JaasProblem if self.redact else JaasProblem | Problem)
            detail = str(failure) if is_told else ""
        else:
            return Secret(value) if self.redact else value
        # Raised outside the except block: the ValueError contains the text, and must not become `__context__`.
        raise self.invalid(text, f"{self.kind.values} ({detail})" if detail else self.kind.values, prefix=prefix)

    def invalid(self, text: str, expected: str, *, prefix: str = "") -> InvalidOption:
        # The error redacts too, but it cuts a long text first. A cut text may hide a secret from the redaction.
        value = None if self.redact else redacted(text)
        return InvalidOption(option=prefix + self.name, value=value, expected=expected)


@dataclass(frozen=True, slots=True)
class Section:
    """Options that belong together, and the text that explains all of them (Markdown)."""

    title: str
    text: str
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class OptionTable:
    """All names that a write, or a read, may meet.

    `sparks`: names of Spark's own, which are ignored. `refused` and `refused_prefixes`: names, or their starts, that
    cannot work, with what to do instead. `not_yet_prefixes`: this version does not support them yet.
    """

    sections: tuple[Section, ...]
    sparks: tuple[str, ...]
    refused: Mapping[str, str]
    refused_prefixes: Mapping[str, str]
    not_yet_prefixes: tuple[str, ...]
    by_key: dict[str, Option] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_key", {option.name.lower(): option for option in self.options})

    @property
    def options(self) -> tuple[Option, ...]:
        return tuple(option for section in self.sections for option in section.options)

    def named(self, key: str, *, prefix: str = "") -> Option | None:
        """Return the option named `key` (case-insensitive), or None for a key of Spark. Messages put `prefix` first.

        Raises UnknownOption with the nearest known names, or RefusedOption with the alternative.
        """
        folded = key.lower()
        if folded in self.by_key:
            return self.by_key[folded]
        if not prefix and folded in (name.lower() for name in self.sparks):
            return None
        for name, instead in self.refused.items():
            if folded == name.lower():
                raise RefusedOption(option=prefix + name, instead=instead)
        for start, instead in self.refused_prefixes.items():
            if folded.startswith(start):
                raise RefusedOption(option=prefix + key, instead=instead)
        if folded.startswith(self.not_yet_prefixes):
            raise RefusedOption(option=prefix + key, instead="this version does not support it yet.")
        raise UnknownOption(option=prefix + key, nearest=[prefix + name for name in self._nearest(folded)])

    def _nearest(self, folded: str) -> list[str]:
        """Return up to two known names that are similar to `folded`, else similar to it with or without `kafka.`."""
        import difflib  # for an unknown option only

        for attempt in (folded, f"kafka.{folded}", folded.removeprefix("kafka.")):
            near = difflib.get_close_matches(attempt, self.by_key, n=2, cutoff=0.75)
            if near:
                return [self.by_key[match].name for match in near]
        return []

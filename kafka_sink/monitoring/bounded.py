"""How many names there may be of what users name: topics, queries, sinks. The others are counted together.

A stream may name a new topic in each row. Each name is a time series in Prometheus, and memory in the driver.
"""

from __future__ import annotations

from collections.abc import Container, Sized
from typing import Protocol

MOST_NAMED = 100
# No topic can be named so.
OTHER = "(other)"


class Named(Sized, Container[str], Protocol):
    """Names that have been counted."""


def counted_as(name: str, known: Named) -> str:
    """`name`, or OTHER where it is new and as many as there may be are known."""
    return name if name in known or len(known) < MOST_NAMED else OTHER


class Names:
    """The names that came first."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def __call__(self, name: str) -> str:
        """What it is counted as."""
        named = counted_as(name, self._known)
        if named is not OTHER:
            self._known.add(named)
        return named

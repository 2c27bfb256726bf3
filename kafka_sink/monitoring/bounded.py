"""Limits the number of names (topics, queries, sinks) that are counted separately. The others are counted together.

A stream may name a new topic in each row. Each name is a time series in Prometheus, and memory in the driver.
"""

from __future__ import annotations

from collections.abc import Container, Sized
from typing import Protocol

from kafka_sink.text.quoting import quoted

MOST_NAMED = 100
# This is not a valid topic name.
OTHER = "(other)"


class Named(Sized, Container[str], Protocol):
    """Names that have been counted."""


def counted_as(name: str, known: Named) -> str:
    """Return `name`, or OTHER if `name` is new and MOST_NAMED names are known."""
    return name if name in known or len(known) < MOST_NAMED else OTHER


class Names:
    """Keeps the first MOST_NAMED names."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    def __call__(self, name: str) -> str:
        """Return the name under which `name` is counted: in one printable line."""
        named = counted_as(quoted(name), self._known)
        if named is not OTHER:
            self._known.add(named)
        return named

"""A token callable with the registration that it came with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RegisteredToken:
    """The user's token callable, of one registration.

    A process keeps tokens and connections by their configuration. A callable that looks up the current user is the
    same bytes for each user, so the `key` tells the registrations apart.
    """

    key: str
    call: Callable[[], tuple[str, float]] = field(repr=False)

    def __call__(self) -> tuple[str, float]:
        return self.call()

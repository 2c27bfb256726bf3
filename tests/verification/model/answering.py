"""What the APIs of a broker have in common: how a request is answered, and what a test wants refused.

Source: RequestHandlerHelper in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from kio.schema.errors import ErrorCode

from model.connection import Connection
from model.wire import Request

Handlers = Mapping[int, Callable[[Connection, Request], None]]


class Answering(Protocol):
    """A Broker, to its APIs."""

    def answer(self, connection: Connection, request: Request, entity: str, **fields: Any) -> None:
        """Now or later. `entity`: kio's name of the answer; `fields`: of its newest version."""

    def leave_unanswered(self, connection: Connection, is_failed: bool) -> None:
        """The only thing a client can be told then is that its connection ends."""

    def next_refusal(self, api_key: int) -> ErrorCode:
        """NONE, unless a test wants the next request of this API answered with a code and not executed."""

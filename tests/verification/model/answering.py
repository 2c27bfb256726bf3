"""The common part of a broker's APIs: answers to requests, and refusals that a test asks for.

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
        """Answer now or later. `entity`: kio's name of the answer. `fields`: the fields of its newest version."""

    def leave_unanswered(self, connection: Connection, is_failed: bool) -> None:
        """Send no answer. A client can then learn of a failure only by the end of its connection."""

    def next_refusal(self, api_key: int) -> ErrorCode:
        """Return the code that a test set for the API's next request, else NONE. With a code the request is not run."""

    def next_withheld(self) -> bool:
        """Return True if the next Fetch is to be answered as by a broker whose remote storage is slow."""

    def max_fetch_bytes(self) -> int:
        """The most bytes of a Fetch that are not over the quota."""

    def address_of(self, node_id: int) -> tuple[str, int]:
        """The host and the port of a broker."""

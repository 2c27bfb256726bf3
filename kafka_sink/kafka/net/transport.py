"""What NetworkClient needs from a network: numbered connections, bytes in both directions, and one call that waits.

`Selector` implements this with sockets, and a simulation implements it with virtual time. A number identifies one
connection and is never reused. So an event of a closed connection cannot be mistaken for one of its successor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

Buffer = bytes | memoryview


class Address(NamedTuple):
    """A resolved address. `family` is as in the socket module, `sockaddr` is an argument of `socket.connect`. `host` is
    the name that was resolved; a certificate must be valid for it."""

    family: int
    sockaddr: tuple[Any, ...]
    host: str = ""

    def __str__(self) -> str:
        host, port = self.sockaddr[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(frozen=True, slots=True)
class Connected:
    key: int


@dataclass(frozen=True, slots=True)
class Sent:
    """The connection's oldest unsent `send` is now completely written."""

    key: int


@dataclass(frozen=True, slots=True)
class Received:
    key: int
    data: bytes


@dataclass(frozen=True, slots=True)
class TlsFailure:
    """The step at which TLS failed, and what to change. `final`: another attempt will fail in the same way."""

    step: str
    advice: str
    final: bool


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection has ended, or the attempt to connect. Its buffers are released.

    `tls`: the TLS error, if that is the reason.
    `lacks`: the errno, if the process had no free file or memory.
    """

    key: int
    reason: str
    tls: TlsFailure | None = None
    lacks: int | None = None


Event = Connected | Sent | Received | Disconnected


class Transport(Protocol):
    """Only `wakeup` may be called from another thread. A network error is an event, never an exception."""

    def connect(self, key: int, address: Address) -> None:
        """Begin to connect, with a TLS handshake if configured. The result is Connected, once the peer is verified, or
        Disconnected."""

    def send(self, key: int, buffers: Sequence[Buffer], *, tell_at_once: bool = True) -> None:
        """Queue `buffers` after those already queued. They must not change until Sent or Disconnected.

        If `tell_at_once` is False, Sent does not end a poll: it is returned together with the next event. Does nothing
        if the connection has ended; Disconnected reports that.
        """

    def poll(self, timeout_ms: int) -> list[Event]:
        """Do what is due. Return after an event, after `wakeup`, or after `timeout_ms`."""

    def close(self, key: int) -> None:
        """End a connection at once. No event of it follows. Does nothing if it has already ended."""

    def wakeup(self) -> None:
        """End the current poll, or the next one, early."""

    def close_all(self) -> None:
        """End every connection and the transport itself."""

"""What NetworkClient needs of a network: connections by number, bytes both ways, one place to wait.

`Selector` is this over sockets; a simulation is this over virtual time. A number names one connection and is never
used again, so that news of a connection closed meanwhile cannot be taken for news of its successor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

Buffer = bytes | memoryview


class Address(NamedTuple):
    """A resolved address: `family` as of the socket module, `sockaddr` as `socket.connect` takes it. `host`: the name
    that it is an address of, which a certificate must be for."""

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
    """The oldest `send` of the connection that was not yet wholly written now is."""

    key: int


@dataclass(frozen=True, slots=True)
class Received:
    key: int
    data: bytes


@dataclass(frozen=True, slots=True)
class TlsFailure:
    """At which step TLS failed and what to change. `final`: another attempt will end in the same way."""

    step: str
    advice: str
    final: bool


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection is gone and its buffers are let go of; also the end of an attempt to connect. `tls`: what of it
    failed, where that is why. `lacks`: the errno, where the process had no file or memory left for it."""

    key: int
    reason: str
    tls: TlsFailure | None = None
    lacks: int | None = None


Event = Connected | Sent | Received | Disconnected


class Transport(Protocol):
    """Only `wakeup` may be called from another thread. Trouble with the network is an event, never an exception."""

    def connect(self, key: int, address: Address) -> None:
        """Begins to connect, and where that is asked for, a TLS handshake. Connected, once the peer is verified, or
        Disconnected will tell."""

    def send(self, key: int, buffers: Sequence[Buffer], *, tell_at_once: bool = True) -> None:
        """Queues `buffers` behind what is queued already. They must not change until Sent, or the end. Unless that is
        to be told at once, it ends no poll: it is told with what happens next.

        Nothing happens if the connection has ended, as Disconnected will tell or has told.
        """

    def poll(self, timeout_ms: int) -> list[Event]:
        """Waits until something happened, `wakeup` was called or the time is over; does what is due."""

    def close(self, key: int) -> None:
        """Ends a connection at once. No event of it follows. Nothing happens if it has ended already."""

    def wakeup(self) -> None:
        """Ends the current poll, or the next one, early."""

    def close_all(self) -> None:
        """Ends every connection and the transport itself."""

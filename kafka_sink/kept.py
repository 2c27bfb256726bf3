"""What a worker process keeps from one write to the next: a few connected clients, one a configuration.

    kept = Kept()
    client = kept.take(config)      # nobody else has it then; None: there is none
    kept.put(client)

At most MOST of a kind are kept, and none that was idle for `connections.max.idle.ms`. Who is pushed out is closed.
"""

from __future__ import annotations

import os
import threading
from typing import Generic, Protocol, TypeVar

from kafka_sink.clock import monotonic_ms
from kafka_sink.config import ProducerConfig

# A micro-batch writes with one configuration; foreachBatch may write with a few in turn.
MOST = 4

_Key = tuple[int, ProducerConfig]


class Client(Protocol):
    used_at_ms: int

    @property
    def config(self) -> ProducerConfig: ...
    def close(self) -> None: ...


T = TypeVar("T", bound=Client)


class Kept(Generic[T]):
    """Thread-safe. The process id is part of the key: a forked child inherits what its parent keeps, but not the
    parent's threads, and must not write to its sockets."""

    def __init__(self) -> None:
        # The one that was used last is at the end.
        self._clients: dict[_Key, T] = {}
        self._lock = threading.Lock()

    def take(self, config: ProducerConfig) -> T | None:
        with self._lock:
            idle = [self._clients.pop(key) for key in self._own() if _is_idle(self._clients[key])]
            found = self._clients.pop((os.getpid(), config), None)
        _close(idle)
        return found

    def put(self, client: T) -> None:
        """It is used last, and replaces one of its configuration that was put meanwhile."""
        key = os.getpid(), client.config
        client.used_at_ms = monotonic_ms()
        with self._lock:
            surplus = [self._clients.pop(key)] if key in self._clients else []
            self._clients[key] = client
            surplus += [self._clients.pop(oldest) for oldest in self._own()[:-MOST]]
        _close(surplus)

    def close(self) -> None:
        """Closes what this process keeps."""
        with self._lock:
            clients = [self._clients.pop(key) for key in self._own()]
        _close(clients)

    def _own(self) -> list[_Key]:
        return [key for key in self._clients if key[0] == os.getpid()]


def _is_idle(client: Client) -> bool:
    return monotonic_ms() - client.used_at_ms > client.config.connections_max_idle_ms


def _close(clients: list[T]) -> None:
    for client in clients:
        client.close()

"""The connected clients that a worker process keeps from one write to the next.

    with lease_producer(config) as producer:        # a kept client that is not in use, or a new client
        ...                                         # kept again afterwards, unless this raised

The process keeps one client for each kind and configuration, and at most MOST of a kind. It closes surplus clients, and
clients that were idle for `connections.max.idle.ms`.

A new client must know if an earlier one was answered (`waits.Outage`). Spark plans each batch and each write in a
process of its own, and gives tasks to new processes. So a process whose client was answered leaves an empty file in
Spark's folder for blocks.
"""

from __future__ import annotations

import hashlib
import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from kafka_sink.errors import BrokersUnreachable, KafkaSinkError
from kafka_sink.errors.exhaustion import exhaustion_named
from kafka_sink.kafka.clock import monotonic_ms
from kafka_sink.kafka.config import ClientConfig, ConsumerConfig
from kafka_sink.kafka.waits import Outage
from kafka_sink.options.cautions import warn_once

if TYPE_CHECKING:
    from kafka_sink.kafka.admin.client import AdminClient
    from kafka_sink.kafka.client import Producer
    from kafka_sink.kafka.reader import Reader

# A micro-batch writes with one configuration; foreachBatch may write with a few in turn.
MOST = 4

# About as many TLS handshakes a second as a broker can do.
CONNECTIONS_PER_S = 1_000
LONGEST_RAMP_S = 5.0


class Client(Protocol):
    used_at_ms: int

    def __init__(self, config: ClientConfig, cluster_id: str | None = None) -> None:
        """`cluster_id`: the cluster that must be there; None: any cluster."""

    @property
    def config(self) -> ClientConfig: ...
    @property
    def outage(self) -> Outage: ...
    @property
    def cluster_id(self) -> str | None: ...
    def may_go_on(self, cluster_id: str | None = None) -> bool:
        """Return True if the client may be used again, in `cluster_id` unless that is None."""

    def rest(self) -> None:
        """Called when a user has finished with the client."""

    def close(self) -> None: ...


T = TypeVar("T", bound=Client)
_Key = tuple[int, type[Client], ClientConfig]


class Kept:
    """The kept clients. Thread-safe.

    The process id is part of the key: a forked child inherits the clients without the parent's threads, and must not
    write to the parent's sockets.
    """

    def __init__(self) -> None:
        # Ordered by last use, with the most recent client at the end.
        self._clients: dict[_Key, Client] = {}
        # The bootstrap servers of clients that were answered in this process.
        self.answered: set[str] = set()
        self._lock = threading.Lock()

    def take(self, kind: type[T], config: ClientConfig) -> T | None:
        with self._lock:
            idle = [self._clients.pop(key) for key in self._own() if _is_idle(self._clients[key])]
            found = self._clients.pop((os.getpid(), kind, config), None)
        _close(idle)
        return cast(T | None, found)

    def put(self, client: Client) -> None:
        """Keep the client as the most recent one. Close the kept client of the same configuration, and surplus ones."""
        key = os.getpid(), type(client), client.config
        client.used_at_ms = monotonic_ms()
        with self._lock:
            surplus = [self._clients.pop(key)] if key in self._clients else []
            self._clients[key] = client
            surplus += [self._clients.pop(oldest) for oldest in self._own(type(client))[:-MOST]]
        _close(surplus)

    def close(self) -> None:
        """Close all clients that this process keeps."""
        with self._lock:
            clients = [self._clients.pop(key) for key in self._own()]
        _close(clients)

    def _own(self, kind: type[Client] | None = None) -> list[_Key]:
        return [key for key in self._clients if key[0] == os.getpid() and kind in (None, key[1])]


def _is_idle(client: Client) -> bool:
    return monotonic_ms() - client.used_at_ms > client.config.connections_max_idle_ms


def _close(clients: list[Client]) -> None:
    for client in clients:
        client.close()


KEPT = Kept()


def _has_worked(config: ClientConfig) -> bool:
    """Return whether a client of these servers was answered in this driver or executor."""
    servers, note = config.bootstrap_servers_text, _note(config)
    return servers in KEPT.answered or (note is not None and note.exists())


def _note_answer(client: Client) -> None:
    servers, note = client.config.bootstrap_servers_text, _note(client.config)
    if client.cluster_id is None or servers in KEPT.answered:
        return
    KEPT.answered.add(servers)
    # Without the file a later process only gives up earlier.
    with suppress(OSError):
        if note is not None:
            note.touch()


def _note(config: ClientConfig) -> Path | None:
    folder = blocks_folder()
    name = hashlib.sha256(config.bootstrap_servers_text.encode()).hexdigest()[:16]
    return Path(folder) / f"pykafka-answered-{name}" if folder else None


def blocks_folder() -> str:
    """Return Spark's folder for blocks, or "" if unknown.

    The processes of one driver, or of one executor, share it with no other. Spark removes it at the end.
    Source: PythonPlannerRunner and PythonStreamingSinkCommitRunner set SPARK_LOCAL_DIRS from DiskBlockManager.
    """
    return os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]


@contextmanager
def lease(
    kind: type[T],
    config: ClientConfig,
    cluster_id: str | None = None,
    spark_partition: int = 0,
    *,
    has_worked: bool = False,
) -> Iterator[T]:
    """Lease a client of this kind and configuration to one user: the kept client if it is still usable, or a new one.

    `cluster_id`: the cluster that must be there; None: any cluster. `spark_partition`: of the task that asks; a new
    client waits for its turn among the other tasks' (`ramp_s`). `has_worked`: a broker has answered before, so that
    there is an outage if none does. The client is kept again unless the block raised.
    """
    client = KEPT.take(kind, config)
    if client is not None and not client.may_go_on(cluster_id):
        client.close()
        client = None
    if client is None:
        time.sleep(ramp_s(spark_partition, random.random()))
    with _use(client, kind, config, cluster_id, has_worked=has_worked or cluster_id is not None) as used:
        yield used
    used.rest()
    KEPT.put(used)


def ramp_s(spark_partition: int, chance: float) -> float:
    """Return how many seconds the client of a task waits before it connects, so that the workers of a large cluster,
    which start together, do not all connect together.

    `spark_partition`: the tasks before this one have connected by about `spark_partition / CONNECTIONS_PER_S`.
    `chance`: uniform from 0 to 1.
    """
    return min(spark_partition / CONNECTIONS_PER_S, LONGEST_RAMP_S) * chance


@contextmanager
def once(kind: type[T], config: ClientConfig) -> Iterator[T]:
    """Lease a new client of this kind, and close it afterwards."""
    with _use(None, kind, config, None, has_worked=False) as client:
        yield client
    client.close()


@contextmanager
def _use(
    client: T | None, kind: type[T], config: ClientConfig, cluster_id: str | None, *, has_worked: bool
) -> Iterator[T]:
    with exhaustion_named():
        if client is None:
            warn_once(config.security)
            client = kind(config, cluster_id)
        client.outage.has_worked |= has_worked or _has_worked(config)
        try:
            yield client
        except BaseException as error:
            # Any exception, also an interrupt: the next user must not inherit unfinished work of this one.
            client.close()
            if isinstance(error, KafkaSinkError):
                error.of_principal(config.security.principal)
            if isinstance(error, BrokersUnreachable):
                # Imported here: no other end of a client needs the doctor.
                from kafka_sink.doctor.examinations import look_at_hosts

                look_at_hosts(error, config)
            raise
    _note_answer(client)


def lease_producer(
    config: ClientConfig, cluster_id: str | None = None, *, spark_partition: int = 0, has_worked: bool = False
) -> AbstractContextManager[Producer]:
    """Lease a producer for one write; see `lease`."""
    # Imported here, as the other two: a process mostly needs one kind of client.
    from kafka_sink.kafka.client import Producer

    return lease(Producer, config, cluster_id, spark_partition, has_worked=has_worked)


def lease_admin_client(
    config: ClientConfig, cluster_id: str | None = None, *, has_worked: bool = False
) -> AbstractContextManager[AdminClient]:
    """Lease an admin client for one commit or for other requests; see `lease`."""
    from kafka_sink.kafka.admin.client import AdminClient

    return lease(AdminClient, config, cluster_id, has_worked=has_worked)


def lease_reader(config: ConsumerConfig, *, spark_partition: int = 0) -> AbstractContextManager[Reader]:
    """Lease a reader for one range; see `lease`."""
    from kafka_sink.kafka.reader import Reader

    return lease(Reader, config, spark_partition=spark_partition)

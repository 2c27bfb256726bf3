"""The sockets of the relay's workers, and the loop that serves workers and brokers."""

from __future__ import annotations

import logging
import mmap
import os
import pickle
import random
import selectors
import socket
import sys
from dataclasses import replace

from kafka_sink.kafka.clock import monotonic_ms
from kafka_sink.kafka.config import VERSION, ClientConfig
from kafka_sink.kafka.connections import network_settings
from kafka_sink.kafka.metrics import Metrics
from kafka_sink.kafka.net.network_client import NetworkClient
from kafka_sink.kafka.net.outbox import Outbox
from kafka_sink.kafka.net.relay_search import peer_uid
from kafka_sink.kafka.net.relay_wire import Buffer, Kind, Message, Reader, encode
from kafka_sink.kafka.net.selector import Selector
from kafka_sink.kafka.net.shared_memory import Ledger
from kafka_sink.kafka.network import LONGEST_POLL_MS
from kafka_sink.kafka.security import authenticator, tls_contexts
from kafka_sink.relay.forwarder import Forwarder

log = logging.getLogger(__name__)

# How long a relay without workers waits for the next one.
IDLE_MS = 30_000
# Requests in flight to a broker are limited by the workers, each to its own `max.in.flight.requests.per.connection`.
_IN_FLIGHT = 2**20
_CHUNK_BYTES = 256 * 1024
_NO_MEMORY = memoryview(b"")


class WorkerSocket:
    """A `Worker` of the forwarder. `place`: in the ledger. `is_welcome`: it has shown this relay's configuration."""

    def __init__(self, sock: socket.socket, place: int) -> None:
        self.sock = sock
        self.place = place
        self.memory = _NO_MEMORY
        self.is_welcome = False
        self.reader = Reader()
        self.outbox = Outbox()
        # Of messages that are still to be read.
        self.files: list[int] = []

    def tell(self, message: list[Buffer]) -> None:
        self.outbox.add(message)

    def receive(self, chunk: memoryview) -> Buffer:
        """Return the bytes that are there, empty at the end. Raises OSError."""
        if self.memory is not _NO_MEMORY:
            return chunk[: self.sock.recv_into(chunk)]
        data, files, _, _ = socket.recv_fds(self.sock, _CHUNK_BYTES, 4)
        self.files += files
        return data

    def share(self, size_bytes: int) -> None:
        """Take the memory whose file came with the message."""
        file = self.files.pop(0)
        try:
            self.memory = memoryview(mmap.mmap(file, size_bytes, prot=mmap.PROT_READ))
        finally:
            os.close(file)

    def close(self) -> None:
        self.sock.close()
        for file in self.files:
            os.close(file)


class Upstream:
    """The connections to brokers, once a worker has brought the configuration."""

    def __init__(self, config: ClientConfig) -> None:
        metrics = Metrics()
        self.config = config
        self.transport = Selector(
            metrics=metrics,
            send_buffer_bytes=config.send_buffer_bytes,
            receive_buffer_bytes=config.receive_buffer_bytes,
            tls=tls_contexts(config.security),
        )
        self.network = NetworkClient(
            self.transport,
            clock_ms=monotonic_ms,
            rng=random.Random(),
            settings=replace(network_settings(config), bootstrap_servers=(), guarantees=(), max_in_flight=_IN_FLIGHT),
            metrics=metrics,
            authenticate=authenticator(config.security, config.bootstrap_hosts),
        )
        self.forwarder = Forwarder(self.network, self.transport.keep)


class Server:
    def __init__(self, listener: socket.socket, parent_pid: int) -> None:
        self._listener = listener
        self._parent_pid = parent_pid
        self._ledger = Ledger()
        self._upstream: Upstream | None = None
        self._workers: dict[WorkerSocket, None] = {}
        self._writing: set[WorkerSocket] = set()
        self._idle_since_ms = monotonic_ms()
        self._chunk = memoryview(bytearray(_CHUNK_BYTES))
        self._selector = selectors.DefaultSelector()
        listener.setblocking(False)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        if hasattr(os, "pidfd_open"):
            self._selector.register(os.pidfd_open(parent_pid), selectors.EVENT_READ, self._on_parent)

    def run(self) -> None:
        while self._is_needed():
            for selected, mask in self._selector.select(self._wait_ms() / 1000):
                if isinstance(selected.data, WorkerSocket):
                    self._serve(selected.data, mask)
                elif selected.data is not None:
                    selected.data()
            self._turn()

    def _is_needed(self) -> bool:
        failed = self._upstream is not None and self._upstream.network.failure is not None
        if not self._workers and (failed or monotonic_ms() - self._idle_since_ms > IDLE_MS):
            return False
        try:
            os.kill(self._parent_pid, 0)
        except OSError:
            return False
        return True

    def _wait_ms(self) -> int:
        if self._upstream is None:
            return LONGEST_POLL_MS
        if self._upstream.transport.has_work:
            return 0
        return self._upstream.network.wait_ms(LONGEST_POLL_MS, monotonic_ms())

    def _on_parent(self) -> None:
        sys.exit()

    def _turn(self) -> None:
        if self._upstream is not None:
            network, forwarder = self._upstream.network, self._upstream.forwarder
            forwarder.on_answers(network.poll(0))
            if network.failure is None:
                forwarder.look(monotonic_ms())
            else:
                self._stop_listening()
                forwarder.give_up()
        for worker in [worker for worker in self._workers if worker.outbox]:
            self._write(worker)
        if self._upstream is not None and self._upstream.network.failure is not None:
            for worker in list(self._workers):
                if not worker.outbox:
                    self._drop(worker)

    def _stop_listening(self) -> None:
        """Let the next worker start another relay."""
        if self._listener.fileno() >= 0:
            self._selector.unregister(self._listener)
            self._listener.close()

    # --- workers ------------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            return
        place = self._ledger.free_place({worker.place for worker in self._workers})
        if peer_uid(sock) != os.getuid() or place is None:
            sock.close()
            return
        sock.setblocking(False)
        worker = WorkerSocket(sock, place)
        self._workers[worker] = None
        self._selector.register(sock, selectors.EVENT_READ, worker)

    def _serve(self, worker: WorkerSocket, mask: int) -> None:
        if mask & selectors.EVENT_WRITE:
            self._write(worker)
        if not mask & selectors.EVENT_READ or worker not in self._workers:
            return
        try:
            data = worker.receive(self._chunk)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._drop(worker)
            return
        try:
            for message in worker.reader.feed(data):
                self._on_message(worker, message)
        except (ValueError, IndexError) as error:
            log.warning("a worker was sent away: %s", error)
            self._drop(worker)

    def _on_message(self, worker: WorkerSocket, message: Message) -> None:
        match message.kind:
            case Kind.HELLO:
                self._welcome(worker, message)
            case Kind.MEMORY:
                worker.share(int.from_bytes(message.body, "big"))
            case _ if worker.is_welcome and self._upstream is not None:
                self._upstream.forwarder.on_message(worker, message, monotonic_ms())

    def _welcome(self, worker: WorkerSocket, message: Message) -> None:
        """Compare the worker's configuration with the relay's, which is that of the first worker."""
        version, _, pickled = bytes(message.body).partition(b"\0")
        # Another version may have other classes.
        config = pickle.loads(pickled) if version == VERSION.encode() else None
        if self._upstream is None and isinstance(config, ClientConfig):
            self._upstream = Upstream(config)
            self._selector.register(self._upstream.transport.fileno(), selectors.EVENT_READ, None)
        worker.is_welcome = self._upstream is not None and self._upstream.config == config
        if not worker.is_welcome:
            worker.sock.send(b"".join(encode(Kind.REFUSED)))
            return
        place = worker.place.to_bytes(4, "big")
        socket.send_fds(worker.sock, [b"".join(encode(Kind.WELCOME, body=[place]))], [self._ledger.fd])

    def _write(self, worker: WorkerSocket) -> None:
        try:
            worker.outbox.flush(worker.sock)
        except OSError:
            self._drop(worker)
            return
        if bool(worker.outbox) != (worker in self._writing):
            self._writing ^= {worker}
            interest = selectors.EVENT_READ | (selectors.EVENT_WRITE if worker.outbox else 0)
            self._selector.modify(worker.sock, interest, worker)

    def _drop(self, worker: WorkerSocket) -> None:
        del self._workers[worker]
        self._writing.discard(worker)
        self._selector.unregister(worker.sock)
        if self._upstream is not None:
            self._upstream.forwarder.gone(worker)
        self._ledger.clear(worker.place)
        worker.close()
        self._idle_since_ms = monotonic_ms()

"""Decides which worker's stream goes over which connection, and forwards requests and answers.

A broker has up to CONNECTIONS connections. Each carries the streams of several workers, and a stream stays on one
connection: so the requests of a worker keep their order, and a stream ends with its connection. A broker answers the
requests of one connection one after the other, so a second connection lets a worker's small request pass another
worker's large one.

Pure: the network is passed in, the time is an argument.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from kafka_sink.errors import ClusterChanged, ClusterError, WorkerExhausted
from kafka_sink.kafka.net.relay_wire import INLINE, Buffer, Kind, Message, encode
from kafka_sink.kafka.protocol.apis.metadata import Broker
from kafka_sink.kafka.protocol.client_response import ClientResponse
from kafka_sink.kafka.protocol.frames import Frame, FrameAnswer, is_frame
from kafka_sink.kafka.protocol.requests import Request

CONNECTIONS = 2


class ForwardingNetwork(Protocol):
    """What the forwarder needs of a NetworkClient, which documents it."""

    last_error: str
    failure: ClusterError | WorkerExhausted | None

    def learn(self, broker: Broker) -> None: ...
    def ready(self, node_id: int, now_ms: int) -> bool: ...
    def can_send(self, node_id: int, now_ms: int) -> bool: ...
    def is_down(self, node_id: int) -> bool: ...
    def delay_ms(self, node_id: int, now_ms: int) -> int | None: ...
    def connection_key(self, node_id: int) -> int | None: ...
    def throttle(self, node_id: int, milliseconds: int, now_ms: int) -> None: ...
    def send(
        self, node_id: int, request: Request, now_ms: int, token: object = None, expect_response: bool = True
    ) -> None: ...


class Worker(Protocol):
    """`memory`: what the worker shares. `tell`: queue a message for it."""

    memory: memoryview

    def tell(self, message: list[Buffer]) -> None: ...


@dataclass(eq=False, slots=True)
class _Stream:
    """`waiting`: requests, and whether each has an answer, that the connection does not take yet."""

    worker: Worker
    key: int
    connection: _Connection
    waiting: deque[tuple[Frame, bool]] = field(default_factory=deque)
    is_open: bool = False


@dataclass(eq=False, slots=True)
class _Connection:
    """One of a broker's connections. `key`: the network's number of it while it is open. `streams`: of each, whether it
    is open is its own matter."""

    node_id: int
    key: int | None = None
    is_connecting: bool = False
    streams: set[_Stream] = field(default_factory=set)


class Forwarder:
    def __init__(self, network: ForwardingNetwork, keep: Callable[[int, memoryview], None]) -> None:
        """`keep(key, memory)`: copy what the connection of this number has yet to write from `memory`."""
        self._network = network
        self._keep = keep
        self._connections: dict[tuple[str, int], list[_Connection]] = {}
        self._streams: dict[tuple[Worker, int], _Stream] = {}
        self._waiting: set[_Stream] = set()

    # --- what a worker says -------------------------------------------------------------------------------------------

    def on_message(self, worker: Worker, message: Message, now_ms: int) -> None:
        """Carry out a worker's message about a stream. Raises ValueError if it makes no sense."""
        match message.kind:
            case Kind.OPEN:
                host, port = pickle.loads(message.body)
                self._open(worker, message.key, host, port)
            case Kind.SEND:
                self._on_request(worker, message, now_ms)
            case Kind.CLOSE:
                self._end(worker, message.key)
                worker.tell(encode(Kind.CLOSED, message.key, [pickle.dumps(("", None))]))
            case Kind.THROTTLED:
                self._on_throttle(worker, message, now_ms)
            case _:
                raise ValueError(f"a worker sends no {message.kind.name} here")

    def _open(self, worker: Worker, key: int, host: str, port: int) -> None:
        connections = self._connections.setdefault((host, port), [])
        connection = min(connections, key=lambda each: len(each.streams), default=None)
        if connection is None or (connection.streams and len(connections) < CONNECTIONS):
            connection = _Connection(sum(map(len, self._connections.values())))
            connections.append(connection)
            self._network.learn(Broker(connection.node_id, host, port))
        stream = _Stream(worker, key, connection)
        connection.streams.add(stream)
        self._streams[worker, key] = stream

    def _on_request(self, worker: Worker, message: Message, now_ms: int) -> None:
        stream = self._streams.get((worker, message.key))
        if stream is None:
            return  # it ended before the worker knew
        buffers = tuple(_buffers(worker.memory, message))
        if not is_frame(buffers):
            raise ValueError("a request without its header or size")
        stream.waiting.append((Frame(buffers), not message.flag))
        self._waiting.add(stream)
        self._send(stream, now_ms)

    def _send(self, stream: _Stream, now_ms: int) -> None:
        node_id = stream.connection.node_id
        while stream.waiting and stream.is_open and self._network.can_send(node_id, now_ms):
            frame, expect_response = stream.waiting.popleft()
            self._network.send(node_id, frame, now_ms, stream, expect_response)
        if not stream.waiting:
            self._waiting.discard(stream)

    def _on_throttle(self, worker: Worker, message: Message, now_ms: int) -> None:
        """Let requests wait, and tell the other workers: the broker reads nothing of the connection meanwhile."""
        stream = self._streams.get((worker, message.key))
        if stream is None or not stream.is_open:
            return
        self._network.throttle(stream.connection.node_id, int.from_bytes(message.body, "big"), now_ms)
        for other in stream.connection.streams:
            if other is not stream and other.is_open:
                other.worker.tell(encode(Kind.THROTTLED, other.key, [message.body]))

    def _end(self, worker: Worker, key: int) -> None:
        """End a stream for its worker: from now on nothing reads the worker's memory for it. Requests that were handed
        to the network are written to their end, from a copy."""
        stream = self._streams.pop((worker, key), None)
        if stream is None:
            return
        stream.connection.streams.discard(stream)
        self._waiting.discard(stream)
        if stream.is_open and stream.connection.key is not None:
            self._keep(stream.connection.key, worker.memory)

    def gone(self, worker: Worker) -> None:
        """Forget a worker that has ended."""
        for key in [key for each, key in self._streams if each is worker]:
            self._end(worker, key)

    # --- what brokers say ---------------------------------------------------------------------------------------------

    def on_answers(self, answers: list[ClientResponse]) -> None:
        """Forward the answers of a poll. Requests that failed fail with their connection (`look`)."""
        for answer in answers:
            stream = answer.token
            if not isinstance(stream, _Stream) or self._streams.get((stream.worker, stream.key)) is not stream:
                continue
            if isinstance(answer.response, FrameAnswer) and isinstance(answer.request, Frame):
                answered = answer.request.answer(answer.response.frame)
                stream.worker.tell(encode(Kind.RECEIVED, stream.key, answered))
            elif answer.error is None:
                stream.worker.tell(encode(Kind.SENT, stream.key))

    def look(self, now_ms: int) -> None:
        """Open and end streams whose connection opened or ended, and send what waited. Call after each poll, and poll
        again before the next wait."""
        for connections in self._connections.values():
            for connection in connections:
                self._look_at(connection, now_ms)
        for stream in list(self._waiting):
            self._send(stream, now_ms)

    def _look_at(self, connection: _Connection, now_ms: int) -> None:
        key = self._network.connection_key(connection.node_id)
        if connection.key not in (None, key):
            self._close([stream for stream in connection.streams if stream.is_open])
        connection.key = key
        if key is not None:
            connection.is_connecting = False
            for stream in connection.streams:
                if not stream.is_open:
                    stream.is_open = True
                    stream.worker.tell(encode(Kind.OPENED, stream.key))
        elif connection.streams:
            self._connect(connection, now_ms)

    def _connect(self, connection: _Connection, now_ms: int) -> None:
        """Connect if it is due. If an attempt has failed, its streams end: their workers decide when to try again."""
        node_id = connection.node_id
        was_due = self._network.is_down(node_id) and self._network.delay_ms(node_id, now_ms) == 0
        if was_due and not connection.is_connecting:
            self._network.ready(node_id, now_ms)
        elif not self._network.is_down(node_id):
            connection.is_connecting = True
            return
        if (was_due or connection.is_connecting) and self._network.is_down(node_id):
            connection.is_connecting = False
            self._close(list(connection.streams))
        elif was_due:
            connection.is_connecting = True

    def give_up(self) -> None:
        """End all streams with the network's failure."""
        self._close(list(self._streams.values()))

    def _close(self, streams: list[_Stream]) -> None:
        # A relay belongs to no cluster. Its workers find out themselves if theirs was replaced.
        failure = self._network.failure
        said = None if isinstance(failure, ClusterChanged) or not isinstance(failure, ClusterError) else failure
        for stream in streams:
            self._end(stream.worker, stream.key)
            stream.worker.tell(encode(Kind.CLOSED, stream.key, [pickle.dumps((self._network.last_error, said))]))


def _buffers(memory: memoryview, message: Message) -> list[Buffer]:
    """Return the buffers of a request. Raises ValueError if a segment is outside of the memory or the message."""
    buffers: list[Buffer] = []
    position = 0
    for offset, size in message.segments:
        source, start = (message.body, position) if offset == INLINE else (memory, offset)
        if not 0 <= start <= start + size <= len(source):
            raise ValueError(f"a segment of {size} bytes at {start}, of {len(source)}")
        buffers.append(source[start : start + size])
        position += size if offset == INLINE else 0
    return buffers

"""A network in virtual time: the sockets that NetworkClient sees, and the faults between it and the brokers.

    NetworkClient ── SimulatedTransport ── Wire ── Pipe ──> Cluster.receive
                                              └─── Pipe <── Cluster.take_outgoing

A wire is one TCP connection: two pipes, each of which keeps the order of its bytes, cuts them anywhere and takes its
time. Between wires nothing keeps an order. Everything is a choice of the seed:

* A write takes some of the waiting bytes, as a socket does, and reads them at that moment. So this module detects a
  buffer that changes between `send` and `Sent`.
* A connection that the client closes may still deliver what was written, at once or much later: the broker executes
  requests whose client gave up.
* A cut delivers any part of the bytes that are under way, in each direction on its own, and ends both.
* Between two answers there may be bytes that no broker says, or the first of them again.
* A wire that is muted delivers requests and no answers, a deafened one no requests; the client learns by its timeouts.
* A broker behind a partition is silent; what was under way arrives when the partition ends, as TCP repeats it.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
import socket
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kafka_sink.kafka.net.transport import Address, Buffer, Connected, Disconnected, Event, Received, Sent
from model.cluster import Cluster
from model.settings import API_NAMES
from model.timeline import Timeline

# What a socket takes before the peer has acknowledged any of it: little, so that requests wait half-written.
SOCKET_BUFFER_BYTES = 16 * 1024
SIZE_BYTES = 4

# An answer to nothing or to something else, sizes that cannot be, another protocol.
GARBAGE = (
    b"\x00\x00\x00\x05\x7f\xff\xff\xff\x00", b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff",
    b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x15\x03\x03\x00\x02\x02\x46",
)  # fmt: skip

Trace = Callable[[str], None]


class BufferChanged(AssertionError):
    """A buffer changed after `send` and before its bytes were written."""


@dataclass(slots=True)
class Weather:
    """How the network is now. `latency_ms`: the mean of one way. `cut_rate`: of all sends, those that break their
    connection. `connect_failures`: of all attempts to connect. `close_loses`: of all connections that a client closes,
    those whose bytes under way are lost. `losses_apart_ms`: after one lost packet a client loses no other for so long.
    """

    latency_ms: float = 2.0
    pieces_rate: float = 0.2
    partial_write_rate: float = 0.1
    cut_rate: float = 0.0
    connect_failures: float = 0.0
    close_loses: float = 0.3
    losses_apart_ms: int = 0


class Pipe:
    """One direction of a wire of `client`. `deliver` takes the bytes, and None at their end."""

    def __init__(self, network: Network, client: str, deliver: Callable[[bytes | None], None]) -> None:
        self._network = network
        self._client = client
        self._deliver = deliver
        self._last_ms = 0
        self._ended = False
        # Bytes that may still arrive; None: all.
        self._allowance: int | None = None
        # Arrived while nothing gets through, in order; None: everything does.
        self._held: list[bytes | None] | None = None
        self.under_way_bytes = 0

    def push(self, data: bytes) -> None:
        if self._ended:
            return
        for piece in self._network.pieces(data):
            self.under_way_bytes += len(piece)
            self._plan(piece)

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            self._plan(None)

    def cut(self, arriving_bytes: int) -> None:
        """Of the bytes under way only the first `arriving_bytes` arrive, then the end."""
        if self._allowance is None:
            self._allowance = arriving_bytes
        self.end()

    def lose(self) -> None:
        """Nothing arrives any more, not even the end."""
        self._ended = True
        self._allowance = 0
        self._deliver = lambda data: None

    def hold(self) -> None:
        if self._held is None:
            self._held = []

    def release(self) -> None:
        held, self._held = self._held or [], None
        for piece in held:
            self._arrive(piece)

    def _plan(self, piece: bytes | None) -> None:
        scheduler = self._network.scheduler
        self._last_ms = max(self._last_ms, scheduler.now_ms + self._network.delay_ms(self._client))
        scheduler.at(self._last_ms, self._arrive, piece)

    def _arrive(self, piece: bytes | None) -> None:
        if self._held is not None:
            self._held.append(piece)
            return
        if piece is None:
            self._deliver(None)
            return
        self.under_way_bytes -= len(piece)
        if self._allowance is not None:
            piece = piece[: self._allowance]
            self._allowance -= len(piece)
        if piece:
            self._deliver(piece)


@dataclass(slots=True, eq=False)
class Wire:
    """One connection. `unsent`: per `send`, the views left to write, the bytes that they had when it was called, and
    whether its Sent ends a poll."""

    key: int
    connection_id: int
    node_id: int
    transport: SimulatedTransport
    to_broker: Pipe = field(init=False)
    to_client: Pipe = field(init=False)
    connected: bool = False
    client_open: bool = True
    broker_open: bool = False
    writing: bool = False
    garbled: bool = False
    last_answer: bytes = b""
    unsent: deque[tuple[deque[memoryview], bytes, bool]] = field(default_factory=deque)
    at_broker: bytearray = field(default_factory=bytearray)
    # Another cluster, whose broker had the address when the connection was accepted; and the cluster it was made to.
    stranger: Cluster | None = None
    cluster_id: str = ""

    def __str__(self) -> str:
        return f"{self.transport.name}#{self.key}"


class Network:
    """All wires between producers and the cluster. `digest` covers every byte that either side saw, and when."""

    def __init__(
        self, cluster: Cluster, scheduler: Timeline, rng: random.Random, addresses: dict[tuple[str, int], int],
        trace: Trace | None = None, balancer: tuple[str, int] | None = None,
    ) -> None:  # fmt: skip
        """`addresses`: (host, port) to node id. `balancer`: a name that resolves to all of them."""
        self.scheduler = scheduler
        self.weather = Weather()
        self.trace = trace
        self.requests = 0
        self.executed_late = 0
        self._cluster = cluster
        self._rng = rng
        self._addresses = addresses
        self._balancer = balancer
        # Node id -> another cluster, whose broker has the node's address.
        self._strangers: dict[int, Cluster] = {}
        self._wires: dict[int, Wire] = {}
        self._next_connection_id = 0
        self._unreachable: set[int] = set()
        # One direction is lost; some of them the broker has forgotten already.
        self._impaired: list[Wire] = []
        # By client: when it lost a packet last.
        self._lost_ms: dict[str, int] = {}
        self._digest = hashlib.sha256()

    # --- the weather --------------------------------------------------------------------------------------------------

    def delay_ms(self, client: str) -> int:
        """One way, with a tail: now and then a packet is lost, and repeated."""
        mean = self.weather.latency_ms
        delay, now_ms = self._rng.expovariate(1 / mean) if mean else 0.0, self.scheduler.now_ms
        is_apart = now_ms - self._lost_ms.get(client, -math.inf) >= self.weather.losses_apart_ms
        if self._rng.random() < 0.01 and is_apart:
            self._lost_ms[client] = now_ms
            delay += 20 * mean
        return int(delay)

    def pieces(self, data: bytes) -> list[bytes]:
        if len(data) < 2 or self._rng.random() >= self.weather.pieces_rate:
            return [data]
        cuts = sorted(self._rng.sample(range(1, len(data)), min(len(data) - 1, self._rng.randint(1, 3))))
        return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]

    def wires(self, *, node_id: int | None = None, name: str | None = None) -> list[Wire]:
        """Those that stand, of a broker or a producer."""
        return [
            wire
            for wire in self._wires.values()
            if wire.client_open
            and (node_id is None or wire.node_id == node_id)
            and (name is None or wire.transport.name == name)
        ]

    def cut(self, wire: Wire) -> None:
        """Both directions end; any part of what is under way arrives."""
        self._say("cut", wire)
        for pipe in (wire.to_broker, wire.to_client):
            pipe.cut(self._rng.randint(0, pipe.under_way_bytes))

    def mute(self, wire: Wire) -> None:
        self._impair("mute", wire, wire.to_client)

    def deafen(self, wire: Wire) -> None:
        self._impair("deafen", wire, wire.to_broker)

    def _impair(self, what: str, wire: Wire, pipe: Pipe) -> None:
        self._say(what, wire)
        self._impaired.append(wire)
        pipe.lose()

    def garble(self, wire: Wire) -> None:
        """Make the client receive bytes that no broker sends, as soon as it is connected."""
        self._say("garbled", wire)
        if wire.connected:
            wire.to_client.push(self._rng.choice((*GARBAGE, wire.last_answer, wire.last_answer)))
        else:
            wire.garbled = True

    def reset_impaired(self) -> None:
        """Wires that lost a direction end on both sides: nothing is left of what was done to them."""
        for wire in self._impaired:
            self._wires.pop(wire.connection_id, None)
            for pipe in (wire.to_broker, wire.to_client):
                pipe.lose()
            if wire.broker_open:
                self._behind(wire).disconnected(wire.node_id, wire.connection_id)
            self._lost(wire)
        self._impaired.clear()

    def partition(self, node_id: int) -> None:
        """Hold all bytes to and from the broker, without an error, until `heal`."""
        self._unreachable.add(node_id)
        for wire in self._wires.values():
            if wire.node_id == node_id:
                wire.to_broker.hold()
                wire.to_client.hold()

    def heal(self, node_id: int) -> None:
        self._unreachable.discard(node_id)
        for wire in list(self._wires.values()):
            if wire.node_id == node_id:
                wire.to_broker.release()
                wire.to_client.release()

    def crashed(self, node_id: int) -> None:
        """A broker's process ended: each client is told at once, or hears nothing more."""
        told = self._rng.random() < 0.7
        for wire in list(self._wires.values()):
            if wire.node_id != node_id:
                continue
            wire.broker_open = False
            if told:
                wire.to_client.cut(self._rng.randint(0, wire.to_client.under_way_bytes))
            else:
                self._impaired.append(wire)
                wire.to_client.lose()

    def replaced(self, cluster: Cluster, tell: Callable[[Wire], bool]) -> None:
        """Another cluster is behind all addresses. `tell`: which clients are told at once that their connection is
        gone; the others learn it when they use it."""
        self._cluster = cluster
        for wire in list(self._wires.values()):
            wire.broker_open = False
            if tell(wire):
                self._lost(wire)

    def occupy(self, node_id: int, stranger: Cluster) -> None:
        """A broker of another cluster has the address of a broker that is down, until `vacate`."""
        self._strangers[node_id] = stranger

    def vacate(self, node_id: int) -> None:
        if self._strangers.pop(node_id, None) is None:
            return
        for wire in self.wires(node_id=node_id):
            if wire.stranger is not None:
                wire.broker_open = False
                self._lost(wire)

    def _behind(self, wire: Wire) -> Cluster:
        return self._cluster if wire.stranger is None else wire.stranger

    # --- the client's side --------------------------------------------------------------------------------------------

    def resolve(self, host: str, port: int) -> Sequence[Address]:
        """Raises OSError for a name that does not exist."""
        if (host, port) == self._balancer:
            servers = self._rng.sample(list(self._addresses), len(self._addresses))
            return [Address(socket.AF_INET, server, host) for server in servers]
        if (host, port) not in self._addresses:
            raise OSError(f"no such host: {host}")
        return [Address(socket.AF_INET, (host, port))]

    def connect(self, transport: SimulatedTransport, key: int, address: Address) -> Wire:
        node_id = self._addresses[address.sockaddr[0], address.sockaddr[1]]
        wire = Wire(key, self._next_connection_id, node_id, transport)
        self._next_connection_id += 1
        wire.to_broker = Pipe(self, transport.name, lambda data: self._at_broker(wire, data))
        wire.to_client = Pipe(self, transport.name, lambda data: self._at_client(wire, data))
        self._wires[wire.connection_id] = wire
        self.scheduler.after(self.delay_ms(transport.name), self._accept, wire)
        return wire

    def _accept(self, wire: Wire) -> None:
        if not wire.client_open or wire.node_id in self._unreachable:
            return
        wire.stranger = self._strangers.get(wire.node_id)
        if not self._behind(wire).is_alive(wire.node_id) or self._rng.random() < self.weather.connect_failures:
            if self._rng.random() < 0.7:
                self.scheduler.after(self.delay_ms(wire.transport.name), self._refuse, wire)
            return
        wire.broker_open = True
        wire.cluster_id = self._behind(wire).settings.cluster_id
        self.scheduler.after(self.delay_ms(wire.transport.name), self._connected, wire)

    def _refuse(self, wire: Wire) -> None:
        if wire.client_open:
            self._say("refused", wire)
            wire.client_open = False
            del self._wires[wire.connection_id]
            wire.transport.stage(Disconnected(wire.key, "Connection refused"))

    def _connected(self, wire: Wire) -> None:
        if wire.client_open and not wire.connected:
            self._say("connected", wire)
            wire.connected = True
            wire.transport.stage(Connected(wire.key))
            if wire.garbled:
                self.garble(wire)

    def write(self, wire: Wire) -> None:
        """Takes some of what waits to be written, as much as the socket has room for."""
        wire.writing = False
        room = SOCKET_BUFFER_BYTES - wire.to_broker.under_way_bytes
        if not wire.client_open or not wire.unsent or room <= 0:
            return
        if self._rng.random() < self.weather.partial_write_rate:
            room = self._rng.randint(1, room)
        data = bytearray()
        while wire.unsent and len(data) < room:
            views, expected, tell_at_once = wire.unsent[0]
            start = len(expected) - sum(map(len, views))
            taken = _take(views, room - len(data))
            if taken != expected[start : start + len(taken)]:
                raise BufferChanged(f"bytes {start} to {start + len(taken)} of a request on {wire}")
            data += taken
            if not views:
                wire.unsent.popleft()
                wire.transport.stage(Sent(wire.key), ends_poll=tell_at_once)
        self._note(wire, b">", bytes(data))
        wire.to_broker.push(bytes(data))
        if wire.unsent:
            self._plan_write(wire, self.delay_ms(wire.transport.name))
        if self._rng.random() < self.weather.cut_rate:
            self.cut(wire)

    def _plan_write(self, wire: Wire, delay_ms: int) -> None:
        if not wire.writing:
            wire.writing = True
            self.scheduler.after(delay_ms, self.write, wire)

    def send(self, wire: Wire, views: deque[memoryview], tell_at_once: bool) -> None:
        wire.unsent.append((views, b"".join(views), tell_at_once))
        self._plan_write(wire, 0)

    def close(self, wire: Wire) -> None:
        """The client closes. What it has written may still be executed."""
        if not wire.client_open:
            return
        wire.client_open = False
        wire.unsent.clear()
        wire.to_client.lose()
        under_way = wire.to_broker.under_way_bytes
        if self._rng.random() < self.weather.close_loses:
            under_way = self._rng.randint(0, under_way)
        wire.to_broker.cut(under_way)
        self._say("closed by the client", wire)

    def _at_client(self, wire: Wire, data: bytes | None) -> None:
        if not wire.client_open:
            return
        if data is None:
            self._lost(wire)
            wire.to_broker.cut(wire.to_broker.under_way_bytes)
            return
        self._note(wire, b"<", data)
        wire.transport.stage(Received(wire.key, data))

    def _lost(self, wire: Wire) -> None:
        if wire.client_open:
            self._say("lost", wire)
            wire.client_open = False
            wire.unsent.clear()
            wire.transport.stage(Disconnected(wire.key, "Connection reset by peer"))

    # --- the brokers' side --------------------------------------------------------------------------------------------

    def _at_broker(self, wire: Wire, data: bytes | None) -> None:
        if wire.unsent:
            self._plan_write(wire, 0)
        brokers = self._behind(wire)
        if not wire.broker_open or not brokers.is_alive(wire.node_id):
            # A broker that was away in the meantime knows nothing of the connection.
            if brokers.is_alive(wire.node_id):
                wire.to_client.cut(0)
            return
        if data is None:
            wire.broker_open = False
            self._wires.pop(wire.connection_id, None)
            brokers.disconnected(wire.node_id, wire.connection_id)
            return
        wire.at_broker += data
        while (frame := _next_frame(wire.at_broker)) is not None:
            self.requests += 1
            self.executed_late += not wire.client_open
            if self.trace:
                self._say(f"request {_describe(frame)}{'' if wire.client_open else ', given up'}", wire)
            brokers.receive(wire.node_id, wire.connection_id, frame, self.scheduler.now_ms)
        self.deliver_answers()

    def deliver_answers(self) -> None:
        all_brokers = (self._cluster, *self._strangers.values())
        for outgoing in itertools.chain.from_iterable([brokers.take_outgoing() for brokers in all_brokers]):
            wire = self._wires.get(outgoing.connection_id)
            if wire is None or not wire.broker_open:
                continue
            if outgoing.frame is None:
                self._say("closed by the broker", wire)
                wire.broker_open = False
                wire.to_client.end()
            else:
                wire.last_answer = len(outgoing.frame).to_bytes(SIZE_BYTES, "big") + outgoing.frame
                wire.to_client.push(wire.last_answer)

    # --- what happened ------------------------------------------------------------------------------------------------

    def _note(self, wire: Wire, direction: bytes, data: bytes) -> None:
        self._digest.update(b"%d %d %s %d " % (self.scheduler.now_ms, wire.connection_id, direction, len(data)))
        self._digest.update(data)
        if self.trace:
            self._say(f"{direction.decode()} {len(data)} bytes", wire)

    def _say(self, what: str, wire: Wire) -> None:
        if self.trace:
            self.trace(f"{wire} broker {wire.node_id}: {what}")

    @property
    def digest(self) -> str:
        return self._digest.hexdigest()


def _take(views: deque[memoryview], count: int) -> bytes:
    taken = bytearray()
    while views and len(taken) < count:
        front = views[0]
        part = front[: count - len(taken)]
        taken += part
        if len(part) == len(front):
            views.popleft()
        else:
            views[0] = front[len(part) :]
    return bytes(taken)


def _next_frame(received: bytearray) -> bytes | None:
    end = SIZE_BYTES + int.from_bytes(received[:SIZE_BYTES], "big")
    if len(received) < SIZE_BYTES or len(received) < end:
        return None
    frame = bytes(received[SIZE_BYTES:end])
    del received[:end]
    return frame


def _describe(frame: bytes) -> str:
    key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
    return f"{API_NAMES.get(key, key)} v{version} ({int.from_bytes(frame[4:8], 'big')})"


class SimulatedTransport:
    """Implements `kafka_sink.kafka.net.transport.Transport` for one producer. Its `poll` never waits: it leaves in
    `asked_wait_ms` how long it was to, in `told_something` whether it would have, and `on_event` is called when there
    is something to poll for."""

    def __init__(self, network: Network, name: str, on_event: Callable[[], None]) -> None:
        self.name = name
        self.asked_wait_ms = 0
        self.told_something = False
        self._network = network
        self._on_event = on_event
        self._wires: dict[int, Wire] = {}
        self._staged: list[Event] = []

    def connect(self, key: int, address: Address) -> None:
        self._wires[key] = self._network.connect(self, key, address)

    def send(self, key: int, buffers: Sequence[Buffer], *, tell_at_once: bool = True) -> None:
        wire = self._wires.get(key)
        if wire is not None and wire.client_open:
            views = (memoryview(buffer).cast("B") for buffer in buffers)
            self._network.send(wire, deque(view for view in views if view.nbytes), tell_at_once)

    def cluster_id(self, key: int) -> str:
        return self._wires[key].cluster_id

    def poll(self, timeout_ms: int) -> list[Event]:
        self.asked_wait_ms = timeout_ms
        staged, self._staged = self._staged, []
        self.told_something = bool(staged)
        return staged

    def stage(self, event: Event, *, ends_poll: bool = True) -> None:
        self._staged.append(event)
        if ends_poll:
            self._on_event()

    def close(self, key: int) -> None:
        self._staged = [event for event in self._staged if event.key != key]
        wire = self._wires.pop(key, None)
        if wire is not None:
            self._network.close(wire)

    def wakeup(self) -> None:
        self._on_event()

    def close_all(self) -> None:
        for key in list(self._wires):
            self.close(key)

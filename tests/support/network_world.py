"""A NetworkClient over a transport and a clock that the test holds, and the brokers' side of each connection, in bytes.

world = World()                         # one bootstrap server
key = world.open()                      # connected, and known to be of cluster-1
answer = world.send("token")            # in flight
world.poll(Sent(key), Received(key, answer))
"""

import random
import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

from kafka_sink.kafka.net.network_client import NetworkClient, NetworkSettings
from kafka_sink.kafka.net.transport import Address, Buffer, Connected, Disconnected, Event, Received, Sent
from kafka_sink.kafka.protocol.api import ClientResponse
from kafka_sink.kafka.protocol.apis.metadata import Broker
from kafka_sink.kafka.protocol.apis.produce import ProduceRequest
from kafka_sink.kafka.protocol.apis.transactions import InitProducerIdRequest
from kafka_sink.kafka.protocol.sasl import Authentication, PasswordLogin, authentication


class ScriptedTransport:
    """A poll without events moves `now_ms` by its whole timeout."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.connects: list[tuple[int, Address]] = []
        self.open: set[int] = set()
        self.outbox: dict[int, list[bytes]] = {}
        self.events: list[Event] = []
        self.told_at_once: list[bool] = []
        self.waited_ms: list[int] = []
        self.woken = 0
        self.ended = False

    def clock_ms(self) -> int:
        return self.now_ms

    def connect(self, key: int, address: Address) -> None:
        self.connects.append((key, address))
        self.open.add(key)
        self.outbox[key] = []

    def send(self, key: int, buffers: Sequence[Buffer], *, tell_at_once: bool = True) -> None:
        self.outbox[key].append(b"".join(buffers))
        self.told_at_once.append(tell_at_once)

    def poll(self, timeout_ms: int) -> list[Event]:
        assert timeout_ms >= 0
        self.waited_ms.append(timeout_ms)
        events, self.events = self.events, []
        if not events:
            self.now_ms += timeout_ms
        self.open -= {event.key for event in events if isinstance(event, Disconnected)}
        return events

    def close(self, key: int) -> None:
        self.open.discard(key)

    def wakeup(self) -> None:
        self.woken += 1

    def close_all(self) -> None:
        self.ended = True


INIT = InitProducerIdRequest(1)
NO_ACKS = ProduceRequest(0, 1, ())
PRODUCE, METADATA, INIT_PRODUCER_ID, END_TXN = 0, 3, 22, 26


def framed(correlation_id: int, rest: bytes) -> bytes:
    return struct.pack(">ii", 4 + len(rest), correlation_id) + rest


def versions_answer(
    correlation_id: int, ranges: Mapping[int, tuple[int, int]], error_code: int = 0, tags: bytes = b"\0"
) -> bytes:
    apis = b"".join(struct.pack(">hhhb", key, low, high, 0) for key, (low, high) in ranges.items())
    body = struct.pack(">hb", error_code, 1 + len(ranges)) + apis + struct.pack(">i", 0) + tags
    return framed(correlation_id, body)


def metadata_answer(
    correlation_id: int, cluster_id: bytes | None = b"cluster-1", throttle_time_ms: int = 0, error_code: int = 0,
    brokers: Sequence[Broker] = (),
) -> bytes:  # fmt: skip
    """Version 13, without topics."""
    named = b"\0" if cluster_id is None else bytes([len(cluster_id) + 1]) + cluster_id
    listed = b"".join(
        struct.pack(">ib", each.node_id, len(each.host) + 1) + each.host.encode() + struct.pack(">ibb", each.port, 0, 0)
        for each in brokers
    )
    body = struct.pack(">ib", throttle_time_ms, 1 + len(brokers)) + listed + named
    return framed(correlation_id, b"\0" + body + struct.pack(">ibhb", -1, 1, error_code, 0))


def init_answer(correlation_id: int, producer_id: int = 7, throttle_time_ms: int = 0) -> bytes:
    return framed(correlation_id, b"\0" + struct.pack(">ihqhb", throttle_time_ms, 0, producer_id, 0, 0))


def correlation_id(frame: bytes) -> int:
    return int.from_bytes(frame[8:12], "big")


def handshake_answer(correlation_id: int, error_code: int = 0, mechanisms: Sequence[bytes] = (b"PLAIN",)) -> bytes:
    names = b"".join(struct.pack(">h", len(name)) + name for name in mechanisms)
    return framed(correlation_id, struct.pack(">hi", error_code, len(mechanisms)) + names)


def authenticate_answer(
    correlation_id: int, error_code: int = 0, lifetime_ms: int = 0, message: bytes = b"", auth_bytes: bytes = b""
) -> bytes:
    texts = bytes([len(message) + 1]) + message + bytes([len(auth_bytes) + 1]) + auth_bytes
    return framed(correlation_id, b"\0" + struct.pack(">h", error_code) + texts + struct.pack(">qb", lifetime_ms, 0))


class World:
    """A client with one bootstrap server unless told otherwise, and the brokers' side of each connection."""

    RANGES = {PRODUCE: (0, 13), METADATA: (0, 13), INIT_PRODUCER_ID: (0, 5)}  # noqa: RUF012

    def __init__(self, names: dict[str, list[str]] | None = None, **changed: Any) -> None:
        self.names = names or {}
        self.resolved: list[str] = []
        self.transport = ScriptedTransport()
        authenticate, cluster_id = changed.pop("authenticate", None), changed.pop("cluster_id", None)
        given: dict[str, Any] = {"client_id": "me", "bootstrap_servers": (("boot", 9092),), **changed}
        self.client = NetworkClient(
            self.transport, clock_ms=self.transport.clock_ms, rng=random.Random(1), settings=NetworkSettings(**given),
            resolve=self.resolve, authenticate=authenticate, cluster_id=cluster_id,
        )  # fmt: skip

    def resolve(self, host: str, port: int) -> list[Address]:
        self.resolved.append(host)
        ips = self.names.get(host, ["10.0.0.1"])
        if not ips:
            raise OSError(-2, "Name or service not known")
        return [Address(socket.AF_INET, (ip, port)) for ip in ips]

    @property
    def now_ms(self) -> int:
        return self.transport.now_ms

    @property
    def key(self) -> int:
        """The connection made last."""
        return self.transport.connects[-1][0]

    @property
    def is_connecting(self) -> bool:
        """Whether the connection made last is neither there nor has it failed: nothing was sent on it."""
        return bool(self.transport.connects) and self.key in self.transport.open and not self.transport.outbox[self.key]

    def poll(self, *events: Event, timeout_ms: int = 0) -> list[ClientResponse]:
        self.transport.events += events
        return self.client.poll(timeout_ms)

    def connect(self, node_id: int = -1) -> int:
        assert not self.client.ready(node_id, self.now_ms)
        self.poll(Connected(self.key))
        return self.key

    def open(self, node_id: int = -1, ranges: dict[int, tuple[int, int]] | None = None) -> int:
        key = self.dial(node_id, ranges=ranges)
        assert self.client.can_send(node_id, self.now_ms)
        return key

    def identify(self, key: int, cluster_id: bytes | None = b"cluster-1") -> list[ClientResponse]:
        """The answer to the last request of the handshake."""
        answer = metadata_answer(correlation_id(self.transport.outbox[key][-1]), cluster_id)
        return self.poll(Sent(key), Received(key, answer))

    def dial(
        self, node_id: int | None = -1, cluster_id: bytes | None = b"cluster-1",
        ranges: dict[int, tuple[int, int]] | None = None,
    ) -> int:  # fmt: skip
        """A connection to a broker of any cluster; None: the one that is being made."""
        key = self.key if node_id is None else self.connect(node_id)
        if not self.transport.outbox[key]:
            self.poll(Connected(key))
        number = correlation_id(self.transport.outbox[key][0])
        self.poll(Sent(key), Received(key, versions_answer(number, self.RANGES if ranges is None else ranges)))
        self.identify(key, cluster_id)
        return key

    def send(self, token: object, node_id: int = -1) -> bytes:
        """The answer to a request that is in flight now."""
        self.client.send(node_id, INIT, self.now_ms, token)
        return init_answer(correlation_id(self.transport.outbox[self.key][-1]))

    def throttle(self, throttle_time_ms: int, node_id: int = -1) -> list[ClientResponse]:
        """By the answer to a request that is sent now over the connection made last."""
        self.send("token", node_id)
        answer = init_answer(correlation_id(self.transport.outbox[self.key][-1]), throttle_time_ms=throttle_time_ms)
        return self.poll(Sent(self.key), Received(self.key, answer))

    def says(self, *words: str) -> None:
        """All of them as the last error."""
        assert [each for each in words if each not in self.client.last_error] == [], self.client.last_error

    def lose(self, key: int, pause_ms: int = 100) -> None:
        """A connection, and wait until it may be made again."""
        self.poll(Disconnected(key, "cut"))
        self.poll(timeout_ms=pause_ms)


def alice(host: str) -> Authentication:
    return authentication("PLAIN", PasswordLogin("alice", "hunter2"), lambda: "nonce")


class SecureWorld(World):
    """Whose brokers authenticate by PLAIN."""

    RANGES = {**World.RANGES, 17: (0, 1), 36: (0, 2)}  # noqa: RUF012

    def __init__(self, **changed: Any) -> None:
        super().__init__(**{"authenticate": alice, **changed})

    def said(self) -> bytes:
        return self.transport.outbox[self.key][-1]

    def answer(self, answer: Any, *more: Any) -> list[ClientResponse]:
        """To the request that the connection sent last."""
        return self.poll(Sent(self.key), Received(self.key, answer(correlation_id(self.said()), *more)))

    def agree(self) -> None:
        """On the mechanism."""
        self.connect()
        self.answer(versions_answer, self.RANGES)
        self.answer(handshake_answer)

    def secure(self, lifetime_ms: int = 0) -> None:
        self.agree()
        assert b"hunter2" in self.said()
        assert not self.client.can_send(-1, self.now_ms)
        self.answer(authenticate_answer, 0, lifetime_ms)
        assert not self.client.can_send(-1, self.now_ms)
        self.answer(metadata_answer)
        assert self.client.can_send(-1, self.now_ms)


def brokers(*ids: int) -> list[Broker]:
    return [Broker(node_id, f"b{node_id}", 9092) for node_id in ids]


def knowing(*ids: int, **changed: Any) -> World:
    """A client that knows these brokers."""
    world = World(**changed)
    world.client.update_brokers(brokers(*ids))
    return world

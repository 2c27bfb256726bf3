"""The two requests to a local cluster, over a plain blocking socket: Metadata and CreateTopics.

They are encoded with `struct`, from Kafka's message definitions (MetadataRequest.json, CreateTopicsRequest.json): the
brokers of tests must not depend on the codec under test. The versions are spoken by brokers from 1.1 to 4.x: KIP-896
removed older versions of CreateTopics.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass

from kafka_sink.broker.errors import LocalClusterUnusable

Address = tuple[str, int]

METADATA, METADATA_VERSION = 3, 4
CREATE_TOPICS, CREATE_TOPICS_VERSION = 19, 3
CORRELATION_ID = 1  # one request on each connection
MAX_ANSWER_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Metadata:
    """The node ids of the brokers, and the leader of each partition of the requested topic (-1: no leader)."""

    brokers: frozenset[int]
    leaders: Mapping[int, int]


def fetch_metadata(address: Address, topic: str | None, timeout_seconds: float) -> Metadata:
    """Ask one broker for metadata. Raises OSError (ConnectionError, TimeoutError) if it does not answer."""
    topics = struct.pack(">i", 0) if topic is None else struct.pack(">i", 1) + _string(topic)
    no_creation = struct.pack(">?", False)
    return _parse_metadata(_ask(address, METADATA, METADATA_VERSION, topics + no_creation, timeout_seconds))


def create_topic(
    address: Address,
    topic: str,
    partitions: int,
    replication_factor: int,
    config: Mapping[str, str],
    timeout_seconds: float,
) -> None:
    """Create a topic. Raises LocalKafkaError with the broker's message if it refuses, OSError if it does not answer."""
    body = b"".join(
        [
            struct.pack(">i", 1),
            _string(topic),
            struct.pack(">ihi", partitions, replication_factor, 0),  # no manual assignment
            struct.pack(">i", len(config)),
            *(_string(name) + _string(value) for name, value in config.items()),
            struct.pack(">i?", int(timeout_seconds * 1000), False),  # not only validated
        ]
    )
    answer = _ask(address, CREATE_TOPICS, CREATE_TOPICS_VERSION, body, timeout_seconds)
    answer.skip(4 + 4)  # throttle time, number of topics
    answer.string()
    error_code, message = answer.int16(), answer.string()
    if error_code:
        raise LocalClusterUnusable(f"topic {topic!r} was not created: error {error_code}, {message or 'no message'}.")


def _parse_metadata(answer: _Reader) -> Metadata:
    answer.skip(4)  # throttle time
    brokers = set()
    for _ in range(answer.int32()):
        brokers.add(answer.int32())
        answer.string()  # host
        answer.int32()  # port
        answer.string()  # rack
    answer.string()  # cluster id
    answer.int32()  # controller id
    leaders: dict[int, int] = {}
    for _ in range(answer.int32()):
        answer.int16()  # error code
        answer.string()  # name
        answer.skip(1)  # is internal
        for _ in range(answer.int32()):
            answer.int16()  # error code
            partition = answer.int32()
            leaders[partition] = answer.int32()
            for _ in ("replicas", "in-sync replicas"):
                answer.skip(4 * answer.int32())
    return Metadata(frozenset(brokers), leaders)


def _ask(address: Address, api_key: int, version: int, body: bytes, timeout_seconds: float) -> _Reader:
    header = struct.pack(">hhi", api_key, version, CORRELATION_ID) + _string("local-kafka")
    until = time.monotonic() + timeout_seconds
    with socket.create_connection(address, timeout_seconds) as connection:
        connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        (size,) = struct.unpack(">i", _receive(connection, 4, until))
        if not 4 <= size <= MAX_ANSWER_BYTES:
            raise ConnectionError(f"an answer of {size} bytes: no broker sends this size")
        answer = _Reader(_receive(connection, size, until))
    answer.skip(4)  # correlation id
    return answer


def _receive(connection: socket.socket, size: int, until: float) -> bytes:
    """Receive `size` bytes. The deadline `until` is for all bytes together."""
    received = bytearray()
    while len(received) < size:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError("no whole answer in time")
        connection.settimeout(left)
        chunk = connection.recv(size - len(received))
        if not chunk:
            break
        received += chunk
    return _exactly(bytes(received), size)


def _exactly(received: bytes, size: int) -> bytes:
    if len(received) != size:
        raise ConnectionError("the broker closed the connection before its answer was complete")
    return received


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


class _Reader:
    """Reads primitive types of Kafka's protocol from the start of an answer."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def int16(self) -> int:
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        return int.from_bytes(self._take(4), "big", signed=True)

    def string(self) -> str | None:
        size = self.int16()
        return None if size < 0 else self._take(size).decode(errors="replace")

    def skip(self, size: int) -> None:
        self._take(size)

    def _take(self, size: int) -> bytes:
        self._at += size
        return _exactly(self._data[self._at - size : self._at], size)

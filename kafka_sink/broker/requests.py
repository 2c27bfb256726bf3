"""The two requests to a local cluster, over a plain blocking socket: Metadata and CreateTopics.

Their versions are spoken by brokers from 1.1 to 4.x: KIP-896 removed older versions of CreateTopics.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from kafka_sink.broker.errors import LocalClusterUnusable
from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.protocol.api import Request
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest, MetadataResponse
from kafka_sink.kafka.protocol.apis.topics import CreateTopicsRequest, CreateTopicsResponse
from kafka_sink.kafka.protocol.requests import decode_response, encode_request

Address = tuple[str, int]
R = TypeVar("R")

METADATA_VERSION, CREATE_TOPICS_VERSION = 4, 3
CORRELATION_ID = 1  # one request on each connection
MAX_ANSWER_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Metadata:
    """The node ids of the brokers, and the leader of each partition of the requested topic (-1: no leader)."""

    brokers: frozenset[int]
    leaders: Mapping[int, int]


def fetch_metadata(address: Address, topic: str | None, timeout_seconds: float) -> Metadata:
    """Ask one broker for metadata. Raises OSError (ConnectionError, TimeoutError) if it does not answer."""
    request = MetadataRequest(() if topic is None else (topic,), allow_auto_topic_creation=False)
    answer = _ask(address, request, METADATA_VERSION, MetadataResponse, timeout_seconds)
    return Metadata(
        frozenset(broker.node_id for broker in answer.brokers),
        {each.partition: each.leader_id for found in answer.topics for each in found.partitions},
    )


def create_topic(
    address: Address,
    topic: str,
    partitions: int,
    replication_factor: int,
    config: Mapping[str, str],
    timeout_seconds: float,
) -> None:
    """Create a topic. Raises LocalKafkaError with the broker's message if it refuses, OSError if it does not answer."""
    request = CreateTopicsRequest(
        topic,
        partitions,
        int(timeout_seconds * 1000),
        replication_factor=replication_factor,
        settings=tuple(config.items()),
    )
    answer = _ask(address, request, CREATE_TOPICS_VERSION, CreateTopicsResponse, timeout_seconds)
    if answer.error_code:
        reason = f"error {answer.error_code}, {answer.error_message or 'no message'}"
        raise LocalClusterUnusable(f"topic {topic!r} was not created: {reason}.")


def _ask(address: Address, request: Request, version: int, of: type[R], timeout_seconds: float) -> R:
    encoded = encode_request(request, version=version, correlation_id=CORRELATION_ID, client_id="local-kafka")
    until = time.monotonic() + timeout_seconds
    with socket.create_connection(address, timeout_seconds) as connection:
        connection.sendall(b"".join(encoded))
        size = int.from_bytes(_receive(connection, 4, until), "big", signed=True)
        if not 4 <= size <= MAX_ANSWER_BYTES:
            raise ConnectionError(f"an answer of {size} bytes: no broker sends this size")
        frame = _receive(connection, size, until)
    try:
        answer = decode_response(request, version, frame)
    except ProtocolError as error:
        raise ConnectionError(str(error)) from error
    assert isinstance(answer, of)
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
            raise ConnectionError("the broker closed the connection before its answer was complete")
        received += chunk
    return bytes(received)

"""Real brokers and the model in their place: what is asked of either goes through one TransactionClient.

Kind ──> real_client: kio's bytes over a socket ──> LocalKafka
     └─> model_client: the same bytes in virtual time ──> a Cluster of one broker
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from kafka_sink.broker import LocalKafka
from model.clients import (
    KAFKA_3_0_VERSIONS,
    NOBODY,
    VERSION_1,
    VERSION_2,
    ByteClient,
    TransactionClient,
    Versions,
    decode_response,
    encode_request,
    transaction_client,
)
from model.cluster import Cluster
from model.settings import (
    KAFKA_2_1,
    KAFKA_2_8,
    KAFKA_3_0,
    KAFKA_3_9,
    KAFKA_4,
    ClusterSettings,
    Generation,
    TransactionSettings,
)

DEADLINE_S = 20
POLL_S = 0.005
# Real brokers are told to look for old transactions more often than every 10 s, and the model with them.
SWEEP_MS = 500
BROKER_CONFIG = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": SWEEP_MS}

# One request's frame without its length, and the answer's; None: the broker closed the connection.
Ask = Callable[[bytes], bytes | None]


class Kind(NamedTuple):
    """A broker, what the model has for it, and how its clients speak unless they are told otherwise."""

    kafka_version: str
    generation: Generation
    versions: Versions


KINDS = {
    "4.3.1, version 2": Kind("4.3.1", KAFKA_4, VERSION_2),
    "4.3.1, version 1": Kind("4.3.1", KAFKA_4, VERSION_1),
    "3.9.2, version 1": Kind("3.9.2", KAFKA_3_9, VERSION_1),
    "3.0.2, version 1": Kind("3.0.2", KAFKA_3_0, KAFKA_3_0_VERSIONS),
    "2.8.2": Kind("2.8.2", KAFKA_2_8, KAFKA_3_0_VERSIONS),
    "2.1.1": Kind("2.1.1", KAFKA_2_1, KAFKA_3_0_VERSIONS._replace(produce=7)),
}


def address_of(kafka: LocalKafka) -> tuple[str, int]:
    host, port = kafka.bootstrap_servers.split(",")[0].rsplit(":", 1)
    return host, int(port)


class BrokerConnection:
    """To a real broker, for one request at a time: an `Ask`. One that the broker closed is replaced by the next."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._socket: socket.socket | None = None

    def __call__(self, frame: bytes) -> bytes | None:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=DEADLINE_S)
        self._socket.sendall(len(frame).to_bytes(4, "big") + frame)
        try:
            size = self._read(4)
            answer = self._read(int.from_bytes(size, "big")) if size else b""
        except ConnectionResetError:
            answer = b""
        if not answer:
            self.close()
        return answer or None

    def _read(self, size: int) -> bytes:
        """Empty at the end of the stream."""
        assert self._socket is not None
        received = bytearray()
        while len(received) < size:
            piece = self._socket.recv(size - len(received))
            if not piece:
                return b""
            received += piece
        return bytes(received)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def real_client(ask: Ask, versions: Versions) -> TransactionClient:
    def call(node_id: int, api_key: int, version: int, message: Any) -> Any:
        frame = ask(encode_request(api_key, version, 1, message))
        assert frame is not None, f"{type(message).__name__} {version} ended the connection"
        return decode_response(api_key, version, frame)[1]

    # A client that is told to come again has nothing to wait for but time; on the model that is virtual.
    return TransactionClient(call, lambda topic, partition: 1, lambda: time.sleep(POLL_S), versions)


def model_client(kind: Kind) -> tuple[TransactionClient, ByteClient]:
    settings = ClusterSettings(
        generation=kind.generation,
        transactions=TransactionSettings(transaction_abort_timed_out_cleanup_interval_ms=SWEEP_MS),
    )
    client = ByteClient(Cluster(node_ids=(0,), rng=random.Random(1), settings=settings))
    client.run(1_000)
    transactions = transaction_client(client, kind.versions)
    transactions.leader_of = lambda topic, partition: 0
    return transactions, client


def wait_until_led(client: TransactionClient, topic: str, partitions: int) -> None:
    """A new topic's leader does not know at once that it is. Leaves one record in each partition."""
    deadline = time.monotonic() + DEADLINE_S
    for partition in range(partitions):
        while client.produce(None, NOBODY, topic, partition, base_sequence=-1, is_transactional=False):
            assert time.monotonic() < deadline, f"{topic}-{partition} has no leader"
            # The broker does not tell when it has learned of it.
            client.pause()

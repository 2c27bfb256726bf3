"""A client for the model's tests: requests as bytes by kio, record batches by kafka-python, answers read by kio.

Its only state is its connection and correlation ids. The test decides about all requests and retries.
"""

from __future__ import annotations

import io
import random
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import kio.serial
from kafka.record.default_records import DefaultRecordBatchBuilder

from model.cluster import Cluster
from model.record_batches import RecordBatch, decode_records
from model.settings import INIT_PRODUCER_ID, METADATA, PRODUCE, ClusterSettings
from model.wire import build, request_of, response_type


def record_batch(
    *values: bytes, producer_id: int = -1, producer_epoch: int = -1, base_sequence: int = -1, timestamp_ms: int = 0,
    is_transactional: int = 0,
) -> bytes:  # fmt: skip
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=is_transactional, producer_id=producer_id,
        producer_epoch=producer_epoch, base_sequence=base_sequence, batch_size=10**9,
    )  # fmt: skip
    for offset, value in enumerate(values):
        builder.append(offset, timestamp=timestamp_ms, key=None, value=value, headers=[])
    return bytes(builder.build())


def encode_request(api_key: int, version: int, correlation_id: int, message: Any) -> bytes:
    """A frame without its length."""
    header_type = type(message).__header_schema__
    header = build(
        header_type, request_api_key=api_key, request_api_version=version, correlation_id=correlation_id,
        client_id="test",
    )  # fmt: skip
    buffer = io.BytesIO()
    kio.serial.entity_writer(header_type)(buffer, header)
    kio.serial.entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def decode_response(api_key: int, version: int, frame: bytes) -> tuple[int, Any]:
    """Correlation id and message."""
    message_type = response_type(api_key, version)
    header, size = kio.serial.entity_reader(message_type.__header_schema__)(frame, 0)
    message, message_size = kio.serial.entity_reader(message_type)(frame, size)
    assert size + message_size == len(frame)
    return header.correlation_id, message


@dataclass(frozen=True, slots=True)
class Answer:
    """One partition's part of a Produce answer."""

    code: int
    base_offset: int


def values_of(batches: Sequence[RecordBatch]) -> list[bytes | None]:
    return [value for batch in batches for _, value, _, _ in decode_records(batch.data)]


@dataclass
class ByteClient:
    """Over one connection to each broker; a connection that ended is replaced by the next request."""

    cluster: Cluster
    produce_version: int = 13
    answers: dict[int, Any] = field(default_factory=dict)
    closed: list[int] = field(default_factory=list)
    _connections: dict[int, int] = field(default_factory=dict)
    _waiting: dict[int, tuple[int, int]] = field(default_factory=dict)
    _correlation_id: int = 0
    _next_connection: int = 0

    def send(self, node_id: int, api_key: int, version: int, message: Any) -> int:
        """Send a request; return its correlation id, which is the key of the later answer in `answers`."""
        self._correlation_id += 1
        self._waiting[self._correlation_id] = (api_key, version)
        frame = encode_request(api_key, version, self._correlation_id, message)
        self.cluster.receive(node_id, self.connection(node_id), frame, self.cluster.now_ms)
        self.collect()
        return self._correlation_id

    def connection(self, node_id: int) -> int:
        if node_id not in self._connections:
            self._next_connection += 1
            self._connections[node_id] = self._next_connection
        return self._connections[node_id]

    def disconnect(self, node_id: int) -> None:
        self.cluster.disconnected(node_id, self._connections.pop(node_id))

    def reconnect(self, node_id: int) -> None:
        """Use another connection from now on. Requests of the old one are still answered."""
        self._connections.pop(node_id, None)

    def run(self, duration_ms: int) -> None:
        self.cluster.advance(self.cluster.now_ms + duration_ms)
        self.collect()

    def run_until(self, condition: Callable[[], bool], limit_ms: int = 10_000) -> None:
        """Lets time pass a ms at a time, until `condition` holds."""
        end_ms = self.cluster.now_ms + limit_ms
        while not condition():
            assert self.cluster.now_ms < end_ms, f"not within {limit_ms} ms"
            self.run(1)

    def collect(self) -> None:
        for outgoing in self.cluster.take_outgoing():
            if outgoing.frame is None:
                self.closed.append(outgoing.node_id)
                self._connections.pop(outgoing.node_id, None)
                continue
            correlation_id = int.from_bytes(outgoing.frame[:4], "big")
            api_key, version = self._waiting.pop(correlation_id)
            _, self.answers[correlation_id] = decode_response(api_key, version, outgoing.frame)

    def produce(
        self, node_id: int, batches: dict[tuple[str, int], bytes], *, acks: int = -1, timeout_ms: int = 30_000,
        topic_id: uuid.UUID | None = None,
    ) -> int:  # fmt: skip
        """`topic_id` instead of the id that the topic has now."""
        topics: dict[str, list[Any]] = {}
        for (topic, partition), records in batches.items():
            topics.setdefault(topic, []).append({"index": partition, "records": records})
        message = request_of(
            PRODUCE, self.produce_version, transactional_id=None, acks=acks, timeout=timedelta(milliseconds=timeout_ms),
            topic_data=tuple(
                {"name": name, "topic_id": topic_id or self.cluster.topic_id(name), "partition_data": partitions}
                for name, partitions in topics.items()
            ),
        )  # fmt: skip
        return self.send(node_id, PRODUCE, self.produce_version, message)

    def produced(self, correlation_id: int) -> dict[int, Answer] | None:
        message = self.answers.get(correlation_id)
        if message is None:
            return None
        return {
            partition.index: Answer(int(partition.error_code), partition.base_offset)
            for topic in message.responses
            for partition in topic.partition_responses
        }

    def code(self, correlation_id: int, partition: int = 0) -> int | None:
        """The partition's error code; None while there is no answer."""
        answer = self.produced(correlation_id)
        return answer[partition].code if answer is not None else None

    def committed(self, topic: str = "t", partition: int = 0) -> list[bytes | None]:
        return values_of(self.cluster.committed(topic, partition))

    def log_of(self, node_id: int, topic: str = "t", partition: int = 0) -> list[bytes | None]:
        replica = self.cluster.replica(topic, partition, node_id)
        return values_of(replica.log.batches) if replica is not None else []

    def init_producer_id(self, node_id: int) -> int:
        timeout = timedelta(seconds=60)
        message = request_of(INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout=timeout)
        return int(self.answers[self.send(node_id, INIT_PRODUCER_ID, 4, message)].producer_id)

    def metadata(self, node_id: int, topics: Sequence[str] | None, version: int = 12) -> Any:
        return self.answers[self.send(node_id, METADATA, version, self.metadata_request(topics, version))]

    def metadata_request(self, topics: Sequence[str] | None, version: int) -> Any:
        asked = None if topics is None else tuple({"topic_id": None, "name": name} for name in topics)
        return request_of(
            METADATA, version, topics=asked, include_topic_authorized_operations=False,
            include_cluster_authorized_operations=False,
        )  # fmt: skip


def client_of(nodes: int = 3, seed: int = 1, **settings: Any) -> ByteClient:
    """Of a new cluster with brokers 0, 1, ... and these settings."""
    cluster = Cluster(node_ids=range(nodes), rng=random.Random(seed), settings=ClusterSettings(**settings))
    return ByteClient(cluster)


def client_of_topic(
    replication_factor: int, min_insync_replicas: int, *, partitions: int = 1, nodes: int = 3, seed: int = 1,
    **settings: Any,
) -> ByteClient:  # fmt: skip
    """The same with a topic "t", whose partition 0 broker 0 leads, known to every broker."""
    client = client_of(nodes, seed, **settings)
    client.cluster.create_topic("t", partitions, replication_factor, min_insync_replicas)
    client.run(2_000)
    return client

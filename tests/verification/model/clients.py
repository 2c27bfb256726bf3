"""Clients for tests of the model and of real brokers: each call is a request, its answer as data.

`ByteClient` talks to the model: requests as bytes by kio, record batches by kafka-python, answers read by kio.
`TransactionClient` and `ReadClient` talk to either, by `call`, which sends one message to a broker and waits for the
answer. They know their connections, correlation ids and coordinators, and nothing else: the test passes the ids, epochs
and offsets of each request and decides about retries, so a client can also act as a zombie.
"""

import io
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

import kio.serial
from kafka.record.default_records import DefaultRecordBatchBuilder

from model import settings as api
from model.cluster import Cluster
from model.partition_log import EpochAndOffset
from model.read_apis import NO_EPOCH, FoundOffset
from model.read_journal import Isolation
from model.record_batches import RecordBatch, decode_records
from model.settings import ClusterSettings
from model.wire import build, by_topic, request_of, response_type


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


def produce_request(
    version: int, batches: Mapping[tuple[str, int], bytes], topic_ids: Mapping[str, uuid.UUID | None], *, acks: int,
    transactional_id: str | None = None, timeout_ms: int = 10_000,
) -> Any:  # fmt: skip
    told = ((topic, {"index": partition, "records": records}) for (topic, partition), records in batches.items())
    topics = by_topic(told, listed="partition_data")
    return request_of(
        api.PRODUCE, version, transactional_id=transactional_id, acks=acks, timeout=timedelta(milliseconds=timeout_ms),
        topic_data=[{**each, "topic_id": topic_ids.get(each["name"])} for each in topics],
    )  # fmt: skip


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

    def call(self, node_id: int, api_key: int, version: int, message: Any) -> Any:
        sent = self.send(node_id, api_key, version, message)
        self.run_until(lambda: sent in self.answers, limit_ms=60_000)
        return self.answers[sent]

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
        topic_ids = {topic: topic_id or self.cluster.topic_id(topic) for topic, _ in batches}
        message = produce_request(self.produce_version, batches, topic_ids, acks=acks, timeout_ms=timeout_ms)
        return self.send(node_id, api.PRODUCE, self.produce_version, message)

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

    def metadata(self, node_id: int, topics: Sequence[str] | None, version: int = 12) -> Any:
        asked = None if topics is None else tuple({"topic_id": None, "name": name} for name in topics)
        message = request_of(
            api.METADATA, version, topics=asked, include_topic_authorized_operations=False,
            include_cluster_authorized_operations=False,
        )  # fmt: skip
        return self.answers[self.send(node_id, api.METADATA, version, message)]


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


GROUP, TRANSACTION = 0, 1
# Of a coordinator that is not there yet, or of an id that is busy.
COMES_TO_PASS = frozenset({14, 15, 16, 51})
# The first version of OffsetFetch that asks for several groups (KIP-709).
SEVERAL_GROUPS = 8
# Of EndTxn, which ends transactions of version 2.
VERSION_2_END = 5


# Of Produce: version 1 of transactions, Kafka 3.0, and version 2.
VERSION_1, KAFKA_3_0_VERSION, VERSION_2 = 11, 9, 12


class Producer(NamedTuple):
    producer_id: int
    producer_epoch: int


NOBODY = Producer(-1, -1)


class Produced(NamedTuple):
    """One partition's part of a Produce answer; -1 for an offset that it does not tell."""

    code: int
    base_offset: int
    log_start_offset: int


@dataclass
class TransactionClient:
    """`call(node_id, api_key, version, message)` returns kio's answer; `pause` lets some time pass."""

    call: Callable[[int, int, int, Any], Any]
    leader_of: Callable[[str, int], int]
    pause: Callable[[], None]
    produce_version: int = VERSION_2
    _coordinators: dict[tuple[int, str | None], int] = field(default_factory=dict)

    def ask(self, node_id: int, api_key: int, version: int, **fields: Any) -> Any:
        return self.call(node_id, api_key, version, request_of(api_key, version, **fields))

    def find_coordinator(self, key: str | None, key_type: int = TRANSACTION, version: int = 4) -> tuple[int, int]:
        asked = {"key": key, "key_type": key_type, "coordinator_keys": (key,)}
        answer = self.ask(self.leader_of("", 0), api.FIND_COORDINATOR, version, **asked)
        found = answer.coordinators[0] if version >= 4 else answer
        return int(found.error_code), int(found.node_id)

    def coordinator(self, key: str | None, key_type: int = TRANSACTION) -> int:
        """Asked for once."""
        while (key_type, key) not in self._coordinators:
            code, node_id = self.find_coordinator(key, key_type)
            if code == 0:
                self._coordinators[key_type, key] = node_id
            else:
                assert code in COMES_TO_PASS, code
                self.pause()
        return self._coordinators[key_type, key]

    def try_init(
        self, transactional_id: str | None, *, timeout_ms: int = 60_000, expected: Producer = NOBODY, version: int = 4
    ) -> tuple[int, Producer]:
        answer = self.ask(
            self.coordinator(transactional_id), api.INIT_PRODUCER_ID, version, transactional_id=transactional_id,
            transaction_timeout=timedelta(milliseconds=timeout_ms), **expected._asdict(),
        )  # fmt: skip
        return int(answer.error_code), Producer(int(answer.producer_id), int(answer.producer_epoch))

    def init(self, transactional_id: str) -> Producer:
        while (found := self.try_init(transactional_id))[0]:
            assert found[0] in COMES_TO_PASS, found
            self.pause()
        return found[1]

    def produce(
        self, transactional_id: str | None, producer: Producer, topic: str, partition: int = 0, *,
        base_sequence: int = 0, values: Sequence[bytes] = (b"v",), is_transactional: bool = True,
    ) -> int:  # fmt: skip
        """The partition's code."""
        records = record_batch(
            *values, base_sequence=base_sequence, is_transactional=is_transactional, **producer._asdict()
        )
        return self.append(transactional_id, records, topic, partition).code

    def append(
        self, transactional_id: str | None, records: bytes, topic: str, partition: int = 0, *, acks: int = -1,
        version: int | None = None, topic_id: uuid.UUID | None = None,
    ) -> Produced:  # fmt: skip
        """Produce of any bytes. `topic_id`: from version 13 on, instead of the name."""
        version = version if version is not None else self.produce_version
        message = produce_request(
            version, {(topic, partition): records}, {topic: topic_id}, acks=acks, transactional_id=transactional_id
        )
        answer = self.call(self.leader_of(topic, partition), api.PRODUCE, version, message)
        produced = answer.responses[0].partition_responses[0]
        return Produced(
            int(produced.error_code), int(produced.base_offset), int(getattr(produced, "log_start_offset", -1))
        )

    def write(self, transactional_id: str, producer: Producer, topic: str, **fields: Any) -> None:
        """`produce` of version 2, and again while the transaction before is completed."""
        while code := self.produce(transactional_id, producer, topic, **fields):
            assert code in COMES_TO_PASS, code
            self.pause()

    def end(
        self, transactional_id: str, producer: Producer, is_commit: bool, *, version: int = VERSION_2_END
    ) -> tuple[int, Producer | None]:
        """Code, and what goes on; None where EndTxn does not say, and after an error."""
        ids = {"transactional_id": transactional_id, "committed": is_commit, **producer._asdict()}
        answer = self.ask(self.coordinator(transactional_id), api.END_TXN, version, **ids)
        code = int(answer.error_code)
        is_told = not code and version >= VERSION_2_END
        return code, Producer(int(answer.producer_id), int(answer.producer_epoch)) if is_told else None

    def end_surely(self, transactional_id: str, producer: Producer, is_commit: bool) -> Producer:
        """Repeat EndTxn until the coordinator is available and the markers of an earlier end are written."""
        while (ended := self.end(transactional_id, producer, is_commit))[0] in COMES_TO_PASS:
            self.pause()
        assert ended[1] is not None, ended
        return ended[1]

    def commit_offset(
        self, api_key: int, version: int, group: str, topic: str, offset: int, *, partition: int = 0,
        metadata: str | None = "", generation: int = -1, member_id: str = "", **fields: Any,
    ) -> int:  # fmt: skip
        """The partition's code of OffsetCommit; or of TxnOffsetCommit, with its ids in `fields`."""
        asked = {
            "partition_index": partition, "committed_offset": offset, "committed_leader_epoch": -1,
            "committed_metadata": metadata,
        }  # fmt: skip
        answer = self.ask(
            self.coordinator(group, GROUP), api_key, version, group_id=group, member_id=member_id,
            generation_id=generation, generation_id_or_member_epoch=generation, group_instance_id=None,
            topics=({"name": topic, "partitions": (asked,)},), **fields,
        )  # fmt: skip
        return int(answer.topics[0].partitions[0].error_code)

    def commit_offset_surely(self, version: int, *args: Any, **fields: Any) -> int:
        while (code := self.commit_offset(api.OFFSET_COMMIT, version, *args, **fields)) in COMES_TO_PASS:
            self.pause()
        return code

    def fetch_group(
        self, group: str, topic: str | None, *, partition: int = 0, require_stable: bool = True, version: int
    ) -> tuple[int, tuple[tuple[Any, ...], ...]]:
        """OffsetFetch of one group, in any version from 2 on, once: its code, and of each partition topic, number,
        code, offset and metadata. `topic`: None for all that the group has."""
        several = version >= SEVERAL_GROUPS
        topics = None if topic is None else ({"name": topic, "partition_indexes": (partition,)},)
        asked: dict[str, Any] = {"group_id": group, "topics": topics, "member_id": None}
        fields = {"groups": (asked,)} if several else asked
        answer = self.ask(
            self.coordinator(group, GROUP), api.OFFSET_FETCH, version, **fields, require_stable=require_stable
        )
        fetched = answer.groups[0] if several else answer
        return int(fetched.error_code), tuple(
            (found.name, each.partition_index, int(each.error_code), each.committed_offset, each.metadata)
            for found in fetched.topics
            for each in found.partitions
        )

    def describe(self, transactional_id: str) -> Any:
        """What kio reads of it."""
        asked = {"transactional_ids": (transactional_id,)}
        answer = self.ask(self.coordinator(transactional_id), api.DESCRIBE_TRANSACTIONS, 0, **asked)
        (state,) = answer.transaction_states
        return state


def transaction_client(client: ByteClient, produce_version: int = VERSION_2) -> TransactionClient:
    cluster = client.cluster

    def leader_of(topic: str, partition: int) -> int:
        leader = cluster.leader(topic, partition) if cluster.topic_id(topic) is not None else None
        return leader if leader is not None else cluster.controller.image.alive[0]

    return TransactionClient(client.call, leader_of, lambda: client.run(1), produce_version)


READ_COMMITTED, READ_UNCOMMITTED = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED
NEWEST_FETCH, NEWEST_LIST_OFFSETS, FIRST_FETCH_BY_ID = 18, 11, 13
CONSUMER, NO_SESSION = -1, -1
# More than anything that a test writes.
PLENTY = 2**31 - 1


class Wanted(NamedTuple):
    """One partition of a Fetch."""

    topic: str
    partition: int = 0
    offset: int = 0
    max_bytes: int = PLENTY
    current_leader_epoch: int = NO_EPOCH
    last_fetched_epoch: int = NO_EPOCH
    topic_id: uuid.UUID | None = None


class Got(NamedTuple):
    """One partition of its answer. `topic`: name or id, whichever the answer has. `aborted`: producer id and first
    offset of each; None for none told. What a version does not tell is -1."""

    topic: Any
    partition: int
    code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...] | None
    preferred_read_replica: int
    diverging: EpochAndOffset
    current_leader: tuple[int, int]
    records: bytes


class FetchAnswer(NamedTuple):
    code: int
    throttle_time_ms: int
    partitions: tuple[Got, ...]


@dataclass
class ReadClient:
    """`call(node_id, api_key, version, message)` returns kio's answer. `topic_id_of`: for requests that name no id."""

    call: Callable[[int, int, int, Any], Any]
    topic_id_of: Callable[[str], uuid.UUID | None] = lambda topic: None

    def fetch(
        self, node_id: int, wanted: Sequence[Wanted], *, version: int = NEWEST_FETCH, **limits: Any
    ) -> FetchAnswer:
        named = [each._replace(topic_id=each.topic_id or self.topic_id_of(each.topic)) for each in wanted]
        message = fetch_request(named, version=version, **limits)
        return fetch_answer(self.call(node_id, api.FETCH, version, message))

    def fetch_one(self, node_id: int, topic: str, offset: int = 0, partition: int = 0, **fields: Any) -> Got:
        """Of one partition; `fields` of `Wanted` and of the request."""
        of_partition = {name: fields.pop(name) for name in Wanted._fields if name in fields}
        (got,) = self.fetch(node_id, [Wanted(topic, partition, offset, **of_partition)], **fields).partitions
        return got

    def list_offset(
        self, node_id: int, topic: str, timestamp: int, partition: int = 0, *, isolation: Isolation = READ_UNCOMMITTED,
        current_leader_epoch: int = NO_EPOCH, version: int = NEWEST_LIST_OFFSETS,
    ) -> tuple[int, FoundOffset]:  # fmt: skip
        asked = {
            "partition_index": partition, "timestamp": timestamp, "current_leader_epoch": current_leader_epoch
        }  # fmt: skip
        message = request_of(
            api.LIST_OFFSETS, version, replica_id=CONSUMER, isolation_level=int(isolation),
            topics=({"name": topic, "partitions": (asked,)},), timeout=timedelta(seconds=10),
        )  # fmt: skip
        answer = self.call(node_id, api.LIST_OFFSETS, version, message)
        (found,) = answer.topics[0].partitions
        return int(found.error_code), FoundOffset(int(found.timestamp), int(found.offset), int(found.leader_epoch))


def fetch_request(
    wanted: Sequence[Wanted], *, version: int = NEWEST_FETCH, isolation: Isolation = READ_UNCOMMITTED,
    max_wait_ms: int = 0, min_bytes: int = 1, max_bytes: int = PLENTY, rack: str = "", session_epoch: int = NO_SESSION,
) -> Any:  # fmt: skip
    topics: dict[Any, list[Any]] = {}
    for each in wanted:
        topics.setdefault((each.topic, each.topic_id), []).append({
            "partition": each.partition, "fetch_offset": each.offset, "partition_max_bytes": each.max_bytes,
            "current_leader_epoch": each.current_leader_epoch, "last_fetched_epoch": each.last_fetched_epoch,
        })  # fmt: skip
    asked = ({"topic": name, "topic_id": its_id, "partitions": each} for (name, its_id), each in topics.items())
    return request_of(
        api.FETCH, version, max_wait=timedelta(milliseconds=max_wait_ms), min_bytes=min_bytes, max_bytes=max_bytes,
        isolation_level=int(isolation), session_epoch=session_epoch, forgotten_topics_data=(), rack_id=rack,
        topics=tuple(asked),
    )  # fmt: skip


def fetch_answer(message: Any) -> FetchAnswer:
    return FetchAnswer(
        int(getattr(message, "error_code", 0)),
        round(message.throttle_time.total_seconds() * 1_000),
        tuple(
            _got(topic.topic_id if hasattr(topic, "topic_id") else topic.topic, partition)
            for topic in message.responses
            for partition in topic.partitions
        ),
    )


def _got(topic: Any, partition: Any) -> Got:
    aborted = partition.aborted_transactions
    diverging, leader = getattr(partition, "diverging_epoch", None), getattr(partition, "current_leader", None)
    return Got(
        topic, int(partition.partition_index), int(partition.error_code), int(partition.high_watermark),
        int(partition.last_stable_offset), int(getattr(partition, "log_start_offset", -1)),
        None if aborted is None else tuple((int(each.producer_id), int(each.first_offset)) for each in aborted),
        int(getattr(partition, "preferred_read_replica", -1)),
        EpochAndOffset(int(diverging.epoch), int(diverging.end_offset)) if diverging else EpochAndOffset(-1, -1),
        (int(leader.leader_id), int(leader.leader_epoch)) if leader else (-1, -1),
        bytes(partition.records or b""),
    )  # fmt: skip


def read_client(client: ByteClient) -> ReadClient:
    return ReadClient(client.call, client.cluster.topic_id)

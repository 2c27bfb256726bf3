"""Plays a trace to one broker, or to the model in its place, and translates the names in steps to ids there.

    Kind ──> real_client: kio's bytes over a socket ──> LocalKafka
         └─> model_client: the same bytes in virtual time ──> a Cluster of one broker

Steps name what brokers make up by the order in which it was seen. A producer is a `Who`: the place of its producer id
among those that were handed out, and its epoch. A topic is a slot and, for its id, the how-manieth of that name;
transactional ids and groups are slots. So a step means the same everywhere, and its answer is told in the same words.
"""

import random
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from kafka_sink.broker import LocalKafka
from model import clients
from model import settings as api
from model.cluster import Cluster
from model.settings import ClusterSettings, Generation
from model.wire import build, kio_module

DEADLINE_S = 20
POLL_S = 0.005
# Real brokers are told to look for old transactions more often than every 10 s, and the model with them.
SWEEP_MS = 500
BROKER_CONFIG = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": SWEEP_MS}

# One request's frame without its length, and the answer's; None: the broker closed the connection.
Ask = Callable[[bytes], bytes | None]


class Kind(NamedTuple):
    """A broker, what the model has for it, and the version of Produce unless a step says another."""

    kafka_version: str
    generation: Generation
    produce_version: int


KINDS = {
    "4.3.1, version 2": Kind("4.3.1", api.KAFKA_4, clients.VERSION_2),
    "4.3.1, version 1": Kind("4.3.1", api.KAFKA_4, clients.VERSION_1),
    "3.9.2, version 1": Kind("3.9.2", api.KAFKA_3_9, clients.VERSION_1),
    "3.0.2, version 1": Kind("3.0.2", api.KAFKA_3_0, clients.KAFKA_3_0_VERSION),
    "2.8.2": Kind("2.8.2", api.KAFKA_2_8, clients.KAFKA_3_0_VERSION), "2.1.1": Kind("2.1.1", api.KAFKA_2_1, 7),
}  # fmt: skip


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


def real_client(ask: Ask, produce_version: int) -> clients.TransactionClient:
    def call(node_id: int, api_key: int, version: int, message: Any) -> Any:
        frame = ask(clients.encode_request(api_key, version, 1, message))
        assert frame is not None, f"{type(message).__name__} {version} ended the connection"
        return clients.decode_response(api_key, version, frame)[1]

    # A client that is told to come again has nothing to wait for but time; on the model that is virtual.
    return clients.TransactionClient(call, lambda topic, partition: 1, lambda: time.sleep(POLL_S), produce_version)


def model_client(kind: Kind) -> tuple[clients.TransactionClient, clients.ByteClient]:
    settings = ClusterSettings(generation=kind.generation, transaction_abort_timed_out_cleanup_interval_ms=SWEEP_MS)
    client = clients.ByteClient(Cluster(node_ids=(0,), rng=random.Random(1), settings=settings))
    client.run(1_000)
    transactions = clients.transaction_client(client, kind.produce_version)
    transactions.leader_of = lambda topic, partition: 0
    return transactions, client


def wait_until_led(client: clients.TransactionClient, topic: str, partitions: int) -> None:
    """A new topic's leader does not know at once that it is. Leaves one record in each partition."""
    deadline = time.monotonic() + DEADLINE_S
    for partition in range(partitions):
        while client.produce(
            None, clients.Producer(-1, -1), topic, partition, base_sequence=-1, is_transactional=False
        ):
            assert time.monotonic() < deadline, f"{topic}-{partition} has no leader"
            # The broker does not tell when it has learned of it.
            client.pause()


MAX_MESSAGE_BYTES = 1_000
# So small that logs of a few batches have an index.
INDEX_INTERVAL_BYTES = 200
# Timestamps of records are that far ahead of the markers', and of each other: order never depends on clocks.
AHEAD_MS, APART_MS = 60_000, 10
# Slots of what nobody ever made, and of what has no name.
UNKNOWN, EMPTY = -1, -2
# Places of the producer id -1, and of one that no broker has handed out.
NO_ONE, NOBODY_ELSE = -1, -2
# Slot of a group by which the end of a deletion is seen.
_WATCH = 2
_ID_OF_NOBODY_ELSE = 10**12
_UNKNOWN_TOPIC_ID = UUID(int=4711)
# Twenty seconds of a real broker, at 5 ms each.
_MOST_PAUSES = 4_000


class Who(NamedTuple):
    place: int
    producer_epoch: int


NOBODY = Who(NO_ONE, -1)


class Topics(Protocol):
    """Makes topics, with MAX_MESSAGE_BYTES and INDEX_INTERVAL_BYTES, and deletes them: on a broker or in the model."""

    def create(self, name: str, partitions: int) -> None: ...

    def delete(self, name: str) -> None: ...


class OneBroker(clients.TransactionClient):
    """Of a cluster of one, whose coordinators are there; for what has no name, no broker could be found."""

    def coordinator(self, key: str | None, key_type: int = clients.TRANSACTION) -> int:
        return self.leader_of("", 0)


@dataclass
class Player:
    """One trace on one broker. `generation`: what the model has for it. `name` begins every name of the trace.
    `now_ms`: by the broker's clock."""

    generation: Generation
    client: OneBroker
    topics: Topics
    name: str
    now_ms: Callable[[], int]
    _seen: list[int] = field(default_factory=list)
    _timestamps: list[int] = field(default_factory=list)
    _topic_ids: dict[tuple[int, int], UUID] = field(default_factory=dict)

    def topic(self, slot: int) -> str:
        return self._named("t", slot)

    def transactional_id(self, slot: int) -> str:
        return self._named("x", slot)

    def group(self, slot: int) -> str:
        return self._named("g", slot)

    def _named(self, what: str, slot: int) -> str:
        if slot == EMPTY:
            return ""
        return f"{self.name}-{what}{slot}" if slot >= 0 else f"{self.name}-{what}-unknown"

    @property
    def reader(self) -> clients.ReadClient:
        return clients.ReadClient(self.client.call)

    def topic_id(self, slot: int, generation: int) -> UUID:
        return self._topic_ids.get((slot, generation), _UNKNOWN_TOPIC_ID)

    def producer(self, who: Who) -> clients.Producer:
        if who.place == NO_ONE:
            return clients.Producer(-1, who.producer_epoch)
        return clients.Producer(self._seen[who.place] if who.place >= 0 else _ID_OF_NOBODY_ELSE, who.producer_epoch)

    def who(self, producer: clients.Producer) -> Who:
        if producer.producer_id < 0:
            return Who(NO_ONE, producer.producer_epoch)
        if producer.producer_id not in self._seen:
            self._seen.append(producer.producer_id)
        return Who(self._seen.index(producer.producer_id), producer.producer_epoch)

    def next_timestamp(self) -> int:
        """Of the next batch: in ms, and later than all before."""
        after = self._timestamps[-1] + APART_MS if self._timestamps else 0
        self._timestamps.append(max(after, self.now_ms() + AHEAD_MS))
        return self._timestamps[-1]

    def timestamp(self, number: int) -> int:
        """Of the batch of that number."""
        return self._timestamps[number]

    def number_of(self, timestamp: int) -> int | None:
        """The number of the batch; None for a timestamp of a marker. None at all (-1) and 1970 (0) are told so."""
        if timestamp <= 0:
            return timestamp
        return self._timestamps.index(timestamp) if timestamp in self._timestamps else None

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        for _ in range(_MOST_PAUSES):
            if condition():
                return
            self.client.pause()
        raise AssertionError(f"not within {_MOST_PAUSES} looks: {what}")

    def wait_while(self, slot: int, *states: str) -> None:
        """As long as a transactional id is in one of `states`."""
        x = self.transactional_id(slot)
        self.wait_until(lambda: self.client.describe(x).transaction_state not in states, f"{x} is not in {states}")

    def settle(self, slot: int) -> None:
        """Until the coordinator has completed what was ended."""
        self.wait_while(slot, "PrepareCommit", "PrepareAbort")

    def begin(self, partitions: Mapping[int, int]) -> None:
        """With a topic of so many partitions for each slot, and coordinators that are there."""
        for slot, count in partitions.items():
            self.create(slot, count, generation=0)
        for key_type, key in ((clients.TRANSACTION, self.transactional_id(0)), (clients.GROUP, self.group(0))):
            self.wait_until(partial(self._is_coordinated, key, key_type), f"a coordinator of {key}")
        for slot in (0, 1, UNKNOWN):
            if self.generation.describes_transactions:
                self.wait_until(partial(self._is_described, slot), "transactions that are loaded")
            self.wait_until(partial(self._is_loaded, self.group(slot)), "offsets that are loaded")

    def _is_coordinated(self, key: str, key_type: int) -> bool:
        code, _ = self.client.find_coordinator(key, key_type, self._newest(api.FIND_COORDINATOR))
        return code == 0

    def _is_described(self, slot: int) -> bool:
        return self.client.describe(self.transactional_id(slot)).error_code not in clients.COMES_TO_PASS

    def _is_loaded(self, group: str) -> bool:
        code, _ = self.client.fetch_group(group, None, version=self._newest(api.OFFSET_FETCH))
        return code not in clients.COMES_TO_PASS

    def _newest(self, api_key: int) -> int:
        return self.generation.api_versions[api_key][1]

    def create(self, slot: int, partitions: int, generation: int) -> None:
        name = self.topic(slot)
        self.topics.create(name, partitions)
        wait_until_led(self.client, name, partitions)
        if self.generation.has_topic_ids:
            self._topic_ids[slot, generation] = self.metadata(self._newest(api.METADATA), name).topic_id

    def delete(self, slot: int) -> None:
        name, watch = self.topic(slot), self.group(_WATCH)
        self.client.commit_offset_surely(self._newest(api.OFFSET_COMMIT), watch, name, 0)
        self.topics.delete(name)
        self.wait_until(
            lambda: bool(self.metadata(self._newest(api.METADATA), name).error_code == 3), f"{name} is gone"
        )
        # A coordinator drops the topic's offsets a little later, and groups that have none left.
        for group in (self.group(0), self.group(1), watch):
            self.wait_until(partial(self._is_without, group, name), f"{group} has no offsets on {name}")

    def _is_without(self, group: str, topic: str) -> bool:
        _, offsets = self.client.fetch_group(group, None, require_stable=False, version=self._newest(api.OFFSET_FETCH))
        return all(found[0] != topic for found in offsets)

    def metadata(self, version: int, name: str | None, topic_id: UUID | None = None) -> Any:
        """What kio reads of one topic, by its name or, from version 12 on, by its id."""
        kio_version = kio_module(api.METADATA, version, "request")
        asked = build(kio_version.MetadataRequestTopic, topic_id=topic_id, name=name)
        message = build(
            kio_version.MetadataRequest, topics=(asked,), allow_auto_topic_creation=False,
            include_topic_authorized_operations=False, include_cluster_authorized_operations=False,
        )  # fmt: skip
        return self.client.call(self.client.leader_of("", 0), api.METADATA, version, message).topics[0]

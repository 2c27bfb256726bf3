"""A transactional producer for tests of the model and of real brokers: each call is a request and returns codes.

Its only state is the addresses of coordinators. The test passes the ids of each request, so the client can also act as
a zombie.

`call` sends one message to a broker and waits for the answer.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from model.byte_client import ByteClient, record_batch
from model.settings import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
    TXN_OFFSET_COMMIT,
)
from model.wire import request_of

GROUP, TRANSACTION = 0, 1
# Of a coordinator that is not there yet, or of an id that is busy.
COMES_TO_PASS = frozenset({14, 15, 16, 51})
# The first version of OffsetFetch that asks for several groups (KIP-709).
SEVERAL_GROUPS = 8


class Versions(NamedTuple):
    """Of the requests whose version decides what a broker does."""

    produce: int
    end_txn: int
    txn_offset_commit: int


VERSION_1 = Versions(produce=11, end_txn=4, txn_offset_commit=4)
# Of the first release with all that exactly-once needs.
KAFKA_3_0_VERSIONS = Versions(produce=9, end_txn=3, txn_offset_commit=3)
VERSION_2 = Versions(produce=12, end_txn=5, txn_offset_commit=5)


class Producer(NamedTuple):
    producer_id: int
    producer_epoch: int


NOBODY = Producer(-1, -1)


class Produced(NamedTuple):
    """One partition's part of a Produce answer; -1 for an offset that it does not tell."""

    code: int
    base_offset: int
    log_start_offset: int


class Ended(NamedTuple):
    """`producer`: what goes on; None where EndTxn does not say, and after an error."""

    code: int
    producer: Producer | None


class ActiveProducer(NamedTuple):
    """As DescribeProducers tells it; `transaction_start_offset` is -1 without an open transaction."""

    producer: Producer
    last_sequence: int
    transaction_start_offset: int


class Described(NamedTuple):
    """As DescribeTransactions tells it."""

    code: int
    state: str
    timeout_ms: int
    producer: Producer
    partitions: tuple[tuple[str, int], ...]
    start_ms: int


@dataclass
class TransactionClient:
    """`call(node_id, api_key, version, message)` returns kio's answer; `pause` lets some time pass."""

    call: Callable[[int, int, int, Any], Any]
    leader_of: Callable[[str, int], int]
    pause: Callable[[], None]
    versions: Versions = VERSION_2
    _coordinators: dict[tuple[int, str | None], int] = field(default_factory=dict)

    # --- coordinators -------------------------------------------------------------------------------------------------

    def _ask(self, node_id: int, api_key: int, version: int, **fields: Any) -> Any:
        return self.call(node_id, api_key, version, request_of(api_key, version, **fields))

    def find_coordinator(self, key: str | None, key_type: int = TRANSACTION, version: int = 4) -> tuple[int, int]:
        asked = {"key": key, "key_type": key_type, "coordinator_keys": (key,)}
        answer = self._ask(self.leader_of("", 0), FIND_COORDINATOR, version, **asked)
        found = answer.coordinators[0] if version >= 4 else answer
        return int(found.error_code), int(found.node_id)

    def coordinator(self, key: str | None, key_type: int = TRANSACTION) -> int:
        """Asked for once, until `forget_coordinators`."""
        while (key_type, key) not in self._coordinators:
            code, node_id = self.find_coordinator(key, key_type)
            if code == 0:
                self._coordinators[key_type, key] = node_id
            else:
                assert code in COMES_TO_PASS, code
                self.pause()
        return self._coordinators[key_type, key]

    def forget_coordinators(self) -> None:
        self._coordinators.clear()

    # --- producers ----------------------------------------------------------------------------------------------------

    def try_init(
        self, transactional_id: str | None, *, timeout_ms: int = 60_000, expected: Producer = NOBODY, version: int = 4
    ) -> tuple[int, Producer]:
        answer = self._ask(
            self.coordinator(transactional_id), INIT_PRODUCER_ID, version, transactional_id=transactional_id,
            transaction_timeout=timedelta(milliseconds=timeout_ms), **expected._asdict(),
        )  # fmt: skip
        return int(answer.error_code), Producer(int(answer.producer_id), int(answer.producer_epoch))

    def init(self, transactional_id: str, **fields: Any) -> Producer:
        while True:
            code, producer = self.try_init(transactional_id, **fields)
            if code == 0:
                return producer
            assert code in COMES_TO_PASS, code
            if code == 16:
                self.forget_coordinators()
            self.pause()

    # --- a transaction ------------------------------------------------------------------------------------------------

    def add_partitions(
        self, transactional_id: str, producer: Producer, topics: Mapping[str, Sequence[int]], version: int = 3
    ) -> dict[tuple[str, int], int]:
        topics_asked = [{"name": topic, "partitions": tuple(partitions)} for topic, partitions in topics.items()]
        answer = self._ask(
            self.coordinator(transactional_id), ADD_PARTITIONS_TO_TXN, version,
            v3_and_below_transactional_id=transactional_id, v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch, v3_and_below_topics=tuple(topics_asked),
        )  # fmt: skip
        return {
            (topic.name, partition.partition_index): int(partition.partition_error_code)
            for topic in answer.results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        }

    def add_offsets(self, transactional_id: str, producer: Producer, group: str, version: int = 3) -> int:
        ids = {"transactional_id": transactional_id, "group_id": group, **producer._asdict()}
        answer = self._ask(self.coordinator(transactional_id), ADD_OFFSETS_TO_TXN, version, **ids)
        return int(answer.error_code)

    def produce(
        self, transactional_id: str | None, producer: Producer, topic: str, partition: int = 0, *,
        base_sequence: int = 0, values: Sequence[bytes] = (b"v",), is_transactional: bool = True, **fields: Any,
    ) -> int:  # fmt: skip
        """The partition's code. Of a partition that the transaction does not have yet, under version 1, too."""
        records = record_batch(
            *values, base_sequence=base_sequence, is_transactional=is_transactional, **producer._asdict()
        )
        return self.append(transactional_id, records, topic, partition, **fields).code

    def append(
        self, transactional_id: str | None, records: bytes, topic: str, partition: int = 0, *, acks: int = -1,
        version: int | None = None, topic_id: uuid.UUID | None = None,
    ) -> Produced:  # fmt: skip
        """Produce of any bytes. `topic_id`: from version 13 on, instead of the name."""
        version = version if version is not None else self.versions.produce
        data = {"index": partition, "records": records}
        answer = self._ask(
            self.leader_of(topic, partition), PRODUCE, version, transactional_id=transactional_id, acks=acks,
            timeout=timedelta(seconds=10),
            topic_data=({"name": topic, "topic_id": topic_id, "partition_data": (data,)},),
        )  # fmt: skip
        produced = answer.responses[0].partition_responses[0]
        return Produced(
            int(produced.error_code), int(produced.base_offset), int(getattr(produced, "log_start_offset", -1))
        )

    def write(self, transactional_id: str, producer: Producer, topic: str, partition: int = 0, **fields: Any) -> int:
        """`produce` as a producer of this version does it, and again while the transaction before is completed."""
        while True:
            if self.versions.end_txn < VERSION_2.end_txn:
                code = self.add_partitions(transactional_id, producer, {topic: [partition]})[topic, partition]
            if self.versions.end_txn >= VERSION_2.end_txn or code == 0:
                code = self.produce(transactional_id, producer, topic, partition, **fields)
            if code != 51:
                return code
            self.pause()

    def end(self, transactional_id: str, producer: Producer, is_commit: bool, *, version: int | None = None) -> Ended:
        version = version if version is not None else self.versions.end_txn
        ids = {"transactional_id": transactional_id, "committed": is_commit, **producer._asdict()}
        answer = self._ask(self.coordinator(transactional_id), END_TXN, version, **ids)
        code = int(answer.error_code)
        if code or version < VERSION_2.end_txn:
            return Ended(code, None)
        return Ended(code, Producer(int(answer.producer_id), int(answer.producer_epoch)))

    def end_surely(self, transactional_id: str, producer: Producer, is_commit: bool, **fields: Any) -> Ended:
        """Repeat EndTxn until the coordinator is available and the markers of an earlier end are written."""
        while (ended := self.end(transactional_id, producer, is_commit, **fields)).code in COMES_TO_PASS:
            if ended.code == 16:
                self.forget_coordinators()
            self.pause()
        return ended

    # --- offsets ------------------------------------------------------------------------------------------------------

    def commit_offset(
        self, transactional_id: str, producer: Producer, group: str, topic: str, offset: int, *,
        metadata: str | None = "", partition: int = 0, generation: int = -1, member_id: str = "",
        version: int | None = None,
    ) -> int:  # fmt: skip
        """The partition's code of TxnOffsetCommit. Under version 1 the group is to be added before."""
        version = version if version is not None else self.versions.txn_offset_commit
        answer = self._ask(
            self.coordinator(group, GROUP), TXN_OFFSET_COMMIT, version, transactional_id=transactional_id,
            group_id=group, generation_id=generation, member_id=member_id, group_instance_id=None,
            topics=_offset_to_commit(topic, partition, offset, metadata), **producer._asdict(),
        )  # fmt: skip
        return int(answer.topics[0].partitions[0].error_code)

    def commit_offset_outside(
        self, group: str, topic: str, offset: int, *, metadata: str | None = "", partition: int = 0,
        generation: int = -1, member_id: str = "", version: int = 8,
    ) -> int:  # fmt: skip
        while True:
            answer = self._ask(
                self.coordinator(group, GROUP), OFFSET_COMMIT, version, group_id=group,
                generation_id_or_member_epoch=generation, member_id=member_id, group_instance_id=None,
                topics=_offset_to_commit(topic, partition, offset, metadata),
            )  # fmt: skip
            code = int(answer.topics[0].partitions[0].error_code)
            if code not in COMES_TO_PASS:
                return code
            self.pause()

    def fetch_group(
        self, group: str, topic: str | None, *, partition: int = 0, require_stable: bool = True, version: int
    ) -> tuple[int, tuple[tuple[Any, ...], ...]]:
        """OffsetFetch of one group, in any version from 2 on, once: its code, and of each partition topic, number,
        code, offset and metadata. `topic`: None for all that the group has."""
        several = version >= SEVERAL_GROUPS
        asked: dict[str, Any] = {"group_id": group, "topics": _offset_to_fetch(topic, partition), "member_id": None}
        fields = {"groups": (asked,)} if several else asked
        answer = self._ask(
            self.coordinator(group, GROUP), OFFSET_FETCH, version, **fields, require_stable=require_stable
        )
        fetched = answer.groups[0] if several else answer
        return int(fetched.error_code), tuple(
            (found.name, each.partition_index, int(each.error_code), each.committed_offset, each.metadata)
            for found in fetched.topics
            for each in found.partitions
        )

    # --- operators ----------------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> Described:
        while (described := self.describe_once(transactional_id)).code in COMES_TO_PASS:
            self.pause()
        return described

    def describe_once(self, transactional_id: str) -> Described:
        asked = {"transactional_ids": (transactional_id,)}
        answer = self._ask(self.coordinator(transactional_id), DESCRIBE_TRANSACTIONS, 0, **asked)
        (state,) = answer.transaction_states
        return Described(
            int(state.error_code), state.transaction_state, round(state.transaction_timeout.total_seconds() * 1_000),
            Producer(int(state.producer_id), int(state.producer_epoch)) if not state.error_code else NOBODY,
            tuple(sorted((topic.topic, partition) for topic in state.topics for partition in topic.partitions)),
            int(state.transaction_start_time),
        )  # fmt: skip

    def active_producers(self, topic: str, partition: int = 0) -> tuple[int, tuple[ActiveProducer, ...]]:
        asked = ({"name": topic, "partition_indexes": (partition,)},)
        answer = self._ask(self.leader_of(topic, partition), DESCRIBE_PRODUCERS, 0, topics=asked)
        described = answer.topics[0].partitions[0]
        return int(described.error_code), tuple(
            ActiveProducer(
                Producer(int(active.producer_id), int(active.producer_epoch)), int(active.last_sequence),
                int(active.current_txn_start_offset),
            )
            for active in described.active_producers
        )  # fmt: skip


def _offset_to_commit(topic: str, partition: int, offset: int, metadata: str | None) -> tuple[Any, ...]:
    asked = {
        "partition_index": partition, "committed_offset": offset, "committed_leader_epoch": -1,
        "committed_metadata": metadata,
    }  # fmt: skip
    return ({"name": topic, "partitions": (asked,)},)


def _offset_to_fetch(topic: str | None, partition: int) -> tuple[Any, ...] | None:
    return None if topic is None else ({"name": topic, "partition_indexes": (partition,)},)


def transaction_client(client: ByteClient, versions: Versions = VERSION_2) -> TransactionClient:
    cluster = client.cluster

    def call(node_id: int, api_key: int, version: int, message: Any) -> Any:
        sent = client.send(node_id, api_key, version, message)
        client.run_until(lambda: sent in client.answers, limit_ms=60_000)
        return client.answers[sent]

    def leader_of(topic: str, partition: int) -> int:
        leader = cluster.leader(topic, partition) if cluster.topic_id(topic) is not None else None
        return leader if leader is not None else cluster.controller.image.alive[0]

    return TransactionClient(call, leader_of, lambda: client.run(1), versions)

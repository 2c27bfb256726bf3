"""A client of the read side for tests of the model and of real brokers: each call is a request, its answer as data.

Its only state is how it calls. The test passes offsets, epochs and limits, and decides what follows.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from model.byte_client import ByteClient
from model.consumer_reads import NO_EPOCH, FoundOffset
from model.partition_log import EpochAndOffset
from model.read_journal import Isolation
from model.settings import DELETE_RECORDS, FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from model.wire import request_of

READ_COMMITTED, READ_UNCOMMITTED = Isolation.READ_COMMITTED, Isolation.READ_UNCOMMITTED
NEWEST_FETCH, NEWEST_LIST_OFFSETS, NEWEST_EPOCHS = 18, 11, 4
FIRST_FETCH_BY_ID = 13
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
        return fetch_answer(self.call(node_id, FETCH, version, message))

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
            LIST_OFFSETS, version, replica_id=CONSUMER, isolation_level=int(isolation),
            topics=({"name": topic, "partitions": (asked,)},), timeout=timedelta(seconds=10),
        )  # fmt: skip
        answer = self.call(node_id, LIST_OFFSETS, version, message)
        (found,) = answer.topics[0].partitions
        return int(found.error_code), FoundOffset(int(found.timestamp), int(found.offset), int(found.leader_epoch))

    def end_of_epoch(
        self, node_id: int, topic: str, leader_epoch: int, partition: int = 0, *, current_leader_epoch: int = NO_EPOCH,
        version: int = NEWEST_EPOCHS,
    ) -> tuple[int, EpochAndOffset]:  # fmt: skip
        asked = {
            "partition": partition, "current_leader_epoch": current_leader_epoch, "leader_epoch": leader_epoch
        }  # fmt: skip
        topics = ({"topic": topic, "partitions": (asked,)},)
        message = request_of(OFFSET_FOR_LEADER_EPOCH, version, replica_id=CONSUMER, topics=topics)
        answer = self.call(node_id, OFFSET_FOR_LEADER_EPOCH, version, message)
        (found,) = answer.topics[0].partitions
        return int(found.error_code), EpochAndOffset(int(found.leader_epoch), int(found.end_offset))

    def delete_records(
        self, node_id: int, topic: str, offset: int, partition: int = 0, *, version: int = 2
    ) -> tuple[int, int]:
        topics = ({"name": topic, "partitions": ({"partition_index": partition, "offset": offset},)},)
        message = request_of(DELETE_RECORDS, version, topics=topics, timeout=timedelta(seconds=10))
        answer = self.call(node_id, DELETE_RECORDS, version, message)
        (deleted,) = answer.topics[0].partitions
        return int(deleted.error_code), int(deleted.low_watermark)


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
        FETCH, version, max_wait=timedelta(milliseconds=max_wait_ms), min_bytes=min_bytes, max_bytes=max_bytes,
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
    def call(node_id: int, api_key: int, version: int, message: Any) -> Any:
        sent = client.send(node_id, api_key, version, message)
        client.run_until(lambda: sent in client.answers, limit_ms=60_000)
        return client.answers[sent]

    return ReadClient(call, client.cluster.topic_id)

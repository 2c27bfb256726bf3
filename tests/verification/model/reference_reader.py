"""A reader of one partition for tests of the model: slow, plain, and by the book of Java's consumer.

One `step` is one request and what follows from its answer. What it notices to be lost it notes and goes on. It decodes
with kafka-python and has no code of the client under test.

Source: FetchCollector, CompletedFetch, OffsetsForLeaderEpochUtils, SubscriptionState.maybeValidatePosition in Kafka's
consumer.
"""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass, field
from typing import NamedTuple

from model.byte_client import ByteClient
from model.consumer_reads import EARLIEST, LATEST, NO_EPOCH
from model.control_batches import decode_marker
from model.image import NO_LEADER
from model.read_client import Got, ReadClient, Wanted
from model.read_journal import Isolation
from model.record_batches import RecordBatch, decode_stored_records, next_batch
from model.settings import METADATA

OUT_OF_RANGE, UNKNOWN_TOPIC_ID = 1, 100


class Delivered(NamedTuple):
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int


class Lost(NamedTuple):
    """Offsets that the reader passed over, or read and found to be no part of the log any more."""

    why: str
    first_offset: int
    end_offset: int


class Unanswered(Exception):
    """The broker is away, or answers too late."""


@dataclass
class ReferenceReader:
    """From `first_offset` on. `fetch_version`: from 12 on it tells its last epoch with each fetch, from 13 on it names
    the topic by id. Below 12 it sees no truncation."""

    client: ByteClient
    topic: str
    partition: int
    isolation: Isolation
    rng: random.Random
    fetch_version: int
    rack: str = ""
    first_offset: int = 0
    last_epoch: int = NO_EPOCH
    topic_id: uuid.UUID | None = None
    is_topic_gone: bool = False
    delivered: list[Delivered] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    position: int = field(init=False)
    _leader: int = NO_LEADER
    _leader_epoch: int = NO_EPOCH
    _read_replica: int = NO_LEADER

    def __post_init__(self) -> None:
        self.position = self.first_offset

    def step(self) -> None:
        try:
            if self._leader == NO_LEADER:
                self._find_leader()
            else:
                self._fetch()
        except Unanswered:
            self._leader = self._read_replica = NO_LEADER

    def _call(self, node_id: int, api_key: int, version: int, message: object) -> object:
        sent = self.client.send(node_id, api_key, version, message)
        for _ in range(100):
            if sent in self.client.answers:
                return self.client.answers.pop(sent)
            if not self.client.is_connected(node_id):
                break
            self.client.run(5)
        self.client.reconnect(node_id)
        raise Unanswered(f"{node_id}")

    @property
    def _requests(self) -> ReadClient:
        return ReadClient(self._call, lambda topic: self.topic_id)

    def _find_leader(self) -> None:
        node_id = self.rng.choice(self.client.cluster.node_ids)
        message = self.client.metadata_request([self.topic], 12)
        (topic,) = self._call(node_id, METADATA, 12, message).topics  # type: ignore[attr-defined]
        if topic.error_code or len(topic.partitions) <= self.partition:
            return
        if self.topic_id is not None and topic.topic_id != self.topic_id:
            self.is_topic_gone = True
            return
        self.topic_id = topic.topic_id
        found = topic.partitions[self.partition]
        # A broker may know less than the one asked before.
        if found.leader_epoch >= self._leader_epoch:
            self._leader, self._leader_epoch = found.leader_id, found.leader_epoch

    # --- records ------------------------------------------------------------------------------------------------------

    def _fetch(self) -> None:
        node_id = self._read_replica if self._read_replica != NO_LEADER else self._leader
        limit = self.rng.choice([1, 200, 1_000, 10**6])
        wanted = Wanted(
            self.topic, self.partition, self.position, limit, self._leader_epoch, self.last_epoch, self.topic_id
        )
        answer = self._requests.fetch(
            node_id, [wanted], version=self.fetch_version, isolation=self.isolation, rack=self.rack,
            max_wait_ms=self.rng.choice([0, 50]),
        )  # fmt: skip
        # A throttled answer has no partition.
        for got in answer.partitions:
            self._take(got)

    def _take(self, got: Got) -> None:
        if got.code == OUT_OF_RANGE:
            self._out_of_range()
        elif got.code:
            self._leader = self._read_replica = NO_LEADER
        elif got.preferred_read_replica != NO_LEADER:
            self._read_replica = got.preferred_read_replica
        elif got.diverging.offset >= 0:
            self._seek("truncated", got.diverging.offset, got.diverging.epoch)
        else:
            self._deliver(got)

    def _deliver(self, got: Got) -> None:
        aborted = sorted(got.aborted or (), key=lambda each: each[1])
        of_aborted: set[int] = set()
        data = got.records
        while (batch := next_batch(data)) is not None:
            data = data[len(batch.data) :]
            while aborted and aborted[0][1] < batch.next_offset:
                of_aborted.add(aborted.pop(0)[0])
            if batch.is_control:
                if batch.record_count and not decode_marker(batch).is_commit:
                    of_aborted.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in of_aborted):
                self._deliver_batch(batch)
            self.position, self.last_epoch = max(self.position, batch.next_offset), batch.leader_epoch

    def _deliver_batch(self, batch: RecordBatch) -> None:
        self.delivered += [
            Delivered(*record, leader_epoch=batch.leader_epoch)
            for record in decode_stored_records(batch)
            if record.offset >= self.position
        ]

    # --- positions ----------------------------------------------------------------------------------------------------

    def _out_of_range(self) -> None:
        if self._read_replica != NO_LEADER:
            # A follower may have less than the leader.
            self._read_replica = NO_LEADER
            return
        found = [
            self._requests.list_offset(
                self._leader, self.topic, timestamp, self.partition, isolation=Isolation.READ_UNCOMMITTED, version=7,
                current_leader_epoch=self._leader_epoch,
            )
            for timestamp in (EARLIEST, LATEST)
        ]  # fmt: skip
        if any(code for code, _ in found):
            self._leader = NO_LEADER
            return
        earliest, latest = (offset.offset for _, offset in found)
        if self.position < earliest:
            self._seek("deleted", earliest, NO_EPOCH)
        elif self.position > latest:
            self._seek("truncated", latest, NO_EPOCH)

    def _seek(self, why: str, offset: int, epoch: int) -> None:
        self.lost.append(Lost(why, min(self.position, offset), max(self.position, offset)))
        self.position = max(self.first_offset, offset)
        self.last_epoch = epoch if self.position == offset else NO_EPOCH

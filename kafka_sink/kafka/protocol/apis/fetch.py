"""Fetch: the records of one partition from an offset on, or of several partitions in one request.

There is no fetch session (KIP-227). It saves the names of partitions that are asked for again and again. A reader of
ranges asks for a few partitions at a time, those that fill an answer.

Source: org.apache.kafka.common.requests.FetchRequest, FetchMetadata.
"""

from __future__ import annotations

import itertools
import operator
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.config import IsolationLevel
from kafka_sink.kafka.protocol.api import (
    MOST_BROKERS,
    Api,
    Message,
    Request,
    Versions,
    check_answered,
    check_number,
    each_asked,
)
from kafka_sink.kafka.protocol.apis.metadata import Broker, NamedLeader, check_leaders, endpoints_of, named_leader
from kafka_sink.records.record_batch import AbortedTransaction

# Version 11 is the first that names a rack (KIP-392); Kafka 2.3 has it.
_FETCH = Api("Fetch", 1, 11, 18)
# From this version on, topics are named by id (KIP-516).
FETCH_BY_TOPIC_ID = 13
# The largest record batch that a reader takes: an answer always has its first batch whole (KIP-74). As librdkafka's
# receive.message.max.bytes, rounded up.
MAX_BATCH_BYTES = 128 * 1024 * 1024
# A transaction that ends among the records has a marker there, of 78 bytes. Others are open meanwhile.
_MARKER_BYTES = 64
_MOST_OPEN_TRANSACTIONS = 100_000
_NOTHING = memoryview(b"")


@dataclass(frozen=True, slots=True)
class FetchRequest(Request):
    """Asks for the batches of `partition` from the one with `offset` on.

    `leader_epoch`: the newest epoch that the client knows, -1 for none. A broker with another one refuses (KIP-320).
    `max_bytes`: of record batches. The first batch comes whole even if it is larger (KIP-74).
    `min_bytes`, `max_wait_ms`: the broker waits up to `max_wait_ms` for `min_bytes`.
    `rack_id`: the client's rack, empty for none. With it the leader may name a nearer replica.
    """

    api = _FETCH

    topic: str
    topic_id: uuid.UUID | None
    partition: int
    offset: int
    leader_epoch: int
    isolation_level: IsolationLevel
    max_bytes: int
    min_bytes: int
    max_wait_ms: int
    rack_id: str = ""

    def versions(self) -> Versions:
        """A topic without an id can only be named."""
        return _FETCH.min_version, _FETCH.max_version if self.topic_id else FETCH_BY_TOPIC_ID - 1

    def to_kio(self, kio: Any, version: int) -> Any:
        return self._as_shared.to_kio(kio, version)

    def response(self, message: Message) -> FetchResponse:
        return _of_parts((self,), message)[0]

    def check(self, response: FetchResponse) -> None:
        """Raise ProtocolError for records that nobody asked for: beside an error. And for offsets that no log has."""
        if response.error_code and response.records:
            raise ProtocolError(f"a Fetch answer with error {response.error_code} and {len(response.records)} bytes")
        check_number("Fetch", "high watermark", response.high_watermark)
        check_number("Fetch", "last stable offset", response.last_stable_offset)
        check_number("Fetch", "log start offset", response.log_start_offset)
        check_number("Fetch", "preferred read replica", response.preferred_read_replica)
        check_leaders("Fetch", (response.leader,))
        for each in response.aborted_transactions:
            check_number("Fetch", "an aborted transaction of producer id", each.producer_id, least=0)
            check_number("Fetch", "an aborted transaction from offset", each.first_offset, least=0)

    def most(self) -> Mapping[str, int]:
        return self._as_shared.most()

    def largest_frame(self) -> int:
        return self._as_shared.largest_frame()

    @property
    def _as_shared(self) -> SharedFetchRequest:
        return SharedFetchRequest((self,), self.max_bytes, self.max_wait_ms)


@dataclass(frozen=True, slots=True)
class SharedFetchRequest(Request):
    """Asks for several partitions at once, of different numbers or topics, with one isolation level, rack and
    `min_bytes`. The broker takes batches in the order of `parts`: up to `max_bytes` together, and up to its own limit
    from each. The first batch of all comes whole (KIP-74)."""

    api = _FETCH

    parts: tuple[FetchRequest, ...]
    max_bytes: int
    max_wait_ms: int

    def versions(self) -> Versions:
        return _FETCH.min_version, min(each.versions()[1] for each in self.parts)

    def to_kio(self, kio: Any, version: int) -> Any:
        """Neighbours of one topic are put together. A topic may come twice, because the order of the parts counts."""
        name = "topic_id" if version >= FETCH_BY_TOPIC_ID else "topic"
        topics = []
        for key, parts in itertools.groupby(self.parts, operator.attrgetter(name)):
            partitions = tuple(
                kio.FetchPartition(
                    partition=each.partition,
                    current_leader_epoch=each.leader_epoch,
                    fetch_offset=each.offset,
                    partition_max_bytes=each.max_bytes,
                )
                for each in parts
            )
            topics.append(kio.FetchTopic(**{name: key}, partitions=partitions))
        first = self.parts[0]
        return kio.FetchRequest(
            max_wait=timedelta(milliseconds=self.max_wait_ms),
            min_bytes=first.min_bytes,
            max_bytes=self.max_bytes,
            isolation_level=first.isolation_level.value,
            topics=tuple(topics),
            forgotten_topics_data=(),
            rack_id=first.rack_id,
        )

    def response(self, message: Message) -> SharedFetchResponse:
        return SharedFetchResponse(message["throttle_time"], tuple(_of_parts(self.parts, message)))

    def check(self, response: SharedFetchResponse) -> None:
        for asked, part in zip(self.parts, response.parts, strict=True):
            asked.check(part)

    def most(self) -> Mapping[str, int]:
        asked = each_asked(len(self.parts), "responses", "partitions")
        aborted = _MOST_OPEN_TRANSACTIONS + self.max_bytes // _MARKER_BYTES
        return asked | each_asked(MOST_BROKERS, "node_endpoints") | {"aborted_transactions": aborted}

    def largest_frame(self) -> int:
        return MAX_BATCH_BYTES + self.max_bytes


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """`high_watermark`, `last_stable_offset`, `log_start_offset`: -1 if the broker does not tell.

    `aborted_transactions`: those with records in `records`; always empty for READ_UNCOMMITTED.
    `preferred_read_replica`: the node to fetch from, -1 for the node that was asked.
    `records`: the batches as the broker has them, a view of the response. The last batch may be cut off.
    `leader`: as a broker names it that does not lead the partition.
    """

    throttle_time_ms: int
    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted_transactions: tuple[AbortedTransaction, ...] = ()
    preferred_read_replica: int = -1
    records: memoryview = _NOTHING
    leader: NamedLeader | None = None


@dataclass(frozen=True, slots=True)
class SharedFetchResponse:
    """`parts`: in the order of the request's."""

    throttle_time_ms: int
    parts: tuple[FetchResponse, ...]


def _of_parts(asked: Sequence[FetchRequest], message: Message) -> list[FetchResponse]:
    throttle_time_ms, error_code = message["throttle_time"], message["error_code"]
    found = [(topic, partition) for topic in message["responses"] for partition in topic["partitions"]]
    if not found and (error_code or throttle_time_ms):
        # The whole request is refused. Or a quota is exceeded: then a broker answers without partitions.
        return [FetchResponse(throttle_time_ms, error_code)] * len(asked)
    name = "topic_id" if any("topic_id" in topic for topic, _ in found) else "topic"
    wanted = [(getattr(each, name), each.partition) for each in asked]
    answered = [(topic[name], each["partition_index"]) for topic, each in found]
    check_answered("Fetch", wanted, answered)
    by_place = {place: partition for place, (_, partition) in zip(answered, found, strict=True)}
    endpoints = endpoints_of(message)
    return [_of_partition(throttle_time_ms, error_code, by_place[place], endpoints) for place in wanted]


def _of_partition(
    throttle_time_ms: int, error_code: int, partition: Mapping[str, Any], endpoints: Mapping[int, Broker]
) -> FetchResponse:
    return FetchResponse(
        throttle_time_ms=throttle_time_ms,
        error_code=error_code or partition["error_code"],
        high_watermark=partition["high_watermark"],
        last_stable_offset=partition["last_stable_offset"],
        log_start_offset=partition["log_start_offset"],
        aborted_transactions=tuple(
            AbortedTransaction(each["producer_id"], each["first_offset"])
            for each in partition["aborted_transactions"] or ()
        ),
        preferred_read_replica=partition["preferred_read_replica"],
        records=_NOTHING if partition["records"] is None else partition["records"],
        leader=named_leader(partition, endpoints),
    )

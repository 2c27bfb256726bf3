"""Fetch: batches of the logs to consumers, as the bytes that are on disk.

A request waits until it has `min_bytes` or its `max_wait` is over; an error, or the hint to read elsewhere, is answered
at once. The sessions of KIP-227 are never begun: a broker whose cache is full answers so, too.

Source: KafkaApis.handleFetchRequest, ReplicaManager (fetchMessages, readFromLog, findPreferredReadReplica),
DelayedFetch, FetchResponse.toMessage, RackAwareReplicaSelector in Kafka; KIP-74 (limits), KIP-392 (reads from
followers), KIP-516 (topic ids), KIP-951 (the new leader in the answer).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kio.schema.errors import ErrorCode

from model.broker import Broker, Operation
from model.connection import Connection
from model.consumer_reads import NO_EPOCH, Read, Records, fetchable_bytes, read_records
from model.image import NO_LEADER, TopicIdPartition
from model.partition import Partition
from model.read_journal import Isolation
from model.record_batches import Refused
from model.replica_manager import ReplicaManager
from model.settings import FETCH, ClusterSettings
from model.wire import Request, build, kio_module

MAX_BYTES = 55 * 1024 * 1024
# The first versions with every codec, that followers answer, and whose errors name the new leader.
_HAS_ZSTD, _READS_FOLLOWERS, _NAMES_LEADERS = 10, 11, 16
_OF_ANOTHER_LEADER = frozenset({ErrorCode.not_leader_or_follower, ErrorCode.fenced_leader_epoch})
_PLACES = {ErrorCode.none: 0, ErrorCode.unknown_topic_id: 1}
_OF_SESSIONS = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    }
)


@dataclass(frozen=True, slots=True)
class Asked:
    """One partition of a request. `topic`: its name or its id, whichever the request used. `read`: with the
    partition's own limit."""

    topic: Any
    partition: int
    key: TopicIdPartition | None
    code: ErrorCode
    read: Read


@dataclass(frozen=True, slots=True)
class Fetched:
    code: ErrorCode
    records: Records | None = None
    preferred_read_replica: int = NO_LEADER

    @property
    def is_to_be_told(self) -> bool:
        """At once, without waiting for more bytes."""
        has_diverged = self.records is not None and self.records.diverging is not None
        return self.code is not ErrorCode.none or self.preferred_read_replica != NO_LEADER or has_diverged

    @property
    def withheld(self) -> Fetched:
        return self if self.records is None else replace(self, records=self.records._replace(data=b"", aborted=None))


@dataclass(frozen=True, slots=True, eq=False)
class FetchApi:
    _broker: Broker
    _replicas: ReplicaManager
    _settings: ClusterSettings

    def fetch(self, connection: Connection, request: Request) -> None:
        refusal = self._broker.next_refusal(FETCH)
        message = request.message
        if getattr(message, "session_epoch", -1) > 0:
            refusal = ErrorCode.fetch_session_id_not_found
        if refusal in _OF_SESSIONS:
            self._broker.answer(connection, request, "FetchResponse", error_code=refusal, responses=())
            return
        asked = [self._asked(request, topic, data, refusal) for topic in message.topics for data in topic.partitions]
        # What is known not to be there comes last in the answer, unknown ids first.
        asked.sort(key=lambda each: _PLACES.get(each.code, len(_PLACES)))
        max_bytes = min(message.max_bytes, MAX_BYTES, self._broker.max_fetch_bytes())
        rack = getattr(message, "rack_id", "")
        max_wait_ms = round(message.max_wait.total_seconds() * 1_000)

        is_withheld = self._broker.next_withheld()

        def answer() -> None:
            fetched = self._read(asked, max_bytes, rack)
            self._answer(connection, request, asked, [each.withheld for each in fetched] if is_withheld else fetched)

        fetched = self._read(asked, max_bytes, rack)
        readable = sum(len(each.records.data) for each in fetched if each.records is not None)
        min_bytes = min(message.min_bytes, max_bytes)
        keys = [each.key for each in asked if each.code is ErrorCode.none and each.key is not None]
        is_to_be_told = any(
            each.is_to_be_told for each, of in zip(fetched, asked, strict=True) if of.code is ErrorCode.none
        )
        if max_wait_ms <= 0 or not keys or readable >= min_bytes or is_to_be_told:
            answer()
        else:
            self._replicas.delayed_fetches.add(keys, max_wait_ms, lambda: self._is_ready(asked, min_bytes), answer)

    def _asked(self, request: Request, topic_data: Any, data: Any, refusal: ErrorCode) -> Asked:
        image = self._replicas.image
        by_id = hasattr(topic_data, "topic_id")
        reference = topic_data.topic_id if by_id else topic_data.topic
        topic = image.topic_of(reference) if by_id else image.topics.get(reference)
        code, key = refusal, None
        if topic is None:
            code = ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
        elif not 0 <= data.partition < len(topic.partitions):
            code = ErrorCode.unknown_topic_or_partition
        else:
            key = TopicIdPartition(topic.topic_id, data.partition)
        name = topic.name if topic is not None else None if by_id else reference
        if (forbidden := self._broker.refusal_of(name, Operation.READ)) is not ErrorCode.none:
            code = forbidden
        if key is None and request.version < _HAS_ZSTD and self._replicas.generation.fetches_absent_as_zstd:
            code = ErrorCode.unsupported_compression_type
        read = Read(
            data.fetch_offset, Isolation(request.message.isolation_level), data.partition_max_bytes,
            getattr(data, "current_leader_epoch", NO_EPOCH), getattr(data, "last_fetched_epoch", NO_EPOCH),
            is_of_leader=request.version < _READS_FOLLOWERS,
        )  # fmt: skip
        return Asked(reference, data.partition, key, code, read)

    def _read(self, asked: Iterable[Asked], max_bytes: int, rack: str) -> list[Fetched]:
        """In order, each partition with what the ones before left of `max_bytes`. The first batch of all is whole."""
        fetched = []
        left, is_first = max_bytes, True
        for each in asked:
            limit = min(each.read.max_bytes, left)
            found = self._read_one(each, each.read._replace(max_bytes=limit, first_is_whole=is_first), rack)
            fetched.append(found)
            if found.records is not None and found.records.data:
                is_first = False
                left = max(0, left - len(found.records.data))
        return fetched

    def _read_one(self, asked: Asked, read: Read, rack: str) -> Fetched:
        if asked.code is not ErrorCode.none or asked.key is None:
            return Fetched(asked.code)
        try:
            replica = self._replicas.replica(asked.key)
            preferred = self._preferred_read_replica(replica, read.offset, rack)
            if preferred != NO_LEADER:
                log = replica.log
                nothing = Records(b"", None, replica.high_watermark, replica.last_stable_offset, log.start_offset)
                return Fetched(ErrorCode.none, nothing, preferred)
            return Fetched(ErrorCode.none, read_records(replica, read))
        except Refused as refused:
            return Fetched(refused.code)

    def _preferred_read_replica(self, replica: Partition, offset: int, rack: str) -> int:
        """Another replica in the reader's rack that has the offset, the one with the longest log; NO_LEADER: none."""
        racks, image = self._settings.racks, self._replicas.image
        if not rack or not replica.is_leader or racks.get(replica.node_id) == rack:
            return NO_LEADER
        ends = {
            node_id: follower.end_offset
            for node_id, follower in replica.followers.items()
            if racks.get(node_id) == rack and node_id in replica.isr and node_id in image.alive
            and follower.log_start_offset <= offset <= follower.end_offset
        }  # fmt: skip
        return max(ends, key=lambda node_id: ends[node_id], default=NO_LEADER)

    def _is_ready(self, asked: Iterable[Asked], min_bytes: int) -> bool:
        readable = 0
        for each in asked:
            if each.key is None or each.code is not ErrorCode.none:
                continue
            replica = self._replicas.partitions.get(each.key)
            size = fetchable_bytes(replica, each.read) if replica is not None else None
            if size is None:
                return True
            readable += size
        return readable >= min_bytes

    def _answer(
        self, connection: Connection, request: Request, asked: Sequence[Asked], fetched: Sequence[Fetched]
    ) -> None:
        kio_version = kio_module(FETCH, request.version, "response")
        # Neighbours of one topic are put together, so a topic may come twice.
        topics: list[tuple[Any, list[Any]]] = []
        for each, found in zip(asked, fetched, strict=True):
            if not topics or topics[-1][0] != each.topic:
                topics.append((each.topic, []))
            topics[-1][1].append(self._partition_data(kio_version, request, each, found))
        responses = tuple(
            build(kio_version.FetchableTopicResponse, topic=topic, topic_id=topic, partitions=tuple(partitions))
            for topic, partitions in topics
        )
        endpoints = self._endpoints(kio_version, responses) if request.version >= _NAMES_LEADERS else ()
        self._broker.answer(
            connection, request, "FetchResponse", error_code=ErrorCode.none, responses=responses,
            node_endpoints=endpoints,
        )  # fmt: skip

    def _partition_data(self, kio_version: Any, request: Request, asked: Asked, found: Fetched) -> Any:
        records = found.records
        fields: dict[str, Any] = {}
        if request.version >= _NAMES_LEADERS and found.code in _OF_ANOTHER_LEADER and asked.key is not None:
            leader_id, leader_epoch = self._replicas.leader_of(asked.key)
            fields["current_leader"] = kio_version.LeaderIdAndEpoch(leader_id=leader_id, leader_epoch=leader_epoch)
        if records is not None and records.diverging is not None and hasattr(kio_version, "EpochEndOffset"):
            epoch, offset = records.diverging
            fields["diverging_epoch"] = kio_version.EpochEndOffset(epoch=epoch, end_offset=offset)
        aborted = records.aborted if records is not None else None
        if asked.code is not ErrorCode.none and self._replicas.generation.tells_absent_aborted:
            aborted = ()
        return build(
            kio_version.PartitionData,
            partition_index=asked.partition,
            error_code=found.code,
            high_watermark=records.high_watermark if records is not None else -1,
            last_stable_offset=records.last_stable_offset if records is not None else -1,
            log_start_offset=records.log_start_offset if records is not None else -1,
            aborted_transactions=None if aborted is None else tuple(
                kio_version.AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
                for each in aborted
            ),
            preferred_read_replica=found.preferred_read_replica,
            records=records.data if records is not None else b"",
            **fields,
        )  # fmt: skip

    def _endpoints(self, kio_version: Any, responses: Iterable[Any]) -> tuple[Any, ...]:
        leaders = {partition.current_leader.leader_id for topic in responses for partition in topic.partitions}
        endpoints = []
        for node_id in sorted(leaders.intersection(self._replicas.image.alive)):
            host, port = self._broker.address_of(node_id)
            rack = self._settings.racks.get(node_id)
            endpoints.append(kio_version.NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack))
        return tuple(endpoints)

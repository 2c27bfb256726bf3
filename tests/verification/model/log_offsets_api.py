"""Where a log begins and ends: ListOffsets, OffsetForLeaderEpoch, and DeleteRecords, which moves the beginning.

Not modelled: the offsets of tiered storage (timestamps below -3), which are answered with UNSUPPORTED_VERSION.

Source: KafkaApis (handleListOffsetRequest, handleOffsetForLeaderEpochRequest, handleDeleteRecordsRequest),
ReplicaManager (fetchOffset, lastOffsetForLeaderEpoch, deleteRecords) in Kafka; KIP-79, KIP-98, KIP-107, KIP-207,
KIP-320, KIP-734.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kio.schema.errors import ErrorCode

from model.broker import Broker, Handlers, Operation
from model.connection import Connection
from model.consumer_reads import LARGEST_TIMESTAMP, NO_EPOCH, NOT_FOUND, end_offset_for_epoch, offset_for_timestamp
from model.image import TopicIdPartition
from model.internal_topics import INTERNAL_TOPICS
from model.partition import Partition
from model.partition_log import EpochAndOffset
from model.read_journal import Isolation
from model.record_batches import Refused
from model.replica_manager import ReplicaManager
from model.settings import DELETE_RECORDS, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from model.transaction_metadata import TopicPartition
from model.wire import Request, kio_module

# In DeleteRecords, the high watermark.
HIGH_WATERMARK = -1
# The first versions with a name for a new leader's lag, and for the largest timestamp.
_SAYS_NOT_AVAILABLE, _HAS_LARGEST_TIMESTAMP = 5, 7
NOWHERE = EpochAndOffset(NO_EPOCH, -1)


@dataclass(frozen=True, slots=True, eq=False)
class LogOffsetsApi:
    _broker: Broker
    _replicas: ReplicaManager

    @property
    def handlers(self) -> Handlers:
        return {
            LIST_OFFSETS: self._list_offsets,
            OFFSET_FOR_LEADER_EPOCH: self._offsets_for_leader_epochs,
            DELETE_RECORDS: self._delete_records,
        }

    def _replica(self, partition: TopicPartition, refusal: ErrorCode) -> Partition:
        """Raises Refused."""
        if refusal is not ErrorCode.none:
            raise Refused(refusal, "as asked for")
        return self._replicas.replica(self._key(partition))

    def _described(self, partition: TopicPartition, refusal: ErrorCode) -> Partition:
        """Raises Refused."""
        forbidden = self._broker.refusal_of(partition[0], Operation.DESCRIBE)
        return self._replica(partition, refusal if forbidden is ErrorCode.none else forbidden)

    def _key(self, partition: TopicPartition) -> TopicIdPartition:
        image = self._replicas.image
        if not image.has_partition(*partition):
            raise Refused(ErrorCode.unknown_topic_or_partition, f"{partition}")
        return TopicIdPartition(image.topics[partition[0]].topic_id, partition[1])

    def _list_offsets(self, connection: Connection, request: Request) -> None:
        kio_version = kio_module(LIST_OFFSETS, request.version, "response")
        refusal = self._broker.next_refusal(LIST_OFFSETS)
        topics = tuple(
            kio_version.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=tuple(
                    self._listed(kio_version, request, topic.name, asked, refusal) for asked in topic.partitions
                ),
            )
            for topic in request.message.topics
        )
        self._broker.answer(connection, request, "ListOffsetsResponse", topics=topics)

    def _listed(self, kio_version: Any, request: Request, topic: str, asked: Any, refusal: ErrorCode) -> Any:
        code, found = ErrorCode.none, NOT_FOUND
        try:
            lowest = LARGEST_TIMESTAMP if request.version >= _HAS_LARGEST_TIMESTAMP else LARGEST_TIMESTAMP + 1
            if asked.timestamp < lowest:
                raise Refused(ErrorCode.unsupported_version, f"timestamp {asked.timestamp}")
            found = offset_for_timestamp(
                self._described((topic, asked.partition_index), refusal), asked.timestamp,
                Isolation(request.message.isolation_level), asked.current_leader_epoch,
            )  # fmt: skip
        except Refused as refused:
            code = refused.code
        if code is ErrorCode.offset_not_available and request.version < _SAYS_NOT_AVAILABLE:
            code = ErrorCode.leader_not_available
        if not self._replicas.generation.tells_offset_epochs:
            found = found._replace(leader_epoch=NO_EPOCH)
        return kio_version.ListOffsetsPartitionResponse(
            partition_index=asked.partition_index, error_code=code, **found._asdict()
        )

    def _offsets_for_leader_epochs(self, connection: Connection, request: Request) -> None:
        kio_version = kio_module(OFFSET_FOR_LEADER_EPOCH, request.version, "response")
        refusal = self._broker.next_refusal(OFFSET_FOR_LEADER_EPOCH)
        topics = tuple(
            kio_version.OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=tuple(
                    self._end_of_epoch(kio_version, topic.topic, asked, refusal) for asked in topic.partitions
                ),
            )
            for topic in request.message.topics
        )
        self._broker.answer(connection, request, "OffsetForLeaderEpochResponse", topics=topics)

    def _end_of_epoch(self, kio_version: Any, topic: str, asked: Any, refusal: ErrorCode) -> Any:
        code, found = ErrorCode.none, None
        try:
            replica = self._described((topic, asked.partition), refusal)
            found = end_offset_for_epoch(replica, asked.leader_epoch, asked.current_leader_epoch)
        except Refused as refused:
            code = refused.code
        epoch, offset = found or NOWHERE
        return kio_version.EpochEndOffset(
            partition=asked.partition, error_code=code, leader_epoch=epoch, end_offset=offset
        )

    def _delete_records(self, connection: Connection, request: Request) -> None:
        wanted = [(topic.name, asked) for topic in request.message.topics for asked in topic.partitions]
        outcomes: dict[TopicPartition, tuple[ErrorCode, int]] = {}
        timeout_ms = round(request.message.timeout.total_seconds() * 1_000)
        refusal = self._broker.next_refusal(DELETE_RECORDS)

        def settle(partition: TopicPartition, code: ErrorCode, low_watermark: int) -> None:
            outcomes[partition] = (code, low_watermark)
            if len(outcomes) == len(wanted):
                self._answer_deletions(connection, request, outcomes)

        if not wanted:
            self._answer_deletions(connection, request, outcomes)
        for topic, asked in wanted:
            self._delete(topic, asked, refusal, timeout_ms, settle)

    def _delete(
        self, topic: str, asked: Any, refusal: ErrorCode, timeout_ms: int,
        settle: Callable[[TopicPartition, ErrorCode, int], None],
    ) -> None:  # fmt: skip
        partition = (topic, asked.partition_index)

        def deleted(code: ErrorCode) -> None:
            settle(partition, code, self._replicas.low_watermark(key) if code is ErrorCode.none else -1)

        try:
            if topic in INTERNAL_TOPICS:
                raise Refused(ErrorCode.invalid_topic_exception, topic)
            key, replica = self._key(partition), self._replica(partition, refusal)
            offset = replica.high_watermark if asked.offset == HIGH_WATERMARK else asked.offset
            self._replicas.delete_before(key, offset, timeout_ms, deleted)
        except Refused as refused:
            settle(partition, refused.code, -1)

    def _answer_deletions(
        self, connection: Connection, request: Request, outcomes: dict[TopicPartition, tuple[ErrorCode, int]]
    ) -> None:
        kio_version = kio_module(DELETE_RECORDS, request.version, "response")
        topics = []
        for topic in request.message.topics:
            partitions = []
            for asked in topic.partitions:
                code, low_watermark = outcomes[topic.name, asked.partition_index]
                partitions.append(
                    kio_version.DeleteRecordsPartitionResult(
                        partition_index=asked.partition_index, error_code=code, low_watermark=low_watermark
                    )
                )
            topics.append(kio_version.DeleteRecordsTopicResult(name=topic.name, partitions=tuple(partitions)))
        self._broker.answer(connection, request, "DeleteRecordsResponse", topics=tuple(topics))

"""ListOffsets and OffsetForLeaderEpoch: where logs begin and end, and where the records of a leader epoch end.

Source: org.apache.kafka.common.requests.ListOffsetsRequest, OffsetsForLeaderEpochRequest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kafka_sink.kafka.config import IsolationLevel
from kafka_sink.kafka.protocol.api import (
    Api,
    Message,
    Request,
    check_answered,
    check_number,
    check_partitions,
    each_asked,
    partitions_of,
    read,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode

# Instead of a time: the end of the log, as far as the isolation level goes, and its start.
LATEST = -1
EARLIEST = -2
# Instead of an offset: no record is as new as the time.
NO_OFFSET = -1
# A consumer, not a replica.
_REPLICA_ID = -1
# From this version on, a request says how long the broker may wait for its remote storage (KIP-1075).
_WITH_TIMEOUT = 10


@dataclass(frozen=True, slots=True)
class AskedOffset:
    """`timestamp_ms`: since the epoch, or LATEST or EARLIEST. `leader_epoch`: the newest that the client knows, -1 for
    none."""

    topic: str
    partition: int
    timestamp_ms: int
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class ListOffsetsRequest(Request):
    """Sent to the leader of `asked`: the first offset, the end, or the first offset from a time on (KIP-79).
    `timeout_ms`: for remote storage."""

    # Version 4 is the first that names the client's leader epoch (KIP-320); Kafka 2.1 has it.
    api = Api("ListOffsets", 2, 4, 11)

    asked: tuple[AskedOffset, ...]
    isolation_level: IsolationLevel
    timeout_ms: int

    def to_kio(self, kio: Any, version: int) -> Any:
        topics: dict[str, list[Any]] = {}
        for each in self.asked:
            topics.setdefault(each.topic, []).append(
                kio.ListOffsetsPartition(
                    partition_index=each.partition, current_leader_epoch=each.leader_epoch, timestamp=each.timestamp_ms
                )
            )
        timeout = {"timeout": timedelta(milliseconds=self.timeout_ms)} if version >= _WITH_TIMEOUT else {}
        return kio.ListOffsetsRequest(
            replica_id=_REPLICA_ID,
            isolation_level=self.isolation_level.value,
            topics=tuple(
                kio.ListOffsetsTopic(name=topic, partitions=tuple(partitions)) for topic, partitions in topics.items()
            ),
            **timeout,
        )

    def response(self, message: Message) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            throttle_time_ms=message["throttle_time"],
            partitions=tuple(
                read(ListedOffset, each, timestamp_ms=each["timestamp"]) for each in partitions_of(message["topics"])
            ),
        )

    def check(self, response: ListOffsetsResponse) -> None:
        """Raise ProtocolError unless each partition is answered once, with an offset that a log can have."""
        asked = ((each.topic, each.partition) for each in self.asked)
        check_partitions("ListOffsets", asked, response.partitions)
        of_time = {(each.topic, each.partition) for each in self.asked if each.timestamp_ms >= 0}
        for each in response.partitions:
            if each.error_code == ErrorCode.NONE:
                # Only a time may have no record.
                least = NO_OFFSET if (each.topic, each.partition) in of_time else 0
                check_number("ListOffsets", "offset", each.offset, least)
                check_number("ListOffsets", "leader epoch", each.leader_epoch)

    def most(self) -> Mapping[str, int]:
        return each_asked(len(self.asked), "topics", "partitions")


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """`offset`: of the first record that is not older than the asked time; NO_OFFSET if there is none. `timestamp_ms`:
    that of the record, -1 for LATEST and EARLIEST."""

    topic: str
    partition: int
    error_code: int
    timestamp_ms: int
    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class ListOffsetsResponse:
    throttle_time_ms: int
    partitions: tuple[ListedOffset, ...]


@dataclass(frozen=True, slots=True)
class OffsetForLeaderEpochRequest(Request):
    """Sent to the leader. `current_leader_epoch`: the newest that the client knows. `leader_epoch`: that of the record
    before the reader's position. If its records end before the position, the log was truncated (KIP-320)."""

    # Version 3 is the first for which Describe on the topic suffices (KIP-392); Kafka 2.3 has it.
    api = Api("OffsetForLeaderEpoch", 23, 3, 4)

    topic: str
    partition: int
    current_leader_epoch: int
    leader_epoch: int

    def to_kio(self, kio: Any, version: int) -> Any:
        partition = kio.OffsetForLeaderPartition(
            partition=self.partition, current_leader_epoch=self.current_leader_epoch, leader_epoch=self.leader_epoch
        )
        topic = kio.OffsetForLeaderTopic(topic=self.topic, partitions=(partition,))
        return kio.OffsetForLeaderEpochRequest(replica_id=_REPLICA_ID, topics=(topic,))

    def response(self, message: Message) -> OffsetForLeaderEpochResponse:
        found = [(topic["topic"], each) for topic in message["topics"] for each in topic["partitions"]]
        answered = [(name, each["partition"]) for name, each in found]
        check_answered("OffsetForLeaderEpoch", [(self.topic, self.partition)], answered)
        _, partition = found[0]
        return read(OffsetForLeaderEpochResponse, partition, throttle_time_ms=message["throttle_time"])

    def check(self, response: OffsetForLeaderEpochResponse) -> None:
        """Raise ProtocolError for an epoch or an offset that no log has."""
        check_number("OffsetForLeaderEpoch", "leader epoch", response.leader_epoch)
        check_number("OffsetForLeaderEpoch", "end offset", response.end_offset)

    def most(self) -> Mapping[str, int]:
        return each_asked(1, "topics", "partitions")


@dataclass(frozen=True, slots=True)
class OffsetForLeaderEpochResponse:
    """`leader_epoch`: the highest epoch of the log that is not above the asked one, -1 for none. `end_offset`: after
    its last record, -1 for none."""

    throttle_time_ms: int
    error_code: int
    leader_epoch: int
    end_offset: int

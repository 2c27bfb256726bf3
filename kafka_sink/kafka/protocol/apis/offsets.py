"""Where logs begin and end (KIP-79), and where the records of a leader epoch end (KIP-320)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kafka_sink.kafka.config import IsolationLevel
from kafka_sink.kafka.protocol.api import Api, check_answered, check_number, each_asked
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

# --- ListOffsets ------------------------------------------------------------------------------------------------------
# The first and the end offset of partitions, and the first offset from a time on (KIP-79).
#
# Version 4 is the first that names the client's leader epoch (KIP-320); Kafka 2.1 has it.
#
# Source: ListOffsetsRequest.json, ListOffsetsResponse.json; org.apache.kafka.common.requests.ListOffsetsRequest.

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
class ListOffsetsRequest:
    """Sent to the leader of `asked`. `timeout_ms`: for remote storage."""

    asked: tuple[AskedOffset, ...]
    isolation_level: IsolationLevel
    timeout_ms: int


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


def kio_list_offsets(kio: Any, version: int, request: ListOffsetsRequest) -> Any:
    topics: dict[str, list[Any]] = {}
    for each in request.asked:
        topics.setdefault(each.topic, []).append(
            kio.ListOffsetsPartition(
                partition_index=each.partition, current_leader_epoch=each.leader_epoch, timestamp=each.timestamp_ms
            )
        )
    timeout = {"timeout": timedelta(milliseconds=request.timeout_ms)} if version >= _WITH_TIMEOUT else {}
    return kio.ListOffsetsRequest(
        replica_id=_REPLICA_ID,
        isolation_level=request.isolation_level.value,
        topics=tuple(
            kio.ListOffsetsTopic(name=topic, partitions=tuple(partitions)) for topic, partitions in topics.items()
        ),
        **timeout,
    )


def list_offsets_response(request: ListOffsetsRequest, message: Mapping[str, Any]) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        throttle_time_ms=message["throttle_time"],
        partitions=tuple(
            ListedOffset(
                topic=topic["name"],
                partition=partition["partition_index"],
                error_code=partition["error_code"],
                timestamp_ms=partition["timestamp"],
                offset=partition["offset"],
                leader_epoch=partition["leader_epoch"],
            )
            for topic in message["topics"]
            for partition in topic["partitions"]
        ),
    )


def check_list_offsets_response(request: ListOffsetsRequest, response: ListOffsetsResponse) -> None:
    """Raise ProtocolError unless each partition of the request is answered once, with an offset that a log can have."""
    asked = (TopicPartition(each.topic, each.partition) for each in request.asked)
    answered = (TopicPartition(each.topic, each.partition) for each in response.partitions)
    check_answered("ListOffsets", asked, answered)
    of_time = {(each.topic, each.partition) for each in request.asked if each.timestamp_ms >= 0}
    for each in response.partitions:
        if each.error_code == ErrorCode.NONE:
            # Only a time may have no record.
            least = NO_OFFSET if (each.topic, each.partition) in of_time else 0
            check_number("ListOffsets", "offset", each.offset, least)
            check_number("ListOffsets", "leader epoch", each.leader_epoch)


LIST_OFFSETS = Api(
    "ListOffsets",
    2,
    4,
    11,
    ListOffsetsRequest,
    kio_list_offsets,
    list_offsets_response,
    check_list_offsets_response,
    most=lambda request: each_asked(len(request.asked), "topics", "partitions"),
)


# --- OffsetForLeaderEpoch ---------------------------------------------------------------------------------------------
# Where the records of a leader epoch end. If that is before a reader's position, the log was
# truncated (KIP-320).
#
# Version 3 is the first for which Describe on the topic suffices (KIP-392); Kafka 2.3 has it.
#
# Source: OffsetForLeaderEpochRequest.json; org.apache.kafka.common.requests.OffsetsForLeaderEpochRequest.


@dataclass(frozen=True, slots=True)
class OffsetForLeaderEpochRequest:
    """Sent to the leader. `current_leader_epoch`: the newest that the client knows. `leader_epoch`: that of the record
    before the reader's position."""

    topic: str
    partition: int
    current_leader_epoch: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class OffsetForLeaderEpochResponse:
    """`leader_epoch`: the highest epoch of the log that is not above the asked one, -1 for none. `end_offset`: after
    its last record, -1 for none."""

    throttle_time_ms: int
    error_code: int
    leader_epoch: int
    end_offset: int


def kio_offset_for_leader_epoch(kio: Any, version: int, request: OffsetForLeaderEpochRequest) -> Any:
    partition = kio.OffsetForLeaderPartition(
        partition=request.partition,
        current_leader_epoch=request.current_leader_epoch,
        leader_epoch=request.leader_epoch,
    )
    topic = kio.OffsetForLeaderTopic(topic=request.topic, partitions=(partition,))
    return kio.OffsetForLeaderEpochRequest(replica_id=_REPLICA_ID, topics=(topic,))


def offset_for_leader_epoch_response(
    request: OffsetForLeaderEpochRequest, message: Mapping[str, Any]
) -> OffsetForLeaderEpochResponse:
    found = [(topic["topic"], each) for topic in message["topics"] for each in topic["partitions"]]
    answered = [(name, each["partition"]) for name, each in found]
    check_answered("OffsetForLeaderEpoch", [(request.topic, request.partition)], answered)
    _, partition = found[0]
    return OffsetForLeaderEpochResponse(
        throttle_time_ms=message["throttle_time"],
        error_code=partition["error_code"],
        leader_epoch=partition["leader_epoch"],
        end_offset=partition["end_offset"],
    )


def check_offset_for_leader_epoch_response(
    request: OffsetForLeaderEpochRequest, response: OffsetForLeaderEpochResponse
) -> None:
    """Raise ProtocolError for an epoch or an offset that no log has."""
    check_number("OffsetForLeaderEpoch", "leader epoch", response.leader_epoch)
    check_number("OffsetForLeaderEpoch", "end offset", response.end_offset)


OFFSET_FOR_LEADER_EPOCH = Api(
    "OffsetForLeaderEpoch",
    23,
    3,
    4,
    OffsetForLeaderEpochRequest,
    kio_offset_for_leader_epoch,
    offset_for_leader_epoch_response,
    check_offset_for_leader_epoch_response,
    most=lambda request: each_asked(1, "topics", "partitions"),
)

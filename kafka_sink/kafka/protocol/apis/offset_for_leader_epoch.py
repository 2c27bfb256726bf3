"""OffsetForLeaderEpoch: where the records of a leader epoch end. If that is before a reader's position, the log was
truncated (KIP-320).

Version 3 is the first for which Describe on the topic suffices (KIP-392); Kafka 2.3 has it.

Source: OffsetForLeaderEpochRequest.json; org.apache.kafka.common.requests.OffsetsForLeaderEpochRequest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.kafka.protocol.api import Api, check_answered, check_number, each_asked

# A consumer, not a replica.
_REPLICA_ID = -1


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


API = Api(
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

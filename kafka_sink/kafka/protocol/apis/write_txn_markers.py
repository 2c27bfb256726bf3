"""WriteTxnMarkers: ends a hanging transaction on a leader (KIP-664)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.kafka.protocol.api import Api, PartitionResult, by_topic, check_answered, each_asked
from kafka_sink.kafka.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class WriteTxnMarkersRequest:
    """Ends a producer's transaction on `partitions`, which the receiver leads, whatever state its coordinator has."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class WriteTxnMarkersResponse:
    """`throttle_time_ms` is always 0, because the response has no such field."""

    results: tuple[PartitionResult, ...]
    throttle_time_ms: int = 0


def kio_write_txn_markers(kio: Any, version: int, request: WriteTxnMarkersRequest) -> Any:
    marker = kio.WritableTxnMarker(
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        transaction_result=request.committed,
        coordinator_epoch=request.coordinator_epoch,
        topics=tuple(
            kio.WritableTxnMarkerTopic(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic(request.partitions).items()
        ),
    )
    return kio.WriteTxnMarkersRequest(markers=(marker,))


def write_txn_markers_response(request: WriteTxnMarkersRequest, message: Mapping[str, Any]) -> WriteTxnMarkersResponse:
    """Raise ProtocolError unless only the request's producer is answered, once."""
    markers = message["markers"]
    check_answered("WriteTxnMarkers", [request.producer_id], [marker["producer_id"] for marker in markers])
    return WriteTxnMarkersResponse(
        tuple(
            PartitionResult(topic["name"], partition["partition_index"], partition["error_code"])
            for marker in markers
            for topic in marker["topics"]
            for partition in topic["partitions"]
        )
    )


def check_write_txn_markers_response(request: WriteTxnMarkersRequest, response: WriteTxnMarkersResponse) -> None:
    """Raise ProtocolError unless each partition occurs once."""
    answered = ((result.topic, result.partition) for result in response.results)
    check_answered("WriteTxnMarkers", request.partitions, answered)


API = Api(
    "WriteTxnMarkers",
    27,
    1,
    1,
    WriteTxnMarkersRequest,
    kio_write_txn_markers,
    write_txn_markers_response,
    check_write_txn_markers_response,
    most=lambda request: each_asked(1, "markers") | each_asked(len(request.partitions), "topics", "partitions"),
)

"""AddPartitionsToTxn: adds partitions to a transaction of version 1 (KIP-98)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.kafka.protocol.api import Api, PartitionResult, by_topic, check_answered, each_asked
from kafka_sink.kafka.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnRequest:
    """Sent before the first Produce to `partitions` in a transaction of version 1."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnResponse:
    throttle_time_ms: int
    results: tuple[PartitionResult, ...]


def kio_add_partitions_to_txn(kio: Any, version: int, request: AddPartitionsToTxnRequest) -> Any:
    # From version 4 on only brokers send this request, with many transactions in it.
    return kio.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=request.transactional_id,
        v3_and_below_producer_id=request.producer_id,
        v3_and_below_producer_epoch=request.producer_epoch,
        v3_and_below_topics=tuple(
            kio.AddPartitionsToTxnTopic(name=topic, partitions=numbers)
            for topic, numbers in by_topic(request.partitions).items()
        ),
    )


def add_partitions_to_txn_response(
    request: AddPartitionsToTxnRequest, message: Mapping[str, Any]
) -> AddPartitionsToTxnResponse:
    return AddPartitionsToTxnResponse(
        throttle_time_ms=message["throttle_time"],
        results=tuple(
            PartitionResult(topic["name"], partition["partition_index"], partition["partition_error_code"])
            for topic in message["results_by_topic_v3_and_below"]
            for partition in topic["results_by_partition"]
        ),
    )


def check_add_partitions_to_txn_response(
    request: AddPartitionsToTxnRequest, response: AddPartitionsToTxnResponse
) -> None:
    """Raise ProtocolError unless each partition occurs once."""
    answered = ((result.topic, result.partition) for result in response.results)
    check_answered("AddPartitionsToTxn", request.partitions, answered)


API = Api(
    "AddPartitionsToTxn",
    24,
    0,
    3,
    AddPartitionsToTxnRequest,
    kio_add_partitions_to_txn,
    add_partitions_to_txn_response,
    check_add_partitions_to_txn_response,
    client_throttles_from=1,
    most=lambda request: each_asked(len(request.partitions), "results_by_topic_v3_and_below", "results_by_partition"),
)

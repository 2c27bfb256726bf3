"""DescribeProducers: the producers and open transactions that a partition's leader knows (KIP-664)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_sink.kafka.protocol.api import Api, by_topic, check_answered, check_number, each_asked
from kafka_sink.kafka.protocol.topic_partition import TopicPartition


@dataclass(frozen=True, slots=True)
class DescribeProducersRequest:
    """Sent to a broker that leads `partitions`. Asks for the producers that it remembers there."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """`current_txn_start_offset`: the first record of the open transaction, -1 without one. `coordinator_epoch`: that
    of the last marker, -1 without one. The leader refuses a marker with a lower epoch. `last_sequence`: that of the
    last record of this epoch, -1 if the leader knows none."""

    producer_id: int
    producer_epoch: int
    current_txn_start_offset: int
    coordinator_epoch: int = -1
    last_sequence: int = -1


@dataclass(frozen=True, slots=True)
class ProducersOfPartition:
    topic: str
    partition: int
    error_code: int
    error_message: str | None
    producers: tuple[ActiveProducer, ...]


@dataclass(frozen=True, slots=True)
class DescribeProducersResponse:
    throttle_time_ms: int
    partitions: tuple[ProducersOfPartition, ...]


def kio_describe_producers(kio: Any, version: int, request: DescribeProducersRequest) -> Any:
    return kio.DescribeProducersRequest(
        topics=tuple(
            kio.TopicRequest(name=topic, partition_indexes=numbers)
            for topic, numbers in by_topic(request.partitions).items()
        )
    )


def describe_producers_response(
    request: DescribeProducersRequest, message: Mapping[str, Any]
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        throttle_time_ms=message["throttle_time"],
        partitions=tuple(
            ProducersOfPartition(
                topic=topic["name"],
                partition=partition["partition_index"],
                error_code=partition["error_code"],
                error_message=partition["error_message"],
                producers=tuple(
                    ActiveProducer(
                        producer_id=producer["producer_id"],
                        producer_epoch=producer["producer_epoch"],
                        current_txn_start_offset=producer["current_txn_start_offset"],
                        coordinator_epoch=producer["coordinator_epoch"],
                        last_sequence=producer["last_sequence"],
                    )
                    for producer in partition["active_producers"]
                ),
            )
            for topic in message["topics"]
            for partition in topic["partitions"]
        ),
    )


def check_describe_producers_response(request: DescribeProducersRequest, response: DescribeProducersResponse) -> None:
    """Raise ProtocolError unless each partition occurs once, with ids, epochs and offsets that can be ones."""
    answered = ((found.topic, found.partition) for found in response.partitions)
    check_answered("DescribeProducers", request.partitions, answered)
    for found in response.partitions:
        for producer in found.producers:
            check_number("DescribeProducers", "producer id", producer.producer_id)
            check_number("DescribeProducers", "producer epoch", producer.producer_epoch)
            check_number("DescribeProducers", "start of a transaction", producer.current_txn_start_offset)
            check_number("DescribeProducers", "coordinator epoch", producer.coordinator_epoch)
            check_number("DescribeProducers", "last sequence", producer.last_sequence)


API = Api(
    "DescribeProducers",
    61,
    0,
    0,
    DescribeProducersRequest,
    kio_describe_producers,
    describe_producers_response,
    check_describe_producers_response,
    most=lambda request: each_asked(len(request.partitions), "topics", "partitions"),
)

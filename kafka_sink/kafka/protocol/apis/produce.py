"""Produce: sends record batches to partitions; leaders return where they wrote them."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.protocol.api import (
    MAX_OFFSET,
    MOST_BROKERS,
    Api,
    Message,
    Request,
    Versions,
    check_number,
    each_asked,
    first_of,
)
from kafka_sink.kafka.protocol.apis.metadata import NamedLeader, check_leaders, endpoints_of, named_leader
from kafka_sink.kafka.protocol.error_codes import ErrorCode

# The first version that may carry zstd (KIP-110). Kafka 2.1 has it. Earlier ones differ in nothing else that is used.
LOWEST_PRODUCE = 7
# From this version on, a request adds its partitions to the transaction. Only transactions of version 2 allow this
# (KIP-890). In version 1, AddPartitionsToTxn comes first.
PRODUCE_ADDS_PARTITIONS = 12
# From this version on, topics are named by id (KIP-516).
PRODUCE_BY_TOPIC_ID = 13
# The leader does not report the offset (ProduceResponse.INVALID_OFFSET).
UNKNOWN_OFFSET = -1


@dataclass(frozen=True, slots=True)
class ProducePartition:
    """`records`: one record batch, in its bytes on the wire."""

    topic: str
    partition: int
    topic_id: uuid.UUID | None
    records: memoryview | bytes


@dataclass(frozen=True, slots=True)
class ProduceRequest(Request):
    """`acks`: -1 for all in-sync replicas, 1 for the leader, 0 for no response. `timeout_ms`: how long the leader
    waits.
    `transaction_version`: the version of the transaction of `transactional_id`."""

    api = Api("Produce", 0, LOWEST_PRODUCE, PRODUCE_BY_TOPIC_ID)

    acks: int
    timeout_ms: int
    partitions: tuple[ProducePartition, ...]
    transactional_id: str | None = None
    transaction_version: int = 2

    def versions(self) -> Versions:
        """A topic without an id can only be named."""
        if self.transactional_id is not None and self.transaction_version < 2:
            return LOWEST_PRODUCE, PRODUCE_ADDS_PARTITIONS - 1
        by_id = all(data.topic_id for data in self.partitions)
        return LOWEST_PRODUCE, PRODUCE_BY_TOPIC_ID if by_id else PRODUCE_BY_TOPIC_ID - 1

    def to_kio(self, kio: Any, version: int) -> Any:
        by_id = version >= PRODUCE_BY_TOPIC_ID
        topics: dict[Any, list[Any]] = {}
        for data in self.partitions:
            # kio takes the len() of a buffer for its size in bytes.
            records = memoryview(data.records).cast("B")
            partition = kio.PartitionProduceData(index=data.partition, records=records)
            topics.setdefault(data.topic_id if by_id else data.topic, []).append(partition)
        field = "topic_id" if by_id else "name"
        return kio.ProduceRequest(
            transactional_id=self.transactional_id,
            acks=self.acks,
            timeout=timedelta(milliseconds=self.timeout_ms),
            topic_data=tuple(
                kio.TopicProduceData(**{field: topic}, partition_data=tuple(partitions))
                for topic, partitions in topics.items()
            ),
        )

    def response(self, message: Message) -> ProduceResponse:
        endpoints = endpoints_of(message)
        return ProduceResponse(
            throttle_time_ms=message["throttle_time"],
            partitions=tuple(
                ProduceResult(
                    topic=topic.get("name"),
                    topic_id=topic.get("topic_id"),
                    partition=partition["index"],
                    error_code=partition["error_code"],
                    error_message=partition.get("error_message"),
                    base_offset=partition["base_offset"],
                    refused=tuple(
                        RefusedRecord(error["batch_index"], error["batch_index_error_message"] or "")
                        for error in partition.get("record_errors", ())
                    ),
                    leader=named_leader(partition, endpoints),
                )
                for topic in message["responses"]
                for partition in topic["partition_responses"]
            ),
        )

    def check(self, response: ProduceResponse) -> None:
        """Raise ProtocolError unless `response` has each partition of the request once, no other, and valid offsets."""
        for result in response.partitions:
            if result.error_code == ErrorCode.NONE and not UNKNOWN_OFFSET <= result.base_offset <= MAX_OFFSET:
                raise ProtocolError(f"a Produce answer that has the rows at offset {result.base_offset}")
            for refused in result.refused:
                check_number("Produce", "a refused record at", refused.place, least=0)
        check_leaders("Produce", (result.leader for result in response.partitions))
        by_id = any(result.topic_id for result in response.partitions)
        asked = Counter((data.topic_id if by_id else data.topic, data.partition) for data in self.partitions)
        answered = Counter(
            (result.topic_id if by_id else result.topic, result.partition) for result in response.partitions
        )
        if asked == answered:
            return
        missing, surplus = asked - answered, answered - asked
        raise ProtocolError(
            f"a Produce answer for other partitions than asked ({first_of(missing)} missing, {first_of(surplus)} not "
            "asked for or answered twice)"
        )

    def most(self) -> Mapping[str, int]:
        partitions = each_asked(len(self.partitions), "responses", "partition_responses")
        return partitions | each_asked(MOST_BROKERS, "node_endpoints")


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """`place`: index in the batch, from 0, as the leader reports it (KIP-467)."""

    place: int
    message: str


@dataclass(frozen=True, slots=True)
class ProduceResult:
    """The result for one partition. From version 13 on the topic's id is set, before that its name; the other is None.

    `refused`: the records that caused the error, if some of the batch did. Before version 8 leaders name neither these
    nor an error message. `leader`: as a broker names it that does not lead the partition.
    """

    topic: str | None
    topic_id: uuid.UUID | None
    partition: int
    error_code: int
    error_message: str | None
    base_offset: int
    refused: tuple[RefusedRecord, ...] = ()
    leader: NamedLeader | None = None


@dataclass(frozen=True, slots=True)
class ProduceResponse:
    throttle_time_ms: int
    partitions: tuple[ProduceResult, ...]

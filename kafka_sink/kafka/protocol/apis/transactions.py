"""The requests of a transaction, in their order: ids, partitions, offsets, its end, and the end of a hanging one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kafka_sink.errors import AttemptFenced, ProtocolError, TransactionRefused
from kafka_sink.kafka.protocol.api import (
    Api,
    ErrorResponse,
    Message,
    PartitionResult,
    PartitionsResponse,
    Request,
    Versions,
    by_topic,
    check_answered,
    check_partitions,
    each_asked,
    only_partition,
    partition_results,
    read,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_name, meaning
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

# --- InitProducerId ---------------------------------------------------------------------------------------------------

# The first version whose broker keeps a transactional id's last epoch, by which a fence can be told from a lost
# request (KIP-360).
LOWEST_TRANSACTIONAL = 3


@dataclass(frozen=True, slots=True)
class InitProducerIdRequest(Request):
    """Asks for a producer id and epoch, which fence earlier ones (KIP-98). `transaction_timeout_ms` has an effect only
    with a transactional id."""

    # Every release so far refuses version 6 (KIP-939, prepared transactions).
    api = Api("InitProducerId", 22, 0, 5, client_throttles_from=1)

    transaction_timeout_ms: int
    transactional_id: str | None = None

    def versions(self) -> Versions:
        return 0 if self.transactional_id is None else LOWEST_TRANSACTIONAL, self.api.max_version

    def to_kio(self, kio: Any, version: int) -> Any:
        return kio.InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout=timedelta(milliseconds=self.transaction_timeout_ms),
        )

    def response(self, message: Message) -> InitProducerIdResponse:
        return read(InitProducerIdResponse, message)

    def check(self, response: InitProducerIdResponse) -> None:
        """Raise ProtocolError for a success without an id: batches would silently be sent without idempotence."""
        if response.error_code == ErrorCode.NONE and (response.producer_id < 0 or response.producer_epoch < 0):
            raise ProtocolError("an InitProducerId answer with neither an error nor a producer id")


@dataclass(frozen=True, slots=True)
class InitProducerIdResponse:
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int


# --- AddPartitionsToTxn -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnRequest(Request):
    """Sent before the first Produce to `partitions` in a transaction of version 1."""

    # From version 4 on only brokers send this request, with many transactions in it.
    api = Api("AddPartitionsToTxn", 24, 0, 3, client_throttles_from=1)

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]

    def to_kio(self, kio: Any, version: int) -> Any:
        return kio.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=tuple(
                kio.AddPartitionsToTxnTopic(name=topic, partitions=numbers)
                for topic, numbers in by_topic(self.partitions).items()
            ),
        )

    def response(self, message: Message) -> PartitionsResponse:
        return PartitionsResponse(
            throttle_time_ms=message["throttle_time"],
            results=tuple(
                PartitionResult(topic["name"], partition["partition_index"], partition["partition_error_code"])
                for topic in message["results_by_topic_v3_and_below"]
                for partition in topic["results_by_partition"]
            ),
        )

    def check(self, response: PartitionsResponse) -> None:
        """Raise ProtocolError unless each partition occurs once."""
        check_partitions("AddPartitionsToTxn", self.partitions, response.results)

    def most(self) -> Mapping[str, int]:
        return each_asked(len(self.partitions), "results_by_topic_v3_and_below", "results_by_partition")


# --- AddOffsetsToTxn --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxnRequest(Request):
    """Sent before the first TxnOffsetCommit of `group_id` in a transaction of version 1."""

    api = Api("AddOffsetsToTxn", 25, 0, 4, client_throttles_from=1)

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str

    def to_kio(self, kio: Any, version: int) -> Any:
        return kio.AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=self.group_id,
        )

    def response(self, message: Message) -> ErrorResponse:
        return read(ErrorResponse, message)


# --- TxnOffsetCommit --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TxnOffsetCommitRequest(Request):
    """One offset with a metadata text, visible once the transaction commits. The group has no members."""

    api = Api("TxnOffsetCommit", 28, 3, 5)

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    topic: str
    partition: int
    offset: int
    metadata: str
    transaction_version: int

    def versions(self) -> Versions:
        """Return the one version that adds the group to the transaction, or those that need AddOffsetsToTxn before."""
        return (5, 5) if self.transaction_version >= 2 else (3, 4)

    def to_kio(self, kio: Any, version: int) -> Any:
        partition = kio.TxnOffsetCommitRequestPartition(
            partition_index=self.partition, committed_offset=self.offset, committed_metadata=self.metadata
        )
        return kio.TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=(kio.TxnOffsetCommitRequestTopic(name=self.topic, partitions=(partition,)),),
        )

    def response(self, message: Message) -> ErrorResponse:
        """Raise ProtocolError unless only the request's partition is answered, once."""
        partition = only_partition("TxnOffsetCommit", self.topic, self.partition, message["topics"])
        return ErrorResponse(message["throttle_time"], partition["error_code"])

    def most(self) -> Mapping[str, int]:
        return each_asked(1, "topics", "partitions")


# --- EndTxn -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EndTxnRequest(Request):
    """Commits (`committed`) or aborts the transaction. `transaction_version`: 1 or 2, as when it was begun."""

    api = Api("EndTxn", 26, 0, 5, client_throttles_from=1)

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    transaction_version: int

    def versions(self) -> Versions:
        """Return the one version that bumps the epoch, or the versions that do not."""
        return (5, 5) if self.transaction_version >= 2 else (0, 4)

    def to_kio(self, kio: Any, version: int) -> Any:
        return kio.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=self.committed,
        )

    def response(self, message: Message) -> EndTxnResponse:
        return read(EndTxnResponse, message)

    def check(self, response: EndTxnResponse) -> None:
        """Raise ProtocolError if a success of version 2 has no ids to continue with."""
        has_ids = response.producer_id >= 0 and response.producer_epoch >= 0
        if response.error_code == ErrorCode.NONE and self.transaction_version >= 2 and not has_ids:
            raise ProtocolError("an EndTxn answer with neither an error nor the producer's next id and epoch")


@dataclass(frozen=True, slots=True)
class EndTxnResponse:
    """`producer_id`, `producer_epoch`: the ids to continue with after a transaction of version 2; otherwise -1."""

    throttle_time_ms: int
    error_code: int
    producer_id: int = -1
    producer_epoch: int = -1


# --- WriteTxnMarkers --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteTxnMarkersRequest(Request):
    """Ends a producer's transaction on `partitions`, which the receiver leads, whatever state its coordinator has."""

    api = Api("WriteTxnMarkers", 27, 1, 1)

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    partitions: tuple[TopicPartition, ...]

    def to_kio(self, kio: Any, version: int) -> Any:
        marker = kio.WritableTxnMarker(
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            transaction_result=self.committed,
            coordinator_epoch=self.coordinator_epoch,
            topics=tuple(
                kio.WritableTxnMarkerTopic(name=topic, partition_indexes=numbers)
                for topic, numbers in by_topic(self.partitions).items()
            ),
        )
        return kio.WriteTxnMarkersRequest(markers=(marker,))

    def response(self, message: Message) -> PartitionsResponse:
        """Raise ProtocolError unless only the request's producer is answered, once."""
        markers = message["markers"]
        check_answered("WriteTxnMarkers", [self.producer_id], [marker["producer_id"] for marker in markers])
        # The response has no throttle time.
        return PartitionsResponse(0, partition_results(markers[0]["topics"]))

    def check(self, response: PartitionsResponse) -> None:
        """Raise ProtocolError unless each partition occurs once."""
        check_partitions("WriteTxnMarkers", self.partitions, response.results)

    def most(self) -> Mapping[str, int]:
        return each_asked(1, "markers") | each_asked(len(self.partitions), "topics", "partitions")


def transaction_refused(transactional_id: str, api: str, code: int) -> AttemptFenced | TransactionRefused:
    """Return the exception for the final error of a request in a transaction."""
    if meaning(code).fenced:
        return AttemptFenced(transactional_id=transactional_id, api=api, name=error_name(code))
    return TransactionRefused(transactional_id=transactional_id, api=api, code=code, name=error_name(code))

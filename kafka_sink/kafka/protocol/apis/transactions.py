"""The requests of a transaction, in their order: ids, partitions, offsets, its end, and the end of a hanging one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.protocol.api import (
    Api,
    PartitionResult,
    Versions,
    by_topic,
    check_answered,
    each_asked,
    only_partition,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

# --- InitProducerId ---------------------------------------------------------------------------------------------------
# Returns a producer id and epoch, which fence earlier ones (KIP-98, KIP-360).


@dataclass(frozen=True, slots=True)
class InitProducerIdRequest:
    """`transaction_timeout_ms` has an effect only with a transactional id."""

    transaction_timeout_ms: int
    transactional_id: str | None = None


@dataclass(frozen=True, slots=True)
class InitProducerIdResponse:
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int


# The first version whose broker keeps a transactional id's last epoch, by which a fence can be told from a lost
# request (KIP-360).
LOWEST_TRANSACTIONAL = 3
# Every release so far refuses version 6 (KIP-939, prepared transactions).
_HIGHEST = 5


def init_producer_id_versions(request: InitProducerIdRequest) -> Versions:
    return 0 if request.transactional_id is None else LOWEST_TRANSACTIONAL, _HIGHEST


def kio_init_producer_id(kio: Any, version: int, request: InitProducerIdRequest) -> Any:
    return kio.InitProducerIdRequest(
        transactional_id=request.transactional_id,
        transaction_timeout=timedelta(milliseconds=request.transaction_timeout_ms),
    )


def init_producer_id_response(request: InitProducerIdRequest, message: Mapping[str, Any]) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=message["throttle_time"],
        error_code=message["error_code"],
        producer_id=message["producer_id"],
        producer_epoch=message["producer_epoch"],
    )


def check_init_producer_id_response(request: InitProducerIdRequest, response: InitProducerIdResponse) -> None:
    """Raise ProtocolError for a success without an id: batches would silently be sent without idempotence."""
    if response.error_code == ErrorCode.NONE and (response.producer_id < 0 or response.producer_epoch < 0):
        raise ProtocolError("an InitProducerId answer with neither an error nor a producer id")


INIT_PRODUCER_ID = Api(
    "InitProducerId",
    22,
    0,
    _HIGHEST,
    InitProducerIdRequest,
    kio_init_producer_id,
    init_producer_id_response,
    check_init_producer_id_response,
    init_producer_id_versions,
    client_throttles_from=1,
)


# --- AddPartitionsToTxn -----------------------------------------------------------------------------------------------
# Adds partitions to a transaction of version 1 (KIP-98).


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


ADD_PARTITIONS_TO_TXN = Api(
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


# --- AddOffsetsToTxn --------------------------------------------------------------------------------------------------
# Adds a group's offsets to a transaction of version 1 (KIP-98).


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxnRequest:
    """Sent before the first TxnOffsetCommit of `group_id` in a transaction of version 1."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxnResponse:
    throttle_time_ms: int
    error_code: int


def kio_add_offsets_to_txn(kio: Any, version: int, request: AddOffsetsToTxnRequest) -> Any:
    return kio.AddOffsetsToTxnRequest(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        group_id=request.group_id,
    )


def add_offsets_to_txn_response(request: AddOffsetsToTxnRequest, message: Mapping[str, Any]) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(throttle_time_ms=message["throttle_time"], error_code=message["error_code"])


ADD_OFFSETS_TO_TXN = Api(
    "AddOffsetsToTxn",
    25,
    0,
    4,
    AddOffsetsToTxnRequest,
    kio_add_offsets_to_txn,
    add_offsets_to_txn_response,
    client_throttles_from=1,
)


# --- TxnOffsetCommit --------------------------------------------------------------------------------------------------
# Commits an offset as part of a transaction (KIP-447, KIP-890).


@dataclass(frozen=True, slots=True)
class TxnOffsetCommitRequest:
    """One offset with a metadata text, visible once the transaction commits. The group has no members."""

    transactional_id: str
    group_id: str
    producer_id: int
    producer_epoch: int
    topic: str
    partition: int
    offset: int
    metadata: str
    transaction_version: int


@dataclass(frozen=True, slots=True)
class TxnOffsetCommitResponse:
    throttle_time_ms: int
    error_code: int


def txn_offset_commit_versions(request: TxnOffsetCommitRequest) -> Versions:
    """Return the one version that adds the group to the transaction, or those that need AddOffsetsToTxn before."""
    return (5, 5) if request.transaction_version >= 2 else (3, 4)


def kio_txn_offset_commit(kio: Any, version: int, request: TxnOffsetCommitRequest) -> Any:
    partition = kio.TxnOffsetCommitRequestPartition(
        partition_index=request.partition, committed_offset=request.offset, committed_metadata=request.metadata
    )
    return kio.TxnOffsetCommitRequest(
        transactional_id=request.transactional_id,
        group_id=request.group_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        topics=(kio.TxnOffsetCommitRequestTopic(name=request.topic, partitions=(partition,)),),
    )


def txn_offset_commit_response(request: TxnOffsetCommitRequest, message: Mapping[str, Any]) -> TxnOffsetCommitResponse:
    """Raise ProtocolError unless only the request's partition is answered, once."""
    partition = only_partition("TxnOffsetCommit", request.topic, request.partition, message["topics"])
    return TxnOffsetCommitResponse(throttle_time_ms=message["throttle_time"], error_code=partition["error_code"])


TXN_OFFSET_COMMIT = Api(
    "TxnOffsetCommit",
    28,
    3,
    5,
    TxnOffsetCommitRequest,
    kio_txn_offset_commit,
    txn_offset_commit_response,
    versions_of=txn_offset_commit_versions,
    most=lambda request: each_asked(1, "topics", "partitions"),
)


# --- EndTxn -----------------------------------------------------------------------------------------------------------
# Commits or aborts a transaction (KIP-98, KIP-890).


@dataclass(frozen=True, slots=True)
class EndTxnRequest:
    """Commits (`committed`) or aborts the transaction. `transaction_version`: 1 or 2, as when it was begun."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    transaction_version: int


@dataclass(frozen=True, slots=True)
class EndTxnResponse:
    """`producer_id`, `producer_epoch`: the ids to continue with after a transaction of version 2; otherwise -1."""

    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int


def end_txn_versions(request: EndTxnRequest) -> Versions:
    """Return the one version that bumps the epoch, or the versions that do not."""
    return (5, 5) if request.transaction_version >= 2 else (0, 4)


def kio_end_txn(kio: Any, version: int, request: EndTxnRequest) -> Any:
    return kio.EndTxnRequest(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        committed=request.committed,
    )


def end_txn_response(request: EndTxnRequest, message: Mapping[str, Any]) -> EndTxnResponse:
    return EndTxnResponse(
        throttle_time_ms=message["throttle_time"],
        error_code=message["error_code"],
        producer_id=message.get("producer_id", -1),
        producer_epoch=message.get("producer_epoch", -1),
    )


def check_end_txn_response(request: EndTxnRequest, response: EndTxnResponse) -> None:
    """Raise ProtocolError if a success of version 2 has no ids to continue with."""
    has_ids = response.producer_id >= 0 and response.producer_epoch >= 0
    if response.error_code == ErrorCode.NONE and request.transaction_version >= 2 and not has_ids:
        raise ProtocolError("an EndTxn answer with neither an error nor the producer's next id and epoch")


END_TXN = Api(
    "EndTxn",
    26,
    0,
    5,
    EndTxnRequest,
    kio_end_txn,
    end_txn_response,
    check_end_txn_response,
    end_txn_versions,
    client_throttles_from=1,
)


# --- WriteTxnMarkers --------------------------------------------------------------------------------------------------
# Ends a hanging transaction on a leader (KIP-664).


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


WRITE_TXN_MARKERS = Api(
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

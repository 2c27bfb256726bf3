"""The requests of transactions, and of the offsets of groups that nobody joins: our values, and kio's made of them.

    FindCoordinator ─> who serves a transactional id, or a group
    InitProducerId ─> AddPartitionsToTxn ─> Produce ─> AddOffsetsToTxn ─> TxnOffsetCommit ─> EndTxn
    OffsetFetch, DescribeTransactions, ListTransactions, DescribeProducers ─> what became of it
    DeleteGroups ─> takes away what nobody needs any more
    WriteTxnMarkers ─> ends by hand what hangs (KIP-664)
    CreateTopics, DescribeConfigs ─> what a cluster must have for it

Rows of `requests.APIS`, where InitProducerId and Produce are. Each API has, in this order: the request, the response,
how the one becomes kio's (given kio's module of the version), how kio's message becomes the other, and what makes an
answer one to its request: whatever is left out, answered twice or not asked for is a ProtocolError.

Non-obvious:

* A request that belongs to a transaction says which version of the protocol (KIP-890) the transaction has, and only
  message versions of that protocol may carry it. A late EndTxn of version 1 ends the next transaction of its
  producer (KAFKA-17754), and version 2 of TxnOffsetCommit adds the group to the transaction by itself: mixing the two
  gives answers that are false.
* A filter that a broker is too old for is applied here, to its answer.

Source: KIP-98, KIP-360, KIP-447 (require_stable), KIP-664 (describing), KIP-699 (many keys), KIP-709 (many groups),
KIP-890, KIP-994 and KIP-1152 (filters of ListTransactions).
"""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.new_topic import BROKERS_DEFAULT
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

# Which versions of a message can carry a request, lowest and highest.
Versions = tuple[int, int]


@dataclass(frozen=True, slots=True)
class PartitionResult:
    """What became of a request for one partition."""

    topic: str
    partition: int
    error_code: int


def _by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, tuple[int, ...]]:
    grouped: dict[str, list[int]] = {}
    for topic, partition in partitions:
        grouped.setdefault(topic, []).append(partition)
    return {topic: tuple(numbers) for topic, numbers in grouped.items()}


def check_answered(api: str, asked: Iterable[Any], answered: Iterable[Any]) -> None:
    """Raises ProtocolError unless `answered` is `asked`, in any order."""
    wanted, got = Counter(asked), Counter(answered)
    if wanted == got:
        return
    missing, surplus = wanted - got, got - wanted
    raise ProtocolError(
        f"a {api} answer for something else than asked (missing: {_first(missing)}; not asked for or answered twice: "
        f"{_first(surplus)})"
    )


def _first(elements: Counter[Any]) -> str:
    if not elements:
        return "none"
    element, *more = elements
    text = f"{element[0]}-{element[1]}" if isinstance(element, tuple) else repr(element)
    return text + (f" and {len(more)} more" if more else "")


# --- FindCoordinator --------------------------------------------------------------------------------------------------


class CoordinatorKind(enum.IntEnum):
    """What a key of FindCoordinator is. Kafka's CoordinatorType."""

    GROUP = 0
    TRANSACTION = 1


@dataclass(frozen=True, slots=True)
class FindCoordinatorRequest:
    """`keys`: group ids or transactional ids, each once."""

    kind: CoordinatorKind
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FoundCoordinator:
    """The broker that serves `key`, with an address; with an error, node id and port are -1."""

    key: str
    error_code: int
    error_message: str | None
    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class FindCoordinatorResponse:
    throttle_time_ms: int
    coordinators: tuple[FoundCoordinator, ...]


def kio_find_coordinator(kio: Any, version: int, request: FindCoordinatorRequest) -> Any:
    return kio.FindCoordinatorRequest(key_type=request.kind.value, coordinator_keys=request.keys)


def find_coordinator_response(request: FindCoordinatorRequest, message: Mapping[str, Any]) -> FindCoordinatorResponse:
    return FindCoordinatorResponse(
        throttle_time_ms=message["throttle_time"],
        coordinators=tuple(
            FoundCoordinator(
                key=found["key"],
                error_code=found["error_code"],
                error_message=found["error_message"],
                node_id=found["node_id"],
                host=found["host"],
                port=found["port"],
            )
            for found in message["coordinators"]
        ),
    )


def check_find_coordinator_response(request: FindCoordinatorRequest, response: FindCoordinatorResponse) -> None:
    """Each key once, and a broker for each that has no error."""
    check_answered("FindCoordinator", request.keys, (found.key for found in response.coordinators))
    for found in response.coordinators:
        possible = found.node_id >= 0 and found.host and 0 < found.port < 65536
        if found.error_code == ErrorCode.NONE and not possible:
            raise ProtocolError(f"a FindCoordinator answer with an impossible broker: {found}")


# --- AddPartitionsToTxn -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnRequest:
    """Before the first Produce to `partitions` in a transaction of version 1."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnResponse:
    throttle_time_ms: int
    results: tuple[PartitionResult, ...]


def kio_add_partitions_to_txn(kio: Any, version: int, request: AddPartitionsToTxnRequest) -> Any:
    # From version 4 on the request is one between brokers, with many transactions in it.
    return kio.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=request.transactional_id,
        v3_and_below_producer_id=request.producer_id,
        v3_and_below_producer_epoch=request.producer_epoch,
        v3_and_below_topics=tuple(
            kio.AddPartitionsToTxnTopic(name=topic, partitions=numbers)
            for topic, numbers in _by_topic(request.partitions).items()
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
    """Each partition once."""
    answered = ((result.topic, result.partition) for result in response.results)
    check_answered("AddPartitionsToTxn", request.partitions, answered)


# --- AddOffsetsToTxn --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxnRequest:
    """Before the first TxnOffsetCommit of `group_id` in a transaction of version 1."""

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


# --- EndTxn -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EndTxnRequest:
    """Commits (`committed`) or aborts the transaction. `transaction_version`: 1 or 2, the one it was begun with."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    transaction_version: int


@dataclass(frozen=True, slots=True)
class EndTxnResponse:
    """`producer_id` and `producer_epoch`: those to go on with after a transaction of version 2; else both -1."""

    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int


def end_txn_versions(request: EndTxnRequest) -> Versions:
    """The one version that bumps the epoch, or those that do not."""
    return (5, 5) if request.transaction_version >= 2 else (3, 4)


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
    """A success of version 2 says with which ids to go on."""
    has_ids = response.producer_id >= 0 and response.producer_epoch >= 0
    if response.error_code == ErrorCode.NONE and request.transaction_version >= 2 and not has_ids:
        raise ProtocolError("an EndTxn answer with neither an error nor the producer's next id and epoch")


# --- TxnOffsetCommit --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TxnOffsetCommitRequest:
    """One offset of a group without members, with a text beside it, to be there once the transaction commits."""

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
    """The one version that adds the group to the transaction, or those that need AddOffsetsToTxn before."""
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
    """Raises ProtocolError unless the request's partition is answered, once and alone."""
    partition = _only_partition("TxnOffsetCommit", request.topic, request.partition, message["topics"])
    return TxnOffsetCommitResponse(throttle_time_ms=message["throttle_time"], error_code=partition["error_code"])


def _only_partition(api: str, topic: str, partition: int, topics: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """What `topics` of an answer say of the one partition that was asked for."""
    return _by_partition(api, topic, (partition,), topics)[partition]


def _by_partition(
    api: str, topic: str, partitions: Sequence[int], topics: Iterable[Mapping[str, Any]]
) -> dict[int, Mapping[str, Any]]:
    """What they say of the partitions of one topic that were asked for."""
    answered = [((found["name"], each["partition_index"]), each) for found in topics for each in found["partitions"]]
    check_answered(api, [(topic, partition) for partition in partitions], (name for name, _ in answered))
    return {partition: each for (_, partition), each in answered}


# --- OffsetCommit -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsetCommitRequest:
    """One offset of a group without members, with a text beside it, outside of any transaction."""

    group_id: str
    topic: str
    partition: int
    offset: int
    metadata: str


@dataclass(frozen=True, slots=True)
class OffsetCommitResponse:
    throttle_time_ms: int
    error_code: int


def kio_offset_commit(kio: Any, version: int, request: OffsetCommitRequest) -> Any:
    partition = kio.OffsetCommitRequestPartition(
        partition_index=request.partition, committed_offset=request.offset, committed_metadata=request.metadata
    )
    # Nobody's member, of no generation: as of a group whose offsets are committed by hand.
    return kio.OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=(kio.OffsetCommitRequestTopic(name=request.topic, partitions=(partition,)),),
    )


def offset_commit_response(request: OffsetCommitRequest, message: Mapping[str, Any]) -> OffsetCommitResponse:
    """Raises ProtocolError unless the request's partition is answered, once and alone."""
    partition = _only_partition("OffsetCommit", request.topic, request.partition, message["topics"])
    return OffsetCommitResponse(throttle_time_ms=message["throttle_time"], error_code=partition["error_code"])


# --- OffsetFetch ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsetFetchRequest:
    """The offsets of one partition in many groups, all of one coordinator. While a transaction on one is open the
    answer is UNSTABLE_OFFSET_COMMIT (KIP-447), or, unless `require_stable`, what was committed before. `beside`: a
    partition whose text is told with it, as of the same moment."""

    group_ids: tuple[str, ...]
    topic: str
    partition: int
    require_stable: bool = True
    beside: int | None = None


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """`error_code`: of the group, else of its partitions. `offset` is -1 where the group has none. `beside`: the text
    of the other partition that was asked for."""

    group_id: str
    error_code: int
    offset: int
    metadata: str
    beside: str = ""


@dataclass(frozen=True, slots=True)
class OffsetFetchResponse:
    throttle_time_ms: int
    groups: tuple[GroupOffset, ...]


def kio_offset_fetch(kio: Any, version: int, request: OffsetFetchRequest) -> Any:
    topics = (kio.OffsetFetchRequestTopics(name=request.topic, partition_indexes=_partitions(request)),)
    return kio.OffsetFetchRequest(
        groups=tuple(kio.OffsetFetchRequestGroup(group_id=group_id, topics=topics) for group_id in request.group_ids),
        require_stable=request.require_stable,
    )


def offset_fetch_response(request: OffsetFetchRequest, message: Mapping[str, Any]) -> OffsetFetchResponse:
    """Raises ProtocolError unless a group without an error answers for the request's partitions, each once."""
    return OffsetFetchResponse(
        throttle_time_ms=message["throttle_time"],
        groups=tuple(_group_offset(request, group) for group in message["groups"]),
    )


def _group_offset(request: OffsetFetchRequest, group: Mapping[str, Any]) -> GroupOffset:
    group_id, error_code = group["group_id"], group["error_code"]
    if error_code != ErrorCode.NONE:
        return GroupOffset(group_id, error_code, -1, "")
    found = _by_partition("OffsetFetch", request.topic, _partitions(request), group["topics"])
    error_code = next((each["error_code"] for each in found.values() if each["error_code"]), ErrorCode.NONE)
    partition = found[request.partition]
    beside = "" if request.beside is None else found[request.beside]["metadata"] or ""
    return GroupOffset(group_id, error_code, partition["committed_offset"], partition["metadata"] or "", beside)


def _partitions(request: OffsetFetchRequest) -> tuple[int, ...]:
    return (request.partition,) if request.beside is None else (request.partition, request.beside)


def check_offset_fetch_response(request: OffsetFetchRequest, response: OffsetFetchResponse) -> None:
    """Each group once."""
    check_answered("OffsetFetch", request.group_ids, (group.group_id for group in response.groups))


# --- DeleteGroups -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeleteGroupsRequest:
    """Groups without members, all of one coordinator, with their offsets (KIP-229)."""

    group_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeletedGroup:
    group_id: str
    error_code: int


@dataclass(frozen=True, slots=True)
class DeleteGroupsResponse:
    throttle_time_ms: int
    groups: tuple[DeletedGroup, ...]


def kio_delete_groups(kio: Any, version: int, request: DeleteGroupsRequest) -> Any:
    return kio.DeleteGroupsRequest(groups_names=request.group_ids)


def delete_groups_response(request: DeleteGroupsRequest, message: Mapping[str, Any]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        throttle_time_ms=message["throttle_time"],
        groups=tuple(DeletedGroup(each["group_id"], each["error_code"]) for each in message["results"]),
    )


def check_delete_groups_response(request: DeleteGroupsRequest, response: DeleteGroupsResponse) -> None:
    """Each group once."""
    check_answered("DeleteGroups", request.group_ids, (group.group_id for group in response.groups))


# --- DescribeTransactions ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DescribeTransactionsRequest:
    """Transactional ids of one coordinator. Changes nothing."""

    transactional_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """`state`: Empty, Ongoing, PrepareCommit, CompleteAbort, ...; `start_time_ms`: since 1970, -1 when none is open.
    `partitions`: those written to, while Ongoing; those still without a marker, while being completed."""

    transactional_id: str
    error_code: int
    state: str
    timeout_ms: int
    start_time_ms: int
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class DescribeTransactionsResponse:
    throttle_time_ms: int
    transactions: tuple[TransactionDescription, ...]


def kio_describe_transactions(kio: Any, version: int, request: DescribeTransactionsRequest) -> Any:
    return kio.DescribeTransactionsRequest(transactional_ids=request.transactional_ids)


def describe_transactions_response(
    request: DescribeTransactionsRequest, message: Mapping[str, Any]
) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        throttle_time_ms=message["throttle_time"],
        transactions=tuple(
            TransactionDescription(
                transactional_id=state["transactional_id"],
                error_code=state["error_code"],
                state=state["transaction_state"],
                timeout_ms=state["transaction_timeout"],
                start_time_ms=state["transaction_start_time"],
                producer_id=state["producer_id"],
                producer_epoch=state["producer_epoch"],
                partitions=tuple(
                    TopicPartition(topic["topic"], partition)
                    for topic in state["topics"]
                    for partition in topic["partitions"]
                ),
            )
            for state in message["transaction_states"]
        ),
    )


def check_describe_transactions_response(
    request: DescribeTransactionsRequest, response: DescribeTransactionsResponse
) -> None:
    """Each transactional id once."""
    answered = (transaction.transactional_id for transaction in response.transactions)
    check_answered("DescribeTransactions", request.transactional_ids, answered)


# --- ListTransactions -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListTransactionsRequest:
    """What one broker coordinates, open or not: of `producer_ids` (empty: of all), in `states` (empty: in any), whose
    transactional id begins with `transactional_id_prefix`."""

    producer_ids: tuple[int, ...] = ()
    states: tuple[str, ...] = ()
    transactional_id_prefix: str = ""


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class ListTransactionsResponse:
    throttle_time_ms: int
    error_code: int
    transactions: tuple[ListedTransaction, ...]


# From this version on brokers filter transactional ids, by a regular expression of RE2 for the whole id (KIP-1152).
LIST_BY_PATTERN = 2


def kio_list_transactions(kio: Any, version: int, request: ListTransactionsRequest) -> Any:
    prefix = request.transactional_id_prefix
    by_pattern = version >= LIST_BY_PATTERN and prefix
    # Any character, also a line's end, may follow.
    pattern = {"transactional_id_pattern": re.escape(prefix) + "(?s:.*)"} if by_pattern else {}
    return kio.ListTransactionsRequest(
        state_filters=request.states, producer_id_filters=request.producer_ids, **pattern
    )


def list_transactions_response(
    request: ListTransactionsRequest, message: Mapping[str, Any]
) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        throttle_time_ms=message["throttle_time"],
        error_code=message["error_code"],
        transactions=tuple(
            ListedTransaction(state["transactional_id"], state["producer_id"], state["transaction_state"])
            for state in message["transaction_states"]
            if state["transactional_id"].startswith(request.transactional_id_prefix)
        ),
    )


def check_list_transactions_response(request: ListTransactionsRequest, response: ListTransactionsResponse) -> None:
    """Each transactional id once at most, and none that the filters exclude."""
    listed = [transaction.transactional_id for transaction in response.transactions]
    check_answered("ListTransactions", set(listed), listed)
    for transaction in response.transactions:
        wanted_producer = not request.producer_ids or transaction.producer_id in request.producer_ids
        if not wanted_producer or (request.states and transaction.state not in request.states):
            raise ProtocolError(f"a ListTransactions answer with what was filtered out: {transaction}")


# --- DescribeProducers ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DescribeProducersRequest:
    """To a broker that leads `partitions`: the producers it remembers there."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """`current_txn_start_offset`: of the first record of its open transaction, -1 when none is open.
    `coordinator_epoch`: of its last marker, -1 without one; the leader takes no marker of a lower epoch."""

    producer_id: int
    producer_epoch: int
    current_txn_start_offset: int
    coordinator_epoch: int = -1


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
            for topic, numbers in _by_topic(request.partitions).items()
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
                    )
                    for producer in partition["active_producers"]
                ),
            )
            for topic in message["topics"]
            for partition in topic["partitions"]
        ),
    )


def check_describe_producers_response(request: DescribeProducersRequest, response: DescribeProducersResponse) -> None:
    """Each partition once."""
    answered = ((found.topic, found.partition) for found in response.partitions)
    check_answered("DescribeProducers", request.partitions, answered)


# --- WriteTxnMarkers --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteTxnMarkersRequest:
    """Ends the transaction of a producer on `partitions`, which the receiver leads, whatever its coordinator thinks."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class WriteTxnMarkersResponse:
    """`throttle_time_ms` is always 0: the answer has no such field."""

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
            for topic, numbers in _by_topic(request.partitions).items()
        ),
    )
    return kio.WriteTxnMarkersRequest(markers=(marker,))


def write_txn_markers_response(request: WriteTxnMarkersRequest, message: Mapping[str, Any]) -> WriteTxnMarkersResponse:
    """Raises ProtocolError unless the answer is about the request's producer, once and alone."""
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
    """Each partition once."""
    answered = ((result.topic, result.partition) for result in response.results)
    check_answered("WriteTxnMarkers", request.partitions, answered)


# --- CreateTopics -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateTopicsRequest:
    """One topic. `partition_count`, `replication_factor`: BROKERS_DEFAULT (KIP-464) or 1 and more. `timeout_ms`: how
    long the broker waits for it. `validate_only`: to hear whether it would be made. `settings`: (name, value) each."""

    topic: str
    partition_count: int
    timeout_ms: int
    validate_only: bool = False
    replication_factor: int = BROKERS_DEFAULT
    settings: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class CreateTopicsResponse:
    throttle_time_ms: int
    error_code: int
    error_message: str | None


def kio_create_topics(kio: Any, version: int, request: CreateTopicsRequest) -> Any:
    topic = kio.CreatableTopic(
        name=request.topic,
        num_partitions=request.partition_count,
        replication_factor=request.replication_factor,
        assignments=(),
        configs=tuple(kio.CreatableTopicConfig(name=name, value=value) for name, value in request.settings),
    )
    return kio.CreateTopicsRequest(
        topics=(topic,), timeout=timedelta(milliseconds=request.timeout_ms), validate_only=request.validate_only
    )


def create_topics_response(request: CreateTopicsRequest, message: Mapping[str, Any]) -> CreateTopicsResponse:
    """Raises ProtocolError unless the request's topic is answered, once and alone."""
    check_answered("CreateTopics", [request.topic], [topic["name"] for topic in message["topics"]])
    (created,) = message["topics"]
    return CreateTopicsResponse(
        throttle_time_ms=message["throttle_time"],
        error_code=created["error_code"],
        error_message=created["error_message"],
    )


# --- DescribeConfigs --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DescribeConfigsRequest:
    """One setting of a broker, to that broker: no other knows."""

    node_id: int
    name: str


@dataclass(frozen=True, slots=True)
class DescribeConfigsResponse:
    """`value`: as brokers write it; None where they do not tell, or have no such setting."""

    throttle_time_ms: int
    error_code: int
    value: str | None


# ConfigResource.Type.BROKER
BROKER_RESOURCE = 4


def kio_describe_configs(kio: Any, version: int, request: DescribeConfigsRequest) -> Any:
    resource = kio.DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=str(request.node_id), configuration_keys=(request.name,)
    )
    return kio.DescribeConfigsRequest(resources=(resource,))


def describe_configs_response(request: DescribeConfigsRequest, message: Mapping[str, Any]) -> DescribeConfigsResponse:
    """Raises ProtocolError unless the request's broker is answered for, once and alone."""
    results = message["results"]
    check_answered("DescribeConfigs", [str(request.node_id)], [result["resource_name"] for result in results])
    values = {config["name"]: config["value"] for config in results[0]["configs"]}
    return DescribeConfigsResponse(
        throttle_time_ms=message["throttle_time"],
        error_code=results[0]["error_code"],
        value=values.get(request.name),
    )


# --- all of them ------------------------------------------------------------------------------------------------------

Request = (
    FindCoordinatorRequest
    | AddPartitionsToTxnRequest
    | AddOffsetsToTxnRequest
    | EndTxnRequest
    | TxnOffsetCommitRequest
    | OffsetCommitRequest
    | OffsetFetchRequest
    | DeleteGroupsRequest
    | DescribeTransactionsRequest
    | ListTransactionsRequest
    | DescribeProducersRequest
    | WriteTxnMarkersRequest
    | CreateTopicsRequest
    | DescribeConfigsRequest
)
Response = (
    FindCoordinatorResponse
    | AddPartitionsToTxnResponse
    | AddOffsetsToTxnResponse
    | EndTxnResponse
    | TxnOffsetCommitResponse
    | OffsetCommitResponse
    | OffsetFetchResponse
    | DeleteGroupsResponse
    | DescribeTransactionsResponse
    | ListTransactionsResponse
    | DescribeProducersResponse
    | WriteTxnMarkersResponse
    | CreateTopicsResponse
    | DescribeConfigsResponse
)

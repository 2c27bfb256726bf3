"""The requests we send and what their answers mean: our own values outside, Kafka's bytes inside.

The only module that knows kio. kio has a class for every version of every message; `APIS` says which versions we
speak, how a request of ours becomes kio's and how an answer becomes ours. Another API is another row; those of
transactions are described in `transactions`, which gets kio's module handed in.

Non-obvious:

* Requests are written by kio into a list, so the bytes of record batches are spliced in, never copied.
* Answers are read by `message_reader` (it says why), then checked against their request: an answer that leaves out a
  partition, or names one twice, is no answer, and what it was to answer is unknown.
* kio is imported with the first request, not with this module: 60 ms and 7 MB that the driver never needs.

Source: https://kafka.apache.org/protocol; clients/src/main/resources/common/message/*.json in Kafka.
"""

from __future__ import annotations

import functools
import importlib
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.protocol import describing
from kafka_sink.kafka.protocol import transactions as txn
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.message_reader import read_message
from kafka_sink.kafka.protocol.transactions import Versions

# --- Produce ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProducePartition:
    """`records`: one record batch, in the bytes it has on the wire."""

    topic: str
    partition: int
    topic_id: uuid.UUID | None
    records: memoryview | bytes


@dataclass(frozen=True, slots=True)
class ProduceRequest:
    """`acks`: -1 all in-sync replicas, 1 the leader, 0 no answer at all. `timeout_ms`: how long the leader waits.
    `transaction_version`: that of the transaction that `transactional_id` is in."""

    acks: int
    timeout_ms: int
    partitions: tuple[ProducePartition, ...]
    transactional_id: str | None = None
    transaction_version: int = 2


@dataclass(frozen=True, slots=True)
class RefusedRecord:
    """`place`: in its batch, from 0, as the leader says (KIP-467)."""

    place: int
    message: str


@dataclass(frozen=True, slots=True)
class ProduceResult:
    """The answer for one partition. Versions from 13 on name the topic by its id, those before by its name: the other
    is None. `log_append_time_ms` is -1 where records keep the producer's time. `refused`: why the batch was, where that
    is the fault of some of its records."""

    topic: str | None
    topic_id: uuid.UUID | None
    partition: int
    error_code: int
    error_message: str | None
    base_offset: int
    log_append_time_ms: int
    refused: tuple[RefusedRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class ProduceResponse:
    throttle_time_ms: int
    partitions: tuple[ProduceResult, ...]


# From this version on, topics go by id (KIP-516).
PRODUCE_BY_TOPIC_ID = 13
# From this version on, a request adds its partitions to the transaction, which only transactions of version 2 allow for
# (KIP-890): those of version 1 are told of them before.
PRODUCE_ADDS_PARTITIONS = 12


def _produce_versions(request: ProduceRequest) -> Versions:
    """A topic without an id can only go by its name."""
    if request.transactional_id is not None and request.transaction_version < 2:
        return 9, PRODUCE_ADDS_PARTITIONS - 1
    by_id = all(data.topic_id for data in request.partitions)
    return 9, PRODUCE_BY_TOPIC_ID if by_id else PRODUCE_BY_TOPIC_ID - 1


def _kio_produce(kio: Any, version: int, request: ProduceRequest) -> Any:
    by_id = version >= PRODUCE_BY_TOPIC_ID
    topics: dict[Any, list[Any]] = {}
    for data in request.partitions:
        # kio takes a buffer's len() for its size in bytes.
        records = memoryview(data.records).cast("B")
        partition = kio.PartitionProduceData(index=data.partition, records=records)
        topics.setdefault(data.topic_id if by_id else data.topic, []).append(partition)
    field = "topic_id" if by_id else "name"
    return kio.ProduceRequest(
        transactional_id=request.transactional_id,
        acks=request.acks,
        timeout=timedelta(milliseconds=request.timeout_ms),
        topic_data=tuple(
            kio.TopicProduceData(**{field: topic}, partition_data=tuple(partitions))
            for topic, partitions in topics.items()
        ),
    )


def _produce_response(request: ProduceRequest, message: Mapping[str, Any]) -> ProduceResponse:
    return ProduceResponse(
        throttle_time_ms=message["throttle_time"],
        partitions=tuple(
            ProduceResult(
                topic=topic.get("name"),
                topic_id=topic.get("topic_id"),
                partition=partition["index"],
                error_code=partition["error_code"],
                error_message=partition["error_message"],
                base_offset=partition["base_offset"],
                log_append_time_ms=partition["log_append_time"],
                refused=tuple(
                    RefusedRecord(error["batch_index"], error["batch_index_error_message"] or "")
                    for error in partition["record_errors"]
                ),
            )
            for topic in message["responses"]
            for partition in topic["partition_responses"]
        ),
    )


# Where the leader does not say it (ProduceResponse.INVALID_OFFSET).
UNKNOWN_OFFSET = -1
# The last record of any batch has an offset, too: a batch has fewer than 2^31 records.
MAX_BASE_OFFSET = 2**63 - 2**31


def check_produce_response(request: ProduceRequest, response: ProduceResponse) -> None:
    """Raises ProtocolError unless `response` answers for each partition of `request` once, and for nothing else, with
    offsets that a log can have."""
    for result in response.partitions:
        if result.error_code == ErrorCode.NONE and not UNKNOWN_OFFSET <= result.base_offset <= MAX_BASE_OFFSET:
            raise ProtocolError(f"a Produce answer that has the rows at offset {result.base_offset}")
    by_id = any(result.topic_id for result in response.partitions)
    asked = Counter((data.topic_id if by_id else data.topic, data.partition) for data in request.partitions)
    answered = Counter((result.topic_id if by_id else result.topic, result.partition) for result in response.partitions)
    if asked == answered:
        return
    missing, surplus = asked - answered, answered - asked
    raise ProtocolError(
        f"a Produce answer for other partitions than asked ({_first(missing)} missing, {_first(surplus)} not asked for "
        "or answered twice)"
    )


def _first(partitions: Counter[Any]) -> str:
    """The first of them, as `topic-partition and 3 more`."""
    if not partitions:
        return "none"
    (topic, partition), *more = partitions
    return f"{topic}-{partition}" + (f" and {len(more)} more" if more else "")


# --- Metadata ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MetadataRequest:
    """No topics: the brokers only. None: every topic that the principal may describe. `describe`: with replicas, and
    with what the principal may do, which writes do not need to know."""

    topics: tuple[str, ...] | None
    allow_auto_topic_creation: bool
    describe: bool = False


@dataclass(frozen=True, slots=True)
class Broker:
    node_id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """`leader_id` is -1 without a leader; `leader_epoch` -1 where unknown. Node ids of the replicas, and of those in
    sync: where the request describes."""

    error_code: int
    partition: int
    leader_id: int
    leader_epoch: int
    replica_nodes: tuple[int, ...] = ()
    isr_nodes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """`topic_id` is None for a topic that does not exist. Partitions 0..n-1 are all there, in any order.
    `authorized_operations`: for `describing.allows`, where the request describes."""

    error_code: int
    name: str
    topic_id: uuid.UUID | None
    partitions: tuple[PartitionMetadata, ...]
    authorized_operations: int = describing.NOT_TOLD


@dataclass(frozen=True, slots=True)
class MetadataResponse:
    """`error_code` exists from version 13 on (KIP-1102: REBOOTSTRAP_REQUIRED); 0 before."""

    throttle_time_ms: int
    cluster_id: str | None
    controller_id: int
    brokers: tuple[Broker, ...]
    topics: tuple[TopicMetadata, ...]
    error_code: int = 0


def _kio_metadata(kio: Any, version: int, request: MetadataRequest) -> Any:
    only_in_10 = {"include_cluster_authorized_operations": False} if version == 10 else {}
    topics = request.topics
    return kio.MetadataRequest(
        topics=topics and tuple(kio.MetadataRequestTopic(topic_id=None, name=name) for name in topics),
        allow_auto_topic_creation=request.allow_auto_topic_creation,
        include_topic_authorized_operations=request.describe,
        **only_in_10,
    )


def _metadata_response(request: MetadataRequest, message: Mapping[str, Any]) -> MetadataResponse:
    return MetadataResponse(
        throttle_time_ms=message["throttle_time"],
        cluster_id=message["cluster_id"],
        controller_id=message["controller_id"],
        brokers=tuple(
            Broker(node_id=broker["node_id"], host=broker["host"], port=broker["port"], rack=broker["rack"])
            for broker in message["brokers"]
        ),
        topics=tuple(
            TopicMetadata(
                error_code=topic["error_code"],
                name=topic["name"],
                topic_id=topic["topic_id"],
                partitions=tuple(
                    PartitionMetadata(
                        error_code=partition["error_code"],
                        partition=partition["partition_index"],
                        leader_id=partition["leader_id"],
                        leader_epoch=partition["leader_epoch"],
                        **_replicas(request, partition),
                    )
                    for partition in topic["partitions"]
                ),
                authorized_operations=(
                    topic["topic_authorized_operations"] if request.describe else describing.NOT_TOLD
                ),
            )
            for topic in message["topics"]
        ),
        error_code=message.get("error_code", ErrorCode.NONE.value),
    )


def _replicas(request: MetadataRequest, partition: Mapping[str, Any]) -> Mapping[str, tuple[int, ...]]:
    return {name: partition[name] for name in ("replica_nodes", "isr_nodes") if request.describe}


def check_metadata_response(request: MetadataRequest, response: MetadataResponse) -> None:
    """Raises ProtocolError unless each topic asked for is answered once, with partitions 0..n-1, by addresses that
    can exist: partition counts decide where keys go, so a hole in them must never be taken for a smaller topic."""
    answered = sorted(topic.name or "" for topic in response.topics)
    if answered != sorted(set(answered if request.topics is None else request.topics)):
        raise ProtocolError("a Metadata answer for other topics than asked")
    for topic in response.topics:
        if not topic.partitions and topic.error_code == ErrorCode.NONE:
            raise ProtocolError(f"a Metadata answer without partitions for topic {topic.name!r}")
        if sorted(partition.partition for partition in topic.partitions) != list(range(len(topic.partitions))):
            raise ProtocolError(f"a Metadata answer whose partitions of topic {topic.name!r} have holes or repeat")
    for broker in response.brokers:
        if broker.node_id < 0 or not broker.host or not 0 < broker.port < 65536:
            raise ProtocolError(f"a Metadata answer with an impossible broker: {broker}")


# --- InitProducerId ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InitProducerIdRequest:
    """`transaction_timeout_ms` counts only with a transactional id."""

    transaction_timeout_ms: int
    transactional_id: str | None = None


@dataclass(frozen=True, slots=True)
class InitProducerIdResponse:
    throttle_time_ms: int
    error_code: int
    producer_id: int
    producer_epoch: int


def _kio_init_producer_id(kio: Any, version: int, request: InitProducerIdRequest) -> Any:
    return kio.InitProducerIdRequest(
        transactional_id=request.transactional_id,
        transaction_timeout=timedelta(milliseconds=request.transaction_timeout_ms),
    )


def _init_producer_id_response(request: InitProducerIdRequest, message: Mapping[str, Any]) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time_ms=message["throttle_time"],
        error_code=message["error_code"],
        producer_id=message["producer_id"],
        producer_epoch=message["producer_epoch"],
    )


def check_init_producer_id_response(request: InitProducerIdRequest, response: InitProducerIdResponse) -> None:
    """Raises ProtocolError for a success without an id: batches would go out without idempotence, unnoticed."""
    if response.error_code == ErrorCode.NONE and (response.producer_id < 0 or response.producer_epoch < 0):
        raise ProtocolError("an InitProducerId answer with neither an error nor a producer id")


# --- ApiVersions ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ApiVersionsRequest:
    """Name and version of the client, for the brokers' metrics (KIP-511): letters, digits, '.' and '-'."""

    client_software_name: str
    client_software_version: str


@dataclass(frozen=True, slots=True)
class ApiVersionsResponse:
    """`ranges`: API key -> (lowest, highest) version the broker speaks. `finalized_features`: feature -> level."""

    throttle_time_ms: int
    error_code: int
    ranges: Mapping[int, tuple[int, int]]
    finalized_features: Mapping[str, int]


def _kio_api_versions(kio: Any, version: int, request: ApiVersionsRequest) -> Any:
    return kio.ApiVersionsRequest(
        client_software_name=request.client_software_name,
        client_software_version=request.client_software_version,
    )


def _api_versions_response(request: ApiVersionsRequest, message: Mapping[str, Any]) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        throttle_time_ms=message["throttle_time"],
        error_code=message["error_code"],
        ranges={api["api_key"]: (api["min_version"], api["max_version"]) for api in message["api_keys"]},
        finalized_features={
            feature["name"]: feature["max_version_level"] for feature in message.get("finalized_features", ())
        },
    )


# --- SASL -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SaslHandshakeRequest:
    mechanism: str


@dataclass(frozen=True, slots=True)
class SaslHandshakeResponse:
    """`mechanisms`: those that the broker's listener offers."""

    error_code: int
    mechanisms: tuple[str, ...]
    throttle_time_ms: int = 0


@dataclass(frozen=True, slots=True)
class SaslAuthenticateRequest:
    auth_bytes: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SaslAuthenticateResponse:
    """`session_lifetime_ms`: until when to authenticate anew (KIP-368); 0: never."""

    error_code: int
    error_message: str | None
    auth_bytes: bytes = field(repr=False)
    session_lifetime_ms: int
    throttle_time_ms: int = 0


def _kio_sasl_handshake(kio: Any, version: int, request: SaslHandshakeRequest) -> Any:
    return kio.SaslHandshakeRequest(mechanism=request.mechanism)


def _sasl_handshake_response(request: SaslHandshakeRequest, message: Mapping[str, Any]) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(message["error_code"], tuple(message["mechanisms"]))


def _kio_sasl_authenticate(kio: Any, version: int, request: SaslAuthenticateRequest) -> Any:
    return kio.SaslAuthenticateRequest(auth_bytes=request.auth_bytes)


def _sasl_authenticate_response(
    request: SaslAuthenticateRequest, message: Mapping[str, Any]
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=message["error_code"],
        error_message=message["error_message"],
        auth_bytes=bytes(message["auth_bytes"]),
        session_lifetime_ms=message["session_lifetime"],
    )


# --- the table --------------------------------------------------------------------------------------------------------

Request = (
    ProduceRequest
    | MetadataRequest
    | InitProducerIdRequest
    | ApiVersionsRequest
    | SaslHandshakeRequest
    | SaslAuthenticateRequest
    | txn.Request
    | describing.Request
)
Response = (
    ProduceResponse
    | MetadataResponse
    | InitProducerIdResponse
    | ApiVersionsResponse
    | SaslHandshakeResponse
    | SaslAuthenticateResponse
    | txn.Response
    | describing.Response
)
Buffer = bytes | memoryview


def _any_answer(request: Any, response: Any) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Api:
    """One row: `to_kio` makes kio's request (given kio's module of the version), `from_message` our response to a
    request, `check` raises ProtocolError when a response does not answer its request, `versions_of` are the lowest
    and the highest version that can carry a request, where that depends on the request."""

    name: str
    key: int
    min_version: int
    max_version: int
    request_type: type
    to_kio: Callable[[Any, int, Any], Any]
    from_message: Callable[[Any, Mapping[str, Any]], Any]
    check: Callable[[Any, Any], None] = _any_answer
    versions_of: Callable[[Any], Versions] | None = None

    def versions(self, request: Any) -> Versions:
        """The lowest and the highest version in which we can send `request`."""
        return self.versions_of(request) if self.versions_of else (self.min_version, self.max_version)

    @property
    def kio_package(self) -> str:
        return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in self.name)[1:]


# Brokers from Kafka 3.3 to 4.3. InitProducerId 6 (KIP-939, prepared transactions) is refused by every release so far.
APIS: tuple[Api, ...] = (
    Api(
        "Produce", 0, 9, 13, ProduceRequest, _kio_produce, _produce_response,
        check_produce_response, _produce_versions,
    ),
    Api("Metadata", 3, 10, 13, MetadataRequest, _kio_metadata, _metadata_response, check_metadata_response),
    Api(
        "InitProducerId", 22, 4, 5, InitProducerIdRequest, _kio_init_producer_id, _init_producer_id_response,
        check_init_producer_id_response,
    ),
    Api("ApiVersions", 18, 3, 3, ApiVersionsRequest, _kio_api_versions, _api_versions_response),
    Api("SaslHandshake", 17, 1, 1, SaslHandshakeRequest, _kio_sasl_handshake, _sasl_handshake_response),
    Api("SaslAuthenticate", 36, 2, 2, SaslAuthenticateRequest, _kio_sasl_authenticate, _sasl_authenticate_response),
    Api(
        "FindCoordinator", 10, 4, 6, txn.FindCoordinatorRequest, txn.kio_find_coordinator,
        txn.find_coordinator_response, txn.check_find_coordinator_response,
    ),
    Api(
        "AddPartitionsToTxn", 24, 3, 3, txn.AddPartitionsToTxnRequest, txn.kio_add_partitions_to_txn,
        txn.add_partitions_to_txn_response, txn.check_add_partitions_to_txn_response,
    ),
    Api(
        "AddOffsetsToTxn", 25, 3, 4, txn.AddOffsetsToTxnRequest, txn.kio_add_offsets_to_txn,
        txn.add_offsets_to_txn_response,
    ),
    Api(
        "EndTxn", 26, 3, 5, txn.EndTxnRequest, txn.kio_end_txn, txn.end_txn_response,
        txn.check_end_txn_response, txn.end_txn_versions,
    ),
    Api(
        "WriteTxnMarkers", 27, 1, 1, txn.WriteTxnMarkersRequest, txn.kio_write_txn_markers,
        txn.write_txn_markers_response, txn.check_write_txn_markers_response,
    ),
    Api(
        "TxnOffsetCommit", 28, 3, 5, txn.TxnOffsetCommitRequest, txn.kio_txn_offset_commit,
        txn.txn_offset_commit_response, versions_of=txn.txn_offset_commit_versions,
    ),
    Api("OffsetCommit", 8, 9, 9, txn.OffsetCommitRequest, txn.kio_offset_commit, txn.offset_commit_response),
    Api(
        "OffsetFetch", 9, 8, 9, txn.OffsetFetchRequest, txn.kio_offset_fetch, txn.offset_fetch_response,
        txn.check_offset_fetch_response,
    ),
    Api(
        "DeleteGroups", 42, 2, 2, txn.DeleteGroupsRequest, txn.kio_delete_groups, txn.delete_groups_response,
        txn.check_delete_groups_response,
    ),
    Api(
        "DescribeTransactions", 65, 0, 0, txn.DescribeTransactionsRequest, txn.kio_describe_transactions,
        txn.describe_transactions_response, txn.check_describe_transactions_response,
    ),
    Api(
        "ListTransactions", 66, 0, 2, txn.ListTransactionsRequest, txn.kio_list_transactions,
        txn.list_transactions_response, txn.check_list_transactions_response,
    ),
    Api(
        "DescribeProducers", 61, 0, 0, txn.DescribeProducersRequest, txn.kio_describe_producers,
        txn.describe_producers_response, txn.check_describe_producers_response,
    ),
    Api("CreateTopics", 19, 7, 7, txn.CreateTopicsRequest, txn.kio_create_topics, txn.create_topics_response),
    Api(
        "DescribeConfigs", 32, 4, 4, txn.DescribeConfigsRequest, txn.kio_describe_configs, txn.describe_configs_response
    ),
    Api(
        "DescribeConfigs", 32, 4, 4, describing.TopicConfigsRequest, describing.kio_topic_configs,
        describing.topic_configs_response,
    ),
    Api(
        "DescribeGroups", 15, *describing.DESCRIBE_GROUPS_VERSIONS, describing.DescribeGroupRequest,
        describing.kio_describe_group, describing.describe_group_response,
    ),
)  # fmt: skip

_BY_REQUEST_TYPE = {api.request_type: api for api in APIS}


def api_of(request: Request) -> Api:
    """The row of `request`."""
    return _BY_REQUEST_TYPE[type(request)]


def select_version(request: Request, ranges: Mapping[int, tuple[int, int]]) -> int | None:
    """The highest version that can carry `request` and lies in the broker's `ranges`; None if there is none."""
    api = api_of(request)
    lowest, highest = ranges.get(api.key, (0, -1))
    our_lowest, our_highest = api.versions(request)
    version = min(our_highest, highest)
    return version if version >= max(our_lowest, lowest) else None


# --- bytes ------------------------------------------------------------------------------------------------------------

# Below this, copying a buffer next to its neighbours is cheaper than an iovec of its own: kio writes field by field.
_SPLICE_BYTES = 4096


def encode_request(request: Request, *, version: int, correlation_id: int, client_id: str) -> list[Buffer]:
    """The whole frame, its size in front. Large buffers of the request are in the list as they are, not copied: they
    must not change until the request is answered or its connection closed."""
    api = api_of(request)
    kio = _kio_module(api, version, "request")
    message = api.to_kio(kio, version, request)
    header_type = type(message).__header_schema__
    header = header_type(
        request_api_key=api.key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
    )
    written: list[Buffer] = []
    sink = SimpleNamespace(write=written.append)
    for entity in (header, message):
        entity_type: type = type(entity)
        _kio_writer(entity_type)(sink, entity)
    size = sum(map(len, written))
    return _join_small([size.to_bytes(4, "big"), *written])


def _join_small(buffers: Sequence[Buffer]) -> list[Buffer]:
    joined: list[Buffer] = []
    small: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) < _SPLICE_BYTES:
            small.append(buffer)
        else:
            joined += [b"".join(small), buffer]
            small = []
    return [*joined, b"".join(small)] if small else joined


def decode_response(request: Request, version: int, frame: bytes) -> Response:
    """The answer to `request` in `frame` (without its size), header included; the correlation id is the caller's to
    check. Raises ProtocolError, which names API and version, for anything that is not exactly such an answer."""
    api = api_of(request)
    try:
        return _decoded(api, request, version, frame)
    except ProtocolError as error:
        raise ProtocolError(f"{api.name} version {version}: {error.detail}") from None


def _decoded(api: Api, request: Request, version: int, frame: bytes) -> Response:
    message_type = getattr(_kio_module(api, version, "response"), f"{api.name}Response")
    _, position = read_message(message_type.__header_schema__, frame)
    if isinstance(request, ApiVersionsRequest) and frame[position : position + 2] == _UNSUPPORTED_VERSION:
        # Such an answer comes in version 0, whatever was asked (KIP-511): only its error code is sure.
        return ApiVersionsResponse(0, ErrorCode.UNSUPPORTED_VERSION, {}, {})
    message, position = read_message(message_type, frame, position)
    if position != len(frame):
        raise ProtocolError(f"{len(frame) - position} bytes follow a {api.name} answer")
    response: Response = api.from_message(request, message)
    api.check(request, response)
    return response


_UNSUPPORTED_VERSION = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


@functools.cache
def _kio_module(api: Api, version: int, direction: str) -> Any:
    return importlib.import_module(f"kio.schema.{api.kio_package}.v{version}.{direction}")


@functools.cache
def _kio_writer(entity_type: type) -> Callable[[Any, Any], None]:
    import kio.serial

    writer: Callable[[Any, Any], None] = kio.serial.entity_writer(entity_type)
    return writer

"""Answers to our requests in all supported versions: valid ones, encoded by kio, the fuzzer's first inputs; and ones
that are one array of as many elements as fit.

A table says of each API which request is asked and what makes an answer one to it; fields that it leaves out are filled
with something of their type, so that no part of a message is absent from the seeds.
"""

import datetime
import importlib
import io
import struct
import types
import typing
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass
from typing import Any

import kio.serial
from kio.schema.errors import ErrorCode

from kafka_sink.kafka.config import IsolationLevel
from kafka_sink.kafka.new_topic import BROKERS_DEFAULT
from kafka_sink.kafka.protocol.api import Api, Request
from kafka_sink.kafka.protocol.apis import all_apis
from kafka_sink.kafka.protocol.apis.fetch import FetchRequest, SharedFetchRequest
from kafka_sink.kafka.protocol.apis.groups import (
    CoordinatorKind,
    DeleteGroupsRequest,
    DescribeGroupRequest,
    FindCoordinatorRequest,
    GroupOffsetsRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    ProgressCommitRequest,
)
from kafka_sink.kafka.protocol.apis.handshake import ApiVersionsRequest, SaslAuthenticateRequest, SaslHandshakeRequest
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest
from kafka_sink.kafka.protocol.apis.offsets import LATEST, AskedOffset, ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka_sink.kafka.protocol.apis.produce import ProducePartition, ProduceRequest
from kafka_sink.kafka.protocol.apis.topics import CreateTopicsRequest, DescribeConfigsRequest, TopicConfigsRequest
from kafka_sink.kafka.protocol.apis.transaction_state import (
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from kafka_sink.kafka.protocol.apis.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
    WriteTxnMarkersRequest,
)
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

Said = Mapping[str, Any]

ORDERS = uuid.UUID(int=9)
PRODUCER_ID = 2**40
PARTITIONS = (TopicPartition("orders", 0), TopicPartition("orders", 2))
SETTING = "transaction.max.timeout.ms"


@dataclass(frozen=True, slots=True)
class Exchange:
    """`answers`: what each says, as far as it matters."""

    request: Request
    answers: Sequence[Said]

    @property
    def api(self) -> Api:
        return self.request.api

    def versions(self) -> range:
        lowest, highest = self.request.versions()
        return range(lowest, highest + 1)

    def frames(self, version: int, correlation_id: int = 0) -> Iterator[bytes]:
        for said in self.answers:
            yield answer(self.request, version, said, correlation_id)


def answer(request: Request, version: int, said: Said, correlation_id: int = 0) -> bytes:
    """A frame without its size."""
    return frame(message(request, version, said), correlation_id)


def message(request: Request, version: int, said: Said) -> Any:
    """Return kio's entity."""
    return filled(response_type(request.api, version), said)


def frame(entity: Any, correlation_id: int = 0) -> bytes:
    buffer = io.BytesIO()
    for part in (entity.__header_schema__(correlation_id=correlation_id), entity):
        kio.serial.entity_writer(type(part))(buffer, part)
    return buffer.getvalue()


_SOMETHING: Mapping[str, Any] = {
    "bool": True, "error_code": ErrorCode.none, "timedelta_i32": datetime.timedelta(milliseconds=7),
    "timedelta_i64": datetime.timedelta(milliseconds=7),
    "datetime_i64": datetime.datetime.fromtimestamp(1_700_000_000, datetime.UTC), "uuid": ORDERS, "string": "why",
    "bytes": b"bytes", "records": b"records",
}  # fmt: skip


def filled(entity_type: Any, said: Said) -> Any:
    """Return kio's entity with something in each field that `said` does not have."""
    return entity_type(**{field.name: _value(field, said) for field in fields(entity_type)})


def _value(field: Field[Any], said: Said) -> Any:
    of_type = inner_type(field.type)
    value = said.get(field.name)
    if value is None and field.name in said:
        return None
    if typing.get_origin(of_type) is tuple:
        element_type = inner_type(typing.get_args(of_type)[0])
        if is_dataclass(element_type):
            return tuple(filled(element_type, each) for each in ([{}] if value is None else value))
        return tuple([_something(field)] if value is None else value)
    if is_dataclass(of_type):
        return filled(of_type, value or {})
    if value is None:
        return _something(field)
    return ErrorCode(value) if field.metadata["kafka_type"] == "error_code" else value


def _something(field: Field[Any]) -> Any:
    return _SOMETHING.get(field.metadata["kafka_type"], 1)


def inner_type(of_type: Any) -> Any:
    if typing.get_origin(of_type) not in (types.UnionType, typing.Union):
        return of_type
    return next(argument for argument in typing.get_args(of_type) if argument is not types.NoneType)


def _by_topic(
    of_topics: str, of_partitions: str, index: str, code: str, *, numbers: Sequence[int] = (0, 2)
) -> list[Said]:
    """For the partitions `numbers` of topic orders: a success and an error."""
    return [
        {of_topics: [{"name": "orders", of_partitions: [{index: number, code: each} for number in numbers]}]}
        for each in (0, 6)
    ]


def _groups(metadata: str | None, code: int, group_code: int) -> Said:
    partition = {"partition_index": 0, "committed_offset": 5, "metadata": metadata, "error_code": code}
    topics = [{"name": "state", "partitions": [partition]}]
    return {"groups": [{"group_id": name, "topics": topics, "error_code": group_code} for name in ("s.0", "s.1")]}


def _group(metadata: str | None, code: int, group_code: int) -> Said:
    """By itself before version 8, and as the only one of a list from then on."""
    (group, _) = _groups(metadata, code, group_code)["groups"]
    return {**group, "groups": [group]}


def _transactions(**said: Any) -> Said:
    topics = [{"topic": "orders", "partitions": [0, 2]}]
    return {"transaction_states": [said | {"transactional_id": name, "topics": topics} for name in ("s.0", "s.driver")]}


_PRODUCED = [{"index": number} for _, number in PARTITIONS]
_TOPIC = {"name": "orders", "topic_id": ORDERS}
_LEADERLESS = {"error_code": 5, "partition_index": 1, "leader_id": -1}
_ID: Mapping[str, Any] = {"transactional_id": "s.0", "producer_id": PRODUCER_ID, "producer_epoch": 3}
_FETCHED = {"topic": "orders", "topic_id": ORDERS}
_UNKNOWN = {"error_code": 3, "name": "nope", "topic_id": None, "partitions": []}

_BY_PARTITION = ("topics", "partitions", "partition_index", "error_code")


def _exchange(request: Request, *answers: Said) -> Exchange:
    return Exchange(request, answers)


def _fetch(topic_id: uuid.UUID | None, partition: int, *rack: str) -> FetchRequest:
    return FetchRequest("orders", topic_id, partition, 5, 7, IsolationLevel.READ_COMMITTED, 1_000, 1, 500, *rack)


EXCHANGES: tuple[Exchange, ...] = (
    _exchange(
        ProduceRequest(-1, 1_000, tuple(ProducePartition("orders", number, ORDERS, b"") for _, number in PARTITIONS)),
        {"responses": [_TOPIC | {"partition_responses": _PRODUCED}]},
        {"responses": [_TOPIC | {"partition_responses": [each | {"error_code": 10} for each in _PRODUCED]}]}),
    _exchange(
        MetadataRequest(("nope", "orders"), True),
        {"topics": [_UNKNOWN, _TOPIC | {"partitions": [_LEADERLESS, {"partition_index": 0}]}]},
        {"topics": [_UNKNOWN, _TOPIC | {"error_code": 29, "partitions": []}], "brokers": [], "cluster_id": None}),
    _exchange(MetadataRequest(None, False), {"topics": [_TOPIC | {"partitions": [{"partition_index": 0}]}]}),
    _exchange(InitProducerIdRequest(1, "s.0"), {}, {"error_code": 51, "producer_id": -1, "producer_epoch": -1}),
    _exchange(InitProducerIdRequest(1), {}),
    _exchange(
        ApiVersionsRequest("test", "1"),
        {"api_keys": [{"api_key": api.key, "min_version": api.min_version, "max_version": api.max_version}
                      for api in all_apis()],
         "finalized_features": [{"name": "transaction.version", "max_version_level": 2}]},
        {"error_code": 42, "api_keys": [{}]}),
    _exchange(ApiVersionsRequest("test", "1", "cluster-1", 7), {"api_keys": [{}]}, {"error_code": 129, "api_keys": []}),
    _exchange(SaslHandshakeRequest("PLAIN"), {"mechanisms": ["PLAIN", "GSSAPI"]}, {"error_code": 33}),
    _exchange(SaslAuthenticateRequest(b"\0a\0b"), {"error_message": None}, {"error_code": 58, "auth_bytes": b""}),
    _exchange(
        FindCoordinatorRequest(CoordinatorKind.TRANSACTION, ("s.0", "s.1")),
        {"coordinators": [{"key": "s.0"}, {"key": "s.1"}]},
        {"coordinators": [{"key": name, "error_code": 15, "node_id": -1, "port": -1} for name in ("s.0", "s.1")]}),
    _exchange(
        FindCoordinatorRequest(CoordinatorKind.GROUP, ("s.0",)), {"coordinators": [{"key": "s.0"}]},
        {"coordinators": [{"key": "s.0", "error_code": 15}], "error_code": 15, "node_id": -1, "port": -1}),
    _exchange(
        AddPartitionsToTxnRequest(**_ID, partitions=PARTITIONS),
        *_by_topic("results_by_topic_v3_and_below", "results_by_partition", "partition_index", "partition_error_code")),
    _exchange(AddOffsetsToTxnRequest(**_ID, group_id="g"), {}, {"error_code": 47}),
    _exchange(EndTxnRequest(**_ID, committed=True, transaction_version=2), {}, {"error_code": 90}),
    _exchange(EndTxnRequest(**_ID, committed=False, transaction_version=1), {}, {"error_code": 48}),
    _exchange(
        WriteTxnMarkersRequest(PRODUCER_ID, 3, committed=True, coordinator_epoch=9, partitions=PARTITIONS),
        *({"markers": [{"producer_id": PRODUCER_ID, **said}]} for said in _by_topic(*_BY_PARTITION))),
    *(_exchange(TxnOffsetCommitRequest(**_ID, group_id="g", topic="orders", partition=0, offset=5, metadata="m",
                                       transaction_version=version), *_by_topic(*_BY_PARTITION, numbers=[0]))
      for version in (1, 2)),
    _exchange(OffsetCommitRequest("s.0", "orders", 0, 5, "m"), *_by_topic(*_BY_PARTITION, numbers=[0])),
    _exchange(ProgressCommitRequest("g", dict.fromkeys(PARTITIONS, 5)), *_by_topic(*_BY_PARTITION)),
    _exchange(
        OffsetFetchRequest(("s.0", "s.1"), "state", 0),
        _groups("1|q|f", 0, 0), _groups("1|q|", 88, 0), _groups(None, 0, 16)),
    _exchange(
        OffsetFetchRequest(("s.0",), "state", 0), _group("1|q|f", 0, 0), _group("1|q|", 88, 0), _group(None, 0, 16)),
    _exchange(GroupOffsetsRequest("g", PARTITIONS), *_by_topic(*_BY_PARTITION), {"topics": [], "error_code": 16}),
    _exchange(
        DeleteGroupsRequest(("s.0", "s.1")),
        {"results": [{"group_id": "s.0", "error_code": 0}, {"group_id": "s.1", "error_code": 69}]}),
    _exchange(
        DescribeTransactionsRequest(("s.0", "s.driver")),
        _transactions(transaction_state="Ongoing"), _transactions(error_code=105, transaction_state="")),
    _exchange(
        ListTransactionsRequest(transactional_id_prefix="s."),
        {"transaction_states": [{"transactional_id": name} for name in ("s.0", "s.12", "s.driver", "other.1")]},
        {"error_code": 14, "transaction_states": []}),
    _exchange(ListTransactionsRequest((1,), ("Ongoing",)), {"transaction_states": [{"transaction_state": "Ongoing"}]}),
    _exchange(DescribeProducersRequest(PARTITIONS), *_by_topic(*_BY_PARTITION)),
    *(_exchange(CreateTopicsRequest("state", 1, 1_000, replication_factor=count), {"topics": [{"name": "state"}]})
      for count in (BROKERS_DEFAULT, 3)),
    _exchange(
        DescribeConfigsRequest(3, SETTING),
        {"results": [{"resource_name": "3", "configs": [{"name": SETTING, "value": "900000"}]}]}),
    _exchange(
        TopicConfigsRequest(("orders",), (SETTING,)),
        {"results": [{"resource_name": "orders", "configs": [{"name": SETTING, "value": "1"}]}]}),
    _exchange(DescribeGroupRequest("s.0"), {"groups": [{"group_id": "s.0"}]}),
    *(_exchange(
        _fetch(topic_id, 2, "a"), {"responses": [_FETCHED | {"partitions": [{"partition_index": 2}]}]},
        {"responses": [_FETCHED | {"partitions": [{"partition_index": 2, "error_code": 6, "records": None}]}]},
        {"responses": []}) for topic_id in (None, ORDERS)),
    _exchange(
        SharedFetchRequest((_fetch(ORDERS, 2), _fetch(ORDERS, 3)), 1_000, 500),
        {"responses": [_FETCHED | {"partitions": [{"partition_index": 2}, {"partition_index": 3}]}]},
        {"responses": []}),
    _exchange(
        ListOffsetsRequest(tuple(AskedOffset(*each, LATEST) for each in PARTITIONS), IsolationLevel.READ_COMMITTED, 1),
        *_by_topic(*_BY_PARTITION)),
    _exchange(
        OffsetForLeaderEpochRequest("orders", 0, 7, 5),
        *({"topics": [{"topic": "orders", "partitions": [{"partition": 0, "error_code": code}]}]} for code in (0, 74))),
)  # fmt: skip


# --- arrays: a fuzzer seldom makes one element of three bytes into a thousand; a hostile peer does it at once ---------

# By kio's names of the wire types; the others have a length.
_SIZES = {
    "bool": 1, "int8": 1, "int16": 2, "error_code": 2, "int32": 4, "timedelta_i32": 4, "int64": 8, "timedelta_i64": 8,
    "datetime_i64": 8, "uuid": 16,
}  # fmt: skip


def largest_arrays(api: Api, version: int, size: int) -> Iterator[tuple[str, bytes]]:
    """For each array of the API's answer, at any depth: where it is, and a frame of about `size` bytes."""
    message_type = response_type(api, version)
    header = b"\0\0\0\0" + _tags(message_type.__header_schema__, b"")
    for path, message in _full(message_type, size):
        yield f"{api.name}{path}", header + message


def response_type(api: Api, version: int) -> Any:
    """kio ends with ApiVersions 4. The answer of version 5 has the same fields."""
    version = min(version, 4) if api.name == "ApiVersions" else version
    module = importlib.import_module(f"kio.schema.{api.kio_package}.v{version}.response")
    return getattr(module, f"{api.name}Response")


def _full(message_type: Any, size: int) -> Iterator[tuple[str, bytes]]:
    for chosen in fields(message_type):
        for path, value in _full_value(message_type, chosen, size):
            yield f".{chosen.name}{path}", _shortest_message(message_type, chosen, value)


def _full_value(message_type: Any, field: Field[Any], size: int) -> Iterator[tuple[str, bytes]]:
    of_type = inner_type(field.type)
    if is_dataclass(of_type):
        yield from _full(of_type, size)
    if typing.get_origin(of_type) is not tuple:
        return
    element_type = inner_type(typing.get_args(of_type)[0])
    if is_dataclass(element_type):
        smallest = _shortest_message(element_type)
        for path, element in _full(element_type, size):
            yield path, _counted(message_type, 1) + element
    else:
        smallest = _shortest_of(message_type, field.metadata["kafka_type"])
    count = size // len(smallest)
    yield f" ({count:,} of {len(smallest)} bytes)", _counted(message_type, count) + count * smallest


def _shortest_message(message_type: Any, chosen: Field[Any] | None = None, value: bytes = b"") -> bytes:
    """All fields as short as they can be, but one."""
    plain, tagged = b"", b""
    for field in fields(message_type):
        if "tag" in field.metadata:
            if field is chosen:
                tagged = bytes([field.metadata["tag"]]) + _varint(len(value)) + value
        else:
            plain += value if field is chosen else _shortest(message_type, field)
    return plain + _tags(message_type, tagged)


def _shortest(message_type: Any, field: Field[Any]) -> bytes:
    of_type = inner_type(field.type)
    if is_dataclass(of_type):
        return _shortest_message(of_type)
    if typing.get_origin(of_type) is tuple:
        return _counted(message_type, 0)
    return _shortest_of(message_type, field.metadata["kafka_type"])


def _shortest_of(message_type: Any, kafka_type: str) -> bytes:
    if kafka_type in _SIZES:
        return bytes(_SIZES[kafka_type])
    if message_type.__flexible__:
        return _varint(1)
    return bytes(2 if kafka_type == "string" else 4)


def _counted(message_type: Any, count: int) -> bytes:
    return _varint(count + 1) if message_type.__flexible__ else struct.pack(">i", count)


def _tags(message_type: Any, tagged: bytes) -> bytes:
    return bytes([bool(tagged)]) + tagged if message_type.__flexible__ else b""


def _varint(number: int) -> bytes:
    written = b""
    while number > 0x7F:
        written += bytes([number & 0x7F | 0x80])
        number >>= 7
    return written + bytes([number])

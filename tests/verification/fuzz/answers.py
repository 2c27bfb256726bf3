"""Valid answers to our requests in all supported versions, encoded by kio: the fuzzer's first inputs.

A table says of each API which request is asked and what makes an answer one to it; fields that it leaves out are filled
with something of their type, so that no part of a message is absent from the seeds.
"""

from __future__ import annotations

import datetime
import importlib
import io
import types
import typing
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass
from typing import Any

import kio.serial
from kio.schema.errors import ErrorCode

from kafka_sink.kafka.isolation import IsolationLevel
from kafka_sink.kafka.new_topic import BROKERS_DEFAULT
from kafka_sink.kafka.protocol.all_apis import APIS
from kafka_sink.kafka.protocol.api import Api
from kafka_sink.kafka.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafka_sink.kafka.protocol.apis.add_partitions_to_txn import AddPartitionsToTxnRequest
from kafka_sink.kafka.protocol.apis.api_versions import ApiVersionsRequest
from kafka_sink.kafka.protocol.apis.create_topics import CreateTopicsRequest
from kafka_sink.kafka.protocol.apis.delete_groups import DeleteGroupsRequest
from kafka_sink.kafka.protocol.apis.describe_configs import DescribeConfigsRequest, TopicConfigsRequest
from kafka_sink.kafka.protocol.apis.describe_groups import DescribeGroupRequest
from kafka_sink.kafka.protocol.apis.describe_producers import DescribeProducersRequest
from kafka_sink.kafka.protocol.apis.describe_transactions import DescribeTransactionsRequest
from kafka_sink.kafka.protocol.apis.end_txn import EndTxnRequest
from kafka_sink.kafka.protocol.apis.fetch import FetchRequest, SharedFetchRequest
from kafka_sink.kafka.protocol.apis.find_coordinator import CoordinatorKind, FindCoordinatorRequest
from kafka_sink.kafka.protocol.apis.init_producer_id import InitProducerIdRequest
from kafka_sink.kafka.protocol.apis.list_offsets import LATEST, AskedOffset, ListOffsetsRequest
from kafka_sink.kafka.protocol.apis.list_transactions import ListTransactionsRequest
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest
from kafka_sink.kafka.protocol.apis.offset_commit import OffsetCommitRequest, ProgressCommitRequest
from kafka_sink.kafka.protocol.apis.offset_fetch import OffsetFetchRequest
from kafka_sink.kafka.protocol.apis.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kafka_sink.kafka.protocol.apis.produce import ProducePartition, ProduceRequest
from kafka_sink.kafka.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from kafka_sink.kafka.protocol.apis.sasl_handshake import SaslHandshakeRequest
from kafka_sink.kafka.protocol.apis.txn_offset_commit import TxnOffsetCommitRequest
from kafka_sink.kafka.protocol.apis.write_txn_markers import WriteTxnMarkersRequest
from kafka_sink.kafka.protocol.requests import Request, api_of
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
        return api_of(self.request)

    def versions(self) -> range:
        lowest, highest = self.api.versions(self.request)
        return range(lowest, highest + 1)

    def frames(self, version: int, correlation_id: int = 0) -> Iterator[bytes]:
        for said in self.answers:
            yield answer(self.request, version, said, correlation_id)


def answer(request: Request, version: int, said: Said, correlation_id: int = 0) -> bytes:
    """A frame without its size."""
    return frame(message(request, version, said), correlation_id)


def message(request: Request, version: int, said: Said) -> Any:
    """Return kio's entity."""
    api = api_of(request)
    kio_version = importlib.import_module(f"kio.schema.{api.kio_package}.v{version}.response")
    return filled(getattr(kio_version, f"{api.name}Response"), said)


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

EXCHANGES: tuple[Exchange, ...] = (
    Exchange(
        ProduceRequest(-1, 1_000, tuple(ProducePartition("orders", number, ORDERS, b"") for _, number in PARTITIONS)),
        [
            {"responses": [_TOPIC | {"partition_responses": _PRODUCED}]},
            {"responses": [_TOPIC | {"partition_responses": [each | {"error_code": 10} for each in _PRODUCED]}]},
        ],
    ),
    Exchange(
        MetadataRequest(("nope", "orders"), True),
        [
            {"topics": [_UNKNOWN, _TOPIC | {"partitions": [_LEADERLESS, {"partition_index": 0}]}]},
            {"topics": [_UNKNOWN, _TOPIC | {"error_code": 29, "partitions": []}], "brokers": [], "cluster_id": None},
        ],
    ),
    Exchange(MetadataRequest(None, False), [{"topics": [_TOPIC | {"partitions": [{"partition_index": 0}]}]}]),
    Exchange(InitProducerIdRequest(1, "s.0"), [{}, {"error_code": 51, "producer_id": -1, "producer_epoch": -1}]),
    Exchange(InitProducerIdRequest(1), [{}]),
    Exchange(
        ApiVersionsRequest("test", "1"),
        [
            {
                "api_keys": [
                    {"api_key": api.key, "min_version": api.min_version, "max_version": api.max_version} for api in APIS
                ],
                "finalized_features": [{"name": "transaction.version", "max_version_level": 2}],
            },
            {"error_code": 42, "api_keys": [{}]},
        ],
    ),
    Exchange(SaslHandshakeRequest("PLAIN"), [{"mechanisms": ["PLAIN", "GSSAPI"]}, {"error_code": 33}]),
    Exchange(SaslAuthenticateRequest(b"\0a\0b"), [{"error_message": None}, {"error_code": 58, "auth_bytes": b""}]),
    Exchange(
        FindCoordinatorRequest(CoordinatorKind.TRANSACTION, ("s.0", "s.1")),
        [
            {"coordinators": [{"key": "s.0"}, {"key": "s.1"}]},
            {"coordinators": [{"key": name, "error_code": 15, "node_id": -1, "port": -1} for name in ("s.0", "s.1")]},
        ],
    ),
    Exchange(
        FindCoordinatorRequest(CoordinatorKind.GROUP, ("s.0",)),
        [
            {"coordinators": [{"key": "s.0"}]},
            {"coordinators": [{"key": "s.0", "error_code": 15}], "error_code": 15, "node_id": -1, "port": -1},
        ],
    ),
    Exchange(
        AddPartitionsToTxnRequest(**_ID, partitions=PARTITIONS),
        _by_topic("results_by_topic_v3_and_below", "results_by_partition", "partition_index", "partition_error_code"),
    ),
    Exchange(AddOffsetsToTxnRequest(**_ID, group_id="g"), [{}, {"error_code": 47}]),
    Exchange(EndTxnRequest(**_ID, committed=True, transaction_version=2), [{}, {"error_code": 90}]),
    Exchange(EndTxnRequest(**_ID, committed=False, transaction_version=1), [{}, {"error_code": 48}]),
    Exchange(
        WriteTxnMarkersRequest(PRODUCER_ID, 3, committed=True, coordinator_epoch=9, partitions=PARTITIONS),
        [
            {"markers": [{"producer_id": PRODUCER_ID, **said}]}
            for said in _by_topic("topics", "partitions", "partition_index", "error_code")
        ],
    ),
    *(
        Exchange(
            TxnOffsetCommitRequest(
                **_ID, group_id="g", topic="orders", partition=0, offset=5, metadata="m", transaction_version=version
            ),
            _by_topic("topics", "partitions", "partition_index", "error_code", numbers=[0]),
        )
        for version in (1, 2)
    ),
    Exchange(
        OffsetCommitRequest("s.0", "orders", 0, 5, "m"),
        _by_topic("topics", "partitions", "partition_index", "error_code", numbers=[0]),
    ),
    Exchange(
        ProgressCommitRequest("g", dict.fromkeys(PARTITIONS, 5)),
        _by_topic("topics", "partitions", "partition_index", "error_code"),
    ),
    Exchange(
        OffsetFetchRequest(("s.0", "s.1"), "state", 0),
        [_groups("1|q|f", 0, 0), _groups("1|q|", 88, 0), _groups(None, 0, 16)],
    ),
    Exchange(
        OffsetFetchRequest(("s.0",), "state", 0), [_group("1|q|f", 0, 0), _group("1|q|", 88, 0), _group(None, 0, 16)]
    ),
    Exchange(
        DeleteGroupsRequest(("s.0", "s.1")),
        [{"results": [{"group_id": "s.0", "error_code": 0}, {"group_id": "s.1", "error_code": 69}]}],
    ),
    Exchange(
        DescribeTransactionsRequest(("s.0", "s.driver")),
        [_transactions(transaction_state="Ongoing"), _transactions(error_code=105, transaction_state="")],
    ),
    Exchange(
        ListTransactionsRequest(transactional_id_prefix="s."),
        [
            {"transaction_states": [{"transactional_id": name} for name in ("s.0", "s.12", "s.driver", "other.1")]},
            {"error_code": 14, "transaction_states": []},
        ],
    ),
    Exchange(ListTransactionsRequest((1,), ("Ongoing",)), [{"transaction_states": [{"transaction_state": "Ongoing"}]}]),
    Exchange(DescribeProducersRequest(PARTITIONS), _by_topic("topics", "partitions", "partition_index", "error_code")),
    *(
        Exchange(CreateTopicsRequest("state", 1, 1_000, replication_factor=count), [{"topics": [{"name": "state"}]}])
        for count in (BROKERS_DEFAULT, 3)
    ),
    Exchange(
        DescribeConfigsRequest(3, SETTING),
        [{"results": [{"resource_name": "3", "configs": [{"name": SETTING, "value": "900000"}]}]}],
    ),
    Exchange(
        TopicConfigsRequest(("orders",), (SETTING,)),
        [{"results": [{"resource_name": "orders", "configs": [{"name": SETTING, "value": "1"}]}]}],
    ),
    Exchange(DescribeGroupRequest("s.0"), [{"groups": [{"group_id": "s.0"}]}]),
    *(
        Exchange(
            FetchRequest("orders", topic_id, 2, 5, 7, IsolationLevel.READ_COMMITTED, 1_000, 1, 500, "a"),
            [
                {"responses": [_FETCHED | {"partitions": [{"partition_index": 2}]}]},
                {"responses": [_FETCHED | {"partitions": [{"partition_index": 2, "error_code": 6, "records": None}]}]},
                {"responses": []},
            ],
        )
        for topic_id in (None, ORDERS)
    ),
    Exchange(
        SharedFetchRequest(
            tuple(
                FetchRequest("orders", ORDERS, number, 5, 7, IsolationLevel.READ_COMMITTED, 1_000, 1, 500)
                for number in (2, 3)
            ),
            1_000,
            500,
        ),
        [
            {"responses": [_FETCHED | {"partitions": [{"partition_index": 2}, {"partition_index": 3}]}]},
            {"responses": []},
        ],
    ),
    Exchange(
        ListOffsetsRequest(tuple(AskedOffset(*each, LATEST) for each in PARTITIONS), IsolationLevel.READ_COMMITTED, 1),
        _by_topic("topics", "partitions", "partition_index", "error_code"),
    ),
    Exchange(
        OffsetForLeaderEpochRequest("orders", 0, 7, 5),
        [{"topics": [{"topic": "orders", "partitions": [{"partition": 0, "error_code": code}]}]} for code in (0, 74)],
    ),
)

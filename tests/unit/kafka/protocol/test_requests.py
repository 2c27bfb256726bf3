"""Our requests as another client reads them, and answers as it writes them (kafka-python; not kio, which we use)."""

from __future__ import annotations

import importlib
import io
import subprocess
import sys
import uuid
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.metadata import ApiVersionsRequest as TheirApiVersionsRequest
from kafka.protocol.metadata import MetadataRequest as TheirMetadataRequest
from kafka.protocol.producer import InitProducerIdRequest as TheirInitProducerIdRequest
from kafka.protocol.producer import ProduceRequest as TheirProduceRequest
from kio.serial import entity_writer

from effort import examples
from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.protocol.acl_operation import NOT_TOLD
from kafka_sink.kafka.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafka_sink.kafka.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafka_sink.kafka.protocol.apis.metadata import (
    Broker,
    MetadataRequest,
    MetadataResponse,
    PartitionMetadata,
    TopicMetadata,
)
from kafka_sink.kafka.protocol.apis.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceResponse,
    ProduceResult,
    RefusedRecord,
    check_produce_response,
)
from kafka_sink.kafka.protocol.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from kafka_sink.kafka.protocol.requests import APIS, Request, api_of, decode_response, encode_request, select_version

ORDERS, CLICKS = uuid.UUID(int=7), uuid.UUID(int=8)
RECORDS = bytes(range(256)) * 40
PRODUCE = ProduceRequest(
    acks=-1,
    timeout_ms=30_000,
    partitions=(
        ProducePartition("orders", 2, ORDERS, memoryview(RECORDS)),
        ProducePartition("clicks", 0, CLICKS, b"few"),
        ProducePartition("orders", 0, ORDERS, memoryview(RECORDS)[100:]),
    ),
)


def encoded(request: Request, version: int) -> bytes:
    return b"".join(encode_request(request, version=version, correlation_id=77, client_id="me"))


def as_they_read(theirs: Any, request: Request, version: int) -> Any:
    message = theirs.decode(encoded(request, version), version=version, header=True, framed=True)
    header = message.header
    assert (header.request_api_version, header.correlation_id, header.client_id) == (version, 77, "me")
    return message


class TestEncode:
    @pytest.mark.parametrize("version", range(9, 14))
    def test_produce(self, version: int) -> None:
        message = as_they_read(TheirProduceRequest, PRODUCE, version)
        assert (message.transactional_id, message.acks, message.timeout_ms) == (None, -1, 30_000)
        topics = [
            (
                topic.topic_id if version >= 13 else topic.name,
                [(p.index, bytes(p.records)) for p in topic.partition_data],
            )
            for topic in message.topic_data
        ]
        orders, clicks = (ORDERS, CLICKS) if version >= 13 else ("orders", "clicks")
        assert topics == [(orders, [(2, RECORDS), (0, RECORDS[100:])]), (clicks, [(0, b"few")])]

    def test_produce_in_a_transaction(self) -> None:
        request = replace(PRODUCE, transactional_id="tx", acks=1)
        message = as_they_read(TheirProduceRequest, request, 12)
        assert (message.transactional_id, message.acks) == ("tx", 1)

    def test_records_are_spliced_in_and_small_pieces_joined(self) -> None:
        buffers = encode_request(PRODUCE, version=13, correlation_id=1, client_id="me")
        views = [memoryview(buffer) for buffer in buffers]
        spliced = [view for view in views if view.nbytes > 5000]
        assert all(view.obj is RECORDS for view in spliced)
        assert len(spliced) == 2
        assert len(buffers) == 5  # header, records, what lies between, records, all of the small topic

    def test_records_of_any_item_size(self) -> None:
        """kio takes len() for a size; a view of int64 has fewer items than bytes."""
        records = memoryview(bytes(8000)).cast("q")
        request = ProduceRequest(-1, 1, (ProducePartition("t", 0, None, records),))
        assert int.from_bytes(encoded(request, 9)[:4], "big") == len(encoded(request, 9)) - 4

    @pytest.mark.parametrize("version", range(10, 14))
    def test_metadata(self, version: int) -> None:
        request = MetadataRequest(("orders", "clicks"), allow_auto_topic_creation=True)
        message = as_they_read(TheirMetadataRequest, request, version)
        assert [topic.name for topic in message.topics] == ["orders", "clicks"]
        assert {topic.topic_id for topic in message.topics} <= {None, uuid.UUID(int=0)}
        assert message.allow_auto_topic_creation is True
        assert message.include_topic_authorized_operations is False

    def test_metadata_of_no_topic_is_not_metadata_of_all(self) -> None:
        assert as_they_read(TheirMetadataRequest, MetadataRequest((), False), 12).topics == []
        assert as_they_read(TheirMetadataRequest, MetadataRequest(None, False), 12).topics is None

    @pytest.mark.parametrize("version", [4, 5])
    def test_init_producer_id(self, version: int) -> None:
        message = as_they_read(TheirInitProducerIdRequest, InitProducerIdRequest(60_000), version)
        assert (message.transactional_id, message.transaction_timeout_ms) == (None, 60_000)
        assert (message.producer_id, message.producer_epoch) == (-1, -1)

    def test_api_versions(self) -> None:
        message = as_they_read(TheirApiVersionsRequest, ApiVersionsRequest("name", "1.0"), 3)
        assert (message.client_software_name, message.client_software_version) == ("name", "1.0")

    def test_client_ids_are_not_ascii_only(self) -> None:
        frame = b"".join(encode_request(InitProducerIdRequest(1), version=5, correlation_id=1, client_id="zoë-日本"))
        assert (
            TheirInitProducerIdRequest.decode(frame, version=5, header=True, framed=True).header.client_id == "zoë-日本"
        )


# --- answers ----------------------------------------------------------------------------------------------------------


MODULES = {"Produce": "producer", "InitProducerId": "producer", "SaslAuthenticate": "sasl"}
# The first version whose header has tagged fields. A response to ApiVersions never has them.
FLEXIBLE_FROM = {"Produce": 9, "Metadata": 9, "InitProducerId": 2, "SaslAuthenticate": 2, "ApiVersions": 99}


def theirs(name: str, direction: str) -> Any:
    module = importlib.import_module(f"kafka.protocol.{MODULES.get(name, 'metadata')}")
    return getattr(module, f"{name}{direction}")


def written(name: str, version: int, fields: dict[str, Any], correlation_id: int = 77) -> bytes:
    """kafka-python's bytes of an answer after its header, without the size."""
    message = filled(theirs(name, "Response"), version, fields)
    header = correlation_id.to_bytes(4, "big") + (b"\0" if version >= FLEXIBLE_FROM[name] else b"")
    return header + bytes(message.encode(version=version))


NESTED = {
    "responses": "TopicProduceResponse",
    "partition_responses": "PartitionProduceResponse",
    "brokers": "MetadataResponseBroker",
    "topics": "MetadataResponseTopic",
    "partitions": "MetadataResponsePartition",
    "api_keys": "ApiVersion",
    "finalized_features": "FinalizedFeatureKey",
    "record_errors": "BatchIndexAndErrorMessage",
}


def filled(message_type: Any, version: int, fields: dict[str, Any]) -> Any:
    values = {
        name: [filled(getattr(message_type, NESTED[name]), version, element) for element in value]
        if name in NESTED
        else value
        for name, value in fields.items()
    }
    return message_type(version=version, **values)


def produce_answer(
    version: int, results: list[tuple[str, int, int]], throttle_time_ms: int = 0, base_offset: int = 1 << 40
) -> bytes:
    ids = {"orders": ORDERS, "clicks": CLICKS, "other": uuid.UUID(int=99)}
    topics = [
        {
            **({"topic_id": ids[topic]} if version >= 13 else {"name": topic}),
            "partition_responses": [
                {
                    "index": partition,
                    "error_code": error_code,
                    "base_offset": base_offset,
                    "log_append_time_ms": 5,
                    "log_start_offset": 0,
                    "record_errors": [{"batch_index": 3, "batch_index_error_message": None}, *RECORD_ERRORS]
                    if error_code == 157
                    else [],
                    "error_message": "why" if error_code else None,
                }
            ],
        }
        for topic, partition, error_code in results
    ]
    return written("Produce", version, {"responses": topics, "throttle_time_ms": throttle_time_ms})


RECORD_ERRORS = [{"batch_index": 7, "batch_index_error_message": "no key"}]
ALL_ASKED = [("orders", 0, 0), ("clicks", 0, 157), ("orders", 2, 6)]


class TestDecode:
    @pytest.mark.parametrize("version", range(9, 14))
    def test_produce(self, version: int) -> None:
        response = decode_response(PRODUCE, version, produce_answer(version, ALL_ASKED, throttle_time_ms=9))

        def result(topic: str, topic_id: uuid.UUID, partition: int, error_code: int) -> ProduceResult:
            named, by_id = (None, topic_id) if version >= 13 else (topic, None)
            refused = (RefusedRecord(3, ""), RefusedRecord(7, "no key")) if error_code == 157 else ()
            why = "why" if error_code else None
            return ProduceResult(named, by_id, partition, error_code, why, 1 << 40, 5, refused)

        assert response == ProduceResponse(
            9, (result("orders", ORDERS, 0, 0), result("clicks", CLICKS, 0, 157), result("orders", ORDERS, 2, 6))
        )

    @pytest.mark.parametrize("version", range(10, 14))
    def test_metadata(self, version: int) -> None:
        partition = {
            "error_code": 5,
            "partition_index": 0,
            "leader_id": -1,
            "leader_epoch": 4,
            "replica_nodes": [1],
            "isr_nodes": [1],
            "offline_replicas": [],
        }
        fields = {
            "throttle_time_ms": 3,
            "brokers": [{"node_id": 1, "host": "localhost", "port": 9092, "rack": "a"}],
            "cluster_id": "c",
            "controller_id": 1,
            "topics": [
                {
                    "error_code": 0,
                    "name": "orders",
                    "topic_id": ORDERS,
                    "is_internal": False,
                    "partitions": [partition],
                },
                {"error_code": 3, "name": "nope", "topic_id": None, "is_internal": False, "partitions": []},
            ],
            **({"error_code": 129} if version >= 13 else {}),
        }
        response = decode_response(
            MetadataRequest(("nope", "orders"), True), version, written("Metadata", version, fields)
        )
        assert response == MetadataResponse(
            throttle_time_ms=3,
            cluster_id="c",
            controller_id=1,
            brokers=(Broker(1, "localhost", 9092, "a"),),
            topics=(
                TopicMetadata(0, "orders", ORDERS, (PartitionMetadata(5, 0, -1, 4),)),
                TopicMetadata(3, "nope", None, ()),
            ),
            error_code=129 if version >= 13 else 0,
        )

    @pytest.mark.parametrize("version", [4, 5])
    def test_init_producer_id(self, version: int) -> None:
        fields = {"throttle_time_ms": 1, "error_code": 0, "producer_id": 2**40, "producer_epoch": 3}
        response = decode_response(InitProducerIdRequest(1), version, written("InitProducerId", version, fields))
        assert response == InitProducerIdResponse(1, 0, 2**40, 3)

    def test_api_versions(self) -> None:
        fields = {
            "error_code": 0,
            "api_keys": [{"api_key": 0, "min_version": 3, "max_version": 13}],
            "throttle_time_ms": 2,
            "finalized_features": [{"name": "transaction.version", "max_version_level": 2, "min_version_level": 1}],
        }
        response = decode_response(ApiVersionsRequest("a", "1"), 3, written("ApiVersions", 3, fields))
        assert response == ApiVersionsResponse(2, 0, {0: (3, 13)}, {"transaction.version": 2})

    def test_an_old_broker_answers_api_versions_in_version_0(self) -> None:
        fields = {"error_code": 35, "api_keys": [{"api_key": 18, "min_version": 0, "max_version": 2}]}
        response = decode_response(ApiVersionsRequest("a", "1"), 3, written("ApiVersions", 0, fields))
        assert response == ApiVersionsResponse(0, 35, {18: (0, 2)}, {})

    @pytest.mark.parametrize("version", [9, 13])
    @pytest.mark.parametrize(
        ("base_offset", "is_one"),
        [(-1, True), (0, True), (2**63 - 2**31, True), (-2, False), (-(2**63), False), (2**63 - 1, False)],
    )
    def test_offsets_that_no_log_has(self, version: int, base_offset: int, is_one: bool) -> None:
        """Believed, they would be proof of rows in acknowledgements, and beyond 64 bits the task's own end."""
        succeeded = [(topic, partition, 0) for topic, partition, _ in ALL_ASKED]
        if is_one:
            decode_response(PRODUCE, version, produce_answer(version, succeeded, base_offset=base_offset))
        else:
            with pytest.raises(ProtocolError, match=f"a Produce answer that has the rows at offset {base_offset}"):
                decode_response(PRODUCE, version, produce_answer(version, succeeded, base_offset=base_offset))
        # With an error there is none, whatever it says.
        refused = [(topic, partition, 6) for topic, partition, _ in ALL_ASKED]
        decode_response(PRODUCE, version, produce_answer(version, refused, base_offset=base_offset))

    def test_bytes_that_follow(self) -> None:
        with pytest.raises(ProtocolError, match="Produce version 13: 1 bytes follow a Produce answer"):
            decode_response(PRODUCE, 13, produce_answer(13, ALL_ASKED) + b"\0")

    @settings(max_examples=examples(200), deadline=None)
    @given(st.data())
    def test_damage_is_an_answer_or_a_protocol_error(self, data: st.DataObject) -> None:
        frame = bytearray(produce_answer(13, ALL_ASKED))
        for _ in range(data.draw(st.integers(1, 3))):
            position = data.draw(st.integers(0, len(frame) - 1))
            frame[position : position + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=5))
            if not frame:
                break
        try:
            response = decode_response(PRODUCE, 13, bytes(frame))
        except ProtocolError:
            return
        assert isinstance(response, ProduceResponse)
        check_produce_response(PRODUCE, response)


class TestAnswersToAnotherQuestion:
    @pytest.mark.parametrize("version", [9, 13])
    @pytest.mark.parametrize(
        ("results", "words"),
        [
            (ALL_ASKED[:2], "-2 missing, none"),
            ([], "and 2 more missing"),
            ([*ALL_ASKED, ("orders", 0, 0)], "none missing, .*-0 not asked for or answered twice"),
            ([*ALL_ASKED, ("orders", 1, 0)], "none missing, .*-1 not asked for"),
            ([*ALL_ASKED[:2], ("other", 2, 0)], "-2 missing, .*-2 not asked for"),
        ],
    )
    def test_produce(self, version: int, results: list[tuple[str, int, int]], words: str) -> None:
        with pytest.raises(ProtocolError, match=words):
            decode_response(PRODUCE, version, produce_answer(version, results))

    @pytest.mark.parametrize(
        ("topics", "brokers", "words"),
        [
            ([], [], "other topics"),
            (["orders", "orders"], [], "other topics"),
            (["orders", "clicks"], [], "other topics"),
            ([None], [], "other topics"),
            (["orders"], [(1, "h", 0)], "impossible broker"),
            (["orders"], [(1, "h", 65536)], "impossible broker"),
            (["orders"], [(1, "", 1)], "impossible broker"),
            (["orders"], [(-1, "h", 1)], "impossible broker"),
        ],
    )
    def test_metadata(self, topics: list[str], brokers: list[tuple[int, str, int]], words: str) -> None:
        with pytest.raises(ProtocolError, match=words):
            decode_response(MetadataRequest(("orders",), True), 12, metadata_answer(topics, brokers, [0]))

    def test_metadata_of_all_topics_may_name_any_each_once(self) -> None:
        request = MetadataRequest(None, False)
        response = decode_response(request, 12, metadata_answer(["orders", "clicks"], [], [0]))
        assert isinstance(response, MetadataResponse)
        assert [topic.name for topic in response.topics] == ["orders", "clicks"]
        with pytest.raises(ProtocolError, match="other topics"):
            decode_response(request, 12, metadata_answer(["orders", "orders"], [], [0]))

    @pytest.mark.parametrize("partitions", [[1], [0, 2], [0, 0], [-1, 0]])
    def test_a_topic_with_holes(self, partitions: list[int]) -> None:
        with pytest.raises(ProtocolError, match="missing or repeated partitions"):
            decode_response(MetadataRequest(("orders",), True), 12, metadata_answer(["orders"], [], partitions))

    def test_partitions_in_any_order(self) -> None:
        response = decode_response(MetadataRequest(("orders",), True), 12, metadata_answer(["orders"], [], [2, 0, 1]))
        assert isinstance(response, MetadataResponse)
        assert [partition.partition for partition in response.topics[0].partitions] == [2, 0, 1]

    @pytest.mark.parametrize(("producer_id", "producer_epoch"), [(-1, 0), (5, -1)])
    def test_a_producer_id_that_is_none(self, producer_id: int, producer_epoch: int) -> None:
        fields = {"error_code": 0, "producer_id": producer_id, "producer_epoch": producer_epoch}
        with pytest.raises(ProtocolError, match="neither an error nor a producer id"):
            decode_response(InitProducerIdRequest(1), 5, written("InitProducerId", 5, fields))


def metadata_answer(topics: list[Any], brokers: list[tuple[int, str, int]], partitions: list[int]) -> bytes:
    partition = {"error_code": 0, "leader_id": 1, "leader_epoch": 0, "replica_nodes": [], "isr_nodes": []}
    fields = {
        "brokers": [{"node_id": node_id, "host": host, "port": port, "rack": None} for node_id, host, port in brokers],
        "topics": [
            {
                "error_code": 0,
                "name": name,
                "topic_id": ORDERS,
                "partitions": [{"partition_index": index, "offline_replicas": [], **partition} for index in partitions],
            }
            for name in topics
        ],
    }
    return written("Metadata", 12, fields)


# The lowest version of each request that writes send, as Kafka 2.1 or Event Hubs take it.
OLDEST = [
    (PRODUCE, 7),
    (PRODUCE, 8),
    (MetadataRequest(("orders",), True), 4),
    (MetadataRequest((), False), 5),
    (MetadataRequest(("orders",), False, describe=True), 7),
    (MetadataRequest(("orders",), False, describe=True), 8),
    (MetadataRequest(None, False, describe=True), 9),
    (InitProducerIdRequest(1), 0),
    (InitProducerIdRequest(1), 1),
    (InitProducerIdRequest(1, "s.0"), 3),
    (SaslAuthenticateRequest(b"secret"), 0),
    (SaslAuthenticateRequest(b"secret"), 1),
    (ApiVersionsRequest("a", "1"), 0),
    (ApiVersionsRequest("a", "1"), 2),
]


class TestOldVersions:
    @pytest.mark.parametrize(("request_", "version"), OLDEST)
    def test_kafka_python_reads_what_is_sent(self, request_: Request, version: int) -> None:
        name = api_of(request_).name
        frame = b"".join(encode_request(request_, version=version, correlation_id=7, client_id="me"))
        message = theirs(name, "Request").decode(frame, version=version, header=True, framed=True)
        assert (message.header.request_api_version, message.header.client_id) == (version, "me")
        match request_:
            case MetadataRequest():
                named = None if message.topics is None else tuple(topic.name for topic in message.topics)
                assert named == request_.topics
                assert message.allow_auto_topic_creation is request_.allow_auto_topic_creation
                assert version < 8 or message.include_topic_authorized_operations is request_.describe
            case InitProducerIdRequest():
                assert message.transactional_id == request_.transactional_id
            case SaslAuthenticateRequest():
                assert bytes(message.auth_bytes) == b"secret"
            case ProduceRequest():
                sent = [(topic.name, each.index) for topic in message.topic_data for each in topic.partition_data]
                assert sorted(sent) == sorted((topic, partition) for topic, partition, _ in ALL_ASKED)

    @pytest.mark.parametrize("version", [4, 5, 7])
    def test_a_broker_without_topic_ids(self, version: int) -> None:
        partition = {"error_code": 0, "partition_index": 0, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}
        partition |= ({"leader_epoch": 5} if version >= 7 else {}) | ({"offline_replicas": []} if version >= 5 else {})
        topic = {"error_code": 0, "name": "orders", "is_internal": False, "partitions": [partition]}
        broker = {"node_id": 1, "host": "h", "port": 9092, "rack": None}
        fields = {"throttle_time_ms": 70, "brokers": [broker], "cluster_id": "c", "controller_id": 1, "topics": [topic]}
        request = MetadataRequest(("orders",), False, describe=True)
        response = decode_response(request, version, written("Metadata", version, fields))
        assert isinstance(response, MetadataResponse)
        (found,) = response.topics
        assert found.topic_id is None
        assert found.partitions[0].leader_epoch == (5 if version >= 7 else -1)
        assert found.authorized_operations == NOT_TOLD
        # Before version 6 the broker has waited itself (KIP-219).
        assert response.throttle_time_ms == (70 if version >= 6 else 0)

    @pytest.mark.parametrize("version", [0, 1])
    def test_a_session_without_a_lifetime(self, version: int) -> None:
        fields = {"error_code": 0, "error_message": None, "auth_bytes": b"ok", "session_lifetime_ms": 90}
        response = decode_response(SaslAuthenticateRequest(b""), version, written("SaslAuthenticate", version, fields))
        assert response == SaslAuthenticateResponse(0, None, b"ok", 90 if version else 0)

    @pytest.mark.parametrize("version", [7, 8])
    def test_produce_results_without_refused_records(self, version: int) -> None:
        succeeded = [(topic, partition, 0) for topic, partition, _ in ALL_ASKED]
        response = decode_response(PRODUCE, version, produce_answer(version, succeeded, base_offset=9))
        assert isinstance(response, ProduceResponse)
        assert {result.base_offset for result in response.partitions} == {9}
        assert {(result.error_message, result.refused) for result in response.partitions} == {(None, ())}


class TestVersions:
    @pytest.mark.parametrize(
        ("request_", "theirs", "version"),
        [
            (PRODUCE, (0, 7), 7),  # Kafka 2.1
            (PRODUCE, (0, 9), 9),  # Kafka 3.3
            (PRODUCE, (0, 11), 11),  # Kafka 3.9
            (PRODUCE, (0, 13), 13),  # Kafka 4.3
            (PRODUCE, (0, 99), 13),
            (PRODUCE, (13, 14), 13),
            (PRODUCE, (0, 6), None),  # without zstd
            (PRODUCE, (14, 15), None),
            (replace(PRODUCE, partitions=(replace(PRODUCE.partitions[0], topic_id=None),)), (0, 13), 12),
            (replace(PRODUCE, partitions=(replace(PRODUCE.partitions[0], topic_id=None),)), (13, 13), None),
            (MetadataRequest((), True), (0, 12), 12),
            (MetadataRequest((), True), (0, 5), 5),  # Event Hubs
            (MetadataRequest((), True), (0, 3), None),  # a question would create the topic
            (InitProducerIdRequest(1), (0, 6), 5),
            (InitProducerIdRequest(1), (0, 0), 0),
            (InitProducerIdRequest(1, "s.0"), (0, 3), 3),
            (InitProducerIdRequest(1, "s.0"), (0, 2), None),  # before KIP-360
        ],
    )
    def test_the_highest_in_common(self, request_: Request, theirs: tuple[int, int], version: int | None) -> None:
        key = next(api.key for api in APIS if api.request_type is type(request_))
        assert select_version(request_, {key: theirs}) == version

    def test_an_api_that_is_not_offered(self) -> None:
        assert select_version(PRODUCE, {}) is None

    def test_kio_has_every_version_of_the_table(self) -> None:
        for api in APIS:
            for version in range(api.min_version, api.max_version + 1):
                module = importlib.import_module(f"kio.schema.{api.kio_package}.v{version}")
                assert getattr(module, f"{api.name}Request").__api_key__ == api.key

    @pytest.mark.parametrize(("version", "header_version"), [(1, 1), (2, 2), (5, 2)])
    def test_headers_are_as_kio_writes_them(self, version: int, header_version: int) -> None:
        header = importlib.import_module(f"kio.schema.request_header.v{header_version}.header").RequestHeader(
            request_api_key=22, request_api_version=version, correlation_id=2**31 - 1, client_id="zoë-日本"
        )
        expected = io.BytesIO()
        entity_writer(type(header))(expected, header)
        request = InitProducerIdRequest(5)
        frame = b"".join(encode_request(request, version=version, correlation_id=2**31 - 1, client_id="zoë-日本"))
        assert frame[4:].startswith(expected.getvalue())
        # Null as the transactional id follows, whose length is a varint from version 2 on.
        assert frame[4 + len(expected.getvalue()) :].startswith(b"\xff\xff" if header_version == 1 else b"\0")

    def test_all_requests_have_one_of_two_headers(self) -> None:
        versions = [
            (api, importlib.import_module(f"kio.schema.{api.kio_package}.v{version}"))
            for api in APIS
            for version in range(api.min_version, api.max_version + 1)
        ]
        headers = {getattr(module, f"{api.name}Request").__header_schema__ for api, module in versions}
        assert {(header.__version__, header.__flexible__) for header in headers} == {(1, False), (2, True)}


def test_kio_is_not_imported_with_the_module() -> None:
    code = "import sys, kafka_sink.kafka.protocol.connection; sys.exit('kio' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_threads_send_their_first_requests_at_the_same_time() -> None:
    """One thread needs kio's module of a request while another needs that of the response."""
    code = """
import sys, threading
from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest
from kafka_sink.kafka.protocol.requests import decode_response, encode_request

def encode(version):
    encode_request(REQUEST, version=version, correlation_id=0, client_id="client")

def decode(version):
    try:
        decode_response(REQUEST, version, b"")
    except ProtocolError:
        pass

def first_requests(action):
    together.wait()
    for version in range(4, 14):
        try:
            action(version)
        except BaseException as error:
            failed.append(repr(error))

REQUEST = MetadataRequest(("topic",), allow_auto_topic_creation=False)
sys.setswitchinterval(1e-6)
failed = []
together = threading.Barrier(8)
threads = [threading.Thread(target=first_requests, args=(action,)) for action in (encode, decode) * 4]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
sys.exit("; ".join(failed) or 0)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")

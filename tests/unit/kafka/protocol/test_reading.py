"""Fetch, ListOffsets and OffsetForLeaderEpoch as another client reads and writes them (kafka-python)."""

from __future__ import annotations

import datetime
import importlib
import uuid
from dataclasses import replace
from typing import Any

import pytest

from fuzz.answers import answer
from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.isolation import IsolationLevel
from kafka_sink.kafka.protocol.apis.fetch import FetchRequest, FetchResponse
from kafka_sink.kafka.protocol.apis.list_offsets import (
    EARLIEST,
    LATEST,
    AskedOffset,
    ListedOffset,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from kafka_sink.kafka.protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka_sink.kafka.protocol.requests import (
    Request,
    Response,
    api_of,
    decode_response,
    encode_request,
    select_version,
)
from kafka_sink.records.aborted_transaction import AbortedTransaction

ORDERS, OTHER = uuid.UUID(int=9), uuid.UUID(int=10)
FETCH = FetchRequest(
    topic="orders",
    topic_id=ORDERS,
    partition=2,
    offset=2**40,
    leader_epoch=7,
    isolation_level=IsolationLevel.READ_COMMITTED,
    max_bytes=1 << 20,
    min_bytes=1,
    max_wait_ms=500,
    rack_id="a",
)
OFFSETS = ListOffsetsRequest(
    (AskedOffset("orders", 2, LATEST, 7), AskedOffset("orders", 0, EARLIEST), AskedOffset("clicks", 0, 1_700_000_000)),
    IsolationLevel.READ_COMMITTED,
    timeout_ms=30_000,
)
EPOCH = OffsetForLeaderEpochRequest("orders", 2, current_leader_epoch=7, leader_epoch=5)
FETCH_VERSIONS = range(11, 19)
LIST_OFFSETS_VERSIONS = range(4, 12)
RECORDS = bytes(range(256)) * 20


def theirs(name: str) -> Any:
    module = "fetch" if name.startswith("Fetch") else "offsets"
    return getattr(importlib.import_module(f"kafka.protocol.consumer.{module}"), name)


def as_they_read(request: Request, version: int) -> Any:
    encoded = b"".join(encode_request(request, version=version, correlation_id=77, client_id="me"))
    message = theirs(f"{api_of(request).name}Request").decode(encoded, version=version, header=True, framed=True)
    assert (message.header.request_api_version, message.header.client_id) == (version, "me")
    return message


def decoded(request: Request, version: int, said: dict[str, Any]) -> Response:
    return decode_response(request, version, answer(request, version, said))


def fetched(version: int, partition: dict[str, Any], topic: uuid.UUID | str | None = None) -> dict[str, Any]:
    """The fields of an answer with one partition."""
    named = {"topic_id": topic or ORDERS} if version >= 13 else {"topic": topic or "orders"}
    partition = {"partition_index": 2, "error_code": 0, "records": RECORDS} | partition
    return {"throttle_time": milliseconds(0), "error_code": 0, "responses": [named | {"partitions": [partition]}]}


def milliseconds(number: int) -> datetime.timedelta:
    return datetime.timedelta(milliseconds=number)


class TestFetch:
    @pytest.mark.parametrize("version", FETCH_VERSIONS)
    def test_a_request(self, version: int) -> None:
        message = as_they_read(FETCH, version)
        assert (message.max_wait_ms, message.min_bytes, message.max_bytes) == (500, 1, 1 << 20)
        assert (message.isolation_level, message.session_id, message.session_epoch) == (1, 0, -1)
        assert message.rack_id == "a"
        assert not message.forgotten_topics_data
        (topic,) = message.topics
        assert (topic.topic_id if version >= 13 else topic.topic) == (ORDERS if version >= 13 else "orders")
        (partition,) = topic.partitions
        assert (partition.partition, partition.fetch_offset, partition.current_leader_epoch) == (2, 2**40, 7)
        assert (partition.partition_max_bytes, partition.log_start_offset) == (1 << 20, -1)

    def test_a_topic_without_an_id_can_only_be_named(self) -> None:
        assert select_version(FETCH, {1: (4, 30)}) == 18
        assert select_version(replace(FETCH, topic_id=None), {1: (4, 30)}) == 12
        assert select_version(FETCH, {1: (0, 10)}) is None

    @pytest.mark.parametrize("version", FETCH_VERSIONS)
    def test_records_of_another_clients_answer(self, version: int) -> None:
        """They are a view: what a broker sends is not copied again."""
        topic_type = theirs("FetchResponse").FetchableTopicResponse
        partition_type = topic_type.PartitionData
        aborted_type = partition_type.AbortedTransaction
        partition = partition_type(
            version=version,
            partition_index=2,
            error_code=0,
            high_watermark=90,
            last_stable_offset=80,
            log_start_offset=3,
            aborted_transactions=[aborted_type(version=version, producer_id=2**40, first_offset=50)],
            preferred_read_replica=4,
            records=RECORDS,
        )
        named = {"topic_id": ORDERS} if version >= 13 else {"topic": "orders"}
        message = theirs("FetchResponse")(
            version=version,
            throttle_time_ms=5,
            error_code=0,
            session_id=0,
            responses=[topic_type(version=version, partitions=[partition], **named)],
        )
        header = (77).to_bytes(4, "big") + (b"\0" if version >= 12 else b"")
        frame = header + bytes(message.encode(version=version))
        response = decode_response(FETCH, version, frame)
        assert isinstance(response, FetchResponse)
        assert response == FetchResponse(5, 0, 90, 80, 3, (AbortedTransaction(2**40, 50),), 4, memoryview(RECORDS))
        assert response.records.obj is frame

    @pytest.mark.parametrize("version", [11, 18])
    def test_no_records_and_no_aborted_transactions(self, version: int) -> None:
        response = decoded(FETCH, version, fetched(version, {"records": None, "aborted_transactions": None}))
        assert isinstance(response, FetchResponse)
        assert (response.aborted_transactions, bytes(response.records)) == ((), b"")

    @pytest.mark.parametrize("version", [11, 12, 13, 18])
    def test_an_error(self, version: int) -> None:
        of_partition = decoded(FETCH, version, fetched(version, {"error_code": 6, "records": None}))
        assert isinstance(of_partition, FetchResponse)
        assert of_partition.error_code == 6
        said = {"throttle_time": milliseconds(0), "error_code": 71, "responses": []}
        assert decoded(FETCH, version, said) == FetchResponse(0, 71)

    @pytest.mark.parametrize("version", [11, 18])
    def test_a_broker_that_throttles_answers_without_partitions(self, version: int) -> None:
        said = {"throttle_time": milliseconds(900), "error_code": 0, "responses": []}
        assert decoded(FETCH, version, said) == FetchResponse(900, 0)

    @pytest.mark.parametrize("version", [12, 13])
    @pytest.mark.parametrize("case", ["nothing", "another topic", "another partition", "twice"])
    def test_an_answer_to_something_else(self, version: int, case: str) -> None:
        other = "clicks" if version < 13 else OTHER
        said = fetched(version, {})
        (one,) = said["responses"]
        said |= {
            "nothing": {"responses": []},
            "another topic": fetched(version, {}, other),
            "another partition": fetched(version, {"partition_index": 3}),
            "twice": {"responses": [one, one]},
        }[case]
        with pytest.raises(ProtocolError, match=f"Fetch version {version}: a Fetch answer for something else than"):
            decoded(FETCH, version, said)

    def test_records_beside_an_error_are_nobodys(self) -> None:
        with pytest.raises(ProtocolError, match="a Fetch answer with error 6 and 5120 bytes"):
            decoded(FETCH, 18, fetched(18, {"error_code": 6}))

    @pytest.mark.parametrize("version", FETCH_VERSIONS)
    def test_cut_off_at_every_byte(self, version: int) -> None:
        frame = answer(FETCH, version, fetched(version, {"records": RECORDS[:20]}))
        for length in range(len(frame)):
            with pytest.raises(ProtocolError):
                decode_response(FETCH, version, frame[:length])


class TestListOffsets:
    @pytest.mark.parametrize("version", LIST_OFFSETS_VERSIONS)
    def test_a_request(self, version: int) -> None:
        message = as_they_read(OFFSETS, version)
        assert (message.replica_id, message.isolation_level) == (-1, 1)
        asked = [
            (topic.name, each.partition_index, each.timestamp, each.current_leader_epoch)
            for topic in message.topics
            for each in topic.partitions
        ]
        assert asked == [("orders", 2, -1, 7), ("orders", 0, -2, -1), ("clicks", 0, 1_700_000_000, -1)]
        assert version < 10 or message.timeout_ms == 30_000

    @pytest.mark.parametrize("version", LIST_OFFSETS_VERSIONS)
    def test_an_answer(self, version: int) -> None:
        found = {"partition_index": 2, "error_code": 0, "timestamp": -1, "offset": 2**40, "leader_epoch": 7}
        refused = {"partition_index": 0, "error_code": 6, "timestamp": -1, "offset": -1, "leader_epoch": -1}
        clicks = {"name": "clicks", "partitions": [found | {"partition_index": 0, "timestamp": 5}]}
        orders = {"name": "orders", "partitions": [refused, found]}
        said = {"throttle_time": milliseconds(5), "topics": [clicks, orders]}
        assert decoded(OFFSETS, version, said) == ListOffsetsResponse(
            5,
            (
                ListedOffset("clicks", 0, 0, 5, 2**40, 7),
                ListedOffset("orders", 0, 6, -1, -1, -1),
                ListedOffset("orders", 2, 0, -1, 2**40, 7),
            ),
        )
        for topics in ([], [orders], [clicks, orders, orders], [clicks, {"name": "orders", "partitions": [found]}]):
            with pytest.raises(ProtocolError, match="a ListOffsets answer for something else than asked"):
                decoded(OFFSETS, version, {"topics": topics})


class TestOffsetForLeaderEpoch:
    @pytest.mark.parametrize("version", [3, 4])
    def test_a_request(self, version: int) -> None:
        message = as_they_read(EPOCH, version)
        (topic,) = message.topics
        (partition,) = topic.partitions
        assert (message.replica_id, topic.topic, partition.partition) == (-1, "orders", 2)
        assert (partition.current_leader_epoch, partition.leader_epoch) == (7, 5)

    @pytest.mark.parametrize("version", [3, 4])
    def test_an_answer(self, version: int) -> None:
        partition = {"partition": 2, "error_code": 0, "leader_epoch": 4, "end_offset": 2**40}
        topic = {"topic": "orders", "partitions": [partition]}
        said = {"throttle_time": milliseconds(5), "topics": [topic]}
        assert decoded(EPOCH, version, said) == OffsetForLeaderEpochResponse(5, 0, 4, 2**40)
        for topics in ([], [topic, topic], [topic | {"topic": "clicks"}], [topic | {"partitions": []}]):
            with pytest.raises(ProtocolError, match="an OffsetForLeaderEpoch answer for something else than asked"):
                decoded(EPOCH, version, {"topics": topics})

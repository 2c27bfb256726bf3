"""Fetch, ListOffsets and OffsetForLeaderEpoch as another client reads and writes them (kafka-python)."""

import uuid
from dataclasses import astuple, replace
from typing import Any

import pytest

import apis
from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.config import IsolationLevel
from kafka_sink.kafka.protocol.api import Request
from kafka_sink.kafka.protocol.requests import decode_response, select_version
from kafka_sink.records.record_batch import AbortedTransaction
from their_messages import answered, as_they_read, lacks, to_other_questions, written

ORDERS, OTHER = uuid.UUID(int=9), uuid.UUID(int=10)
FETCH = apis.FetchRequest("orders", ORDERS, 2, 2**40, 7, IsolationLevel.READ_COMMITTED, 1 << 20, 1, 500, "a")
# A topic comes twice, because the order of partitions counts.
SHARED = apis.SharedFetchRequest(
    (FETCH, replace(FETCH, topic="clicks", topic_id=OTHER, partition=0), replace(FETCH, partition=3)), 1 << 20, 0
)
OFFSETS = apis.ListOffsetsRequest(
    (
        apis.AskedOffset("orders", 2, apis.LATEST, 7),
        apis.AskedOffset("orders", 0, apis.EARLIEST),
        apis.AskedOffset("clicks", 0, 1_700_000_000),
    ),
    IsolationLevel.READ_COMMITTED,
    timeout_ms=30_000,
)
EPOCH = apis.OffsetForLeaderEpochRequest("orders", 2, current_leader_epoch=7, leader_epoch=5)
RECORDS = bytes(range(256)) * 20
FETCH_VERSIONS, LIST_OFFSETS_VERSIONS = range(11, 19), range(4, 12)
FETCHED = {"partition": 2, "fetch_offset": 2**40, "current_leader_epoch": 7, "partition_max_bytes": 1 << 20}


def asked_offset(partition: int, time: int, epoch: int) -> dict[str, int]:
    return {"partition_index": partition, "timestamp": time, "current_leader_epoch": epoch}


# Each partition is asked for its own time.
TIMES = [
    {"name": "orders", "partitions": [asked_offset(2, -1, 7), asked_offset(0, -2, -1)]},
    {"name": "clicks", "partitions": [asked_offset(0, 1_700_000_000, -1)]},
]
EPOCH_ASKED = {"partition": 2, "current_leader_epoch": 7, "leader_epoch": 5}


# The requests, their versions, and what another client reads.
@pytest.mark.parametrize(("request_", "versions", "expected"), [
    (
        FETCH,
        FETCH_VERSIONS,
        {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 1, "rack_id": "a"}
        | {"session_id": 0, "session_epoch": -1, "forgotten_topics_data": []}
        | {"topics": [{"partitions": [FETCHED | {"log_start_offset": -1}]}]},
    ),
    (
        SHARED,
        FETCH_VERSIONS,
        {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 1, "rack_id": "a"}
        | {"topics": [{"partitions": [FETCHED | {"partition": number}]} for number in (2, 0, 3)]},
    ),
    (FETCH, range(11, 13), {"topics": [{"topic": "orders"}]}),
    (FETCH, range(13, 19), {"topics": [{"topic_id": ORDERS}]}),
    (OFFSETS, LIST_OFFSETS_VERSIONS, {"replica_id": -1, "isolation_level": 1, "topics": TIMES}),
    (OFFSETS, (10, 11), {"timeout_ms": 30_000}),
    (EPOCH, (3, 4), {"replica_id": -1, "topics": [{"topic": "orders", "partitions": [EPOCH_ASKED]}]}),
])  # fmt: skip
def test_another_client_reads_what_is_sent(request_: Request, versions: Any, expected: dict[str, Any]) -> None:
    for version in versions:
        assert lacks(as_they_read(request_, version), expected) is None, version


def fetched(topic: str = "orders", topic_id: uuid.UUID = ORDERS, **partition: Any) -> dict[str, Any]:
    """The fields of an answer with one partition."""
    partition = {"partition_index": 2, "records": RECORDS} | partition
    return {"responses": [{"topic": topic, "topic_id": topic_id, "partitions": [partition]}]}


class TestFetch:
    def test_a_topic_without_an_id_can_only_be_named(self) -> None:
        assert select_version(FETCH, {1: (4, 30)}) == 18
        assert select_version(replace(FETCH, topic_id=None), {1: (4, 30)}) == 12
        assert select_version(FETCH, {1: (0, 10)}) is None

    @pytest.mark.parametrize("version", FETCH_VERSIONS)
    def test_records_of_another_clients_answer(self, version: int) -> None:
        """They are a view: what a broker sends is not copied again."""
        offsets = {"high_watermark": 90, "last_stable_offset": 80, "log_start_offset": 3, "preferred_read_replica": 4}
        said = fetched(**offsets, aborted_transactions=[{"producer_id": 2**40, "first_offset": 50}])
        frame = written(FETCH, version, said | {"throttle_time_ms": 5})
        response = decode_response(FETCH, version, frame)
        assert isinstance(response, apis.FetchResponse)
        assert response == apis.FetchResponse(5, 0, 90, 80, 3, (AbortedTransaction(2**40, 50),), 4, memoryview(RECORDS))
        assert response.records.obj is frame
        nothing = answered(FETCH, version, **fetched(records=None, aborted_transactions=None))
        assert (nothing.aborted_transactions, bytes(nothing.records)) == ((), b"")
        with pytest.raises(ProtocolError, match="a Fetch answer with error 6 and 5120 bytes"):
            answered(FETCH, version, **fetched(error_code=6))

    @pytest.mark.parametrize("version", [11, 12, 13, 18])
    def test_an_error_or_a_throttle_comes_without_records_or_partitions(self, version: int) -> None:
        assert answered(FETCH, version, **fetched(error_code=6, records=None)).error_code == 6
        assert answered(FETCH, version, error_code=71, responses=[]) == apis.FetchResponse(0, 71)
        assert answered(FETCH, version, throttle_time_ms=900, responses=[]) == apis.FetchResponse(900, 0)

    @pytest.mark.parametrize("version", [12, 13])
    def test_an_answer_to_something_else(self, version: int) -> None:
        of_another = fetched("clicks", OTHER)
        for said in (*to_other_questions(fetched()), of_another):
            if version == 13 and said["responses"] and said["responses"][0]["topic"] == "ordersx":
                continue  # that version has no name of a topic
            with pytest.raises(ProtocolError, match=f"Fetch version {version}: a Fetch answer for something else than"):
                answered(FETCH, version, **said)

    @pytest.mark.parametrize("version", FETCH_VERSIONS)
    def test_partitions_of_one_answer_in_any_order(self, version: int) -> None:
        assert select_version(SHARED, {1: (4, version)}) == version
        of_clicks = {"topic": "clicks", "topic_id": OTHER, "partitions": [{"partition_index": 0, "records": b"c"}]}
        of_orders = fetched(error_code=6, records=None)["responses"][0]
        of_orders["partitions"].append({"partition_index": 3, "records": b"o", "high_watermark": 7})
        response = answered(SHARED, version, throttle_time_ms=5, responses=[of_clicks, of_orders])
        assert isinstance(response, apis.SharedFetchResponse)
        found = [(each.error_code, bytes(each.records)) for each in response.parts]
        assert (found, response.parts[2].high_watermark) == ([(6, b""), (0, b"c"), (0, b"o")], 7)
        for wrong in ([of_clicks], [of_clicks, of_orders, of_clicks], [of_orders, {**of_clicks, "topic_id": ORDERS}]):
            if version < 13 and len(wrong) == 2:
                continue  # such a version has no ids
            with pytest.raises(ProtocolError, match="a Fetch answer for something else than asked"):
                answered(SHARED, version, responses=wrong)

    @pytest.mark.parametrize("version", range(12, 19))
    def test_a_broker_that_does_not_lead_names_the_leader(self, version: int) -> None:
        def leader(code: int, *described: int) -> apis.NamedLeader | None:
            said = fetched(error_code=code, records=None, current_leader=leader_named(4, 9))
            if version >= 16:
                said["node_endpoints"] = [each for node_id in described for each in endpoints(node_id)]
            response = answered(FETCH, version, **said)
            assert isinstance(response, apis.FetchResponse)
            return response.leader

        expected = apis.NamedLeader(4, 9, LISTENS if version >= 16 else None)
        assert (leader(6, 5, 4), leader(74, 4), leader(7, 4)) == (expected, expected, None)
        assert leader(6, 5) == apis.NamedLeader(4, 9)

    def test_a_refusal_of_the_whole_request_is_of_each_partition(self) -> None:
        for said in ({"error_code": 71}, {"throttle_time_ms": 9}):
            refused = answered(SHARED, 18, responses=[], **said)
            of_each = apis.FetchResponse(said.get("throttle_time_ms", 0), said.get("error_code", 0))
            assert refused == apis.SharedFetchResponse(of_each.throttle_time_ms, (of_each,) * 3)


LISTENS = apis.Broker(4, "new", 9092, "a")


def leader_named(node_id: int, epoch: int) -> dict[str, int]:
    return {"leader_id": node_id, "leader_epoch": epoch}


def endpoints(node_id: int, host: str = "new", port: int = 9092) -> list[dict[str, Any]]:
    return [{"node_id": node_id, "host": host, "port": port, "rack": "a"}]


class TestANamedLeader:
    @pytest.mark.parametrize("wrong", [
        {"leader": (-2, 9)}, {"leader": (4, -3)}, {"host": ""}, {"port": 0}, {"port": 65_536},
    ])  # fmt: skip
    def test_that_cannot_be_one(self, wrong: dict[str, Any]) -> None:
        """As in a Metadata answer."""
        leader = leader_named(*wrong.pop("leader", (4, 9)))
        said = {"node_endpoints": endpoints(4, **wrong)}
        result = {"index": 0, "error_code": 6, "base_offset": -1, "current_leader": leader}
        produce = apis.ProduceRequest(-1, 1, (apis.ProducePartition("orders", 0, ORDERS, b""),))
        responses = [{"name": "orders", "topic_id": ORDERS, "partition_responses": [result]}]
        with pytest.raises(ProtocolError, match="a Produce answer with"):
            answered(produce, 12, responses=responses, **said)
        with pytest.raises(ProtocolError, match="a Fetch answer with"):
            answered(FETCH, 16, **fetched(error_code=6, records=None, current_leader=leader), **said)

    @pytest.mark.parametrize("named", [(-1, 9), (4, -1)])
    def test_that_is_not_known(self, named: tuple[int, int]) -> None:
        said = fetched(error_code=6, records=None, current_leader=leader_named(*named))
        assert answered(FETCH, 16, **said).leader is None


FOUND = {"partition_index": 2, "timestamp": -1, "offset": 2**40, "leader_epoch": 7}
REFUSED = {"partition_index": 0, "error_code": 6, "timestamp": -1, "offset": -1, "leader_epoch": -1}
OF_CLICKS = {"name": "clicks", "partitions": [FOUND | {"partition_index": 0, "timestamp": 5}]}
OF_ORDERS = {"name": "orders", "partitions": [REFUSED, FOUND]}


@pytest.mark.parametrize("version", LIST_OFFSETS_VERSIONS)
def test_offsets_of_another_clients_answer(version: int) -> None:
    response = answered(OFFSETS, version, throttle_time_ms=5, topics=[OF_CLICKS, OF_ORDERS])
    of_orders = ("orders", 0, 6, -1, -1, -1), ("orders", 2, 0, -1, 2**40, 7)
    assert astuple(response) == (5, (("clicks", 0, 0, 5, 2**40, 7), *of_orders))
    for topics in to_other_questions([OF_CLICKS, OF_ORDERS]):
        with pytest.raises(ProtocolError, match="a ListOffsets answer for something else than asked"):
            answered(OFFSETS, version, topics=topics)


@pytest.mark.parametrize("version", [3, 4])
def test_where_an_epoch_ends_in_another_clients_answer(version: int) -> None:
    topic = {"topic": "orders", "partitions": [{"partition": 2, "leader_epoch": 4, "end_offset": 2**40}]}
    assert astuple(answered(EPOCH, version, throttle_time_ms=5, topics=[topic])) == (5, 0, 4, 2**40)
    for topics in to_other_questions([topic]):
        with pytest.raises(ProtocolError, match="an OffsetForLeaderEpoch answer for something else than asked"):
            answered(EPOCH, version, topics=topics)

"""What writes and reads send as another client reads it, and answers as it writes them (kafka-python; not kio, which
we use). Other requests are in test_transactions.py."""

import importlib
import subprocess
import sys
import uuid
from dataclasses import astuple, replace
from typing import Any

import pytest

import apis
from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.config import IsolationLevel
from kafka_sink.kafka.protocol.api import NOT_REPORTED, Request
from kafka_sink.kafka.protocol.apis import all_apis
from kafka_sink.kafka.protocol.requests import decode_response, encode_request, select_version
from kafka_sink.records.record_batch import AbortedTransaction
from their_messages import answered, as_they_read, encoded, lacks, name_of, to_other_questions, written

ORDERS, CLICKS = uuid.UUID(int=7), uuid.UUID(int=8)
RECORDS = bytes(range(256)) * 40
OF_ORDERS = apis.ProducePartition("orders", 2, ORDERS, memoryview(RECORDS))
OF_CLICKS = apis.ProducePartition("clicks", 0, CLICKS, b"few")
PRODUCE = apis.ProduceRequest(
    -1, 30_000, (OF_ORDERS, OF_CLICKS, replace(OF_ORDERS, partition=0, records=memoryview(RECORDS)[100:]))
)
ANONYMOUS = replace(PRODUCE, partitions=(replace(PRODUCE.partitions[0], topic_id=None),))
ORDERS_ALONE = apis.MetadataRequest(("orders",), allow_auto_topic_creation=True)
DESCRIBED = apis.MetadataRequest(("orders",), False, describe=True)
ALL_TOPICS = apis.MetadataRequest(None, False)
SASL = apis.SaslAuthenticateRequest(b"secret")
SOFTWARE = apis.ApiVersionsRequest("name", "1.0")
SENT_RECORDS = [
    {"partition_data": [{"index": 2, "records": RECORDS}, {"index": 0, "records": RECORDS[100:]}]},
    {"partition_data": [{"index": 0, "records": b"few"}]},
]
OTHER = uuid.UUID(int=10)
FETCH = apis.FetchRequest("orders", ORDERS, 2, 2**40, 7, IsolationLevel.READ_COMMITTED, 1 << 20, 1, 500, "a")
# A topic comes twice, because the order of partitions counts.
SHARED = apis.SharedFetchRequest(
    (FETCH, replace(FETCH, topic="clicks", topic_id=OTHER, partition=0), replace(FETCH, partition=3)), 1 << 20, 0
)
FETCH_VERSIONS = range(11, 19)
LIMITS = {"min_bytes": 1, "max_bytes": 1 << 20, "isolation_level": 1, "rack_id": "a"}
FETCHED = {"partition": 2, "fetch_offset": 2**40, "current_leader_epoch": 7, "partition_max_bytes": 1 << 20}


# The requests, their versions, and what another client reads: from the lowest version on, as Kafka 2.1 or Event Hubs
# take it.
@pytest.mark.parametrize(("request_", "versions", "expected"), [
    (PRODUCE, range(7, 14), {"transactional_id": None, "acks": -1, "timeout_ms": 30_000, "topic_data": SENT_RECORDS}),
    (PRODUCE, range(7, 13), {"topic_data": [{"name": "orders"}, {"name": "clicks"}]}),
    (PRODUCE, (13,), {"topic_data": [{"topic_id": ORDERS}, {"topic_id": CLICKS}]}),
    (replace(PRODUCE, transactional_id="tx", acks=1), (12,), {"transactional_id": "tx", "acks": 1}),
    (ORDERS_ALONE, range(4, 14), {"topics": [{"name": "orders"}], "allow_auto_topic_creation": True}),
    (ORDERS_ALONE, range(8, 14), {"include_topic_authorized_operations": False}),
    (DESCRIBED, range(8, 14), {"include_topic_authorized_operations": True, "allow_auto_topic_creation": False}),
    (apis.MetadataRequest((), False), (5, 12), {"topics": []}),
    (ALL_TOPICS, (4, 9, 12), {"topics": None}),
    (SASL, (0, 1), {"auth_bytes": b"secret"}),
    (SOFTWARE, (0, 2), {}),
    (SOFTWARE, (3,), {"client_software_name": "name", "client_software_version": "1.0"}),
    (FETCH, FETCH_VERSIONS, LIMITS | {"max_wait_ms": 500, "session_id": 0, "session_epoch": -1}
     | {"forgotten_topics_data": [], "topics": [{"partitions": [FETCHED | {"log_start_offset": -1}]}]}),
    (SHARED, FETCH_VERSIONS, LIMITS | {"max_wait_ms": 0}
     | {"topics": [{"partitions": [FETCHED | {"partition": number}]} for number in (2, 0, 3)]}),
    (FETCH, range(11, 13), {"topics": [{"topic": "orders"}]}),
    (FETCH, range(13, 19), {"topics": [{"topic_id": ORDERS}]}),
], ids=name_of)  # fmt: skip
def test_another_client_reads_what_is_sent(request_: Request, versions: Any, expected: dict[str, Any]) -> None:
    for version in versions:
        assert lacks(as_they_read(request_, version), expected) is None, version


def test_a_broker_is_named_as_java_names_it() -> None:
    """The bytes are those of Kafka 4.4.0's ApiVersionsRequest.serializeWithHeader."""
    request = apis.ApiVersionsRequest("pyspark-pykafka", "0.1.0", "5L6g3nShT-eMCtK--X86sw", 7)
    software = "006d6500107079737061726b2d70796b61666b6106302e312e30"
    cluster_id = "17354c3667336e5368542d654d43744b2d2d5838367377"
    assert encoded(request, 5, "me").hex() == f"0000003f001200050000004d0002{software[2:]}{cluster_id}0000000700"
    assert encoded(request, 4, "me").hex() == f"00000024001200040000004d0002{software[2:]}00"
    refused = bytes.fromhex("0000004d" + "0081010000000300")
    assert decode_response(request, 5, refused) == apis.ApiVersionsResponse(3, 129, {}, {})


def test_records_are_spliced_in_and_small_pieces_joined() -> None:
    buffers = encode_request(PRODUCE, version=13, correlation_id=1, client_id="me")
    spliced = [view for view in map(memoryview, buffers) if view.nbytes > 5000]
    assert all(view.obj is RECORDS for view in spliced)
    # Header, records, what lies between, records, all of the small topic.
    assert (len(spliced), len(buffers)) == (2, 5)
    # kio takes len() for a size; a view of int64 has fewer items than bytes.
    records = memoryview(bytes(8000)).cast("q")
    frame = encoded(apis.ProduceRequest(-1, 1, (apis.ProducePartition("t", 0, None, records),)), 9)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4


IDS = {"orders": ORDERS, "clicks": CLICKS, "other": uuid.UUID(int=99)}
REFUSED = [{"batch_index": at, "batch_index_error_message": why} for at, why in ((3, None), (7, "no key"))]
ALL_ASKED = [("orders", 0, 0), ("clicks", 0, 157), ("orders", 2, 6)]
SUCCEEDED = [(topic, partition, 0) for topic, partition, _ in ALL_ASKED]


def produced(results: list[tuple[str, int, int]], base_offset: int = 1 << 40) -> dict[str, Any]:
    """The fields of an answer."""

    def partition(index: int, code: int) -> dict[str, Any]:
        said = {"index": index, "error_code": code, "base_offset": base_offset, "log_append_time_ms": 5}
        return said | {"record_errors": REFUSED if code == 157 else [], "error_message": "why" if code else None}

    topics = [
        {"name": topic, "topic_id": IDS[topic], "partition_responses": [partition(index, code)]}
        for topic, index, code in results
    ]
    return {"responses": topics, "throttle_time_ms": 9}


def described(
    topics: list[Any], brokers: list[tuple[int, str, int]], partitions: list[int], **of_partition: Any
) -> dict[str, Any]:
    led = {"leader_id": 1, "leader_epoch": 0} | of_partition
    return {
        "brokers": [{"node_id": node_id, "host": host, "port": port, "rack": "a"} for node_id, host, port in brokers],
        "topics": [
            {"name": name, "topic_id": ORDERS, "partitions": [{"partition_index": each, **led} for each in partitions]}
            for name in topics
        ],
    }


class TestDecode:
    @pytest.mark.parametrize("version", range(7, 14))
    def test_produce(self, version: int) -> None:
        def result(topic: str, partition: int, error_code: int) -> tuple[Any, ...]:
            named = (None, IDS[topic]) if version >= 13 else (topic, None)
            refused = ((3, ""), (7, "no key")) if error_code == 157 else ()
            return *named, partition, error_code, "why" if error_code else None, 1 << 40, refused, None

        # Version 7 cannot carry why.
        said = ALL_ASKED if version > 7 else SUCCEEDED
        assert astuple(answered(PRODUCE, version, **produced(said))) == (9, tuple(result(*each) for each in said))

    @pytest.mark.parametrize("version", range(10, 14))
    def test_metadata(self, version: int) -> None:
        said = described(["orders"], [(1, "localhost", 9092)], [0], error_code=5, leader_id=-1, leader_epoch=4)
        said["topics"].append({"error_code": 3, "name": "nope", "topic_id": None})
        said |= {"throttle_time_ms": 3, "cluster_id": "c", "controller_id": 1, "error_code": 129}
        response = answered(apis.MetadataRequest(("nope", "orders"), True), version, **said)
        partition = (5, 0, -1, 4, (), ())
        topics = (0, "orders", ORDERS, (partition,), NOT_REPORTED, False), (3, "nope", None, (), NOT_REPORTED, False)
        brokers = ((1, "localhost", 9092, "a"),)
        assert astuple(response) == (3, "c", 1, brokers, topics, 129 if version >= 13 else 0)

    def test_handshakes(self) -> None:
        features = {"finalized_features": [{"name": "f", "max_version_level": 2, "min_version_level": 1}]}
        apis = {"api_keys": [{"api_key": 0, "min_version": 3, "max_version": 13}]}
        assert astuple(answered(SOFTWARE, 3, throttle_time_ms=2, **apis, **features)) == (2, 0, {0: (3, 13)}, {"f": 2})
        # An old broker answers in version 0, whichever it was asked in.
        refused = decode_response(SOFTWARE, 3, written(SOFTWARE, 0, {"error_code": 35, **apis}))
        assert astuple(refused) == (0, 35, {0: (3, 13)}, {})
        for version in (0, 1):
            session = answered(SASL, version, error_message=None, auth_bytes=b"ok", session_lifetime_ms=90)
            assert astuple(session) == (0, None, b"ok", 90 * version, 0)

    @pytest.mark.parametrize("version", [9, 13])
    @pytest.mark.parametrize(("base_offset", "is_one"), [
        (-1, True), (0, True), (2**63 - 2**31, True), (-2, False), (-(2**63), False), (2**63 - 1, False),
    ])  # fmt: skip
    def test_offsets_that_no_log_has(self, version: int, base_offset: int, is_one: bool) -> None:
        """Believed, they would be proof of rows in acknowledgements, and beyond 64 bits the task's own end."""
        if is_one:
            answered(PRODUCE, version, **produced(SUCCEEDED, base_offset))
        else:
            with pytest.raises(ProtocolError, match=f"a Produce answer that has the rows at offset {base_offset}"):
                answered(PRODUCE, version, **produced(SUCCEEDED, base_offset))
        # With an error there is none, whatever it says.
        refused = [(topic, partition, 6) for topic, partition, _ in ALL_ASKED]
        answered(PRODUCE, version, **produced(refused, base_offset))

    def test_bytes_that_follow(self) -> None:
        with pytest.raises(ProtocolError, match="Produce version 13: 1 bytes follow a Produce answer"):
            decode_response(PRODUCE, 13, written(PRODUCE, 13, produced(ALL_ASKED)) + b"\0")


AT = [(1, "h", 1)]


@pytest.mark.parametrize(("request_", "versions", "said", "words"), [
    *((PRODUCE, (9, 13), produced(results), words) for results, words in (
        (ALL_ASKED[:2], "-2 missing, none"),
        ([], "and 2 more missing"),
        ([*ALL_ASKED, ("orders", 0, 0)], "none missing, .*-0 not asked for or answered twice"),
        ([*ALL_ASKED[:2], ("other", 2, 0)], "-2 missing, .*-2 not asked for"),
    )),
    *((ORDERS_ALONE, (12,), described(topics, [], [0]), "other topics")
      for topics in ([], ["orders", "orders"], ["orders", "clicks"], [None])),
    *((ORDERS_ALONE, (12,), described(["orders"], [broker], [0]), "impossible broker")
      for broker in ((1, "h", 0), (1, "h", 65536), (1, "", 1), (-1, "h", 1))),
    *((ORDERS_ALONE, (12,), described(["orders"], AT, partitions), "missing or repeated partitions")
      for partitions in ([1], [0, 2], [0, 0], [-1, 0])),
    (ALL_TOPICS, (12,), described(["orders", "orders"], AT, [0]), "other topics"),
], ids=name_of)  # fmt: skip
def test_an_answer_to_another_question_is_none(request_: Request, versions: Any, said: Any, words: str) -> None:
    for version in versions:
        with pytest.raises(ProtocolError, match=words):
            answered(request_, version, **said)


def test_metadata_of_all_topics_may_name_any_with_partitions_in_any_order() -> None:
    response = answered(ALL_TOPICS, 12, **described(["orders", "clicks"], [], [2, 0, 1]))
    assert [topic.name for topic in response.topics] == ["orders", "clicks"]
    assert [partition.partition for partition in response.topics[0].partitions] == [2, 0, 1]


@pytest.mark.parametrize("version", [4, 5, 7])
def test_metadata_of_a_broker_without_topic_ids(version: int) -> None:
    response = answered(DESCRIBED, version, throttle_time_ms=70, **described(["orders"], AT, [0], leader_epoch=5))
    (found,) = response.topics
    assert (found.topic_id, found.authorized_operations) == (None, NOT_REPORTED)
    assert found.partitions[0].leader_epoch == (5 if version >= 7 else -1)
    # Before version 6 the broker has waited itself (KIP-219).
    assert response.throttle_time_ms == (70 if version >= 6 else 0)


# Of each request, what a broker speaks, and the version that is sent.
@pytest.mark.parametrize(("request_", "versions"), [
    (PRODUCE, {(0, 7): 7, (0, 9): 9, (0, 11): 11, (0, 13): 13}),  # Kafka 2.1, 3.3, 3.9, 4.3
    (PRODUCE, {(0, 99): 13, (13, 14): 13, (14, 15): None, (0, 6): None}),  # the last one without zstd
    (ANONYMOUS, {(0, 13): 12, (13, 13): None}),
    (apis.MetadataRequest((), True), {(0, 12): 12, (0, 5): 5}),  # the second is Event Hubs
    (apis.MetadataRequest((), True), {(0, 3): None}),  # a question would create the topic
    (FETCH, {(4, 30): 18, (0, 10): None}),
    (replace(FETCH, topic_id=None), {(4, 30): 12}),
], ids=name_of)  # fmt: skip
def test_the_highest_version_in_common(request_: Request, versions: dict[tuple[int, int], int | None]) -> None:
    assert {theirs: select_version(request_, {request_.api.key: theirs}) for theirs in versions} == versions
    assert select_version(request_, {}) is None, "an API that is not offered"


def fetched(topic: str = "orders", topic_id: uuid.UUID = ORDERS, **partition: Any) -> dict[str, Any]:
    """The fields of an answer with one partition."""
    partition = {"partition_index": 2, "records": RECORDS} | partition
    return {"responses": [{"topic": topic, "topic_id": topic_id, "partitions": [partition]}]}


class TestFetch:
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
        with pytest.raises(ProtocolError, match="a Fetch answer with error 6 and 10240 bytes"):
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
        def leader(code: int, *described: int, named: tuple[int, int] = (4, 9)) -> apis.NamedLeader | None:
            said = fetched(error_code=code, records=None, current_leader=leader_named(*named))
            if version >= 16:
                said["node_endpoints"] = [each for node_id in described for each in endpoints(node_id)]
            found: apis.NamedLeader | None = answered(FETCH, version, **said).leader
            return found

        expected = apis.NamedLeader(4, 9, apis.Broker(4, "new", 9092, "a") if version >= 16 else None)
        assert (leader(6, 5, 4), leader(74, 4), leader(7, 4)) == (expected, expected, None)
        assert leader(6, 5) == apis.NamedLeader(4, 9)
        # Or does not know it.
        assert leader(6, named=(-1, 9)) is leader(6, named=(4, -1)) is None

    def test_a_refusal_of_the_whole_request_is_of_each_partition(self) -> None:
        for said in ({"error_code": 71}, {"throttle_time_ms": 9}):
            refused = answered(SHARED, 18, responses=[], **said)
            of_each = apis.FetchResponse(said.get("throttle_time_ms", 0), said.get("error_code", 0))
            assert refused == apis.SharedFetchResponse(of_each.throttle_time_ms, (of_each,) * 3)


def leader_named(node_id: int, epoch: int) -> dict[str, int]:
    return {"leader_id": node_id, "leader_epoch": epoch}


def endpoints(node_id: int, host: str = "new", port: int = 9092) -> list[dict[str, Any]]:
    return [{"node_id": node_id, "host": host, "port": port, "rack": "a"}]


@pytest.mark.parametrize("wrong", [
    {"leader": (-2, 9)}, {"leader": (4, -3)}, {"host": ""}, {"port": 0}, {"port": 65_536},
])  # fmt: skip
def test_a_named_leader_that_cannot_be_one(wrong: dict[str, Any]) -> None:
    """As in a Metadata answer."""
    leader = leader_named(*wrong.pop("leader", (4, 9)))
    said = {"node_endpoints": endpoints(4, **wrong)}
    result = {"index": 0, "error_code": 6, "base_offset": -1, "current_leader": leader}
    produce = replace(PRODUCE, partitions=(replace(OF_ORDERS, partition=0),))
    responses = [{"name": "orders", "topic_id": ORDERS, "partition_responses": [result]}]
    with pytest.raises(ProtocolError, match="a Produce answer with"):
        answered(produce, 12, responses=responses, **said)
    with pytest.raises(ProtocolError, match="a Fetch answer with"):
        answered(FETCH, 16, **fetched(error_code=6, records=None, current_leader=leader), **said)


def test_kio_has_every_version_of_the_table_with_one_of_two_headers() -> None:
    headers = set()
    for api in all_apis():
        for version in range(api.min_version, api.max_version + 1):
            if (api.name, version) == ("ApiVersions", 5):
                continue  # Java writes it: test_a_broker_is_named_as_java_names_it
            module = importlib.import_module(f"kio.schema.{api.kio_package}.v{version}")
            request = getattr(module, f"{api.name}Request")
            assert request.__api_key__ == api.key
            headers.add((request.__header_schema__.__version__, request.__header_schema__.__flexible__))
    assert headers == {(1, False), (2, True)}


def test_threads_send_their_first_requests_at_the_same_time() -> None:
    """One thread needs kio's module of a request while another needs that of the response."""
    code = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest
from kafka_sink.kafka.protocol.requests import decode_response, encode_request

def first_requests(encodes):
    together.wait()
    for version in range(4, 14):
        try:
            if encodes:
                encode_request(REQUEST, version=version, correlation_id=0, client_id="client")
            else:
                decode_response(REQUEST, version, b"")
        except ProtocolError:
            pass
        except BaseException as error:
            failed.append(repr(error))

REQUEST = MetadataRequest(("topic",), allow_auto_topic_creation=False)
sys.setswitchinterval(1e-6)
failed, together = [], threading.Barrier(8)
with ThreadPoolExecutor(8) as pool:
    list(pool.map(first_requests, [True, False] * 4))
sys.exit("; ".join(failed) or 0)
"""
    # Nor is kio imported before there is a request.
    for program in (code, "import sys, kafka_sink.kafka.protocol.connection; sys.exit('kio' in sys.modules)"):
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=250)
        assert (ended.returncode, ended.stderr) == (0, "")


def test_a_mapping_of_answers_counts_each_key_once() -> None:
    for found in ({"a": 0, "b": 2}, ["b", "a"]):
        apis.check_answered("Metadata", {"a": 3, "b": 0}, found)
        with pytest.raises(ProtocolError):
            apis.check_answered("Metadata", ["a"], found)

"""Requests for offsets, transactions, groups and topics as another client reads them, and answers as it writes them."""

from collections.abc import Callable, Mapping
from dataclasses import astuple, replace
from typing import Any

import pytest

import apis
from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.config import IsolationLevel
from kafka_sink.kafka.protocol.api import NOT_REPORTED, AclOperation, Request, allows
from kafka_sink.kafka.protocol.requests import select_version
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from their_messages import answered, as_they_read, lacks, name_of, to_other_questions

BIG = 2**40
PARTITIONS = (("orders", 2), ("clicks", 0), ("orders", 0))
CEILING = "transaction.max.timeout.ms"
SETTINGS = ("min.insync.replicas", "max.message.bytes")

FIND = apis.FindCoordinatorRequest(apis.CoordinatorKind.TRANSACTION, ("s.0", "s.1"))
ADD_PARTITIONS = apis.AddPartitionsToTxnRequest("s.0", BIG, 3, PARTITIONS)
ADD_OFFSETS = apis.AddOffsetsToTxnRequest("s.0", BIG, 3, "s.0-marker")
COMMIT = apis.EndTxnRequest("s.0", BIG, 3, committed=True, transaction_version=2)
COMMIT_1 = replace(COMMIT, transaction_version=1)
OFFSET = apis.TxnOffsetCommitRequest("s.0", "s.0-marker", BIG, 3, "state", 0, BIG + 7, "zoë", transaction_version=2)
OFFSET_1 = replace(OFFSET, transaction_version=1)
PLAIN = apis.OffsetCommitRequest("s.0", "state", 1, BIG, "zoë")
PROGRESS = apis.ProgressCommitRequest(
    "stream", {TopicPartition("orders", 2): BIG, TopicPartition("zoë", 0): 0, TopicPartition("orders", 0): 7}
)
FETCH = apis.OffsetFetchRequest(("s.0", "s.1"), "state", 0)
FETCH_BOTH = apis.OffsetFetchRequest(("s.0",), "state", 0, beside=1)
OF_GROUP = apis.GroupOffsetsRequest(
    "my consumer", tuple(TopicPartition(*each) for each in (("orders", 2), ("zoë", 0), ("orders", 0)))
)
DELETE = apis.DeleteGroupsRequest(("s.0", "s.1"))
DESCRIBE = apis.DescribeTransactionsRequest(("s.0", "s.1"))
LIST = apis.ListTransactionsRequest(transactional_id_prefix="s.")
ONGOING = apis.ListTransactionsRequest((BIG,), ("Ongoing",))
PRODUCERS = apis.DescribeProducersRequest(PARTITIONS)
MARKERS = apis.WriteTxnMarkersRequest(BIG, 3, committed=True, coordinator_epoch=9, partitions=PARTITIONS)
CREATE = apis.CreateTopicsRequest("state", partition_count=1, timeout_ms=30_000)
CREATE_SET = replace(CREATE, replication_factor=3, settings=(("retention.ms", "5"), ("cleanup.policy", "compact")))
CONFIGS = apis.DescribeConfigsRequest(node_id=3, name=CEILING)
TOPIC_CONFIGS = apis.TopicConfigsRequest(("orders", "clicks"), SETTINGS)
GROUP = apis.DescribeGroupRequest("orders.check")
OF_ORDERS = apis.AskedOffset("orders", 2, apis.LATEST, 7), apis.AskedOffset("orders", 0, apis.EARLIEST)
LIST_OFFSETS = apis.ListOffsetsRequest(
    (*OF_ORDERS, apis.AskedOffset("clicks", 0, 1_700_000_000)), IsolationLevel.READ_COMMITTED, timeout_ms=30_000
)
EPOCH = apis.OffsetForLeaderEpochRequest("orders", 2, current_leader_epoch=7, leader_epoch=5)
INIT, INIT_TXN = apis.InitProducerIdRequest(60_000), apis.InitProducerIdRequest(1, "s.0")
# With all that their oldest versions can carry.
FIND_ONE, FETCH_ONE = replace(FIND, keys=("s.0",)), replace(FETCH, group_ids=("s.0",))
CREATE_ONE = replace(CREATE, replication_factor=1)

MINE = {"transactional_id": "s.0", "producer_id": BIG, "producer_epoch": 3}
NO_MEMBER = {"member_id": "", "group_instance_id": None}


def grouped(partitions: str) -> list[dict[str, Any]]:
    """PARTITIONS as a message groups them."""
    return [{"name": "orders", partitions: [2, 0]}, {"name": "clicks", partitions: [0]}]


def marker(topic: str, index: int, offset: int, metadata: str = "") -> dict[str, Any]:
    partition = {"partition_index": index, "committed_offset": offset, "committed_metadata": metadata}
    return {"name": topic, "partitions": [partition | {"committed_leader_epoch": -1}]}


def resource(kind: int, name: str, keys: tuple[str, ...]) -> dict[str, Any]:
    return {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys)}


ADDED = {**MINE, "topics": grouped("partitions")}
PROGRESSED = marker("orders", 0, 7)
PROGRESSED["partitions"] = marker("orders", 2, BIG)["partitions"] + PROGRESSED["partitions"]
MARKED = {"producer_id": BIG, "producer_epoch": 3, "coordinator_epoch": 9, "topics": grouped("partition_indexes")}
OF_STATE = [{"name": "state", "partition_indexes": [0]}]
NEW_TOPIC = {"name": "state", "num_partitions": 1, "replication_factor": -1, "assignments": [], "configs": []}
SET = [{"name": name, "value": value} for name, value in CREATE_SET.settings]


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
    *((replace(FIND, kind=kind), (4, 5, 6), {"key_type": kind}) for kind in apis.CoordinatorKind),
    (FIND, (4, 5, 6), {"coordinator_keys": ["s.0", "s.1"]}),
    (FIND_ONE, (1, 2, 3), {"key": "s.0"}),
    (ADD_PARTITIONS, range(4), {f"v3_and_below_{name}": value for name, value in ADDED.items()}),
    (ADD_OFFSETS, range(5), MINE | {"group_id": "s.0-marker"}),
    *((replace(COMMIT, committed=each), range(6), MINE | {"committed": each}) for each in (True, False)),
    (OFFSET, (3, 4, 5), {**MINE, **NO_MEMBER, "group_id": "s.0-marker", "generation_id": -1}
     | {"topics": [marker("state", 0, BIG + 7, "zoë")]}),
    (PLAIN, range(5, 10), {"member_id": "", "group_id": "s.0", "generation_id_or_member_epoch": -1}
     | {"topics": [marker("state", 1, BIG, "zoë")]}),
    (PROGRESS, range(5, 10), {"group_id": "stream", "generation_id_or_member_epoch": -1, "member_id": ""}
     | {"topics": [PROGRESSED, marker("zoë", 0, 0)]}),
    # Stable offsets unless told otherwise.
    *((replace(FETCH, require_stable=each), (8, 9), {"require_stable": each}) for each in (True, False)),
    (FETCH, (8, 9), {"groups": [{"group_id": key, "topics": OF_STATE} for key in ("s.0", "s.1")]}),
    (FETCH_ONE, (7,), {"group_id": "s.0", "topics": OF_STATE}),
    (FETCH_BOTH, (9,), {"groups": [{"topics": [{"name": "state", "partition_indexes": [0, 1]}]}]}),
    (OF_GROUP, (7,), {"group_id": "my consumer", "require_stable": True}
     | {"topics": [{"name": "orders", "partition_indexes": [2, 0]}, {"name": "zoë", "partition_indexes": [0]}]}),
    (DELETE, range(3), {"groups_names": ["s.0", "s.1"]}),
    (DESCRIBE, (0,), {"transactional_ids": ["s.0", "s.1"]}),
    (ONGOING, (0, 1, 2), {"producer_id_filters": [BIG], "state_filters": ["Ongoing"]}),
    (ONGOING, (1, 2), {"duration_filter": -1}),
    (replace(LIST, transactional_id_prefix="a.b(c)-"), (2,), {"transactional_id_pattern": r"a\.b\(c\)\-(?s:.*)"}),
    (apis.ListTransactionsRequest(), (2,), {"producer_id_filters": [], "transactional_id_pattern": None}),
    (apis.ListTransactionsRequest(), (0, 1, 2), {"state_filters": []}),
    (PRODUCERS, (0,), {"topics": grouped("partition_indexes")}),
    *((replace(MARKERS, committed=each), (1,), {"markers": [MARKED | {"transaction_result": each}]})
      for each in (True, False)),
    (CREATE, (7,), {"topics": [NEW_TOPIC], "timeout_ms": 30_000, "validate_only": False}),
    (CREATE_ONE, range(2, 8), {"topics": [NEW_TOPIC | {"replication_factor": 1}]}),
    (CREATE_SET, (7,), {"topics": [NEW_TOPIC | {"replication_factor": 3, "configs": SET}]}),
    (CONFIGS, (4,), {"include_synonyms": False, "include_documentation": False}),
    (CONFIGS, range(1, 5), {"resources": [resource(4, "3", (CEILING,))]}),
    (TOPIC_CONFIGS, (4,), {"resources": [resource(2, "orders", SETTINGS), resource(2, "clicks", SETTINGS)]}),
    (GROUP, (3, 4, 5), {"groups": ["orders.check"], "include_authorized_operations": True}),
    (LIST_OFFSETS, range(4, 12), {"replica_id": -1, "isolation_level": 1, "topics": TIMES}),
    (LIST_OFFSETS, (10, 11), {"timeout_ms": 30_000}),
    (EPOCH, (3, 4), {"replica_id": -1, "topics": [{"topic": "orders", "partitions": [EPOCH_ASKED]}]}),
    (INIT, (0, 1, 4, 5), {"transactional_id": None, "transaction_timeout_ms": 60_000}),
    (INIT, (4, 5), {"producer_id": -1, "producer_epoch": -1}),
    (INIT_TXN, (3,), {"transactional_id": "s.0"}),
], ids=name_of)  # fmt: skip
def test_another_client_reads_what_is_sent(request_: Request, versions: Any, expected: dict[str, Any]) -> None:
    for version in versions:
        assert lacks(as_they_read(request_, version), expected) is None, version


# Of each request, what a broker speaks, and the version that is sent.
@pytest.mark.parametrize(("request_", "versions"), [
    (COMMIT, {(0, 5): 5, (0, 4): None}),  # Kafka 4.x, 3.9
    (COMMIT_1, {(0, 5): 4, (0, 3): 3, (0, 1): 1, (5, 6): None}),  # Kafka 4.x, 3.3, Redpanda
    (OFFSET, {(0, 5): 5, (0, 4): None}),
    (OFFSET_1, {(0, 5): 4, (0, 3): 3}),
    (ADD_PARTITIONS, {(0, 5): 3, (0, 0): 0}),
    (FETCH, {(1, 10): 9, (1, 7): None}),
    (FETCH_ONE, {(1, 7): 7, (1, 6): None}),  # the second is before KIP-447
    (OF_GROUP, {(1, 10): 7, (1, 6): None}),  # the second is before KIP-447
    (FIND, {(0, 3): None}),
    (FIND_ONE, {(0, 3): 3}),
    (CREATE, {(0, 3): None}),  # before KIP-464
    (replace(CREATE, replication_factor=3), {(0, 3): 3}),
    (MARKERS, {(1, 2): 1}),
    (GROUP, {(0, 6): 5}),  # tells of groups that do not exist
    # The highest that names topics.
    (PROGRESS, {(0, 4): None, (0, 6): 6, (2, 9): 9, (2, 10): 9, (10, 10): None}),
    (INIT, {(0, 6): 5, (0, 0): 0}),
    (INIT_TXN, {(0, 3): 3, (0, 2): None}),  # the second is before KIP-360
], ids=name_of)  # fmt: skip
def test_versions_of_a_transaction_are_those_of_its_protocol(
    request_: Request, versions: dict[tuple[int, int], int | None]
) -> None:
    assert {theirs: select_version(request_, {request_.api.key: theirs}) for theirs in versions} == versions


Codes = list[tuple[str, int, int]]


def found(key: str, error_code: int = 0, node_id: int = 1, host: str = "h", port: int = 9092) -> dict[str, Any]:
    broker = {"key": key, "node_id": node_id, "host": host, "port": port}
    return broker | {"error_code": error_code, "error_message": "why" if error_code else None}


def committed(codes: Codes, partitions: str = "partitions", error_code: str = "error_code") -> list[dict[str, Any]]:
    return [{"name": topic, partitions: [{"partition_index": n, error_code: code}]} for topic, n, code in codes]


def added(codes: Codes) -> list[dict[str, Any]]:
    return committed(codes, "results_by_partition", "partition_error_code")


def of_group(partition: int = 0, code: int = 0, metadata: str | None = "m") -> dict[str, Any]:
    return {"partition_index": partition, "committed_offset": BIG, "metadata": metadata, "error_code": code}


def group(group_id: str, *partitions: dict[str, Any], code: int = 0) -> dict[str, Any]:
    topics = [{"name": "state", "partitions": [each]} for each in partitions]
    return {"group_id": group_id, "topics": topics, "error_code": code}


def state(transactional_id: str, topics: Any = (), start_ms: int = BIG + 1, code: int = 0) -> dict[str, Any]:
    told = {"error_code": code, "transaction_state": "Ongoing", "transaction_timeout_ms": 60_000, **MINE}
    told |= {"transactional_id": transactional_id, "transaction_start_time_ms": start_ms}
    return told | {"topics": [{"topic": topic, "partitions": partitions} for topic, partitions in topics]}


def listed(transactional_id: str, producer_id: int = BIG, state: str = "Ongoing") -> dict[str, Any]:
    return {"transactional_id": transactional_id, "producer_id": producer_id, "transaction_state": state}


def producers(topic: str, partition: int, ids: Any = (), code: int = 0) -> dict[str, Any]:
    active = {"producer_epoch": 3, "last_sequence": 5, "last_timestamp": 6, "coordinator_epoch": 7}
    of_partition = {"partition_index": partition, "error_code": code, "error_message": "why" if code else None}
    ours = [active | {"producer_id": each, "current_txn_start_offset": start} for each, start in ids]
    return {"name": topic, "partitions": [of_partition | {"active_producers": ours}]}


def marked(codes: Codes, producer_id: int = BIG) -> dict[str, Any]:
    return {"producer_id": producer_id, "topics": committed(codes)}


def created(topic: str, code: int = 0) -> dict[str, Any]:
    return {"name": topic, "error_code": code, "error_message": "why" if code else None}


def configured(name: str, values: Mapping[str, str | None], code: int = 0, kind: int = 4) -> dict[str, Any]:
    configs = [{"name": name, "value": value, "synonyms": []} for name, value in values.items()]
    return {"error_code": code, "resource_type": kind, "resource_name": name, "configs": configs}


def of_one(name: str, part: Mapping[str, Any], key: str, since: int) -> Callable[[int], Mapping[str, Any]]:
    """The fields by version: a list of one part, or before `since` that part without its key."""
    alone = {field: value for field, value in part.items() if field != key}
    return lambda version: {name: [part]} if version >= since else alone


def offset_of(topic: str, partition: int, offset: int, epoch: int, code: int = 0) -> dict[str, Any]:
    numbers = {"committed_offset": offset, "committed_leader_epoch": epoch, "metadata": "", "error_code": code}
    return {"name": topic, "partitions": [numbers | {"partition_index": partition}]}


GROUP_OFFSETS = [offset_of("zoë", 0, -1, -1), offset_of("orders", 0, BIG, 3), offset_of("orders", 2, 5, -1, code=88)]
ALL_ADDED = [("orders", 2, 0), ("clicks", 0, 0), ("orders", 0, 0)]
OTHERWISE = [("clicks", 0, 55), ("orders", 0, 51), ("orders", 2, 6)]
PROGRESS_CODES = [("zoë", 0, 3), ("orders", 0, 0), ("orders", 2, 29)]
BARRIER = of_group(1, metadata="b")
TOLD = configured("orders", {SETTINGS[0]: "2", "secret": None}, kind=2)
DENIED = configured("clicks", {}, 29, kind=2)
PRODUCERS_OF_ORDERS = [producers("orders", 2), producers("orders", 0, code=6)]
NO_PRODUCERS = (("orders", 2, 0, None, ()), ("orders", 0, 6, "why", ()))
LISTED = {"partition_index": 2, "timestamp": -1, "offset": BIG, "leader_epoch": 7}
UNLISTED = {"partition_index": 0, "error_code": 6, "timestamp": -1, "offset": -1, "leader_epoch": -1}
OFFSETS_OF_CLICKS = {"name": "clicks", "partitions": [LISTED | {"partition_index": 0, "timestamp": 5}]}
OF_EPOCH = {"topic": "orders", "partitions": [{"partition": 2, "leader_epoch": 4, "end_offset": BIG}]}
CHECKED = {
    "group_id": "orders.check",
    "error_code": 0,
    "authorized_operations": {3},
    "members": [],
    "group_state": "Stable",
}


# The request, the fields of the answer in all its versions, and the values of what we make of it.
@pytest.mark.parametrize(("request_", "fields", "said"), [
    (FIND, {"coordinators": [found("s.1", 15, node_id=-1, host="", port=-1), found("s.0")]},
     (9, (("s.1", 15, "why", -1, "", -1), ("s.0", 0, None, 1, "h", 9092)))),
    (FIND_ONE, of_one("coordinators", found("s.0"), "key", since=4), (9, (("s.0", 0, None, 1, "h", 9092),))),
    (ADD_PARTITIONS, {"results_by_topic_v3_and_below": added(OTHERWISE)}, (9, tuple(OTHERWISE))),
    (ADD_OFFSETS, {"error_code": 47}, (9, 47)),
    (COMMIT_1, {"error_code": 0}, (9, 0, -1, -1)),
    (COMMIT, {"error_code": 0, "producer_id": BIG + 1, "producer_epoch": 0}, (9, 0, BIG + 1, 0)),
    (COMMIT, {"error_code": 90, "producer_id": -1, "producer_epoch": -1}, (9, 90, -1, -1)),
    (OFFSET, {"topics": committed([("state", 0, 12)])}, (9, 12)),
    (PLAIN, {"topics": committed([("state", 1, 12)])}, (9, 12)),
    (PROGRESS, {"topics": committed(PROGRESS_CODES)}, (9, tuple(PROGRESS_CODES))),
    *((FETCH_BOTH, of_one("groups", group("s.0", *parts), "group_id", since=8), (9, (("s.0", code, BIG, "m", "b"),)))
      for parts, code in (([of_group(), BARRIER], 0), ([BARRIER, of_group(code=88)], 88),
                          ([of_group(), BARRIER | {"error_code": 12}], 12))),
    (replace(FETCH, group_ids=("a", "b", "c")),
     {"groups": [group("c", of_group(code=88)), group("a", of_group(metadata=None)), group("b", code=16)]},
     (9, (("c", 88, BIG, "m", ""), ("a", 0, BIG, "", ""), ("b", 16, -1, "", "")))),
    (OF_GROUP, {"topics": GROUP_OFFSETS, "error_code": 0},
     (9, 0, (("zoë", 0, 0, -1, -1), ("orders", 0, 0, BIG, 3), ("orders", 2, 88, 5, -1)))),
    (DELETE, {"results": [{"group_id": "s.1", "error_code": 69}, {"group_id": "s.0", "error_code": 0}]},
     (9, (("s.1", 69), ("s.0", 0)))),
    (DESCRIBE, {"transaction_states": [state("s.1", [("orders", [2, 0])]), state("s.0", start_ms=-1, code=105)]},
     (9, (("s.1", 0, "Ongoing", 60_000, BIG + 1, BIG, 3, PARTITIONS[::2]),
          ("s.0", 105, "Ongoing", 60_000, -1, BIG, 3, ())))),
    # Other prefixes are left out.
    (LIST, {"error_code": 0}
     | {"transaction_states": [listed("s.0"), listed("sX0"), listed("other"), listed("s.1", state="Empty")]},
     (9, 0, (("s.0", BIG, "Ongoing"), ("s.1", BIG, "Empty")))),
    (PRODUCERS, {"topics": [producers("clicks", 0, [(BIG, -1), (5, 77)]), *PRODUCERS_OF_ORDERS]},
     (9, (("clicks", 0, 0, None, ((BIG, 3, -1, 7, 5), (5, 3, 77, 7, 5))), *NO_PRODUCERS))),
    (MARKERS, {"markers": [marked(OTHERWISE)]}, (0, tuple(OTHERWISE))),
    (CREATE_ONE, {"topics": [created("state", 36)]}, (9, 36, "why")),
    *((CONFIGS, {"results": [configured("3", values, code)]}, (9, code, value)) for code, values, value in (
        (0, {CEILING: "60000"}, "60000"), (0, {CEILING: None}, None), (0, {"other": "1"}, None), (31, {}, None),
    )),
    (TOPIC_CONFIGS, {"results": [DENIED, TOLD]}, (9, (("clicks", 29, {}), ("orders", 0, {SETTINGS[0]: "2"})))),
    (GROUP, {"groups": [CHECKED]}, (9, 0, 8, "Stable")),
    (LIST_OFFSETS, {"topics": [OFFSETS_OF_CLICKS, {"name": "orders", "partitions": [UNLISTED, LISTED]}]},
     (9, (("clicks", 0, 0, 5, BIG, 7), ("orders", 0, 6, -1, -1, -1), ("orders", 2, 0, -1, BIG, 7)))),
    (EPOCH, {"topics": [OF_EPOCH]}, (9, 0, 4, BIG)),
    (INIT, {"error_code": 0, "producer_id": BIG, "producer_epoch": 3}, (9, 0, BIG, 3)),
], ids=name_of)  # fmt: skip
def test_an_answer_of_another_client_is_understood(request_: Request, fields: Any, said: tuple[Any, ...]) -> None:
    by_version = fields if callable(fields) else lambda version: fields
    throttled = {} if request_ is MARKERS else {"throttle_time_ms": 9}
    lowest, highest = request_.versions()
    for version in range(lowest, highest + 1):
        # Up to these versions the broker waits before it answers (KIP-219).
        waits = version < request_.api.client_throttles_from
        answer = astuple(answered(request_, version, **throttled, **by_version(version)))
        assert answer == ((0, *said[1:]) if waits else said), version
    if request_ not in (LIST, DESCRIBE):
        for other in to_other_questions(by_version(highest)):
            with pytest.raises(ProtocolError, match=request_.api.name):
                answered(request_, highest, **other)


# The request and its version, the answer, and the words of the error.
@pytest.mark.parametrize(("request_", "version", "fields", "words"), [
    (FIND, 6, {"coordinators": [found("s.0")]}, "missing: 's.1'; .*: none"),
    (FIND, 6, {"coordinators": []}, "missing: 's.0' and 1 more"),
    (FIND, 6, {"coordinators": [found("s.0"), found("s.1"), found("s.2")]}, "missing: none; .*: 's.2'"),
    (FIND, 6, {"coordinators": [found("s.0")] * 1_000}, "1000 elements where at most"),
    (DESCRIBE, 0, {"transaction_states": [state("s.0")]}, "missing: 's.1'"),
    (DESCRIBE, 0, {"transaction_states": [state("s.0"), state("s.1"), state("s.1")]}, "answered twice: 's.1'"),
    (OFFSET, 5, {"topics": committed([("state", 1, 0)])}, "missing: state-0; .*: state-1"),
    (MARKERS, 1, {"markers": [marked(ALL_ADDED, producer_id=5)]}, f"missing: {BIG}; .*: 5"),
    (OF_GROUP, 7, {"topics": GROUP_OFFSETS[:2], "error_code": 0}, "missing: orders-2"),
    (OF_GROUP, 7, {"topics": GROUP_OFFSETS + GROUP_OFFSETS[:1], "error_code": 0}, "answered twice: zoë-0"),
    (OF_GROUP, 7, {"topics": [offset_of("zoë", 0, -2, -1), *GROUP_OFFSETS[1:]], "error_code": 0}, "with offset -2"),
    (OF_GROUP, 7, {"topics": [offset_of("zoë", 0, 1, -2), *GROUP_OFFSETS[1:]], "error_code": 0}, "leader epoch -2"),
    (OF_GROUP, 7, {"topics": GROUP_OFFSETS[:1] * 1_000, "error_code": 0}, "elements where at most"),
    (GROUP, 5, {"groups": []}, "another group"),
    (INIT, 5, {"producer_id": -1, "producer_epoch": 0}, "neither an error nor a producer id"),
    (INIT, 5, {"producer_id": 5, "producer_epoch": -1}, "neither an error nor a producer id"),
    *((FIND, 6, {"coordinators": [found("s.0"), found("s.1", **broker)]}, "impossible broker")
      for broker in ({"node_id": -1}, {"host": ""}, {"port": 0}, {"port": 65536})),
    *((ONGOING, 2, {"transaction_states": [listed("s.0"), other]}, words) for other, words in (
        (listed("s.0"), "answered twice: 's.0'"),
        (listed("s.1", producer_id=5), "filtered out: .*'s.1'"),
        (listed("s.1", state="Empty"), "filtered out: .*'s.1'"),
    )),
    *((COMMIT, 5, {"error_code": 0, "producer_id": producer_id, "producer_epoch": epoch}, "next id and epoch")
      for producer_id, epoch in ((-1, 4), (BIG, -1), (-1, -1))),
], ids=name_of)  # fmt: skip
def test_a_refused_answer_says_what_is_wrong_with_it(request_: Request, version: int, fields: Any, words: str) -> None:
    with pytest.raises(ProtocolError, match=f"{request_.api.name} .*{words}"):
        answered(request_, version, **fields)


@pytest.mark.parametrize("version", range(10, 14))
@pytest.mark.parametrize("describe", [False, True])
def test_metadata_with_what_writes_do_not_need(version: int, describe: bool) -> None:
    request = apis.MetadataRequest(("orders",), allow_auto_topic_creation=False, describe=describe)
    assert as_they_read(request, version).include_topic_authorized_operations is describe
    partition = {"partition_index": 0, "replica_nodes": [3, 1, 2], "isr_nodes": [3, 2]}
    topic = {"name": "orders", "authorized_operations": {4}, "partitions": [partition]}
    (told,) = answered(request, version, topics=[topic]).topics
    nodes = told.partitions[0].replica_nodes, told.partitions[0].isr_nodes
    assert nodes == (((3, 1, 2), (3, 2)) if describe else ((), ()))
    assert told.authorized_operations == (16 if describe else NOT_REPORTED)


@pytest.mark.parametrize(
    ("bits", "allowed"), [(1 << 4, True), (1 << 3 | 1 << 5, False), (0, False), (NOT_REPORTED, None), (-1, True)]
)
def test_what_is_allowed(bits: int, allowed: bool | None) -> None:
    assert allows(bits, AclOperation.WRITE) is allowed

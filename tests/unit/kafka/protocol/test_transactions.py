"""Our requests as another client reads them, and answers as it writes them (kafka-python; not kio, which we use)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.protocol.api import PartitionResult
from kafka_sink.kafka.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kafka_sink.kafka.protocol.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from kafka_sink.kafka.protocol.apis.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kafka_sink.kafka.protocol.apis.delete_groups import DeletedGroup, DeleteGroupsRequest, DeleteGroupsResponse
from kafka_sink.kafka.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from kafka_sink.kafka.protocol.apis.describe_producers import (
    ActiveProducer,
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducersOfPartition,
)
from kafka_sink.kafka.protocol.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionDescription,
)
from kafka_sink.kafka.protocol.apis.end_txn import EndTxnRequest, EndTxnResponse
from kafka_sink.kafka.protocol.apis.find_coordinator import (
    CoordinatorKind,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    FoundCoordinator,
)
from kafka_sink.kafka.protocol.apis.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from kafka_sink.kafka.protocol.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from kafka_sink.kafka.protocol.apis.offset_fetch import GroupOffset, OffsetFetchRequest, OffsetFetchResponse
from kafka_sink.kafka.protocol.apis.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from kafka_sink.kafka.protocol.apis.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kafka_sink.kafka.protocol.requests import APIS, Request, api_of, decode_response, encode_request, select_version

BIG = 2**40
PARTITIONS = (("orders", 2), ("clicks", 0), ("orders", 0))
# As a message groups them.
GROUPED = [("orders", [2, 0]), ("clicks", [0])]

FIND = FindCoordinatorRequest(CoordinatorKind.TRANSACTION, ("s.0", "s.1"))
ADD_PARTITIONS = AddPartitionsToTxnRequest("s.0", BIG, 3, PARTITIONS)
ADD_OFFSETS = AddOffsetsToTxnRequest("s.0", BIG, 3, "s.0-marker")
COMMIT = EndTxnRequest("s.0", BIG, 3, committed=True, transaction_version=2)
OFFSET = TxnOffsetCommitRequest("s.0", "s.0-marker", BIG, 3, "state", 0, BIG + 7, "zoë", transaction_version=2)
PLAIN = OffsetCommitRequest("s.0", "state", 1, BIG, "zoë")
FETCH = OffsetFetchRequest(("s.0", "s.1"), "state", 0)
DELETE = DeleteGroupsRequest(("s.0", "s.1"))
DESCRIBE = DescribeTransactionsRequest(("s.0", "s.1"))
LIST = ListTransactionsRequest(transactional_id_prefix="s.")
PRODUCERS = DescribeProducersRequest(PARTITIONS)
MARKERS = WriteTxnMarkersRequest(BIG, 3, committed=True, coordinator_epoch=9, partitions=PARTITIONS)
CREATE = CreateTopicsRequest("state", partition_count=1, timeout_ms=30_000)
CEILING = "transaction.max.timeout.ms"
CONFIGS = DescribeConfigsRequest(node_id=3, name=CEILING)

IN_KAFKA_PYTHON = {
    "FindCoordinator": "metadata",
    **dict.fromkeys(("OffsetCommit", "OffsetFetch"), "consumer"),
    **dict.fromkeys(("DescribeTransactions", "ListTransactions", "DescribeProducers"), "admin"),
    **dict.fromkeys(("CreateTopics", "DescribeConfigs", "DeleteGroups"), "admin"),
}


def theirs(name: str, direction: str) -> Any:
    module = importlib.import_module(f"kafka.protocol.{IN_KAFKA_PYTHON.get(name, 'producer')}")
    return getattr(module, name + direction)


def as_they_read(request: Request, version: int) -> Any:
    frame = b"".join(encode_request(request, version=version, correlation_id=77, client_id="me"))
    message = theirs(api_of(request).name, "Request").decode(frame, version=version, header=True, framed=True)
    header = message.header
    assert (header.request_api_version, header.correlation_id, header.client_id) == (version, 77, "me")
    return message


# The first version whose header has tagged fields, where it is not the lowest one.
FLEXIBLE_FROM = {
    "FindCoordinator": 3, "AddPartitionsToTxn": 3, "AddOffsetsToTxn": 3, "EndTxn": 3, "OffsetCommit": 8,
    "DeleteGroups": 2, "CreateTopics": 5, "DescribeConfigs": 4,
}  # fmt: skip


def written(request: Request, version: int, fields: Mapping[str, Any]) -> bytes:
    """kafka-python's bytes of an answer after its header, without the size."""
    name = api_of(request).name
    message = theirs(name, "Response")(version=version, **{k: nested(v) for k, v in fields.items()})
    tags = b"\0" if version >= FLEXIBLE_FROM.get(name, 0) else b""
    return (77).to_bytes(4, "big") + tags + bytes(message.encode(version=version))


def nested(value: Any) -> Any:
    if isinstance(value, list):
        return [nested(element) for element in value]
    if isinstance(value, dict):
        return SimpleNamespace(tags=None, unknown_tags=None, **{k: nested(v) for k, v in value.items()})
    return value


def answered(request: Request, version: int, **fields: Any) -> Any:
    return decode_response(request, version, written(request, version, fields))


def by_topic(topics: Any, partitions: str) -> list[tuple[str, list[int]]]:
    return [(topic.name, list(getattr(topic, partitions))) for topic in topics]


# --- requests ---------------------------------------------------------------------------------------------------------


class TestEncode:
    @pytest.mark.parametrize("version", [4, 5, 6])
    @pytest.mark.parametrize("kind", CoordinatorKind)
    def test_find_coordinator(self, version: int, kind: CoordinatorKind) -> None:
        message = as_they_read(replace(FIND, kind=kind), version)
        assert (message.key_type, list(message.coordinator_keys)) == (kind, ["s.0", "s.1"])

    def test_add_partitions_to_txn(self) -> None:
        message = as_they_read(ADD_PARTITIONS, 3)
        assert message.v3_and_below_transactional_id == "s.0"
        assert (message.v3_and_below_producer_id, message.v3_and_below_producer_epoch) == (BIG, 3)
        assert by_topic(message.v3_and_below_topics, "partitions") == GROUPED

    @pytest.mark.parametrize("version", [3, 4])
    def test_add_offsets_to_txn(self, version: int) -> None:
        message = as_they_read(ADD_OFFSETS, version)
        assert (message.transactional_id, message.group_id) == ("s.0", "s.0-marker")
        assert (message.producer_id, message.producer_epoch) == (BIG, 3)

    @pytest.mark.parametrize("version", [3, 4, 5])
    @pytest.mark.parametrize("committed", [True, False])
    def test_end_txn(self, version: int, committed: bool) -> None:
        message = as_they_read(replace(COMMIT, committed=committed), version)
        assert (message.transactional_id, message.committed) == ("s.0", committed)
        assert (message.producer_id, message.producer_epoch) == (BIG, 3)

    @pytest.mark.parametrize("version", [3, 4, 5])
    def test_txn_offset_commit_of_a_group_without_members(self, version: int) -> None:
        message = as_they_read(OFFSET, version)
        assert (message.transactional_id, message.group_id) == ("s.0", "s.0-marker")
        assert (message.producer_id, message.producer_epoch) == (BIG, 3)
        assert (message.generation_id, message.member_id, message.group_instance_id) == (-1, "", None)
        ((name, (partition,)),) = by_topic(message.topics, "partitions")
        assert (name, partition.partition_index) == ("state", 0)
        assert (partition.committed_offset, partition.committed_metadata) == (BIG + 7, "zoë")
        assert partition.committed_leader_epoch == -1

    def test_offset_commit_of_a_group_without_members(self) -> None:
        message = as_they_read(PLAIN, 9)
        assert (message.group_id, message.generation_id_or_member_epoch) == ("s.0", -1)
        assert (message.member_id, message.group_instance_id) == ("", None)
        ((name, (partition,)),) = by_topic(message.topics, "partitions")
        assert (name, partition.partition_index) == ("state", 1)
        assert (partition.committed_offset, partition.committed_metadata) == (BIG, "zoë")
        assert partition.committed_leader_epoch == -1

    def test_offset_fetch_of_what_is_beside_it(self) -> None:
        message = as_they_read(replace(FETCH, beside=1), 9)
        assert by_topic(message.groups[0].topics, "partition_indexes") == [("state", [0, 1])]

    @pytest.mark.parametrize("version", [8, 9])
    def test_offset_fetch_is_of_stable_offsets_unless_told_otherwise(self, version: int) -> None:
        assert as_they_read(replace(FETCH, require_stable=False), version).require_stable is False
        message = as_they_read(FETCH, version)
        assert message.require_stable is True
        assert as_they_read(replace(FETCH, require_stable=False), version).require_stable is False
        groups = [(group.group_id, by_topic(group.topics, "partition_indexes")) for group in message.groups]
        assert groups == [("s.0", [("state", [0])]), ("s.1", [("state", [0])])]

    def test_delete_groups(self) -> None:
        assert list(as_they_read(DELETE, 2).groups_names) == ["s.0", "s.1"]

    def test_describe_transactions(self) -> None:
        assert list(as_they_read(DESCRIBE, 0).transactional_ids) == ["s.0", "s.1"]

    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_list_transactions(self, version: int) -> None:
        request = ListTransactionsRequest((BIG,), ("Ongoing",), "a.b(c)-")
        message = as_they_read(request, version)
        assert (list(message.producer_id_filters), list(message.state_filters)) == ([BIG], ["Ongoing"])
        assert version == 0 or message.duration_filter == -1
        assert version < 2 or message.transactional_id_pattern == r"a\.b\(c\)\-(?s:.*)"

    def test_list_transactions_of_all(self) -> None:
        message = as_they_read(ListTransactionsRequest(), 2)
        assert (message.producer_id_filters, message.state_filters) == ([], [])
        assert message.transactional_id_pattern is None

    def test_describe_producers(self) -> None:
        assert by_topic(as_they_read(PRODUCERS, 0).topics, "partition_indexes") == GROUPED

    @pytest.mark.parametrize("committed", [True, False])
    def test_write_txn_markers(self, committed: bool) -> None:
        (marker,) = as_they_read(replace(MARKERS, committed=committed), 1).markers
        assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (BIG, 3, 9)
        assert marker.transaction_result is committed
        assert by_topic(marker.topics, "partition_indexes") == GROUPED

    def test_create_topics(self) -> None:
        message = as_they_read(CREATE, 7)
        (topic,) = message.topics
        assert (topic.name, topic.num_partitions, topic.replication_factor) == ("state", 1, -1)
        assert (topic.assignments, topic.configs, message.timeout_ms, message.validate_only) == ([], [], 30_000, False)
        asked = replace(CREATE, replication_factor=3, settings=(("retention.ms", "5"), ("cleanup.policy", "compact")))
        (topic,) = as_they_read(asked, 7).topics
        assert topic.replication_factor == 3
        assert [(each.name, each.value) for each in topic.configs] == list(asked.settings)

    def test_describe_configs(self) -> None:
        message = as_they_read(CONFIGS, 4)
        (resource,) = message.resources
        assert (resource.resource_type, resource.resource_name, resource.configuration_keys) == (4, "3", [CEILING])
        assert (message.include_synonyms, message.include_documentation) == (False, False)


class TestVersions:
    @pytest.mark.parametrize(
        ("request_", "theirs", "version"),
        [
            (COMMIT, (0, 5), 5),  # Kafka 4.x
            (COMMIT, (0, 4), None),  # Kafka 3.9
            (replace(COMMIT, transaction_version=1), (0, 5), 4),
            (replace(COMMIT, transaction_version=1), (0, 3), 3),  # Kafka 3.3
            (replace(COMMIT, transaction_version=1), (5, 6), None),
            (OFFSET, (0, 5), 5),
            (OFFSET, (0, 4), None),
            (replace(OFFSET, transaction_version=1), (0, 5), 4),
            (replace(OFFSET, transaction_version=1), (0, 3), 3),
            (replace(COMMIT, transaction_version=1), (0, 1), 1),  # Redpanda
            (ADD_PARTITIONS, (0, 5), 3),
            (ADD_PARTITIONS, (0, 0), 0),
            (FETCH, (1, 10), 9),
            (FETCH, (1, 7), None),
            (replace(FETCH, group_ids=("s.0",)), (1, 7), 7),
            (replace(FETCH, group_ids=("s.0",)), (1, 6), None),  # before KIP-447
            (FIND, (0, 3), None),
            (replace(FIND, keys=("s.0",)), (0, 3), 3),
            (CREATE, (0, 3), None),  # before KIP-464
            (replace(CREATE, replication_factor=3), (0, 3), 3),
            (MARKERS, (1, 2), 1),
        ],
    )
    def test_of_a_transaction_are_those_of_its_protocol(
        self, request_: Request, theirs: tuple[int, int], version: int | None
    ) -> None:
        assert select_version(request_, {api_of(request_).key: theirs}) == version

    def test_all_that_are_spoken_are_tested_here(self) -> None:
        """A version more in the table wants its line in the tests above and below."""
        elsewhere = {"Produce", "Metadata", "InitProducerId", "ApiVersions", "SaslHandshake", "SaslAuthenticate"}
        elsewhere |= {"DescribeGroups", "Fetch", "ListOffsets", "OffsetForLeaderEpoch"}
        ours = {api.name: (api.min_version, api.max_version) for api in APIS if api.name not in elsewhere}
        assert ours == {
            "FindCoordinator": (1, 6),
            "AddPartitionsToTxn": (0, 3),
            "AddOffsetsToTxn": (0, 4),
            "EndTxn": (0, 5),
            "TxnOffsetCommit": (3, 5),
            "OffsetCommit": (5, 9),
            "OffsetFetch": (7, 9),
            "DeleteGroups": (0, 2),
            "DescribeTransactions": (0, 0),
            "ListTransactions": (0, 2),
            "DescribeProducers": (0, 0),
            "WriteTxnMarkers": (1, 1),
            "CreateTopics": (2, 7),
            "DescribeConfigs": (1, 4),
        }


# --- answers ----------------------------------------------------------------------------------------------------------


def found(key: str, error_code: int = 0, node_id: int = 1, host: str = "h", port: int = 9092) -> dict[str, Any]:
    message = "why" if error_code else None
    return {
        "key": key, "node_id": node_id, "host": host, "port": port, "error_code": error_code, "error_message": message
    }  # fmt: skip


def added(partitions: Any) -> list[dict[str, Any]]:
    return [
        {"name": topic, "results_by_partition": [{"partition_index": partition, "partition_error_code": code}]}
        for topic, partition, code in partitions
    ]


def committed(partitions: Any) -> list[dict[str, Any]]:
    return [
        {"name": topic, "partitions": [{"partition_index": partition, "error_code": code}]}
        for topic, partition, code in partitions
    ]


def group(
    group_id: str, partitions: Any = (("state", 0),), group_code: int = 0, code: int = 0, metadata: Any = "m"
) -> dict[str, Any]:
    topics = [
        {
            "name": topic,
            "partitions": [
                {
                    "partition_index": partition,
                    "committed_offset": BIG,
                    "committed_leader_epoch": 4,
                    "metadata": metadata,
                    "error_code": code,
                }
            ],
        }
        for topic, partition in partitions
    ]
    return {"group_id": group_id, "topics": topics, "error_code": group_code}


def state(transactional_id: str, topics: Any = (), start_ms: int = 1_700_000_000_000, code: int = 0) -> dict[str, Any]:
    return {
        "error_code": code,
        "transactional_id": transactional_id,
        "transaction_state": "Ongoing",
        "transaction_timeout_ms": 60_000,
        "transaction_start_time_ms": start_ms,
        "producer_id": BIG,
        "producer_epoch": 3,
        "topics": [{"topic": topic, "partitions": partitions} for topic, partitions in topics],
    }


def listed(transactional_id: str, producer_id: int = BIG, state: str = "Ongoing") -> dict[str, Any]:
    return {"transactional_id": transactional_id, "producer_id": producer_id, "transaction_state": state}


def producers(topic: str, partition: int, ids: Any = (), code: int = 0) -> dict[str, Any]:
    return {
        "name": topic,
        "partitions": [
            {
                "partition_index": partition,
                "error_code": code,
                "error_message": "why" if code else None,
                "active_producers": [
                    {
                        "producer_id": producer_id,
                        "producer_epoch": 3,
                        "last_sequence": 5,
                        "last_timestamp": 6,
                        "coordinator_epoch": 7,
                        "current_txn_start_offset": start,
                    }
                    for producer_id, start in ids
                ],
            }
        ],
    }


def marked(partitions: Any, producer_id: int = BIG) -> dict[str, Any]:
    return {"producer_id": producer_id, "topics": committed(partitions)}


def created(topic: str, code: int = 0) -> dict[str, Any]:
    return {
        "name": topic, "topic_id": None, "error_code": code, "error_message": "why" if code else None,
        "topic_config_error_code": 0, "num_partitions": 1, "replication_factor": 3, "configs": [],
    }  # fmt: skip


def described(node: str, values: Mapping[str, str | None], code: int = 0) -> dict[str, Any]:
    configs = [
        {"name": name, "value": value, "read_only": False, "config_source": 5, "is_sensitive": False, "synonyms": [],
         "config_type": 5, "documentation": None}
        for name, value in values.items()
    ]  # fmt: skip
    return {
        "error_code": code, "error_message": "why" if code else None, "resource_type": 4, "resource_name": node,
        "configs": configs,
    }  # fmt: skip


class TestDecode:
    @pytest.mark.parametrize("version", [4, 5, 6])
    def test_find_coordinator(self, version: int) -> None:
        coordinators = [found("s.1", 15, node_id=-1, host="", port=-1), found("s.0")]
        assert answered(FIND, version, throttle_time_ms=9, coordinators=coordinators) == FindCoordinatorResponse(
            9, (FoundCoordinator("s.1", 15, "why", -1, "", -1), FoundCoordinator("s.0", 0, None, 1, "h", 9092))
        )

    def test_add_partitions_to_txn(self) -> None:
        results = (("clicks", 0, 55), ("orders", 0, 51), ("orders", 2, 55))
        response = answered(ADD_PARTITIONS, 3, throttle_time_ms=9, results_by_topic_v3_and_below=added(results))
        assert response == AddPartitionsToTxnResponse(9, tuple(PartitionResult(*result) for result in results))

    @pytest.mark.parametrize("version", [3, 4])
    def test_add_offsets_to_txn(self, version: int) -> None:
        assert answered(ADD_OFFSETS, version, throttle_time_ms=9, error_code=47) == AddOffsetsToTxnResponse(9, 47)

    @pytest.mark.parametrize("version", [3, 4])
    def test_end_txn_of_version_1(self, version: int) -> None:
        request = replace(COMMIT, transaction_version=1)
        assert answered(request, version, throttle_time_ms=9, error_code=0) == EndTxnResponse(9, 0, -1, -1)

    def test_end_txn_of_version_2(self) -> None:
        response = answered(COMMIT, 5, throttle_time_ms=9, error_code=0, producer_id=BIG + 1, producer_epoch=0)
        assert response == EndTxnResponse(9, 0, BIG + 1, 0)
        refused = answered(COMMIT, 5, throttle_time_ms=9, error_code=90, producer_id=-1, producer_epoch=-1)
        assert refused == EndTxnResponse(9, 90, -1, -1)

    @pytest.mark.parametrize("version", [3, 4, 5])
    def test_txn_offset_commit(self, version: int) -> None:
        response = answered(OFFSET, version, throttle_time_ms=9, topics=committed([("state", 0, 12)]))
        assert response == TxnOffsetCommitResponse(9, 12)

    def test_offset_commit(self) -> None:
        response = answered(PLAIN, 9, throttle_time_ms=9, topics=committed([("state", 1, 12)]))
        assert response == OffsetCommitResponse(9, 12)

    @pytest.mark.parametrize("codes", [(0, 0), (88, 0), (0, 12)])
    def test_offset_fetch_of_two_partitions(self, codes: tuple[int, int]) -> None:
        (of_marker,), (of_barrier,) = (
            group("s.0", (("state", partition),), code=code, metadata=text)["topics"][0]["partitions"]
            for partition, code, text in ((0, codes[0], "m"), (1, codes[1], "b"))
        )
        request = replace(FETCH, group_ids=("s.0",), beside=1)
        for partitions in ([of_marker, of_barrier], [of_barrier, of_marker]):
            groups = [{"group_id": "s.0", "topics": [{"name": "state", "partitions": partitions}], "error_code": 0}]
            (found,) = answered(request, 9, groups=groups).groups
            assert found == GroupOffset("s.0", max(codes), BIG, "m", "b")
        with pytest.raises(ProtocolError, match="missing: state-1"):
            answered(request, 9, groups=[group("s.0")])

    @pytest.mark.parametrize("version", [8, 9])
    def test_offset_fetch(self, version: int) -> None:
        request = replace(FETCH, group_ids=("a", "b", "c"))
        groups = [group("c", code=88), group("a", metadata=None), group("b", partitions=(), group_code=16)]
        assert answered(request, version, throttle_time_ms=9, groups=groups) == OffsetFetchResponse(
            9, (GroupOffset("c", 88, BIG, "m"), GroupOffset("a", 0, BIG, ""), GroupOffset("b", 16, -1, ""))
        )

    def test_delete_groups(self) -> None:
        results = [{"group_id": "s.1", "error_code": 69}, {"group_id": "s.0", "error_code": 0}]
        response = answered(DELETE, 2, throttle_time_ms=9, results=results)
        assert response == DeleteGroupsResponse(9, (DeletedGroup("s.1", 69), DeletedGroup("s.0", 0)))

    def test_describe_transactions(self) -> None:
        states = [state("s.1", [("orders", [2, 0]), ("clicks", [0])]), state("s.0", start_ms=-1, code=105)]
        (open_, unknown) = answered(DESCRIBE, 0, throttle_time_ms=9, transaction_states=states).transactions
        assert open_ == TransactionDescription(
            "s.1", 0, "Ongoing", 60_000, 1_700_000_000_000, BIG, 3, (("orders", 2), ("orders", 0), ("clicks", 0))
        )
        assert (unknown.error_code, unknown.start_time_ms, unknown.partitions) == (105, -1, ())
        assert isinstance(answered(DESCRIBE, 0, transaction_states=states), DescribeTransactionsResponse)

    @pytest.mark.parametrize("version", [0, 1, 2])
    def test_list_transactions_leaves_out_other_prefixes(self, version: int) -> None:
        states = [listed("s.0"), listed("sX0"), listed("other"), listed("s.1", state="Empty")]
        response = answered(LIST, version, throttle_time_ms=9, error_code=0, transaction_states=states)
        mine = (ListedTransaction("s.0", BIG, "Ongoing"), ListedTransaction("s.1", BIG, "Empty"))
        assert response == ListTransactionsResponse(9, 0, mine)

    def test_describe_producers(self) -> None:
        topics = [producers("clicks", 0, [(BIG, -1), (5, 77)]), producers("orders", 2), producers("orders", 0, code=6)]
        both = (ActiveProducer(BIG, 3, -1, 7), ActiveProducer(5, 3, 77, 7))
        assert answered(PRODUCERS, 0, throttle_time_ms=9, topics=topics) == DescribeProducersResponse(
            9,
            (
                ProducersOfPartition("clicks", 0, 0, None, both),
                ProducersOfPartition("orders", 2, 0, None, ()),
                ProducersOfPartition("orders", 0, 6, "why", ()),
            ),
        )

    def test_write_txn_markers(self) -> None:
        results = (("clicks", 0, 0), ("orders", 0, 47), ("orders", 2, 6))
        response = answered(MARKERS, 1, markers=[marked(results)])
        assert response == WriteTxnMarkersResponse(tuple(PartitionResult(*result) for result in results))
        assert response.throttle_time_ms == 0

    def test_create_topics(self) -> None:
        response = answered(CREATE, 7, throttle_time_ms=9, topics=[created("state", 36)])
        assert response == CreateTopicsResponse(9, 36, "why")

    @pytest.mark.parametrize(
        ("code", "values", "value"),
        [(0, {CEILING: "60000"}, "60000"), (0, {CEILING: None}, None), (0, {"other": "1"}, None), (31, {}, None)],
    )
    def test_describe_configs(self, code: int, values: dict[str, str | None], value: str | None) -> None:
        response = answered(CONFIGS, 4, throttle_time_ms=9, results=[described("3", values, code)])
        assert response == DescribeConfigsResponse(9, code, value)


ALL_ADDED = [("orders", 2, 0), ("clicks", 0, 0), ("orders", 0, 0)]
ALL_PRODUCERS = [producers(topic, partition) for topic, partition in PARTITIONS]


class TestAnswersToAnotherQuestion:
    @pytest.mark.parametrize(
        ("coordinators", "words"),
        [
            ([found("s.0")], "missing: 's.1'; .*: none"),
            ([], "missing: 's.0' and 1 more"),
            ([found("s.0"), found("s.1"), found("s.2")], "missing: none; .*: 's.2'"),
            ([found("s.0"), found("s.1"), found("s.1", 15)], "missing: none; .*: 's.1'"),
            ([found("s.0"), found("s.1", node_id=-1)], "impossible broker"),
            ([found("s.0"), found("s.1", host="")], "impossible broker"),
            ([found("s.0"), found("s.1", port=0)], "impossible broker"),
            ([found("s.0"), found("s.1", port=65536)], "impossible broker"),
        ],
    )
    def test_find_coordinator(self, coordinators: Any, words: str) -> None:
        with pytest.raises(ProtocolError, match=words):
            answered(FIND, 6, coordinators=coordinators)

    @pytest.mark.parametrize(
        ("results", "words"),
        [
            (ALL_ADDED[:2], "missing: orders-0; .*: none"),
            ([*ALL_ADDED, ("orders", 0, 0)], "missing: none; .*: orders-0"),
            ([*ALL_ADDED[:2], ("orders", 1, 0)], "missing: orders-0; .*: orders-1"),
        ],
    )
    def test_add_partitions_to_txn(self, results: Any, words: str) -> None:
        with pytest.raises(ProtocolError, match=f"AddPartitionsToTxn .*{words}"):
            answered(ADD_PARTITIONS, 3, results_by_topic_v3_and_below=added(results))

    @pytest.mark.parametrize(("producer_id", "producer_epoch"), [(-1, 4), (BIG, -1), (-1, -1)])
    def test_end_txn_without_the_next_ids(self, producer_id: int, producer_epoch: int) -> None:
        with pytest.raises(ProtocolError, match="next id and epoch"):
            answered(COMMIT, 5, error_code=0, producer_id=producer_id, producer_epoch=producer_epoch)

    @pytest.mark.parametrize(
        ("results", "words"),
        [
            ([], "missing: state-0"),
            ([("state", 1, 0)], "missing: state-0; .*: state-1"),
            ([("other", 0, 0)], "missing: state-0; .*: other-0"),
            ([("state", 0, 0), ("state", 0, 12)], "missing: none; .*: state-0"),
        ],
    )
    def test_txn_offset_commit(self, results: Any, words: str) -> None:
        with pytest.raises(ProtocolError, match=f"TxnOffsetCommit .*{words}"):
            answered(OFFSET, 5, topics=committed(results))

    @pytest.mark.parametrize(
        ("groups", "words"),
        [
            ([group("s.0")], "missing: 's.1'"),
            ([group("s.0"), group("s.0"), group("s.1")], "missing: none; .*: 's.0'"),
            ([group("s.0"), group("s.2")], "missing: 's.1'; .*: 's.2'"),
            ([group("s.0"), group("s.1", partitions=())], "missing: state-0"),
            ([group("s.0"), group("s.1", partitions=(("state", 1),))], "missing: state-0; .*: state-1"),
            ([group("s.0"), group("s.1", partitions=(("state", 0), ("state", 0)))], "missing: none; .*: state-0"),
        ],
    )
    def test_offset_fetch(self, groups: Any, words: str) -> None:
        with pytest.raises(ProtocolError, match=f"OffsetFetch .*{words}"):
            answered(FETCH, 9, groups=groups)

    @pytest.mark.parametrize(
        ("group_ids", "words"), [(["s.0"], "missing: 's.1'"), (["s.0", "s.1", "s.0"], "missing: none; .*: 's.0'")]
    )
    def test_delete_groups(self, group_ids: list[str], words: str) -> None:
        with pytest.raises(ProtocolError, match=f"DeleteGroups .*{words}"):
            answered(DELETE, 2, results=[{"group_id": group_id, "error_code": 0} for group_id in group_ids])

    @pytest.mark.parametrize(
        ("ids", "words"),
        [
            (["s.0"], "missing: 's.1'"),
            (["s.0", "s.2"], "missing: 's.1'; .*: 's.2'"),
            (["s.0", "s.1", "s.0"], "missing: none; .*: 's.0'"),
        ],
    )
    def test_describe_transactions(self, ids: list[str], words: str) -> None:
        with pytest.raises(ProtocolError, match=f"DescribeTransactions .*{words}"):
            answered(DESCRIBE, 0, transaction_states=[state(transactional_id) for transactional_id in ids])

    @pytest.mark.parametrize(
        ("states", "words"),
        [
            ([listed("s.0"), listed("s.0")], "answered twice: 's.0'"),
            ([listed("s.0"), listed("s.1", producer_id=5)], "filtered out: .*'s.1'"),
            ([listed("s.0"), listed("s.1", state="Empty")], "filtered out: .*'s.1'"),
        ],
    )
    def test_list_transactions(self, states: Any, words: str) -> None:
        request = ListTransactionsRequest((BIG,), ("Ongoing",))
        with pytest.raises(ProtocolError, match=words):
            answered(request, 2, error_code=0, transaction_states=states)

    @pytest.mark.parametrize(
        ("topics", "words"),
        [
            (ALL_PRODUCERS[1:], "missing: orders-2; .*: none"),
            ([*ALL_PRODUCERS, producers("orders", 0)], "missing: none; .*: orders-0"),
            ([*ALL_PRODUCERS, producers("other", 0)], "missing: none; .*: other-0"),
        ],
    )
    def test_describe_producers(self, topics: Any, words: str) -> None:
        with pytest.raises(ProtocolError, match=f"DescribeProducers .*{words}"):
            answered(PRODUCERS, 0, topics=topics)

    @pytest.mark.parametrize(
        ("markers", "words"),
        [
            ([], f"missing: {BIG}"),
            ([marked(ALL_ADDED, producer_id=5)], f"missing: {BIG}; .*: 5"),
            ([marked(ALL_ADDED), marked([])], f"missing: none; .*: {BIG}"),
            ([marked(ALL_ADDED[1:])], "missing: orders-2"),
            ([marked([*ALL_ADDED, ("orders", 7, 0)])], "missing: none; .*: orders-7"),
        ],
    )
    def test_write_txn_markers(self, markers: Any, words: str) -> None:
        with pytest.raises(ProtocolError, match=f"WriteTxnMarkers .*{words}"):
            answered(MARKERS, 1, markers=markers)

    @pytest.mark.parametrize("topics", [[], [created("other")], [created("state"), created("state")]])
    def test_create_topics(self, topics: Any) -> None:
        with pytest.raises(ProtocolError, match="CreateTopics"):
            answered(CREATE, 7, topics=topics)

    @pytest.mark.parametrize("nodes", [[], ["1"], ["3", "3"]])
    def test_describe_configs(self, nodes: list[str]) -> None:
        with pytest.raises(ProtocolError, match="DescribeConfigs"):
            answered(CONFIGS, 4, results=[described(node, {}) for node in nodes])


FIND_ONE, FETCH_ONE = replace(FIND, keys=("s.0",)), replace(FETCH, group_ids=("s.0",))
CREATE_ONE = replace(CREATE, replication_factor=1)
COMMIT_1 = replace(COMMIT, transaction_version=1)


def of_one(name: str, part: Mapping[str, Any], key: str, since: int) -> Callable[[int], Mapping[str, Any]]:
    """The fields by version: a list of one part, or before `since` that part without its key."""
    alone = {field: value for field, value in part.items() if field != key}
    return lambda version: {name: [part]} if version >= since else alone


# A request with all that its oldest versions can carry, and what answers it, by version if that differs.
OF_EVERY_VERSION = [
    (FIND_ONE, of_one("coordinators", found("s.0"), "key", since=4)),
    (ADD_PARTITIONS, {"results_by_topic_v3_and_below": added(ALL_ADDED)}),
    (ADD_OFFSETS, {"error_code": 5}),
    (COMMIT_1, {"error_code": 5}),
    (PLAIN, {"topics": committed([("state", 1, 5)])}),
    (FETCH_ONE, of_one("groups", group("s.0"), "group_id", since=8)),
    (DELETE, {"results": [{"group_id": key, "error_code": 5} for key in DELETE.group_ids]}),
    (CREATE_ONE, {"topics": [created("state")]}),
    (CONFIGS, {"results": [described("3", {CEILING: "60000"})]}),
]


@pytest.mark.parametrize(("request_", "fields"), OF_EVERY_VERSION, ids=lambda value: type(value).__name__)
def test_every_version_says_the_same(request_: Request, fields: Any) -> None:
    by_version = fields if callable(fields) else lambda version: fields
    lowest, highest = api_of(request_).versions(request_)
    newest = answered(request_, highest, **by_version(highest), throttle_time_ms=9)
    assert newest.throttle_time_ms == 9
    for version in range(lowest, highest + 1):
        message = as_they_read(request_, version)
        assert {"s.0", "s.1", "state", "orders", "3"} & set(texts_of(message)), version
        # Up to these versions the broker waits before it answers (KIP-219).
        waits = version >= api_of(request_).client_throttles_from
        answer = answered(request_, version, **by_version(version), throttle_time_ms=9)
        assert answer == replace(newest, throttle_time_ms=9 if waits else 0)


def texts_of(message: Any) -> Iterator[str]:
    """All texts in a message of kafka-python."""
    if isinstance(message, str):
        yield message
    elif isinstance(message, list | tuple):
        for element in message:
            yield from texts_of(element)
    elif hasattr(message, "fields"):
        for name in message.fields:
            yield from texts_of(getattr(message, name))


EVERY_ANSWER = [
    (FIND, 6, {"coordinators": [found("s.0"), found("s.1")]}),
    (ADD_PARTITIONS, 3, {"results_by_topic_v3_and_below": added(ALL_ADDED)}),
    (ADD_OFFSETS, 4, {"error_code": 0}),
    (COMMIT, 5, {"error_code": 0, "producer_id": BIG, "producer_epoch": 4}),
    (OFFSET, 5, {"topics": committed([("state", 0, 0)])}),
    (PLAIN, 9, {"topics": committed([("state", 1, 0)])}),
    (FETCH, 9, {"groups": [group("s.0"), group("s.1")]}),
    (DESCRIBE, 0, {"transaction_states": [state("s.0", [("orders", [0])]), state("s.1")]}),
    (LIST, 2, {"error_code": 0, "transaction_states": [listed("s.0"), listed("s.1")]}),
    (PRODUCERS, 0, {"topics": ALL_PRODUCERS}),
    (MARKERS, 1, {"markers": [marked(ALL_ADDED)]}),
    (CREATE, 7, {"topics": [created("state")]}),
    (CONFIGS, 4, {"results": [described("3", {CEILING: "60000"})]}),
]


@pytest.mark.parametrize(("request_", "version", "fields"), EVERY_ANSWER, ids=lambda value: type(value).__name__)
class TestDamage:
    @given(data=st.data())
    def test_is_an_answer_or_a_protocol_error(
        self, request_: Request, version: int, fields: dict[str, Any], data: st.DataObject
    ) -> None:
        frame = bytearray(written(request_, version, fields))
        for _ in range(data.draw(st.integers(1, 3))):
            position = data.draw(st.integers(0, len(frame) - 1))
            frame[position : position + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=5))
            if not frame:
                break
        try:
            response = decode_response(request_, version, bytes(frame))
        except ProtocolError:
            return
        assert type(response).__name__ == f"{api_of(request_).name}Response"

    def test_every_cut_is_a_protocol_error(self, request_: Request, version: int, fields: dict[str, Any]) -> None:
        frame = written(request_, version, fields)
        decode_response(request_, version, frame)
        for length in range(len(frame)):
            with pytest.raises(ProtocolError):
                decode_response(request_, version, frame[:length])

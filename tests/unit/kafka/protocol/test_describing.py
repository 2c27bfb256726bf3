"""Our requests as another client reads them (kafka-python), and what becomes of answers that are to something else."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from fuzz.answers import answer
from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.protocol.acl_operation import NOT_TOLD, AclOperation, allows
from kafka_sink.kafka.protocol.apis.describe_configs import TopicConfigs, TopicConfigsRequest, TopicConfigsResponse
from kafka_sink.kafka.protocol.apis.describe_groups import DescribeGroupRequest, DescribeGroupResponse
from kafka_sink.kafka.protocol.apis.metadata import MetadataRequest, MetadataResponse
from kafka_sink.kafka.protocol.requests import api_of, decode_response, encode_request, select_version

TOPIC_RESOURCE = 2
CONFIGS = TopicConfigsRequest(("orders", "clicks"), ("min.insync.replicas", "max.message.bytes"))
GROUP = DescribeGroupRequest("orders.check")


def as_they_read(request: Any, version: int) -> Any:
    api = api_of(request)
    theirs = getattr(importlib.import_module("kafka.protocol.admin"), f"{api.name}Request", None) or getattr(
        importlib.import_module("kafka.protocol.metadata"), f"{api.name}Request"
    )
    encoded = b"".join(encode_request(request, version=version, correlation_id=77, client_id="me"))
    return theirs.decode(encoded, version=version, header=True, framed=True)


def decoded(request: Any, version: int, said: dict[str, Any]) -> Any:
    return decode_response(request, version, answer(request, version, said))


def test_configs_of_a_topic() -> None:
    asked = as_they_read(CONFIGS, 4).resources
    assert [(one.resource_type, one.resource_name) for one in asked] == [
        (TOPIC_RESOURCE, "orders"), (TOPIC_RESOURCE, "clicks")
    ]  # fmt: skip
    assert all(list(one.configuration_keys) == ["min.insync.replicas", "max.message.bytes"] for one in asked)
    configs = [{"name": "min.insync.replicas", "value": "2"}, {"name": "secret", "value": None}]
    result = {"resource_name": "orders", "error_code": 0, "configs": configs}
    denied = {"resource_name": "clicks", "error_code": 29, "configs": []}
    assert decoded(CONFIGS, 4, {"results": [denied, result]}) == TopicConfigsResponse(
        7, (TopicConfigs("clicks", 29, {}), TopicConfigs("orders", 0, {"min.insync.replicas": "2"}))
    )
    for results in ([], [result], [result, result, denied], [result, denied, denied | {"resource_name": "other"}]):
        with pytest.raises(ProtocolError, match="DescribeConfigs"):
            decoded(CONFIGS, 4, {"results": results})


def test_a_group() -> None:
    message = as_they_read(GROUP, 5)
    assert (list(message.groups), message.include_authorized_operations) == (["orders.check"], True)
    group = {"group_id": "orders.check", "error_code": 0, "authorized_operations": 1 << 3, "members": []}
    assert decoded(GROUP, 5, {"groups": [group]}) == DescribeGroupResponse(7, 0, 8)
    for groups in ([], [group, group], [group | {"group_id": "clicks.check"}]):
        with pytest.raises(ProtocolError, match="another group"):
            decoded(GROUP, 5, {"groups": groups})


def test_groups_that_do_not_exist_are_asked_for_in_the_version_that_tells() -> None:
    assert select_version(GROUP, {15: (0, 6)}) == 5


@pytest.mark.parametrize("version", range(10, 14))
@pytest.mark.parametrize("describe", [False, True])
def test_metadata_with_what_writes_do_not_need(version: int, describe: bool) -> None:
    request = MetadataRequest(("orders",), allow_auto_topic_creation=False, describe=describe)
    assert as_they_read(request, version).include_topic_authorized_operations is describe
    partition = {"partition_index": 0, "replica_nodes": [3, 1, 2], "isr_nodes": [3, 2]}
    topic = {"name": "orders", "topic_authorized_operations": 1 << 4, "partitions": [partition]}
    response = decoded(request, version, {"topics": [topic], "brokers": [], "error_code": 0})
    assert isinstance(response, MetadataResponse)
    (told,) = response.topics
    nodes = told.partitions[0].replica_nodes, told.partitions[0].isr_nodes
    assert nodes == (((3, 1, 2), (3, 2)) if describe else ((), ()))
    assert told.authorized_operations == (16 if describe else NOT_TOLD)


@pytest.mark.parametrize(
    ("bits", "allowed"), [(1 << 4, True), (1 << 3 | 1 << 5, False), (0, False), (NOT_TOLD, None), (-1, True)]
)
def test_what_is_allowed(bits: int, allowed: bool | None) -> None:
    assert allows(bits, AclOperation.WRITE) is allowed

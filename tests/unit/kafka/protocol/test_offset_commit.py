"""The progress of a reader as kafka-python reads it from our request, and what answers mean."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.protocol.consumer import OffsetCommitRequest as TheirRequest

from fuzz.answers import answer
from kafka_sink.errors import ProtocolError
from kafka_sink.kafka.protocol.api import PartitionResult
from kafka_sink.kafka.protocol.apis.offset_commit import ProgressCommitRequest, ProgressCommitResponse
from kafka_sink.kafka.protocol.requests import decode_response, encode_request, select_version
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

BIG = 2**40
PROGRESS = ProgressCommitRequest(
    "orders-stream", {TopicPartition("orders", 2): BIG, TopicPartition("zoë", 0): 0, TopicPartition("orders", 0): 7}
)
OFFSET_COMMIT = 8
VERSIONS = range(5, 10)


def as_they_read(version: int) -> Any:
    encoded = b"".join(encode_request(PROGRESS, version=version, correlation_id=77, client_id="me"))
    return TheirRequest.decode(encoded, version=version, header=True, framed=True)


def decoded(version: int, *results: tuple[str, int, int]) -> ProgressCommitResponse:
    topics = [
        {"name": topic, "partitions": [{"partition_index": partition, "error_code": code}]}
        for topic, partition, code in results
    ]
    response = decode_response(PROGRESS, version, answer(PROGRESS, version, {"topics": topics}))
    assert isinstance(response, ProgressCommitResponse)
    return response


@pytest.mark.parametrize("version", VERSIONS)
def test_a_group_without_members_has_an_offset_of_each_partition(version: int) -> None:
    message = as_they_read(version)
    assert (message.group_id, message.generation_id_or_member_epoch, message.member_id) == ("orders-stream", -1, "")
    assert message.group_instance_id is None
    offsets = {
        TopicPartition(topic.name, each.partition_index): each.committed_offset
        for topic in message.topics
        for each in topic.partitions
    }
    assert (offsets, [topic.name for topic in message.topics]) == (PROGRESS.offsets, ["orders", "zoë"])
    partitions = [each for topic in message.topics for each in topic.partitions]
    assert {each.committed_metadata for each in partitions} == {""}
    # As far as the version has it.
    assert {each.committed_leader_epoch for each in partitions} == {-1}


@pytest.mark.parametrize(
    ("theirs", "version"), [((0, 4), None), ((0, 6), 6), ((2, 9), 9), ((2, 10), 9), ((10, 10), None)]
)
def test_the_version_is_the_highest_that_names_topics(theirs: tuple[int, int], version: int | None) -> None:
    assert select_version(PROGRESS, {OFFSET_COMMIT: theirs}) == version


@pytest.mark.parametrize("version", VERSIONS)
def test_each_partition_has_its_own_result(version: int) -> None:
    assert decoded(version, ("zoë", 0, 3), ("orders", 0, 0), ("orders", 2, 29)) == ProgressCommitResponse(
        7, (PartitionResult("zoë", 0, 3), PartitionResult("orders", 0, 0), PartitionResult("orders", 2, 29))
    )


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ([], "missing: orders-2"),
        ([("orders", 0, 0), ("orders", 2, 0)], "missing: zoë-0; .*: none"),
        ([("orders", 0, 0), ("orders", 2, 0), ("zoë", 0, 0), ("zoë", 0, 25)], "missing: none; .*: zoë-0"),
        ([("orders", 0, 0), ("orders", 2, 0), ("zoë", 1, 0)], "missing: zoë-0; .*: zoë-1"),
    ],
)
def test_an_answer_to_something_else_is_none(results: list[tuple[str, int, int]], words: str) -> None:
    with pytest.raises(ProtocolError, match=f"OffsetCommit .*{words}"):
        decoded(9, *results)

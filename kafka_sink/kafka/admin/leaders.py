"""Finds the leader of each partition, and reads the answers of leaders by partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafka_sink.kafka.protocol.api import PartitionResult
from kafka_sink.kafka.protocol.apis.describe_producers import DescribeProducersResponse, ProducersOfPartition
from kafka_sink.kafka.protocol.apis.list_offsets import ListedOffset, ListOffsetsResponse
from kafka_sink.kafka.protocol.apis.metadata import TopicMetadata
from kafka_sink.kafka.protocol.apis.write_txn_markers import WriteTxnMarkersResponse
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_name
from kafka_sink.kafka.protocol.requests import Response
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

Partitions = tuple[TopicPartition, ...]


def by_leader(
    partitions: Iterable[TopicPartition], topics: Iterable[TopicMetadata]
) -> tuple[dict[int, Partitions], dict[TopicPartition, str]]:
    """Return which of `partitions` each node leads, and for each of the others the reason why it has no leader."""
    of_topic = {topic.name: topic for topic in topics}
    leaders = leaders_of(of_topic.values())
    codes = {
        TopicPartition(topic.name, each.partition): each.error_code
        for topic in of_topic.values()
        for each in topic.partitions
    }
    led: dict[int, list[TopicPartition]] = {}
    reasons = {}
    for partition in partitions:
        leader_id = leaders.get(partition, -1)
        if leader_id >= 0:
            led.setdefault(leader_id, []).append(partition)
        else:
            code = of_topic[partition[0]].error_code or codes.get(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            reasons[partition] = named(code)
    return {leader_id: tuple(of_leader) for leader_id, of_leader in led.items()}, reasons


def leaders_of(topics: Iterable[TopicMetadata]) -> dict[TopicPartition, int]:
    """Return the leader of each partition, -1 if it has none."""
    return {TopicPartition(topic.name, each.partition): each.leader_id for topic in topics for each in topic.partitions}


def absent(partitions: Iterable[TopicPartition], topics: Iterable[TopicMetadata]) -> set[TopicPartition]:
    """Return which of `partitions` are not there, by a Metadata answer that has or denies each topic."""
    there: dict[str, set[int]] = {}
    for topic in topics:
        if topic.error_code == ErrorCode.NONE:
            there[topic.name] = {each.partition for each in topic.partitions}
        elif topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            there[topic.name] = set()
    return {each for each in partitions if each.topic in there and each.partition not in there[each.topic]}


def of_partitions(response: Response | None) -> Sequence[ProducersOfPartition | PartitionResult | ListedOffset]:
    match response:
        case DescribeProducersResponse(partitions=partitions):
            return partitions
        case ListOffsetsResponse(partitions=offsets):
            return offsets
        case WriteTxnMarkersResponse(results=results):
            return results
        case _:
            return ()


def named(code: int) -> str:
    return f"{error_name(code)} (error {code})"

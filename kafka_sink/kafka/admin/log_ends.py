"""Finds where logs end, again and again, in one round trip to each broker.

A stream asks before each micro-batch. The leaders of the time before are asked at once, beside the request for the
metadata of the topics. Only partitions that are new, or whose leader has moved, take a second round trip.

Source: org.apache.spark.sql.kafka010.KafkaOffsetReaderAdmin.fetchLatestOffsets, which takes two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kafka_sink.kafka.admin.calls import Call
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.admin.leaders import by_leader, of_partitions
from kafka_sink.kafka.admin.offsets import is_final, list_offsets_request, offsets_there, raise_if_refused
from kafka_sink.kafka.isolation import IsolationLevel
from kafka_sink.kafka.protocol.apis.list_offsets import LATEST, ListedOffset
from kafka_sink.kafka.protocol.apis.metadata import TopicMetadata
from kafka_sink.kafka.protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.topic_partition import TopicPartition

Topics = Mapping[str, TopicMetadata]


@dataclass(frozen=True, slots=True)
class Logs:
    """`topics`: by name, also those with an error. `ends`: of the partitions that are there."""

    topics: Topics = field(default_factory=dict)
    ends: Mapping[TopicPartition, ListedOffset] = field(default_factory=dict)


def log_ends(
    client: AdminClient,
    names: tuple[str, ...] | None,
    partitions_of: Callable[[Topics], Iterable[TopicPartition]],
    isolation_level: IsolationLevel,
    earlier: Logs,
    expected: Collection[str] = (),
) -> Logs:
    """Return the topics of these names (None: all that the principal may describe), and where `partitions_of` them end.

    `earlier`: the last answer. `expected`: topics that are asked for by name if the list of all lacks them. A list
    leaves out a topic that the principal may not describe, an answer by name tells it from one that is gone.
    What goes while it is asked for has no end. Raises TopicAuthorizationFailed, FetchRefused, LeaderUnavailable,
    BrokersUnreachable.
    """
    caller = client.caller
    deadline_ms = caller.deadline_ms()
    led, _ = by_leader(partitions_of(earlier.topics), earlier.topics.values())
    timeout_ms = client.config.request_timeout_ms
    calls = [
        Call(leader, list_offsets_request(dict.fromkeys(of_leader, LATEST), isolation_level, timeout_ms))
        for leader, of_leader in led.items()
    ]
    answer = caller.metadata(names, deadline_ms, beside=calls)
    topics = {topic.name: topic for topic in answer.topics}
    if unlisted := tuple(sorted(set(expected) - topics.keys())):
        topics |= {topic.name: topic for topic in caller.metadata(unlisted, deadline_ms).topics}
    partitions = list(partitions_of(topics))
    ends = {
        TopicPartition(end.topic, end.partition): end
        for call in calls
        for end in of_partitions(call.response)
        if isinstance(end, ListedOffset) and is_final(end.error_code)
    }
    found = {each: ends[each] for each in partitions if each in ends and _is_same(each.topic, earlier.topics, topics)}
    raise_if_refused(found.values())
    rest = dict.fromkeys((each for each in partitions if each not in found), LATEST)
    return Logs(topics, found | offsets_there(client, rest, isolation_level))


def _is_same(name: str, earlier: Topics, now: Topics) -> bool:
    return earlier[name].topic_id == now[name].topic_id


def epoch_ends(
    client: AdminClient, logs: Logs, epochs: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetForLeaderEpochResponse | None]:
    """Return where a leader epoch ends in the log of the leader of now, None if brokers lack the request: for the
    partitions whose leader answers. Raises BrokersUnreachable."""
    deadline_ms = client.caller.deadline_ms()
    if epochs and not client.caller.takes(OffsetForLeaderEpochRequest("", 0, -1, -1), deadline_ms):
        return dict.fromkeys(epochs)
    led, _ = by_leader(epochs, logs.topics.values())
    leaders = {each: leader for leader, of_leader in led.items() for each in of_leader}
    calls = {
        each: Call(leader, OffsetForLeaderEpochRequest(*each, logs.ends[each].leader_epoch, epochs[each]))
        for each, leader in leaders.items()
    }
    client.caller.run(tuple(calls.values()), deadline_ms)
    return {
        each: call.response
        for each, call in calls.items()
        if isinstance(call.response, OffsetForLeaderEpochResponse) and call.response.error_code == ErrorCode.NONE
    }

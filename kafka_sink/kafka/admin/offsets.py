"""Finds offsets of partitions by time, and where partitions begin and end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kafka_sink.errors import FetchRefused, TopicAuthorizationFailed, TopicToReadMissing
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.admin.leaders import Partitions
from kafka_sink.kafka.consumer.fetch_policy import Action, on_read_error
from kafka_sink.kafka.isolation import IsolationLevel
from kafka_sink.kafka.protocol.apis.list_offsets import NO_OFFSET, AskedOffset, ListedOffset, ListOffsetsRequest
from kafka_sink.kafka.protocol.error_codes import error_name
from kafka_sink.kafka.protocol.topic_partition import TopicPartition


def list_offsets_request(
    timestamps_ms: Mapping[TopicPartition, int], isolation_level: IsolationLevel, timeout_ms: int
) -> ListOffsetsRequest:
    asked = tuple(AskedOffset(*each, timestamp_ms) for each, timestamp_ms in timestamps_ms.items())
    return ListOffsetsRequest(asked, isolation_level, timeout_ms)


def list_offsets(
    client: AdminClient, timestamps_ms: Mapping[TopicPartition, int], isolation_level: IsolationLevel
) -> dict[TopicPartition, ListedOffset]:
    """Return for each partition the first offset that is not older than its time, or its end or start for LATEST and
    EARLIEST. Raises TopicToReadMissing, TopicAuthorizationFailed, FetchRefused, LeaderUnavailable, BrokersUnreachable.
    """
    found = offsets_there(client, timestamps_ms, isolation_level)
    for each in timestamps_ms.keys() - found.keys():
        raise TopicToReadMissing(topic=each.topic)
    return found


def offsets_there(
    client: AdminClient, timestamps_ms: Mapping[TopicPartition, int], isolation_level: IsolationLevel
) -> dict[TopicPartition, ListedOffset]:
    """As `list_offsets`, without the partitions that have gone meanwhile."""

    def request_of(partitions: Partitions) -> ListOffsetsRequest:
        of_leader = {each: timestamps_ms[each] for each in partitions}
        return list_offsets_request(of_leader, isolation_level, client.config.request_timeout_ms)

    found = client.ask_leaders(timestamps_ms, request_of, is_final, may_be_absent=True)
    raise_if_refused(found.values())
    return found


def raise_if_refused(found: Iterable[ListedOffset]) -> None:
    """Raise TopicAuthorizationFailed if an ACL is missing, FetchRefused for another error. Its offset would be -1."""
    for listed in found:
        code = listed.error_code
        match on_read_error(code):
            case Action.TAKE:
                continue
            case Action.DENIED:
                raise TopicAuthorizationFailed(topic=listed.topic, operation="READ")
        raise FetchRefused(
            topic=listed.topic, partition=listed.partition, offset=NO_OFFSET, code=code, name=error_name(code)
        )


def is_final(code: int) -> bool:
    """Return whether an answer with this error code is not asked for again."""
    return on_read_error(code) not in (Action.RETRY, Action.REFRESH_AND_RETRY)

"""Which topics and partitions the options of a read name: `subscribe`, `subscribePattern` or `assign`."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping

from kafka_sink.errors import (
    LeaderUnavailable,
    PartitionToReadMissing,
    ReadError,
    TopicAuthorizationFailed,
    TopicToReadMissing,
)
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.protocol.apis.metadata import TopicMetadata
from kafka_sink.kafka.protocol.error_codes import ErrorCode, error_text
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.reading import ReadConfig

log = logging.getLogger("kafka_sink")

Topics = Mapping[str, TopicMetadata]

# With another code a broker says nothing of the topic: it has a trouble that may pass.
_CONCLUSIVE = frozenset({
    ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
})  # fmt: skip


def names_to_read(config: ReadConfig) -> tuple[str, ...] | None:
    """Return the names of the topics, or None for a pattern."""
    if config.subscribe_pattern is not None:
        return None
    return config.subscribe or tuple(dict.fromkeys(each.topic for each in config.assign or ()))


def topics_to_read(client: AdminClient, config: ReadConfig) -> Topics:
    """Return the topics by name. Raises TopicToReadMissing, PartitionToReadMissing,
    TopicAuthorizationFailed, LeaderUnavailable, BrokersUnreachable."""
    if (pattern := config.subscribe_pattern) is not None:
        found = _matching(_answered(client, config), pattern)
        if not found:
            log.warning("subscribePattern %r matches none of the topics that this principal may see", pattern.pattern)
        return found
    names = names_to_read(config) or ()
    for name in names:
        # It may have been created again since this client asked for it.
        client.caller.forget(name)
    found = _answered(client, config)
    check_readable(found)
    for absence in absences(found, config).values():
        raise absence
    return {name: found[name] for name in names}


def _answered(client: AdminClient, config: ReadConfig) -> Topics:
    """Ask until each topic of the read is told to be there or not."""
    deadline_ms = client.caller.deadline_ms()
    tries = 0
    while True:
        found = client.topics(names_to_read(config))
        pattern = config.subscribe_pattern
        inconclusive = [name for name in inconclusive_topics(found) if pattern is None or pattern.search(name)]
        if not inconclusive:
            return found
        tries += 1
        if not client.caller.pause(tries, deadline_ms):
            raise unavailable(client, TopicPartition(inconclusive[0], 0), error_text(found[inconclusive[0]].error_code))


def inconclusive_topics(topics: Topics) -> list[str]:
    """Return the topics whose answer neither has them nor says that they are gone."""
    return sorted(name for name, topic in topics.items() if topic.error_code not in _CONCLUSIVE)


def unavailable(client: AdminClient, partition: TopicPartition, last_error: str) -> LeaderUnavailable:
    return LeaderUnavailable(
        **partition._asdict(),
        waited_ms=client.config.api_timeout_ms,
        timeout_option=client.config.api_timeout_option,
        last_error=last_error,
    )


def expected_topics(read: Iterable[str], config: ReadConfig) -> frozenset[str]:
    """Return those of the topics that a stream has read that `subscribePattern` still matches; none without one."""
    pattern = config.subscribe_pattern
    return frozenset(() if pattern is None else filter(pattern.search, read))


def absences(topics: Topics, config: ReadConfig) -> dict[TopicPartition | str, ReadError]:
    """Return an error for each topic and partition that the options name and that is not there."""
    absent: dict[TopicPartition | str, ReadError] = {}
    for name in names_to_read(config) or ():
        topic = topics.get(name)
        if topic is None or topic.error_code or not topic.partitions:
            absent[name] = TopicToReadMissing(topic=name)
    for each in config.assign or ():
        count = 0 if each.topic in absent else len(topics[each.topic].partitions)
        if 0 < count <= each.partition:
            absent[each] = PartitionToReadMissing(topic=each.topic, partition=each.partition, partition_count=count)
    return absent


def check_readable(topics: Topics) -> None:
    """Raise TopicAuthorizationFailed if an ACL is missing."""
    for name, topic in topics.items():
        if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise TopicAuthorizationFailed(topic=name, operation="READ")


def partitions_there(topics: Topics, config: ReadConfig) -> list[TopicPartition]:
    """Return those of the partitions that are there. `topics`: as a Metadata answer tells them."""
    if config.subscribe_pattern is not None:
        topics = _matching(topics, config.subscribe_pattern)
    there = [
        TopicPartition(name, number)
        for name, topic in topics.items()
        if not topic.error_code
        for number in range(len(topic.partitions))
    ]
    if config.assign is None:
        return there
    known = set(there)
    return [each for each in config.assign if each in known]


def _matching(topics: Topics, pattern: re.Pattern[str]) -> Topics:
    return {
        name: topic
        for name, topic in sorted(topics.items())
        if not topic.is_internal and not topic.error_code and pattern.search(name)
    }

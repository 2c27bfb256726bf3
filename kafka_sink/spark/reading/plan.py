"""Plans a read: asks the cluster which partitions there are and where they begin and end, and makes ranges of that.

    topics and partitions ─> earliest and latest offsets ─> the user's bounds ─> filters ─> ranges of tasks

Each range carries the topic's id and the leader epoch under which its end was seen, so that a task notices a topic that
was made again and a log that was truncated.

Source: org.apache.spark.sql.kafka010.KafkaOffsetReaderAdmin.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kafka_sink.errors import (
    InvalidOption,
    NoRecordSince,
    OffsetNotWritten,
    OffsetsLost,
    PartitionToReadMissing,
    TopicAuthorizationFailed,
    TopicToReadMissing,
)
from kafka_sink.errors.reading import LossCause
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.admin.offsets import list_offsets
from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.kafka.protocol.apis.list_offsets import EARLIEST, LATEST, NO_OFFSET, ListedOffset
from kafka_sink.kafka.protocol.apis.metadata import TopicMetadata
from kafka_sink.kafka.protocol.error_codes import ErrorCode
from kafka_sink.kafka.protocol.needs import READING
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.bounds import AtOffset, AtOffsets, AtTime, AtTimes, Bound
from kafka_sink.options.reading import ReadConfig
from kafka_sink.spark.reading.divide import divide
from kafka_sink.spark.reading.filters import Wanted

log = logging.getLogger("kafka_sink")

Offsets = dict[TopicPartition, int]


def plan(client: AdminClient, config: ReadConfig, wanted: Wanted) -> list[FetchRange]:
    """Return the ranges of the read, one for each task.

    Raises a ReadError, ClusterError or ConfigError.
    """
    client.require(READING)
    topics = _topics(client, config)
    partitions = [each for each in _partitions(topics, config) if wanted.has(each)]
    earliest = _listed(client, config, dict.fromkeys(partitions, EARLIEST))
    latest = _listed(client, config, dict.fromkeys(partitions, LATEST))
    resolver = _Resolver(client, config, earliest, latest)
    first, end = resolver.first_offsets(partitions), resolver.end_offsets(partitions)
    if wanted.timestamp_ms is not None:
        since = _listed(client, config, dict.fromkeys(partitions, wanted.timestamp_ms))
        for partition, found in since.items():
            offset = latest[partition].offset if found.offset == NO_OFFSET else found.offset
            first[partition] = max(first[partition], offset)
    ranges = (
        FetchRange(
            topic=each.topic,
            topic_id=topics[each.topic].topic_id,
            partition=each.partition,
            first=max(first[each], wanted.first_offset),
            end=min(end[each], wanted.end_offset),
            leader_epoch=latest[each].leader_epoch,
        )
        for each in partitions
    )
    return divide(ranges, config.min_partitions, config.max_records_per_partition)


# --- topics and partitions --------------------------------------------------------------------------------------------


def _topics(client: AdminClient, config: ReadConfig) -> Mapping[str, TopicMetadata]:
    """Return the topics of the read by name. Raises TopicToReadMissing, TopicAuthorizationFailed."""
    pattern = config.subscribe_pattern
    if pattern is not None:
        every = client.topics(None)
        found = {
            name: topic
            for name, topic in sorted(every.items())
            if not topic.is_internal and not topic.error_code and pattern.fullmatch(name)
        }
        if not found:
            log.warning("subscribePattern %r matches none of the topics that this principal may see", pattern.pattern)
        return found
    names = config.subscribe or tuple(dict.fromkeys(each.topic for each in config.assign or ()))
    found = client.topics(names)
    for name in names:
        if found[name].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise TopicAuthorizationFailed(topic=name, operation="READ")
        if found[name].error_code or not found[name].partitions:
            raise TopicToReadMissing(topic=name)
    return {name: found[name] for name in names}


def _partitions(topics: Mapping[str, TopicMetadata], config: ReadConfig) -> list[TopicPartition]:
    if config.assign is None:
        return [
            TopicPartition(name, number) for name, topic in topics.items() for number in range(len(topic.partitions))
        ]
    for each in config.assign:
        count = len(topics[each.topic].partitions)
        if each.partition >= count:
            raise PartitionToReadMissing(topic=each.topic, partition=each.partition, partition_count=count)
    return list(config.assign)


def _listed(
    client: AdminClient, config: ReadConfig, timestamps_ms: Mapping[TopicPartition, int]
) -> dict[TopicPartition, ListedOffset]:
    return list_offsets(client, timestamps_ms, config.consumer.isolation_level) if timestamps_ms else {}


# --- where to begin and to end ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Resolver:
    """Makes offsets of what the user says."""

    client: AdminClient
    config: ReadConfig
    earliest: Mapping[TopicPartition, ListedOffset]
    latest: Mapping[TopicPartition, ListedOffset]

    def first_offsets(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Raises OffsetsLost, OffsetNotWritten, NoRecordSince, InvalidOption."""
        found = self._offsets(list(partitions), self.config.starting, "starting")
        for each, offset in found.items():
            earliest = self.earliest[each].offset
            if offset < earliest and self.config.fail_on_data_loss:
                raise OffsetsLost(
                    topic=each.topic, partition=each.partition, first=offset, end=earliest, cause=LossCause.DELETED
                )
        return {each: self._within("startingOffsets", each, offset) for each, offset in found.items()}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Raises OffsetNotWritten, InvalidOption."""
        found = self._offsets(list(partitions), self.config.ending, "ending")
        return {each: self._within("endingOffsets", each, offset) for each, offset in found.items()}

    def _within(self, option: str, partition: TopicPartition, offset: int) -> int:
        """Return the offset, or the nearest that the log has."""
        # After DeleteRecords, Kafka 4 may tell a last stable offset that is before the first offset.
        earliest = self.earliest[partition].offset
        latest = max(self.latest[partition].offset, earliest)
        if offset > latest and self.config.fail_on_data_loss:
            raise OffsetNotWritten(
                option=option, topic=partition.topic, partition=partition.partition, offset=offset, latest=latest
            )
        near = min(max(offset, earliest), latest)
        if near != offset and option == "startingOffsets":
            log.warning("%s begins at %d instead of %d: failOnDataLoss is false", _name(partition), near, offset)
        return near

    def _offsets(self, partitions: list[TopicPartition], bound: Bound, which: str) -> Offsets:
        match bound:
            case AtOffset(offset):
                return {each: self._absolute(each, offset) for each in partitions}
            case AtOffsets(by_partition):
                _check_covers(partitions, by_partition, f"{which}Offsets")
                return {each: self._absolute(each, by_partition[each]) for each in partitions}
            case AtTime(timestamp_ms):
                return self._since(dict.fromkeys(partitions, timestamp_ms), f"{which}Timestamp", which)
            case AtTimes(by_partition):
                option = f"{which}OffsetsByTimestamp"
                _check_covers(partitions, by_partition, option)
                return self._since({each: by_partition[each] for each in partitions}, option, which)

    def _absolute(self, partition: TopicPartition, offset: int) -> int:
        known = {EARLIEST: self.earliest, LATEST: self.latest}.get(offset)
        return offset if known is None else known[partition].offset

    def _since(self, timestamps_ms: Mapping[TopicPartition, int], option: str, which: str) -> Offsets:
        found = {}
        for each, listed in _listed(self.client, self.config, timestamps_ms).items():
            is_error = which == "starting" and self.config.starting_strategy == "error"
            if listed.offset == NO_OFFSET and is_error:
                raise NoRecordSince(
                    option=option, topic=each.topic, partition=each.partition, timestamp_ms=timestamps_ms[each]
                )
            found[each] = self.latest[each].offset if listed.offset == NO_OFFSET else listed.offset
        return found


def _check_covers(partitions: Iterable[TopicPartition], said: Mapping[TopicPartition, int], option: str) -> None:
    """Raise InvalidOption unless the option names each partition of the read, as Spark's source asks."""
    missing = [each for each in partitions if each not in said]
    if missing:
        raise InvalidOption(
            option=option,
            value=None,
            expected=f"a value for each partition of the read; {_name(missing[0])} has none (-2: earliest, -1: latest)",
        )


def _name(partition: TopicPartition) -> str:
    return f"{partition.topic}-{partition.partition}"

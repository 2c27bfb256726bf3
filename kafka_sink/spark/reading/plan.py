"""Plans a read: asks the cluster which partitions there are and where they begin and end, and makes ranges of that.

    topics and partitions ─> earliest and latest offsets ─> the user's bounds ─> the log ─> filters ─> ranges of tasks

Each range carries the topic's id and the leader epoch under which its end was seen, so that a task notices a topic that
was made again and a log that was truncated.

Source: org.apache.spark.sql.kafka010.KafkaOffsetReaderAdmin.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kafka_sink.errors import InvalidOption, NoRecordSince, ReadError
from kafka_sink.kafka.admin.calls import leaders_of
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.admin.offsets import list_offsets
from kafka_sink.kafka.consumer.fetch_range import FetchRange
from kafka_sink.kafka.protocol.apis.offsets import EARLIEST, LATEST, NO_OFFSET, ListedOffset
from kafka_sink.kafka.protocol.needs import READING
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.bounds import (
    AtGroup,
    AtOffset,
    AtOffsets,
    AtTime,
    AtTimes,
    BeforeNow,
    Bound,
    LastOffsets,
    iso_text,
    option_of,
    text_of,
)
from kafka_sink.options.kinds import INT64_MAX
from kafka_sink.options.reading import ReadConfig
from kafka_sink.spark.reading.continuity import Losses
from kafka_sink.spark.reading.divide import divide
from kafka_sink.spark.reading.positions import Offsets, clipped, named
from kafka_sink.spark.reading.topics import partitions_there, topics_to_read

log = logging.getLogger("kafka_sink")


def plan(client: AdminClient, config: ReadConfig, wanted: Wanted, *, by_task: bool = True) -> list[FetchRange]:
    """Return the ranges of the read, divided for its tasks; or one for each partition, which may be empty.

    `config`: of `ReadConfig.at`. Raises a ReadError, ClusterError or ConfigError.
    """
    client.require(READING)
    topics = topics_to_read(client, config)
    every = partitions_there(topics, config)
    check_named(every, config.starting, "starting")
    check_named(every, config.ending, "ending")
    partitions = [each for each in every if wanted.has(each)]
    logs = LogBounds(client, config, partitions, Losses(fail_on_data_loss=config.fail_on_data_loss, tell=_warn))
    starting = logs.starting_offsets()
    ending = logs.ending_offsets()
    logs.check_ascending(starting, ending)
    since = None if wanted.timestamp_ms is None else logs.since(dict.fromkeys(partitions, wanted.timestamp_ms))
    ranges = []
    leaders = leaders_of(topics.values())
    for each in partitions:
        asked = Offsets(starting[each], ending[each])
        found = clipped(each, asked, logs.there(each), fail_on_data_loss=config.fail_on_data_loss)
        ranges.append(
            FetchRange(
                topic=each.topic,
                topic_id=topics[each.topic].topic_id,
                partition=each.partition,
                first=max(found.first, wanted.first_offset, 0 if since is None else since[each]),
                end=min(found.end, wanted.end_offset),
                leader_epoch=logs.latest[each].leader_epoch,
                leader=leaders[each],
            )
        )
    return divide(ranges, config.min_partitions, config.max_records_per_partition) if by_task else ranges


def _warn(error: ReadError) -> None:
    log.warning("%s The read goes on (failOnDataLoss is false).", error.parts().happened)


# --- where to begin and to end ----------------------------------------------------------------------------------------


def check_named(partitions: Sequence[TopicPartition], bound: Bound, which: str) -> None:
    """Raise InvalidOption unless an option that goes by partition names those of the read, as Spark's source asks."""
    if not isinstance(bound, AtOffsets | AtTimes):
        return
    offsets = bound if isinstance(bound, AtOffsets) else AtOffsets(bound.by_partition)
    topics = {each.topic for each in partitions}
    missing = [each for each in partitions if each not in offsets]
    unread: list[str | TopicPartition] = [*sorted(offsets.by_partition.keys() - set(partitions))]
    unread += sorted(offsets.by_topic.keys() - topics)
    if not missing and not unread:
        return
    problems = []
    if missing:
        problems.append(f"{named(missing)} {'has' if len(missing) == 1 else 'have'} none")
    if unread:
        problems.append(f"{named(unread)} {'is' if len(unread) == 1 else 'are'} not read")
    if any((each if isinstance(each, str) else each.topic) not in topics for each in unread):
        problems.append(f"the read has {named(sorted(topics)) or 'no topic'}")
    expected = f"a value for each partition of the read and no other: {'; '.join(problems)}"
    raise InvalidOption(option=option_of(bound, which), value=text_of(bound), expected=expected)


def tell_instants(config: ReadConfig) -> None:
    """Log which instants the times of the options are that are no milliseconds. `config`: of `ReadConfig.at`."""
    for which, bound in (("starting", config.starting), ("ending", config.ending)):
        if isinstance(bound, AtTime) and bound.said:
            clock = ", by the clock of this host" if bound.said.startswith("-") else ""
            instant = iso_text(bound.timestamp_ms), bound.timestamp_ms
            log.warning("%s=%s is %s (%d)%s", option_of(bound, which), bound.said, *instant, clock)


class LogBounds:
    """Where the partitions of the read begin and end, and what offsets the user's bounds are in them. `losses`: takes
    committed offsets that are gone."""

    def __init__(
        self, client: AdminClient, config: ReadConfig, partitions: Sequence[TopicPartition], losses: Losses
    ) -> None:
        self._client = client
        self._config = config
        self._partitions = partitions
        self._losses = losses
        # Offsets that a group has committed: they are there, also behind an open transaction.
        self._committed: Mapping[TopicPartition, int] = {}
        self.earliest = self._listed(dict.fromkeys(partitions, EARLIEST))
        self.latest = self._listed(dict.fromkeys(partitions, LATEST))

    def there(self, partition: TopicPartition) -> Offsets:
        """Return the offsets that this reader may read."""
        earliest = self.earliest[partition].offset
        # After DeleteRecords, Kafka 4 may tell a last stable offset that is before the first offset.
        return Offsets(earliest, max(self.latest[partition].offset, earliest, self._committed.get(partition, 0)))

    def starting_offsets(self) -> dict[TopicPartition, int]:
        """Raises NoRecordSince, NoCommittedOffset, CommittedOffsetGone, GroupNotReadable."""
        bound, is_strict = self._config.starting, self._config.starting_strategy == "error"
        return self._offsets(bound, option_of(bound, "starting") if is_strict else "")

    def ending_offsets(self) -> dict[TopicPartition, int]:
        return self._offsets(self._config.ending)

    def check_ascending(self, starting: Mapping[TopicPartition, int], ending: Mapping[TopicPartition, int]) -> None:
        """Raise InvalidOption if options end a partition before they begin it. Options that say so whatever the cluster
        has were refused before."""
        bounds = self._config.starting, self._config.ending
        for each in self._partitions:
            first, end, latest = starting[each], ending[each], self.latest[each].offset
            # Without a record that is as new as a time, a partition begins or ends where its log ends.
            has_record = first < latest or isinstance(bounds[0], AtOffsets)
            if end < latest and max(end, self.earliest[each].offset) < first and has_record:
                starting_option, ending_option = map(option_of, bounds, ("starting", "ending"))
                name = f"{each.topic}-{each.partition}"
                expected = f"nothing before {starting_option}: {name} would begin at offset {first} and end at {end}"
                raise InvalidOption(option=ending_option, value=text_of(bounds[1]), expected=expected)

    def since(self, timestamps_ms: Mapping[TopicPartition, int], strict_option: str = "") -> dict[TopicPartition, int]:
        """Return the first offset that is not older than its time, or the end of the log. Every offset before is of an
        older record. `strict_option`: for which a partition without a record that is as new raises NoRecordSince."""
        found = {}
        for each, listed in self._listed(timestamps_ms).items():
            if listed.offset == NO_OFFSET and strict_option:
                raise NoRecordSince(option=strict_option, **each._asdict(), timestamp_ms=timestamps_ms[each])
            found[each] = self.latest[each].offset if listed.offset == NO_OFFSET else listed.offset
        return found

    def _offsets(self, bound: Bound, strict_option: str = "") -> dict[TopicPartition, int]:
        match bound:
            case AtOffset(offset):
                return {each: self._absolute(each, offset) for each in self._partitions}
            case AtOffsets():
                return {each: self._absolute(each, bound.of(each)) for each in self._partitions}
            case LastOffsets(count):
                ends, begins = self.latest, self.earliest
                return {each: max(ends[each].offset - count, begins[each].offset) for each in self._partitions}
            case AtTime(timestamp_ms):
                return self.since(dict.fromkeys(self._partitions, timestamp_ms), strict_option)
            case AtTimes(by_partition):
                return self.since({each: by_partition[each] for each in self._partitions}, strict_option)
            case AtGroup():
                return self._of_group(bound)
            case BeforeNow():
                raise AssertionError("`ReadConfig.at` makes it an instant")

    def _of_group(self, start: AtGroup) -> dict[TopicPartition, int]:
        from kafka_sink.spark.reading.group_starts import group_starts  # most reads have no group

        ends = {EARLIEST: self.earliest, LATEST: self.latest}
        begins, committed = group_starts(self._client, start, self._partitions, ends, self._losses)
        self._committed = {each: begins[each] for each in committed}
        return begins

    def _absolute(self, partition: TopicPartition, offset: int) -> int:
        known = {EARLIEST: self.earliest, LATEST: self.latest}.get(offset)
        return offset if known is None else known[partition].offset

    def _listed(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
        return list_offsets(self._client, timestamps_ms, self._config.consumer.isolation_level)


# --- filters ----------------------------------------------------------------------------------------------------------

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What filters on a read's columns leave of it. None: no limit. An empty range of offsets: no row.

    Spark applies every filter again: this only spares the reading of rows that it would drop. A lower bound of the
    timestamp becomes an offset, because every record before the first that is as new is older. An upper bound does not,
    because timestamps need not ascend.

    Source: pyspark.sql.datasource (Filter; from Spark 4.1 on, and with spark.sql.python.filterPushdown.enabled).
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first_offset: int = 0
    end_offset: int = INT64_MAX
    timestamp_ms: int | None = None

    def has(self, partition: TopicPartition) -> bool:
        """Return whether rows of `partition` are wanted."""
        return (self.topics is None or partition.topic in self.topics) and (
            self.partitions is None or partition.partition in self.partitions
        )

    def narrowed(self, filters: Iterable[Any]) -> Wanted:
        """Return what each of `filters` leaves of this. A filter of another kind leaves all."""
        wanted = self
        for each in filters:
            wanted = wanted._by(each)
        return wanted

    def _by(self, filter_: Any) -> Wanted:
        kind, column = type(filter_).__name__, getattr(filter_, "attribute", ())
        values = filter_.value if kind == "In" else (getattr(filter_, "value", None),)
        if not values:
            return self
        match column, kind:
            case (("topic",), "EqualTo" | "In"):
                return replace(self, topics=_both(self.topics, values))
            case (("partition",), "EqualTo" | "In"):
                return replace(self, partitions=_both(self.partitions, values))
            case (("offset",), _) if all(isinstance(each, int) for each in values):
                return self._by_offset(kind, values)
            case (("timestamp",), "EqualTo" | "GreaterThan" | "GreaterThanOrEqual"):
                return self._since(values[0])
        return self

    def _by_offset(self, kind: str, values: Any) -> Wanted:
        low, high = min(values), max(values)
        bounds = {
            "EqualTo": (low, high + 1),
            "In": (low, high + 1),
            "GreaterThan": (low + 1, INT64_MAX),
            "GreaterThanOrEqual": (low, INT64_MAX),
            "LessThan": (0, high),
            "LessThanOrEqual": (0, high + 1),
        }
        if kind not in bounds:
            return self
        first, end = bounds[kind]
        return replace(self, first_offset=max(self.first_offset, first), end_offset=min(self.end_offset, end))

    def _since(self, value: Any) -> Wanted:
        if not isinstance(value, datetime.datetime) or value.tzinfo is None:
            return self
        timestamp_ms = (value - _EPOCH) // datetime.timedelta(milliseconds=1)
        if timestamp_ms < 0:
            return self
        return replace(self, timestamp_ms=max(timestamp_ms, self.timestamp_ms or 0))


def _both(known: frozenset[Any] | None, values: Iterable[Any]) -> frozenset[Any]:
    return frozenset(values) if known is None else known & frozenset(values)


# --- plan -------------------------------------------------------------------------------------------------------------

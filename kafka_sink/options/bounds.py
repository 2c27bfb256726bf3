"""Where a read begins and ends, as the options say it, the readers of their texts, and offsets as Spark writes them.

The texts are those of Spark's Kafka source: `earliest`, `latest`, or JSON by topic and partition, in which -2 is the
earliest offset and -1 the latest. In JSON `earliest` and `latest` may stand for a whole topic (SPARK-58774). Of our own
are `latest-1000`, times of ISO 8601, times before now, and a consumer group.

A start that moves (`moves`) is another one each time the cluster is asked. A read asks once, and keeps the answer.

Source: org.apache.spark.sql.kafka010.KafkaSourceProvider, JsonUtils.
"""

from __future__ import annotations

import ast
import datetime
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kafka_sink.errors.quoting import is_topic_name
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.kinds import INT64_MAX, Kind, Problem

# As in Kafka's ListOffsets.
LATEST = -1
EARLIEST = -2
_NAMES = {EARLIEST: "earliest", LATEST: "latest"}
_NAMED = {name: offset for offset, name in _NAMES.items()}


@dataclass(frozen=True, slots=True)
class AtOffset:
    """The same offset, EARLIEST or LATEST, for every partition."""

    offset: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset, EARLIEST or LATEST, for each partition. `by_topic`: EARLIEST or LATEST for all of a topic."""

    by_partition: Mapping[TopicPartition, int]
    by_topic: Mapping[str, int] = field(default_factory=dict)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self.by_partition or partition.topic in self.by_topic

    def of(self, partition: TopicPartition) -> int:
        return self.by_partition[partition] if partition in self.by_partition else self.by_topic[partition.topic]


@dataclass(frozen=True, slots=True)
class LastOffsets:
    """`count` offsets before the end of each partition, or its first one if it has fewer."""

    count: int


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record that is not older than a time, in every partition. `timestamp_ms`: since 1970. `said`: how the
    option writes it, unless in milliseconds."""

    timestamp_ms: int
    said: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class BeforeNow:
    """As `AtTime`, so many milliseconds before the read is planned. `said`: how the option writes it."""

    milliseconds: int
    said: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The first record that is not older than a time, which each partition has its own of."""

    by_partition: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtGroup:
    """The offsets that a consumer group has committed. `strategy`: where a partition begins of which it has committed
    none, EARLIEST or LATEST; None: nowhere."""

    group_id: str
    strategy: int | None


Bound = AtOffset | AtOffsets | LastOffsets | AtTime | BeforeNow | AtTimes | AtGroup


def resolved(bound: Bound, now_ms: int) -> Bound:
    """Return `bound`, with the instant of a time before `now_ms` (since 1970)."""
    if isinstance(bound, BeforeNow):
        return AtTime(max(0, now_ms - bound.milliseconds), bound.said)
    return bound


def moves(starting: Bound) -> bool:
    """Return whether a read that is planned later would begin at later records, and leave out those before them."""
    return isinstance(starting, LastOffsets | BeforeNow | AtGroup)


def option_of(bound: Bound, which: str) -> str:
    """Return the name of the option that says `bound`. `which`: starting or ending."""
    named = {AtTime: "Timestamp", BeforeNow: "Timestamp", AtTimes: "OffsetsByTimestamp", AtGroup: "Group"}
    return which + named.get(type(bound), "Offsets")


def text_of(bound: Bound) -> str:
    """Return `bound` for a message. Where it goes by partition it is no JSON, because messages hide `"name":value`."""
    match bound:
        case AtOffset(offset):
            return _NAMES[offset]
        case LastOffsets(count):
            return f"latest-{count}"
        case AtTime(timestamp_ms, said):
            return said or str(timestamp_ms)
        case BeforeNow(_, said):
            return said
        case AtGroup(group_id):
            return group_id
        case AtOffsets(by_partition, by_topic):
            topics = (f"{topic}: {_NAMES[offset]}" for topic, offset in by_topic.items())
            return ", ".join([*_texts_of(by_partition), *topics])
        case AtTimes(by_partition):
            return ", ".join(_texts_of(by_partition))


def _texts_of(by_partition: Mapping[TopicPartition, int]) -> Iterable[str]:
    return (f"{each.topic}-{each.partition}: {value}" for each, value in by_partition.items())


def begins_at_latest(starting: Bound) -> bool:
    """Return whether any partition begins where it ends."""
    match starting:
        case AtOffset(offset):
            return offset == LATEST
        case AtOffsets(by_partition, by_topic):
            return LATEST in (*by_partition.values(), *by_topic.values())
    return False


def is_reversed(starting: Bound, ending: Bound) -> bool:
    """Return whether a read of these bounds ends before it begins, whatever the cluster has."""
    match starting, ending:
        case AtTime(first), AtTime(end):
            return first > end
        case BeforeNow(first), BeforeNow(end):
            return first < end
        case (AtOffsets(first), AtOffsets(end)) | (AtTimes(first), AtTimes(end)):
            return any(0 <= end.get(each, value) < value for each, value in first.items())
    return False


def _json_of(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once)
    except Problem:
        raise
    except (ValueError, RecursionError):
        raise Problem("it is no JSON") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise Problem("a name is there twice")
    return found


def _by_topic(text: str) -> dict[str, Any]:
    parsed = _json_of(text)
    if not isinstance(parsed, dict) or not parsed or not all(map(is_topic_name, parsed)):
        raise ValueError
    return parsed


def _partitions_of(parsed: Mapping[str, Any], read: Any) -> dict[TopicPartition, int]:
    """Return what JSON like {"topic": {"0": 23}} says of each partition."""
    found: dict[TopicPartition, int] = {}
    for topic, by_number in parsed.items():
        if not isinstance(by_number, dict):
            raise ValueError
        for number, value in by_number.items():
            if not number.isascii() or not number.isdigit() or type(value) is not int:
                raise ValueError
            found[TopicPartition(topic, int(number))] = read(value)
    return found


def _offset(value: int) -> int:
    if not EARLIEST <= value <= INT64_MAX:
        raise Problem(f"{value} is no offset")
    return value


def _time(value: int) -> int:
    if not 0 <= value <= INT64_MAX:
        raise Problem(f"{value} is no time")
    return value


def _offsets(text: str) -> AtOffsets:
    parsed = _by_topic(text)
    named = {topic: _NAMED.get(value.lower()) for topic, value in parsed.items() if isinstance(value, str)}
    by_topic = {topic: offset for topic, offset in named.items() if offset is not None}
    rest = {topic: value for topic, value in parsed.items() if topic not in by_topic}
    return AtOffsets(_partitions_of(rest, _offset), by_topic)


_LAST = re.compile(r"latest ?- ?([0-9]{1,18})", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?[0-9]+")


def _starting_offsets(text: str) -> Bound:
    known = _NAMED.get(text.lower())
    if known is not None:
        return AtOffset(known)
    # -1000 could be the last records, and -1 and -2 are names in JSON.
    if _NUMBER.fullmatch(text):
        raise Problem("a number alone can be read in several ways: latest-1000 begins 1000 offsets before the end")
    last = _LAST.fullmatch(text)
    if last is None:
        return _offsets(text)
    if int(last[1]) == 0:
        raise Problem("write latest")
    return LastOffsets(int(last[1]))


def _ending_offsets(text: str) -> Bound:
    if text.lower() == "latest":
        return AtOffset(LATEST)
    if text.lower() == "earliest":
        raise Problem("a batch read that ends at the earliest offset has no rows")
    offsets = _offsets(text)
    if EARLIEST in (*offsets.by_partition.values(), *offsets.by_topic.values()):
        raise Problem("a batch read cannot end at the earliest offset, -2")
    return offsets


def _timestamp(text: str) -> Bound:
    if (plain := milliseconds(text)) is not None:
        return AtTime(plain)
    if (instant_ms := iso_instant(text)) is not None:
        return AtTime(instant_ms, text)
    if (before_ms := before_now_ms(text)) is not None:
        return BeforeNow(before_ms, text)
    raise ValueError


def _timestamps(text: str) -> Bound:
    return AtTimes(_partitions_of(_by_topic(text), _time))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    found: list[TopicPartition] = []
    for topic, numbers in _by_topic(text).items():
        if not isinstance(numbers, list) or not numbers:
            raise ValueError
        if not all(type(number) is int and number >= 0 for number in numbers):
            raise ValueError
        found += (TopicPartition(topic, number) for number in sorted(set(numbers)))
    return tuple(found)


def _subscribed(text: str) -> tuple[str, ...]:
    topics = tuple(dict.fromkeys(filter(None, (part.strip() for part in text.split(",")))))
    if not topics:
        raise ValueError
    for topic in topics:
        if not is_topic_name(topic):
            raise Problem(f"{topic!r} is no topic name")
    return topics


STARTING_OFFSETS = Kind(
    'earliest, latest, latest-1000, or JSON like {"orders": {"0": 23, "1": -2}, "clicks": "earliest"}',
    _starting_offsets,
)
ENDING_OFFSETS = Kind('latest, or JSON like {"orders": {"0": 50, "1": -1}, "clicks": "latest"}', _ending_offsets)
TIMESTAMP = Kind(
    "milliseconds since 1970, a time with its zone like 2026-11-01T00:00:00Z, or a time before now like -10 minutes",
    _timestamp,
)
# Without a committed offset.
STRATEGIES: Mapping[str, int | None] = {"error": None, **_NAMED}
TIMESTAMPS = Kind('JSON like {"orders": {"0": 1700000000000}}, milliseconds since 1970', _timestamps)
ASSIGNED = Kind('JSON like {"orders": [0, 1]}', _assigned)
SUBSCRIBED = Kind("topic names, separated by commas", _subscribed)


# --- offsets as Spark writes them -------------------------------------------------------------------------------------

# By topic and partition.
Offsets: TypeAlias = Mapping[str, Mapping[int, int]]


def kafka_offsets(text: str) -> Offsets | None:
    """Return the offsets of a Kafka source, {"topic": {"partition": offset}}, or None for another source."""
    parsed = _parsed(text)
    if not isinstance(parsed, dict) or not parsed:
        return None
    found: dict[str, dict[int, int]] = {}
    for topic, partitions in parsed.items():
        if not isinstance(partitions, dict) or not all(map(_is_offset, partitions.items())):
            return None
        found[topic] = {int(partition): offset for partition, offset in partitions.items()}
    return found


def _is_offset(of_partition: tuple[Any, Any]) -> bool:
    partition, offset = of_partition
    return isinstance(partition, str) and partition.isascii() and partition.isdigit() and type(offset) is int


def _parsed(text: str) -> Any:
    """Parse JSON, or the text of a Python dict, which pyspark 4.1 returns with Spark Connect."""
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(text)
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            continue
    return None


# --- points in time as people write them ------------------------------------------------------------------------------
#
#     2026-11-01T00:00:00Z          the same instant for everybody
#     2026-11-01T01:00:00.5+01:00
#     -10 minutes                   before the moment at which the read is planned
#
# What could be read in two ways is refused: a time without a zone, a date without a time, `-10` without a unit,
# `-10 m`. Source: RFC 3339, section 5.6.

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MS = datetime.timedelta(milliseconds=1)

_ISO = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:T([0-9]{2}:[0-9]{2})(?:(:[0-9]{2})(?:\.([0-9]{1,9}))?)?)?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})?"
)
_BEFORE_NOW = re.compile(r"-([0-9]{1,9}) ?([A-Za-z]*)")
_UNITS_MS = {"second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}


def milliseconds(text: str) -> int | None:
    """Return `text` if it is a whole number of milliseconds since 1970, or else None. Raises Problem."""
    if not text.isascii() or not text.isdigit():
        return None
    if len(text.lstrip("0")) > len(str(INT64_MAX)) or int(text) > INT64_MAX:
        raise Problem("it is no time")
    return int(text)


def iso_instant(text: str) -> int | None:
    """Return the milliseconds since 1970 of an ISO 8601 time, or None if `text` is none. Of a fraction of a millisecond
    it is the next one: no record is between the two. Raises ValueError."""
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    date, time, seconds, fraction, zone = found.groups()
    if time is None:
        raise Problem("add a time and a zone to the date, as in 2026-11-01T00:00:00Z: days begin when their zone says")
    if zone is None:
        raise Problem("add its zone, as in 2026-11-01T00:00:00Z or 2026-11-01T01:00:00+01:00")
    whole = datetime.datetime.fromisoformat(f"{date}T{time}{seconds or ''}{zone}")
    instant_ms = (whole - _EPOCH) // _MS + -(-int((fraction or "0").ljust(9, "0")) // 1_000_000)
    if instant_ms < 0:
        raise Problem("it is before 1970")
    return instant_ms


def before_now_ms(text: str) -> int | None:
    """Return how many milliseconds `text`, such as `-10 minutes`, is before now, or None if it is no such time. Raises
    Problem."""
    found = _BEFORE_NOW.fullmatch(text)
    if found is None:
        return None
    unit = found[2].lower().removesuffix("s")
    if unit not in _UNITS_MS:
        raise Problem("its unit is to be seconds, minutes, hours or days, as in -10 minutes")
    if int(found[1]) == 0:
        raise Problem("it is now, before which a read has nothing to begin with")
    return int(found[1]) * _UNITS_MS[unit]


def iso_text(instant_ms: int) -> str:
    """Return an instant in UTC, or its milliseconds if no calendar has it."""
    try:
        moment = _EPOCH + instant_ms * _MS
    except OverflowError:
        return f"{instant_ms} ms since 1970"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

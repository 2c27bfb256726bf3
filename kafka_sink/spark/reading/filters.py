"""What filters on a read's columns leave of its partitions and offsets.

Spark applies every filter again: this only spares the reading of rows that it would drop. A lower bound of the
timestamp becomes an offset, because every record before the first that is as new is older. An upper bound does not,
because timestamps need not ascend.

Source: pyspark.sql.datasource (Filter; from Spark 4.1 on, and with spark.sql.python.filterPushdown.enabled).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.options.kinds import INT64_MAX

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True)
class Wanted:
    """The part of a read that its filters leave. None, and an empty range of offsets: no limit, nothing."""

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

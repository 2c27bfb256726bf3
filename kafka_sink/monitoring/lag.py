"""The lag of a source when its micro-batch was planned, from Spark's progress.

For each partition Spark's Kafka source reports the end offset of the micro-batch and the latest offset. Both are from
the time of planning. Records that arrive later count for the next micro-batch. Without `maxOffsetsPerTrigger` a
micro-batch reads all records, and the lag is 0.

Other sources (files, rate) have offsets in another form, or report no latest offset. A Python source may report both in
this form (`reportLatestOffset`, Spark 4.2).

Source: KafkaMicroBatchStream.reportLatestOffset, KafkaSourceOffset; JsonUtils writes {"topic": {"partition": offset}}.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypeAlias

OffsetsByTopic: TypeAlias = Mapping[str, Mapping[str, int]]


class Source(Protocol):
    """Spark's SourceProgress."""

    @property
    def endOffset(self) -> str: ...

    @property
    def latestOffset(self) -> str: ...


def lag_of(sources: Iterable[Source]) -> dict[str, int]:
    """Return the lag by the source's number in the query, without the sources that do not report it."""
    found = {str(number): records_behind(source) for number, source in enumerate(sources)}
    return {number: count for number, count in found.items() if count is not None}


def records_behind(source: Source) -> int | None:
    """Return the lag in offsets, or None if the source does not report it.

    Offsets without a record (transaction markers, compacted records) count too.
    """
    latest, ended = _offsets(source.latestOffset), _offsets(source.endOffset)
    if latest is None or ended is None:
        return None
    return sum(
        max(0, offset - ended.get(topic, {}).get(partition, offset))
        for topic, partitions in latest.items()
        for partition, offset in partitions.items()
    )


def _offsets(text: str) -> OffsetsByTopic | None:
    """Return the offsets if they have the form of Kafka's source, else None."""
    offsets = _parsed(text)
    if not isinstance(offsets, dict) or not offsets:
        return None
    for partitions in offsets.values():
        if not isinstance(partitions, dict) or not all(map(_is_offset, partitions.items())):
            return None
    return offsets


def _is_offset(of_partition: tuple[Any, Any]) -> bool:
    partition, offset = of_partition
    return isinstance(partition, str) and partition.isdigit() and type(offset) is int


def _parsed(text: str) -> Any:
    """Parse JSON, or the text of a Python dict, which pyspark 4.1 returns with Spark Connect."""
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(text)
        except (ValueError, SyntaxError):
            continue
    return None

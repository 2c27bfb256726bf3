"""How far a source was behind when its micro-batch was planned, by what Spark tells of it.

Spark's Kafka source tells two offsets of each partition: up to where the micro-batch reads, and the latest one. Both
are of the time when the micro-batch was planned, so records that came while it ran are in the next one's. Without
`maxOffsetsPerTrigger` a micro-batch reads all there is, and the lag is 0.

Other sources have offsets of another form, or tell no latest one: files, rate. A Python source may tell both in this
form (`reportLatestOffset`, Spark 4.2).

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
    """By the source's number in the query; without those that do not tell."""
    found = {str(number): records_behind(source) for number, source in enumerate(sources)}
    return {number: count for number, count in found.items() if count is not None}


def records_behind(source: Source) -> int | None:
    """None: it does not tell. Offsets that no record has (transaction markers, compaction) count."""
    latest, ended = _offsets(source.latestOffset), _offsets(source.endOffset)
    if latest is None or ended is None:
        return None
    return sum(
        max(0, offset - ended.get(topic, {}).get(partition, offset))
        for topic, partitions in latest.items()
        for partition, offset in partitions.items()
    )


def _offsets(text: str) -> OffsetsByTopic | None:
    """Those of Kafka's source; None: others."""
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
    """pyspark 4.1 with Spark Connect gives a Python dict's text for the JSON it got."""
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(text)
        except (ValueError, SyntaxError):
            continue
    return None

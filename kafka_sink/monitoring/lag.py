"""The lag of a source when its micro-batch was planned, from Spark's progress.

For each partition Spark's Kafka source reports the end offset of the micro-batch and the latest offset. Both are from
the time of planning. Records that arrive later count for the next micro-batch. Without `maxOffsetsPerTrigger` a
micro-batch reads all records, and the lag is 0.

Other sources (files, rate) have offsets in another form, or report no latest offset. A Python source may report both in
this form (`reportLatestOffset`, Spark 4.2).

Source: KafkaMicroBatchStream.reportLatestOffset, KafkaSourceOffset.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kafka_sink.text.source_offsets import kafka_offsets


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
    behind = _behind(source)
    return None if behind is None else sum(behind)


def source_metrics(source: Source) -> dict[str, str]:
    """Return what Spark's `format("kafka")` has in `metrics` of its progress, by the same keys and in the same form.

    Spark up to 4.3 has no call by which a Python source could report it. Empty if the offsets are unknown.
    """
    behind = _behind(source)
    if not behind:
        return {}
    found = {"avg": sum(behind) / len(behind), "max": max(behind), "min": min(behind)}
    return {f"{name}OffsetsBehindLatest": str(value) for name, value in found.items()}


def _behind(source: Source) -> list[int] | None:
    """Return the lag of each partition."""
    latest, ended = kafka_offsets(source.latestOffset), kafka_offsets(source.endOffset)
    if latest is None or ended is None:
        return None
    return [
        max(0, offset - ended.get(topic, {}).get(partition, offset))
        for topic, partitions in latest.items()
        for partition, offset in partitions.items()
    ]

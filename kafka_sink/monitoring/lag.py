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
    latest, ended = kafka_offsets(source.latestOffset), kafka_offsets(source.endOffset)
    if latest is None or ended is None:
        return None
    return sum(
        max(0, offset - ended.get(topic, {}).get(partition, offset))
        for topic, partitions in latest.items()
        for partition, offset in partitions.items()
    )

"""Partitions whose log did not go on where a stream had read, from Spark's progress.

A micro-batch of a Kafka source ends at or after its start in each partition. It ends before it, or without the
partition, if the topic was deleted or created again, or if an unclean election truncated the log. Then records are
lost, and nobody knows how many. With `failOnDataLoss=true` the query fails. With `false` it goes on, and this is the
only trace outside the driver's log.

Other sources have offsets in another form. Source: KafkaMicroBatchStream.planInputPartitions (reportDataLoss).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kafka_sink.text.source_offsets import kafka_offsets


class Source(Protocol):
    """Spark's SourceProgress."""

    @property
    def startOffset(self) -> str: ...

    @property
    def endOffset(self) -> str: ...


def broken_logs_of(sources: Iterable[Source]) -> dict[str, int]:
    """Return the number of such partitions by the source's number in the query, without the sources that are not Kafka
    or have no start yet."""
    found = {str(number): _broken_logs(source) for number, source in enumerate(sources)}
    return {number: count for number, count in found.items() if count is not None}


def _broken_logs(source: Source) -> int | None:
    started, ended = kafka_offsets(source.startOffset), kafka_offsets(source.endOffset)
    if started is None or ended is None:
        return None
    return sum(
        ended.get(topic, {}).get(partition, -1) < offset
        for topic, partitions in started.items()
        for partition, offset in partitions.items()
    )

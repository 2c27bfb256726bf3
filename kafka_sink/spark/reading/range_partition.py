"""What the plan of a read hands to a task."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql.datasource import InputPartition

from kafka_sink.kafka.consumer.fetch_range import FetchRange


class RangePartition(InputPartition):
    """The ranges of offsets that one task reads."""

    def __init__(self, ranges: Sequence[FetchRange]) -> None:
        super().__init__(ranges)
        self.ranges = ranges

"""What the plan of a read hands to a task."""

from __future__ import annotations

from pyspark.sql.datasource import InputPartition

from kafka_sink.kafka.consumer.fetch_range import FetchRange


class RangePartition(InputPartition):
    """One range of offsets, which one task reads."""

    def __init__(self, range_: FetchRange) -> None:
        super().__init__(range_)
        self.range = range_

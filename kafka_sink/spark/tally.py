"""What tasks have written or read so far, for the driver's own process: interceptors with an accumulator.

    tally = Tally(spark)                         # ReadTally(spark): of reads
    kafka_sink.register(spark, interceptors=[tally])
    df.write.format("pykafka").mode("append").options(...).save()
    tally.value                                  # {TopicPartition: PartitionOffsets}; of reads: ReadStatistics

Spark shows commit messages only to the sink, and `save()` returns None. An accumulator does come back to the driver's
process, each time that a task ends. So the sum is available during the write and after a failure. Spark counts a
successful task once, even with retries and speculation. A failed task is missing in the sum, though some of its rows
may be in the topic. So is a read that Spark does not take to its end, as for a `limit`. A DataFrame that is used twice
without a cache is read twice, and counts twice.

Spark Connect has no accumulators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Protocol, Self, TypeVar

from pyspark import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession

from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.kafka.statistics import ReadStatistics
from kafka_sink.spark.interceptors import Interceptor

__all__ = ["ReadTally", "Tally"]

Item = TypeVar("Item", PartitionOffsets, ReadStatistics)
ByPartition = Mapping[TopicPartition, Item]
ReceiptsByPartition = ByPartition[PartitionOffsets]


class Counts(Protocol):
    """Counts that add up."""

    def plus(self, other: Self) -> Self: ...


K = TypeVar("K")
T = TypeVar("T", bound=Counts)


class Sums(AccumulatorParam[Mapping[K, T]]):
    """Adds up by key, and keeps the `most` keys that were added last. Each sum is a new dict, because a thread of the
    driver may be reading the old one."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self.on_sum: Callable[[Mapping[K, T]], None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out `on_sum`, because the sum inside a task is only a part."""
        return {"_most": self._most, "on_sum": None}

    def zero(self, value: Mapping[K, T]) -> Mapping[K, T]:
        return {}

    def addInPlace(self, value1: Mapping[K, T], value2: Mapping[K, T]) -> Mapping[K, T]:
        summed = dict(value1)
        for key, counts in value2.items():
            summed[key] = summed.pop(key).plus(counts) if key in summed else counts
        if self._most is not None:
            summed = {key: summed[key] for key in list(summed)[-self._most :]}
        if self.on_sum is not None:
            self.on_sum(summed)
        return summed


class _Tally(Interceptor, Generic[Item]):
    """Adds up the results of finished tasks. Its size is bounded by the number of their partitions."""

    def __init__(self, spark: SparkSession) -> None:
        none_yet: ByPartition[Item] = {}
        self._param: Sums[TopicPartition, Item] = Sums()
        self._sum: Accumulator[ByPartition[Item]] = spark.sparkContext.accumulator(none_yet, self._param)

    def watch(self, on_sum: Callable[[ByPartition[Item]], None]) -> None:
        """Reset the sum for another write, because PySpark keeps an accumulator until the process ends.

        `on_sum`: called with each new sum, in the driver's process and on a thread of Spark. Do not call `watch` during
        a write.
        """
        self._param.on_sum = None
        self._sum.value = {}
        self._param.on_sum = on_sum

    def unwatch(self) -> None:
        """Keep the sum, and stop calling `on_sum`."""
        self._param.on_sum = None

    @property
    def value(self) -> ByPartition[Item]:
        """The sum so far. Only the process that made the tally can read it; tasks cannot."""
        return self._sum.value

    def _add(self, items: Iterable[Item]) -> None:
        self._sum.add({TopicPartition(item.topic, item.partition): item for item in items})


class Tally(_Tally[PartitionOffsets]):
    """Adds up the receipts of finished writes.

    Examples:
        >>> tally = Tally(spark)
        >>> kafka_sink.register(spark, interceptors=[tally])
    """

    def on_acknowledgement(self, receipts: tuple[PartitionOffsets, ...], error: Exception | None) -> None:
        self._add(receipts)


class ReadTally(_Tally[ReadStatistics]):
    """Adds up what finished tasks have read.

    Examples:
        >>> tally = ReadTally(spark)
        >>> kafka_sink.register(spark, interceptors=[tally])
    """

    def on_read(self, statistics: ReadStatistics) -> None:
        self._add((statistics,))

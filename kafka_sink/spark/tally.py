"""The receipts of writes for the driver's own process: an interceptor with an accumulator.

    tally = Tally(spark)
    kafka_sink.register(spark, interceptors=[tally])
    df.write.format("pykafka").mode("append").options(...).save()
    tally.value                                  # {TopicPartition: PartitionOffsets}

Spark shows commit messages only to the sink, and `save()` returns None. An accumulator does come back to the driver's
process, each time that a task ends. So the sum is available during the write and after a failure. Spark counts a
successful task once, even with retries and speculation. A failed task is missing in the sum, though some of its rows
may be in the topic.

Spark Connect has no accumulators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark import AccumulatorParam
from pyspark.sql import SparkSession

from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.kafka.statistics import ReadStatistics
from kafka_sink.spark.interceptors import Interceptor

ReceiptsByPartition = Mapping[TopicPartition, PartitionOffsets]


class Tally(Interceptor):
    """Adds up the receipts of finished tasks. Its size is bounded by the number of partitions that are written to."""

    def __init__(self, spark: SparkSession, on_sum: Callable[[ReceiptsByPartition], None] | None = None) -> None:
        """`on_sum`: called with each new sum, in the driver's process and on a thread of Spark."""
        none_yet: ReceiptsByPartition = {}
        self._param = ReceiptsParam(on_sum)
        self._sum = spark.sparkContext.accumulator(none_yet, self._param)

    def watch(self, on_sum: Callable[[ReceiptsByPartition], None]) -> None:
        """Reset the sum for another write, because PySpark keeps an accumulator until the process ends.

        Do not call it during a write.
        """
        self._param.on_sum = None
        self._sum.value = {}
        self._param.on_sum = on_sum

    def unwatch(self) -> None:
        """Keep the sum, and stop calling `on_sum`."""
        self._param.on_sum = None

    @property
    def value(self) -> ReceiptsByPartition:
        """The sum so far. Only the process that made the tally can read it; tasks cannot."""
        return self._sum.value

    def on_acknowledgement(self, receipts: tuple[PartitionOffsets, ...], error: Exception | None) -> None:
        self._sum.add({TopicPartition(one.topic, one.partition): one for one in receipts})


class ReceiptsParam(AccumulatorParam[ReceiptsByPartition]):
    """Adds up receipts by partition. Each sum is a new dict, because the driver's thread may be reading the old one."""

    def __init__(self, on_sum: Callable[[ReceiptsByPartition], None] | None = None) -> None:
        self.on_sum = on_sum

    def __getstate__(self) -> dict[str, None]:
        """Leave out `on_sum`, because the sum inside a task is only a part."""
        return {"on_sum": None}

    def zero(self, value: ReceiptsByPartition) -> ReceiptsByPartition:
        return {}

    def addInPlace(self, value1: ReceiptsByPartition, value2: ReceiptsByPartition) -> ReceiptsByPartition:
        added = {key: value1[key].plus(new) if key in value1 else new for key, new in value2.items()}
        summed = {**value1, **added}
        on_sum = self.on_sum
        if on_sum is not None:
            on_sum(summed)
        return summed


# --- reads ------------------------------------------------------------------------------------------------------------
# What reads have read so far, for the driver's own process: an interceptor with an accumulator.
#
#     tally = ReadTally(spark)
#     kafka_sink.register(spark, interceptors=[tally])
#     spark.read.format("pykafka").options(...).load().write.parquet("/data/orders")
#     tally.value                                  # {TopicPartition: ReadStatistics}
#
# Spark counts a successful task once, even with retries and speculation. A task that Spark does not read to its end, as
# for a `limit`, is missing in the sum. A DataFrame that is used twice without a cache is read twice, and counts twice.
#
# Spark Connect has no accumulators.

ReadByPartition = Mapping[TopicPartition, ReadStatistics]


class ReadTally(Interceptor):
    """Adds up what finished tasks have read. Its size is bounded by the number of partitions that are read."""

    def __init__(self, spark: SparkSession) -> None:
        none_yet: ReadByPartition = {}
        self._sum = spark.sparkContext.accumulator(none_yet, ReadParam())

    @property
    def value(self) -> ReadByPartition:
        """The sum so far. Only the process that made the tally can read it; tasks cannot."""
        return self._sum.value

    def on_read(self, statistics: ReadStatistics) -> None:
        self._sum.add({TopicPartition(statistics.topic, statistics.partition): statistics})


class ReadParam(AccumulatorParam[ReadByPartition]):
    """Adds up by partition. Each sum is a new dict, because the driver's thread may be reading the old one."""

    def zero(self, value: ReadByPartition) -> ReadByPartition:
        return {}

    def addInPlace(self, value1: ReadByPartition, value2: ReadByPartition) -> ReadByPartition:
        added = {key: value1[key].plus(new) if key in value1 else new for key, new in value2.items()}
        return {**value1, **added}

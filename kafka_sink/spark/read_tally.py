"""What reads have read so far, for the driver's own process: an interceptor with an accumulator.

    tally = ReadTally(spark)
    kafka_sink.register(spark, interceptors=[tally])
    spark.read.format("pykafka").options(...).load().write.parquet("/data/orders")
    tally.value                                  # {TopicPartition: ReadStatistics}

Spark counts a successful task once, even with retries and speculation. A task that Spark does not read to its end, as
for a `limit`, is missing in the sum. A DataFrame that is used twice without a cache is read twice, and counts twice.

Spark Connect has no accumulators.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark import AccumulatorParam
from pyspark.sql import SparkSession

from kafka_sink.kafka.consumer.statistics import ReadStatistics
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.spark.interceptors import Interceptor

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

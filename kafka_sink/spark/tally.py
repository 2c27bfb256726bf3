"""The receipts of writes, for the process that asked for them: an interceptor that carries an accumulator.

    tally = Tally(spark)
    kafka_sink.register(spark, interceptors=[tally])
    df.write.format("pykafka").mode("append").options(...).save()
    tally.value                                  # {TopicPartition: PartitionReceipt}

Spark shows a sink's commit messages to nobody but the sink, and `save()` returns None. What does come back to the
driver's own process is an accumulator, with each task that ends: so the sum is also there while the write runs, and
when it fails. Spark counts a successful task of such a job once, whatever is retried or runs twice by speculation; a
task that failed is not in the sum, though rows of it may be in the topic.

Spark Connect has no accumulators.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark import AccumulatorParam
from pyspark.sql import SparkSession

from kafka_sink.producer.receipts import PartitionReceipt, TopicPartition
from kafka_sink.spark.interceptors import Interceptor

ReceiptsByPartition = Mapping[TopicPartition, PartitionReceipt]


class Tally(Interceptor):
    """Sums up the finished tasks of the writes that go through it; bounded by the number of partitions written to, not
    by the number of tasks."""

    def __init__(self, spark: SparkSession) -> None:
        none_yet: ReceiptsByPartition = {}
        self._sum = spark.sparkContext.accumulator(none_yet, ReceiptsParam())

    @property
    def value(self) -> ReceiptsByPartition:
        """The sum so far; for the process that made the tally, not for tasks."""
        return self._sum.value

    def on_acknowledgement(self, receipts: tuple[PartitionReceipt, ...], error: Exception | None) -> None:
        self._sum.add({TopicPartition(one.topic, one.partition): one for one in receipts})


class ReceiptsParam(AccumulatorParam[ReceiptsByPartition]):
    """Adds receipts up by partition. A sum is a new dict: the driver's thread may be reading the old one."""

    def zero(self, value: ReceiptsByPartition) -> ReceiptsByPartition:
        return {}

    def addInPlace(self, value1: ReceiptsByPartition, value2: ReceiptsByPartition) -> ReceiptsByPartition:
        added = {key: value1[key].plus(new) if key in value1 else new for key, new in value2.items()}
        return {**value1, **added}

"""The receipts of writes, for the process that asked for them: an interceptor that carries an accumulator.

    tally = Tally(spark)
    kafka_sink.register(spark, interceptors=[tally])
    df.write.format("pykafka").mode("append").options(...).save()
    tally.value                                  # {TopicPartition: PartitionOffsets}

Spark shows a sink's commit messages to nobody but the sink, and `save()` returns None. What does come back to the
driver's own process is an accumulator, with each task that ends: so the sum is also there while the write runs, and
when it fails. Spark counts a successful task of such a job once, whatever is retried or runs twice by speculation; a
task that failed is not in the sum, though rows of it may be in the topic.

Spark Connect has no accumulators.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark import AccumulatorParam
from pyspark.sql import SparkSession

from kafka_sink.kafka.producer.acknowledgements import PartitionOffsets
from kafka_sink.kafka.protocol.topic_partition import TopicPartition
from kafka_sink.spark.interceptors import Interceptor

ReceiptsByPartition = Mapping[TopicPartition, PartitionOffsets]


class Tally(Interceptor):
    """Sums up the finished tasks of the writes that go through it; bounded by the number of partitions written to, not
    by the number of tasks."""

    def __init__(self, spark: SparkSession, on_sum: Callable[[ReceiptsByPartition], None] | None = None) -> None:
        """`on_sum`: is told each new sum, in the driver's process and on a thread of Spark's."""
        none_yet: ReceiptsByPartition = {}
        self._param = ReceiptsParam(on_sum)
        self._sum = spark.sparkContext.accumulator(none_yet, self._param)

    def watch(self, on_sum: Callable[[ReceiptsByPartition], None]) -> None:
        """From nothing again, for another write: PySpark keeps an accumulator for as long as the process lives. Not
        while a write goes through it."""
        self._param.on_sum = None
        self._sum.value = {}
        self._param.on_sum = on_sum

    def unwatch(self) -> None:
        """The sum stays, and nobody is told of it."""
        self._param.on_sum = None

    @property
    def value(self) -> ReceiptsByPartition:
        """The sum so far; for the process that made the tally, not for tasks."""
        return self._sum.value

    def on_acknowledgement(self, receipts: tuple[PartitionOffsets, ...], error: Exception | None) -> None:
        self._sum.add({TopicPartition(one.topic, one.partition): one for one in receipts})


class ReceiptsParam(AccumulatorParam[ReceiptsByPartition]):
    """Adds receipts up by partition. A sum is a new dict: the driver's thread may be reading the old one."""

    def __init__(self, on_sum: Callable[[ReceiptsByPartition], None] | None = None) -> None:
        self.on_sum = on_sum

    def __getstate__(self) -> dict[str, None]:
        """What tasks add up is not the sum yet."""
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

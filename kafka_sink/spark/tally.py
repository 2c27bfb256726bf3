"""The receipts of batch writes, for the process that asked for them.

    tally = register_with_tally(spark)
    df.write.format("pykafka").mode("append").options(...).save()
    tally.value                                  # {TopicPartition: PartitionReceipt}

Spark shows a sink's commit messages to nobody but the sink, and `save()` returns None. What does come back to the
driver's own process is an accumulator, with each task that ends: so the sum is also there while the write runs, and
when it fails. Spark counts a successful task of such a job once, whatever is retried or runs twice by speculation; a
task that failed is not in the sum, though rows of it may be in the topic.

An accumulator is known by the class that is registered: Spark pickles a class by reference where it can, without what
was set on it later, so the class is made for the session and has no name to be found by. Spark Connect has no
accumulators.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark import Accumulator, AccumulatorParam
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types

from kafka_sink.config import GivenOptions
from kafka_sink.producer.receipts import PartitionReceipt, TopicPartition
from kafka_sink.spark.commit_message import TaskReceipt
from kafka_sink.spark.source import KafkaDataSource
from kafka_sink.spark.writer import KafkaBatchWriter

ReceiptsByPartition = Mapping[TopicPartition, PartitionReceipt]


def register_with_tally(spark: SparkSession) -> Accumulator[ReceiptsByPartition]:
    """As `kafka_sink.register`; the value that is returned sums up the finished tasks of the session's batch writes.

    It is bounded by the number of partitions written to, not by the number of tasks.
    """
    none_yet: ReceiptsByPartition = {}
    tally = spark.sparkContext.accumulator(none_yet, ReceiptsParam())
    spark.dataSource.register(type("SessionDataSource", (TalliedDataSource,), {"tally": tally}))
    return tally


class ReceiptsParam(AccumulatorParam[ReceiptsByPartition]):
    """Adds receipts up by partition. A sum is a new dict: the driver's thread may be reading the old one."""

    def zero(self, value: ReceiptsByPartition) -> ReceiptsByPartition:
        return {}

    def addInPlace(self, value1: ReceiptsByPartition, value2: ReceiptsByPartition) -> ReceiptsByPartition:
        added = {key: value1[key].plus(new) if key in value1 else new for key, new in value2.items()}
        return {**value1, **added}


class TalliedDataSource(KafkaDataSource):
    """`format("pykafka")` whose batch writes are counted; its streams are not."""

    tally: Accumulator[ReceiptsByPartition]

    def writer(self, schema: spark_types.StructType, overwrite: bool) -> TalliedWriter:
        return TalliedWriter(self._checked_options(schema, overwrite), self.tally)


class TalliedWriter(KafkaBatchWriter):
    def __init__(self, options: GivenOptions, tally: Accumulator[ReceiptsByPartition]) -> None:
        super().__init__(options)
        self.tally = tally

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskReceipt:
        receipt = super().write(iterator)
        self.tally.add({TopicPartition(one.topic, one.partition): one for one in receipt.partitions})
        return receipt

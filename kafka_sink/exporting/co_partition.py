"""One Spark partition for each partition of the topic: one writer a Kafka partition, and rows of a key in one task.

    any DataFrame  ->  partition = the one the row names, else its key's (murmur2), else by a hash of its value
                   ->  repartitionById(n, partition)  ->  sortWithinPartitions(order_by)  ->  n tasks

What comes of it: batches are full, as a task fills one partition's and not every one's; and what one task writes is in
order, so with `order_by` the rows of a partition, and with it those of a key, are in that order over the whole
DataFrame. Without it they are in none that Spark promises: a shuffle hands over one input task's rows after
another's, in whatever order these ended. A stream cannot be sorted so (Spark refuses it).

The partition that was computed goes along as the row's `partition` column, so that the sink routes no row elsewhere,
whatever partitions are added meanwhile. `repartition(n, partition)` would hash the number: of 12 partitions some 4
tasks would get none and others two. `repartitionById` (Spark 4.1) takes it as it is; adaptive execution leaves alone
what names its number of partitions. A partition that does not exist is the sink's to judge.

A row without a key is placed by its value, and not in turn: a task that Spark runs again must give each row the same
place (exactly-once compares them).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_sink.errors import InvalidArgument
from kafka_sink.errors.failures import told_to_spark
from kafka_sink.exporting.columns import STAGED, ColumnOrName
from kafka_sink.functions import kafka_partition
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.admin.topics import partition_count
from kafka_sink.kept import once
from kafka_sink.options.config import EXACTLY_ONCE, SinkConfig
from kafka_sink.spark.created_topic import ensure_topic

CO_PARTITION = f"{STAGED}co_partition"


def check(config: SinkConfig, record: Mapping[str, object], order_by: Sequence[ColumnOrName]) -> None:
    """Raises InvalidArgument where rows cannot be placed before they are written, or would be known by an order that
    they do not have."""
    if config.topic is None or "topic" in record:
        reason = "it needs one topic for all rows: give its name, and no topic column."
    elif config.partitioner != "murmur2":
        reason = f"it places keys as partitioner=murmur2 does, not {config.partitioner}: give partition=... yourself."
    elif "key" not in record and "partition" not in record:
        reason = "it needs a key or a partition to go by."
    elif config.row_identity and not order_by and config.delivery_guarantee != EXACTLY_ONCE:
        # A task that runs again fetches its rows in another order: kafka_sink.dedupe would take one for another.
        reason = (
            "with rowIdentity=true rows are known by their place in a task, which a shuffle does not keep when the "
            "task runs again: give an order_by that tells all rows apart, or exactly_once=True, or leave one out."
        )
    else:
        return
    raise InvalidArgument(argument="co_partition", reason=reason)


def topic_partitions(spark: SparkSession, config: SinkConfig, *, from_executors: bool) -> int:
    """How many the topic has, and makes it where createTopics says so. `from_executors`: by a job of one task, where
    this process is not in the cluster's network. Raises ClusterError."""
    if not from_executors:
        return _count(config)

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            with told_to_spark():
                n = _count(config)
            yield pa.RecordBatch.from_arrays([pa.array([n], pa.int32())], names=["n"])

    ((n,),) = spark.range(0, 1, 1, 1).mapInArrow(count, "n INT").collect()
    return int(n)


def _count(config: SinkConfig) -> int:
    assert config.topic is not None, "check() has seen to it"
    ensure_topic(config)
    with once(AdminClient, config.producer) as client:
        return partition_count(client, config.topic)


def co_partitioned(
    frame: DataFrame, record: dict[str, Column], n: int, order_by: Sequence[ColumnOrName]
) -> tuple[DataFrame, dict[str, Column]]:
    """`frame` in n Spark partitions, each for the Kafka partition of its number, in order; and the record's columns
    over it."""
    places = [record["partition"]] if "partition" in record else []
    if "key" in record:
        places.append(kafka_partition(record["key"], n))
    places.append(F.pmod(F.xxhash64(record["value"]), F.lit(n)).cast("int"))
    placed = frame.withColumn(CO_PARTITION, F.coalesce(*places)).repartitionById(n, CO_PARTITION)
    if order_by:
        placed = placed.sortWithinPartitions(*order_by)
    return placed, {**record, "partition": F.col(CO_PARTITION)}

"""One Spark partition for each partition of the topic: one writer for each, and all rows of a key in one task.

    any DataFrame  ->  partition = the one the row names, else its key's (murmur2), else by a hash of its value
                   ->  repartitionById(n, partition)  ->  sortWithinPartitions(order_by)  ->  n tasks

The batches are full, because each task fills the batches of one partition. One task writes its rows in order. So with
`order_by`, the rows of a partition and of a key have that order over the whole DataFrame. Without it Spark promises no
order: a shuffle delivers the rows of the input tasks in the order in which these tasks end. Spark does not allow this
sort for streams.

The computed partition becomes the row's `partition` column, so that the sink uses it even if partitions are added
meanwhile. `repartition(n, partition)` would hash the number: of 12 tasks about 4 would get no partition, and others
two. `repartitionById` (Spark 4.1) uses the number itself. Adaptive execution does not change an explicit number of
partitions. The sink checks if a named partition exists.

A row without a key is placed by a hash of its value instead of round robin. A task that runs again must give each row
the same place, and exactly-once compares the places.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from kafka_sink.errors import InvalidArgument
from kafka_sink.errors.failures import told_to_spark
from kafka_sink.exporting.columns import STAGED, ColumnOrName, named
from kafka_sink.functions import kafka_partition
from kafka_sink.kafka.admin.client import AdminClient
from kafka_sink.kafka.admin.topics import partition_count
from kafka_sink.options.config import EXACTLY_ONCE, SinkConfig
from kafka_sink.spark.created_topic import ensure_topic
from kafka_sink.spark.kept_clients import once

CO_PARTITION = f"{STAGED}co_partition"


def check(config: SinkConfig, record: Mapping[str, object], order_by: Sequence[ColumnOrName]) -> None:
    """Raise InvalidArgument if the rows cannot be placed before the write, or if their identity needs an order that the
    shuffle does not keep."""
    if config.topic is None or "topic" in record:
        reason = "it needs one topic for all rows: give its name, and no topic column."
    elif config.partitioner != "murmur2":
        reason = f"it places keys as partitioner=murmur2 does, not {config.partitioner}: give partition=... yourself."
    elif "key" not in record and "partition" not in record:
        reason = "it needs a key or a partition to go by."
    elif config.row_identity and not order_by and config.delivery_guarantee != EXACTLY_ONCE:
        # A task that runs again gets its rows in another order, so kafka_sink.dedupe would mix up different rows.
        reason = (
            "with rowIdentity=true a row's identity is its place in a task, which a shuffle does not keep when the "
            "task runs again: give an order_by that is unique for each row, or exactly_once=True, or leave one out."
        )
    else:
        return
    raise InvalidArgument(argument="co_partition", reason=reason)


def topic_partitions(spark: SparkSession, config: SinkConfig, *, from_executors: bool) -> int:
    """Return the number of the topic's partitions. Create the topic if createTopics is set. Raises ClusterError.

    With `from_executors` a job of one task asks the cluster, because this process may be in another network.
    """
    if not from_executors:
        return _count(config)

    def count(_: int) -> int:
        with told_to_spark():
            return _count(config)

    # Functions of Arrow batches (mapInArrow) need pandas.
    asked = F.udf(count, "int", useArrow=False)
    ((n,),) = spark.range(0, 1, 1, 1).select(asked("id")).collect()
    return int(n)


def _count(config: SinkConfig) -> int:
    assert config.topic is not None, "check() has seen to it"
    ensure_topic(config)
    with once(AdminClient, config.producer) as client:
        return partition_count(client, config.topic)


def co_partitioned(
    frame: DataFrame, record: dict[str, Column], n: int, order_by: Sequence[ColumnOrName]
) -> tuple[DataFrame, dict[str, Column]]:
    """Return `frame` in n Spark partitions, one for each Kafka partition of the same number, and the record's columns.
    Each partition is sorted by `order_by`. Raises InvalidArgument on Spark 4.0, and errors of a column's name."""
    if not hasattr(frame, "repartitionById"):
        raise InvalidArgument(argument="co_partition", reason="it needs Spark 4.1 or later (repartitionById).")
    places = [record["partition"]] if "partition" in record else []
    if "key" in record:
        places.append(kafka_partition(record["key"], n))
    places.append(F.pmod(F.xxhash64(record["value"]), F.lit(n)).cast("int"))
    placed = frame.withColumn(CO_PARTITION, F.coalesce(*places)).repartitionById(n, CO_PARTITION)
    if order_by:
        by = (each if isinstance(each, Column) else named(placed, each, "order_by names it.") for each in order_by)
        placed = placed.sortWithinPartitions(*by)
    return placed, {**record, "partition": F.col(CO_PARTITION)}

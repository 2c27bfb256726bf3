"""Queries of `kafka_sink.to_kafka`: update mode by foreachBatch, and the sink's own errors.

Spark does not support update mode for Python sinks, but foreachBatch supports all modes. So in update mode each
micro-batch is a batch write. With exactly-once the micro-batch's number is the write's `txnVersion`, and `txnAppId`
contains the query's id.

Spark keeps the query's id in the checkpoint. A restart continues with the same id. A new checkpoint begins at number 0
again, with a new id. With the checkpoint's path instead of the id, the new query's micro-batches would be skipped as
already written. The id is read from the checkpoint's file `metadata`: with Spark Connect the function runs in a process
that gets only the micro-batch and its number.

Source: StreamExecution.scala, StreamMetadata.scala (the query's id is in the checkpoint before the first micro-batch).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from kafka_sink.errors import InvalidArgument
from kafka_sink.errors.failures import told_by_spark, told_to_spark
from kafka_sink.options.config import EXACTLY_ONCE, given_options
from kafka_sink.options.table import SPARK_OPTIONS
from kafka_sink.spark.source import KafkaDataSource

# The default prefix. The query's id follows it and makes the name unique.
APP_ID_PREFIX = "pykafka"
# A placeholder with the length of a query's id.
_ANY_ID = "0" * 36


def in_update_mode(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a query in update mode. With exactly-once they have a transactionalIdPrefix.

    Raises InvalidArgument, InvalidOption, before any request to the cluster.
    """
    if options.get("deliveryGuarantee") != EXACTLY_ONCE:
        return dict(options)
    if "checkpointLocation" not in options:
        reason = "exactly-once in update mode needs it to read the query's id."
        raise InvalidArgument(argument="checkpoint_location", reason=reason)
    named = {"transactionalIdPrefix": APP_ID_PREFIX, **options}
    given_options({"txnAppId": f"{named['transactionalIdPrefix']}-{_ANY_ID}"})
    return named


def each_micro_batch(writer: DataStreamWriter, options: Mapping[str, str]) -> DataStreamWriter:
    """Return `writer` with a foreachBatch that writes each micro-batch. `options` come from `in_update_mode`."""
    of_query = {name: text for name, text in options.items() if name in SPARK_OPTIONS}
    of_write = {name: text for name, text in options.items() if name not in SPARK_OPTIONS}
    if of_write.get("deliveryGuarantee") != EXACTLY_ONCE:
        return writer.options(**of_query).foreachBatch(MicroBatchWrite(of_write))
    # A batch write has txnAppId instead of transactionalIdPrefix.
    prefix = of_write.pop("transactionalIdPrefix")
    return writer.options(**of_query).foreachBatch(MicroBatchWrite(of_write, prefix, of_query["checkpointLocation"]))


class MicroBatchWrite:
    """The function for foreachBatch. With Spark Connect the server runs a copy of it."""

    def __init__(self, options: Mapping[str, str], prefix: str = "", checkpoint: str | None = None) -> None:
        self._options = dict(options)
        self._prefix = prefix
        # None: at-least-once needs no name.
        self._checkpoint = checkpoint
        self._query_id: str | None = None

    def __call__(self, rows: DataFrame, number: int) -> None:
        with told_to_spark(), told_by_spark():
            version = self._version(rows, number)
            rows.write.format(KafkaDataSource.name()).mode("append").options(**self._options, **version).save()

    def _version(self, rows: DataFrame, number: int) -> dict[str, str]:
        if self._checkpoint is None:
            return {}
        if self._query_id is None:
            (line,) = rows.sparkSession.read.text(f"{self._checkpoint}/metadata").collect()
            self._query_id = json.loads(line.value)["id"]
        return {"txnAppId": f"{self._prefix}-{self._query_id}", "txnVersion": str(number)}


def telling(query: StreamingQuery) -> StreamingQuery:
    """Return the same query. It raises the sink's own error if Spark's exception contains one."""
    kind = type(query)
    query.__class__ = type(kind.__name__, (_Telling, kind), {})
    return query


class _Telling:
    """A mixin for the query classes of PySpark and of Spark Connect."""

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        with told_by_spark():
            ended: bool | None = super().awaitTermination(timeout)  # type: ignore[misc]
            return ended

    def processAllAvailable(self) -> None:
        with told_by_spark():
            super().processAllAvailable()  # type: ignore[misc]

"""A query of `kafka_sink.to_kafka`: in update mode by foreachBatch, and one that raises the sink's own errors.

Spark gives a Python sink no update mode, and foreachBatch any. So there each micro-batch is a batch write. With
exactly-once its number is the write's `txnVersion`, and `txnAppId` holds the id of the query, which Spark keeps in the
checkpoint: a restart goes on with it, and a query with a new checkpoint, whose numbers begin at 0 again, has another.
Were it the checkpoint's path, the micro-batches of the new query would be taken for those of the old one, and left
out. The id is read from the checkpoint's file `metadata`, as with Spark Connect the function runs in a process that
Spark tells only the micro-batch and its number.

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

# Where the user names no prefix; the query's id comes after it, which makes it the query's own.
APP_ID_PREFIX = "pykafka"
# As long as a query's id.
_ANY_ID = "0" * 36


def in_update_mode(options: Mapping[str, str]) -> dict[str, str]:
    """The options of a query, with the name that its transactions begin with where they need one. Raises
    InvalidArgument, InvalidOption, before the cluster is asked."""
    if options.get("deliveryGuarantee") != EXACTLY_ONCE:
        return dict(options)
    if "checkpointLocation" not in options:
        reason = "exactly-once in update mode needs it, as the query's id is read there."
        raise InvalidArgument(argument="checkpoint_location", reason=reason)
    named = {"transactionalIdPrefix": APP_ID_PREFIX, **options}
    given_options({"txnAppId": f"{named['transactionalIdPrefix']}-{_ANY_ID}"})
    return named


def each_micro_batch(writer: DataStreamWriter, options: Mapping[str, str]) -> DataStreamWriter:
    """`writer` with foreachBatch, which writes each micro-batch. `options`: of `in_update_mode`."""
    of_query = {name: text for name, text in options.items() if name in SPARK_OPTIONS}
    of_write = {name: text for name, text in options.items() if name not in SPARK_OPTIONS}
    if of_write.get("deliveryGuarantee") != EXACTLY_ONCE:
        return writer.options(**of_query).foreachBatch(MicroBatchWrite(of_write))
    # The application's name takes the prefix's place.
    prefix = of_write.pop("transactionalIdPrefix")
    return writer.options(**of_query).foreachBatch(MicroBatchWrite(of_write, prefix, of_query["checkpointLocation"]))


class MicroBatchWrite:
    """What foreachBatch calls; with Spark Connect a copy of it, on the server."""

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
    """The same query; what it raises is the sink's own error, where there is one behind Spark's."""
    kind = type(query)
    query.__class__ = type(kind.__name__, (_Telling, kind), {})
    return query


class _Telling:
    """In front of PySpark's class of queries, or of Spark Connect's."""

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        with told_by_spark():
            ended: bool | None = super().awaitTermination(timeout)  # type: ignore[misc]
            return ended

    def processAllAvailable(self) -> None:
        with told_by_spark():
            super().processAllAvailable()  # type: ignore[misc]

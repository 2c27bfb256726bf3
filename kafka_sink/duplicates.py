"""Leaves out, on the reader's side, what an at-least-once write has written again: `kafka_sink.dedupe`.

A row of a write with `rowIdentity` is known by its topic, query, batch, slot and row (records/row_identity.py); any
other record by its place in Kafka, so that it is kept whatever it holds. All of it is Spark's own expressions: it runs
in the JVM, in Spark Connect too, and needs no pykafka on executors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from kafka_sink.records.row_identity import NAMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NEEDED = ("headers", "topic", "partition", "offset")
# No column of Spark's Kafka source, and none that `dedupe` leaves behind.
_KEY = "pykafka.key"


def without_duplicates(df: DataFrame, watermark: str | None) -> DataFrame:
    """See `kafka_sink.dedupe`."""
    for name in NEEDED:
        if name not in df.columns:
            raise ValueError(
                f"dedupe needs the column {name!r}: it takes what spark.read or spark.readStream.format('kafka') gives "
                "with the option includeHeaders=true, before a select"
            )
    keyed = df.withColumn(_KEY, _key())
    if watermark is None:
        kept = keyed.dropDuplicates([_KEY])
    else:
        kept = keyed.withWatermark("timestamp", watermark).dropDuplicatesWithinWatermark([_KEY])
    return kept.drop(_KEY).withColumn("headers", _others())


def _key() -> Column:
    """What is the same of two records if and only if they are one row. No topic has a slash in its name."""
    of_row = [_last(name) for name in NAMES]
    is_known = of_row[0].isNotNull()
    for part in of_row[1:]:
        is_known &= part.isNotNull()
    return F.when(is_known, F.concat_ws("/", "topic", *of_row)).otherwise(
        F.concat_ws("/", "topic", F.col("partition").cast("string"), F.col("offset").cast("string"))
    )


def _last(name: str) -> Column:
    named = F.filter("headers", lambda header: header["key"] == name)
    return F.try_element_at(named, F.lit(-1))["value"].cast("string")


def _others() -> Column:
    """The headers that are no identity; null for none, as Spark's source has it."""
    others = F.filter("headers", lambda header: ~header["key"].isin(*NAMES))
    return F.when(F.size(others) > 0, others)

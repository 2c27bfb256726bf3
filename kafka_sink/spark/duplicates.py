"""Removes duplicate rows of an at-least-once write on the reader's side: `kafka_sink.dedupe`.

The last five headers of a row (records/row_identity.py) identify a row of a write with `rowIdentity`, if they name the
topic that it was read from. All other records are kept: dead letters, and rows that were copied from another topic with
their headers. They bypass the deduplication, because nothing identifies them with certainty. Even topic, partition and
offset repeat in a recreated topic or in a second cluster. So a stream's state has none of these records, and no
watermark drops them. The price is that the input is read twice.

Only Spark's own expressions are used. They run in the JVM, also with Spark Connect, and executors need no pykafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_sink.errors.installed import needs_pyspark
from kafka_sink.records.dead_letters import REASON
from kafka_sink.records.row_identity import NAMES

with needs_pyspark():
    from pyspark.sql import Column
    from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NEEDED = ("headers", "topic")
# A name that no column of Spark's Kafka source has. `dedupe` removes the column again.
_KEY = "pykafka_key"


def without_duplicates(df: DataFrame, watermark: str | None) -> DataFrame:
    """See `kafka_sink.dedupe`."""
    for name in NEEDED:
        if name not in df.columns:
            raise ValueError(
                f"dedupe needs the column {name!r}: it takes what spark.read or spark.readStream gives with "
                "format('pykafka') and the option includeHeaders=true, before a select"
            )
    keyed = df.withColumn(_KEY, _key())
    known = keyed.filter(F.col(_KEY).isNotNull())
    if watermark is None:
        once = known.dropDuplicates([_KEY])
    else:
        once = known.withWatermark("timestamp", watermark).dropDuplicatesWithinWatermark([_KEY])
    return once.union(keyed.filter(F.col(_KEY).isNull())).drop(_KEY).withColumn("headers", _others())


def _key() -> Column:
    """Return a key that two records share only if they are the same row; null for records without an identity.

    "/" separates the parts, because no topic name has a slash.
    """
    parts = F.transform(_last(), lambda header: header["value"].cast("string"))
    is_whole = _ends_with_identity() & ~F.exists(parts, lambda part: part.isNull())
    is_known = is_whole & (F.get(parts, F.lit(0)) == F.col("topic"))
    return F.when(is_known, F.array_join(parts, "/"))


def _last() -> Column:
    """Return the last headers, as many as an identity has. Return none if the record has fewer."""
    return F.slice("headers", -len(NAMES), len(NAMES))


def _ends_with_identity() -> Column:
    return F.transform(_last(), lambda header: header["key"]) == F.array(*map(F.lit, NAMES))


def _others() -> Column:
    """Return the headers without any row identity, or null if none is left, as in Spark's source.

    The headers of a dead letter use the same names to describe its row, and stay.
    """
    before = F.when(_ends_with_identity(), F.slice("headers", 1, F.size("headers") - len(NAMES))).otherwise(
        F.col("headers")
    )
    is_dead_letter = F.exists(before, lambda header: header["key"] == REASON)
    others = F.when(is_dead_letter, before).otherwise(F.filter(before, lambda header: ~header["key"].isin(*NAMES)))
    return F.when(F.size(others) > 0, others)

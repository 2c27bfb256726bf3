"""Leaves out, on the reader's side, what an at-least-once write has written again: `kafka_sink.dedupe`.

A row of a write with `rowIdentity` is known by its last five headers (records/row_identity.py), if they name the topic
that it was read from. Any other record is kept, whatever it holds: rows that were read from another topic and written
on with their headers are such, and dead letters are. They go around the deduplication, as nothing that they have tells
them apart for certain: not even their place in Kafka, which a topic that was made again has twice, and so do two
clusters. A stream's state has nothing of them, and no watermark drops them; for that, what is read is read twice.

All of it is Spark's own expressions: it runs in the JVM, in Spark Connect too, and needs no pykafka on executors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from kafka_sink.records.dead_letters import REASON
from kafka_sink.records.row_identity import NAMES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NEEDED = ("headers", "topic")
# No column of Spark's Kafka source, and none that `dedupe` leaves behind.
_KEY = "pykafka_key"


def without_duplicates(df: DataFrame, watermark: str | None) -> DataFrame:
    """See `kafka_sink.dedupe`."""
    for name in NEEDED:
        if name not in df.columns:
            raise ValueError(
                f"dedupe needs the column {name!r}: it takes what spark.read or spark.readStream.format('kafka') gives "
                "with the option includeHeaders=true, before a select"
            )
    keyed = df.withColumn(_KEY, _key())
    known = keyed.filter(F.col(_KEY).isNotNull())
    if watermark is None:
        once = known.dropDuplicates([_KEY])
    else:
        once = known.withWatermark("timestamp", watermark).dropDuplicatesWithinWatermark([_KEY])
    return once.union(keyed.filter(F.col(_KEY).isNull())).drop(_KEY).withColumn("headers", _others())


def _key() -> Column:
    """What is the same of two records if and only if they are one row; null of one without an identity. No topic has a
    slash in its name."""
    parts = F.transform(_last(), lambda header: header["value"].cast("string"))
    is_whole = _ends_with_identity() & ~F.exists(parts, lambda part: part.isNull())
    is_known = is_whole & (F.get(parts, F.lit(0)) == F.col("topic"))
    return F.when(is_known, F.array_join(parts, "/"))


def _last() -> Column:
    """As many of the last headers as an identity has; none where there are fewer."""
    return F.slice("headers", -len(NAMES), len(NAMES))


def _ends_with_identity() -> Column:
    return F.transform(_last(), lambda header: header["key"]) == F.array(*map(F.lit, NAMES))


def _others() -> Column:
    """The headers that are no identity, whosever; null for none, as Spark's source has it. What a dead letter tells of
    its row has the same names, and stays."""
    before = F.when(_ends_with_identity(), F.slice("headers", 1, F.size("headers") - len(NAMES))).otherwise(
        F.col("headers")
    )
    is_dead_letter = F.exists(before, lambda header: header["key"] == REASON)
    others = F.when(is_dead_letter, before).otherwise(F.filter(before, lambda header: ~header["key"].isin(*NAMES)))
    return F.when(F.size(others) > 0, others)

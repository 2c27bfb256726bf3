"""The columns of a read: those of Spark's Kafka source, or the part of them that the user's schema asks for.

Source: org.apache.spark.sql.kafka010.KafkaRecordToRowConverter.kafkaSchema.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import types as spark_types

from kafka_sink.errors import ColumnNotRead, ColumnTypeMismatch, DuplicateColumn

_HEADER = spark_types.StructType([
    spark_types.StructField("key", spark_types.StringType()),
    spark_types.StructField("value", spark_types.BinaryType()),
])  # fmt: skip
_COLUMNS = (
    spark_types.StructField("key", spark_types.BinaryType()),
    spark_types.StructField("value", spark_types.BinaryType()),
    spark_types.StructField("topic", spark_types.StringType()),
    spark_types.StructField("partition", spark_types.IntegerType()),
    spark_types.StructField("offset", spark_types.LongType()),
    spark_types.StructField("timestamp", spark_types.TimestampType()),
    spark_types.StructField("timestampType", spark_types.IntegerType()),
)
_HEADERS = spark_types.StructField("headers", spark_types.ArrayType(_HEADER))
_BY_NAME = {field.name: field for field in (*_COLUMNS, _HEADERS)}
# Columns with the same value in all rows of a partition.
_CONSTANT = ("topic", "partition")


def whole_schema(*, include_headers: bool) -> spark_types.StructType:
    """Return all columns of a read."""
    return spark_types.StructType([*_COLUMNS, *([_HEADERS] if include_headers else [])])


def check_user_schema(schema: spark_types.StructType) -> None:
    """Raise ColumnNotRead, DuplicateColumn or ColumnTypeMismatch if `schema` has anything but columns of a read.

    Whether a column may be null does not matter.
    """
    seen: set[str] = set()
    for field in schema:
        known = _BY_NAME.get(field.name)
        if known is None:
            raise ColumnNotRead(column=field.name, allowed=tuple(_BY_NAME))
        if field.name in seen:
            raise DuplicateColumn(column=field.name)
        seen.add(field.name)
        if field.dataType.simpleString() != known.dataType.simpleString():
            raise ColumnTypeMismatch(
                column=field.name,
                found=field.dataType.simpleString(),
                expected=known.dataType.simpleString(),
                hint="Read it as it is, and cast it in the DataFrame.",
            )


class Rows:
    """Completes decoded columns with those that are the same in a whole partition, in the order of `names`."""

    def __init__(self, names: tuple[str, ...], topic: str, partition: int) -> None:
        self._names = names
        # Made of buffers: `pa.scalar` imports pandas, which takes longer than all else before the first row.
        text = topic.encode()
        offsets = pa.py_buffer(struct.pack("=ii", 0, len(text)))
        self._topic = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(text)])[0]
        number = pa.py_buffer(struct.pack("=i", partition))
        self._partition = pa.Array.from_buffers(pa.int32(), 1, [None, number])[0]
        self._topics = self._partitions = pa.nulls(0)

    @property
    def decoded(self) -> tuple[str, ...]:
        """The names of the columns to decode. At least one, because it also tells how many rows there are."""
        return tuple(name for name in self._names if name not in _CONSTANT) or ("offset",)

    def complete(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the record batches with all columns."""
        for batch in batches:
            yield self._completed(batch)

    def _completed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = batch.num_rows
        if len(self._topics) < rows:
            self._topics = pa.repeat(self._topic, rows)
            self._partitions = pa.repeat(self._partition, rows)
        constant = {"topic": self._topics.slice(0, rows), "partition": self._partitions.slice(0, rows)}
        return pa.RecordBatch.from_arrays(
            [constant[name] if name in constant else batch.column(name) for name in self._names], list(self._names)
        )

"""Makes the schema and the reader of a read from its options. The data source imports it for reads only.

The columns are those of Spark's Kafka source, or the part of them that the user's schema asks for.

The process that asks for the schema makes no reader, and a batch has no stream's. So each imports what it makes.

Source: org.apache.spark.sql.kafka010.KafkaRecordToRowConverter.kafkaSchema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import types as spark_types

from kafka_sink.errors import ColumnNotRead, ColumnTypeMismatch, DuplicateColumn
from kafka_sink.errors.failures import of_read
from kafka_sink.errors.redaction import Secret
from kafka_sink.options.cautions import group_caution, log_once
from kafka_sink.options.config import given_options
from kafka_sink.options.reading import READING, ReadConfig, read_config
from kafka_sink.spark.interceptors import Interceptor

if TYPE_CHECKING:
    from kafka_sink.spark.reading.batch_reader import KafkaBatchReader
    from kafka_sink.spark.reading.stream_reader import KafkaStreamReader


def schema_of(options: Mapping[str, str], token: Secret | None) -> spark_types.StructType:
    """Return the columns of a read. Raises ConfigError.

    Spark does not tell whether the read is a batch or a stream. Only a batch names an end.
    """
    with of_read():
        names_an_end = any(field.startswith("ending_") for field in given_options(options, table=READING))
        config = _config(options, token, is_stream=not names_an_end)
        return whole_schema(include_headers=config.include_headers)


def reader_of(
    options: Mapping[str, str],
    schema: spark_types.StructType,
    token: Secret | None,
    interceptors: Sequence[Interceptor] = (),
) -> KafkaBatchReader:
    """Return the reader of the columns of `schema`. `token`: the pickled token callable. Raises ConfigError,
    SchemaError."""
    from kafka_sink.spark.reading.batch_reader import KafkaBatchReader

    with of_read():
        # Options first: a view that was made for writes has other columns, too.
        config = _config(options, token)
        check_user_schema(schema)
        return KafkaBatchReader(config, tuple(schema.names), interceptors)


def stream_reader_of(
    options: Mapping[str, str],
    schema: spark_types.StructType,
    token: Secret | None,
    interceptors: Sequence[Interceptor] = (),
) -> KafkaStreamReader:
    """Return the stream reader of the columns of `schema`; see `reader_of`."""
    from kafka_sink.spark.reading.stream_reader import KafkaStreamReader, check_limits

    with of_read():
        config = _config(options, token, is_stream=True)
        check_user_schema(schema)
        check_limits(config)
        log_once(group_caution(options, config.group_id))
        return KafkaStreamReader(config, tuple(schema.names), interceptors)


def _config(options: Mapping[str, str], token: Secret | None, *, is_stream: bool = False) -> ReadConfig:
    given = given_options(options, table=READING)
    return read_config(given if token is None else {**given, "token_callable": token}, is_stream=is_stream)


# --- columns ----------------------------------------------------------------------------------------------------------

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

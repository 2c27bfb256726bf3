"""Makes the schema and the reader of a read from its options. The data source imports it for reads only.

The process that asks for the schema makes no reader, and a batch has no stream's. So each imports what it makes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import types as spark_types

from kafka_sink.errors.failures import of_read
from kafka_sink.errors.redaction import Secret
from kafka_sink.options.cautions import group_caution, log_once
from kafka_sink.options.config import given_options
from kafka_sink.options.reading import READING, ReadConfig, read_config
from kafka_sink.spark.interceptors import Interceptor
from kafka_sink.spark.reading.columns import check_user_schema, whole_schema

if TYPE_CHECKING:
    from kafka_sink.spark.reading.batch_reader import KafkaBatchReader
    from kafka_sink.spark.reading.stream_reader import KafkaStreamReader


def schema_of(options: Mapping[str, str], token: Secret | None) -> spark_types.StructType:
    """Return the columns of a read. Raises ConfigError.

    Spark does not tell whether the read is a batch or a stream. Only a batch names an end.
    """
    with of_read():
        names_an_end = any(field.startswith("ending_") for field in given_options(options, table=READING))
        return whole_schema(include_headers=_config(options, token, is_stream=not names_an_end).include_headers)


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
    from kafka_sink.spark.reading.read_limits import check_limits
    from kafka_sink.spark.reading.stream_reader import KafkaStreamReader

    with of_read():
        config = _config(options, token, is_stream=True)
        check_user_schema(schema)
        check_limits(config)
        log_once(group_caution(options, config.group_id))
        return KafkaStreamReader(config, tuple(schema.names), interceptors)


def _config(options: Mapping[str, str], token: Secret | None, *, is_stream: bool = False) -> ReadConfig:
    given = given_options(options, table=READING)
    return read_config(given if token is None else {**given, "token_callable": token}, is_stream=is_stream)

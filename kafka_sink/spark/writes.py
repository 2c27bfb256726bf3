"""Makes the writer of a write from its options and columns. The data source imports it for writes only.

Options and columns are checked on the driver before any task, so a wrong one fails before the job starts. These checks
do not touch the cluster, because Spark also makes a writer in the committing process.

Only tasks merge the options with Spark's conf (`spark.pykafka.<option>`), because only tasks know the conf. Spark
passes every `spark.*` setting of the session to tasks as local properties. A stream has the settings of its `start()`.
Spark Connect works in the same way. The workers that plan and commit have no TaskContext, no session and no conf, and
`kafka_sink.register` may never have been called. Therefore:

* Here: check that each given option is known and valid, and that the given options do not contradict each other.
* In the task, before its first row: check the options from the conf, required options that are missing in both (such as
  the topic), and contradictions with the conf or with defaults. Such an error has sent no row either. Spark repeats it
  for each attempt of the task.
* `commit` must not use the conf. A task's message brings the settings that `commit` needs.

Source: PythonPlannerRunner.scala (the data sent to a planning worker), SQLExecution.withSQLConfPropagated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
from pyspark.sql import types as spark_types

from kafka_sink.errors import ColumnTypeMismatch, ContinuousTriggerUnsupported, WriteModeUnsupported
from kafka_sink.options.cautions import warn_of_given
from kafka_sink.options.config import GivenOptions, check_given, check_stream, given_options
from kafka_sink.records.columns import check_schema
from kafka_sink.spark.continuous import is_continuous
from kafka_sink.spark.interceptors import Interceptor
from kafka_sink.spark.writer import KafkaBatchWriter, KafkaStreamWriter
from kafka_sink.text.redaction import Secret


def writer_of(
    options: Mapping[str, str],
    schema: spark_types.StructType,
    overwrite: bool,
    token: Secret | None,
    interceptors: Sequence[Interceptor] = (),
) -> KafkaBatchWriter:
    """Return the writer of a batch. `token`: the pickled token callable.

    Raises ConfigError, SchemaError, WriteModeUnsupported.
    """
    given = _given(options, token)
    _check(given, schema, overwrite)
    return KafkaBatchWriter(given, tuple(interceptors))


def stream_writer_of(
    options: Mapping[str, str],
    schema: spark_types.StructType,
    overwrite: bool,
    token: Secret | None,
    interceptors: Sequence[Interceptor] = (),
) -> KafkaStreamWriter:
    """Return the writer of a stream; see `writer_of`. `overwrite`: the output mode is complete.

    Raises ContinuousTriggerUnsupported, too.
    """
    given = _given(options, token)
    check_stream(given)
    _check(given, schema, overwrite)
    checkpoint = options.get("checkpointlocation")
    if is_continuous(checkpoint):
        raise ContinuousTriggerUnsupported
    return KafkaStreamWriter(given, tuple(interceptors), checkpoint)


def _given(options: Mapping[str, str], token: Secret | None) -> GivenOptions:
    given = given_options(options)
    return given if token is None else {**given, "token_callable": token}


def _check(given: GivenOptions, schema: spark_types.StructType, overwrite: bool) -> None:
    check_given(given)
    warn_of_given(given)
    if overwrite:
        raise WriteModeUnsupported
    # Only the task can check the topic: the conf or an interceptor may set it.
    check_spark_schema(schema, topic_option=True)


def check_spark_schema(schema: spark_types.StructType, *, topic_option: bool) -> None:
    """Run `check_schema` for Spark's types of the columns. Raises SchemaError."""
    try:
        check_schema(
            pa.schema([(field.name, _arrow_type(field.dataType)) for field in schema]), topic_option=topic_option
        )
    except ColumnTypeMismatch as mismatch:
        found = schema[mismatch.column].dataType.simpleString()
        raise ColumnTypeMismatch(
            column=mismatch.column, found=found, expected=mismatch.expected, hint=mismatch.hint
        ) from None


# Spark types that a record accepts, and their Arrow types. Spark's own conversion is private, and its signature changes
# between versions.
_ARROW_TYPES: tuple[tuple[type[spark_types.DataType], pa.DataType], ...] = (
    (spark_types.StringType, pa.string()),
    (spark_types.CharType, pa.string()),
    (spark_types.VarcharType, pa.string()),
    (spark_types.BinaryType, pa.binary()),
    (spark_types.ByteType, pa.int8()),
    (spark_types.ShortType, pa.int16()),
    (spark_types.IntegerType, pa.int32()),
    (spark_types.TimestampType, pa.timestamp("us", "UTC")),
    (spark_types.TimestampNTZType, pa.timestamp("us")),
    (spark_types.NullType, pa.null()),
)


def _arrow_type(spark_type: spark_types.DataType) -> pa.DataType:
    """Return the Arrow type of a Spark type. Unsupported types become an opaque type that no column accepts."""
    if isinstance(spark_type, spark_types.ArrayType):
        return pa.list_(_arrow_type(spark_type.elementType))
    if isinstance(spark_type, spark_types.StructType):
        return pa.struct([(field.name, _arrow_type(field.dataType)) for field in spark_type])
    for known, arrow_type in _ARROW_TYPES:
        if isinstance(spark_type, known):
            return arrow_type
    return pa.opaque(pa.null(), spark_type.simpleString(), "spark")

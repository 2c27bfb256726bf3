"""The data source that Spark instantiates. It checks options and columns when the write is planned, and returns a
writer.

Both checks run on the driver before any task, so a wrong option or column fails before the job starts. They do not
touch the cluster, because Spark also makes a writer in the committing process.

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

import uuid
from collections.abc import Callable
from typing import ClassVar
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from kafka_sink.errors import (
    ColumnTypeMismatch,
    ContinuousTriggerUnsupported,
    FormatNotReplaced,
    ReadUnsupported,
    WriteModeUnsupported,
)
from kafka_sink.errors.failures import told_to_spark
from kafka_sink.kafka.registered_token import RegisteredToken
from kafka_sink.options.cautions import warn_of_given
from kafka_sink.options.config import GivenOptions, check_given, check_stream, given_options
from kafka_sink.records.columns import check_schema
from kafka_sink.spark.continuous import is_continuous
from kafka_sink.spark.interceptors import Interceptor
from kafka_sink.spark.writer import KafkaBatchWriter, KafkaStreamWriter
from kafka_sink.text.redaction import Secret

# With this option a read returns the interpreters that Spark runs (interpreters.py). Only `pykafka check` uses it.
INTERPRETERS = "pykafka.interpreters"
# Spark's own property of a table, by which CREATE TABLE is told from a read.
_OF_A_TABLE = "provider"


class KafkaDataSource(DataSource):
    """`format("pykafka")`. It writes and reads batches and streams."""

    interceptors: ClassVar[tuple[Interceptor, ...]] = ()
    # The pickled token callable that `register` received for OAUTHBEARER.
    token_callable: ClassVar[Secret | None] = None

    @classmethod
    def name(cls) -> str:
        return "pykafka"

    @told_to_spark()
    def writer(self, schema: spark_types.StructType, overwrite: bool) -> KafkaBatchWriter:
        """Return a writer for a batch write. Raises ConfigError, SchemaError, WriteModeUnsupported."""
        given = self._given()
        self._check(given, schema, overwrite)
        return KafkaBatchWriter(given, self.interceptors)

    @told_to_spark()
    def streamWriter(self, schema: spark_types.StructType, overwrite: bool) -> KafkaStreamWriter:
        """Return a writer for a stream. `overwrite`: the output mode is complete.

        Raises ConfigError, SchemaError, WriteModeUnsupported, ContinuousTriggerUnsupported.
        """
        given = self._given()
        check_stream(given)
        self._check(given, schema, overwrite)
        checkpoint = self.options.get("checkpointlocation")
        if is_continuous(checkpoint):
            raise ContinuousTriggerUnsupported
        return KafkaStreamWriter(given, self.interceptors, checkpoint)

    @told_to_spark()
    def schema(self) -> spark_types.StructType:
        """Return the columns of a read. Raises ConfigError, ReadUnsupported.

        Spark asks for it before a read, or to create a table without columns. It hands the options of a table to nobody
        who reads the table.
        """
        if _OF_A_TABLE in self.options:
            raise ReadUnsupported
        # Imported here and below, because writes do not need it.
        from kafka_sink.spark.reading.reads import schema_of

        return schema_of(self.options, self.token_callable)

    @told_to_spark()
    def reader(self, schema: spark_types.StructType) -> DataSourceReader:
        """Return the reader of a batch; or the one of interpreters, if the option INTERPRETERS is set.

        Raises ConfigError, SchemaError.
        """
        if INTERPRETERS in self.options:
            from kafka_sink.spark.interpreters import InterpreterReader

            return InterpreterReader()
        from kafka_sink.spark.reading.reads import reader_of

        return reader_of(self.options, schema, self.token_callable, self.interceptors)

    @told_to_spark()
    def streamReader(self, schema: spark_types.StructType) -> DataSourceStreamReader:
        """Return the reader of a stream. Raises ConfigError, SchemaError."""
        from kafka_sink.spark.reading.reads import stream_reader_of

        return stream_reader_of(self.options, schema, self.token_callable, self.interceptors)

    def _given(self) -> GivenOptions:
        given = given_options(self.options)
        return given if self.token_callable is None else {**given, "token_callable": self.token_callable}

    def _check(self, given: GivenOptions, schema: spark_types.StructType, overwrite: bool) -> None:
        check_given(given)
        warn_of_given(given)
        if overwrite:
            raise WriteModeUnsupported
        # Only the task can check the topic: the conf or an interceptor may set it.
        check_spark_schema(schema, topic_option=True)


def source_with(
    interceptors: tuple[Interceptor, ...], token: Callable[[], tuple[str, float]] | None = None
) -> type[KafkaDataSource]:
    """Return a data source class whose writes and reads use `interceptors` and `token`.

    It is a new class, because pickle stores an importable class by name, without attributes that were set on it. The
    new class is pickled with its attributes.
    """
    if not interceptors and token is None:
        return KafkaDataSource
    return type(
        "InterceptedKafkaDataSource",
        (KafkaDataSource,),
        {"interceptors": interceptors, "token_callable": pickled(token)},
    )


# The class that `register` gave each session. Spark has no call that returns the class of a format.
REGISTERED: WeakKeyDictionary[SparkSession, type[KafkaDataSource]] = WeakKeyDictionary()


def register_source(spark: SparkSession, source: type[KafkaDataSource]) -> None:
    """Register `source` as `format("pykafka")` of `spark`. Raises FormatNotReplaced, only on Spark 4.0."""
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        # Spark 4.0 does not replace a format that it found by itself; later versions do.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        if source is not KafkaDataSource:
            raise FormatNotReplaced(spark_version=spark.version) from None
    REGISTERED[spark] = source


def source_of(spark: SparkSession) -> type[KafkaDataSource] | None:
    """Return the class of `format("pykafka")` in `spark`, or None if unknown.

    It is unknown if this process registered a class for another session only: Spark copies sessions (foreachBatch)
    together with their registrations.
    """
    return REGISTERED.get(spark, None if REGISTERED else KafkaDataSource)


def registered(token: Callable[[], tuple[str, float]] | None) -> RegisteredToken | None:
    """Return a token callable as a registration of its own, unless it is one already. Raises TypeError."""
    if token is None or isinstance(token, RegisteredToken):
        return token
    if not callable(token):
        raise TypeError("token is a callable that returns a token and for how many seconds it is good")
    return RegisteredToken(uuid.uuid4().hex, token)


def pickled(token: Callable[[], tuple[str, float]] | None) -> Secret | None:
    """Return a token callable in the form for a configuration, which is bytes. Raises TypeError.

    A callable that each task unpickles is a different object each time. That would make a different configuration and a
    new producer for each task. Another registration makes another configuration, even of an equal callable.
    """
    found = registered(token)
    return None if found is None else Secret(cloudpickle.dumps(found))  # type: ignore[no-untyped-call]


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

"""The data source that Spark instantiates: checks options and columns while the write is planned, then hands out a
writer.

Both checks run on the driver, before any task, so that a wrong option or column costs a message and not a job. Neither
has an effect on the cluster: Spark also makes a writer in the process that commits.

Options are merged with Spark's conf (`spark.pykafka.<option>`) in the task and nowhere else, because only a task knows
the conf: Spark hands every `spark.*` setting of the session to tasks as local properties, for a stream as it was at
`start()`, through Spark Connect too. The workers that plan and commit get neither a TaskContext nor a session nor the
conf in their environment, and `kafka_sink.register` may never have been called. Therefore

* here: every option that was given is known, readable, and in no contradiction with the others that were given;
* in the task, before its first row: what the conf says in the same way, what is required and missing in both (a topic
  too), and contradictions with what the conf or a default says. Such an error has sent nothing either; Spark repeats
  it as often as it repeats tasks;
* nothing that `commit` needs may come from the conf, unless a task's message brings it.

Source: PythonPlannerRunner.scala (what a planning worker is sent), SQLExecution.withSQLConfPropagated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader

from kafka_sink.errors import ColumnTypeMismatch, ContinuousTriggerUnsupported, ReadUnsupported, WriteModeUnsupported
from kafka_sink.errors.failures import told_to_spark
from kafka_sink.options.cautions import warn_of_given
from kafka_sink.options.config import GivenOptions, check_given, check_stream, given_options
from kafka_sink.records.columns import check_schema
from kafka_sink.spark.continuous import is_continuous
from kafka_sink.spark.interceptors import Interceptor
from kafka_sink.spark.writer import KafkaBatchWriter, KafkaStreamWriter
from kafka_sink.text.redaction import Secret

# The option that makes a read ask which interpreters Spark runs (interpreters.py). It is for `pykafka check` alone.
INTERPRETERS = "pykafka.interpreters"


class KafkaDataSource(DataSource):
    """`format("pykafka")`. Writes; does not read."""

    interceptors: ClassVar[tuple[Interceptor, ...]] = ()
    # What `register` was given for OAUTHBEARER, pickled.
    token_callable: ClassVar[Secret | None] = None

    @classmethod
    def name(cls) -> str:
        return "pykafka"

    @told_to_spark()
    def writer(self, schema: spark_types.StructType, overwrite: bool) -> KafkaBatchWriter:
        """Raises ConfigError, SchemaError, WriteModeUnsupported."""
        given = self._given()
        self._check(given, schema, overwrite)
        return KafkaBatchWriter(given, self.interceptors)

    @told_to_spark()
    def streamWriter(self, schema: spark_types.StructType, overwrite: bool) -> KafkaStreamWriter:
        """Raises ConfigError, SchemaError, WriteModeUnsupported (`overwrite`: the output mode is complete),
        ContinuousTriggerUnsupported."""
        given = self._given()
        check_stream(given)
        self._check(given, schema, overwrite)
        checkpoint = self.options.get("checkpointlocation")
        if is_continuous(checkpoint):
            raise ContinuousTriggerUnsupported
        return KafkaStreamWriter(given, self.interceptors, checkpoint)

    @told_to_spark()
    def schema(self) -> spark_types.StructType:
        """Spark asks for it to read, and to make a table without columns. Raises ReadUnsupported."""
        raise ReadUnsupported

    @told_to_spark()
    def reader(self, schema: spark_types.StructType) -> DataSourceReader:
        """Raises ReadUnsupported, but to who asks which interpreters a write has."""
        if INTERPRETERS in self.options:
            # No write needs it.
            from kafka_sink.spark.interpreters import InterpreterReader

            return InterpreterReader()
        raise ReadUnsupported

    @told_to_spark()
    def streamReader(self, schema: spark_types.StructType) -> DataSourceStreamReader:
        """Raises ReadUnsupported."""
        raise ReadUnsupported

    def _given(self) -> GivenOptions:
        given = given_options(self.options)
        return given if self.token_callable is None else {**given, "token_callable": self.token_callable}

    def _check(self, given: GivenOptions, schema: spark_types.StructType, overwrite: bool) -> None:
        check_given(given)
        warn_of_given(given)
        if overwrite:
            raise WriteModeUnsupported
        # Where the topic comes from is the task's to say: it may be in the conf, or an interceptor's.
        check_spark_schema(schema, topic_option=True)


def source_with(
    interceptors: tuple[Interceptor, ...], token: Callable[[], tuple[str, float]] | None = None
) -> type[KafkaDataSource]:
    """The data source whose writes go through `interceptors`, and are authenticated by what `token` returns. A class of
    its own, because a class that can be imported is pickled by name, without what was set on it; this one can only be
    pickled with all that it holds."""
    if not interceptors and token is None:
        return KafkaDataSource
    return type(
        "InterceptedKafkaDataSource",
        (KafkaDataSource,),
        {"interceptors": interceptors, "token_callable": pickled(token)},
    )


# What `register` gave each session. Spark tells nobody what stands behind a format's name.
REGISTERED: WeakKeyDictionary[SparkSession, type[KafkaDataSource]] = WeakKeyDictionary()


def register_source(spark: SparkSession, source: type[KafkaDataSource]) -> None:
    """Makes `format("pykafka")` of `spark` mean `source`."""
    spark.dataSource.register(source)
    REGISTERED[spark] = source


def source_of(spark: SparkSession) -> type[KafkaDataSource] | None:
    """What `format("pykafka")` of `spark` means; None where that is not known, since this process registered one for
    another session: Spark copies sessions (foreachBatch) with all that is registered."""
    return REGISTERED.get(spark, None if REGISTERED else KafkaDataSource)


def pickled(token: Callable[[], tuple[str, float]] | None) -> Secret | None:
    """A token callable as a configuration has it: as bytes, since one that is unpickled anew in every task would be
    another configuration, and another producer, each time. Raises TypeError."""
    if token is None:
        return None
    if not callable(token):
        raise TypeError("token is a callable that returns a token and for how many seconds it is good")
    return Secret(cloudpickle.dumps(token))  # type: ignore[no-untyped-call]


def check_spark_schema(schema: spark_types.StructType, *, topic_option: bool) -> None:
    """`check_schema` for the columns as Spark names their types. Raises SchemaError."""
    try:
        check_schema(
            pa.schema([(field.name, _arrow_type(field.dataType)) for field in schema]), topic_option=topic_option
        )
    except ColumnTypeMismatch as mismatch:
        found = schema[mismatch.column].dataType.simpleString()
        raise ColumnTypeMismatch(
            column=mismatch.column, found=found, expected=mismatch.expected, hint=mismatch.hint
        ) from None


# Spark types that a record can take, and what they are in an Arrow batch. Spark's own conversion is private and its
# signature differs from version to version.
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
    """The Arrow type of a Spark type; for one that no record can take, a type that no column accepts."""
    if isinstance(spark_type, spark_types.ArrayType):
        return pa.list_(_arrow_type(spark_type.elementType))
    if isinstance(spark_type, spark_types.StructType):
        return pa.struct([(field.name, _arrow_type(field.dataType)) for field in spark_type])
    for known, arrow_type in _ARROW_TYPES:
        if isinstance(spark_type, known):
            return arrow_type
    return pa.opaque(pa.null(), spark_type.simpleString(), "spark")

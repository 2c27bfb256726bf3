"""The data source that Spark instantiates, and how a session gets it.

A process that only looks the format up, or that makes the source, imports no more than this. What a write needs is in
writes.py, what a read needs in reading/reads.py.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar
from weakref import WeakKeyDictionary

from kafka_sink.errors import FormatNotReplaced, ReadUnsupported
from kafka_sink.errors.failures import in_sail, told_to_spark
from kafka_sink.errors.installed import needs_pyspark
from kafka_sink.errors.redaction import Secret
from kafka_sink.kafka.config import RegisteredToken
from kafka_sink.spark import session
from kafka_sink.spark.interceptors import Interceptor

with needs_pyspark():
    from pyspark import cloudpickle
    from pyspark.errors import AnalysisException
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

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
    def writer(self, schema: StructType | pa.Schema, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch. Sail, and it alone, hands over Arrow's schema.

        Raises ConfigError, SchemaError, WriteModeUnsupported; on Sail PartitionsNotFixed, too.
        """
        if not isinstance(schema, StructType):
            from kafka_sink.spark import sail

            return sail.writer_of(self.options, schema, overwrite, self.token_callable, self.interceptors)
        from kafka_sink.spark.writes import writer_of

        return writer_of(self.options, schema, overwrite, self.token_callable, self.interceptors)

    @told_to_spark()
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer of a stream. `overwrite`: the output mode is complete.

        Raises ConfigError, SchemaError, WriteModeUnsupported, ContinuousTriggerUnsupported.
        """
        from kafka_sink.spark.writes import stream_writer_of

        return stream_writer_of(self.options, schema, overwrite, self.token_callable, self.interceptors)

    @told_to_spark()
    def schema(self) -> StructType:
        """Return the columns of a read. Raises ConfigError, ReadUnsupported.

        Spark asks for it before a read, or to create a table without columns. It does not give the options of a
        table to those who read the table.
        """
        if _OF_A_TABLE in self.options:
            raise ReadUnsupported
        from kafka_sink.spark.reading.reads import schema_of

        found = schema_of(self.options, self.token_callable)
        if in_sail():
            from kafka_sink.spark import sail

            return sail.ReadSchema(found.fields)
        return found

    @told_to_spark()
    def reader(self, schema: StructType | pa.Schema) -> DataSourceReader:
        """Return the reader of a batch; or the one of interpreters, if the option INTERPRETERS is set. Sail, and it
        alone, hands over Arrow's schema.

        Raises ConfigError, SchemaError.
        """
        if INTERPRETERS in self.options:
            from kafka_sink.spark.interpreters import InterpreterReader

            return InterpreterReader()
        if not isinstance(schema, StructType):
            from kafka_sink.spark import sail

            return sail.reader_of(self.options, schema, self.token_callable, self.interceptors)
        from kafka_sink.spark.reading.reads import reader_of

        return reader_of(self.options, schema, self.token_callable, self.interceptors)

    @told_to_spark()
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream. Raises ConfigError, SchemaError."""
        from kafka_sink.spark.reading.reads import stream_reader_of

        return stream_reader_of(self.options, schema, self.token_callable, self.interceptors)


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
    session.use(spark)
    try:
        spark.dataSource.register(source)
    except AnalysisException as error:
        # Spark 4.0 does not replace a format that it found by itself; later versions do.
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise
        if source is not KafkaDataSource:
            raise FormatNotReplaced(spark_version=spark.version) from None
    REGISTERED[spark] = source


def make_findable(spark: SparkSession) -> None:
    """Register the format where Spark cannot find it by itself and the caller has not done so."""
    if spark not in REGISTERED and session.use(spark):
        register_source(spark, KafkaDataSource)


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

"""The data source that Spark instantiates: checks options and columns while the write is planned, then hands out a
writer.

Both checks run on the driver, before any task, so that a wrong option or column costs a message and not a job. Neither
has an effect on the cluster: Spark also makes a writer in the process that commits.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as spark_types
from pyspark.sql.datasource import DataSource

from kafka_sink.config import SinkConfig, sink_config
from kafka_sink.errors import ColumnTypeMismatch, ContinuousTriggerUnsupported, WriteModeUnsupported
from kafka_sink.records.columns import check_schema
from kafka_sink.spark.continuous import is_continuous
from kafka_sink.spark.writer import KafkaBatchWriter, KafkaStreamWriter


class KafkaDataSource(DataSource):
    """`format("pykafka")`. Writes; does not read."""

    @classmethod
    def name(cls) -> str:
        return "pykafka"

    def writer(self, schema: spark_types.StructType, overwrite: bool) -> KafkaBatchWriter:
        """Raises ConfigError, SchemaError, WriteModeUnsupported."""
        return KafkaBatchWriter(self._checked_config(schema, overwrite))

    def streamWriter(self, schema: spark_types.StructType, overwrite: bool) -> KafkaStreamWriter:
        """Raises ConfigError, SchemaError, WriteModeUnsupported (`overwrite`: the output mode is complete),
        ContinuousTriggerUnsupported."""
        config = self._checked_config(schema, overwrite)
        if is_continuous(self.options.get("checkpointlocation")):
            raise ContinuousTriggerUnsupported
        return KafkaStreamWriter(config)

    def _checked_config(self, schema: spark_types.StructType, overwrite: bool) -> SinkConfig:
        config = sink_config(self.options)
        if overwrite:
            raise WriteModeUnsupported
        check_spark_schema(schema, topic_option=config.topic is not None)
        return config


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

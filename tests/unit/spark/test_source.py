from __future__ import annotations

import pickle

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DecimalType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from kafka_sink.errors import ColumnTypeMismatch, MissingColumn, MissingOption, UnexpectedColumn, WriteModeUnsupported
from kafka_sink.spark.source import KafkaDataSource, check_spark_schema

OPTIONS = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}
VALUE = StructType([StructField("value", BinaryType())])
HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def schema(**types: object) -> StructType:
    return StructType([StructField(name, type_) for name, type_ in types.items()])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "columns",
    [
        {"value": BinaryType()},
        {"value": StringType()},
        {"value": VarcharType(10)},
        {"value": NullType()},
        {"value": BinaryType(), "key": StringType(), "headers": HEADERS, "timestamp": TimestampType()},
        {"value": BinaryType(), "timestamp": TimestampNTZType(), "partition": IntegerType()},
        {"value": BinaryType(), "partition": ShortType()},
        {"value": BinaryType(), "partition": ByteType()},
    ],
)
def test_columns_that_a_record_can_take(columns: dict[str, object]) -> None:
    check_spark_schema(schema(**columns), topic_option=True)


@pytest.mark.parametrize(
    ("columns", "error", "column"),
    [
        ({"key": BinaryType()}, MissingColumn, "value"),
        ({"value": LongType()}, ColumnTypeMismatch, "value"),
        ({"value": BinaryType(), "key": DecimalType(10, 2)}, ColumnTypeMismatch, "key"),
        ({"value": BinaryType(), "partition": LongType()}, ColumnTypeMismatch, "partition"),
        ({"value": BinaryType(), "headers": ArrayType(StringType())}, ColumnTypeMismatch, "headers"),
        ({"value": BinaryType(), "id": LongType()}, UnexpectedColumn, "id"),
    ],
)
def test_columns_that_it_cannot(columns: dict[str, object], error: type[Exception], column: str) -> None:
    with pytest.raises(error) as failure:
        check_spark_schema(schema(**columns), topic_option=True)
    assert failure.value.column == column  # type: ignore[attr-defined]


def test_types_are_named_as_spark_names_them() -> None:
    with pytest.raises(ColumnTypeMismatch) as failure:
        check_spark_schema(schema(value=DecimalType(10, 2)), topic_option=True)
    assert failure.value.found == "decimal(10,2)"


def test_a_topic_comes_from_the_option_or_the_column() -> None:
    check_spark_schema(schema(value=BinaryType(), topic=StringType()), topic_option=False)
    with pytest.raises(MissingColumn):
        check_spark_schema(VALUE, topic_option=False)


def test_writers_are_pickled_with_their_options_and_made_without_a_cluster() -> None:
    source = KafkaDataSource(OPTIONS)
    for writer in (source.writer(schema=VALUE, overwrite=False), source.streamWriter(schema=VALUE, overwrite=False)):
        again = pickle.loads(pickle.dumps(writer))
        assert again.config == writer.config
        assert again.config.topic == "t"


def test_overwrite_and_bad_options_are_refused_for_both_kinds() -> None:
    with pytest.raises(WriteModeUnsupported):
        KafkaDataSource(OPTIONS).writer(schema=VALUE, overwrite=True)
    with pytest.raises(WriteModeUnsupported):
        KafkaDataSource(OPTIONS).streamWriter(schema=VALUE, overwrite=True)
    with pytest.raises(MissingOption):
        KafkaDataSource({"topic": "t"}).streamWriter(schema=VALUE, overwrite=False)


def test_the_module_that_spark_looks_for_has_it() -> None:
    import pyspark_pykafka

    assert pyspark_pykafka.DefaultSource is KafkaDataSource
    assert KafkaDataSource.name() == "pykafka"

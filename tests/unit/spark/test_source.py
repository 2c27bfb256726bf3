from __future__ import annotations

import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import AnalysisException
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

import kafka_sink
from kafka_sink import Interceptor, errors
from kafka_sink.spark import source
from kafka_sink.spark.source import KafkaDataSource, source_of, source_with
from kafka_sink.spark.writes import check_spark_schema
from kafka_sink.text.redaction import Secret

OPTIONS = {"kafka.bootstrap.servers": "localhost:9092", "topic": "t"}
VALUE = StructType([StructField("value", BinaryType())])
HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def schema(**types: object) -> StructType:
    return StructType([StructField(name, type_) for name, type_ in types.items()])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "columns",
    [
        {"value": BinaryType()}, {"value": StringType()}, {"value": VarcharType(10)}, {"value": NullType()},
        {"value": BinaryType(), "key": StringType(), "headers": HEADERS, "timestamp": TimestampType()},
        {"value": BinaryType(), "timestamp": TimestampNTZType(), "partition": IntegerType()},
        {"value": BinaryType(), "partition": ShortType()}, {"value": BinaryType(), "partition": ByteType()},
    ],
)  # fmt: skip
def test_columns_that_a_record_can_take(columns: dict[str, object]) -> None:
    check_spark_schema(schema(**columns), topic_option=True)


@pytest.mark.parametrize(
    ("columns", "error", "column"),
    [
        ({"key": BinaryType()}, errors.MissingColumn, "value"),
        ({"value": LongType()}, errors.ColumnTypeMismatch, "value"),
        ({"value": BinaryType(), "key": DecimalType(10, 2)}, errors.ColumnTypeMismatch, "key"),
        ({"value": BinaryType(), "partition": LongType()}, errors.ColumnTypeMismatch, "partition"),
        ({"value": BinaryType(), "headers": ArrayType(StringType())}, errors.ColumnTypeMismatch, "headers"),
        ({"value": BinaryType(), "id": LongType()}, errors.UnexpectedColumn, "id"),
    ],
)
def test_columns_that_it_cannot(columns: dict[str, object], error: type[Exception], column: str) -> None:
    with pytest.raises(error) as failure:
        check_spark_schema(schema(**columns), topic_option=True)
    assert failure.value.column == column  # type: ignore[attr-defined]
    # Types are named as Spark names them.
    assert column != "key" or failure.value.found == "decimal(10,2)"  # type: ignore[attr-defined]


def test_a_topic_comes_from_the_option_the_column_or_the_conf() -> None:
    check_spark_schema(schema(value=BinaryType(), topic=StringType()), topic_option=False)
    with pytest.raises(errors.MissingColumn):
        check_spark_schema(VALUE, topic_option=False)
    for options in ({}, {"kafka.delivery.timeout.ms": "100"}):
        KafkaDataSource(options).streamWriter(schema=VALUE, overwrite=False)


def test_writers_are_pickled_with_their_options_and_made_without_a_cluster() -> None:
    source = KafkaDataSource(OPTIONS)
    for writer in (source.writer(schema=VALUE, overwrite=False), source.streamWriter(schema=VALUE, overwrite=False)):
        again = pickle.loads(pickle.dumps(writer))
        assert again.options == writer.options == {"bootstrap_servers": (("localhost", 9092),), "topic": "t"}


def test_overwrite_and_bad_options_are_refused_for_both_kinds() -> None:
    with pytest.raises(errors.WriteModeUnsupported):
        KafkaDataSource(OPTIONS).writer(schema=VALUE, overwrite=True)
    with pytest.raises(errors.WriteModeUnsupported):
        KafkaDataSource(OPTIONS).streamWriter(schema=VALUE, overwrite=True)
    for options, error in (
        ({"kafka.lingerms": "1"}, errors.UnknownOption),
        ({"kafka.acks": "2"}, errors.InvalidOption),
        ({"kafka.acks": "1", "kafka.enable.idempotence": "true"}, errors.InvalidOption),
        ({"kafka.partitioner.class": "x"}, errors.RefusedOption),
    ):
        for make in (KafkaDataSource(OPTIONS | options).writer, KafkaDataSource(OPTIONS | options).streamWriter):
            with pytest.raises(error):
                make(schema=VALUE, overwrite=False)


def test_a_version_is_for_batch_writes() -> None:
    versioned = KafkaDataSource(OPTIONS | {"deliveryguarantee": "exactly-once", "txnappid": "a", "txnversion": "0"})
    assert versioned.writer(schema=VALUE, overwrite=False).options["txn_version"] == 0
    with pytest.raises(errors.RefusedOption, match="In foreachBatch, set it on the batch write"):
        versioned.streamWriter(schema=VALUE, overwrite=False)
    with pytest.raises(errors.RefusedOption, match="txnAppId"):
        KafkaDataSource(OPTIONS | {"txnappid": "a"}).streamWriter(schema=VALUE, overwrite=False)
    with pytest.raises(errors.InvalidOption, match="txnVersion with it"):
        KafkaDataSource(OPTIONS | {"txnappid": "a"}).writer(schema=VALUE, overwrite=False)


class Marked(Interceptor):
    def __init__(self, mark: str) -> None:
        self.mark = mark


def test_interceptors_travel_with_the_class_and_each_write_has_its_own() -> None:
    """As Spark sends it: the class by cloudpickle to the process that plans, the writer from there to each task."""
    sent = source_with((Marked("a"), Marked("b")))
    planned = pickle.loads(cloudpickle.dumps(sent))(OPTIONS)
    assert planned.name() == "pykafka"
    for make in (planned.writer, planned.streamWriter):
        writer = cloudpickle.dumps(make(schema=VALUE, overwrite=False))
        first, second = pickle.loads(writer).interceptors, pickle.loads(writer).interceptors
        assert [one.mark for one in first] == [one.mark for one in second] == ["a", "b"]
        assert not set(map(id, first)) & set(map(id, second))


def test_what_a_sessions_format_means_is_known_or_said_to_be_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "REGISTERED", {})

    class Session:
        dataSource = SimpleNamespace(register=lambda registered: None)

    one: Any = Session()
    copied: Any = Session()
    assert source_of(one) is KafkaDataSource
    kafka_sink.register(one, interceptors=[Marked("a")])
    found = source_of(one)
    assert found is not None and [each.mark for each in found.interceptors] == ["a"]  # type: ignore[attr-defined]
    assert source_of(copied) is None
    kafka_sink.register(copied)
    assert source_of(copied) is KafkaDataSource


class Refusal(AnalysisException):
    """An exception of the JVM: Python's own exceptions do not have its condition."""

    def __init__(self, condition: str) -> None:
        super().__init__(message=condition)
        self.condition = condition

    def getCondition(self) -> str:
        return self.condition


class KeepsItsFormats:
    """A session of Spark 4.0, which has found the format by itself."""

    version = "4.0.5"

    def __init__(self, condition: str) -> None:
        self.condition = condition

    @property
    def dataSource(self) -> KeepsItsFormats:
        return self

    def register(self, source: type[KafkaDataSource]) -> None:
        raise Refusal(self.condition)


def test_spark_4_0_keeps_the_format_that_it_has_found() -> None:
    session: Any = KeepsItsFormats("DATA_SOURCE_ALREADY_EXISTS")
    kafka_sink.register(session)
    assert source_of(session) is KafkaDataSource
    with pytest.raises(errors.FormatNotReplaced, match=r"Spark 4\.0\.5"):
        kafka_sink.register(session, interceptors=[Marked("a")])
    with pytest.raises(errors.FormatNotReplaced):
        kafka_sink.register(session, token=lambda: ("token", 60.0))
    session: Any = KeepsItsFormats("DATA_SOURCE_NOT_FOUND")
    with pytest.raises(AnalysisException):
        kafka_sink.register(session)


def test_a_token_callable_travels_with_the_options_and_shows_itself_to_nobody() -> None:
    secret = "canary-1a2b"
    source = source_with((), lambda: (secret, 60.0))
    again: type[KafkaDataSource] = cloudpickle.loads(cloudpickle.dumps(source))
    schema = StructType([StructField("value", StringType())])
    writer = again({"topic": "t"}).writer(schema, overwrite=False)
    assert isinstance(writer.options["token_callable"], Secret)
    assert secret not in repr(writer.options) + repr(vars(again))
    assert pickle.loads(writer.options["token_callable"].value)() == (secret, 60.0)
    assert source_with(()) is KafkaDataSource

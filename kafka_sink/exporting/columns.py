"""The columns of a Kafka record, of any DataFrame, by Spark's own functions.

    value      "json": the whole row; "avro", "protobuf", or "json" with a registry: the whole row, framed for a Schema
               Registry; another name, or a Column: that one; None: the DataFrame is a record's already
    key        a name or a Column; whole numbers, booleans, dates, and decimals of at most 6 decimal places become their
               text, as a reader with StringDeserializer expects. kafka_sink.functions has the bytes of LongSerializer
               and its like
    headers    {name: column or value}: a str names a column, `F.lit` or anything that is no str is a value; or a column
               of headers
    partition, timestamp, topic
               a name or a Column

JSON is Spark's `to_json` of every column, those that are the key or a header as well: a value that needs no key to be
understood outlives both. Fields that are null are left out, as `to_json` does, and no row becomes a tombstone. Times
have their microseconds, which `to_json` cuts off unless told otherwise.

A DataFrame that is a record's already keeps the record's columns that no argument names. Any other column of it must be
one that an argument names: who forgot `value="json"` would lose it without a word.

Types are asked of Spark, once, after the user's expressions are in a frame of their own; so a `Column` of any frame's
flavour will do, and everything is an expression of the JVM's but what `registry` makes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark_types

from kafka_sink.errors import ColumnTypeMismatch, InvalidArgument, MissingColumn, UnexpectedColumn
from kafka_sink.records.columns import COLUMNS

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import SchemaRegistryClient

ColumnOrName = Column | str
Headers = Mapping[str, object] | ColumnOrName

WHOLE_ROW = ("json", "avro", "protobuf")
# Spark's own formats end at milliseconds. A time is told in the session's zone, with its offset.
TO_JSON = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
# In front of a name while the DataFrame's own columns are still beside the record's.
STAGED = "__pykafka_"
_HEADER = "header_"

_BYTES = (
    spark_types.StringType, spark_types.CharType, spark_types.VarcharType, spark_types.BinaryType
)  # fmt: skip
# A cast makes a partition of what is none, as 1.9 or "1e0", and what it refuses depends on spark.sql.ansi.enabled.
_INTS = (spark_types.ByteType, spark_types.ShortType, spark_types.IntegerType, spark_types.NullType)
_MAX_INT = 2**31 - 1
# Types whose text is the same wherever and whenever it is made: not a float's, nor a time's, which has a zone.
_PLAIN_TEXT = (
    spark_types.ByteType, spark_types.ShortType, spark_types.IntegerType, spark_types.LongType,
    spark_types.BooleanType, spark_types.DateType, spark_types.NullType,
)  # fmt: skip
# Without ANSI a decimal's text is that of java.math.BigDecimal.toString: 1E-7, with it 0.0000001. They are the same
# while the exponent of its first digit is -6 or more, which is so of every value, 0 too, with six decimal places.
_MAX_PLAIN_SCALE = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnArguments:
    """What the user says of the record. `topic`: None where an option has it."""

    key: ColumnOrName | None = None
    value: ColumnOrName | None = None
    headers: Headers | None = None
    partition: ColumnOrName | None = None
    timestamp: ColumnOrName | None = None
    topic: Column | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Framing:
    """For a Schema Registry; `registry` is its options, or a client of it."""

    topic: str | None
    registry: Mapping[str, Any] | SchemaRegistryClient | None = None
    schema: str | type | None = None
    subject: str = "topic"


def staged(frame: DataFrame, arguments: ColumnArguments, framing: Framing) -> tuple[DataFrame, dict[str, Column]]:
    """`frame` with the user's expressions behind its own columns, and the record's columns over it, by name.

    Raises InvalidArgument, SchemaError, and what the registry raises.
    """
    raw = _raw(frame, arguments, framing)
    with_raw = frame.select("*", *(column.alias(STAGED + name) for name, column in raw.items()))
    types = {name: with_raw.schema[STAGED + name].dataType for name in raw}
    record = {name: F.col(STAGED + name) for name in raw if not name.startswith(_HEADER)}
    if "key" in record:
        record["key"] = _bytes(record["key"], types["key"], "key")
    if "partition" in record:
        record["partition"] = _partition(record["partition"], types["partition"])
    if isinstance(arguments.headers, Mapping) and arguments.headers:
        record["headers"] = F.array(
            *(
                F.struct(F.lit(name).alias("key"), _header(with_raw, position, name).alias("value"))
                for position, name in enumerate(arguments.headers)
            )
        )
    return with_raw, record


def record_frame(frame: DataFrame, record: Mapping[str, Column]) -> DataFrame:
    """The record's columns alone."""
    return frame.select(*(column.alias(name) for name, column in record.items()))


def _raw(frame: DataFrame, arguments: ColumnArguments, framing: Framing) -> dict[str, Column]:
    """By the record's names, as the user gave them; each header of a mapping on its own."""
    if framing.schema is not None and framing.registry is None:
        raise InvalidArgument(argument="schema", reason="it is for a Schema Registry: give registry=... beside it.")
    named = {
        "topic": arguments.topic, "key": arguments.key, "partition": arguments.partition,
        "timestamp": arguments.timestamp,
    }  # fmt: skip
    raw = {name: _column(frame, given, name) for name, given in named.items() if given is not None}
    if isinstance(arguments.headers, Mapping):
        raw |= {
            f"{_HEADER}{position}": _column(frame, given, f"headers[{name!r}]") if _is_column(given) else F.lit(given)
            for position, (name, given) in enumerate(arguments.headers.items())
        }
    elif arguments.headers is not None:
        raw["headers"] = _column(frame, arguments.headers, "headers")
    if arguments.value is None:
        return _of_a_record(frame, arguments, framing) | raw
    return raw | {"value": _value(frame, arguments.value, framing)}


def _of_a_record(frame: DataFrame, arguments: ColumnArguments, framing: Framing) -> dict[str, Column]:
    """The columns of a DataFrame that is a record's already. Raises MissingColumn, UnexpectedColumn."""
    if framing.registry is not None:
        raise InvalidArgument(argument="registry", reason='say value="avro", "protobuf" or "json" beside it.')
    if "value" not in frame.columns:
        raise MissingColumn(
            column="value",
            found=frame.columns,
            hint='value="json" makes one of all columns; value=... names another, or is a Column.',
        )
    of_headers = arguments.headers.values() if isinstance(arguments.headers, Mapping) else (arguments.headers,)
    mentioned = {
        given
        for given in (arguments.key, arguments.partition, arguments.timestamp, *of_headers)
        if isinstance(given, str)
    }
    for name in frame.columns:
        if name not in COLUMNS and name not in mentioned:
            raise UnexpectedColumn(column=name, allowed=tuple(COLUMNS))
    # A topic that is an option wins over the rows' own.
    kept = [name for name in frame.columns if name in COLUMNS and (name != "topic" or framing.topic is None)]
    return {name: F.col(name) for name in kept}


def _value(frame: DataFrame, value: ColumnOrName, framing: Framing) -> Column:
    form = value if isinstance(value, str) and value in WHOLE_ROW else None
    if framing.registry is None:
        if form is None:
            return _column(frame, value, "value")
        if form == "json":
            return F.to_json(F.struct("*"), TO_JSON)
        raise InvalidArgument(
            argument="registry",
            reason=f'value="{form}" is framed for a Schema Registry: give its address, registry={{"url": ...}}.',
        )
    if form is None:
        raise InvalidArgument(argument="registry", reason='say value="avro", "protobuf" or "json" beside it.')
    if framing.topic is None:
        raise InvalidArgument(argument="topic", reason="a Schema Registry's subjects need one topic, by its name.")
    from kafka_sink.registry import serialized

    return serialized(
        frame,
        frame.columns,
        topic=framing.topic,
        form=form,
        registry=framing.registry,
        subject=framing.subject,
        schema=framing.schema,
    )


def _is_column(given: object) -> bool:
    return isinstance(given, Column | str)


def _column(frame: DataFrame, given: Any, argument: str) -> Column:
    """Raises MissingColumn for a name that is none, TypeError for what is neither name nor Column."""
    if isinstance(given, Column):
        return given
    if not isinstance(given, str):
        raise TypeError(f"{argument}: a column's name or a Column, not {type(given).__name__}")
    # The name of a column, as `F.col` takes it: `a.b` is a field of the column a.
    if given not in frame.columns and given.partition(".")[0].strip("`").lower() not in map(str.lower, frame.columns):
        raise MissingColumn(
            column=given, found=frame.columns, hint=f"{argument} names a column; F.lit({given!r}) is a value."
        )
    return F.col(given)


def _header(with_raw: DataFrame, position: int, name: str) -> Column:
    staged_name = f"{STAGED}{_HEADER}{position}"
    return _bytes(F.col(staged_name), with_raw.schema[staged_name].dataType, f"headers[{name!r}]").cast("binary")


def _bytes(column: Column, spark_type: spark_types.DataType, name: str) -> Column:
    """As it is, or its text. Raises ColumnTypeMismatch."""
    if isinstance(spark_type, _BYTES):
        return column
    if isinstance(spark_type, _PLAIN_TEXT) or _is_plain_decimal(spark_type):
        return column.cast("string")
    raise ColumnTypeMismatch(
        column=name,
        found=spark_type.simpleString(),
        expected="binary, string, or a whole number, boolean, date, or decimal of at most 6 decimal places, which "
        "becomes its text",
        hint="Convert it, e.g. .cast('string'), F.to_json(...), or kafka_sink.functions for the bytes that Kafka's own "
        "serializers write.",
    )


def _is_plain_decimal(spark_type: spark_types.DataType) -> bool:
    # A legacy setting allows scales below 0, whose text is 1E+2.
    return isinstance(spark_type, spark_types.DecimalType) and 0 <= spark_type.scale <= _MAX_PLAIN_SCALE


def _partition(column: Column, spark_type: spark_types.DataType) -> Column:
    """As an int. A long that is none fails the query, with or without ANSI, and is not quoted. Raises
    ColumnTypeMismatch."""
    if isinstance(spark_type, _INTS):
        return column.cast("int")
    if isinstance(spark_type, spark_types.LongType):
        refusal = F.raise_error("partition: a row names one that is outside int, -2147483648 to 2147483647")
        return F.when(column.isNull() | column.between(-_MAX_INT - 1, _MAX_INT), column.cast("int")).otherwise(refusal)
    raise ColumnTypeMismatch(
        column="partition",
        found=spark_type.simpleString(),
        expected="a byte, short, int or long",
        hint="Convert it, e.g. .cast('int').",
    )


def names(given: ColumnOrName | Sequence[ColumnOrName]) -> tuple[ColumnOrName, ...]:
    """One or several."""
    return (given,) if isinstance(given, Column | str) else tuple(given)

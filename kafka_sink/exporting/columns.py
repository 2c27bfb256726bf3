"""Makes the columns of a Kafka record from any DataFrame, by Spark's own functions.

    value      "json": the whole row; "avro", "protobuf", or "json" with a registry: the whole row, framed for a Schema
               Registry; another name, or a Column: that column; None: the DataFrame already has a record's columns
    key        a name or a Column; whole numbers, booleans, dates, and decimals of at most 6 decimal places become their
               text, as a reader with StringDeserializer expects. kafka_sink.functions has the bytes of LongSerializer
               and similar serializers
    headers    {name: column or value}: a str names a column, `F.lit` or any other type is a value; or a column of
               headers
    partition, timestamp, topic
               a name or a Column

JSON is Spark's `to_json` of all columns, also of the key and of headers, so that the value is complete without its key.
A `dead_letter` of `kafka_sink.registry.deserialized` goes to the sink as it is.
As usual with `to_json`, null fields are omitted. No row becomes a tombstone. Times have microseconds, which `to_json`
truncates by default.

A DataFrame with a record's columns keeps those that no argument names. Each other column must be named by an argument:
without this rule, a user who forgot `value="json"` would silently lose it.

The user's expressions are put into a frame, and Spark is asked once for their types. So `Column`s of classic Spark and
of Spark Connect both work. Only `registry` needs Python on executors; all other expressions run in the JVM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as spark_types

from kafka_sink.errors import ColumnTypeMismatch, DuplicateColumn, InvalidArgument, MissingColumn, UnexpectedColumn
from kafka_sink.records.columns import COLUMNS, DEAD_LETTER, is_dead_letter
from kafka_sink.spark.writes import arrow_type

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

ColumnOrName = Column | str
Headers = Mapping[str, object] | ColumnOrName

WHOLE_ROW = ("json", "avro", "protobuf")
# Spark's default formats end at milliseconds. A time has the session's time zone, with its offset.
TO_JSON = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"}
# The prefix of the record's columns while the frame still has the DataFrame's own columns too.
STAGED = "__pykafka_"
_HEADER = "header_"

_BYTES = (
    spark_types.StringType, spark_types.CharType, spark_types.VarcharType, spark_types.BinaryType
)  # fmt: skip
# Other types are refused: a cast would accept 1.9 or "1e0", and its errors depend on spark.sql.ansi.enabled.
_INTS = (spark_types.ByteType, spark_types.ShortType, spark_types.IntegerType, spark_types.NullType)
_MAX_INT = 2**31 - 1
# Types whose text is always the same. A float's text is not, and a time's text depends on the time zone.
_PLAIN_TEXT = (
    spark_types.ByteType, spark_types.ShortType, spark_types.IntegerType, spark_types.LongType,
    spark_types.BooleanType, spark_types.DateType, spark_types.NullType,
)  # fmt: skip
# A decimal's text is 1E-7 without ANSI (java.math.BigDecimal.toString) and 0.0000001 with ANSI. Both are the same for
# exponents of -6 and more, so for all values with up to six decimal places.
_MAX_PLAIN_SCALE = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnArguments:
    """The user's arguments for the record's columns. `registry` has the client's options, or is a client."""

    topic: str | Column
    key: ColumnOrName | None = None
    value: ColumnOrName | None = None
    headers: Headers | None = None
    partition: ColumnOrName | None = None
    timestamp: ColumnOrName | None = None
    registry: Mapping[str, Any] | SchemaRegistryClient | None = None
    schema: str | Schema | type | None = None
    subject: str = "topic"

    @property
    def topic_name(self) -> str | None:
        """The topic of all rows, which is an option of the write. None: each row has its own."""
        return self.topic if isinstance(self.topic, str) else None


def staged(frame: DataFrame, arguments: ColumnArguments) -> tuple[DataFrame, dict[str, Column]]:
    """Return `frame` with the user's expressions as further columns, and the record's columns by name.

    Raises InvalidArgument, SchemaError, and the errors of the registry.
    """
    raw = _raw(frame, arguments)
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
    """Return a frame with only the record's columns."""
    return frame.select(*(column.alias(name) for name, column in record.items()))


def _raw(frame: DataFrame, arguments: ColumnArguments) -> dict[str, Column]:
    """Return the user's columns by the record's names. Each header of a mapping is a column."""
    if arguments.schema is not None and arguments.registry is None:
        raise InvalidArgument(argument="schema", reason="it is for a Schema Registry: give registry=... too.")
    named = {
        "topic": arguments.topic if arguments.topic_name is None else None,
        "key": arguments.key,
        "partition": arguments.partition,
        "timestamp": arguments.timestamp,
    }
    raw = {name: _column(frame, given, name) for name, given in named.items() if given is not None}
    if isinstance(arguments.headers, Mapping):
        raw |= {
            f"{_HEADER}{position}": _column(frame, given, f"headers[{name!r}]") if _is_column(given) else F.lit(given)
            for position, (name, given) in enumerate(arguments.headers.items())
        }
    elif arguments.headers is not None:
        raw["headers"] = _column(frame, arguments.headers, "headers")
    if arguments.value is None:
        return _of_a_record(frame, arguments) | raw
    letters = {DEAD_LETTER: F.col(DEAD_LETTER)} if _has_letters(frame) else {}
    return raw | letters | {"value": _value(frame, arguments.value, arguments)}


def _has_letters(frame: DataFrame) -> bool:
    """Return True if the rows bring records that could not be decoded, which are no part of a value."""
    is_there = frame.columns.count(DEAD_LETTER) == 1
    return is_there and is_dead_letter(arrow_type(frame.schema[DEAD_LETTER].dataType))


def _of_a_record(frame: DataFrame, arguments: ColumnArguments) -> dict[str, Column]:
    """Return the columns of a DataFrame that has a record's columns. Raises MissingColumn, UnexpectedColumn."""
    if arguments.registry is not None:
        raise InvalidArgument(argument="registry", reason='give value="avro", "protobuf" or "json" too.')
    if "value" not in frame.columns:
        raise MissingColumn(
            column="value",
            found=frame.columns,
            hint='value="json" makes it from all columns; value=... names another column, or is a Column.',
        )
    of_headers = arguments.headers.values() if isinstance(arguments.headers, Mapping) else (arguments.headers,)
    given = {
        each for each in (arguments.key, arguments.partition, arguments.timestamp, *of_headers) if isinstance(each, str)
    }
    otherwise = {_otherwise(frame.columns, each) for each in given - set(frame.columns)}
    for name in frame.columns:
        if name not in COLUMNS and name not in given and name.lower() not in otherwise:
            raise UnexpectedColumn(column=name, allowed=tuple(COLUMNS))
        if name in COLUMNS and frame.columns.count(name) > 1:
            raise DuplicateColumn(column=name)
    # A topic option overrides the rows' own topics.
    kept = [name for name in frame.columns if name in COLUMNS and (name != "topic" or arguments.topic_name is None)]
    return {name: F.col(name) for name in kept}


def _otherwise(columns: Sequence[str], given: str) -> str:
    """Return in lower case which column an argument names that is no column's very name: `named` looks for the name in
    another case first, then for the one within backticks."""
    inner = _unquoted(given)
    return given.lower() if inner is None or given.lower() in map(str.lower, columns) else inner.lower()


def _value(frame: DataFrame, value: ColumnOrName, arguments: ColumnArguments) -> Column:
    form = value if isinstance(value, str) and value in WHOLE_ROW else None
    if arguments.registry is None:
        if form is None:
            return _column(frame, value, "value")
        if form == "json":
            whole = [quoted(name) for name in frame.columns if name != DEAD_LETTER] if _has_letters(frame) else ["*"]
            return F.to_json(F.struct(*whole), TO_JSON)
        raise InvalidArgument(
            argument="registry",
            reason=f'value="{form}" is framed for a Schema Registry: give its address, registry={{"url": ...}}.',
        )
    if form is None:
        raise InvalidArgument(argument="registry", reason='give value="avro", "protobuf" or "json" too.')
    if arguments.topic_name is None:
        raise InvalidArgument(argument="topic", reason="a Schema Registry's subjects need one topic, by its name.")
    from kafka_sink.registry import serialized

    return serialized(
        frame,
        frame.columns,
        topic=arguments.topic_name,
        form=form,
        registry=arguments.registry,
        subject=arguments.subject,
        schema=arguments.schema,
    )


def _is_column(given: object) -> bool:
    return isinstance(given, Column | str)


def _column(frame: DataFrame, given: Any, argument: str) -> Column:
    """Return the column. Raises MissingColumn, DuplicateColumn for a name, TypeError for other types than str and
    Column."""
    if isinstance(given, Column):
        return given
    if not isinstance(given, str):
        raise TypeError(f"{argument}: a column's name or a Column, not {type(given).__name__}")
    return named(frame, given, f"{argument} names a column; F.lit({given!r}) is a value.")


def named(frame: DataFrame, name: str, hint: str) -> Column:
    """Return the column of this very name, whatever characters it has; else what `F.col` makes of the name.

    Then `a.b` is the field b of the column a. Raises MissingColumn, DuplicateColumn."""
    found = [each for each in frame.columns if each.lower() == name.lower()]
    if set(found) - {name} and frame.sparkSession.conf.get("spark.sql.caseSensitive") in ("true", "True", "TRUE"):
        found = [each for each in found if each == name]
    if len(found) > 1:
        raise DuplicateColumn(column=name)
    if found:
        return F.col(quoted(name))
    if not name.endswith("*"):  # F.col takes it for several columns.
        with suppress(AnalysisException):
            column = F.col(name)
            _ = frame.select(column).schema
            return column
    raise MissingColumn(column=name, found=frame.columns, hint=hint)


def quoted(name: str) -> str:
    """Return the name as Spark reads it as one column's: in backticks."""
    return f"`{name.replace('`', '``')}`"


def _unquoted(name: str) -> str | None:
    """Return the name within backticks, None if there is not one within them."""
    inner = name[1:-1].replace("``", "`")
    return inner if name == quoted(inner) else None


def _header(with_raw: DataFrame, position: int, name: str) -> Column:
    staged_name = f"{STAGED}{_HEADER}{position}"
    return _bytes(F.col(staged_name), with_raw.schema[staged_name].dataType, f"headers[{name!r}]").cast("binary")


def _bytes(column: Column, spark_type: spark_types.DataType, name: str) -> Column:
    """Return the column unchanged, or its text. Raises ColumnTypeMismatch."""
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
    """Return the column as an int. Raises ColumnTypeMismatch.

    A long outside the range of int fails the query, with or without ANSI. The message does not quote the value.
    """
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
    """Return one or several columns as a tuple."""
    return (given,) if isinstance(given, Column | str) else tuple(given)

"""Columns of every kind that a schema registry's forms have a type for, random rows of them, and what readers make of
those: by the official deserializers, Protobuf's by the schema's own descriptor."""

import base64
import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from hypothesis import strategies as st
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_type

Rows = list[dict[str, Any] | None]

INNER = T.StructType([T.StructField("x", T.IntegerType()), T.StructField("until", T.DateType())])
PLACE = T.StructType(
    [T.StructField("lat", T.DoubleType()), T.StructField("since", T.TimestampType()), T.StructField("inner", INNER)]
)
LINE = T.StructType([T.StructField("sku", T.StringType()), T.StructField("price", T.DecimalType(5, 2), False)])
COLUMNS = T.StructType([
    T.StructField("id", T.LongType(), False), T.StructField("tiny", T.ByteType()),
    T.StructField("small", T.ShortType()), T.StructField("whole", T.IntegerType()),
    T.StructField("flag", T.BooleanType()), T.StructField("near", T.FloatType()),
    T.StructField("ratio", T.DoubleType()), T.StructField("name", T.StringType()),
    T.StructField("data", T.BinaryType()), T.StructField("amount", T.DecimalType(12, 3)),
    T.StructField("wide", T.DecimalType(38, 18)), T.StructField("day", T.DateType()),
    T.StructField("at", T.TimestampType()),
    T.StructField("local", T.TimestampNTZType()), T.StructField("tags", T.ArrayType(T.StringType(), False)),
    T.StructField("counts", T.MapType(T.StringType(), T.LongType(), False)), T.StructField("place", PLACE),
    T.StructField("lines", T.ArrayType(LINE, False)),
    T.StructField("places", T.MapType(T.StringType(), INNER, False)),
])  # fmt: skip


# The text of a .proto file.
ORDER = """
    syntax = "proto3";
    package shop;
    import "google/type/date.proto";
    import "google/protobuf/timestamp.proto";
    // größer als ASCII, 註文
    message Order {
        optional int64 id = 1;
        google.type.Date day = 4;
        google.protobuf.Timestamp at = 7;
    }
    message Other {}
"""


def columns_of(**fields: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, data_type) for name, data_type in fields.items()])


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    # Not Decimal(n).scaleb(...), which rounds to 28 digits.
    return st.integers(-most, most).map(lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -scale)))


SIMPLE: dict[type[T.DataType], st.SearchStrategy[Any]] = {
    T.ByteType: st.integers(-(2**7), 2**7 - 1), T.ShortType: st.integers(-(2**15), 2**15 - 1),
    T.IntegerType: st.integers(-(2**31), 2**31 - 1), T.LongType: st.integers(-(2**63), 2**63 - 1),
    T.BooleanType: st.booleans(), T.FloatType: st.floats(width=32, allow_nan=False),
    T.DoubleType: st.floats(allow_nan=False), T.StringType: st.text(max_size=5), T.BinaryType: st.binary(max_size=5),
    T.DateType: st.dates(), T.TimestampType: st.datetimes(timezones=st.just(dt.UTC)),
    T.TimestampNTZType: st.datetimes(),
}  # fmt: skip


def _values(data_type: T.DataType) -> st.SearchStrategy[Any]:
    match data_type:
        case T.StructType():
            fields = {field.name: _nullable(field.dataType, field.nullable) for field in data_type.fields}
            return st.fixed_dictionaries(fields)
        case T.ArrayType():
            return st.lists(_nullable(data_type.elementType, data_type.containsNull), max_size=3)
        case T.MapType():
            return st.dictionaries(st.text(max_size=3), _values(data_type.valueType), max_size=3)
        case T.DecimalType():
            return _decimals(data_type.precision, data_type.scale)
    return SIMPLE[type(data_type)]


def _nullable(data_type: T.DataType, nullable: bool) -> st.SearchStrategy[Any]:
    return st.none() | _values(data_type) if nullable else _values(data_type)


def random_rows(min_size: int = 0) -> st.SearchStrategy[Rows]:
    return st.lists(st.none() | _values(COLUMNS), min_size=min_size, max_size=min_size + 4)


def arrow_rows(rows: Rows, columns: T.StructType = COLUMNS) -> pa.Array:
    """Convert rows as Spark does for an Arrow UDF. The array is a slice of a longer one."""
    with_keys = [_entries(row, columns) for row in rows]
    # Its last row in front as well, so that arrays and maps within do not begin at 0.
    array = pa.array([*with_keys[-1:], *with_keys, None], to_arrow_type(columns, timezone="UTC"))
    return array.slice(len(with_keys[-1:]), len(rows))


def _entries(value: Any, data_type: T.DataType) -> Any:
    """Return the value with maps as pairs, as Arrow takes them."""
    match data_type:
        case _ if value is None:
            return None
        case T.StructType():
            return {field.name: _entries(value.get(field.name), field.dataType) for field in data_type.fields}
        case T.ArrayType():
            return [_entries(one, data_type.elementType) for one in value]
        case T.MapType():
            return [(key, _entries(one, data_type.valueType)) for key, one in value.items()]
    return value


def message_class(text: str, name: str | None = None) -> Any:
    """Return the first message of a base64 file descriptor, or message `name`, as readers without our code do."""
    import google.type.date_pb2
    import google.type.datetime_pb2  # noqa: F401

    file = FileDescriptorProto.FromString(base64.b64decode(text))
    pool, default = descriptor_pool.DescriptorPool(), descriptor_pool.Default()
    added: set[str] = set()

    def add(path: str) -> None:
        found = default.FindFileByName(path)
        for imported in found.dependencies:
            add(imported.name)
        if path not in added:
            added.add(path)
            pool.AddSerializedFile(found.serialized_pb)

    for path in file.dependency:
        add(path)
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name or file.message_type[0].name))


def read_from_protobuf(message: Any, columns: T.StructType = COLUMNS) -> dict[str, Any] | None:
    if message is None:
        return None
    return {field.name: _field(message, field.name, field.dataType) for field in columns.fields}


def _field(message: Any, name: str, data_type: T.DataType) -> Any:
    value = getattr(message, name)
    if isinstance(data_type, T.ArrayType):
        return [_single(one, data_type.elementType) for one in value]
    if isinstance(data_type, T.MapType):
        return {key: _single(value[key], data_type.valueType) for key in value}
    return _single(value, data_type) if message.HasField(name) else None


def _single(value: Any, data_type: T.DataType) -> Any:
    match data_type:
        case T.StructType():
            return read_from_protobuf(value, data_type)
        case T.DecimalType():
            number = int.from_bytes(value.value, "big", signed=True)
            return Decimal((number < 0, tuple(map(int, str(abs(number)))), -value.scale))
        case T.DateType():
            return dt.date(value.year, value.month, value.day)
        case T.TimestampType():
            since_1970 = dt.timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
            return dt.datetime.fromtimestamp(0, dt.UTC) + since_1970
        case T.TimestampNTZType():
            time = (value.hours, value.minutes, value.seconds, value.nanos // 1000)
            return dt.datetime(value.year, value.month, value.day, *time)
    return value


def with_empty_for_null(row: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Protobuf has no null array or map."""
    if row is None:
        return None
    empty: dict[str, Any] = {"tags": [], "lines": [], "counts": {}, "places": {}}
    return {name: empty.get(name) if value is None else value for name, value in row.items()}

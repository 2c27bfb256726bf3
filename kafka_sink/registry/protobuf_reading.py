"""Protobuf: the Spark type of a reader's message, and records that are parsed by it.

A record is parsed by the reader's message, as the official deserializers do: fields are found by number, unknown ones
are left out, and those that are not there are null, or 0 if their presence is not known. The writer's schema says which
message the record has, and is compared with the reader's, field by field. Protobuf itself would give wrong values, or
none, if a number had another type.

Sources: protobuf.dev, "Updating A Message Type" and "Encoding"; Confluent's ProtobufData; Spark's SchemaConverters of
from_protobuf.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import types as T

from kafka_sink.errors import SchemaUnreadable
from kafka_sink.registry import arrays as A
from kafka_sink.registry import protobuf as P
from kafka_sink.registry.arrays import BadRecord, Make
from kafka_sink.registry.decoding import Writer
from kafka_sink.registry.forms import extra, read_as
from kafka_sink.registry.references import Written

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

FORM = P.FORM
# Fields of a message, with those of messages in each place.
MAX_FIELDS = 20_000
# The scale of a decimal is a field of each record, and Spark's type has one. It is that of Java's BigDecimal in Spark.
DECIMAL = T.DecimalType(38, 18)
MAX_DECIMAL_BYTES, MAX_SCALE = 17, 100
UINT64 = T.DecimalType(20, 0)

# Kinds that Protobuf reads as each other without loss: the writer's is not wider than the reader's.
WIDER: dict[str, frozenset[str]] = {
    "int32": frozenset({"int64", "enum"}), "uint32": frozenset({"uint64", "int64"}), "bool": frozenset(
        {"int32", "int64", "uint32", "uint64"}), "enum": frozenset({"int32", "int64"}), "sint32": frozenset({"sint64"}),
    "string": frozenset({"bytes"}), "bytes": frozenset({"string"}),
}  # fmt: skip


# --- values of messages -----------------------------------------------------------------------------------------------


def _micros(data_type: pa.DataType) -> Make:
    """Make times of google.protobuf.Timestamp or Duration, with nanoseconds rounded down."""

    def made(values: list[Any]) -> pa.Array:
        return pa.array([one.seconds * 1_000_000 + one.nanos // 1000 for one in values], pa.int64()).cast(data_type)

    return made


def _dates(values: list[Any]) -> pa.Array:
    return pa.array([dt.date(one.year, one.month, one.day) for one in values], pa.date32())


def _civil(values: list[Any]) -> pa.Array:
    if any(one.WhichOneof("time_offset") for one in values):
        raise BadRecord("its google.type.DateTime has an offset or a zone, and a timestamp_ntz has none")
    moments = [
        dt.datetime(one.year, one.month, one.day, one.hours, one.minutes, one.seconds, one.nanos // 1000)
        for one in values
    ]
    return pa.array(moments, pa.timestamp("us"))


def _decimals(values: list[Any]) -> pa.Array:
    return pa.array([_decimal(one.value, one.scale) for one in values], A.arrow_type(DECIMAL))


def _decimal(unscaled: bytes, scale: int) -> Decimal:
    if len(unscaled) > MAX_DECIMAL_BYTES or abs(scale) > MAX_SCALE:
        raise ValueError("too large")
    number = int.from_bytes(unscaled, "big", signed=True)
    return Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))


def _as_json(values: list[Any]) -> pa.Array:
    to_json = extra("google.protobuf.json_format", on_executor=True).MessageToJson
    return pa.array([to_json(one, indent=None, ensure_ascii=False) for one in values], pa.string())


def _unsigned(values: list[Any]) -> pa.Array:
    return pa.array([Decimal(value) for value in values], A.arrow_type(UINT64))


def _names(field: FieldDescriptor) -> Make:
    """Make the names of an enum. A number without a name is its text, as in Protobuf's JSON."""
    names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
    return lambda values: pa.array([names.get(value) or str(value) for value in values], pa.string())


SCALARS: dict[str, tuple[T.DataType, Make]] = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), (T.IntegerType(), A.Plain(pa.int32()))),
    **dict.fromkeys(("int64", "sint64", "sfixed64", "uint32", "fixed32"), (T.LongType(), A.Plain(pa.int64()))),
    **dict.fromkeys(("uint64", "fixed64"), (UINT64, _unsigned)),
    "float": (T.FloatType(), A.Plain(pa.float32())), "double": (T.DoubleType(), A.Plain(pa.float64())),
    "bool": (T.BooleanType(), A.Plain(pa.bool_())), "string": (T.StringType(), A.Plain(pa.string())),
    "bytes": (T.BinaryType(), A.Plain(pa.binary())),
}  # fmt: skip
JSON = (T.StringType(), _as_json)
MESSAGES: dict[str, tuple[T.DataType, Make]] = {
    P.TIMESTAMP: (T.TimestampType(), _micros(pa.timestamp("us", "UTC"))), P.DATE: (T.DateType(), _dates),
    P.DATETIME: (T.TimestampNTZType(), _civil), P.DECIMAL: (DECIMAL, _decimals),
    "google.protobuf.Duration": (T.DayTimeIntervalType(), _micros(pa.duration("us"))),
    "google.protobuf.Struct": JSON, "google.protobuf.Value": JSON, "google.protobuf.ListValue": JSON,
}  # fmt: skip
WRAPPERS = "google/protobuf/wrappers.proto"


# --- the reader's type ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Node:
    """A type of Spark, and what makes its arrays."""

    spark: T.DataType
    make: Make

    @property
    def arrow(self) -> pa.DataType:
        return A.arrow_type(self.spark)


class _Types:
    """Makes nodes of a message."""

    def __init__(self) -> None:
        self.fields = 0
        self.within: list[str] = []

    def message(self, message: Descriptor, path: str) -> Node:
        if message.full_name in self.within:
            reason = f"its message {message.full_name} contains itself, and a type of Spark cannot"
            raise SchemaUnreadable(form=FORM, reason=reason)
        self.within.append(message.full_name)
        fields, makes = [], []
        for field in message.fields:
            self.fields += 1
            if self.fields > MAX_FIELDS:
                raise SchemaUnreadable(
                    form=FORM, reason=f"it has more than {MAX_FIELDS} fields, with those of messages"
                )
            node = self._field(field, f"{path}.{field.name}".lstrip("."))
            is_null = field.has_presence
            fields.append(T.StructField(field.name, node.spark, is_null))
            makes.append((_taken(field), A.nullable(node.make, node.arrow) if is_null else node.make))
        self.within.pop()
        spark = T.StructType(fields)
        return Node(spark, A.struct(A.arrow_type(spark), makes))

    def _field(self, field: FieldDescriptor, path: str) -> Node:
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            key = self._one(entry.fields_by_name["key"], f"{path} (key)")
            value = self._one(entry.fields_by_name["value"], f"{path}{{}}")
            spark: T.DataType = T.MapType(key.spark, value.spark, False)
            return Node(spark, A.entries(A.arrow_type(spark), key.make, value.make))
        one = self._one(field, path)
        if not P.is_repeated(field):
            return one
        spark = T.ArrayType(one.spark, False)
        return Node(spark, A.items(A.arrow_type(spark), one.make))

    def _one(self, field: FieldDescriptor, path: str) -> Node:
        message = field.message_type
        if field.enum_type is not None:
            return Node(T.StringType(), A.Leaf(path, _names(field)))
        if message is None:
            spark, make = SCALARS[P.kind_of(field)]
            return Node(spark, A.Leaf(path, make))
        if message.full_name in MESSAGES:
            spark, make = MESSAGES[message.full_name]
            return Node(spark, A.Leaf(path, make))
        if message.file.name == WRAPPERS:
            spark, make = SCALARS[P.kind_of(message.fields_by_name["value"])]
            value = attrgetter("value")
            return Node(spark, A.Leaf(path, lambda values: make(list(map(value, values)))))
        return self.message(message, path)


def _taken(field: FieldDescriptor) -> A.Take:
    get, name = attrgetter(field.name), field.name
    if field.has_presence:
        return lambda values: [get(one) if one.HasField(name) else None for one in values]
    return lambda values: list(map(get, values))


# --- the writer's message ---------------------------------------------------------------------------------------------


def check(
    written: Descriptor, read: Descriptor, path: str = "", seen: frozenset[tuple[str, str]] = frozenset()
) -> None:
    """Raise BadRecord if a field of the same number has a type that the reader would misread or cut."""
    pair = written.full_name, read.full_name
    if pair in seen:
        return
    for field in read.fields:
        other = written.fields_by_number.get(field.number)
        if other is None:
            continue
        where = f"{path}.{field.name}".lstrip(".")
        kinds = _kind(other), _kind(field)
        # Numbers in one field may be packed or not, but one number is no list of bytes.
        same_shape = P.is_repeated(other) == P.is_repeated(field) or kinds[0] in ("string", "bytes", "message", "group")
        if not same_shape or (kinds[0] != kinds[1] and kinds[1] not in WIDER.get(kinds[0], ())):
            raise BadRecord(f"{where}: the writer has {_named(other)} there, and the reader {_named(field)}")
        if field.message_type is not None:
            check(other.message_type, field.message_type, where, seen | {pair})


def _kind(field: FieldDescriptor) -> str:
    """A group has other bytes than a message."""
    if field.message_type is not None:
        return "group" if field.type == field.TYPE_GROUP else "message"
    return "enum" if field.enum_type is not None else P.kind_of(field)


def _named(field: FieldDescriptor) -> str:
    return f"{'repeated ' if P.is_repeated(field) else ''}{_kind(field)}"


# --- what decoding.py uses --------------------------------------------------------------------------------------------


class Reader:
    """A reader's message, by its full name, or the first one of its file."""

    FORM = FORM
    SCHEMA_TYPE = P.SCHEMA_TYPE
    REGISTRY_FORMAT = P.REGISTRY_FORMAT
    needs_writers = True
    has_indexes = True

    def __init__(self, written: Written, message: str | None = None) -> None:
        """Raises SchemaUnreadable."""
        self.message = _message(written, message)
        node = _Types().message(self.message, "")
        self.spark_type, self._make = node.spark, node.make
        cls = extra("google.protobuf.message_factory", on_executor=True).GetMessageClass(self.message)
        self._parse: Callable[[bytes], Any] = cls.FromString

    def writer(self, written: Written) -> Writer:
        """Return what decodes records of this writer's schema. Raises BadRecord if the reader cannot read it."""
        try:
            message = _message(written, self.message.full_name)
        except SchemaUnreadable as error:
            raise BadRecord(f"the writer's schema cannot be used: {error.reason}") from None
        check(message, self.message)
        parse, bad = self._parse, (extra("google.protobuf.message", on_executor=True).DecodeError,)
        return Writer(lambda data, start: parse(data[start:]), self._make, tuple(P.indexes_of(message)), bad=bad)


@read_as(FORM)
def _message(written: Written, name: str | None) -> Descriptor:
    """Return the message with this full name, or the first one."""
    files, first = P.files_of(written.text, dict(written.others))
    try:
        return P.descriptor_of(files, name or first, on_executor=True)
    except KeyError:
        raise SchemaUnreadable(form=FORM, reason=f"it has no message {name}") from None

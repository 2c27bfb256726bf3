"""What goes out is, byte for byte, what the official serializers write: a key's bytes choose its partition, and its
place in a compacted topic. Readers cannot show it: they read padded numbers as well. JSON needs Spark: integration."""

import datetime as dt
import functools
import json
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from unittest import mock

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.common.protobuf import decimal_to_protobuf
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import DescriptorProto, UninterpretedOption
from google.protobuf.wrappers_pb2 import Int64Value
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T

from avro_kinds import DECIMALS, MOMENT, logical, nested, or_null, record_of, with_names
from kafka_sink.errors import ColumnNotInSchema, SchemaUnreadable, ValueNotInSchema
from kafka_sink.records.kernel import fallback
from kafka_sink.registry import avro, avro_encoding, column, protobuf, values
from kafka_sink.registry.forms import prefix
from kafka_sink.registry.registering import Registry, subject_name
from registry_rows import COLUMNS, Rows, arrow_rows, columns_of, message_class, random_rows

FIELDS = {False: MessageField.VALUE, True: MessageField.KEY}


def ours(client: SchemaRegistryClient, form: Any, schema: Any, columns: T.StructType, rows: Rows, is_key: bool) -> Any:
    def subject(name: str) -> str:
        return subject_name("topic", "orders", name, is_key)

    encoding, schema_id = column.pinned_schema(form, columns, "r", Registry(client, "mock://"), subject, schema)
    head = prefix(schema_id, encoding.message_indexes) + encoding.start
    return encoding.encode(arrow_rows(rows, columns), head).to_pylist()


def officially(client: SchemaRegistryClient, schema: str, values: list[Any], is_key: bool = False) -> list[Any]:
    write = AvroSerializer(client, schema)
    return [write(value, SerializationContext("orders", FIELDS[is_key])) for value in values]


@settings(deadline=None)
@given(st.data(), st.booleans())
def test_avro_of_any_schema_and_value(data: st.DataObject, is_key: bool) -> None:
    kind = record_of([or_null(one) for one in data.draw(st.lists(nested(2), min_size=1, max_size=4))])
    schema = json.dumps(with_names(kind.avro, []))
    rows = data.draw(st.lists(kind.values, min_size=1, max_size=3))
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    assert isinstance(kind.spark, T.StructType)
    written = ours(client, avro, schema, kind.spark, rows, is_key)
    assert written == officially(client, schema, rows, is_key)


@settings(max_examples=25, deadline=None)
@given(random_rows(), st.integers(1, 3), st.sampled_from([avro, protobuf]))
def test_rows_in_small_parts_are_the_same_bytes(rows: Rows, part: int, form: Any) -> None:
    text = avro.derived(COLUMNS, "r") if form is avro else protobuf.derived(COLUMNS, "r", None)
    encoding = form.fitted(text, COLUMNS)
    given_rows = arrow_rows([None, *rows, *rows])[1:]
    with mock.patch.object(avro_encoding, "KERNEL", fallback()):
        each = [encoding.encode(arrow_rows([row]), b"head").to_pylist()[0] for row in rows]
        with mock.patch.object(values, "CHUNK_ROWS", part):
            assert encoding.encode(given_rows, b"head").to_pylist() == each + each


def test_a_decimal_takes_the_bytes_that_java_takes() -> None:
    """1.00 of decimal(18,2) was 8 bytes: its key went to partition 11 of 12, and other clients' to 0. The last ones are
    a byte shorter than fastavro's: BigInteger.valueOf(-128).toByteArray() is one byte."""
    kind = logical("bytes", "decimal", precision=18, scale=2)
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": "d", "type": kind}]})
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    numbers = {"1.00": "0264", "0.00": "0200", "-0.01": "02ff", "1.28": "040080", "-1.28": "0280", "-327.68": "048000"}
    rows: Rows = [{"d": Decimal(number)} for number in numbers]
    written = ours(client, avro, schema, columns_of(d=T.DecimalType(18, 2)), rows, True)
    assert [one[5:].hex() for one in written] == list(numbers.values())
    officially_written = [one[5:].hex() for one in officially(client, schema, rows, True)]
    assert officially_written == [*list(numbers.values())[:4], "04ff80", "06ff8000"]


@pytest.mark.parametrize(
    ("union", "data_type", "value", "taken"),
    [
        (["int", "long"], T.LongType(), 5, "long"), (["long", "int"], T.IntegerType(), 5, "int"),
        (["float", "double"], T.FloatType(), 1.5, "float"), (["float", "double"], T.DoubleType(), 1.5, "double"),
        (["double", "null", "long"], T.IntegerType(), 5, "long"),
        (["string", "null", "double"], T.ByteType(), 5, "double"),
        ([{"type": "enum", "name": "e", "symbols": ["s"]}, "string"], T.StringType(), "s", "string"),
        (["bytes", {"type": "enum", "name": "e", "symbols": ["s"]}], T.StringType(), "s", "e"),
        ([{"type": "fixed", "name": "f", "size": 1}, "bytes"], T.BinaryType(), b"s", "bytes"),
        (["string", logical("long", "timestamp-millis")], T.TimestampType(), MOMENT, "long"),
    ],
)  # fmt: skip
def test_a_unions_type_is_that_of_the_column(union: Any, data_type: T.DataType, value: Any, taken: str) -> None:
    """As for Java, whose numbers have a type; fastavro is told it with the value. The type is the same for all rows."""
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": "u", "type": union}]})
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    written = ours(client, avro, schema, columns_of(u=data_type), [{"u": value}], False)
    assert written == officially(client, schema, [{"u": (taken, value)}])


ID_RECORD = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "c", "type": "long"}]}
OTHER = {"type": "record", "name": "Other", "fields": [{"name": "x", "type": "long"}]}
TOPS = [
    ('"string"', T.StringType(), "a"), (' "long"\n', T.LongType(), -7), ('{"type": "int"}', T.IntegerType(), 7),
    ('"double"', T.DoubleType(), 0.5), ('"boolean"', T.BooleanType(), True), ('"bytes"', T.BinaryType(), b"abc"),
    ('{"type": "bytes"}', T.BinaryType(), b""), ('{"type": "string", "logicalType": "varchar"}', T.StringType(), "a"),
    ('{"type": "long", "logicalType": "timestamp-micros"}', T.TimestampType(), MOMENT),
    ('{"type": "array", "items": ["null", "string"]}', T.ArrayType(T.StringType()), ["a", None]),
    ('{"type": "map", "values": "long"}', T.MapType(T.StringType(), T.LongType()), {"k": 1}),
    ('{"type": "fixed", "name": "shop.F", "size": 2}', T.BinaryType(), b"ab"),
    ('["null", "string"]', T.StringType(), "a"), ('["long", "bytes"]', T.BinaryType(), b"ab"),
    (json.dumps(["null", OTHER, ID_RECORD]), T.LongType(), {"c": 7}),
    (json.dumps(["string", ID_RECORD]), T.LongType(), {"c": 7}),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "data_type", "value"), TOPS)
@pytest.mark.parametrize("is_key", [False, True])
def test_a_whole_that_is_no_record_is_an_only_column(
    schema: str, data_type: T.DataType, value: Any, is_key: bool
) -> None:
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    row: Any = value if isinstance(value, dict) and "c" in value else {"c": value}
    official = officially(client, schema, [value], is_key)
    assert ours(client, avro, schema, columns_of(c=data_type), [row, None], is_key) == [*official, None]


def test_a_whole_that_no_column_fits_is_refused() -> None:
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    two = columns_of(c=T.LongType(), d=T.LongType())
    for schema, columns, error in (
        ('"string"', two, SchemaUnreadable), ('["null", "long"]', two, SchemaUnreadable),
        ('"string"', columns_of(c=T.LongType()), ColumnNotInSchema), ("[]", two, SchemaUnreadable),
        (json.dumps([OTHER, ID_RECORD]), two, ColumnNotInSchema),
        # Java's serializer takes only bytes for a whole of type bytes.
        (json.dumps(DECIMALS[0].avro), columns_of(c=T.DecimalType(1, 0)), ColumnNotInSchema),
    ):  # fmt: skip
        with pytest.raises(error):
            ours(client, avro, schema, columns, [], False)


def test_the_name_of_a_subject_is_that_of_the_whole() -> None:
    fixed = '{"type": "fixed", "name": "shop.F", "size": 2}'
    names = {'"long"': "long", fixed: "shop.F", json.dumps(ID_RECORD): "shop.Order"}
    for schema, name in names.items():
        data_type = T.BinaryType() if schema == fixed else T.LongType()
        assert avro.fitted(schema, columns_of(c=data_type)).name == name
    assert subject_name("record", "orders", "long", is_key=False) == "long"
    union = avro.fitted('["null", "long"]', columns_of(c=T.LongType()))
    with pytest.raises(ValueError, match="the schema has no name"):
        subject_name("record", "orders", union.name, is_key=False)


def test_times_and_nanoseconds() -> None:
    """The official client has no value for these but the number itself."""
    fields = {"micros": logical("long", "time-micros"), "millis": logical("int", "time-millis"),
              "at": logical("long", "timestamp-nanos"), "local": logical("long", "local-timestamp-nanos"),
              "id": logical("fixed", "uuid", name="u", size=16)}  # fmt: skip
    every = [{"name": name, "type": one} for name, one in fields.items()]
    schema = {"type": "record", "name": "r", "fields": every}
    columns = columns_of(micros=T.TimeType(6), millis=T.TimeType(3), at=T.TimestampType(), local=T.TimestampNTZType(),
                         id=T.StringType())  # fmt: skip
    day_s, time = 86_400, dt.time(23, 59, 59, 999_000)
    at = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC)
    ids = str(uuid.UUID(int=7))
    row = {"micros": time, "millis": time, "at": at, "local": at.replace(tzinfo=None), "id": ids}
    numbers = {"micros": day_s * 10**6 - 1_000, "millis": day_s * 1_000 - 1, "at": -1_000, "local": -1_000,
               "id": uuid.UUID(ids).bytes}  # fmt: skip
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    written = ours(client, avro, json.dumps(schema), columns, [row], False)
    assert written == officially(client, json.dumps(schema), [numbers])
    for late in (dt.datetime(2262, 4, 12, tzinfo=dt.UTC), dt.datetime(1677, 9, 21, tzinfo=dt.UTC)):
        with pytest.raises(ValueNotInSchema, match="1678 to 2261"):
            ours(client, avro, json.dumps(schema), columns, [{**row, "at": late}], False)
    with pytest.raises(ColumnNotInSchema, match="time-millis"):
        avro.fitted(json.dumps({**schema, "fields": every[1:2]}), columns_of(millis=T.TimeType(6)))
    derived = json.loads(avro.derived(columns_of(t=T.TimeType(6)), "r"))
    assert derived["fields"][0]["type"] == ["null", fields["micros"]]


@pytest.mark.parametrize(
    ("avro_type", "data_type"),
    [
        (logical("bytes", "decimal"), T.BinaryType()), (logical("bytes", "decimal", precision=0), T.BinaryType()),
        (logical("bytes", "decimal", precision=2, scale=3), T.BinaryType()),
        (logical("fixed", "decimal", precision=3, size=1, name="f"), T.BinaryType()),
        (logical("fixed", "uuid", size=2, name="f"), T.BinaryType()),
        (logical("string", "decimal", precision=2), T.StringType()), (logical("long", "date"), T.LongType()),
    ],
)  # fmt: skip
def test_a_logical_type_that_contradicts_itself_is_ignored(avro_type: Any, data_type: T.DataType) -> None:
    """As Avro says. fastavro refuses some of these."""
    schema = json.dumps({"type": "record", "name": "r", "fields": [{"name": "c", "type": avro_type}]})
    plain = {key: one for key, one in avro_type.items() if key != "logicalType"}
    expected = json.dumps({"type": "record", "name": "r", "fields": [{"name": "c", "type": plain}]})
    value: Any = {"string": "s", "long": 5}.get(avro_type["type"], b"a" * avro_type.get("size", 3))
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    (written,) = ours(client, avro, schema, columns_of(c=data_type), [{"c": value}], False)
    assert written[5:] == officially(client, expected, [{"c": value}])[0][5:]


def into(message: Any, row: dict[str, Any], columns: T.StructType) -> Any:
    """Fill a message as a user of the official client does."""
    for field in columns.fields:
        value, data_type = row[field.name], field.dataType
        if value is None:
            continue
        target = getattr(message, field.name)
        match data_type:
            case T.ArrayType():
                for one in value:
                    into_one(getattr(target, "add", None), target.append, one, data_type.elementType)
            case T.MapType():
                for key, one in value.items():
                    put = functools.partial(target.__setitem__, key)
                    into_one(functools.partial(target.__getitem__, key), put, one, data_type.valueType)
            case _:
                target.SetInParent() if hasattr(target, "SetInParent") else None
                put = functools.partial(setattr, message, field.name)
                into_one(functools.partial(getattr, message, field.name), put, value, data_type)
    return message


def into_one(of: Any, put: Callable[[Any], Any], value: Any, data_type: T.DataType) -> None:
    match data_type:
        case T.StructType():
            into(of(), value, data_type)
        case T.DecimalType():
            of().MergeFromString(decimal_to_protobuf(value, data_type.scale).SerializeToString())
        case T.DateType():
            target = of()
            target.year, target.month, target.day = value.year, value.month, value.day
        case T.TimestampType():
            of().FromDatetime(value)
        case T.TimestampNTZType():
            target = of()
            target.year, target.month, target.day = value.year, value.month, value.day
            target.hours, target.minutes, target.seconds = value.hour, value.minute, value.second
            target.nanos = value.microsecond * 1000
        case _:
            put(value)


PROTOBUF = protobuf.derived(COLUMNS, "orders_value", None)


@settings(deadline=None)
@given(random_rows(min_size=1), st.booleans())
def test_protobuf_of_any_value(rows: Rows, is_key: bool) -> None:
    """Entries of a map have no order in Protobuf. Ours are sorted, because equal keys must be equal bytes."""
    client, message = SchemaRegistryClient.new_client({"url": "mock://"}), message_class(PROTOBUF)
    serialize = ProtobufSerializer(message, client, {"use.deprecated.format": False})
    context = SerializationContext("orders", FIELDS[is_key])
    written = ours(client, protobuf, PROTOBUF, COLUMNS, rows, is_key)
    for one, row in zip(written, rows, strict=True):
        if row is None:
            assert one is None
            continue
        filled = into(message(), row, COLUMNS)
        official = serialize(filled, context)
        assert one[:6] == official[:6]
        assert one[6:] == filled.SerializeToString(deterministic=True)
        if not any(len(row[name] or ()) > 1 for name in ("counts", "places")):
            assert one == official


def test_the_path_of_a_message_within_its_file() -> None:
    for message, columns, row in (
        (Int64Value, columns_of(value=T.LongType()), {"value": 300}),
        (DescriptorProto.ExtensionRange, columns_of(start=T.IntegerType()), {"start": 5}),
        (UninterpretedOption.NamePart, columns_of(name_part=T.StringType(), is_extension=T.BooleanType()),
         {"name_part": "n", "is_extension": True}),
    ):  # fmt: skip
        client = SchemaRegistryClient.new_client({"url": "mock://"})
        serialize = ProtobufSerializer(message, client, {"use.deprecated.format": False})  # type: ignore[arg-type]
        official = serialize(message(**row), SerializationContext("orders", MessageField.KEY))
        assert ours(client, protobuf, message, columns, [row], True) == [official]

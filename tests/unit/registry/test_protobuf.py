"""Derived Protobuf schemas and their numbers; given ones; what the official deserializer reads of the bytes."""

from __future__ import annotations

import base64
import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pool, message_factory, timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.wrappers_pb2 import Int64Value
from hypothesis import given, settings
from pyspark.sql import types as T

from kafka_sink.errors import ColumnNotInSchema, ValueNotInSchema
from kafka_sink.registry import protobuf
from kafka_sink.registry.framing import prefix
from registry_rows import (
    COLUMNS,
    ORDER,
    Rows,
    arrow_rows,
    columns_of,
    message_class,
    random_rows,
    read_from_protobuf,
    with_empty_for_null,
)

VALUE = SerializationContext("orders", MessageField.VALUE)
ENCODING = protobuf.fitted(protobuf.derived(COLUMNS, "orders_value", None), COLUMNS)
SINGLE, REPEATED = FieldDescriptorProto.LABEL_OPTIONAL, FieldDescriptorProto.LABEL_REPEATED


def file_of(text: str) -> FileDescriptorProto:
    return FileDescriptorProto.FromString(base64.b64decode(text))


def numbers_of(text: str) -> dict[str, int]:
    return {field.name: field.number for field in file_of(text).message_type[0].field}


def written(schema: Any, columns: T.StructType, rows: Rows) -> list[bytes | None]:
    """Without framing."""
    encoding = protobuf.fitted(schema, columns)
    array = protobuf.encoded(arrow_rows(rows, columns), b"", encoding.files, encoding.name, encoding.plan)
    values: list[bytes | None] = array.to_pylist()
    return values


@settings(max_examples=25)
@given(random_rows())
def test_the_official_deserializer_reads_what_was_written(rows: Rows) -> None:
    registry = SchemaRegistryClient.new_client({"url": "mock://"})
    schema_id = registry.register_schema("orders-value", Schema(ENCODING.text, "PROTOBUF"))
    head = prefix(schema_id, ENCODING.message_indexes)
    encoded = protobuf.encoded(arrow_rows(rows), head, ENCODING.files, ENCODING.name, ENCODING.plan)
    assert encoded.validate(full=True) is None
    read = ProtobufDeserializer(message_class(ENCODING.text), {"use.deprecated.format": False}, registry)
    found = [read_from_protobuf(read(row, VALUE)) for row in encoded.to_pylist()]
    assert found == [with_empty_for_null(row) for row in rows]


def test_null_is_told_from_zero_and_empty_and_maps_have_an_order() -> None:
    columns = columns_of(n=T.LongType(), s=T.StringType(), counts=T.MapType(T.StringType(), T.LongType()))
    schema = protobuf.derived(columns, "r", None)
    nothing = {"n": None, "s": None, "counts": None}
    assert written(schema, columns, [nothing, {**nothing, "n": 0, "s": ""}]) == [b"", b"\x08\x00\x12\x00"]
    forth = dict.fromkeys("abcdefgh", 1)
    both = [{**nothing, "counts": counts} for counts in (forth, dict(reversed(forth.items())))]
    assert len(set(written(schema, columns, both))) == 1


def test_columns_keep_their_numbers_wherever_they_stand() -> None:
    first = protobuf.derived(columns_of(a=T.LongType(), b=T.LongType()), "r", None)
    assert numbers_of(first) == {"a": 1, "b": 2}
    at_the_end = protobuf.derived(columns_of(a=T.LongType(), b=T.LongType(), c=T.LongType()), "r", first)
    assert numbers_of(at_the_end) == {"a": 1, "b": 2, "c": 3}
    in_the_middle = protobuf.derived(columns_of(a=T.LongType(), c=T.LongType(), b=T.LongType()), "r", first)
    assert in_the_middle == at_the_end
    assert protobuf.derived(columns_of(b=T.LongType(), a=T.LongType()), "r", first) == first


def test_the_number_of_a_column_that_is_gone_is_never_another_columns() -> None:
    first = protobuf.derived(columns_of(a=T.LongType(), b=T.LongType()), "r", None)
    without = protobuf.derived(columns_of(a=T.LongType()), "r", first)
    (message,) = file_of(without).message_type
    assert list(message.reserved_name) == ["b"]
    assert [(reserved.start, reserved.end) for reserved in message.reserved_range] == [(2, 3)]
    again = protobuf.derived(columns_of(a=T.LongType(), c=T.LongType(), b=T.LongType()), "r", without)
    assert numbers_of(again) == {"a": 1, "c": 3, "b": 4}
    assert protobuf.fitted(again, columns_of(c=T.LongType())).name == "r"


def test_numbers_within_structs_arrays_and_maps_are_kept() -> None:
    def nested(*names: str) -> T.StructType:
        inner = columns_of(**dict.fromkeys(names, T.LongType()))
        return columns_of(one=inner, many=T.ArrayType(inner), by_name=T.MapType(T.StringType(), inner))

    first = protobuf.derived(nested("x", "y"), "r", None)
    second = protobuf.derived(nested("z", "y", "x"), "r", first)
    inner = [one for one in file_of(second).message_type[0].nested_type if not one.options.map_entry]
    assert {one.name: {field.name: field.number for field in one.field} for one in inner} == {
        name: {"x": 1, "y": 2, "z": 3} for name in ("One", "Many", "ByName")
    }


def test_the_file_can_be_said_as_a_proto_file() -> None:
    """A map's entry holds two fields and no message of its own, as protoc makes it."""
    (message,) = file_of(ENCODING.text).message_type
    entries = [one for one in message.nested_type if one.options.map_entry]
    assert [one.name for one in entries] == ["CountsEntry", "PlacesEntry"]
    assert all(len(one.field) == 2 and not one.nested_type for one in entries)
    assert file_of(ENCODING.text).syntax == "proto3"
    single = [field for field in message.field if field.label == SINGLE and not field.type_name]
    assert len(single) == len(message.oneof_decl) and all(field.proto3_optional for field in single)


def given_file(*fields: dict[str, Any], syntax: str = "proto3", oneofs: tuple[str, ...] = ()) -> str:
    file = FileDescriptorProto(name="given.proto", package="shop", syntax=syntax)
    file.dependency.append("google/protobuf/wrappers.proto")
    message = file.message_type.add(name="Order")
    colour = file.enum_type.add(name="Colour")
    colour.value.add(name="RED", number=0)
    colour.value.add(name="BLUE", number=1)
    for name in oneofs:
        message.oneof_decl.add(name=name)
    for number, field in enumerate(fields, 1):
        message.field.add(**{"number": number, "label": SINGLE, **field})
    return base64.b64encode(file.SerializeToString()).decode()


def test_a_given_schema_takes_what_fits() -> None:
    schema = given_file(
        {"name": "n", "type": FieldDescriptorProto.TYPE_UINT64},
        {"name": "colour", "type": FieldDescriptorProto.TYPE_ENUM, "type_name": ".shop.Colour"},
        {"name": "maybe", "type": FieldDescriptorProto.TYPE_MESSAGE, "type_name": ".google.protobuf.Int64Value"},
        {"name": "unused", "type": FieldDescriptorProto.TYPE_STRING},
    )
    columns = columns_of(maybe=T.LongType(), colour=T.StringType(), n=T.IntegerType())
    encoding = protobuf.fitted(schema, columns)
    assert (encoding.name, encoding.message_indexes) == ("shop.Order", (0,))
    first, second = written(
        schema, columns, [{"maybe": 7, "colour": "BLUE", "n": 3}, {"maybe": None, "colour": "RED", "n": 0}]
    )
    assert first == b"\x08\x03\x10\x01\x1a\x02\x08\x07" and second == b""
    for bad in ({"colour": "PINK"}, {"n": -1}, {"n": None}, {"colour": None}):
        with pytest.raises(ValueNotInSchema) as refused:
            written(schema, columns, [{"maybe": 1, "colour": "RED", "n": 1, **bad}])
        assert refused.value.column == next(iter(bad))
        assert "PINK" not in str(refused.value)


def test_a_given_schema_that_does_not_fit_is_refused_before_a_row() -> None:
    number, text = FieldDescriptorProto.TYPE_INT32, FieldDescriptorProto.TYPE_STRING
    cases = [
        (given_file({"name": "n", "type": number}), columns_of(n=T.LongType()), "n", "int32"),
        (given_file({"name": "n", "type": text}), columns_of(n=T.LongType()), "n", "string"),
        (given_file({"name": "n", "type": number}), columns_of(other=T.LongType()), "other", "no such field"),
        (given_file({"name": "n", "type": number, "label": REPEATED}), columns_of(n=T.IntegerType()), "n", "repeated"),
        (
            given_file(
                {"name": "a", "type": number, "oneof_index": 0}, {"name": "b", "type": text, "oneof_index": 0},
                oneofs=("kind",),
            ),
            columns_of(a=T.IntegerType(), b=T.StringType()), "b", "oneof kind",
        ),
        (
            given_file({"name": "must", "type": number, "label": 2}, syntax="proto2"),
            columns_of(), "must", "a required field",
        ),
    ]  # fmt: skip
    for schema, columns, path, expected in cases:
        with pytest.raises(ColumnNotInSchema, match=expected) as refused:
            protobuf.fitted(schema, columns)
        assert refused.value.column == path


def test_a_message_class_and_the_text_of_a_proto_file_are_schemas() -> None:
    columns = columns_of(value=T.LongType())
    encoding = protobuf.fitted(Int64Value, columns)
    # The second message of wrappers.proto is FloatValue; Int64Value is the third.
    assert (encoding.name, encoding.message_indexes) == ("google.protobuf.Int64Value", (2,))
    assert written(Int64Value, columns, [{"value": 5}]) == [b"\x08\x05"]
    columns = columns_of(id=T.LongType(), day=T.DateType())
    assert protobuf.fitted(ORDER, columns).name == "shop.Order"
    row = {"id": 1, "day": dt.date(2024, 2, 29)}
    assert written(ORDER, columns, [row]) == [b"\x08\x01\x22\x07\x08\xe8\x0f\x10\x02\x18\x1d"]


def test_what_a_message_class_imports_is_referred_to() -> None:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    line = FileDescriptorProto(name="shop/line.proto", package="shop", syntax="proto3")
    line.message_type.add(name="Line").field.add(name="sku", number=1, label=SINGLE, type=9)
    order = FileDescriptorProto(name="shop/order.proto", package="shop", syntax="proto3")
    order.dependency.extend(["shop/line.proto", "google/protobuf/timestamp.proto"])
    order.message_type.add(name="Other")
    order.message_type.add(name="Order").field.add(
        name="lines", number=1, label=REPEATED, type=11, type_name=".shop.Line"
    )
    pool.Add(line)
    pool.Add(order)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    encoding = protobuf.fitted(message, columns_of(lines=T.ArrayType(columns_of(sku=T.StringType()))))
    asked = []
    (reference,) = encoding.references(lambda subject, schema: asked.append((subject, schema.references)) or 5)
    assert (reference.name, reference.subject, reference.version) == ("shop/line.proto", "shop/line.proto", 5)
    assert asked == [("shop/line.proto", [])]
    assert encoding.message_indexes == (1,)
    assert written(message, columns_of(lines=T.ArrayType(columns_of(sku=T.StringType()))), [{"lines": [{"sku": "s"}]}])


def test_null_within_an_array_or_map_is_its_rows_error() -> None:
    columns = columns_of(tags=T.ArrayType(T.StringType()), counts=T.MapType(T.StringType(), T.LongType()))
    schema = protobuf.derived(columns, "r", None)
    for bad, path in (({"tags": ["secret", None]}, "tags[]"), ({"counts": {"secret": None}}, "counts{}")):
        with pytest.raises(ValueNotInSchema) as refused:
            written(schema, columns, [{"tags": None, "counts": None, **bad}])
        assert refused.value.column == path
        assert "secret" not in str(refused.value)


def test_a_string_that_is_not_utf8_is_its_rows_error() -> None:
    columns = columns_of(s=T.StringType())
    encoding = protobuf.fitted(protobuf.derived(columns, "r", None), columns)
    strings = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xffab"]).buffers())
    rows = pa.StructArray.from_arrays([strings], ["s"])
    with pytest.raises(ValueNotInSchema, match="UTF-8") as refused:
        protobuf.encoded(rows, b"", encoding.files, encoding.name, encoding.plan)
    assert refused.value.__suppress_context__

"""Derived Avro and JSON schemas; given ones; what the official deserializer reads of the bytes."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given, settings
from pyspark.sql import types as T

from kafka_sink.errors import ColumnNotInSchema, ValueNotInSchema
from kafka_sink.registry import avro, json_schema
from kafka_sink.registry.framing import prefix
from registry_rows import COLUMNS, Rows, arrow_rows, columns_of, random_rows

VALUE = SerializationContext("orders", MessageField.VALUE)
ENCODING = avro.fitted(avro.derived(COLUMNS, "orders_value"), COLUMNS)


def record(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": fields})


def read_back(schema: str, columns: T.StructType, rows: Rows) -> list[Any]:
    encoding = avro.fitted(schema, columns)
    registry = SchemaRegistryClient.new_client({"url": "mock://"})
    head = prefix(registry.register_schema("orders-value", Schema(encoding.text, "AVRO")))
    encoded = avro.encoded(arrow_rows(rows, columns), head, encoding.written, encoding.plan)
    read = AvroDeserializer(registry)
    return [read(row, VALUE) for row in encoded.to_pylist()]


@settings(max_examples=25)
@given(random_rows())
def test_the_official_deserializer_reads_what_was_written(rows: Rows) -> None:
    assert read_back(ENCODING.text, COLUMNS, rows) == rows


def test_null_within_arrays_and_maps_and_records_of_one_name_in_two_places() -> None:
    columns = columns_of(tags=T.ArrayType(T.StringType()), grid=T.ArrayType(T.ArrayType(T.IntegerType())),
                         counts=T.MapType(T.StringType(), T.LongType()), a=columns_of(p=columns_of(x=T.LongType())),
                         b=columns_of(p=columns_of(y=T.StringType())))  # fmt: skip
    rows: Rows = [
        {"tags": ["a", None], "grid": [[1, None], None, []], "counts": {"k": None}, "a": {"p": {"x": 1}}, "b": None},
        {"tags": ["b"], "grid": [[2]], "counts": {"l": 3}, "a": None, "b": {"p": {"y": "z"}}},
    ]
    assert read_back(avro.derived(columns, "r"), columns, rows) == rows


NESTED = T.StructType([
    T.StructField("id", T.LongType(), False),
    T.StructField("at", T.StructType([T.StructField("x", T.LongType(), False)])),
])  # fmt: skip


def test_a_nullable_column_is_a_union_with_null_first_and_a_default() -> None:
    x = [{"name": "x", "type": "long"}]
    at = {"type": "record", "name": "at", "namespace": "orders_value", "fields": x}
    fields = [{"name": "id", "type": "long"}, {"name": "at", "type": ["null", at], "default": None}]
    expected = {"type": "record", "name": "orders_value", "fields": fields}
    assert json.loads(avro.derived(NESTED, "orders_value")) == expected
    # Nothing of the library that read it is written.
    assert json.loads(avro.fitted(record(fields[0]), columns_of(id=T.LongType())).written).keys() == expected.keys()


def test_a_given_schema_takes_what_fits() -> None:
    schema = record(
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "other_colour", "type": ["Colour", "null"]},
        {"name": "wide", "type": "double"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "four", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "amount", "type": {"type": "fixed", "name": "Amount", "size": 9, "logicalType": "decimal",
                                    "precision": 20, "scale": 2}},
        {"name": "source", "type": "string", "default": "spark"},
    )  # fmt: skip
    columns = columns_of(
        at=T.TimestampType(), wide=T.IntegerType(), colour=T.StringType(), other_colour=T.StringType(),
        day=T.DateType(), four=T.BinaryType(), amount=T.DecimalType(10, 2),
    )  # fmt: skip
    moment = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)
    row = {"at": moment, "wide": 7, "colour": "BLUE", "other_colour": None, "day": dt.date(1, 1, 1),
           "four": b"abcd", "amount": Decimal("-12345678.90")}  # fmt: skip
    (read,) = read_back(schema, columns, [row])
    assert read == {**row, "at": moment.replace(microsecond=999_000), "source": "spark"}
    for bad in ({"colour": "PINK"}, {"other_colour": "PINK"}, {"four": b"secret"}, {"wide": None}):
        with pytest.raises(ValueNotInSchema) as refused:
            read_back(schema, columns, [row, {**row, **bad}])
        assert refused.value.column == next(iter(bad))
        assert "PINK" not in str(refused.value) and "secret" not in str(refused.value)


def test_a_uuid_is_written_and_other_text_is_not() -> None:
    columns = columns_of(ids=T.ArrayType(T.StringType()))
    schema = record({"name": "ids", "type": {"type": "array", "items": {"type": "string", "logicalType": "uuid"}}})
    text = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
    assert read_back(schema, columns, [{"ids": [text]}]) == [{"ids": [uuid.UUID(text)]}]
    with pytest.raises(ValueNotInSchema) as refused:
        read_back(schema, columns, [{"ids": [text, "not a uuid"]}])
    assert refused.value.column == "ids[]" and "not a uuid" not in str(refused.value)


DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}


@pytest.mark.parametrize(
    ("schema", "data_type", "expected"),
    [
        ("int", T.LongType(), "int"), ("float", T.DoubleType(), "float"), ("string", T.LongType(), "string"),
        ("long", T.TimestampType(), "long"), (DECIMAL, T.DecimalType(10, 3), '"scale": 2'),
        ({"type": "long", "logicalType": "timestamp-micros"}, T.TimestampNTZType(), "timestamp-micros"),
        (DECIMAL, T.DecimalType(12, 2), '"precision": 10'), (["null", "long", "string"], T.LongType(), "null"),
        ({"type": "array", "items": "long"}, T.StringType(), "array"),
    ],
)  # fmt: skip
def test_a_given_type_that_has_not_all_values_is_refused(schema: Any, data_type: T.DataType, expected: str) -> None:
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "c", "type": schema}]}
    columns = columns_of(s=columns_of(c=data_type))
    with pytest.raises(ColumnNotInSchema, match="the Avro schema does not fit the DataFrame") as refused:
        avro.fitted(record({"name": "s", "type": inner}), columns)
    assert refused.value.column == "s.c" and expected in refused.value.expected


def test_a_field_without_a_column_or_a_column_without_a_field_is_refused() -> None:
    schema = record({"name": "a", "type": "long"})
    for columns, path in ((columns_of(a=T.LongType(), b=T.LongType()), "b"), (columns_of(), "a")):
        with pytest.raises(ColumnNotInSchema) as refused:
            avro.fitted(schema, columns)
        assert refused.value.column == path


FOUR = {"type": "fixed", "name": "Four", "size": 4}
LEFT_OUT = [
    ("bytes", "\u00ff\u0000a", b"\xff\x00a"),
    (FOUR, "\u00ffabc", b"\xffabc"),
    (["bytes", "null"], "\u00e9", b"\xe9"),
    (["string", "bytes"], "\u00e9", "\u00e9"),
    (["null", "bytes"], None, None),
    (["null", "bytes"], "\u00e9", b"\xe9"),
    (["long", "null"], 7, 7),
    (DECIMAL, "\u0004\u00d2", Decimal("12.34")),
    ({"type": "array", "items": [FOUR, "null"]}, ["\u00ff\u00fe\u00fd\u00fc", None], [b"\xff\xfe\xfd\xfc", None]),
    ({"type": "map", "values": "bytes"}, {"k": "\u00ff"}, {"k": b"\xff"}),
    (
        {"type": "record", "name": "Inner", "fields": [
            {"name": "given", "type": FOUR}, {"name": "again", "type": "Four", "default": "\u00ff\u00ff\u00ff\u00ff"}]},
        {"given": "\u00ffabc"}, {"given": b"\xffabc", "again": b"\xff\xff\xff\xff"},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "default", "read"), LEFT_OUT)
def test_a_field_without_a_column_is_its_default(schema: Any, default: Any, read: Any) -> None:
    whole = record({"name": "id", "type": "long"}, {"name": "c", "type": schema, "default": default})
    assert read_back(whole, columns_of(id=T.LongType()), [{"id": 1}]) == [{"id": 1, "c": read}]
    within = {"type": "record", "name": "Within", "fields": json.loads(whole)["fields"]}
    columns = columns_of(s=columns_of(id=T.LongType()))
    row = {"s": {"id": 1}}
    assert read_back(record({"name": "s", "type": within}), columns, [row]) == [{"s": {"id": 1, "c": read}}]


@pytest.mark.parametrize(("schema", "default"), [("bytes", "\u0100"), (FOUR, ""), (["bytes", "null"], "\u20ac")])
def test_a_default_that_is_no_bytes_is_refused_where_it_would_be_written(schema: Any, default: str) -> None:
    whole = record({"name": "id", "type": "long"}, {"name": "c", "type": schema, "default": default})
    with pytest.raises(ColumnNotInSchema, match="whose default is bytes of its type") as refused:
        avro.fitted(whole, columns_of(id=T.LongType()))
    assert refused.value.column == "c"
    both = {"id": 1, "c": b"abcd"}
    assert read_back(whole, columns_of(id=T.LongType(), c=T.BinaryType()), [both]) == [both]


def test_a_derived_schema_is_closed_and_requires_what_is_never_null() -> None:
    def closed(required: str, **properties: Any) -> dict[str, Any]:
        return {"type": "object", "properties": properties, "required": [required], "additionalProperties": False}

    nested = closed("x", x={"type": "integer"})
    whole = closed("id", id={"type": "integer"}, at={"oneOf": [{"type": "null"}, nested]})
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "orders_value"}
    assert json.loads(json_schema.derived(NESTED, "orders_value")) == head | whole


STRING = {"type": "string"}
REFERRING = {"properties": {"a": {"$ref": "#/definitions/s"}}, "definitions": {"s": STRING}}
LONG = columns_of(a=T.LongType())
LONGS = T.ArrayType(T.LongType())
LONGS_BY_NAME = T.MapType(T.StringType(), T.LongType())


@pytest.mark.parametrize(
    ("schema", "columns", "path", "expected"),
    [
        ({"properties": {"a": STRING}}, LONG, "a", "string"),
        ({"properties": {"a": {"type": "integer"}}}, columns_of(a=T.DoubleType()), "a", "integer"),
        ({"properties": {"a": {"type": ["null", "boolean"]}}}, columns_of(a=T.StringType()), "a", "boolean"),
        ({"properties": {"a": {"oneOf": [STRING, {"type": "null"}]}}}, LONG, "a", "oneOf"),
        (REFERRING, LONG, "a", "ref"),
        ({"properties": {"a": {"type": "array", "items": STRING}}}, columns_of(a=LONGS), "a[]", "string"),
        ({"properties": {"a": {"additionalProperties": STRING}}}, columns_of(a=LONGS_BY_NAME), "a{}", "string"),
        ({"properties": {"a": {"properties": {"a": STRING}}}}, columns_of(a=LONG), "a.a", "string"),
        ({"properties": {}, "additionalProperties": False}, LONG, "a", "no such property"),
        ({"required": ["b"]}, LONG, "b", "a required property"),
        ({"properties": {"a": False}}, LONG, "a", "false"),
    ],
)
def test_a_given_schema_that_does_not_fit_is_refused_before_a_row(
    schema: Any, columns: T.StructType, path: str, expected: str
) -> None:
    with pytest.raises(ColumnNotInSchema, match="the JSON schema does not fit") as refused:
        json_schema.fitted(json.dumps({"type": "object", **schema}), columns)
    assert refused.value.column == path
    assert expected in refused.value.expected

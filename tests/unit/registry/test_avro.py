"""Avro and JSON schemas, derived and given, what every form shares, and what the official deserializer reads."""

import datetime as dt
import io
import json
import sys
import uuid
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.serde import SchemaId
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T

from kafka_sink.errors import (
    ColumnNotInSchema,
    NameNotAllowed,
    RegistryExtraMissing,
    SchemaUnreadable,
    TypeNotMapped,
    ValueNotInSchema,
)
from kafka_sink.registry import avro, json_schema, protobuf
from kafka_sink.registry import values as V
from kafka_sink.registry.forms import CAST, CAST_KEYS, extra, framed, prefix
from registry_rows import COLUMNS, Rows, arrow_rows, columns_of, random_rows

VALUE = SerializationContext("orders", MessageField.VALUE)
ENCODING = avro.fitted(avro.derived(COLUMNS, "orders_value"), COLUMNS)
NESTED = T.StructType([
    T.StructField("id", T.LongType(), False),
    T.StructField("at", T.StructType([T.StructField("x", T.LongType(), False)])),
])  # fmt: skip
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
FOUR = {"type": "fixed", "name": "Four", "size": 4}
LEFT_OUT = [
    ("bytes", "\u00ff\u0000a", b"\xff\x00a"), (FOUR, "\u00ffabc", b"\xffabc"),
    (["bytes", "null"], "\u00e9", b"\xe9"), (["string", "bytes"], "\u00e9", "\u00e9"), (["null", "bytes"], None, None),
    (["null", "bytes"], "\u00e9", b"\xe9"), (["long", "null"], 7, 7),
    (DECIMAL, "\u0004\u00d2", Decimal("12.34")),
    ({"type": "array", "items": [FOUR, "null"]}, ["\u00ff\u00fe\u00fd\u00fc", None], [b"\xff\xfe\xfd\xfc", None]),
    ({"type": "map", "values": "bytes"}, {"k": "\u00ff"}, {"k": b"\xff"}),
    (
        {"type": "record", "name": "Inner", "fields": [
            {"name": "given", "type": FOUR}, {"name": "again", "type": "Four", "default": "\u00ff\u00ff\u00ff\u00ff"}]},
        {"given": "\u00ffabc"}, {"given": b"\xffabc", "again": b"\xff\xff\xff\xff"},
    ),
]  # fmt: skip
STRING = {"type": "string"}
REFERRING = {"properties": {"a": {"$ref": "#/definitions/s"}}, "definitions": {"s": STRING}}
LONG = columns_of(a=T.LongType())
LONGS = T.ArrayType(T.LongType())
LONGS_BY_NAME = T.MapType(T.StringType(), T.LongType())
DERIVED: dict[str, Callable[[T.StructType], str]] = {
    "avro": lambda columns: avro.derived(columns, "r"),
    "json": lambda columns: json_schema.derived(columns, "r"),
    "protobuf": lambda columns: protobuf.derived(columns, "r", None),
}
FITTED = {"avro": avro.fitted, "json": json_schema.fitted, "protobuf": protobuf.fitted}
EPOCH = dt.datetime(1970, 1, 1)
FIRST_MICRO, LAST_MICRO = -62_135_596_800_000_000, 253_402_300_799_999_999
IDS = st.integers(0, 2**31 - 1)
NOTHING_SENT = "No row of this write was sent."


ABSENT_COLUMNS = T.StructType([T.StructField("missing_on_executors", T.LongType())])
ROWS = pa.array([{"missing_on_executors": 1}])
AVRO = avro.fitted(avro.derived(ABSENT_COLUMNS, "r"), ABSENT_COLUMNS)
PROTOBUF = protobuf.fitted(protobuf.derived(ABSENT_COLUMNS, "r", None), ABSENT_COLUMNS)


def record(*fields: dict[str, Any]) -> str:
    return json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": fields})


def read_back(schema: str, columns: T.StructType, rows: Rows) -> list[Any]:
    encoding = avro.fitted(schema, columns)
    registry = SchemaRegistryClient.new_client({"url": "mock://"})
    head = prefix(registry.register_schema("orders-value", Schema(encoding.text, "AVRO")))
    encoded = encoding.encode(arrow_rows(rows, columns), head)
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


def test_a_nullable_column_is_a_union_with_null_first_and_a_default() -> None:
    x = [{"name": "x", "type": "long"}]
    at = {"type": "record", "name": "at", "namespace": "orders_value", "fields": x}
    fields = [{"name": "id", "type": "long"}, {"name": "at", "type": ["null", at], "default": None}]
    expected = {"type": "record", "name": "orders_value", "fields": fields}
    assert json.loads(avro.derived(NESTED, "orders_value")) == expected
    # Nothing of the library that read it is written.
    encode: Any = avro.fitted(record(fields[0]), columns_of(id=T.LongType())).encode
    assert json.loads(encode.keywords["written"][-1]).keys() == expected.keys()


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


def test_a_given_type_that_has_not_all_values_is_refused() -> None:
    for schema, data_type, expected in (
        ("int", T.LongType(), "int"), ("float", T.DoubleType(), "float"), ("string", T.LongType(), "string"),
        ("long", T.TimestampType(), "long"), (DECIMAL, T.DecimalType(10, 3), '"scale": 2'),
        ({"type": "long", "logicalType": "timestamp-micros"}, T.TimestampNTZType(), "timestamp-micros"),
        (DECIMAL, T.DecimalType(12, 2), '"precision": 10'), (["null", "int", "string"], T.LongType(), "null"),
        ({"type": "array", "items": "long"}, T.StringType(), "array"),
    ):  # fmt: skip
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
def test_a_schema_that_does_not_fit_is_refused(schema: Any, columns: T.StructType, path: str, expected: str) -> None:
    with pytest.raises(ColumnNotInSchema, match="the JSON schema does not fit") as refused:
        json_schema.fitted(json.dumps({"type": "object", **schema}), columns)
    assert refused.value.column == path
    assert expected in refused.value.expected


@pytest.mark.parametrize(
    ("data_type", "path", "forms", "told"),
    [
        (T.DayTimeIntervalType(), "c", DERIVED, CAST), (T.CalendarIntervalType(), "c", DERIVED, CAST),
        (T.NullType(), "c", DERIVED, CAST), (T.VariantType(), "c", DERIVED, CAST),
        (T.MapType(T.DoubleType(), T.LongType()), "c", DERIVED, CAST_KEYS),
        (T.ArrayType(T.YearMonthIntervalType()), "c[]", DERIVED, CAST),
        (columns_of(within=T.ArrayType(columns_of(deep=T.NullType()))), "c.within[].deep", DERIVED, CAST),
        (T.MapType(T.LongType(), T.LongType()), "c", ["avro"], CAST_KEYS),
        (T.ArrayType(T.ArrayType(T.LongType())), "c[]", ["protobuf"], ""),
        (T.MapType(T.StringType(), T.ArrayType(T.LongType())), "c{}", ["protobuf"], ""),
    ],
)  # fmt: skip
def test_a_type_without_counterpart_is_named(data_type: T.DataType, path: str, forms: Iterable[str], told: str) -> None:
    for form in forms:
        with pytest.raises(TypeNotMapped, match="No row of this write was sent") as refused:
            DERIVED[form](columns_of(c=data_type))
        assert refused.value.column == path and told in str(refused.value)


def test_a_name_that_the_form_has_not_is_refused() -> None:
    for form, names in (
        *(("avro", (name,)) for name in ("a-b", "1st", "n\u00e4me", "with space", "")),
        *(("protobuf", names) for names in (("a-b",), ("1st",), ("n\u00e4me",), ("street_name", "streetName"))),
    ):
        with pytest.raises(NameNotAllowed) as refused:
            DERIVED[form](columns_of(s=columns_of(**dict.fromkeys(names, T.LongType()))))
        assert refused.value.column == f"s.{names[-1]}"


def test_what_is_no_schema_is_said_to_be_none() -> None:
    for form, text in (
        *(("avro", text) for text in ("{", '"long"', '{"type": "record"}', '{"type": "nothing"}', "[]", "7")),
        *(("json", text) for text in ("{", "[]", "7", '{"properties": {"a": {"$ref": "#/nowhere"}}}')),
        *(("protobuf", text) for text in ("AAAA", "", "{", 'syntax = "proto3"; message M { int32 a = 0; }')),
    ):
        with pytest.raises(SchemaUnreadable):
            FITTED[form](text, columns_of(a=T.LongType()) if form == "json" else columns_of())


UNSCALED = st.integers(-(10**38) + 1, 10**38 - 1) | st.sampled_from(
    [sign * 2 ** (8 * size - 1) + one for size in range(1, 16) for sign in (-1, 1) for one in (-1, 0, 1)]
)


@given(st.lists(UNSCALED, min_size=1))
def test_a_decimals_bytes_are_those_of_java(numbers: list[int]) -> None:
    """BigInteger.toByteArray: (bitLength() / 8) + 1 bytes, where bitLength leaves the sign out."""
    array = pa.array([Decimal(0), *(Decimal((n < 0, tuple(map(int, str(abs(n)))), -2)) for n in numbers)],
                     pa.decimal128(38, 2)).slice(1)  # fmt: skip
    java = [n.to_bytes((n if n >= 0 else ~n).bit_length() // 8 + 1, "big", signed=True) for n in numbers]
    assert V.unscaled_bytes(array, "c") == java
    parts = [(value, len(str(abs(n))), 2) for value, n in zip(java, numbers, strict=True)]
    assert [tuple(one.values()) for one in V.decimal_parts(2)(array, "c")] == parts
    for size_bytes in (16, 17, 40):
        fixed = [n.to_bytes(size_bytes, "big", signed=True) for n in numbers]
        assert V.unscaled_fixed(size_bytes)(array, "c") == fixed
    small = pa.array([Decimal(0), Decimal(-1), Decimal(-128)], pa.decimal128(3, 0))
    assert V.unscaled_fixed(1)(small.slice(1), "c") == [b"\xff", b"\x80"]
    assert V.unscaled_bytes(small.slice(3), "c") == V.unscaled_fixed(2)(small.slice(3), "c") == []


@pytest.mark.parametrize("micros", [-1, 0, 1, -1_000_001, 1_709_206_496_123_456, -62_135_596_800_000_000])
def test_times_before_and_after_1970(micros: int) -> None:
    array = pa.array([micros], pa.timestamp("us"))
    moment = EPOCH + dt.timedelta(microseconds=micros)
    assert V.micros(array, "c") == [micros]
    assert V.millis(array, "c") == [micros // 1000]
    assert V.seconds_and_nanos(array, "c") == [{"seconds": micros // 10**6, "nanos": micros % 10**6 * 1000}]
    date = {"year": moment.year, "month": moment.month, "day": moment.day}
    time = {"hours": moment.hour, "minutes": moment.minute, "seconds": moment.second, "nanos": micros % 10**6 * 1000}
    assert V.datetime_parts(array, "c") == [date | time]
    assert V.date_parts(pa.array([moment.date()]), "c") == [date]
    assert V.days(pa.array([moment.date()]), "c") == [(moment.date() - EPOCH.date()).days]


def test_a_uuid_is_text_in_any_case_and_what_is_none_is_an_error_of_its_row() -> None:
    a_uuid = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
    values = [a_uuid, a_uuid.upper()]
    assert V.uuids(pa.array(["secret", *values]).slice(1), "c") == values
    assert V.uuids(pa.array([], pa.string()), "c") == []
    others = f"{{{a_uuid}}}", f"{a_uuid}\n", f" {a_uuid}", a_uuid[:-1] + "g"
    for text in ("", "secret", a_uuid.replace("-", ""), *others):
        with pytest.raises(ValueNotInSchema, match="UUID") as refused:
            V.uuids(pa.array([a_uuid, text]), "c")
        assert refused.value.column == "c" and "secret" not in str(refused.value)


@pytest.mark.parametrize("micros", [FIRST_MICRO - 1, LAST_MICRO + 1, -(2**63), 2**63 - 1])
def test_a_time_or_year_that_no_reader_can_say_is_an_error_of_its_row(micros: int) -> None:
    days = {FIRST_MICRO - 1: -719_163}.get(micros, 2_932_897)
    for convert, values in (
        (V.seconds_and_nanos, pa.array([0, micros], pa.timestamp("us"))),
        (V.datetime_parts, pa.array([0, micros], pa.timestamp("us"))),
        (V.date_parts, pa.array([0, days], pa.int32()).cast(pa.date32())),
    ):
        with pytest.raises(ValueNotInSchema, match="1 to 9999") as refused:
            convert(values, "at")
        assert refused.value.column == "at"
    written = V.seconds_and_nanos(pa.array([FIRST_MICRO, LAST_MICRO], pa.timestamp("us")), "at")
    said = [Timestamp(**one).ToJsonString() for one in written]
    assert said == ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"]


@given(IDS, st.lists(st.integers(0, 2**20), max_size=3))
def test_the_official_client_reads_and_writes_the_same(schema_id: int, indexes: list[int]) -> None:
    head = prefix(schema_id, indexes)
    official = SchemaId("PROTOBUF" if indexes else "AVRO")
    rest = official.from_bytes(io.BytesIO(head + b"payload"))
    assert (official.id, official.message_indexes or []) == (schema_id, indexes)
    assert rest.read() == b"payload"
    assert SchemaId("PROTOBUF", schema_id, None, indexes or None).id_to_bytes() == head


@given(st.lists(st.none() | st.binary(max_size=9), max_size=20))
def test_rows_are_framed_and_null_stays_null(rows: list[bytes | None]) -> None:
    array = framed(b"\0id", rows, lambda data, row: data.write(row))
    array.validate(full=True)
    assert array.type == pa.binary()
    assert array.to_pylist() == [None if row is None else b"\0id" + row for row in rows]


def test_more_than_an_array_of_binary_holds_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Far(io.BytesIO):
        def tell(self) -> int:
            return 2**31

    monkeypatch.setattr("kafka_sink.registry.forms.io.BytesIO", Far)
    with pytest.raises(OverflowError, match="maxRecordsPerBatch"):
        framed(b"", [b""], lambda data, row: data.write(row))


@pytest.mark.parametrize("module", ["fastavro", "google.protobuf.message_factory", "google.protobuf.descriptor_pool"])
def test_an_executor_without_it_says_that_rows_may_be_written(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Classes of messages that were met before are kept.
    unmet = protobuf.fitted(protobuf.derived(ABSENT_COLUMNS, f"r_{uuid.uuid4().hex}", None), ABSENT_COLUMNS)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(RegistryExtraMissing) as missing:
        if module == "fastavro":
            AVRO.encode(ROWS, b"")
        else:
            unmet.encode(ROWS, b"")
    assert missing.value.module == module
    assert "all its rows are sent again" in str(missing.value) and NOTHING_SENT not in str(missing.value)


def test_the_driver_without_it_says_that_no_row_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RegistryExtraMissing, match=r"pip install 'pyspark-pykafka\[registry\]'") as missing:
        extra("fastavro_that_nobody_has")
    assert (missing.value.module, missing.value.parts().data) == ("fastavro_that_nobody_has", NOTHING_SENT)
    for module, fitted, text in (
        ("fastavro", avro.fitted, AVRO.text), ("google.protobuf.descriptor_pool", protobuf.fitted, PROTOBUF.text),
    ):  # fmt: skip
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(RegistryExtraMissing, match=NOTHING_SENT):
            fitted(text, ABSENT_COLUMNS)

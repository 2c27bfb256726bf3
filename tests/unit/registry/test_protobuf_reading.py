"""Protobuf records of any writer's schema, read by the reader's message, also as the official deserializer reads."""

import base64
import datetime as dt
from decimal import Decimal
from functools import cache
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import text_format
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T

from kafka_sink.errors import SchemaUnreadable
from kafka_sink.registry import protobuf, protoc
from kafka_sink.registry.arrays import BadRecord
from kafka_sink.registry.decoding import head_of
from kafka_sink.registry.forms import prefix
from kafka_sink.registry.protobuf_reading import Reader
from kafka_sink.registry.references import Written
from protobuf_schemas import pairs, row_of
from registry_rows import COLUMNS, Rows, arrow_rows, message_class, random_rows, read_from_protobuf

VALUE = SerializationContext("orders", MessageField.VALUE)
EVERYTHING = """
    syntax = "proto3";
    package shop;
    import "google/protobuf/any.proto";
    import "google/protobuf/duration.proto";
    import "google/protobuf/struct.proto";
    import "google/protobuf/timestamp.proto";
    import "google/protobuf/wrappers.proto";
    import "google/type/date.proto";
    import "google/type/datetime.proto";
    enum Colour { RED = 0; BLUE = 1; }
    message All {
        int32 a = 1; sint32 b = 2; sfixed32 c = 3; uint32 d = 4; fixed32 e = 5;
        int64 f = 6; sint64 g = 7; sfixed64 h = 8; uint64 i = 9; fixed64 j = 10;
        float k = 11; double l = 12; bool m = 13; string n = 14; bytes o = 15; Colour p = 16;
        optional int32 q = 17;
        oneof either { string r = 18; Inner s = 19; }
        repeated int32 t = 20; repeated Inner u = 21; map<int32, Inner> v = 22; map<string, Colour> w = 23;
        google.protobuf.Timestamp x = 24; google.protobuf.Duration y = 25; google.protobuf.Struct z = 26;
        google.protobuf.Int64Value aa = 27; google.protobuf.BoolValue ab = 28; google.protobuf.Any ac = 29;
        google.type.Date ad = 30; google.type.DateTime ae = 31;
        message Inner { int64 x = 1; }
    }
"""


@cache
def compiled(text: str) -> str:
    return base64.b64encode(protoc.compiled(text)).decode()


def of(body: str) -> Written:
    """A file with message M, whose fields these are, and others."""
    return Written(
        compiled(f'syntax = "proto3"; package shop; {body if "message M " in body else f"message M {{ {body} }}"}')
    )


def read(written: Written, to: Written, text: str, message: str = "shop.M") -> Any:
    """Write a message, in Protobuf's text format, with one schema, and read it with another."""
    writer = Reader(to, message).writer(written)
    data = text_format.Parse(text, message_class(written.text, message)()).SerializeToString()
    array = writer.make([writer.parse(b"\0" * 5 + data, 5)])
    array.validate(full=True)
    return array.to_pylist()[0]


def test_every_type_is_read() -> None:
    written = Written(compiled(EVERYTHING))
    assert Reader(written).spark_type.simpleString() == (
        "struct<a:int,b:int,c:int,d:bigint,e:bigint,f:bigint,g:bigint,h:bigint,i:decimal(20,0),j:decimal(20,0),k:float,"
        "l:double,m:boolean,n:string,o:binary,p:string,q:int,r:string,s:struct<x:bigint>,t:array<int>,"
        "u:array<struct<x:bigint>>,v:map<int,struct<x:bigint>>,w:map<string,string>,x:timestamp,"
        "y:interval day to second,z:string,aa:bigint,ab:boolean,ac:struct<type_url:string,value:binary>,ad:date,"
        "ae:timestamp_ntz>"
    )
    found = read(written, written, """
        a: -1 b: -2 c: -3 d: 4294967295 e: 4294967295 f: -4 g: -5 h: -6 i: 18446744073709551615 j: 18446744073709551615
        k: 0.5 l: 0.25 m: true n: "\\303\\246" o: "\\377" p: BLUE q: 0 s { x: 7 } t: 1 t: 2 u { x: 1 } u {}
        v { key: -1 value { x: 9 } } w { key: "k" value: BLUE } x { seconds: -1 nanos: 999999999 }
        y { seconds: -1 nanos: -500000000 } z { fields { key: "a" value { number_value: 1 } } }
        aa { value: 0 } ac { type_url: "u" value: "v" }
        ad { year: 2020 month: 2 day: 29 } ae { year: 1 month: 1 day: 1 }
    """, "shop.All")  # fmt: skip
    assert found == {
        "a": -1, "b": -2, "c": -3, "d": 2**32 - 1, "e": 2**32 - 1, "f": -4, "g": -5, "h": -6, "i": Decimal(2**64 - 1),
        "j": Decimal(2**64 - 1), "k": 0.5, "l": 0.25, "m": True, "n": "\u00e6", "o": b"\xff", "p": "BLUE", "q": 0,
        "r": None,
        "s": {"x": 7}, "t": [1, 2], "u": [{"x": 1}, {"x": 0}], "v": [(-1, {"x": 9})], "w": [("k", "BLUE")],
        "x": dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC), "y": dt.timedelta(seconds=-1.5), "z": '{"a": 1.0}',
        "aa": 0, "ab": None, "ac": {"type_url": "u", "value": b"v"}, "ad": dt.date(2020, 2, 29),
        "ae": dt.datetime(1, 1, 1),
    }  # fmt: skip
    empty = read(written, written, "", "shop.All")
    assert {name for name, value in empty.items() if value is None} == set("qrsxyz") | {"aa", "ab", "ac", "ad", "ae"}
    assert (empty["a"], empty["n"], empty["p"], empty["t"], empty["v"]) == (0, "", "RED", [], [])


@given(random_rows(min_size=1))
def test_random_rows_give_what_the_official_deserializer_gives(rows: Rows) -> None:
    text = protobuf.derived(COLUMNS, "orders_value", None)
    records = protobuf.fitted(text, COLUMNS).encode(arrow_rows(rows), prefix(7, (0,))).to_pylist()
    writer = Reader(Written(text)).writer(Written(text))
    present = [one for one in records if one is not None]
    array = writer.make([writer.parse(one, head_of(one, has_indexes=True)[1]) for one in present])
    array.validate(full=True)
    official = ProtobufDeserializer(message_class(text), {"use.deprecated.format": False})
    for found, record in zip(array.to_pylist(), present, strict=True):
        expected = read_from_protobuf(official(record, VALUE)) or {}
        for name, value in expected.items():
            assert as_dict(found[name], COLUMNS[name].dataType) == value


@given(st.data())
def test_random_evolved_schemas_give_what_the_readers_own_class_gives(data: st.DataObject) -> None:
    pair = data.draw(pairs())
    wrote, reads = message_class(pair.writer), message_class(pair.reader)
    records = [wrote(**one).SerializeToString() for one in data.draw(st.lists(pair.values, min_size=1, max_size=3))]
    reader = Reader(Written(pair.reader))
    writer = reader.writer(Written(pair.writer))
    array = writer.make([writer.parse(bytes(5) + one, 5) for one in records])
    array.validate(full=True)
    found = [as_dict(one, reader.spark_type) for one in array.to_pylist()]
    assert found == [row_of(reads.FromString(one)) for one in records]


def as_dict(value: Any, data_type: T.DataType) -> Any:
    """Maps as dicts."""
    match data_type:
        case T.MapType() if value is not None:
            return {key: as_dict(one, data_type.valueType) for key, one in value}
        case T.StructType() if value is not None:
            return {one.name: as_dict(value[one.name], one.dataType) for one in data_type.fields}
        case T.ArrayType() if value is not None:
            return [as_dict(one, data_type.elementType) for one in value]
    return value


@pytest.mark.parametrize(
    ("written", "to", "text", "expected"),
    [
        ("int32 a = 1; string gone = 2;", "int32 a = 1; string new = 3; optional int32 o = 4;", 'a: 7 gone: "x"',
         {"a": 7, "new": "", "o": None}),
        ("int32 a = 1;", "int64 renamed = 1;", "a: -7", {"renamed": -7}),
        ("bool a = 1;", "int32 a = 1;", "a: true", {"a": 1}),
        ("string a = 1;", "bytes a = 1;", 'a: "x"', {"a": b"x"}),
        ("int32 a = 1;", "oneof b { int32 a = 1; }", "a: 7", {"a": 7}),
        ("enum E { X = 0; Y = 1; } message M { E a = 1; }", "enum E { X = 0; } message M { E a = 1; }", "a: Y",
         {"a": "1"}),
        ("string a = 1;", "repeated string a = 1;", 'a: "x"', {"a": ["x"]}),
        ("message M { N a = 1; } message N { int32 b = 1; int32 c = 2; }",
         "message M { N a = 1; } message N { int64 c = 2; }", "a { b: 1 c: 2 }", {"a": {"c": 2}}),
    ],
)  # fmt: skip
def test_a_schema_evolves_in_both_directions(written: str, to: str, text: str, expected: Any) -> None:
    assert read(of(written), of(to), text) == expected


@pytest.mark.parametrize(
    ("written", "to", "said"),
    [
        ("int64 a = 1;", "int32 a = 1;", "a: the writer has int64 there, and the reader int32"),
        ("int32 a = 1;", "sint32 a = 1;", "int32"), ("string a = 1;", "int32 a = 1;", "string"),
        ("int32 a = 1;", "repeated int32 a = 1;", "the reader repeated int32"),
        ("float a = 1;", "double a = 1;", "float"),
        ("message M { N a = 1; } message N { string b = 1; }", "message M { N a = 1; } message N { int32 b = 1; }",
         "a.b: the writer has string"),
        ("message M { int32 a = 1; }", "message M { N a = 1; } message N {}", "a: the writer has int32"),
        ("message M { map<string, int64> a = 1; }", "message M { map<string, int32> a = 1; }",
         "a.value: the writer has int64"),
    ],
)  # fmt: skip
def test_a_number_with_another_type_is_refused(written: str, to: str, said: str) -> None:
    with pytest.raises(BadRecord, match=said):
        read(of(written), of(to), "")


def test_a_group_is_read_and_is_no_message() -> None:
    """Protobuf would take a group for a message that is not there."""
    group, message = (
        Written(
            compiled(f'syntax = "proto2"; package shop; message M {{ {field} message N {{ optional int32 x = 1; }} }}')
        )
        for field in ("optional group G = 1 { optional int32 x = 1; }", "optional N g = 1;")
    )
    assert read(group, group, "G { x: 7 }") == read(message, message, "g { x: 7 }") == {"g": {"x": 7}}
    with pytest.raises(BadRecord, match="g: the writer has group there, and the reader message"):
        read(group, message, "G { x: 7 }")


def test_the_message_of_a_record_must_be_the_readers() -> None:
    file = of("message M { message In { int32 a = 1; } } message Other { int32 b = 1; }")
    for name, path in (("shop.M", (0,)), ("shop.Other", (1,)), ("shop.M.In", (0, 0))):
        assert Reader(file, name).writer(file).message == path
    assert read(file, file, "b: 7", "shop.Other") == {"b": 7}
    with pytest.raises(SchemaUnreadable, match=r"it has no message shop\.Nowhere"):
        Reader(file, "shop.Nowhere")
    with pytest.raises(BadRecord, match=r"it has no message shop\.M"):
        Reader(of("int32 a = 1;")).writer(Written(compiled('syntax = "proto3"; package other; message M {}')))


def test_files_that_are_imported_are_read_with_it() -> None:
    place = compiled('syntax = "proto3"; package geo; message Place { double lat = 1; }')
    proto = protobuf._file(compiled('syntax = "proto3"; package shop; message M { int32 a = 1; }'))
    proto.dependency.append("geo/place.proto")
    proto.message_type[0].field[0].type, proto.message_type[0].field[0].type_name = 11, ".geo.Place"
    written = Written(base64.b64encode(proto.SerializeToString()).decode(), (("geo/place.proto", place),))
    writer = Reader(written).writer(written)
    assert writer.make([writer.parse(b"\x0a\x09\x09" + bytes(6) + b"\xf0\x3f", 0)]).to_pylist() == [{"a": {"lat": 1.0}}]


@pytest.mark.parametrize(
    "path", ["google/protobuf/nowhere.proto", "google/type/nowhere.proto", "confluent/nowhere.proto", "google/type/.."]
)
def test_an_import_that_there_is_not_is_the_schemas_fault(path: str) -> None:
    """Not that of packages: their error fails the task whatever bad_rows is."""
    file = FileDescriptorProto.FromString(base64.b64decode(of("int32 a = 1;").text))
    file.dependency.append(path)
    text = base64.b64encode(file.SerializeToString()).decode()
    with pytest.raises(BadRecord, match=f"it imports {path}, which there is not"):
        Reader(of("int32 a = 1;")).writer(Written(text))


def test_what_the_official_serializer_frames_is_read() -> None:
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    file = compiled(
        """syntax = "proto3"; package shop; message First {} message M { int32 a = 1; message In { int32 b = 1; } }"""
    )
    for name, value, path in (("shop.M", {"a": 7}, (1,)), ("shop.M.In", {"b": 7}, (1, 0))):
        cls = message_class(file, name)
        record = ProtobufSerializer(cls, client, {"use.deprecated.format": False})(cls(**value), VALUE)
        (_, message), end = head_of(record or b"", has_indexes=True)
        writer = Reader(Written(file), name).writer(Written(file))
        assert message == writer.message == path
        assert writer.make([writer.parse(record or b"", end)]).to_pylist() == [value]


def test_hostile_messages_and_schemas_are_errors() -> None:
    with pytest.raises(SchemaUnreadable, match=r"its message shop\.M contains itself"):
        Reader(of("message M { optional M next = 1; }"))
    levels = " ".join(f"message L{n} {{ L{n - 1} a = 1; L{n - 1} b = 2; }}" for n in range(1, 40))
    with pytest.raises(SchemaUnreadable, match="more than 20000 fields"):
        Reader(of(f"message M {{ L39 a = 1; }} message L0 {{ int32 a = 1; }} {levels}"))
    deep = of("message M { string a = 1; N n = 2; } message N { optional N next = 1; }")
    writer = Reader(of("string a = 1;")).writer(deep)
    for data in (b"\x0a\xff\xff\xff\x7f", b"\x0a\x01\xff", b"\x0a\x05a", b"\x13" * 1000, b"\x80" * 20):
        with pytest.raises((BadRecord, DecodeError)):
            writer.make([writer.parse(data, 0)])
    text = protobuf.derived(T.StructType([T.StructField("d", T.DecimalType(5, 2))]), "r", None)
    decimal, of_decimal = message_class(text), Reader(Written(text)).writer(Written(text))
    for bad in ({"value": bytes(50), "scale": 2}, {"value": b"\1", "scale": 2**31 - 1}, {"value": b"\1", "scale": 19}):
        with pytest.raises(BadRecord, match="d: the value does not fit"):
            of_decimal.make([decimal(d=bad)])
    assert of_decimal.make([decimal(d={"value": b"\x7d", "scale": 2})]).to_pylist() == [{"d": Decimal("1.25")}]


def test_times_that_spark_cannot_hold_are_refused() -> None:
    written = Written(compiled(EVERYTHING))
    for value, said in (
        ("x { seconds: 9223372036854775807 }", "x: the value"), ("ad { year: 0 month: 1 day: 1 }", "ad: the value"),
        ("ad { year: 2021 month: 2 day: 29 }", "ad: the value"),
        ("ae { year: 1 month: 1 day: 1 utc_offset { seconds: 3600 } }", "has an offset"),
        ("z { fields { key: 'a' value { number_value: nan } } }", "z: the value"),
    ):  # fmt: skip
        with pytest.raises(BadRecord, match=said):
            read(written, written, value, "shop.All")

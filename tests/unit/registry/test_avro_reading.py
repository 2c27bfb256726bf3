"""Avro records of any writer's schema, resolved to the reader's: by tables, and as the official deserializer does."""

import datetime as dt
import io
import json
import time
import tracemalloc
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from fastavro import parse_schema, schemaless_writer
from hypothesis import example, given
from hypothesis import strategies as st

from avro_schemas import normal, pairs
from kafka_sink.errors import SchemaUnreadable, TypeNotMapped
from kafka_sink.registry import arrays, avro_reading
from kafka_sink.registry.arrays import BadRecord
from kafka_sink.registry.avro_reading import Reader
from kafka_sink.registry.avro_schemas import Raw, Schema, check_numbers, may_have_long_number
from kafka_sink.registry.references import Written

VALUE = SerializationContext("orders", MessageField.VALUE)
UTC = dt.UTC


def record(*types: Any, name: str = "r", **more: Any) -> dict[str, Any]:
    """A record with fields f0, f1, ... of these types. A dict with a name is a field itself."""
    fields = [one if isinstance(one, dict) and "name" in one and "type" in one and one["type"] not in NAMED
              else {"name": f"f{i}", "type": one} for i, one in enumerate(types)]  # fmt: skip
    return {"type": "record", "name": name, "fields": fields, **more}


NAMED = ("record", "enum", "fixed")


def reader(schema: Any) -> Reader:
    return Reader(Written(json.dumps(schema)))


def payload(schema: Any, value: Any) -> bytes:
    data = io.BytesIO()
    schemaless_writer(data, parse_schema(json.loads(json.dumps(schema))), value)
    return data.getvalue()


def read(writer: Any, to: Any, *values: Any) -> list[Any]:
    """Write values with one schema, and read them with another."""
    decoding = reader(to).writer(Written(json.dumps(writer)))
    array = decoding.make([decoding.parse(payload(writer, value), 0) for value in values])
    array.validate(full=True)
    return list(array.to_pylist())


def why(writer: Any, to: Any, *values: Any) -> str:
    with pytest.raises(BadRecord) as bad:
        read(writer, to, *values)
    return str(bad.value)


@given(st.data())
def test_evolved_schemas_give_what_the_official_deserializer_gives(data: st.DataObject) -> None:
    pair = data.draw(pairs())
    values = data.draw(st.lists(pair.values, min_size=1, max_size=4))
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    serialize = AvroSerializer(client, json.dumps(pair.writer))
    deserialize = AvroDeserializer(client, json.dumps(pair.reader))
    # The official deserializer refuses a record without any field's byte.
    records = [one for one in (serialize(value, VALUE) for value in values) if one is not None and len(one) > 5]
    writer = reader(pair.reader).writer(Written(json.dumps(pair.writer)))
    array = writer.make([writer.parse(one, 5) for one in records])
    array.validate(full=True)
    assert [normal(one) for one in array.to_pylist()] == [normal(deserialize(one, VALUE)) for one in records]


def logical(kind: str, of: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": of, **more}


FOUR = {"type": "fixed", "name": "Four", "size": 4}
COLOURS = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
DECIMAL = logical("bytes", "decimal", precision=5, scale=2)
PLACE = record("long", name="Place")
MICROS = 1_577_836_800_000_001
MOMENT = dt.datetime(2020, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("written", "to", "value", "expected"),
    [
        ("int", "float", 2**24 + 1, 2.0**24), ("long", "float", 2**60 + 2**36 + 1, float(2**60 + 2**37)),
        ("long", "double", 2**53 + 1, 2.0**53), ("string", "bytes", "\u00e9", "\u00e9".encode()),
        ("bytes", "string", "\u00e9".encode(), "\u00e9"),
        # The same type first, then one that the number is promoted to: as Java.
        ("int", ["null", "string", "double", "int"], 7, {"member0": None, "member1": None, "member2": 7}),
        ("int", ["null", "string", "double"], 7, {"member0": None, "member1": 7.0}),
        ("int", ["int", "long"], 7, 7), (["float", "double"], ["float", "double"], 0.5, 0.5),
        (["null", "int"], "int", 7, 7), ("null", ["string", "null"], None, None), (["int"], "long", 7, 7),
        (["null", "int", "string"], ["null", "string"], "a", "a"),
        (["int", "string"], ["string", "int"], 7, {"member0": None, "member1": 7}),
        (COLOURS, {**COLOURS, "symbols": ["BLUE"], "default": "BLUE"}, "RED", "BLUE"),
        ({**COLOURS, "name": "old.Color"}, {**COLOURS, "name": "new.Colour", "aliases": ["old.Color"]}, "RED", "RED"),
        (FOUR, {**FOUR, "name": "other.Four"}, b"abcd", b"abcd"),
        # Times of a family are converted, whatever their unit.
        (logical("long", "timestamp-millis"), logical("long", "timestamp-micros"), MOMENT, MOMENT),
        ("long", logical("long", "timestamp-micros"), MICROS, MOMENT.replace(microsecond=1)),
        (logical("long", "timestamp-nanos"), logical("long", "timestamp-micros"), -1, dt.datetime(
            1969, 12, 31, 23, 59, 59, 999_999, UTC)),
        (logical("long", "timestamp-millis"), logical("long", "timestamp-nanos"), MOMENT, 1_577_836_800 * 10**9),
        (logical("long", "local-timestamp-millis"), logical("long", "local-timestamp-micros"), dt.datetime(1, 1, 1),
         dt.datetime(1, 1, 1)),
        (logical("int", "time-millis"), logical("long", "time-micros"), dt.time(0, 0, 1), 1_000_000),
        (logical("int", "time-millis"), logical("int", "time-millis"), dt.time(0, 0, 1), 1_000),
        ("int", logical("int", "date"), -1, dt.date(1969, 12, 31)), (logical("int", "date"), "long", dt.date(
            1970, 1, 3), 2),
        (DECIMAL, {**DECIMAL, "precision": 7, "scale": 4}, Decimal("-1.25"), Decimal("-1.2500")),
        (logical("fixed", "decimal", name="F", size=2, precision=4, scale=1),
         logical("fixed", "decimal", name="F", size=2, precision=4, scale=1), Decimal("-12.5"), Decimal("-12.5")),
        (logical("fixed", "uuid", name="U", size=16), logical("fixed", "uuid", name="U", size=16), bytes(range(16)),
         "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        (logical("fixed", "duration", name="D", size=12), logical("fixed", "duration", name="D", size=12),
         b"\x01\0\0\0\x02\0\0\0\xff\xff\xff\xff", {"months": 1, "days": 2, "milliseconds": 2**32 - 1}),
        # A logical type that does not hold is left out.
        (logical("string", "date"), logical("string", "date"), "a", "a"),
        ({"type": "array", "items": ["null", "int"]}, {"type": "array", "items": ["long", "null"]}, [1, None],
         [1, None]),
        ({"type": "map", "values": PLACE}, {"type": "map", "values": PLACE}, {"k": {"f0": 7}}, [("k", {"f0": 7})]),
    ],
)  # fmt: skip
def test_a_field_is_resolved(written: Any, to: Any, value: Any, expected: Any) -> None:
    assert read(record(written), record(to), {"f0": value}) == [{"f0": expected}]


def test_a_logical_type_that_contradicts_its_type_is_ignored_as_in_java() -> None:
    fixed = logical("fixed", "decimal", name="F", size=1, precision=9)
    odd = record(logical("bytes", "decimal", precision=2, scale=3), fixed)
    data = payload(record("bytes", {**fixed, "logicalType": ""}), {"f0": b"\1", "f1": b"\2"})
    decoding = reader(odd).writer(Written(json.dumps(odd)))
    assert decoding.make([decoding.parse(data, 0)]).to_pylist() == [{"f0": b"\1", "f1": b"\2"}]


@pytest.mark.parametrize(
    ("to", "default", "expected"),
    [
        ("bytes", "\u00ff\u0000", b"\xff\0"), (FOUR, "\u00ffabc", b"\xffabc"), (COLOURS, "BLUE", "BLUE"),
        (DECIMAL, "\u0004\u00d2", Decimal("12.34")), (logical("int", "date"), 1, dt.date(1970, 1, 2)),
        (logical("long", "timestamp-millis"), 1, dt.datetime(1970, 1, 1, microsecond=1000, tzinfo=UTC)),
        ("double", 3, 3.0), (["null", "string"], None, None), (["string", "null"], "a", "a"),
        (["null", "string"], "a", "a"),
        (["int", "string"], "a", {"member0": None, "member1": "a"}),
        (record({"name": "x", "type": "bytes", "default": "\u00ff"}, {"name": "y", "type": "int"}, name="In"),
         {"y": 1}, {"x": b"\xff", "y": 1}),
        ({"type": "array", "items": FOUR}, ["abcd"], [b"abcd"]),
        ({"type": "map", "values": "long"}, {"k": 1}, [("k", 1)]),
    ],
)  # fmt: skip
def test_a_field_that_the_writer_has_not_gets_its_default(to: Any, default: Any, expected: Any) -> None:
    new = {"name": "new", "type": to, "default": default}
    assert read(record("int"), record(new), {"f0": 1}, {"f0": 2}) == [{"new": expected}] * 2


@pytest.mark.parametrize("default", ["", "abc", "abcde"])
def test_a_default_of_another_size_than_its_fixed_is_refused(default: str) -> None:
    new = {"name": "new", "type": FOUR, "default": default}
    assert "has not the 4 bytes of its fixed" in why(record("int"), record(new), {"f0": 1})


def test_fields_are_found_by_name_or_alias_in_any_order_and_others_are_left_out() -> None:
    written = record("int", "string", {"name": "gone", "type": PLACE}, name="old.r", namespace="old")
    to = record({"name": "b", "aliases": ["f1"], "type": "string"}, {"name": "f0", "type": "int"}, name="new.r")
    assert read(written, to, {"f0": 1, "f1": "a", "gone": {"f0": 2}}) == [{"b": "a", "f0": 1}]


def test_named_types_are_found_in_each_place_and_in_schemas_that_are_referred_to() -> None:
    place = {**PLACE, "name": "shop.Place"}
    order = {"type": "record", "name": "shop.Order", "fields": [
        {"name": "home", "type": "Place"},
        {"name": "others", "type": {"type": "array", "items": "shop.Place"}}]}  # fmt: skip
    written = Written(json.dumps(order), (("shop.Place", json.dumps(place)),))
    writer = Reader(written).writer(written)
    assert writer.make([writer.parse(b"\x02\x04\x04\x06\x00", 0)]).to_pylist() == [
        {"home": {"f0": 1}, "others": [{"f0": 2}, {"f0": 3}]}
    ]


def test_a_whole_that_is_no_record_is_a_column_too() -> None:
    assert read("string", "string", "a") == ["a"]
    assert read(["null", "int"], ["null", "long"], None, 1) == [None, 1]
    assert str(reader({"type": "array", "items": "int"}).spark_type.simpleString()) == "array<int>"
    # The official serializers write bytes alone without their length.
    writer = reader("bytes").writer(Written('"bytes"'))
    assert writer.make([writer.parse(b"12345ab", 5)]).to_pylist() == [b"ab"]


def test_a_writer_that_the_reader_cannot_read_is_said_with_the_place() -> None:
    place, number = {**PLACE, "name": "Elsewhere"}, record("int", name="Place")
    for written, to, value, said in (
        ("string", "int", "a", "f0: the writer has string there, and the reader int"),
        (["null", "int"], "int", None, "f0: it is null, where the reader's schema has no null"),
        ("null", "int", None, "f0: the writer has null there"),
        (["int", "string"], "int", "a", "f0: the writer has string there"),
        (COLOURS, {**COLOURS, "symbols": ["BLUE"]}, "RED", "f0: the symbol is not in the reader's enum"),
        (FOUR, {**FOUR, "size": 5}, b"abcd", "f0: the sizes of fixed differ, 4 and 5"),
        (place, PLACE, {"f0": 1}, "f0: the writer's Elsewhere is neither the reader's Place nor one of its aliases"),
        (PLACE, record("string", name="Place"), {"f0": 1}, "f0.f0: the writer has long there"),
        (number, record("int", "int", name="Place"), {"f0": 1}, "f0.f1: the writer has no such field"),
        ("bytes", "string", b"\xff", "f0: it is not UTF-8"),
        (
            logical("int", "date"),
            logical("long", "timestamp-millis"),
            dt.date(2020, 1, 1),
            "the reader timestamp-millis",
        ),
        (
            logical("long", "timestamp-millis"),
            logical("long", "local-timestamp-millis"),
            MOMENT,
            "and the reader local",
        ),
        (DECIMAL, {**DECIMAL, "scale": 1}, Decimal("1.25"), "f0: the value does not fit the type"),
        (DECIMAL, {**DECIMAL, "precision": 2, "scale": 2}, Decimal("1.25"), "f0: the value does not fit the type"),
        (logical("long", "timestamp-millis"), logical("long", "timestamp-micros"), 2**62, "f0: the value does not fit"),
    ):
        assert said in why(record(written), record(to), {"f0": value})


def test_a_whole_that_does_not_fit_is_named() -> None:
    assert why("string", "int", "a").endswith(": the whole: the writer has string there, and the reader int")
    assert why("bytes", "string", b"\xff") == "the whole: it is not UTF-8"
    assert why(["null", "int"], "int", None) == "the whole: it is null, where the reader's schema has no null"


def test_a_readers_schema_without_a_type_of_spark_is_refused_by_its_path() -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    with pytest.raises(SchemaUnreadable, match="its type Node contains itself"):
        reader(record(node))
    with pytest.raises(TypeNotMapped, match=r"'f0'.*a decimal of 39 digits"):
        reader(record({**DECIMAL, "precision": 39}))
    for text in ("", "{", '{"type": "record"}', '"nowhere"', '["int", ["null", "string"]]'):
        with pytest.raises(SchemaUnreadable):
            Reader(Written(text))


def test_what_a_record_may_be_of_hostile_bytes_is_an_error_in_little_time() -> None:
    """Bytes of each kind of mistake, and none is read as something else."""
    whole = record("long", {"type": "array", "items": "string"}, COLOURS, "double", ["null", "int"])
    value = {"f0": 1, "f1": ["a"], "f2": "BLUE", "f3": 0.5, "f4": 7}
    good = payload(whole, value)
    assert good == b"\x02" + b"\x02\x02a\x00" + b"\x02" + good[6:14] + b"\x02\x0e"
    huge = b"\xff" * 8 + b"\x7f"
    writer = reader(whole).writer(Written(json.dumps(whole)))
    for data, said in (
        (good[:-1], EOFError), (good + b"\0", BadRecord), (b"", EOFError),
        (b"\x02" + huge + good[2:], EOFError), (b"\x02\x02" + huge + good[3:], EOFError),
        (b"\x02\x02\x01" + good[3:], EOFError), (good[:-2] + b"\x04\x0e", IndexError),
    ):  # fmt: skip
        with pytest.raises(said):
            writer.parse(data, 0)
    for symbol in (b"\x01", b"\x04"):
        with pytest.raises(BadRecord, match="the number is of no symbol"):
            writer.make([writer.parse(good[:5] + symbol + good[6:], 0)])
    for wide in (payload(record("long"), {"f0": 2**31}), payload(record("long"), {"f0": -(2**31) - 1})):
        of_int = reader(record("int")).writer(Written(json.dumps(record("int"))))
        with pytest.raises(BadRecord, match="f0: the value does not fit"):
            of_int.make([of_int.parse(wide, 0)])


NINE_HIGH = b"\xff" * 9


@pytest.mark.parametrize("number", [NINE_HIGH + b"\x02", NINE_HIGH + b"\x80\x01", b"\x80" * 20 + b"\x01"])
@pytest.mark.parametrize(
    ("schema", "before", "behind"),
    [
        ("long", b"", b""), ("int", b"", b""), ("string", b"", b""), (["bytes", "int"], b"\x00", b""),
        (["null", "long"], b"\x02", b""), (["null", "long"], b"", b""), (["long", "bytes"], b"", b"\x00"),
        ({"type": "array", "items": "long"}, b"", b"\x00"), ({"type": "array", "items": "long"}, b"\x02", b"\x00"),
        ({"type": "array", "items": "long"}, b"\x01", b"\x02\x00"),
        ({"type": "array", "items": "long"}, b"\x01\x02\x02", b""),
        ({"type": "map", "values": "long"}, b"\x02\x02k", b"\x00"),
        (record("boolean", "float", "double", FOUR, "null", "string", COLOURS, "long", name="Inner"),
         b"\x01" + bytes(4) + NINE_HIGH[:8] + b"\xff\xffaa" + b"\x04\xc3\xa9" + b"\x02", b""),
    ],
)  # fmt: skip
def test_a_number_of_more_than_64_bits_is_refused(schema: Any, before: bytes, behind: bytes, number: bytes) -> None:
    """fastavro leaves bits out, and reads another number."""
    for whole in (schema, record(schema)):
        writer = reader(whole).writer(Written(json.dumps(whole)))
        with pytest.raises((BadRecord, *writer.bad)) as refused:
            writer.parse(before + number + behind, 0)
        if schema in ("long", "int"):
            assert str(refused.value) == "a number in it has more than 64 bits"


@given(st.data())
def test_numbers_are_looked_for_in_all_of_a_record(data: st.DataObject) -> None:
    """A record of any types is read over to its end, and bytes like those of a number are not taken for one."""
    pair = data.draw(pairs())
    schema = Schema.of(Written(json.dumps(pair.writer)))
    raw = Raw(schema).of(schema.whole)
    for value in data.draw(st.lists(pair.values, min_size=1, max_size=4)):
        written = payload(pair.writer, value)
        assert check_numbers(raw, written, 0) == len(written)


def test_bytes_like_those_of_a_long_number_are_none() -> None:
    whole = record("bytes", "string", "long", "double", {"type": "array", "items": "long"})
    value = {"f0": b"\xff" * 30, "f1": "\u65e5\u672c\u8a9e" * 9, "f2": -(2**63), "f3": -1e300, "f4": [2**63 - 1, 0]}
    assert read(whole, whole, value) == [value]
    assert may_have_long_number(payload(whole, value))


@pytest.mark.parametrize(
    ("union", "data"),
    [
        (["null", "int"], b"\x01\x0e"), (["int", "null"], b"\x01"), (["null", "int", "string"], b"\x03\x0e"),
        ({"type": "array", "items": ["null", "int"]}, b"\x02\x01\x0e\x00"),
        ({"type": "map", "values": ["null", "int"]}, b"\x02\x00\x01\x0e\x00"),
    ],
)  # fmt: skip
def test_a_negative_number_of_a_branch_is_refused(union: Any, data: bytes) -> None:
    """fastavro takes it from the end: a null would be a number."""
    for whole, begin in ((union, b""), (record(union), b""), (record("int", record(union, name="In")), b"\x00")):
        writer = reader(whole).writer(Written(json.dumps(whole)))
        with pytest.raises(BadRecord, match="the number is of no branch of the writer's union"):
            writer.parse(begin + data, 0)


@pytest.mark.parametrize("to", ["int", "long", "float", "double", ["string", "long"], logical("long", "time-micros")])
def test_an_int_beyond_32_bits_is_refused_whatever_it_is_promoted_to(to: Any) -> None:
    writer = reader(record(to)).writer(Written(json.dumps(record("int"))))
    for number in (2**31, -(2**31) - 1):
        with pytest.raises(BadRecord, match="the value does not fit the type"):
            writer.make([writer.parse(payload("long", one), 0) for one in (0, number)])


def doubling(levels: int) -> dict[str, Any]:
    """A record of 2^levels fields in the end, in a text that grows by a line a level."""
    fields: list[Any] = [{"name": "f", "type": "null"}]
    for level in range(levels):
        inner: Any = {"type": "record", "name": f"L{level}", "fields": fields}
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"L{level}"}]
    return {"type": "record", "name": "Whole", "fields": fields}


NOTHING = record("null", "null", name="Nothing")
NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}


@pytest.mark.parametrize(
    ("hostile", "said"),
    [
        ({"type": "array", "items": "null"}, "no bytes"), ({"type": "array", "items": NOTHING}, "no bytes"),
        ({"type": "array", "items": {"type": "fixed", "name": "Z", "size": 0}}, "no bytes"),
        ({"type": "array", "items": record("boolean", *["null"] * 9, name="Nearly")}, "nearly none"),
        ({"type": "map", "values": record(*["null"] * 9, name="Many")}, "nearly none"),
        ({"type": "array", "items": ["int", record(*["null"] * 9, name="Many")]}, "nearly none"),
        (NODE, "its type Node contains itself"), (doubling(40), "more than 20000 types"),
    ],
)  # fmt: skip
def test_a_hostile_schema_of_a_writer_is_refused_also_in_a_field_that_is_left_out(hostile: Any, said: str) -> None:
    """fastavro would take as long as a count says, or overflow C's stack."""
    begun = time.monotonic()
    with pytest.raises(BadRecord, match=said):
        reader(record("int")).writer(Written(json.dumps(record("int", hostile))))
    with pytest.raises(SchemaUnreadable, match=said) if said.startswith(("its", "more")) else pytest.raises(BadRecord):
        reader(record(hostile)).writer(Written(json.dumps(record(hostile))))
    assert time.monotonic() - begun < 60


def test_a_decimal_of_a_billion_digits_is_looked_at_in_little_time() -> None:
    """A power of ten with so many digits took hours, and nothing else ran."""
    huge = logical("fixed", "decimal", name="F", size=2 * 10**9, precision=10**9)
    begun = time.monotonic()
    with pytest.raises(TypeNotMapped, match="a decimal of 1000000000 digits"):
        reader(record(huge))
    with pytest.raises(BadRecord, match="the writer has fixed there"):
        reader(record("int")).writer(Written(json.dumps(record(huge))))
    # One byte less, and the logical type is ignored.
    assert reader(record({**huge, "size": 415241011})).spark_type.simpleString() == "struct<f0:binary>"
    assert time.monotonic() - begun < 60


def test_an_array_of_nulls_in_a_union_is_read_as_each_has_a_byte() -> None:
    nulls = {"type": "array", "items": ["null", record(name="Empty"), "int"]}
    assert read(record(nulls), record(nulls), {"f0": [None, 7]}) == [{"f0": [None, {"member0": None, "member1": 7}]}]


def test_defaults_have_a_bound() -> None:
    """A default is in every row, so a few bytes would become gigabytes."""
    long_default = {"name": "new", "type": "string", "default": "a" * (avro_reading.MAX_DEFAULT_BYTES + 1)}
    assert "the defaults for fields" in why(record("int"), record(long_default), {"f0": 1})


def test_defaults_in_the_items_of_a_record_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record of 200 KB had 12 GB of defaults."""
    monkeypatch.setattr(arrays, "MOST_REPEATED_BYTES", 10_000)
    written = record({"type": "array", "items": record("boolean", name="In")})
    new = {"name": "new", "type": "string", "default": "a" * 100}
    to = record({"type": "array", "items": record("boolean", new, name="In")})
    assert len(read(written, to, {"f0": [{"f0": True}] * 90})[0]["f0"]) == 90
    assert "with the reader's defaults" in why(written, to, {"f0": [{"f0": True}] * 100})
    two = record({"type": "array", "items": record("boolean", new, {**new, "name": "newer"}, name="In")})
    assert "with the reader's defaults" in why(written, two, {"f0": [{"f0": True}] * 90})


@given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38), st.integers(0, 38), st.integers(1, 38))
@example(10**20, 6, 34, 38)
@example(-1, 0, 38, 38)
def test_a_decimal_is_read_exactly_or_not_at_all(number: int, written: int, scale: int, precision: int) -> None:
    """Arrow's cast gave 10^14 with 34 digits behind the point as 1896.01...: it wraps around 128 bits."""
    make = arrays.decimals(pa.decimal128(max(precision, scale), scale), written)
    data = number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
    exact, lost = divmod(number * 10 ** max(0, scale - written), 10 ** max(0, written - scale))
    if lost or abs(exact) >= 10 ** max(precision, scale):
        with pytest.raises((ValueError, ArithmeticError)):
            make([b"\0", data])
    else:
        assert make([b"\0", data])[1].as_py() == Decimal((exact < 0, tuple(map(int, str(abs(exact)))), -scale))


def test_records_take_a_bounded_multiple_of_their_bytes() -> None:
    lists = {"type": "array", "items": {"type": "array", "items": "int"}}
    writer = reader(record(lists)).writer(Written(json.dumps(record(lists))))
    empty = b"\x80\x80\x02" + b"\0" * 16384 + b"\0"
    tracemalloc.start()
    try:
        array = writer.make([writer.parse(empty, 0)])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(array[0]["f0"]) == 16384 and isinstance(array, pa.Array)
    assert peak < 200 * len(empty)

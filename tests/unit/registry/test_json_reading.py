"""JSON records read by a JSON Schema: types, nulls, and what is refused. Also as the official deserializer reads."""

import base64
import datetime as dt
import itertools
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st

from kafka_sink.errors import SchemaUnreadable
from kafka_sink.registry import json_schema
from kafka_sink.registry.arrays import BadRecord
from kafka_sink.registry.json_reading import Reader
from kafka_sink.registry.references import Written
from registry_rows import COLUMNS

VALUE = SerializationContext("orders", MessageField.VALUE)
STRING = {"type": "string"}


def reader(schema: Any, **others: Any) -> Reader:
    return Reader(Written(json.dumps(schema), tuple((name, json.dumps(one)) for name, one in others.items())))


def decoded(of: Reader, *texts: str) -> list[Any]:
    writer = of.writer(None)
    array = writer.make([writer.parse(text.encode(), 0) for text in texts])
    array.validate(full=True)
    return list(array.to_pylist())


def read(schema: Any, value: Any, **others: Any) -> Any:
    """A property's value, as JSON or as Python has it."""
    text = value if isinstance(value, str) else json.dumps(value)
    whole = {"type": "object", "properties": {"p": schema}}
    return decoded(reader(whole, **others), f'{{"p": {text}}}')[0]["p"]


def typed(schema: Any, **others: Any) -> str:
    whole = {"type": "object", "properties": {"p": schema}}
    return str(reader(whole, **others).spark_type.simpleString()).removeprefix("struct<p:")[:-1]


@pytest.mark.parametrize(
    ("schema", "spark", "text", "expected"),
    [
        ({"type": "boolean"}, "boolean", "true", True), ({"type": "integer"}, "bigint", "-7", -7),
        ({"type": "integer"}, "bigint", "7.0", 7), ({"type": "integer"}, "bigint", str(2**63 - 1), 2**63 - 1),
        ({"type": "number"}, "double", "7", 7.0), ({"type": ["integer", "number"]}, "double", "0.5", 0.5),
        (STRING, "string", '"\\u00e6"', "\u00e6"), ({**STRING, "format": "uuid"}, "string", '"x"', "x"),
        ({**STRING, "contentEncoding": "base64"}, "binary", '"/wA="', b"\xff\0"),
        ({**STRING, "format": "date"}, "date", '"0001-01-01"', dt.date(1, 1, 1)),
        ({**STRING, "format": "date-time"}, "timestamp", '"2020-01-01T02:00:00.123456789+02:00"',
         dt.datetime(2020, 1, 1, 0, 0, 0, 123456, dt.UTC)),
        ({**STRING, "format": "date-time"}, "timestamp", '"2020-01-01t00:00:00z"',
         dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
        ({"type": ["null", "string"]}, "string", "null", None),
        ({"oneOf": [{"type": "null"}, STRING]}, "string", '"a"', "a"),
        ({"anyOf": [STRING, {"type": "null"}]}, "string", "null", None),
        ({"enum": ["a", None]}, "string", "null", None),
        ({"const": 7}, "bigint", "7", 7), ({"enum": ["a", 1]}, "string", '"a"', '"a"'),
        ({"type": "array", "items": {"type": "integer"}}, "array<bigint>", "[1, 2]", [1, 2]),
        ({"type": "array", "items": [STRING]}, "array<string>", '["a", 1, null]', ['"a"', "1", None]),
        ({"type": "object"}, "map<string,string>", '{"a": [1], "b": null}', [("a", "[1]"), ("b", None)]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "map<string,bigint>", '{"a": 1}', [("a", 1)]),
        ({"patternProperties": {"^x": STRING}, "additionalProperties": False}, "map<string,string>", '{"x": "a"}',
         [("x", "a")]),
        (True, "string", '{"a": 1}', '{"a": 1}'), ({}, "string", "null", None),
        ({"oneOf": [STRING, {"type": "object"}]}, "string", '{"a": "\u00e6"}', '{"a": "\u00e6"}'),
        ({"properties": {"a": STRING}, "required": ["a"], "anyOf": [{"required": ["a"]}]}, "struct<a:string>",
         '{"a": "x", "more": 1}', {"a": "x"}),
        ({"allOf": [{"properties": {"a": STRING}}, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}]},
         "struct<a:string,b:bigint>", '{"b": 1}', {"a": None, "b": 1}),
    ],
)  # fmt: skip
def test_a_value_is_read_by_its_schema(schema: Any, spark: str, text: str, expected: Any) -> None:
    assert typed(schema) == spark
    assert read(schema, text) == expected


def test_what_is_referred_to_is_read_in_the_schema_and_in_others() -> None:
    place = {"properties": {"lat": {"$ref": "#/definitions/number"}}, "definitions": {"number": {"type": "number"}}}
    whole = {"properties": {"at": {"$ref": "place.json"}, "to": {"$ref": "#/$defs/s"}}, "$defs": {"s": STRING}}
    found = decoded(reader(whole, **{"place.json": place}), '{"at": {"lat": 1}, "to": "x"}')
    assert found == [{"at": {"lat": 1.0}, "to": "x"}]


WHOLE_NUMBER = {"type": "integer"}


@pytest.mark.parametrize(
    ("draft", "keyword", "anchored", "more"),
    [
        ("http://json-schema.org/draft-04/schema#", "id", {"id": "#n"}, {"minimum": 0, "exclusiveMinimum": True}),
        ("http://json-schema.org/draft-06/schema#", "$id", {"$id": "#n"}, {"exclusiveMinimum": 0}),
        ("http://json-schema.org/draft-07/schema#", "$id", {"$id": "#n"}, {"if": {"minimum": 9}, "then": {}}),
        ("https://json-schema.org/draft/2019-09/schema", "$id", {"$anchor": "n"}, {"unevaluatedProperties": False}),
        ("https://json-schema.org/draft/2020-12/schema", "$id", {"$anchor": "n"}, {"$dynamicAnchor": "m"}),
    ],
)  # fmt: skip
def test_each_draft_finds_what_it_refers_to(draft: str, keyword: str, anchored: Any, more: Any) -> None:
    schema = {
        "$schema": draft, keyword: "https://a.b/order.json", "type": "object", "required": ["a"],
        "properties": {"a": {"$ref": "#n"}, "b": {"$ref": "m.json"}, "c": {"oneOf": [{"type": "null"}, WHOLE_NUMBER]}},
        "definitions": {"n": {**WHOLE_NUMBER, **anchored, **more}, "m": {**STRING, keyword: "m.json"}},
    }  # fmt: skip
    validator = jsonschema.validators.validator_for(schema)(schema)
    of = reader(schema)
    assert of.spark_type.simpleString() == "struct<a:bigint,b:string,c:bigint>"
    for value in ({"a": 7, "b": "x", "c": None}, {"a": 8, "c": 1}):
        assert validator.is_valid(value)
        assert decoded(of, json.dumps(value)) == [{"b": None, **value}]
    assert not validator.is_valid({"a": "7"})
    with pytest.raises(BadRecord, match="a: the value"):
        decoded(of, '{"a": "7"}')


@pytest.mark.parametrize(
    ("schema", "text", "said"),
    [
        ({"type": "boolean"}, "1", "p: the value"), ({"type": "integer"}, "true", "p: the value"),
        ({"type": "integer"}, "7.5", "p: the value"), ({"type": "integer"}, str(2**63), "p: the value"),
        ({"type": "number"}, '"7"', "p: the value"), ({"type": "number"}, "9" * 400, "p: the value"),
        (STRING, "7", "p: the value"),
        (STRING, '"\\ud800"', "p: the value"), ({**STRING, "contentEncoding": "base64"}, '"?"', "p: the value"),
        ({**STRING, "format": "date"}, '"2020-W01"', "p: the value"),
        ({**STRING, "format": "date"}, "1", "p: the value"),
        ({**STRING, "format": "date-time"}, '"2020-01-01T00:00:00"', "p: the value"),
        ({"type": "array", "items": STRING}, '"ab"', "p: it is no array"),
        ({"type": "object"}, "[]", "p: it is no object"),
        ({"type": "array", "items": STRING}, "[null]", r"p\[\]: it is null"),
        ({"properties": {"a": STRING}, "required": ["a"]}, "{}", "p.a: it is not there"),
        ({"properties": {"a": STRING}, "required": ["a"]}, '{"a": null}', "p.a: it is null"),
        ({"type": "number"}, "NaN", "it has NaN"), ({"type": "number"}, "-1e999", "p: the value"),
        ({}, '{"a": [1e999]}', "p: the value"),
    ],
)  # fmt: skip
def test_a_value_of_another_type_is_refused_with_its_place(schema: Any, text: str, said: str) -> None:
    with pytest.raises(BadRecord, match=said):
        read(schema, text)


def test_a_whole_that_does_not_fit_is_named() -> None:
    for schema, text, said in (
        ({"type": "object", "properties": {"p": {}}}, "[]", "the whole: it is no object"),
        ({"type": "integer"}, '"a"', "the whole: the value does not fit the type"),
        ({"type": "integer"}, "null", "the whole: it is null, where the reader's schema has no null"),
    ):
        with pytest.raises(BadRecord) as bad:
            decoded(reader(schema), text)
        assert str(bad.value) == said


def test_hostile_texts_are_errors_in_little_time() -> None:
    of = reader({"type": "object", "properties": {"p": {}}})
    for text, error in (
        ("", json.JSONDecodeError), ('{"p": 1} x', json.JSONDecodeError), ("[" * 100_000, RecursionError),
        ('{"p": ' + "9" * 100_000 + "}", ValueError),
    ):  # fmt: skip
        with pytest.raises(error):
            decoded(of, text)
    with pytest.raises(UnicodeDecodeError):
        of.writer(None).parse('{"p": "a"}'.encode("utf-16"), 0)


def test_a_schema_without_end_is_refused() -> None:
    node = {"properties": {"next": {"$ref": "#"}}}
    twice: dict[str, Any] = {"definitions": {"L0": STRING}, "$ref": "#/definitions/L39"}
    for level in range(1, 40):
        below = {"$ref": f"#/definitions/L{level - 1}"}
        twice["definitions"][f"L{level}"] = {"properties": {"a": below, "b": below}}
    all_twice: dict[str, Any] = {"definitions": {"L0": STRING}, "$ref": "#/definitions/L39"}
    for level in range(1, 40):
        all_twice["definitions"][f"L{level}"] = {"allOf": [{"$ref": f"#/definitions/L{level - 1}"}] * 2}
    for schema, said in (
        (all_twice, "more than 20000 parts"), (node, "next contains itself"), (twice, "more than 20000 parts"),
        ({"allOf": [{"$ref": "#"}]}, "its allOf contains itself"), ({"$ref": "#"}, "the whole contains itself"),
        ({"$ref": "nowhere.json"}, "it refers to nowhere.json"), (7, "neither an object"),
        ({"oneOf": []}, "a union has no branch"), ({"type": "date"}, "unknown type"),
    ):  # fmt: skip
        with pytest.raises(SchemaUnreadable, match=said):
            reader(schema)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, st.SearchStrategy[Any]]:
    """An object's schema and its values."""
    return _object(draw, map(str, itertools.count()), 3)


def _object(draw: st.DrawFn, names: Iterator[str], depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
    fields = {f"p{next(names)}": _any(draw, names, depth - 1) for _ in range(draw(st.integers(1, 3)))}
    needed = {name for name in fields if draw(st.booleans())}
    schema = {
        "type": "object",
        "properties": {name: one for name, (one, _) in fields.items()},
        "required": sorted(needed),
    }
    values = {name: one for name, (_, one) in fields.items()}
    others = {name: values[name] for name in fields if name not in needed}
    return schema, st.fixed_dictionaries({name: values[name] for name in needed}, optional=others)


def _any(draw: st.DrawFn, names: Iterator[str], depth: int) -> tuple[Any, st.SearchStrategy[Any]]:
    whole = st.integers(-(2**63), 2**63 - 1)
    simple = [
        ({"type": "boolean"}, st.booleans()), ({"type": "integer"}, whole), (STRING, st.text(max_size=4)),
        ({"type": "number"}, st.floats(allow_nan=False, allow_infinity=False)),
    ]  # fmt: skip
    kinds = ["simple", "simple", *(["array", "map", "object", "nullable"] if depth > 0 else [])]
    match draw(st.sampled_from(kinds)):
        case "array":
            schema, values = _any(draw, names, depth - 1)
            return {"type": "array", "items": schema}, st.lists(values, max_size=3)
        case "map":
            schema, values = _any(draw, names, depth - 1)
            return {"type": "object", "additionalProperties": schema}, st.dictionaries(
                st.text(max_size=3), values, max_size=3
            )
        case "object":
            return _object(draw, names, depth)
        case "nullable":
            schema, values = _any(draw, names, depth - 1)
            return {"oneOf": [{"type": "null"}, schema]} if "oneOf" not in schema else schema, st.none() | values
    return draw(st.sampled_from(simple))


def normal(value: Any) -> Any:
    """Maps as dicts, and a property that is not there as null."""
    match value:
        case dict():
            return {name: normal(one) for name, one in value.items() if one is not None}
        case list() if value and all(isinstance(one, tuple) for one in value):
            return {name: normal(one) for name, one in value if one is not None}
        case list():
            return [normal(one) for one in value] or {}
    return value


@given(st.data())
def test_random_schemas_give_what_the_official_deserializer_gives(data: st.DataObject) -> None:
    schema, values = data.draw(pairs())
    schema["title"] = "order"
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    serialize, text = JSONSerializer(json.dumps(schema), client), json.dumps(schema)
    deserialize = JSONDeserializer(None, schema_registry_client=client)
    records = [serialize(value, VALUE) for value in data.draw(st.lists(values, min_size=1, max_size=3))]
    writer = Reader(Written(text)).writer(None)
    array = writer.make([writer.parse(one or b"", 5) for one in records])
    array.validate(full=True)
    assert [normal(one) for one in array.to_pylist()] == [normal(deserialize(one, VALUE)) for one in records]


def test_what_spark_encodes_has_the_columns_types_again() -> None:
    """But for types that JSON Schema has not: small and whole numbers, decimals, and timestamps without a zone."""
    found = reader(json.loads(json_schema.derived(COLUMNS, "orders_value"))).spark_type
    wider = {"tinyint": "bigint", "smallint": "bigint", "int": "bigint", "float": "double", "timestamp_ntz": "string"}
    for column in COLUMNS.fields:
        expected = column.dataType.simpleString()
        if "<" not in expected:
            expected = "double" if expected.startswith("decimal") else wider.get(expected, expected)
            assert found[column.name].dataType.simpleString() == expected
    assert (found["id"].nullable, found["tiny"].nullable) == (False, True)
    assert base64.b64decode("/wA=") == b"\xff\0"

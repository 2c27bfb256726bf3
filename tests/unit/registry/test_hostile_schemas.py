"""A schema's text is read in time that grows with its length, or refused by name, whatever is in it."""

import base64
import itertools
import json
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T

from kafka_sink.errors import RegistryError, SchemaError, SchemaUnreadable
from kafka_sink.registry import avro, column, json_schema, protobuf
from kafka_sink.registry.registering import MAX_DEPTH, Registry, depth_of

COLUMNS = T.StructType([T.StructField("a", T.StringType())])
PARTS = st.sampled_from([5, -1, None, True, "", "\x1b[31m", "null", "record", [], {}, ["null", "null"], {"type": 5}])
AVRO = {"type": "record", "name": "r", "fields": [
    {"name": "a", "type": ["null", "string"], "default": None},
    {"name": "b", "type": {"type": "fixed", "size": 2, "name": "f"}, "default": "ab"},
    {"name": "c", "type": {"type": "enum", "symbols": ["x"], "name": "e"}, "default": "x"},
    {"name": "d", "type": {"type": "array", "items": {"type": "bytes", "logicalType": "decimal", "precision": 4}},
     "default": []},
]}  # fmt: skip
JSON = {"type": "object", "required": ["a"], "$defs": {"b": {"enum": ["x"]}}, "properties": {
    "a": {"anyOf": [{"type": ["string", "null"]}, {"$ref": "#/$defs/b"}], "pattern": "x", "maxLength": 9},
}}  # fmt: skip
NAMES = st.sampled_from(["a", "", "5", ".m", "m", "\x1b[31m", "\u202e", "google.protobuf.Timestamp"])


def cpu_s(call: Callable[[], Any]) -> float:
    began_s = time.process_time()
    call()
    return time.process_time() - began_s


@pytest.mark.parametrize(
    "text", ['\\"' * 32_000, '"' + '\\"' * 32_000, '"\\' * 21_000 + "[", '"' * 64_001, '"\\' * 32_000]
)
def test_unclosed_quotes_are_scanned_once(text: str) -> None:
    """64 KB took 17 CPU s, at each quote again to the end; once takes a few milliseconds."""
    assert cpu_s(lambda: depth_of(text)) < 2


def test_brackets_in_strings_do_not_count() -> None:
    depths = {
        '{"a": "[[[[", "b": [[]]}': 3, '{"a": "\\\\", "b": [[]]}': 3, '{"a": "\\"[[", "b": []}': 2,
        '{"a": "[[[[\\"[", "b": [[]]}': 3, 'syntax = "proto3"; message M {}': 1,
        # A quote that is not closed hides no bracket from the count, and neither do those behind it.
        '{"a": "[[[': 4, '{"a": "[[[\\"[[': 6, '{"a": "[[[\\': 4, '"': 0, '"\\': 0, "": 0,
        '"' + "[" * (MAX_DEPTH + 1): MAX_DEPTH + 1,
    }  # fmt: skip
    assert {text: depth_of(text) for text in depths} == depths


def test_a_value_may_have_only_so_many_schemas() -> None:
    branches = [{"type": "string", "maxLength": number} for number in range(json_schema.MAX_BRANCHES + 1)]
    schema = {"type": "object", "properties": {"a": {"anyOf": branches}}}
    with pytest.raises(SchemaUnreadable, match="more than 1000 schemas by anyOf"):
        json_schema.fitted(json.dumps(schema), COLUMNS)
    branches.pop()
    json_schema.fitted(json.dumps(schema), COLUMNS)


def test_imports_that_double_are_read_and_registered_once() -> None:
    """Both files of each level import both of the next: 25 levels were 2^25 files, and as many requests."""
    pool = descriptor_pool.DescriptorPool()
    pairs = [[f"{level}{side}.proto" for side in "lr"] for level in range(25)]
    for pair, imports in reversed(list(zip(pairs, [*pairs[1:], []], strict=True))):
        for name in pair:
            pool.Add(FileDescriptorProto(name=name, dependency=imports))  # type: ignore[no-untyped-call]
    top = FileDescriptorProto(name="top.proto", syntax="proto3", dependency=pairs[0])
    field = top.message_type.add(name="m").field.add(name="a", number=1)
    field.type, field.label = FieldDescriptorProto.TYPE_STRING, FieldDescriptorProto.LABEL_OPTIONAL
    pool.Add(top)  # type: ignore[no-untyped-call]
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("m"))
    asked: list[str] = []

    def version(name: str, schema: Any) -> int:
        asked.append(name)
        return 1

    def read() -> None:
        encoding = protobuf.fitted(message, COLUMNS)
        assert [each.name for each in encoding.references(version)] == pairs[0]

    assert cpu_s(read) < 2
    assert sorted(asked) == sorted(itertools.chain(*pairs))


def _avro_of(fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": [{"name": "a", "type": "string"}, *fields]}


def _record(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": each} for field, each in fields]}


def _avro_diamond(levels: int) -> dict[str, Any]:
    made: Any = "string"
    for level in range(levels):
        made = _record(f"d{level}", ("x", made), ("y", f"d{level - 1}" if level else "string"))
    return _avro_of([{"name": "b", "type": made, "default": {}}])


def _avro_deep(levels: int) -> dict[str, Any]:
    made: Any = ["null", "string"]
    for level in range(levels):
        inner = _record(f"d{level}", ("x", made))
        inner["fields"][0]["default"] = None
        made = ["null", inner]
    return _avro_of([{"name": "b", "type": made, "default": None}])


def _avro_wide(branches: int) -> dict[str, Any]:
    return _avro_of([{"name": "b", "type": [_record(f"n{number}") for number in range(branches)], "default": {}}])


def _json_chain(levels: int, last: Any, *spellings: str) -> dict[str, Any]:
    """Each level refers to the next one in so many ways."""
    defs: dict[str, Any] = {
        f"d{level}": {"anyOf": [{"$ref": f"{spelling}/d{level + 1}"} for spelling in spellings]}
        for level in range(levels)
    }
    a = {"$ref": "#/$defs/d0"}
    return {"type": "object", "properties": {"a": a}, "$defs": {**defs, f"d{levels}": last}}


def _json_spellings(levels: int) -> dict[str, Any]:
    return _json_chain(levels, {"type": "string"}, *(f"#{'/' * slashes}$defs" for slashes in range(1, 11)))


def _json_doubling(levels: int) -> dict[str, Any]:
    """1.5 KB of 30 levels were 2^30 branches."""
    return _json_chain(levels, {"type": "string"}, *["#/$defs"] * 2)


def _json_wide(levels: int) -> dict[str, Any]:
    last = {"anyOf": [{"type": "string", "maxLength": number} for number in range(json_schema.MAX_BRANCHES)]}
    return _json_chain(levels, last, *["#/$defs"] * 100)


def _json_deep(levels: int) -> dict[str, Any]:
    made: Any = {"type": "string"}
    for _ in range(levels):
        made = {"anyOf": [made, {"type": "null"}]}
    return {"type": "object", "properties": {"a": made}}


@pytest.mark.parametrize(
    ("form", "bomb", "size"),
    [
        (avro, _avro_diamond, 60), (avro, _avro_deep, 45), (avro, _avro_wide, 20_000), (json_schema, _json_deep, 95),
        (json_schema, _json_doubling, 30), (json_schema, _json_spellings, 30), (json_schema, _json_wide, 10),
    ],
)  # fmt: skip
def test_time_to_read_a_text_grows_as_it_does(form: Any, bomb: Callable[[int], dict[str, Any]], size: int) -> None:
    """At the most that `depth_of` lets through. The deadline could not help: a parser in C may hold the interpreter."""
    text = json.dumps(bomb(size))
    assert depth_of(text) <= MAX_DEPTH
    assert cpu_s(lambda: form.fitted(text, COLUMNS)) < 2


def test_a_text_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """However a library reads it. The driver goes on."""
    never = threading.Event()
    monkeypatch.setattr(column, "READ_TIMEOUT_S", 0.05)
    monkeypatch.setattr(avro, "fitted", lambda text, columns: never.wait())
    registry = SchemaRegistryClient({"url": "http://127.0.0.1:1"})
    with pytest.raises(SchemaUnreadable, match=r"not read within 0\.05 s"):
        column.pinned_schema(avro, COLUMNS, "m", Registry.of(registry), str, "{}")
    never.set()


def _with_any_part(value: Any, parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """`value`, in which each part may be another."""
    if isinstance(value, dict):
        same = st.fixed_dictionaries({key: _with_any_part(each, parts) for key, each in value.items()})
        fewer = st.sampled_from(sorted(value)).map(lambda left: {key: value[key] for key in value if key != left})
        return same | fewer | parts
    if isinstance(value, list):
        return st.tuples(*(_with_any_part(each, parts) for each in value)).map(list) | parts
    return st.just(value) | parts


def assert_used_or_refused_by_name(fitted: Callable[[], Any]) -> None:
    try:
        fitted()
    except (RegistryError, SchemaError) as error:
        printed = "".join(traceback.format_exception(error))
        assert printed.replace("\n", "").isprintable()


@pytest.mark.parametrize(("form", "right"), [(avro, AVRO), (json_schema, JSON)], ids=["Avro", "JSON"])
@given(data=st.data())
def test_any_schema_is_used_or_refused_by_name(form: Any, right: Any, data: st.DataObject) -> None:
    schema = data.draw(_with_any_part(right, PARTS))
    assert_used_or_refused_by_name(lambda: form.fitted(json.dumps(schema), COLUMNS))


@given(NAMES, NAMES, NAMES, st.integers(0, 20), st.integers(-1, 2**29), st.sampled_from(["proto3", "proto2", "\x1b"]))
def test_any_protobuf_is_used_or_refused_by_name(
    package: str, name: str, type_name: str, kind: int, number: int, syntax: str
) -> None:
    file = FileDescriptorProto(name=name, package=package, syntax=syntax)
    message = file.message_type.add(name=name)
    field = message.field.add(name="a", type_name=type_name, number=number)
    if kind in FieldDescriptorProto.Type.values():
        field.type = kind  # type: ignore[assignment]
    text = base64.b64encode(file.SerializeToString()).decode("ascii")
    assert_used_or_refused_by_name(lambda: protobuf.fitted(text, COLUMNS))
    assert_used_or_refused_by_name(lambda: protobuf.derived(COLUMNS, "m", text))

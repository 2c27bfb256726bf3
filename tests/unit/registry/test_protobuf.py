"""Protobuf schemas and their numbers; what protoc makes of a .proto text; what the official deserializer reads. And
texts of all forms of schemas, which are read in time that grows with their length, or refused by name."""

import base64
import datetime as dt
import itertools
import json
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
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
from hypothesis import strategies as st
from pyspark.sql import types as T

from kafka_sink.errors import ColumnNotInSchema, RegistryError, SchemaError, SchemaUnreadable, ValueNotInSchema
from kafka_sink.registry import avro, column, json_schema, protobuf, protoc
from kafka_sink.registry.forms import prefix
from kafka_sink.registry.registering import MAX_DEPTH, Registry, depth_of
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
PLANTED = "from pathlib import Path\nPath(__file__).parent.with_name('was_run').touch()\n"


def file_of(text: str) -> FileDescriptorProto:
    return FileDescriptorProto.FromString(base64.b64decode(text))


def numbers_of(text: str) -> dict[str, int]:
    return {field.name: field.number for field in file_of(text).message_type[0].field}


def encoded(encoding: Any, rows: pa.Array, head: bytes = b"") -> pa.Array:
    array: pa.Array = encoding.encode(rows, head)
    return array


def written(schema: Any, columns: T.StructType, rows: Rows) -> list[bytes | None]:
    """Without framing."""
    values: list[bytes | None] = encoded(protobuf.fitted(schema, columns), arrow_rows(rows, columns)).to_pylist()
    return values


def longs(*names: str) -> T.StructType:
    return columns_of(**dict.fromkeys(names, T.LongType()))


@settings(max_examples=25)
@given(random_rows())
def test_the_official_deserializer_reads_what_was_written(rows: Rows) -> None:
    registry = SchemaRegistryClient.new_client({"url": "mock://"})
    schema_id = registry.register_schema("orders-value", Schema(ENCODING.text, "PROTOBUF"))
    values = encoded(ENCODING, arrow_rows(rows), prefix(schema_id, ENCODING.message_indexes))
    assert values.validate(full=True) is None
    read = ProtobufDeserializer(message_class(ENCODING.text), {"use.deprecated.format": False}, registry)
    found = [read_from_protobuf(read(row, VALUE)) for row in values.to_pylist()]
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
    first = protobuf.derived(longs("a", "b"), "r", None)
    assert numbers_of(first) == {"a": 1, "b": 2}
    at_the_end, in_the_middle, back = (protobuf.derived(longs(*names), "r", first) for names in ("abc", "acb", "ba"))
    assert numbers_of(at_the_end) == {"a": 1, "b": 2, "c": 3}
    assert (in_the_middle, back) == (at_the_end, first)


def test_the_number_of_a_column_that_is_gone_is_never_another_columns() -> None:
    without = protobuf.derived(longs("a"), "r", protobuf.derived(longs("a", "b"), "r", None))
    (message,) = file_of(without).message_type
    assert list(message.reserved_name) == ["b"]
    assert [(reserved.start, reserved.end) for reserved in message.reserved_range] == [(2, 3)]
    again = protobuf.derived(longs("a", "c", "b"), "r", without)
    assert numbers_of(again) == {"a": 1, "c": 3, "b": 4}
    assert protobuf.fitted(again, longs("c")).name == "r"


def test_numbers_within_structs_arrays_and_maps_are_kept() -> None:
    def nested(*names: str) -> T.StructType:
        inner = longs(*names)
        return columns_of(one=inner, many=T.ArrayType(inner), by_name=T.MapType(T.StringType(), inner))

    second = protobuf.derived(nested("z", "y", "x"), "r", protobuf.derived(nested("x", "y"), "r", None))
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
    rows: Rows = [{"maybe": 7, "colour": "BLUE", "n": 3}, {"maybe": None, "colour": "RED", "n": 0}]
    assert written(schema, columns, rows) == [b"\x08\x03\x10\x01\x1a\x02\x08\x07", b""]
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
    lines = {"name": "lines", "number": 1, "label": REPEATED, "type": 11, "type_name": ".shop.Line"}
    order.message_type.add(name="Order").field.add(**lines)
    for file in (line, order):
        pool.Add(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    columns = columns_of(lines=T.ArrayType(columns_of(sku=T.StringType())))
    encoding, asked = protobuf.fitted(message, columns), []
    (reference,) = encoding.references(lambda subject, schema: asked.append((subject, schema.references)) or 5)
    assert (reference.name, reference.subject, reference.version) == ("shop/line.proto", "shop/line.proto", 5)
    assert (asked, encoding.message_indexes) == ([("shop/line.proto", [])], (1,))
    assert written(message, columns, [{"lines": [{"sku": "s"}]}])


def test_null_within_an_array_or_map_and_what_is_not_utf8_is_its_rows_error() -> None:
    columns = columns_of(tags=T.ArrayType(T.StringType()), counts=T.MapType(T.StringType(), T.LongType()))
    schema = protobuf.derived(columns, "r", None)
    for bad, path in (({"tags": ["secret", None]}, "tags[]"), ({"counts": {"secret": None}}, "counts{}")):
        with pytest.raises(ValueNotInSchema) as refused:
            written(schema, columns, [{"tags": None, "counts": None, **bad}])
        assert refused.value.column == path and "secret" not in str(refused.value)
    columns = columns_of(s=T.StringType())
    strings = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xffab"]).buffers())
    fitted = protobuf.fitted(protobuf.derived(columns, "r", None), columns)
    with pytest.raises(ValueNotInSchema, match="UTF-8") as refused:
        encoded(fitted, pa.StructArray.from_arrays([strings], ["s"]))
    assert refused.value.__suppress_context__


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_text_is_compiled_to_its_file_alone(scratch: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = FileDescriptorProto.FromString(protoc.compiled(ORDER))
    assert (file.package, file.syntax) == ("shop", "proto3")
    assert [message.name for message in file.message_type] == ["Order", "Other"]
    assert {field.name: field.number for field in file.message_type[0].field} == {"id": 1, "day": 4, "at": 7}
    assert list(file.dependency) == ["google/type/date.proto", "google/protobuf/timestamp.proto"]
    assert list(scratch.iterdir()) == [] and capfd.readouterr() == ("", "")


def test_what_is_wrong_with_a_text_is_said_with_its_line(scratch: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for text, words in (
        ('syntax = "proto3";\nmessage M { int32 a = 0; }', r"schema\.proto:2:"),
        ('syntax = "proto3"; import "shop/line.proto"; message M {}', r"shop/line\.proto"),
    ):
        with pytest.raises(SchemaUnreadable, match=words) as refused:
            protoc.compiled(text)
        assert str(scratch) not in str(refused.value)
        assert list(scratch.iterdir()) == [] and capfd.readouterr() == ("", "")


@pytest.mark.parametrize("here", ["", ".", None])
def test_no_module_of_the_working_directory_is_run(
    here: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    for name in ("grpc_tools", "google", "pkg_resources"):
        (work / name).mkdir(parents=True)
        for module in ("__init__.py", "protoc.py"):
            (work / name / module).write_text(PLANTED)
    monkeypatch.chdir(work)
    # As in a shell, a notebook, or `python -m`; and where the environment says it.
    monkeypatch.setattr(sys, "path", [*([] if here is None else [here]), str(work), *sys.path])
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    assert (
        FileDescriptorProto.FromString(protoc.compiled('syntax = "proto3"; message M {}')).message_type[0].name == "M"
    )
    assert not (work / "was_run").exists()


def test_a_compiler_of_the_working_directory_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "grpc_tools").mkdir()
    (tmp_path / "grpc_tools" / "__init__.py").write_text(PLANTED)
    monkeypatch.chdir(tmp_path)
    elsewhere = [place for place in sys.path if not Path(place, "grpc_tools").exists()]
    monkeypatch.setattr(sys, "path", ["", *elsewhere])
    with pytest.raises(SchemaUnreadable, match="pip install grpcio-tools"):
        protoc.compiled('syntax = "proto3"; message M {}')
    assert not (tmp_path / "was_run").exists()


def test_a_compiler_without_end_or_a_host_without_room_is_said(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kafka_sink.registry.protoc.PROTOC_TIMEOUT_S", 0.001)
    with pytest.raises(SchemaUnreadable, match=r"did not end within 0\.001 s") as refused:
        protoc.compiled(ORDER)
    assert refused.value.__suppress_context__
    monkeypatch.setattr(tempfile, "tempdir", str(scratch / "gone"))
    with pytest.raises(SchemaUnreadable, match=r"temporary files \(TMPDIR\): No such file or directory"):
        protoc.compiled(ORDER)


ONE_TEXT = T.StructType([T.StructField("a", T.StringType())])
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
        json_schema.fitted(json.dumps(schema), ONE_TEXT)
    branches.pop()
    json_schema.fitted(json.dumps(schema), ONE_TEXT)


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
        encoding = protobuf.fitted(message, ONE_TEXT)
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


# Of `$defs`, percent-encoded (RFC 6901, section 6).
SPELLINGS = ("$defs", "%24defs", "$%64efs", "$d%65fs", "$de%66s", "$def%73", "%24%64efs", "%24d%65fs", "%24de%66s")


def _json_spellings(levels: int) -> dict[str, Any]:
    return _json_chain(levels, {"type": "string"}, *(f"#/{spelling}" for spelling in SPELLINGS))


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
    assert cpu_s(lambda: form.fitted(text, ONE_TEXT)) < 2


def test_a_text_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """However a library reads it. The driver goes on."""
    never = threading.Event()
    monkeypatch.setattr(column, "READ_TIMEOUT_S", 0.05)
    monkeypatch.setattr(avro, "fitted", lambda text, columns: never.wait())
    registry = SchemaRegistryClient({"url": "http://127.0.0.1:1"})
    with pytest.raises(SchemaUnreadable, match=r"not read within 0\.05 s"):
        column.pinned_schema(avro, ONE_TEXT, "m", Registry.of(registry), str, "{}")
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
    assert_used_or_refused_by_name(lambda: form.fitted(json.dumps(schema), ONE_TEXT))


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
    assert_used_or_refused_by_name(lambda: protobuf.fitted(text, ONE_TEXT))
    assert_used_or_refused_by_name(lambda: protobuf.derived(ONE_TEXT, "m", text))

"""Avro: records of any writer's schema, resolved to the reader's.

fastavro decodes by the writer's schema alone (`avro_schemas.py`), and this module resolves whole columns of the decoded
values. fastavro's own resolution gives defaults as JSON has them, ignores the reader's logical types, and looks for the
matching types again for every record.

Sources: Avro 1.12 specification, "Schema Resolution"; org.apache.avro.Resolver, for the branch of a reader's union.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from kafka_sink.errors import SchemaUnreadable
from kafka_sink.registry import arrays as A
from kafka_sink.registry.arrays import BadRecord, Make
from kafka_sink.registry.avro import FORM, ONLY, SCHEMA_TYPE
from kafka_sink.registry.avro_schemas import (
    MAX_DECIMAL_DIGITS,
    Node,
    Raw,
    Schema,
    Types,
    branches_of,
    check_numbers,
    is_plain,
    logical_of,
    may_have_long_number,
    with_checked_branches,
)
from kafka_sink.registry.decoding import Writer
from kafka_sink.registry.forms import extra, read_as
from kafka_sink.registry.references import Written

MAX_DEFAULT_BYTES = 64 * 1024
# Times: the logical type without its unit, and how many of its units are a second.
UNITS = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}
PROMOTED = {
    ("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"), ("float", "double"),
    ("string", "bytes"), ("bytes", "string"),
}  # fmt: skip
NAMED = ("record", "enum", "fixed")
# What fastavro raises for bytes that are no record: in C, and in Python where it could not be compiled.
BAD = (EOFError, IndexError, UnicodeDecodeError, OverflowError)


class Mismatch(Exception):
    """A writer's schema cannot be read as the reader's."""


# --- resolution -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Resolver:
    """Makes what resolves values of the writer's types, without unions' names, to arrays of the reader's."""

    writer: Schema
    reader: Schema
    defaults: A.Constants = field(default_factory=A.Constants)

    def resolved(self, schema: Any, node: Node) -> Make:
        """Return what makes arrays of the reader's type. Raises Mismatch."""
        branches = branches_of(schema)
        if branches is None:
            return self.one(schema, node)
        others = {f"b{i}": one for i, one in enumerate(branches) if self.writer.found(one)[0] != "null"}
        has_null = len(others) < len(branches)
        makes: dict[str, Make] = {}
        failed: list[str] = []
        for branch, one in others.items():
            try:
                makes[branch] = self.one(one, node)
            except Mismatch as mismatch:
                failed.append(str(mismatch))
                makes[branch] = A.refused(node.arrow, str(mismatch))
        if len(failed) == len(others) and not (has_null and node.has_null):
            raise Mismatch(failed[0] if failed else f"{A.place(node.path)}: the writer has only nulls there")
        make = A.chosen(node.arrow, makes) if len(others) > 1 else next(iter(makes.values()), A.refused(node.arrow, ""))
        if not has_null:
            return make
        return A.nullable(make, node.arrow) if node.has_null else A.not_null(make, node.path)

    def one(self, schema: Any, node: Node) -> Make:
        kind, about = self.writer.found(schema)
        if kind == "null":
            if not node.has_null:
                raise Mismatch(f"{A.place(node.path)}: the writer has null there, and the reader has not")
            nothing = node.arrow
            return lambda values: pa.nulls(len(values), nothing)
        if node.kind == "union":
            return self._into_union(schema, kind, about, node)
        if kind != node.kind and (kind, node.kind) not in PROMOTED:
            raise Mismatch(f"{A.place(node.path)}: the writer has {kind} there, and the reader {node.kind}")
        match kind:
            case "record":
                self._check_names(about, node)
                return self._record(about, node)
            case "array":
                return A.items(node.arrow, self.resolved(about["items"], node.children[0]))
            case "map":
                keys = A.Leaf(f"{node.path} (key)", A.Plain(pa.string()))
                return A.entries(node.arrow, keys, self.resolved(about["values"], node.children[0]))
            case "enum":
                self._check_names(about, node)
                return A.Leaf(node.path, self._enum(about["symbols"], node))
            case "fixed":
                self._check_names(about, node)
                if about["size"] != node.about["size"]:
                    sizes = f"{about['size']} and {node.about['size']}"
                    raise Mismatch(f"{A.place(node.path)}: the sizes of fixed differ, {sizes}")
        make = _primitive(kind, about, node)
        return A.Leaf(node.path, make if (kind, node.kind) == ("int", "int") or kind != "int" else _of_32_bits(make))

    def _check_names(self, about: Mapping[str, Any], node: Node) -> None:
        """The unqualified names must be equal, or an alias of the reader's must be the writer's name."""
        names = {_unqualified(node.about["name"]), *map(_unqualified, node.about.get("aliases", ()))}
        if _unqualified(about["name"]) not in names:
            text = f"the writer's {about['name']} is neither the reader's {node.about['name']} nor one of its aliases"
            raise Mismatch(f"{A.place(node.path)}: {text}")

    def _record(self, about: Mapping[str, Any], node: Node) -> Make:
        written = {one["name"]: one["type"] for one in about["fields"]}
        fields: list[tuple[A.Take, Make]] = []
        for one, child in zip(node.about["fields"], node.children, strict=True):
            name = next((name for name in (one["name"], *one.get("aliases", ())) if name in written), None)
            if name is not None:
                fields.append((_taken(name), self.resolved(written[name], child)))
            elif "default" in one:
                fields.append((_same, self.default(one, child)))
            else:
                raise Mismatch(f"{child.path}: the writer has no such field, and the reader no default")
        return A.struct(node.arrow, fields)

    def default(self, one: Mapping[str, Any], node: Node) -> Make:
        """Return what makes the default of a field."""
        raw = _Defaults(self.reader).raw(one["default"], one["type"])
        make = self.defaults.make(Resolver(self.reader, self.reader).resolved(one["type"], node)([raw]))
        if self.defaults.size_bytes > MAX_DEFAULT_BYTES:
            raise Mismatch(f"the defaults for fields that the writer has not take more than {MAX_DEFAULT_BYTES} bytes")
        return make

    def _enum(self, symbols: Sequence[str], node: Node) -> Make:
        known = set(node.about["symbols"])
        default = node.about.get("default")
        read = [symbol if symbol in known else default for symbol in symbols]

        def made(values: list[int]) -> pa.Array:
            if values and (min(values) < 0 or max(values) >= len(read)):
                raise BadRecord(f"{A.place(node.path)}: the number is of no symbol of the writer's enum")
            texts = [read[value] for value in values]
            if None in texts:
                raise BadRecord(f"{A.place(node.path)}: the symbol is not in the reader's enum, which has no default")
            return pa.array(texts, pa.string())

        return made

    def _into_union(self, schema: Any, kind: str, about: Mapping[str, Any], node: Node) -> Make:
        number, make = self._branch(schema, kind, about, node)
        whole, members = node.arrow, [member.arrow for member in node.branches]

        def made(values: list[Any]) -> pa.Array:
            children = [
                make(values) if i == number else pa.nulls(len(values), member) for i, member in enumerate(members)
            ]
            return pa.Array.from_buffers(whole, len(values), [None], children=children)

        return made

    def _branch(self, schema: Any, kind: str, about: Mapping[str, Any], node: Node) -> tuple[int, Make]:
        """Choose the reader's branch: the same type and full name, else the same type, else one that is promoted to."""

        def order(member: Node) -> int:
            if member.kind != kind:
                return 3
            if kind in NAMED:
                return 0 if member.about["name"] == about["name"] else 1
            return 0 if member.logical == logical_of(kind, about) else 1

        for number in sorted(range(len(node.branches)), key=lambda i: order(node.branches[i])):
            try:
                return number, self.one(schema, node.branches[number])
            except Mismatch:
                continue
        raise Mismatch(f"{A.place(node.path)}: the writer's {about.get('name', kind)} is none of the reader's branches")


def _unqualified(name: str) -> str:
    return name.rpartition(".")[2]


def _same(values: list[Any]) -> list[Any]:
    return values


def _taken(name: str) -> A.Take:
    take = itemgetter(name)
    return lambda values: list(map(take, values))


def _primitive(kind: str, about: Mapping[str, Any], node: Node) -> Make:
    """Return the conversion of numbers, bytes and texts. The reader's logical type decides, as with Java. If the writer
    has one of the same family, its unit or scale is converted."""
    written = logical_of(kind, about)
    logical = node.logical
    family, unit = family_of(logical)
    if logical is not None and written is not None and family_of(written)[0] != family:
        raise Mismatch(f"{A.place(node.path)}: the writer has {written} there, and the reader {logical}")
    match logical:
        case "decimal" if kind != "string":
            scale = about.get("scale", 0) if written else node.about.get("scale", 0)
            if scale > MAX_DECIMAL_DIGITS:
                raise Mismatch(f"{A.place(node.path)}: the writer's decimal has {scale} digits behind the point")
            return A.decimals(node.arrow, scale)
        case "uuid" if kind == "fixed":
            return A.uuids
        case "duration":
            return _durations(node.arrow)
        case _ if unit is not None:
            of_writer = family_of(written)[1] or unit
            # Spark's timestamps are in microseconds, whatever the unit in the schema.
            to = unit if node.arrow == pa.int64() or node.arrow == pa.int32() else UNITS["micros"]
            return A.scaled(node.arrow, max(1, to // of_writer), max(1, of_writer // to))
    match kind, node.kind:
        case "int" | "long", "float" | "double":
            return A.floats(node.arrow)
        case "bytes", "string":
            return A.decoded_texts
        case "string", "bytes":
            return _encoded(node)
        case "int", "int" if logical == "date":
            return A.scaled(node.arrow, 1)
    return A.Plain(node.arrow)


def _of_32_bits(make: Make) -> Make:
    """Refuse what the bytes of an int cannot be. A wider type would hold it."""

    def made(values: list[Any]) -> pa.Array:
        pa.array(values, pa.int32())
        return make(values)

    return made


def _encoded(node: Node) -> Make:
    if node.logical == "decimal":
        raise Mismatch(f"{A.place(node.path)}: the writer has string there, and the reader decimal")
    return lambda values: pa.array([value.encode("utf-8") for value in values], pa.binary())


def family_of(logical: str | None) -> tuple[str | None, int | None]:
    """Return the logical type without its unit, and the units of a second."""
    family, _, unit = (logical or "").rpartition("-")
    return (family, UNITS[unit]) if unit in UNITS else (logical, None)


def _durations(data_type: pa.DataType) -> Make:
    def made(values: list[bytes]) -> pa.Array:
        parts = np.frombuffer(b"".join(values), "<u4").reshape(-1, 3).astype(np.int64)
        children = [pa.array(np.ascontiguousarray(parts[:, i])) for i in range(3)]
        return pa.Array.from_buffers(data_type, len(values), [None], children=children)

    return made


class _Defaults:
    """Gives a default of JSON the form of a value that fastavro decodes by the schema of `Raw`."""

    IN_JSON: Mapping[str, Callable[[Any], bool]] = {
        "null": lambda one: one is None,
        "boolean": lambda one: isinstance(one, bool),
        **dict.fromkeys(("int", "long"), lambda one: isinstance(one, int) and not isinstance(one, bool)),
        **dict.fromkeys(("float", "double"), lambda one: isinstance(one, int | float) and not isinstance(one, bool)),
        **dict.fromkeys(("string", "bytes", "fixed", "enum"), lambda one: isinstance(one, str)),
        "array": lambda one: isinstance(one, list),
        **dict.fromkeys(("map", "record"), lambda one: isinstance(one, dict)),
    }  # fmt: skip

    def __init__(self, schema: Schema) -> None:
        self.schema = schema

    def raw(self, default: Any, schema: Any) -> Any:
        branches = branches_of(schema)
        if branches is None:
            return self._one(default, schema)
        for i, branch in enumerate(branches):
            # Avro 1.12: the first branch that matches. Before, it was the first branch.
            if self.IN_JSON[self.schema.found(branch)[0]](default):
                value = self._one(default, branch)
                return value if value is None or is_plain(branches, self.schema) else {f"b{i}": value}
        raise Mismatch("a default of the reader is of no branch of its union")

    def _one(self, default: Any, schema: Any) -> Any:
        kind, about = self.schema.found(schema)
        if not self.IN_JSON[kind](default):
            raise Mismatch(f"a default of the reader is not of its type, {kind}")
        match kind:
            case "bytes" | "fixed":
                data = _latin_1(default)
                if kind == "fixed" and len(data) != about["size"]:
                    raise Mismatch(f"a default of the reader has not the {about['size']} bytes of its fixed")
                return data
            case "enum":
                if default not in about["symbols"]:
                    raise Mismatch("a default of the reader is no symbol of its enum")
                return about["symbols"].index(default)
            case "float" | "double":
                return float(default)
            case "array":
                return [self.raw(one, about["items"]) for one in default]
            case "map":
                return {key: self.raw(one, about["values"]) for key, one in default.items()}
            case "record":
                return dict(self._fields(default, about))
        return default

    def _fields(self, default: Mapping[str, Any], about: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        for one in about["fields"]:
            if one["name"] not in default and "default" not in one:
                raise Mismatch(f"a default of the reader has no field {one['name']!r}")
            yield one["name"], self.raw(default.get(one["name"], one.get("default")), one["type"])


def _latin_1(text: str) -> bytes:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise Mismatch("a default of the reader for bytes has characters above U+00FF") from None


# --- what decoding.py uses --------------------------------------------------------------------------------------------


class Reader:
    """A reader's schema."""

    FORM = FORM
    SCHEMA_TYPE = SCHEMA_TYPE
    REGISTRY_FORMAT = None
    needs_writers = True
    has_indexes = False

    def __init__(self, written: Written) -> None:
        """Raises SchemaUnreadable, or TypeNotMapped with the path."""
        self.schema = Schema.of(written)
        self.node = read_as(FORM)(Types(self.schema).node)(self.schema.whole, "")
        self.spark_type = self.node.spark

    def writer(self, written: Written) -> Writer:
        """Return what decodes records of this writer's schema. Raises BadRecord if the reader cannot read it."""
        from kafka_sink.registry.avro_program import program_of

        try:
            schema, raw, types = _raw(written)
            make = Resolver(schema, self.schema).resolved(schema.whole, self.node)
            program = program_of(Resolver(schema, self.schema), schema.whole, self.node)
        except Mismatch as mismatch:
            raise BadRecord(f"the writer's schema is not compatible with the reader's: {mismatch}") from None
        except SchemaUnreadable as error:
            raise BadRecord(f"the writer's schema cannot be used: {error.reason}") from None
        if branches_of(schema.whole) is None and schema.found(schema.whole)[0] == "bytes":
            # The official serializers write bytes alone without their length.
            return Writer(lambda data, start: data[start:], make, types=types)
        read, only = extra("fastavro", on_executor=True).schemaless_reader, itemgetter(ONLY)

        def parsed(data: bytes, start: int) -> Any:
            stream = io.BytesIO(data)
            stream.seek(start)
            value = read(stream, raw, None)
            if stream.tell() != len(data):
                raise BadRecord(f"{len(data) - stream.tell()} bytes are left behind its end")
            if may_have_long_number(data):
                check_numbers(raw, data, start)
            return only(value)

        return Writer(parsed, make, types=types, program=program, bad=BAD)


@read_as(FORM)
def _raw(written: Written) -> tuple[Schema, Any, int]:
    """Return a writer's schema, what fastavro decodes by, and the number of its types.

    fastavro parses a whole again for each record unless it is a record, so it gets one, with the field ONLY.
    """
    schema = Schema.of(written)
    raw = Raw(schema)
    whole = {"type": "record", "name": ONLY, "fields": [{"name": ONLY, "type": raw.of(schema.whole)}]}
    return schema, with_checked_branches(extra("fastavro", on_executor=True).parse_schema(whole)), raw.walk.types

"""Avro: the Spark type of a reader's schema, and records of any writer's schema resolved to it.

fastavro decodes by the writer's schema alone, without logical types. This module resolves whole columns of the decoded
values: fastavro's own resolution gives defaults as JSON has them, ignores the reader's logical types, and looks for the
matching types again for every record.

fastavro gets the writer's schema in another form with the same bytes (`_Raw`). A branch of a union is a record with one
field, so that the value names its branch. An enum is an int, because fastavro takes a negative index from the end.

Hostile schemas: recursion is refused, as fastavro would overflow C's stack. So is an array whose items may have no
bytes, as its count may be 2^60 (`MOST_VALUES_A_BYTE`).

Sources: Avro 1.12 specification, "Schema Resolution"; org.apache.avro.Resolver, for the branch of a reader's union;
Spark's SchemaConverters.scala, for the types of unions.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as T

from kafka_sink.errors import SchemaUnreadable, TypeNotMapped
from kafka_sink.registry import arrays as A
from kafka_sink.registry.arrays import BadRecord, Make
from kafka_sink.registry.decoding import Writer
from kafka_sink.registry.forms import extra, read_as
from kafka_sink.registry.references import Written

FORM = "Avro"
# Types of a schema after all names are replaced by what they name.
MAX_TYPES = 20_000
MAX_DEFAULT_BYTES = 64 * 1024
MAX_DECIMAL_DIGITS = 38
# A schema is refused if an item of an array, or an entry of a map, may hold more values than this for each byte.
MOST_VALUES_A_BYTE = 4

PRIMITIVES: dict[str, T.DataType] = {
    "null": T.NullType(), "boolean": T.BooleanType(), "int": T.IntegerType(), "long": T.LongType(),
    "float": T.FloatType(), "double": T.DoubleType(), "bytes": T.BinaryType(), "string": T.StringType(),
    "enum": T.StringType(), "fixed": T.BinaryType(),
}  # fmt: skip
# A logical type and the type below it -> Spark's type. All others are ignored, as the specification says.
DURATION = T.StructType([T.StructField(name, T.LongType(), False) for name in ("months", "days", "milliseconds")])
LOGICAL: dict[tuple[str, str], T.DataType] = {
    ("date", "int"): T.DateType(),
    ("time-millis", "int"): T.IntegerType(),
    ("time-micros", "long"): T.LongType(),
    ("timestamp-millis", "long"): T.TimestampType(),
    ("timestamp-micros", "long"): T.TimestampType(),
    ("timestamp-nanos", "long"): T.LongType(),
    ("local-timestamp-millis", "long"): T.TimestampNTZType(),
    ("local-timestamp-micros", "long"): T.TimestampNTZType(),
    ("local-timestamp-nanos", "long"): T.LongType(),
    ("uuid", "string"): T.StringType(),
    ("uuid", "fixed"): T.StringType(),
    ("duration", "fixed"): DURATION,
}
FIXED_SIZES = {"uuid": 16, "duration": 12}
# Times: the logical type without its unit, and how many of its units are a second.
UNITS = {"millis": 1_000, "micros": 1_000_000, "nanos": 1_000_000_000}
PROMOTED = {
    ("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"), ("float", "double"),
    ("string", "bytes"), ("bytes", "string"),
}  # fmt: skip
NAMED = ("record", "enum", "fixed")


class Mismatch(Exception):
    """A writer's schema cannot be read as the reader's."""


# --- schemas ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Schema:
    """A parsed schema: names are full, and `named` has what they name."""

    whole: Any
    named: Mapping[str, Any]

    @classmethod
    @read_as(FORM)
    def of(cls, written: Written) -> Schema:
        parse = extra("fastavro", on_executor=True).parse_schema
        named: dict[str, Any] = {}
        for _, text in written.others:
            parse(json.loads(text), named_schemas=named)
        return cls(parse(json.loads(written.text), named_schemas=named), named)

    def found(self, schema: Any) -> tuple[str, dict[str, Any]]:
        """Return the kind of a type that is no union, and its attributes."""
        if isinstance(schema, str):
            schema = self.named.get(schema, {"type": schema})
        if isinstance(schema["type"], dict | list):
            return self.found(schema["type"])
        kind = "record" if schema["type"] == "error" else schema["type"]
        return (kind, schema) if kind in PRIMITIVES or kind in ("record", "array", "map") else self.found(kind)


def branches_of(schema: Any) -> list[Any] | None:
    """Return the branches of a union, else None."""
    if isinstance(schema, dict) and isinstance(schema["type"], list):
        schema = schema["type"]
    return schema if isinstance(schema, list) else None


def logical_of(kind: str, about: Mapping[str, Any]) -> str | None:
    """Return the logical type, or None if there is none that holds here."""
    logical = about.get("logicalType")
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = about.get("precision"), about.get("scale", 0)
        holds = isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision and precision > 0
        return "decimal" if holds else None
    logical = str(logical)
    holds = (logical, kind) in LOGICAL and (kind != "fixed" or about["size"] == FIXED_SIZES[logical])
    return logical if holds else None


class _Walk:
    """Counts types, and refuses a type within itself."""

    def __init__(self) -> None:
        self.types = 0
        self.within: list[str] = []

    def enter(self, kind: str, about: Mapping[str, Any]) -> None:
        self.types += 1
        if self.types > MAX_TYPES:
            raise SchemaUnreadable(
                form=FORM, reason=f"it has more than {MAX_TYPES} types, with named types in each place"
            )
        name = about["name"] if kind == "record" else ""
        if name in self.within:
            raise SchemaUnreadable(form=FORM, reason=f"its type {name} contains itself, and a type of Spark cannot")
        self.within.append(name or " ")

    def leave(self) -> None:
        self.within.pop()


# --- the reader's type ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Node:
    """A type of the reader's schema. `branches`: of a union with several types besides null. `children`: of the fields,
    items or values."""

    path: str
    kind: str
    about: Mapping[str, Any]
    spark: T.DataType
    has_null: bool = False
    logical: str | None = None
    branches: tuple[Node, ...] = ()
    children: tuple[Node, ...] = ()

    @property
    def arrow(self) -> pa.DataType:
        return A.arrow_type(self.spark)


class _Types:
    """Makes nodes of a schema."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.walk = _Walk()

    def node(self, schema: Any, path: str) -> Node:
        branches = branches_of(schema)
        if branches is None:
            return self._one(schema, path, False)
        others = [branch for branch in branches if self.schema.found(branch)[0] != "null"]
        has_null = len(others) < len(branches)
        kinds = {self.schema.found(branch)[0] for branch in others}
        if not others:
            return self._one("null", path, True)
        if len(others) == 1:
            return self._one(others[0], path, has_null)
        for wider in ("long", "double"):
            # As Spark's from_avro: [int, long] is a bigint, and [float, double] a double.
            if len(others) == 2 and kinds == {wider, {"long": "int", "double": "float"}[wider]}:
                return self._one(wider, path, has_null)
        members = tuple(self._one(branch, f"{path}.member{i}", True) for i, branch in enumerate(others))
        fields = [T.StructField(f"member{i}", member.spark, True) for i, member in enumerate(members)]
        return Node(path, "union", {}, T.StructType(fields), has_null, branches=members)

    def _one(self, schema: Any, path: str, has_null: bool) -> Node:
        kind, about = self.schema.found(schema)
        self.walk.enter(kind, about)
        logical = logical_of(kind, about)
        children: tuple[Node, ...] = ()
        spark: T.DataType
        match kind:
            case "record":
                names = [one["name"] for one in about["fields"]]
                children = tuple(self.node(one["type"], f"{path}.{one['name']}".lstrip(".")) for one in about["fields"])
                spark = T.StructType([
                    T.StructField(name, child.spark, child.has_null)
                    for name, child in zip(names, children, strict=True)
                ])  # fmt: skip
            case "array":
                children = (self.node(about["items"], f"{path}[]"),)
                spark = T.ArrayType(children[0].spark, children[0].has_null)
            case "map":
                children = (self.node(about["values"], f"{path}{{}}"),)
                spark = T.MapType(T.StringType(), children[0].spark, children[0].has_null)
            case _ if logical == "decimal":
                if about["precision"] > MAX_DECIMAL_DIGITS:
                    found = f"a decimal of {about['precision']} digits"
                    hint = f"Spark's have {MAX_DECIMAL_DIGITS}. Give a reader's schema with bytes."
                    raise TypeNotMapped(column=path, found=found, form="Spark", hint=hint)
                spark = T.DecimalType(about["precision"], about.get("scale", 0))
            case _:
                spark = PRIMITIVES[kind] if logical is None else LOGICAL[logical, kind]
        self.walk.leave()
        return Node(path, kind, about, spark, has_null or kind == "null", logical, (), children)


# --- the writer's schema, for fastavro --------------------------------------------------------------------------------


class _Raw:
    """Writes a schema as one with the same bytes, for fastavro."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.walk = _Walk()

    def of(self, schema: Any) -> Any:
        branches = branches_of(schema)
        if branches is None:
            return self._one(schema)
        if is_plain(branches, self.schema):
            return [self.of(branch) for branch in branches]
        return [
            "null" if self.schema.found(branch)[0] == "null" else self._record([(f"b{i}", self.of(branch))])
            for i, branch in enumerate(branches)
        ]

    def _one(self, schema: Any) -> Any:
        kind, about = self.schema.found(schema)
        self.walk.enter(kind, about)
        raw: Any = kind
        match kind:
            case "enum":
                raw = "int"
            case "fixed":
                raw = {"type": "fixed", "name": f"t{self.walk.types}", "size": about["size"]}
            case "array":
                raw = {"type": "array", "items": self._repeated(about["items"])}
            case "map":
                raw = {"type": "map", "values": self._repeated(about["values"], 1 - MOST_VALUES_A_BYTE)}
            case "record":
                raw = self._record([(one["name"], self.of(one["type"])) for one in about["fields"]])
        self.walk.leave()
        return raw

    def _record(self, fields: list[tuple[str, Any]]) -> dict[str, Any]:
        self.walk.types += 1
        name = f"t{self.walk.types}"
        return {"type": "record", "name": name, "fields": [{"name": one, "type": raw} for one, raw in fields]}

    def _repeated(self, schema: Any, more: int = 0) -> Any:
        raw = self.of(schema)
        if excess(raw) + more > 0:
            reason = "it has an array or a map whose items may have no bytes, or nearly none: their number has no bound"
            raise SchemaUnreadable(form=FORM, reason=reason)
        return raw


def is_plain(branches: list[Any], schema: Schema) -> bool:
    """Return True for a union of one type, with or without null. Its values need no name of their branch."""
    return sum(schema.found(branch)[0] != "null" for branch in branches) <= 1


def excess(raw: Any) -> int:
    """Return the most values that a value of this type may have, less MOST_VALUES_A_BYTE for each of its bytes."""
    if isinstance(raw, list):
        return 1 - MOST_VALUES_A_BYTE + max(map(excess, raw), default=0)
    match raw if isinstance(raw, str) else raw["type"]:
        case "null":
            return 1
        case "fixed":
            return 1 - MOST_VALUES_A_BYTE * int(raw["size"])
        case "record":
            return 1 + sum(excess(one["type"]) for one in raw["fields"])
    return 1 - MOST_VALUES_A_BYTE


# --- resolution -------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Resolver:
    writer: Schema
    reader: Schema
    default_bytes: int = 0

    def resolved(self, schema: Any, node: Node) -> Make:
        """Return what makes arrays of the reader's type. Raises Mismatch."""
        branches = branches_of(schema)
        if branches is None:
            return self._one(schema, node)
        others = {f"b{i}": one for i, one in enumerate(branches) if self.writer.found(one)[0] != "null"}
        has_null = len(others) < len(branches)
        makes: dict[str, Make] = {}
        failed: list[str] = []
        for branch, one in others.items():
            try:
                makes[branch] = self._one(one, node)
            except Mismatch as mismatch:
                failed.append(str(mismatch))
                makes[branch] = A.refused(node.arrow, str(mismatch))
        if len(failed) == len(others) and not (has_null and node.has_null):
            raise Mismatch(failed[0] if failed else f"{node.path}: the writer has only nulls there")
        make = A.chosen(node.arrow, makes) if len(others) > 1 else next(iter(makes.values()), A.refused(node.arrow, ""))
        if not has_null:
            return make
        return A.nullable(make, node.arrow) if node.has_null else A.not_null(make, node.path)

    def _one(self, schema: Any, node: Node) -> Make:
        kind, about = self.writer.found(schema)
        if kind == "null":
            if not node.has_null:
                raise Mismatch(f"{node.path}: the writer has null there, and the reader has not")
            nothing = node.arrow
            return lambda values: pa.nulls(len(values), nothing)
        if node.kind == "union":
            return self._into_union(schema, kind, about, node)
        if kind != node.kind and (kind, node.kind) not in PROMOTED:
            raise Mismatch(f"{node.path}: the writer has {kind} there, and the reader {node.kind}")
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
                    raise Mismatch(f"{node.path}: the sizes of fixed differ, {about['size']} and {node.about['size']}")
        return A.Leaf(node.path, _primitive(kind, about, node))

    def _check_names(self, about: Mapping[str, Any], node: Node) -> None:
        """The unqualified names must be equal, or an alias of the reader's must be the writer's name."""
        names = {_unqualified(node.about["name"]), *map(_unqualified, node.about.get("aliases", ()))}
        if _unqualified(about["name"]) not in names:
            text = f"the writer's {about['name']} is neither the reader's {node.about['name']} nor one of its aliases"
            raise Mismatch(f"{node.path}: {text}")

    def _record(self, about: Mapping[str, Any], node: Node) -> Make:
        written = {one["name"]: one["type"] for one in about["fields"]}
        fields: list[tuple[A.Take, Make]] = []
        for one, child in zip(node.about["fields"], node.children, strict=True):
            name = next((name for name in (one["name"], *one.get("aliases", ())) if name in written), None)
            if name is not None:
                fields.append((_taken(name), self.resolved(written[name], child)))
            elif "default" in one:
                fields.append((_same, A.constant(self._default(one, child))))
            else:
                raise Mismatch(f"{child.path}: the writer has no such field, and the reader no default")
        return A.struct(node.arrow, fields)

    def _default(self, one: Mapping[str, Any], node: Node) -> pa.Array:
        """Return the default of a field, as an array of one."""
        raw = _Defaults(self.reader).raw(one["default"], one["type"])
        array = _Resolver(self.reader, self.reader).resolved(one["type"], node)([raw])
        self.default_bytes += array.nbytes
        if self.default_bytes > MAX_DEFAULT_BYTES:
            raise Mismatch(f"the defaults for fields that the writer has not take more than {MAX_DEFAULT_BYTES} bytes")
        return array

    def _enum(self, symbols: Sequence[str], node: Node) -> Make:
        known = set(node.about["symbols"])
        default = node.about.get("default")
        read = [symbol if symbol in known else default for symbol in symbols]

        def made(values: list[int]) -> pa.Array:
            if values and (min(values) < 0 or max(values) >= len(read)):
                raise BadRecord(f"{node.path}: the number is of no symbol of the writer's enum")
            texts = [read[value] for value in values]
            if None in texts:
                raise BadRecord(f"{node.path}: the symbol is not in the reader's enum, which has no default")
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
                return number, self._one(schema, node.branches[number])
            except Mismatch:
                continue
        raise Mismatch(f"{node.path}: the writer's {about.get('name', kind)} is none of the reader's branches")


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
    family, unit = _family(logical)
    if logical is not None and written is not None and _family(written)[0] != family:
        raise Mismatch(f"{node.path}: the writer has {written} there, and the reader {logical}")
    match logical:
        case "decimal" if kind != "string":
            scale = about.get("scale", 0) if written else node.about.get("scale", 0)
            if scale > MAX_DECIMAL_DIGITS:
                raise Mismatch(f"{node.path}: the writer's decimal has {scale} digits behind the point")
            return A.decimals(node.arrow, scale)
        case "uuid" if kind == "fixed":
            return A.uuids
        case "duration":
            return _durations(node.arrow)
        case _ if unit is not None:
            of_writer = _family(written)[1] or unit
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


def _encoded(node: Node) -> Make:
    if node.logical == "decimal":
        raise Mismatch(f"{node.path}: the writer has string there, and the reader decimal")
    return lambda values: pa.array([value.encode("utf-8") for value in values], pa.binary())


def _family(logical: str | None) -> tuple[str | None, int | None]:
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
    """Gives a default of JSON the form of a value that fastavro decodes by the schema of `_Raw`."""

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
                return _latin_1(default)
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
    SCHEMA_TYPE = "AVRO"
    REGISTRY_FORMAT = None
    needs_writers = True
    has_indexes = False

    def __init__(self, written: Written) -> None:
        """Raises SchemaUnreadable, or TypeNotMapped with the path."""
        self.schema = Schema.of(written)
        self.node = _Types(self.schema).node(self.schema.whole, "")
        self.spark_type = self.node.spark

    def writer(self, written: Written) -> Writer:
        """Return what decodes records of this writer's schema. Raises BadRecord if the reader cannot read it."""
        try:
            schema = Schema.of(written)
            raw = extra("fastavro", on_executor=True).parse_schema(_Raw(schema).of(schema.whole))
            make = _Resolver(schema, self.schema).resolved(schema.whole, self.node)
        except Mismatch as mismatch:
            raise BadRecord(f"the writer's schema is not compatible with the reader's: {mismatch}") from None
        except SchemaUnreadable as error:
            raise BadRecord(f"the writer's schema cannot be used: {error.reason}") from None
        if branches_of(schema.whole) is None and schema.found(schema.whole)[0] == "bytes":
            # The official serializers write bytes alone without their length.
            return Writer(lambda data, start: data[start:], make)
        read = extra("fastavro", on_executor=True).schemaless_reader

        def parsed(data: bytes, start: int) -> Any:
            stream = io.BytesIO(data)
            stream.seek(start)
            value = read(stream, raw, None)
            if stream.tell() != len(data):
                raise BadRecord(f"{len(data) - stream.tell()} bytes are left behind its end")
            return value

        return Writer(parsed, make)

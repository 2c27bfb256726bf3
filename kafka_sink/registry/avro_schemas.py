"""Avro schemas of reads: what their names stand for, the Spark types of a reader's, and a writer's for fastavro.

fastavro decodes by the writer's schema alone, in another form with the same bytes (`Raw`). A branch of a union is a
record with one field, so that a value names its branch. An enum is an int, because fastavro takes a negative index from
the end. Logical types are left out: `avro_reading.py` converts whole columns.

Hostile schemas: recursion is refused, as fastavro would overflow C's stack. So is an array whose items may have no
bytes, as its count may be 2^60 (`MOST_VALUES_A_BYTE`).

Sources: Avro 1.12 specification; Spark's SchemaConverters.scala, for the types of unions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from kafka_sink.errors import SchemaUnreadable, TypeNotMapped
from kafka_sink.registry import arrays as A
from kafka_sink.registry.arrays import BadRecord
from kafka_sink.registry.avro import FORM, with_valid_logical_types
from kafka_sink.registry.forms import extra, read_as
from kafka_sink.registry.references import Written

# Types of a schema after all names are replaced by what they name.
MAX_TYPES = 20_000
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


# --- schemas ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Schema:
    """A parsed schema: names are full, and `named` has what they name."""

    whole: Any
    named: Mapping[str, Any]

    @classmethod
    @read_as(FORM)
    def of(cls, written: Written) -> Schema:
        parse, named = extra("fastavro", on_executor=True).parse_schema, dict[str, Any]()
        texts = (*(text for _, text in written.others), written.text)
        parsed = [parse(with_valid_logical_types(json.loads(text)), named_schemas=named) for text in texts]
        return cls(parsed[-1], named)

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
    """Return the logical type, or None if there is none for this kind."""
    logical = str(about.get("logicalType"))
    is_decimal = logical == "decimal" and kind in ("bytes", "fixed")
    return logical if is_decimal or (logical, kind) in LOGICAL else None


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


class Types:
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


class Raw:
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


class _Branches(list[Any]):
    """The branches of a union. fastavro would take a negative number of a branch from the end, and asks for the length
    only then."""

    def __len__(self) -> int:
        raise BadRecord("the number is of no branch of the writer's union")


def with_checked_branches(parsed: Any) -> Any:
    """Return the parsed schema, of which a negative number of a branch raises BadRecord."""
    if isinstance(parsed, list):
        return _Branches(map(with_checked_branches, parsed))
    if not isinstance(parsed, dict):
        return parsed
    checked = {key: with_checked_branches(parsed[key]) for key in ("items", "values") if key in parsed}
    if parsed["type"] == "record":
        checked["fields"] = [{**one, "type": with_checked_branches(one["type"])} for one in parsed["fields"]]
    return {**parsed, **checked}


# A number of more than 64 bits has nine bytes with the high bit, one of which is at a multiple of nine. Texts may too.
_NINE = b"\1" * 9
_HIGH_BITS = bytes(byte >> 7 for byte in range(256))


def may_have_long_number(data: bytes) -> bool:
    """Return False for most records, in little time: they need no `check_numbers`."""
    return not data[::9].isascii() and _NINE in data.translate(_HIGH_BITS)


def check_numbers(raw: Any, data: bytes, at: int) -> int:
    """Return the end of a value that fastavro has read. Raises BadRecord for a number of more than 64 bits, of which
    fastavro leaves bits out, before any byte behind the number is looked at."""
    if isinstance(raw, list):
        branch, at = _number(data, at)
        return check_numbers(raw[branch], data, at)
    match raw if isinstance(raw, str) else raw["type"]:
        case "null":
            return at
        case "boolean":
            return at + 1
        case "int" | "long":
            return _number(data, at)[1]
        case "float":
            return at + 4
        case "double":
            return at + 8
        case "bytes" | "string":
            size, at = _number(data, at)
            return at + size
        case "fixed":
            return at + int(raw["size"])
        case "record":
            for one in raw["fields"]:
                at = check_numbers(one["type"], data, at)
            return at
    count, at = _number(data, at)
    while count:
        if count < 0:  # the block's size in bytes is behind it
            _, at = _number(data, at)
        for _ in range(abs(count)):
            if raw["type"] == "map":
                at = check_numbers("string", data, at)
            at = check_numbers(raw["items" if raw["type"] == "array" else "values"], data, at)
        count, at = _number(data, at)
    return at


def _number(data: bytes, at: int) -> tuple[int, int]:
    """Return a number in zigzag encoding, and the place behind it."""
    number = shift = 0
    while data[at] & 0x80:
        number |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
    number |= data[at] << shift
    if number >> 64:
        raise BadRecord("a number in it has more than 64 bits")
    return (number >> 1) ^ -(number & 1), at + 1


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

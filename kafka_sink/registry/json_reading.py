"""JSON Schema: the Spark type of a reader's schema, and records that are parsed and checked against it.

A record says itself what it is, so the writer's schema is not needed: the id is left out, and the registry is not asked
for it. As with the official Java deserializer, a record is not validated against its writer's schema. Types and
required properties are those of the reader's, and a value of another type is a bad record. Other properties are left
out. Patterns, ranges and enums are not checked.

A part of a schema that has no single type of Spark, such as a oneOf of a string and an object, is a string with the
value's JSON.

Sources: JSON Schema drafts 4 to 2020-12; RFC 3339; confluent_kafka.schema_registry.json_schema.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as T

from kafka_sink.errors import SchemaUnreadable
from kafka_sink.registry import arrays as A
from kafka_sink.registry.arrays import BadRecord, Make
from kafka_sink.registry.decoding import Writer
from kafka_sink.registry.forms import read_as
from kafka_sink.registry.json_schema import FORM, MAX_BRANCHES, SCHEMA_TYPE, Part, root_of
from kafka_sink.registry.references import Written

# Parts of a schema, with what `$ref` stands for in each place.
MAX_PARTS = 20_000
UNIONS = ("oneOf", "anyOf")
# What `type` says in other words.
IMPLIED = {"properties": "object", "additionalProperties": "object", "required": "object", "items": "array"}
NAMES: dict[type, str] = {
    bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object", type(None): "null",
}  # fmt: skip
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


# --- values -----------------------------------------------------------------------------------------------------------


def _only(kind: type, values: list[Any]) -> list[Any]:
    if any(type(value) is not kind for value in values):
        raise ValueError("another type")
    return values


def _booleans(values: list[Any]) -> pa.Array:
    return pa.array(_only(bool, values), pa.bool_())


def _integers(values: list[Any]) -> pa.Array:
    """JSON Schema takes 1.0 for a whole number."""
    if any(type(value) not in (int, float) or value != int(value) for value in values):
        raise ValueError("not whole")
    return pa.array([int(value) for value in values], pa.int64())


def _numbers(values: list[Any]) -> pa.Array:
    if any(type(value) not in (int, float) for value in values):
        raise ValueError("no number")
    numbers = pa.array([float(value) for value in values], pa.float64())
    if not pc.all(pc.is_finite(numbers), min_count=0).as_py():
        raise ValueError("larger than any double")
    return numbers


def _texts(values: list[Any]) -> pa.Array:
    return pa.array(_only(str, values), pa.string())


def _bytes(values: list[Any]) -> pa.Array:
    return pa.array([base64.b64decode(value, validate=True) for value in _only(str, values)], pa.binary())


def _dates(values: list[Any]) -> pa.Array:
    if not all(_DATE.fullmatch(value) for value in _only(str, values)):
        raise ValueError("no date")
    return pa.array([dt.date.fromisoformat(value) for value in values], pa.date32())


def _moments(values: list[Any]) -> pa.Array:
    if not all(_DATE_TIME.fullmatch(value) for value in _only(str, values)):
        raise ValueError("no date-time")
    moments = [dt.datetime.fromisoformat(value.upper()).astimezone(dt.UTC) for value in values]
    return pa.array(moments, pa.timestamp("us", "UTC"))


def _as_json(values: list[Any]) -> pa.Array:
    return pa.array([json.dumps(value, ensure_ascii=False, allow_nan=False) for value in values], pa.string())


def _all_of(kind: type, path: str, make: Make) -> Make:
    def made(values: list[Any]) -> pa.Array:
        if any(type(value) is not kind for value in values):
            raise BadRecord(f"{A.place(path)}: it is no {NAMES[kind]}")
        return make(values)

    return made


# --- the reader's type ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Node:
    """A type of Spark, and what makes its arrays of values other than null. `has_null`: null is allowed."""

    spark: T.DataType
    make: Make
    has_null: bool = False


TEXTS: dict[str, tuple[T.DataType, Make]] = {
    "date": (T.DateType(), _dates), "date-time": (T.TimestampType(), _moments), "base64": (T.BinaryType(), _bytes),
}  # fmt: skip
SIMPLE: dict[str, tuple[T.DataType, Make]] = {
    "boolean": (T.BooleanType(), _booleans), "integer": (T.LongType(), _integers), "number": (T.DoubleType(), _numbers),
}  # fmt: skip


class _Types:
    """Makes nodes of a schema."""

    def __init__(self) -> None:
        self.parts = 0
        self.within: list[int] = []

    def _count(self) -> None:
        self.parts += 1
        if self.parts > MAX_PARTS:
            raise SchemaUnreadable(form=FORM, reason=f"it has more than {MAX_PARTS} parts, with what $ref stands for")

    def node(self, part: Part, path: str) -> Node:
        self._count()
        if id(part.schema) in self.within and isinstance(part.schema, dict):
            raise SchemaUnreadable(form=FORM, reason=f"{A.place(path)} contains itself, and a type of Spark cannot")
        self.within.append(id(part.schema))
        found = self._of(part, path)
        self.within.pop()
        return found

    def _of(self, part: Part, path: str) -> Node:
        ref = part.get("$ref")
        if isinstance(ref, str):
            return self.node(part.resolved(ref), path)
        properties, required, keys = self._merged(part)
        types = _types(keys, properties)
        if types is None:
            union = next((name for name in UNIONS if name in keys), None)
            return _any(path) if union is None else self._union(part, keys[union], path)
        has_null = "null" in types
        others = types - {"null"}
        if others == {"integer", "number"}:
            others = {"number"}
        if not others:
            return Node(T.NullType(), A.Leaf(path, A.Plain(pa.null())), True)
        if len(others) != 1:
            return Node(T.StringType(), A.Leaf(path, _as_json), has_null)
        (kind,) = others
        match kind:
            case "object" if properties:
                return self._struct(properties, required, path, has_null)
            case "object":
                return self._map(part, keys, path, has_null)
            case "array":
                return self._array(part, keys, path, has_null)
            case "string":
                name = "base64" if keys.get("contentEncoding") == "base64" else keys.get("format", "")
                spark, make = TEXTS.get(str(name), (T.StringType(), _texts))
                return Node(spark, A.Leaf(path, make), has_null)
        if kind not in SIMPLE:
            raise SchemaUnreadable(form=FORM, reason=f"{A.place(path)} has an unknown type")
        spark, make = SIMPLE[kind]
        return Node(spark, A.Leaf(path, make), has_null)

    def _merged(self, part: Part) -> tuple[dict[str, Part], set[str], Mapping[str, Any]]:
        """Return properties, required properties and other keywords, with those of allOf."""
        if not isinstance(part.schema, dict):
            return {}, set(), {}
        keys = dict(part.schema)
        properties = {name: part.within(one) for name, one in part.get("properties", {}).items()}
        required = set(part.get("required", ()))
        for one in part.get("allOf", ()):
            self._count()
            inner = part.within(one)
            seen: list[int] = []
            while isinstance(ref := inner.get("$ref"), str):
                seen.append(id(inner.schema))
                inner = inner.resolved(ref)
                if id(inner.schema) in [*seen, *self.within]:
                    raise SchemaUnreadable(form=FORM, reason="its allOf contains itself, and a type of Spark cannot")
            self.within.append(id(inner.schema))
            more, also, others = self._merged(inner)
            self.within.pop()
            properties = {**properties, **{name: one for name, one in more.items() if name not in properties}}
            required |= also
            # Places of these keywords are relative to their own part.
            keys = {**{key: one for key, one in others.items() if key in ("type", "format", "enum", "const")}, **keys}
        return properties, required, keys

    def _union(self, part: Part, branches: Any, path: str) -> Node:
        if not isinstance(branches, list) or not 0 < len(branches) <= MAX_BRANCHES:
            raise SchemaUnreadable(form=FORM, reason=f"a union has no branch, or more than {MAX_BRANCHES}")
        nodes = [self.node(part.within(one), path) for one in branches]
        has_null = any(node.has_null for node in nodes)
        others = [node for node in nodes if not isinstance(node.spark, T.NullType)]
        if not others:
            return nodes[0]
        if len(others) > 1:
            return Node(T.StringType(), A.Leaf(path, _as_json), has_null)
        return Node(others[0].spark, others[0].make, has_null)

    def _struct(self, properties: Mapping[str, Part], required: set[str], path: str, has_null: bool) -> Node:
        fields, makes = [], []
        for name, part in properties.items():
            inner = f"{path}.{name}".lstrip(".")
            node = self.node(part, inner)
            is_null = node.has_null or name not in required
            fields.append(T.StructField(name, node.spark, is_null))
            makes.append((_taken(name, inner, name in required), with_nulls(node, is_null, inner)))
        spark = T.StructType(fields)
        return Node(spark, _all_of(dict, path, A.struct(A.arrow_type(spark), makes)), has_null)

    def _map(self, part: Part, keys: Mapping[str, Any], path: str, has_null: bool) -> Node:
        inner: Any = keys.get("additionalProperties", True)
        patterns = list(keys.get("patternProperties", {}).values())
        if patterns:
            inner = patterns[0] if inner is False and len(patterns) == 1 else True
        value = self.node(part.within(inner), f"{path}{{}}")
        spark = T.MapType(T.StringType(), value.spark, value.has_null)
        made = with_nulls(value, value.has_null, f"{path}{{}}")
        make = A.entries(A.arrow_type(spark), A.Leaf(f"{path} (key)", _texts), made)
        return Node(spark, _all_of(dict, path, make), has_null)

    def _array(self, part: Part, keys: Mapping[str, Any], path: str, has_null: bool) -> Node:
        inner = keys.get("items", True)
        if isinstance(inner, list) or "prefixItems" in keys:
            inner = True
        item = self.node(part.within(inner), f"{path}[]")
        spark = T.ArrayType(item.spark, item.has_null)
        make = A.items(A.arrow_type(spark), with_nulls(item, item.has_null, f"{path}[]"))
        return Node(spark, _all_of(list, path, make), has_null)


def _types(keys: Mapping[str, Any], properties: Mapping[str, Part]) -> set[str] | None:
    """Return the names of types that a value may have, None if the schema does not say."""
    types = keys.get("type")
    if isinstance(types, str):
        return {types}
    if isinstance(types, list):
        return set(map(str, types))
    values = keys["enum"] if isinstance(keys.get("enum"), list) else [keys["const"]] if "const" in keys else []
    if values:
        return {NAMES[type(value)] for value in values}
    if properties:
        return {"object"}
    return next(({kind} for key, kind in IMPLIED.items() if key in keys and not keys.keys() & set(UNIONS)), None)


def _any(path: str) -> Node:
    return Node(T.StringType(), A.Leaf(path, _as_json), True)


def _taken(name: str, path: str, is_required: bool) -> A.Take:
    if not is_required:
        return lambda values: [value.get(name) for value in values]

    def taken(values: list[Any]) -> list[Any]:
        if any(name not in value for value in values):
            raise BadRecord(f"{path}: it is not there, and the reader's schema requires it")
        return [value[name] for value in values]

    return taken


def with_nulls(node: Node, allowed: bool, path: str) -> Make:
    if allowed:
        return A.nullable(node.make, A.arrow_type(node.spark))
    return A.not_null(node.make, path)


# --- what decoding.py uses --------------------------------------------------------------------------------------------


class Reader:
    """A reader's schema."""

    FORM = FORM
    SCHEMA_TYPE = SCHEMA_TYPE
    REGISTRY_FORMAT = None
    needs_writers = False
    has_indexes = False

    def __init__(self, written: Written) -> None:
        """Raises SchemaUnreadable."""
        self.node = _node(written)
        self.spark_type = self.node.spark
        make = with_nulls(self.node, self.node.has_null, "")
        # ValueError: no UTF-8, no JSON, or a number of too many digits.
        self._writer = Writer(_parsed, make, bad=(ValueError, RecursionError))

    def writer(self, written: Written | None) -> Writer:
        return self._writer


@read_as(FORM)
def _node(written: Written) -> Node:
    schema = json.loads(written.text)
    if not isinstance(schema, dict | bool):
        raise SchemaUnreadable(form=FORM, reason="the whole is neither an object nor a boolean")
    others = {uri: json.loads(text) for uri, text in written.others}
    return _Types().node(root_of(schema if isinstance(schema, dict) else {}, others), "")


def _parsed(data: bytes, start: int) -> Any:
    return json.loads(data[start:].decode("utf-8"), parse_constant=_refuse)


def _refuse(name: str) -> None:
    raise BadRecord(f"it has {name}, which JSON has no number for")

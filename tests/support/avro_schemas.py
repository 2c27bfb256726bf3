"""Random pairs of Avro schemas, a writer's and a reader's that has evolved from it, and values of the writer's."""

import datetime as dt
import itertools
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class Pair:
    """`values`: of the writer's type, as fastavro takes them."""

    writer: Any
    reader: Any
    values: st.SearchStrategy[Any]


INTS, LONGS = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
FLOATS, DOUBLES = st.floats(width=32, allow_nan=False), st.floats(allow_nan=False)
TEXTS, BYTES = st.text(max_size=4), st.binary(max_size=4)
PROMOTED = {
    "int": (INTS, ["int", "long", "double"]), "long": (LONGS, ["long", "double"]),
    "float": (FLOATS, ["float", "double"]), "double": (DOUBLES, ["double"]),
    "boolean": (st.booleans(), ["boolean"]), "string": (TEXTS, ["string", "bytes"]),
    "bytes": (TEXTS.map(str.encode), ["bytes", "string"]), "null": (st.none(), ["null"]),
}  # fmt: skip


def _millis(moment: dt.datetime) -> dt.datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def _decimal(number: int) -> Decimal:
    return Decimal((number < 0, tuple(map(int, str(abs(number)))), -2))


LOGICAL = [
    ({"type": "int", "logicalType": "date"}, st.dates()),
    ({"type": "long", "logicalType": "timestamp-millis"}, st.datetimes(timezones=st.just(dt.UTC)).map(_millis)),
    ({"type": "long", "logicalType": "timestamp-micros"}, st.datetimes(timezones=st.just(dt.UTC))),
    ({"type": "long", "logicalType": "local-timestamp-millis"}, st.datetimes().map(_millis)),
    ({"type": "long", "logicalType": "local-timestamp-micros"}, st.datetimes()),
    ({"type": "string", "logicalType": "uuid"}, st.uuids()),
    ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
     st.integers(-(10**9) + 1, 10**9 - 1).map(_decimal)),
]  # fmt: skip
# Defaults of new fields, for which fastavro has the same values as we.
DEFAULTS: list[tuple[Any, Any]] = [
    ("int", -7), ("long", 2**40), ("double", 0.5), ("string", "d"), ("boolean", True), (["null", "string"], None),
    (["int", "null"], 3), ({"type": "array", "items": "int"}, [1, 2]), ({"type": "map", "values": "long"}, {"k": 1}),
]  # fmt: skip
# Of a union at most one of each row, so that a value's branch is clear, for fastavro too.
FAMILIES = ["int", "string", "boolean", "array", "map", "record", "fixed"]


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    """A record, as the whole of a schema is."""
    return _record(draw, map(str, itertools.count()), 3)


def _any(draw: st.DrawFn, names: Iterator[str], depth: int) -> Pair:
    kinds = (
        ["primitive"] * 3 + ["logical", "enum", "fixed"] + ["array", "map", "record", "nullable", "union"] * (depth > 0)
    )
    return _of(draw, draw(st.sampled_from(kinds)), names, depth)


def _of(draw: st.DrawFn, kind: str, names: Iterator[str], depth: int) -> Pair:
    match kind:
        case "primitive":
            kind = draw(st.sampled_from(sorted(PROMOTED)))
            values, readers = PROMOTED[kind]
            return Pair(kind, draw(st.sampled_from(readers)), values)
        case "logical":
            schema, values = draw(st.sampled_from(LOGICAL))
            return Pair(schema, schema, values)
        case "enum":
            name, symbols = f"e{next(names)}", ["A", "B", "C"]
            less = {"type": "enum", "name": name, "symbols": ["C", "D", "A"], "default": "D"}
            return Pair({"type": "enum", "name": name, "symbols": symbols}, less, st.sampled_from(symbols))
        case "fixed":
            fixed = {"type": "fixed", "name": f"f{next(names)}", "size": 3}
            return Pair(fixed, fixed, st.binary(min_size=3, max_size=3))
        case "array" | "map":
            inner = _any(draw, names, depth - 1)
            # An array of nulls is refused.
            inner = Pair("int", "long", INTS) if _may_be_empty(inner.writer) else inner
            key = "items" if kind == "array" else "values"
            values = (
                st.lists(inner.values, max_size=3)
                if kind == "array"
                else st.dictionaries(TEXTS, inner.values, max_size=3)
            )
            return Pair({"type": kind, key: inner.writer}, {"type": kind, key: inner.reader}, values)
        case "nullable":
            inner = _any(draw, names, depth - 1)
            if isinstance(inner.writer, list) or inner.writer == "null":
                return inner
            written, read = (["null", one] for one in (inner.writer, inner.reader))
            if draw(st.booleans()):
                written, read = written[::-1], read[::-1]
            return Pair(written, read, st.none() | inner.values)
        case "union":
            return _union(draw, names, depth)
        case "record":
            return _record(draw, names, depth - 1)
    return Pair(kind, kind, PROMOTED[kind][0])


def _may_be_empty(schema: Any) -> bool:
    if isinstance(schema, dict) and schema["type"] == "record":
        return bool(sum(3 * (not _may_be_empty(one["type"])) - 1 for one in schema["fields"]) <= 1)
    return bool(schema == "null")


def _union(draw: st.DrawFn, names: Iterator[str], depth: int) -> Pair:
    kinds = draw(st.lists(st.sampled_from(FAMILIES), min_size=2, max_size=4, unique=True))
    if "map" in kinds and "record" in kinds:
        kinds.remove("map")  # fastavro takes a dict for either
    if len(kinds) < 2:
        kinds.append("boolean")
    members = [_of(draw, kind, names, depth - 1) for kind in kinds]
    null = ["null"] if draw(st.booleans()) else []
    values = st.one_of(*([st.none()] if null else []), *(member.values for member in members))
    return Pair([*null, *(one.writer for one in members)], ["null", *reversed([one.reader for one in members])], values)


def _record(draw: st.DrawFn, names: Iterator[str], depth: int) -> Pair:
    name = f"r{next(names)}"
    written, read, values = [], [], {}
    for number in range(draw(st.integers(1, 4))):
        field = f"f{number}"
        inner = _any(draw, names, depth)
        written.append({"name": field, "type": inner.writer})
        values[field] = inner.values
        match draw(st.sampled_from(["kept", "kept", "renamed", "gone"])):
            case "kept":
                read.append({"name": field, "type": inner.reader})
            case "renamed":
                read.append({"name": f"new_{field}", "aliases": [field], "type": inner.reader})
    for number, (schema, default) in enumerate(draw(st.lists(st.sampled_from(DEFAULTS), max_size=2))):
        read.append({"name": f"d{number}", "type": schema, "default": default})
    if draw(st.booleans()):
        reader: dict[str, Any] = {"type": "record", "name": name, "fields": read[::-1]}
    else:
        reader = {"type": "record", "name": f"New{name}", "aliases": [name], "fields": read}
    return Pair({"type": "record", "name": name, "fields": written}, reader, st.fixed_dictionaries(values))


def normal(value: Any) -> Any:
    """Make values of Arrow and of fastavro comparable. A union is its only member that is not null."""
    match value:
        case dict() if value and all(name.startswith("member") for name in value):
            return next((normal(one) for one in value.values() if one is not None), None)
        case dict():
            return {name: normal(one) for name, one in value.items()}
        case list() if value and all(isinstance(one, tuple) for one in value):
            return {name: normal(one) for name, one in value}
        case list():
            return [normal(one) for one in value] or {}
        case uuid.UUID():
            return str(value)
    return value

"""JSON Schema: maps Spark's types, checks that a schema fits them, and encodes rows with Spark's own to_json.

No Python runs on executors: the framing is a constant prefix. A schema must fit the output of to_json. It omits null
fields of a struct, writes bytes as base64, and decimals as numbers. It would write NaN and the infinities as strings,
so rows with them are refused. Timestamps are in UTC, with microseconds.

A derived schema is closed (additionalProperties: false), as with the Java serializer. So the registry accepts a new
nullable column as compatible. For a given schema the types, properties and required properties are compared with the
DataFrame. Patterns, ranges, formats and enums are not checked.

Sources: JSON Schema draft 7; Spark's JacksonGenerator.scala; confluent_kafka.schema_registry.json_schema.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from urllib.parse import urljoin

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from kafka_sink.errors import SchemaUnreadable, ValueNotInSchema
from kafka_sink.registry.forms import KEYS, Version, does_not_fit, extra, no_references, not_mapped, read_as

FORM = "JSON"
SCHEMA_TYPE = "JSON"
REGISTRY_FORMAT = None
DRAFT = "http://json-schema.org/draft-07/schema#"

# Spark's types, and the output of to_json. Functions below handle arrays, maps and structs.
WRITTEN: dict[type[T.DataType], dict[str, str]] = {
    T.BooleanType: {"type": "boolean"},
    T.ByteType: {"type": "integer"},
    T.ShortType: {"type": "integer"},
    T.IntegerType: {"type": "integer"},
    T.LongType: {"type": "integer"},
    T.FloatType: {"type": "number"},
    T.DoubleType: {"type": "number"},
    T.DecimalType: {"type": "number"},
    T.StringType: {"type": "string"},
    T.VarcharType: {"type": "string"},
    T.CharType: {"type": "string"},
    T.BinaryType: {"type": "string", "contentEncoding": "base64"},
    T.DateType: {"type": "string", "format": "date"},
    T.TimestampType: {"type": "string", "format": "date-time"},
    T.TimestampNTZType: {"type": "string"},  # RFC 3339's date-time has a zone
}
TO_JSON = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "true",
}
INFINITE = float("inf")
# The most schemas that a value may have by oneOf and anyOf. More are no schema that a row could be checked against.
MAX_BRANCHES = 1_000
# Takes a column, and returns it with checks of its values.
Check = Callable[[Column], Column]


# --- derived ----------------------------------------------------------------------------------------------------------


def derived(columns: T.StructType, name: str) -> str:
    """Return the derived schema. Raises TypeNotMapped, with the column's path."""
    return json.dumps({"$schema": DRAFT, "title": name, **_object(columns, "")})


def _object(struct: T.StructType, path: str) -> dict[str, Any]:
    properties = {
        field.name: _or_null(_written(field.dataType, path + field.name), field.nullable) for field in struct.fields
    }
    required = [field.name for field in struct.fields if not field.nullable]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _written(data_type: T.DataType, path: str) -> dict[str, Any]:
    match data_type:
        case T.StructType():
            return _object(data_type, f"{path}.")
        case T.ArrayType(elementType=element, containsNull=has_null):
            return {"type": "array", "items": _or_null(_written(element, f"{path}[]"), has_null)}
        case T.MapType(keyType=key, valueType=value, valueContainsNull=has_null) if isinstance(key, KEYS):
            return {"type": "object", "additionalProperties": _or_null(_written(value, f"{path}{{}}"), has_null)}
    try:
        return dict(WRITTEN[type(data_type)])
    except KeyError:
        raise not_mapped(data_type, path, FORM) from None


def _or_null(schema: dict[str, Any], has_null: bool) -> dict[str, Any]:
    return {"oneOf": [{"type": "null"}, schema]} if has_null else schema


# --- fitted -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JsonEncoding:
    """As `forms.ArrowEncoding`, for Spark's own to_json. `only`: the column that is the whole, if that is no object."""

    text: str
    name: str
    check: Check | None
    only: str | None = None
    message_indexes: tuple[int, ...] = ()
    references: Callable[[Version], list[Any]] = no_references

    def column(self, record: Column, head: bytes) -> Column:
        """Return the encoded column (binary). It is null where `record` is null."""
        value = record if self.only is None else record.getField(self.only)
        checked = value if self.check is None else self.check(value)
        if self.only is None:
            text = F.to_json(checked, TO_JSON)
        else:
            whole = F.to_json(F.struct(checked.alias("v")), TO_JSON)
            text = F.when(value.isNotNull(), F.substring(whole, len('{"v":') + 1, F.length(whole) - len('{"v":}')))
        return F.concat(F.lit(head), text.cast("binary"))


@read_as(FORM)
def fitted(text: str, columns: T.StructType, others: Mapping[str, str] = MappingProxyType({})) -> JsonEncoding:
    """Check that the schema fits. `others`: the schemas that it refers to, by URI.

    Raises SchemaUnreadable, TypeNotMapped, or ColumnNotInSchema with the first path.
    """
    schema = json.loads(text)
    if not isinstance(schema, dict):
        raise SchemaUnreadable(form=FORM, reason="the whole is not an object, whose properties the columns could be")
    root = root_of(schema, {uri: json.loads(other) for uri, other in others.items()})
    check, only = _Fitting().whole(columns, root)
    return JsonEncoding(text, schema.get("title", ""), check, only)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a schema. `resolver`: finds what it refers to, relative to the `$id` around it."""

    schema: Any
    resolver: Any
    specification: Any

    def within(self, schema: Any) -> Part:
        """Return a part of this part."""
        resource = self.specification.create_resource(schema)
        return Part(schema, self.resolver.in_subresource(resource), self.specification)

    def get(self, key: str, default: Any = None) -> Any:
        return self.schema.get(key, default) if isinstance(self.schema, dict) else default

    def resolved(self, ref: str) -> Part:
        """Return what a `$ref` refers to. Nothing is fetched. Raises SchemaUnreadable if it is not known."""
        try:
            found = self.resolver.lookup(ref)
        except extra("referencing.exceptions").Unresolvable:
            reason = f"it refers to {ref}, which is not within it, nor in a schema that it names as a reference"
            raise SchemaUnreadable(form=FORM, reason=reason) from None
        return Part(found.contents, found.resolver, self.specification)


def root_of(schema: dict[str, Any], others: Mapping[str, Any]) -> Part:
    """Return the whole schema. As for the official serializers, it is of draft 7 if it names no other. As for Java's,
    a reference's name is a URI, or relative to the schema's `$id`."""
    referencing, drafts = extra("referencing"), extra("referencing.jsonschema")
    specification = drafts.specification_with(str(schema.get("$schema", "")), default=drafts.DRAFT7)
    root = specification.create_resource(schema)
    registry = referencing.Registry()
    for uri, other in others.items():
        resource = referencing.Resource.from_contents(other, default_specification=drafts.DRAFT7)
        registry = registry.with_resources((name, resource) for name in {uri, urljoin(root.id() or "", uri)})
    return Part(schema, registry.resolver_with_root(root), specification)


@dataclass(frozen=True, slots=True)
class _Fitting:
    """Makes a check for each part of the DataFrame's type, or None if nothing needs a check. Without a check Spark does
    not have to rebuild the column."""

    # By what is referred to. Of a union of two that refer to the same one, n levels deep, 2^n would be looked at.
    _known: dict[int, tuple[list[Part], bool]] = dataclasses.field(default_factory=dict)

    def whole(self, columns: T.StructType, root: Part) -> tuple[Check | None, str | None]:
        """Return the check, and the name of the only column if that is the whole, because the whole is no object."""
        allowed, _ = self._branches(root)
        fits = [one for one in allowed if _allows(one, "object")]
        if fits:
            return self.record(columns, fits[0], ""), None
        if len(columns) == 1:
            return self.value(columns[0].dataType, root, columns[0].name, False), columns[0].name
        raise does_not_fit("", columns, json.dumps(root.schema, default=str)[:200], FORM)

    def value(self, data_type: T.DataType, part: Part, path: str, is_required: bool) -> Check | None:
        allowed, has_null = self._branches(part)
        written = _written(data_type, path)["type"]
        fits = [one for one in allowed if _allows(one, written)]
        if not fits:
            raise does_not_fit(path, data_type, json.dumps(part.schema, default=str)[:200], FORM)
        inner = self._within(data_type, fits[0], path)
        # to_json omits a null field, which only `required` forbids. It writes null items and entries.
        refuses_null = is_required if not path.endswith(("[]", "{}")) else not has_null
        return _and_not_null(inner, path) if refuses_null else inner

    def _within(self, data_type: T.DataType, part: Part, path: str) -> Check | None:
        match data_type:
            case T.StructType():
                return self.record(data_type, part, f"{path}.")
            case T.ArrayType(elementType=element):
                item = self.value(element, part.within(part.get("items", True)), f"{path}[]", False)
                return None if item is None else lambda column: F.transform(column, item)
            case T.MapType(valueType=value):
                others = part.within(part.get("additionalProperties", True))
                entry = self.value(value, others, f"{path}{{}}", False)
                return None if entry is None else lambda column: F.transform_values(column, lambda _, one: entry(one))
            case T.FloatType() | T.DoubleType():
                problem = "is NaN or infinite, for which JSON has no number"
                return lambda column: _refused(F.isnan(column) | (F.abs(column) == INFINITE), column, path, problem)
        return None

    def record(self, struct: T.StructType, part: Part, path: str) -> Check | None:
        properties, required = part.get("properties", {}), part.get("required", [])
        for name in required:
            if name not in struct.names:
                raise does_not_fit(path + name, "not there", f"a required property {name!r}", FORM)
        others = part.get("additionalProperties", True)
        checks: dict[str, Check] = {}
        for field in struct.fields:
            if field.name not in properties and others is False and not part.get("patternProperties"):
                raise does_not_fit(path + field.name, field.dataType, "no such property", FORM)
            is_required = field.name in required and field.nullable
            inner = part.within(properties.get(field.name, others))
            check = self.value(field.dataType, inner, path + field.name, is_required)
            if check is not None:
                checks[field.name] = check
        if not checks:
            return None

        def of_all(record: Column) -> Column:
            fields = [(name, record.getField(name)) for name in struct.names]
            checked = [checks[name](field) if name in checks else field for name, field in fields]
            whole = F.struct(*(one.alias(name) for one, name in zip(checked, struct.names, strict=True)))
            return F.when(record.isNotNull(), whole)

        return of_all

    def _branches(self, part: Part) -> tuple[list[Part], bool]:
        """Return the schemas allowed for a value other than null, each once, and True if null is allowed."""
        ref = part.get("$ref")
        if not isinstance(ref, str):
            return self._branches_of(part)
        target = part.resolved(ref)
        place = id(target.schema)
        if place not in self._known:
            self._known[place] = self._branches(target)
        return self._known[place]

    def _branches_of(self, part: Part) -> tuple[list[Part], bool]:
        if not isinstance(part.schema, dict):
            return ([] if part.schema is False else [part]), part.schema is not False
        for union in ("oneOf", "anyOf"):
            if union in part.schema:
                parts = [self._branches(part.within(one)) for one in part.schema[union]]
                branches = list({id(one.schema): one for allowed, _ in parts for one in allowed}.values())
                if len(branches) > MAX_BRANCHES:
                    reason = f"a value may have more than {MAX_BRANCHES} schemas by {union}"
                    raise SchemaUnreadable(form=FORM, reason=reason)
                return branches, any(has_null for _, has_null in parts)
        types = part.get("type")
        has_null = types is None or types == "null" or (isinstance(types, list) and "null" in types)
        return ([] if types == "null" else [part]), has_null


def _allows(part: Part, written: str) -> bool:
    types = part.get("type")
    allowed = [types] if isinstance(types, str) else types
    return allowed is None or written in allowed or (written == "integer" and "number" in allowed)


def _and_not_null(inner: Check | None, path: str) -> Check:
    def check(column: Column) -> Column:
        value = column if inner is None else inner(column)
        return _refused(column.isNull(), value, path, "is null, where its schema has no null")

    return check


def _refused(is_bad: Column, column: Column, path: str, problem: str) -> Column:
    """Return `column`. A row with `is_bad` raises Spark's error with the message of ValueNotInSchema."""
    message = str(ValueNotInSchema(column=path, problem=problem))
    return F.when(is_bad, F.raise_error(F.lit(f"kafka_sink.errors.ValueNotInSchema: {message}"))).otherwise(column)

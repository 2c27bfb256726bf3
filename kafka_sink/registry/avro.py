"""Avro: maps Spark's types, checks that a schema fits them, and encodes rows with fastavro, as the official client.

A derived schema is the same as that of Spark's to_avro, except for decimals. They are bytes, because a fixed needs a
name and cannot become wider. A nullable column is a union with null, with the default null, so that columns can be
added. Inner records are named by their place. A given schema may have its fields in another order, and further fields
with a default.

Logical types choose the conversion of a column (`FITS`). Then they are removed, so that fastavro gets numbers and bytes
that were converted by column.

Sources: Avro 1.12 specification; Spark's SchemaConverters.scala; confluent_kafka.schema_registry.avro.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from pyspark.sql import types as T

from kafka_sink.errors import ColumnNotInSchema, SchemaUnreadable
from kafka_sink.errors.failures import told_to_spark
from kafka_sink.registry import values as V
from kafka_sink.registry.forms import (
    ArrowEncoding,
    check_name,
    does_not_fit,
    extra,
    framed,
    not_mapped,
    read_as,
    varint,
)

FORM = "Avro"
SCHEMA_TYPE = "AVRO"
REGISTRY_FORMAT = None  # the format in which the registry returns a schema

# Logical types that Spark has no type for: their number is a column of whole numbers.
_WHOLE_32: dict[str, V.Convert] = {"int": V.plain, "long": V.plain, "int:time-millis": V.plain}
_WHOLE_64: dict[str, V.Convert] = {
    "long": V.plain, "long:time-micros": V.plain, "long:timestamp-nanos": V.plain,
    "long:local-timestamp-nanos": V.plain,
}  # fmt: skip
# Spark's type -> Avro's types (with `:logicalType`) that can hold all its values, and their conversions. The first is
# the derived one. Of a union's types the first in this order is taken. Functions below handle decimals, arrays, maps,
# structs, enum and fixed.
FITS: dict[type[T.DataType], dict[str, V.Convert]] = {
    T.BooleanType: {"boolean": V.plain},
    T.ByteType: {**_WHOLE_32, "float": V.plain, "double": V.plain, **_WHOLE_64},
    T.ShortType: {**_WHOLE_32, "float": V.plain, "double": V.plain, **_WHOLE_64},
    T.IntegerType: {**_WHOLE_32, "double": V.plain, **_WHOLE_64},
    T.LongType: _WHOLE_64,
    T.FloatType: {"float": V.plain, "double": V.plain},
    T.DoubleType: {"double": V.plain},
    T.StringType: {"string": V.plain, "string:uuid": V.uuids, "fixed:uuid": V.uuid_bytes},
    T.VarcharType: {"string": V.plain},
    T.CharType: {"string": V.plain},
    T.BinaryType: {"bytes": V.plain},
    T.DateType: {"int:date": V.days},
    T.TimestampType: {
        "long:timestamp-micros": V.micros, "long:timestamp-millis": V.millis, "long:timestamp-nanos": V.nanos,
    },
    T.TimestampNTZType: {
        "long:local-timestamp-micros": V.micros, "long:local-timestamp-millis": V.millis,
        "long:local-timestamp-nanos": V.nanos,
    },
}  # fmt: skip
if hasattr(T, "TimeType"):  # since pyspark 4.1
    FITS[T.TimeType] = {"long:time-micros": V.time_micros, "int:time-millis": V.time_millis}
# Avro 1.12, "Logical Types", by the type that each annotates. Any other is ignored.
LOGICAL_TYPES = {
    *(logical for fits in FITS.values() for logical in fits if ":" in logical),
    "bytes:decimal", "fixed:decimal", "fixed:duration",
}  # fmt: skip
UUID_BYTES, DURATION_BYTES, DIGITS_OF_MILLIS = 16, 12, 3
NO_NULL = "is null, where its schema has no null"


# --- derived ----------------------------------------------------------------------------------------------------------


def derived(columns: T.StructType, name: str) -> str:
    """Return the derived schema. Raises TypeNotMapped or NameNotAllowed, with the column's path."""
    return json.dumps(_record(columns, name, None, ""))


def _record(struct: T.StructType, name: str, namespace: str | None, path: str) -> dict[str, Any]:
    for field_name in struct.names:
        check_name(field_name, path, FORM)
    inner = name if namespace is None else f"{namespace}.{name}"
    fields = []
    for field in struct.fields:
        avro_type = _derived_type(field.dataType, field.name, inner, path + field.name)
        if field.nullable:
            fields.append({"name": field.name, "type": ["null", avro_type], "default": None})
        else:
            fields.append({"name": field.name, "type": avro_type})
    return {"type": "record", "name": name, **({"namespace": namespace} if namespace else {}), "fields": fields}


def _derived_type(data_type: T.DataType, name: str, namespace: str, path: str) -> Any:
    match data_type:
        case T.StructType():
            return _record(data_type, name, namespace, f"{path}.")
        case T.ArrayType(elementType=element, containsNull=has_null):
            return {"type": "array", "items": _or_null(_derived_type(element, name, namespace, f"{path}[]"), has_null)}
        case T.MapType(keyType=T.StringType(), valueType=value, valueContainsNull=has_null):
            return {"type": "map", "values": _or_null(_derived_type(value, name, namespace, f"{path}{{}}"), has_null)}
        case T.DecimalType(precision=precision, scale=scale):
            return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    try:
        avro_type, _, logical = next(iter(FITS[type(data_type)])).partition(":")
    except KeyError:
        raise not_mapped(data_type, path, FORM) from None
    return {"type": avro_type, "logicalType": logical} if logical else avro_type


def _or_null(avro_type: Any, has_null: bool) -> Any:
    return ["null", avro_type] if has_null else avro_type


# --- fitted -----------------------------------------------------------------------------------------------------------


@told_to_spark()
def encoded(rows: pa.Array, head: bytes, *, written: tuple[str, ...], plan: V.Values, is_raw: bool = False) -> pa.Array:
    """Encode the rows, on executors. `written`: the schema without logical types, behind those that it refers to.

    `is_raw`: the only field is bytes, which are written without their length. Raises ValueNotInSchema or
    RegistryExtraMissing.
    """
    from kafka_sink.registry import avro_encoding

    schema, named = _parsed(written)
    if not is_raw and (fast := avro_encoding.encoded(rows, head, schema, named, plan)) is not None:
        return fast
    values = V.python_rows(rows, plan)
    if is_raw:
        return framed(head, values, lambda data, row: data.write(row[ONLY]))
    write = extra("fastavro", on_executor=True).schemaless_writer
    return framed(head, values, lambda data, row: write(data, schema, row))


@functools.lru_cache(maxsize=16)
def _parsed(written: tuple[str, ...]) -> tuple[Any, dict[str, Any]]:
    parse, named = extra("fastavro", on_executor=True).parse_schema, dict[str, Any]()
    schema = [parse(json.loads(text), named_schemas=named) for text in written][-1]
    for record in named.values():
        for field in record.get("fields", ()):
            if "default" in field:
                # Text that is not bytes stays: `fitted` refuses a schema if such a default would be written.
                with contextlib.suppress(ValueError):
                    field["default"] = _default(field["default"], field["type"], named)
    return schema, named


@read_as(FORM)
def fitted(text: str, columns: T.StructType, others: Mapping[str, str] = MappingProxyType({})) -> ArrowEncoding:
    """Check that the schema fits. `others`: the schemas that it refers to, each behind those that it refers to itself.

    Raises SchemaUnreadable, or ColumnNotInSchema with the first column's path.
    """
    parse, named = extra("fastavro").parse_schema, dict[str, Any]()
    schemas = [with_valid_logical_types(json.loads(one)) for one in (*others.values(), text)]
    # The name of a reference is not used: a schema refers to the names of types.
    parsed = [parse(one, named_schemas=named) for one in schemas]
    return _whole(_official_text(text), columns, parsed, _Fitting(named))


# The field of a record that a schema without a record is written as: a record's bytes are those of its fields.
ONLY = "only"


def _whole(text: str, columns: T.StructType, parsed: list[Any], fitting: _Fitting) -> ArrowEncoding:
    """Return the encoding by the last of `parsed`: by a record, whose fields the columns are; or by another type, which
    an only column is; or by the first of a union's types that fits."""
    *referred, whole = parsed
    is_union = isinstance(whole, list)
    refused: ColumnNotInSchema | None = None
    for place, branch in enumerate(whole if is_union else [whole]):
        kind, about = _kind(branch, fitting.named)
        if kind != "record" and len(columns) != 1:
            continue
        try:
            if kind == "record":
                plan = fitting.record(columns, about, "", None)
            else:
                (column,) = columns
                if not is_union and fitting.kind_of(branch) == "bytes:decimal":
                    raise does_not_fit(column.name, column.dataType, "bytes that no official serializer takes", FORM)
                plan = V.Record("", None, ((ONLY, fitting.one(column.dataType, branch, column.name, NO_NULL)),))
        except ColumnNotInSchema as error:
            refused = refused or error
            continue
        schema = about
        if kind != "record":
            schema = {"type": "record", "name": f"kafka_sink.{ONLY}", "fields": [{"name": ONLY, "type": branch}]}
        written = tuple(json.dumps(_without_logical_types(one)) for one in (*referred, schema))
        # As the official serializers, which write a whole of bytes without its length.
        is_raw = kind == "bytes" and not is_union
        encode = functools.partial(encoded, written=written, plan=plan, is_raw=is_raw)
        name = "" if is_union else about.get("name", kind)
        return ArrowEncoding(text, name, encode, start=varint(place << 1) if is_union else b"")
    if refused is not None:
        raise refused
    reason = "the whole is not a record, whose fields the columns could be, nor is there only one column"
    raise SchemaUnreadable(form=FORM, reason=reason)


def _official_text(text: str) -> str:
    """Return the text as the official client registers it: the name of a primitive type as an object."""
    text = text.strip()
    return text if text[:1] in "{[" else f'{{"type":{text}}}'


@dataclass(frozen=True, slots=True)
class _Fitting:
    named: dict[str, Any]

    def record(self, struct: T.StructType, schema: dict[str, Any], path: str, why_no_null: str | None) -> V.Record:
        fields = {field["name"]: field for field in schema["fields"]}
        for name, field in fields.items():
            if name not in struct.names and "default" not in field:
                raise does_not_fit(path + name, "not there", f"a field {name!r} without a default", FORM)
            if name not in struct.names:
                self._check_default(field, path + name)
        plans = []
        for column in struct.fields:
            if column.name not in fields:
                raise does_not_fit(path + column.name, column.dataType, "no such field", FORM)
            plans.append((column.name, self.value(column.dataType, fields[column.name]["type"], path + column.name)))
        return V.Record(path.rstrip("."), why_no_null, tuple(plans))

    def _check_default(self, field: dict[str, Any], path: str) -> None:
        try:
            _default(field["default"], field["type"], self.named)
        except ValueError:
            expected = f"a field {field['name']!r} whose default is bytes of its type (characters U+0000 to U+00FF)"
            raise does_not_fit(path, "not there", expected, FORM) from None

    def value(self, data_type: T.DataType, schema: Any, path: str) -> V.Values:
        """Return the conversion of a column. Nulls are checked by row, because most columns of Spark are nullable."""
        branches = [branch for branch in schema if branch != "null"] if isinstance(schema, list) else [schema]
        no_null = None if isinstance(schema, list) and "null" in schema else NO_NULL
        refused: ColumnNotInSchema | None = None
        # The type that Java takes for the column's type, else the first that fits, as fastavro.
        order = list(FITS.get(type(data_type), ()))
        for branch in sorted(branches, key=lambda one: _place(order, self.kind_of(one))):
            try:
                plan = self.one(data_type, branch, path, no_null)
            except ColumnNotInSchema as error:
                refused = error
                continue
            if not isinstance(schema, list):
                return plan
            kind, about = _kind(branch, self.named)
            return V.Branch(about.get("name", kind), plan)
        if refused is not None and len(branches) == 1:
            raise refused
        raise does_not_fit(path, data_type, json.dumps(_shown(schema)), FORM)

    def one(self, data_type: T.DataType, schema: Any, path: str, no_null: str | None) -> V.Single:
        """Return the conversion to a type that is no union."""
        kind, about = _kind(schema, self.named)
        match data_type, kind:
            case T.StructType(), "record":
                return self.record(data_type, about, f"{path}.", no_null)
            case T.ArrayType(elementType=element), "array":
                return V.Items(path, no_null, self.value(element, about["items"], f"{path}[]"))
            case T.MapType(keyType=T.StringType(), valueType=value), "map":
                keys = V.Leaf(f"{path} (key)", "is null", V.plain)
                return V.Entries(path, no_null, keys, self.value(value, about["values"], f"{path}{{}}"))
        convert = _convert(data_type, about, self.kind_of(schema))
        if convert is None:
            raise does_not_fit(path, data_type, json.dumps(_shown(schema)), FORM)
        return V.Leaf(path, no_null, convert)

    def kind_of(self, schema: Any) -> str:
        """Return the type, with its logical type if that is one of Avro's."""
        kind, about = _kind(schema, self.named)
        logical = f"{kind}:{about.get('logicalType')}"
        return logical if logical in LOGICAL_TYPES else kind


def _place(order: list[str], kind: str) -> int:
    return order.index(kind) if kind in order else len(order)


def _convert(data_type: T.DataType, about: dict[str, Any], kind: str) -> V.Convert | None:
    """Return the conversion, or None if the schema's type cannot hold all values of `data_type`."""
    match data_type:
        case T.DecimalType(precision=precision, scale=scale) if kind in ("bytes:decimal", "fixed:decimal"):
            if about.get("scale", 0) != scale or about["precision"] < precision:
                return None
            return V.unscaled_bytes if kind == "bytes:decimal" else V.unscaled_fixed(about["size"])
        case T.StringType() if kind == "enum":
            return V.one_of(frozenset(about["symbols"]))
        case T.BinaryType() if kind in ("fixed", "fixed:duration", "fixed:uuid"):
            return V.of_size(about["size"])
    if kind == "int:time-millis" and getattr(data_type, "precision", 0) > DIGITS_OF_MILLIS:
        return None
    return FITS.get(type(data_type), {}).get(kind)


def with_valid_logical_types(schema: Any) -> Any:
    """Return the schema without logical types that contradict their type: Avro ignores them, and fastavro refuses them.

    They are decimals that their precision, scale or size cannot be of, and sizes of a fixed that is no UUID.
    """
    if isinstance(schema, list):
        return [with_valid_logical_types(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    valid = {key: one if key in _TEXTS else with_valid_logical_types(one) for key, one in schema.items()}
    if not _is_valid(valid):
        del valid["logicalType"]
    return valid


# What a schema has that is no schema.
_TEXTS = ("default", "doc", "symbols", "aliases")


def _is_valid(schema: dict[str, Any]) -> bool:
    kind, size = schema.get("type"), schema.get("size")
    match schema.get("logicalType"):
        case "decimal" if kind in ("bytes", "fixed"):
            precision, scale = schema.get("precision"), schema.get("scale", 0)
            if not (type(precision) is int and type(scale) is int and 0 <= scale <= precision and precision > 0):
                return False
            # As Java. Powers of numbers from a hostile schema would take hours.
            return kind == "bytes" or (type(size) is int and precision <= math.log10(2) * (8 * size - 1))
        case "uuid" if kind == "fixed":
            return bool(size == UUID_BYTES)
        case "duration" if kind == "fixed":
            return bool(size == DURATION_BYTES)
    return True


# The JSON type of a default, for Avro types that `_default` must find in a union.
_IN_JSON: dict[str, type] = {"string": str, "enum": str, "bytes": str, "fixed": str,
                             "array": list, "map": dict, "record": dict}  # fmt: skip


def _default(default: Any, schema: Any, named: dict[str, Any]) -> Any:
    """Return the default as fastavro writes it. Raises ValueError for text that is not bytes of the right size.

    The JSON text of bytes and fixed has one character for each byte. A union's default belongs to the first branch that
    matches (Avro 1.12, "Records").
    """
    if isinstance(schema, list):
        matching = (one for one in schema if isinstance(default, _IN_JSON.get(_kind(one, named)[0], ())))
        schema = next(matching, "null")
    kind, about = _kind(schema, named)
    match kind, default:
        case "bytes" | "fixed", str():
            data = default.encode("latin-1")
            if kind == "fixed" and len(data) != about["size"]:
                raise ValueError("not of the fixed's size")
            return data
        case "array", list():
            return [_default(one, about["items"], named) for one in default]
        case "map", dict():
            return {key: _default(one, about["values"], named) for key, one in default.items()}
        case "record", dict():
            types = {field["name"]: field["type"] for field in about["fields"]}
            return {name: _default(one, types.get(name, "null"), named) for name, one in default.items()}
    return default


def _kind(schema: Any, named: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a type's name and its attributes."""
    about = named.get(schema, {"type": schema}) if isinstance(schema, str) else schema
    return about["type"], about


def _shown(schema: Any) -> Any:
    """Return the schema without the fields of records, so that an error shows only the part that differs."""
    if isinstance(schema, list):
        return [_shown(branch) for branch in schema]
    if isinstance(schema, dict):
        return {key: value for key, value in schema.items() if key not in ("fields", "doc")}
    return schema


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_logical_types(one) for one in schema]
    if isinstance(schema, dict):
        dropped = ("logicalType", "precision", "scale", "__fastavro_parsed", "__named_schemas")
        return {
            key: value if key == "default" else _without_logical_types(value)
            for key, value in schema.items()
            if key not in dropped
        }
    return schema

"""Avro, fast: encodes Arrow columns in the kernel, by a program of the schema and of the plan of its columns.

fastavro is the reference (`avro.py`). The kernel (`records/_avro_writer.c`) writes the same bytes, or refuses a batch.
Then fastavro encodes the batch, or says what is wrong. Outside of the subset are UUIDs, and defaults that are no simple
values.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafka_sink.records.kernel import KERNEL
from kafka_sink.registry import values as V
from kafka_sink.registry.avro_program import KINDS, MAX_DEPTH, MAX_OPS, Unsupported
from kafka_sink.registry.forms import extra

# By the conversion: what a number is multiplied with, and then divided by.
SCALES: Mapping[V.Convert, tuple[int, int]] = {
    V.plain: (1, 1), V.micros: (1, 1), V.days: (1, 1), V.nanos: (1_000, 1), V.millis: (1, 1_000),
    V.time_micros: (1, 1_000), V.time_millis: (1, 1_000_000),
}  # fmt: skip
# The schema's type -> the kind of `_avro_writer.c` and the type of Arrow that it reads.
NUMBERS: Mapping[str, tuple[str, pa.DataType]] = {
    "int": ("int64", pa.int64()), "long": ("int64", pa.int64()), "float": ("float", pa.float32()),
    "double": ("double", pa.float64()), "boolean": ("boolean", pa.bool_()),
}  # fmt: skip
SIMPLE = ("null", "boolean", "int", "long", "float", "double", "string", "bytes")


def encoded(rows: pa.Array, head: bytes, schema: Any, named: Mapping[str, Any], plan: V.Values) -> pa.Array | None:
    """Return the encoded rows, each behind `head`, or None if fastavro has to encode them.

    `schema`: without logical types; `named`: what its names stand for.
    """
    if KERNEL.encode_avro is None or sys.byteorder != "little":
        return None
    compiler = _Compiler(named)
    try:
        compiler.record(compiler.about(schema)[1], plan, rows, 0)
    except (Unsupported, pa.ArrowException):
        return None
    found = KERNEL.encode_avro(np.array(compiler.ops, np.int64).reshape(-1), tuple(compiler.columns), head, len(rows))
    if found is None:
        return None
    data, ends = found
    validity = None if not rows.null_count else pa.py_buffer(np.packbits(rows.is_valid(), bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), len(rows), [validity, pa.py_buffer(ends), pa.py_buffer(data)])


@dataclass(slots=True)
class _Compiler:
    """Writes the ops of types, and takes the columns that they read."""

    named: Mapping[str, Any]
    ops: list[list[int]] = field(default_factory=list)
    columns: list[Any] = field(default_factory=list)

    def about(self, schema: Any) -> tuple[str, dict[str, Any]]:
        about = self.named.get(schema, {"type": schema}) if isinstance(schema, str) else schema
        if not isinstance(about, dict) or not isinstance(about["type"], str):
            raise Unsupported
        return about["type"], about

    def record(self, about: Mapping[str, Any], plan: V.Values, array: pa.Array, depth: int) -> None:
        if not isinstance(plan, V.Record) or not pa.types.is_struct(array.type):
            raise Unsupported
        op = self._op("record", len(about["fields"]), self._column(array, [array.buffers()[0], None, None], 0))
        places = {name: (place, held) for place, (name, held) in enumerate(plan.fields)}
        for one in about["fields"]:
            if one["name"] in places:
                place, held = places[one["name"]]
                self.value(one["type"], held, array.field(place), depth + 1)
            else:
                self._constant(one)
        self._end(op)

    def value(self, schema: Any, plan: V.Values, array: pa.Array, depth: int) -> None:
        if depth > MAX_DEPTH or len(self.ops) > MAX_OPS:
            raise Unsupported
        if not isinstance(schema, list):
            return self._one(schema, plan, array, depth)
        if not isinstance(plan, V.Branch):
            raise Unsupported
        kinds = [self.about(one) for one in schema]
        names = [about.get("name", kind) for kind, about in kinds]
        null = names.index("null") if "null" in names and plan.why_no_null is None else -1
        place = names.index(plan.name)
        op = self._op("union", 1, len(self.columns), a=null, b=place)
        self._one(schema[place], plan.of, array, depth + 1)
        # The column of the value is the first of those within the union.
        self._end(op)
        return None

    def _one(self, schema: Any, plan: V.Values, array: pa.Array, depth: int) -> None:
        kind, about = self.about(schema)
        match plan:
            case V.Record() if kind == "record":
                self.record(about, plan, array, depth)
            case V.Items() if kind == "array" and pa.types.is_list(array.type):
                validity, offsets = array.buffers()[:2]
                op = self._op("array", 1, self._column(array, [validity, offsets, None], 4))
                self.value(about["items"], plan.item, array.values, depth + 1)
                self._end(op)
            case V.Entries() if kind == "map" and pa.types.is_map(array.type):
                validity, offsets = array.buffers()[:2]
                op = self._op("map", 2, self._column(array, [validity, offsets, None], 4))
                self._leaf("string", {}, plan.key.convert, array.keys)
                self.value(about["values"], plan.value, array.items, depth + 1)
                self._end(op)
            case V.Leaf():
                self._leaf(kind, about, plan.convert, array)
            case _:
                raise Unsupported

    def _leaf(self, kind: str, about: Mapping[str, Any], convert: V.Convert, array: pa.Array) -> None:
        data_type = array.type
        is_text = pa.types.is_string(data_type) or pa.types.is_large_string(data_type)
        is_binary = pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type)
        if pa.types.is_decimal128(data_type) and kind in ("bytes", "fixed"):
            op = self._op(
                "decimal" if kind == "bytes" else "fixed decimal", 0, len(self.columns), a=about.get("size", 1)
            )
            self._column(array, [*array.buffers(), None], 16)
        elif kind in NUMBERS and convert in SCALES:
            of_kernel, wanted = NUMBERS[kind]
            if pa.types.is_temporal(data_type):
                # Days have 32 bits.
                array = array.cast(pa.int32()) if pa.types.is_date32(data_type) else array
                array = array.cast(pa.int64())
            op = self._number(of_kernel, array if array.type == wanted else array.cast(wanted), SCALES[convert])
        elif kind == "enum" and is_text:
            numbers = pc.index_in(array, pa.array(about["symbols"], data_type), skip_nulls=True)
            if numbers.null_count != array.null_count:
                raise Unsupported
            op = self._number("int32", numbers, (1, 1))
        elif (is_text and kind == "string" and convert is V.plain) or (is_binary and kind in ("bytes", "fixed")):
            op = self._op({"string": "text"}.get(kind, kind), 0, len(self.columns), a=about.get("size", 1))
            self._column(array, array.buffers(), 8 if "large" in str(data_type) else 4)
        else:
            raise Unsupported
        self._end(op)

    def _number(self, kind: str, array: pa.Array, scale: tuple[int, int]) -> int:
        width = {"boolean": 1, "int32": 4, "float": 4}.get(kind, 8)
        return self._op(kind, 0, self._column(array, [*array.buffers(), None], width), a=scale[0], b=scale[1])

    def _constant(self, one: Mapping[str, Any]) -> None:
        """Write the default of a field that is no column, as fastavro does."""
        kinds = one["type"] if isinstance(one["type"], list) else [one["type"]]
        if "default" not in one or not all(kind in SIMPLE for kind in kinds):
            raise Unsupported
        avro, data = extra("fastavro", on_executor=True), io.BytesIO()
        whole = {"type": "record", "name": "d", "fields": [{"name": "d", "type": one["type"]}]}
        avro.schemaless_writer(data, avro.parse_schema(whole), {"d": one["default"]})
        array = pa.array([data.getvalue()], pa.binary())
        self._end(self._op("constant", 0, self._column(array, array.buffers(), 4)))

    def _op(self, kind: str, children: int, column: int, *, a: int = 1, b: int = 1) -> int:
        self.ops.append([KINDS.index(kind), column, 0, a, b, children, 0])
        return len(self.ops) - 1

    def _end(self, op: int) -> None:
        self.ops[op][-1] = len(self.ops)

    def _column(self, array: pa.Array, buffers: list[pa.Buffer | None], width: int) -> int:
        validity, values, data = buffers
        column = validity if array.null_count else None, values, data, width, array.offset, len(array)
        self.columns.append(column)
        return len(self.columns) - 1

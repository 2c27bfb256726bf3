"""Avro, fast: compiles a writer's and a reader's schema to a program, by which the kernel makes Arrow columns.

`avro_reading.py` is the reference. The kernel (`records/_avro.c`) takes only records of which it makes the same, and
refuses all others: these go to Python's decoder, which says what is wrong. Schemas outside of the subset have no
program. Outside are a writer's unions of several types, where the reader wants the value; a reader's unions of several
types; decimals of other scales; UUIDs of 16 bytes; durations; a field that is read twice; an enum's symbols that the
reader has not; and defaults within arrays and maps.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafka_sink.records.kernel import KERNEL, AvroColumns, Int64s
from kafka_sink.registry.arrays import MOST_REPEATED_BYTES, MOST_STRUCTS_BYTES, Make, pairs, width_bytes_of
from kafka_sink.registry.avro_reading import UNITS, Mismatch, Resolver, family_of
from kafka_sink.registry.avro_schemas import Node, branches_of, logical_of

# The kernel's own bound is 64.
MAX_DEPTH = 32
MAX_OPS = 5_000
# Flags of an op: its column has nulls; it reads an int, which has 32 bits.
NULLABLE, OF_32_BITS = 1, 2

# The kinds of `_avro.h`, in its order.
KINDS = (
    "nothing", "boolean", "int64", "int32", "int to float", "int to double", "enum", "float", "float to double",
    "double", "bytes", "text", "fixed", "decimal", "fixed decimal", "union", "record", "array", "map", "constant",
)  # fmt: skip
# The writer's type and Arrow's -> the kind, where a value is only copied.
COPIED: Mapping[tuple[str, pa.DataType], str] = {
    ("boolean", pa.bool_()): "boolean", ("int", pa.int32()): "int32", ("int", pa.date32()): "int32",
    ("int", pa.int64()): "int64", ("long", pa.int64()): "int64", ("int", pa.float32()): "int to float",
    ("long", pa.float32()): "int to float", ("int", pa.float64()): "int to double",
    ("long", pa.float64()): "int to double", ("float", pa.float32()): "float",
    ("float", pa.float64()): "float to double", ("double", pa.float64()): "double", ("bytes", pa.binary()): "bytes",
    ("bytes", pa.string()): "text", ("string", pa.string()): "text", ("string", pa.binary()): "text",
    ("fixed", pa.binary()): "fixed",
}  # fmt: skip
# The kinds of values that are read over, which are checked as the reference checks them.
UNREAD = {"int": "int64", "long": "int64", "enum": "int64", "string": "text"}

# Makes an array of so many values of the columns.
Build = Callable[[AvroColumns, int], pa.Array]


class Unsupported(Exception):
    """The schemas are outside of the subset."""


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """`numbers`: the ops of the kernel. `size_bytes`: of the defaults that are made once a record."""

    numbers: Int64s = field(repr=False)
    column_count: int
    build: Build
    size_bytes: int

    def decoded(self, data: pa.Array, rows: Int64s, starts: Int64s) -> Iterator[tuple[pa.Array, npt.NDArray[np.bool_]]]:
        """Yield arrays of the records that were read, and which of the next rows these were. `starts`: where the
        payload of each row begins."""
        assert KERNEL.decode_avro is not None
        step = max(1, MOST_REPEATED_BYTES // max(1, self.size_bytes))
        for first in range(0, len(rows), step):
            chunk = slice(first, first + step)
            columns, is_read = KERNEL.decode_avro(self.numbers, self.column_count, data, rows[chunk], starts[chunk])
            yield self.build(columns, int(is_read.sum())), is_read


def program_of(resolver: Resolver, schema: Any, node: Node) -> Program | None:
    """Return the program, or None if there is none for these schemas or no kernel.

    `resolver`: has resolved no schema yet. These schemas can be resolved.
    """
    if KERNEL.decode_avro is None or sys.byteorder != "little":
        return None
    compiler = _Compiler(resolver)
    try:
        build = compiler.type_of(schema, node, 0)
    except (Unsupported, Mismatch):
        return None
    numbers = np.array(compiler.ops, np.int64).reshape(-1)
    return Program(numbers, compiler.column_count, build, resolver.defaults.size_bytes)


@dataclass(slots=True)
class _Compiler:
    """Writes the ops of types, each with those within it behind it. A type without a node is read over."""

    resolver: Resolver
    ops: list[list[int]] = field(default_factory=list)
    column_count: int = 0
    # Arrays and maps around the type.
    repeats: int = 0

    def type_of(self, schema: Any, node: Node | None, depth: int) -> Build:
        if depth > MAX_DEPTH or len(self.ops) > MAX_OPS:
            raise Unsupported
        branches = branches_of(schema)
        if branches is None:
            return self._one(schema, node, depth)
        others = [one for one in branches if self.resolver.writer.found(one)[0] != "null"]
        if node is not None and len(others) > 1:
            raise Unsupported
        is_nullable = node is not None and node.has_null and len(others) < len(branches)
        if node is not None and is_nullable and others:
            # A reader may have nulls alone of a type that it cannot read.
            Resolver(self.resolver.writer, self.resolver.reader).one(others[0], node)
        op = self._op("union", len(branches), -1, a=int(node is None or node.has_null))
        builds = [self._one(one, node, depth + 1, is_nullable=is_nullable) for one in branches]
        self._end(op)
        return next((build for build, one in zip(builds, branches, strict=True) if one in others), builds[0])

    def _one(self, schema: Any, node: Node | None, depth: int, *, is_nullable: bool = False) -> Build:
        kind, about = self.resolver.writer.found(schema)
        if kind == "null":
            self._end(self._op("nothing", 0, -1))
            return _nulls(pa.null() if node is None else node.arrow)
        if node is not None and node.kind == "union":
            raise Unsupported
        match kind:
            case "record":
                return self._record(about, node, depth, is_nullable)
            case "array" | "map":
                return self._repeated(kind, about, node, depth, is_nullable)
            case _ if node is None:
                self._end(self._op(UNREAD.get(kind, kind), 0, -1, a=about.get("size", 1)))
                return _nulls(pa.null())
            case "enum":
                return self._enum(about["symbols"], node, is_nullable)
        return self._primitive(kind, about, node, is_nullable)

    def _op(self, kind: str, children: int, column: int, *, flags: int = 0, a: int = 1, b: int = 1) -> int:
        self.ops.append([KINDS.index(kind), column, flags, a, b, children, 0])
        return len(self.ops) - 1

    def _end(self, op: int) -> None:
        self.ops[op][-1] = len(self.ops)

    def _column(self) -> int:
        self.column_count += 1
        return self.column_count - 1

    def _record(self, about: Mapping[str, Any], node: Node | None, depth: int, is_nullable: bool) -> Build:
        column = self._column() if is_nullable else -1
        op = self._op("record", len(about["fields"]), column, flags=NULLABLE * is_nullable)
        wanted, builds = ({}, []) if node is None else self._fields(about, node)
        for one in about["fields"]:
            child = wanted.pop(one["name"], None)
            build = self.type_of(one["type"], None if child is None else child[1], depth + 1)
            if child is not None:
                builds[child[0]] = build
        self._end(op)
        if node is None:
            return _nulls(pa.null())
        data_type = node.arrow

        def built(columns: AvroColumns, count: int) -> pa.Array:
            children = [build(columns, count) for build in builds]
            valid = None if column < 0 else pa.py_buffer(columns[column][0])
            return pa.Array.from_buffers(data_type, count, [valid], children=children)

        return built

    def _fields(self, about: Mapping[str, Any], node: Node) -> tuple[dict[str, tuple[int, Node]], list[Build]]:
        """Return the place and the node of each field that is wanted, by the writer's name, and what makes defaults."""
        written = [one["name"] for one in about["fields"]]
        wanted: dict[str, tuple[int, Node]] = {}
        builds: list[Build] = []
        for place, (one, child) in enumerate(zip(node.about["fields"], node.children, strict=True)):
            name = next((name for name in (one["name"], *one.get("aliases", ())) if name in written), None)
            if name is None and self.repeats == 0:
                builds.append(_made(self.resolver.default(one, child)))
            elif name is None or name in wanted or written.count(name) > 1:
                raise Unsupported
            else:
                builds.append(_nulls(child.arrow))
                wanted[name] = place, child
        return wanted, builds

    def _repeated(self, kind: str, about: Mapping[str, Any], node: Node | None, depth: int, is_nullable: bool) -> Build:
        self.repeats += 1
        column = -1 if node is None else self._column()
        item_type = None if node is None else node.children[0].arrow
        width_bytes = 0 if item_type is None else width_bytes_of(item_type)
        children = 1 if kind == "array" else 2
        op = self._op(kind, children, column, flags=NULLABLE * is_nullable, a=width_bytes, b=MOST_STRUCTS_BYTES)
        key = _nulls(pa.null())
        if kind == "map":
            key_column = -1 if node is None else self._column()
            self._end(self._op("text", 0, key_column))
            key = _texts(pa.string(), key_column)
        inner = about["items" if kind == "array" else "values"]
        item = self.type_of(inner, None if node is None else node.children[0], depth + 1)
        self._end(op)
        self.repeats -= 1
        if node is None:
            return key
        data_type = node.arrow

        def built(columns: AvroColumns, count: int) -> pa.Array:
            valid, ends, _, _ = columns[column]
            last = int.from_bytes(ends[-4:], "little")
            child = item(columns, last)
            if kind == "map":
                entries = pairs(data_type)
                child = pa.Array.from_buffers(entries, last, [None], children=[key(columns, last), child])
            return pa.Array.from_buffers(data_type, count, [_valid(valid), pa.py_buffer(ends)], children=[child])

        return built

    def _enum(self, symbols: list[str], node: Node, is_nullable: bool) -> Build:
        known, default = set(node.about["symbols"]), node.about.get("default")
        read = [symbol if symbol in known else default for symbol in symbols]
        if None in read or not read:
            raise Unsupported
        column = self._column()
        self._end(self._op("enum", 0, column, flags=NULLABLE * is_nullable, a=len(read)))
        texts, numbers = pa.array(read, pa.string()), _numbers(pa.int32(), column)
        return lambda columns, count: texts.take(numbers(columns, count))

    def _primitive(self, kind: str, about: Mapping[str, Any], node: Node, is_nullable: bool) -> Build:
        """As `avro_reading._primitive`, which has found that these can be converted."""
        written, logical, data_type = logical_of(kind, about), node.logical, node.arrow
        unit, a, b = family_of(logical)[1], 1, 1
        copied = COPIED.get((kind, data_type))
        if logical == "decimal":
            if (about if written else node.about).get("scale", 0) != data_type.scale:
                raise Unsupported
            copied, a, b = "decimal" if kind == "bytes" else "fixed decimal", data_type.precision, about.get("size", 1)
        elif unit is not None:
            of_writer = family_of(written)[1] or unit
            to = unit if data_type in (pa.int64(), pa.int32()) else UNITS["micros"]
            copied, a, b = "int32" if data_type == pa.int32() else "int64", to // of_writer or 1, of_writer // to or 1
        elif kind == "fixed":
            a = about["size"]
        if copied is None or (logical == "uuid" and kind == "fixed"):
            raise Unsupported
        column = self._column()
        self._end(self._op(copied, 0, column, flags=NULLABLE * is_nullable | OF_32_BITS * (kind == "int"), a=a, b=b))
        return _texts(data_type, column) if copied in ("bytes", "text", "fixed") else _numbers(data_type, column)


def _valid(bits: bytes) -> pa.Buffer | None:
    return pa.py_buffer(bits) if bits else None


def _nulls(data_type: pa.DataType) -> Build:
    return lambda columns, count: pa.nulls(count, data_type)


def _made(default: Make) -> Build:
    return lambda columns, count: default([None] * count)


def _numbers(data_type: pa.DataType, column: int) -> Build:
    def built(columns: AvroColumns, count: int) -> pa.Array:
        valid, values, _, _ = columns[column]
        return pa.Array.from_buffers(data_type, count, [_valid(valid), pa.py_buffer(values)])

    return built


def _texts(data_type: pa.DataType, column: int) -> Build:
    def built(columns: AvroColumns, count: int) -> pa.Array:
        valid, ends, data, _ = columns[column]
        return pa.Array.from_buffers(data_type, count, [_valid(valid), pa.py_buffer(ends), pa.py_buffer(data)])

    return built

"""The kernel writes Avro's bytes as fastavro writes them, and leaves to fastavro what it cannot."""

import datetime as dt
import json
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as T

from avro_kinds import MOMENT, logical, nested, or_null, record_of, with_names
from kafka_sink.errors import ValueNotInSchema
from kafka_sink.records.kernel import KERNEL, fallback
from kafka_sink.registry import avro, avro_encoding
from kafka_sink.registry.forms import prefix
from registry_rows import Rows, arrow_rows, columns_of

if KERNEL.encode_avro is None:
    pytest.skip("the kernel was not compiled", allow_module_level=True)

HEAD = prefix(7)
BEFORE_1970 = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC)


def by_fastavro(encoding: Any, rows: pa.Array) -> pa.Array:
    with mock.patch.object(avro_encoding, "KERNEL", fallback()):
        return encoding.encode(rows, HEAD)


def by_kernel(encoding: Any, rows: pa.Array) -> pa.Array | None:
    """Return what the kernel writes, None if it leaves the rows to fastavro."""
    found: list[pa.Array | None] = []
    encode = avro_encoding.encoded

    def seen(*given: Any) -> pa.Array | None:
        found.append(encode(*given))
        return found[-1]

    with mock.patch.object(avro_encoding, "encoded", seen):
        whole = encoding.encode(rows, HEAD)
    assert found[0] is None or found[0].equals(whole)
    if found[0] is not None:
        found[0].validate(full=True)
    return found[0]


@given(st.data())
def test_the_bytes_are_those_of_fastavro(data: st.DataObject) -> None:
    kind = record_of([or_null(one) for one in data.draw(st.lists(nested(2), min_size=1, max_size=4))])
    assert isinstance(kind.spark, T.StructType)
    encoding = avro.fitted(json.dumps(with_names(kind.avro, [])), kind.spark)
    rows = arrow_rows(data.draw(st.lists(st.none() | kind.values, min_size=1, max_size=6)), kind.spark)
    start = data.draw(st.integers(0, len(rows) - 1))
    for part in (rows, rows[start:], rows[start : start + 2]):
        found = by_kernel(encoding, part)
        assert found is None or found.equals(by_fastavro(encoding, part))


def record(**types: Any) -> str:
    fields = [one if isinstance(one, dict) and "default" in one else {"name": name, "type": one}
              for name, one in types.items()]  # fmt: skip
    return json.dumps({"type": "record", "name": "r", "fields": fields})


ENUM = {"type": "enum", "name": "e", "symbols": ["A", "B"]}
INNER = T.StructType([T.StructField("x", T.LongType()), T.StructField("y", T.StringType())])
IN_AVRO = {"type": "record", "name": "i", "fields": [{"name": "y", "type": ["string", "null"]},
                                                      {"name": "x", "type": "long"}]}  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "columns", "rows"),
    [
        (record(a="long", b=["null", "string"]), columns_of(a=T.LongType(), b=T.StringType()),
         [{"a": -(2**63), "b": "\u00e9"}, {"a": 2**63 - 1, "b": None}, None]),
        (record(a=["double", "null"], b="boolean"), columns_of(a=T.DoubleType(), b=T.BooleanType()),
         [{"a": float("inf"), "b": True}, {"a": None, "b": False}]),
        (record(a="float", b="double", c="int"), columns_of(a=T.ShortType(), b=T.IntegerType(), c=T.ByteType()),
         [{"a": -7, "b": 2**31 - 1, "c": -128}]),
        (record(a={"type": "array", "items": ["null", IN_AVRO]}), columns_of(a=T.ArrayType(INNER)),
         [{"a": []}, {"a": [None, {"x": 1, "y": None}]}, {"a": [{"x": 2, "y": "b"}]}]),
        (record(a=ENUM, b=["null", "e"]), columns_of(a=T.StringType(), b=T.StringType()), [{"a": "B", "b": None}]),
        (record(a="long", b={"name": "b", "type": ["null", "string"], "default": None},
                c={"name": "c", "type": "bytes", "default": "\u00ff"}), columns_of(a=T.LongType()), [{"a": 1}]),
        (record(a={"type": "map", "values": ["null", "long"]}), columns_of(a=T.MapType(T.StringType(), T.LongType())),
         [{"a": {"k": 1, "l": None, "": 2}}, {"a": {}}]),
        (record(a=logical("long", "timestamp-nanos"), b=logical("long", "timestamp-millis")),
         columns_of(a=T.TimestampType(), b=T.TimestampType()),
         [{"a": MOMENT, "b": MOMENT}, {"a": BEFORE_1970, "b": BEFORE_1970}]),
        (record(a={"type": "fixed", "name": "f", "size": 2}), columns_of(a=T.BinaryType()), [{"a": b"ab"}]),
    ],
)  # fmt: skip
def test_usual_columns_are_written_by_the_kernel(schema: str, columns: T.StructType, rows: Rows) -> None:
    encoding, values = avro.fitted(schema, columns), arrow_rows(rows, columns)
    found = by_kernel(encoding, values)
    assert found is not None and found.equals(by_fastavro(encoding, values))


@pytest.mark.parametrize(
    ("schema", "data_type", "bad"),
    [
        ("long", T.LongType(), None), (["long", "string"], T.LongType(), None),
        (ENUM, T.StringType(), "C"), (["null", ENUM], T.StringType(), "C"),
        ({"type": "fixed", "name": "f", "size": 2}, T.BinaryType(), b"abc"),
        ({"type": "array", "items": "long"}, T.ArrayType(T.LongType()), [None]),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_told_by_the_reference(schema: Any, data_type: T.DataType, bad: Any) -> None:
    columns = columns_of(a=data_type)
    encoding = avro.fitted(record(a=schema), columns)
    with pytest.raises(ValueNotInSchema):
        encoding.encode(arrow_rows([{"a": bad}], columns), HEAD)


def test_a_text_that_is_not_utf8_is_told_by_the_reference() -> None:
    columns = columns_of(a=T.StringType())
    text = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    with pytest.raises(ValueNotInSchema, match="not UTF-8"):
        avro.fitted(record(a="string"), columns).encode(pa.StructArray.from_arrays([text], ["a"]), HEAD)


def test_a_map_with_a_key_twice_is_left_to_fastavro() -> None:
    columns = columns_of(a=T.MapType(T.StringType(), T.LongType()))
    encoding = avro.fitted(record(a={"type": "map", "values": "long"}), columns)
    pairs = pa.array([[("k", 1), ("l", 2), ("k", 3)]], pa.map_(pa.string(), pa.int64()))
    rows = pa.StructArray.from_arrays([pairs], ["a"])
    assert by_kernel(encoding, rows) is None
    assert encoding.encode(rows, HEAD).to_pylist() == [HEAD + b"\4\2k\6\2l\4\0"]


def test_what_is_outside_of_the_subset_is_left_to_fastavro() -> None:
    for schema, data_type, value in (
        ({"type": "map", "values": "long"}, T.MapType(T.StringType(), T.LongType()), {str(n): n for n in range(33)}),
        (logical("string", "uuid"), T.StringType(), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
    ):
        columns = columns_of(a=data_type)
        assert by_kernel(avro.fitted(record(a=schema), columns), arrow_rows([{"a": value}], columns)) is None

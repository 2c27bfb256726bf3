"""What is refused of columns in each form of schema, before a row; and how what takes bytes tells of a bad one."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import types as T

from kafka_sink.errors import NameNotAllowed, SchemaUnreadable, TypeNotMapped
from kafka_sink.registry import avro, json_schema, protobuf
from kafka_sink.registry.unmapped import CAST, CAST_KEYS
from registry_rows import columns_of

DERIVED: dict[str, Callable[[T.StructType], str]] = {
    "avro": lambda columns: avro.derived(columns, "r"),
    "json": lambda columns: json_schema.derived(columns, "r"),
    "protobuf": lambda columns: protobuf.derived(columns, "r", None),
}
FITTED = {"avro": avro.fitted, "json": json_schema.fitted, "protobuf": protobuf.fitted}


@pytest.mark.parametrize("form", DERIVED)
@pytest.mark.parametrize(
    ("data_type", "path", "only", "told"),
    [
        (T.DayTimeIntervalType(), "c", None, CAST),
        (T.CalendarIntervalType(), "c", None, CAST),
        (T.NullType(), "c", None, CAST),
        (T.VariantType(), "c", None, CAST),
        (T.MapType(T.DoubleType(), T.LongType()), "c", None, CAST_KEYS),
        (T.ArrayType(T.YearMonthIntervalType()), "c[]", None, CAST),
        (columns_of(within=T.ArrayType(columns_of(deep=T.NullType()))), "c.within[].deep", None, CAST),
        (T.MapType(T.LongType(), T.LongType()), "c", "avro", CAST_KEYS),
        (T.ArrayType(T.ArrayType(T.LongType())), "c[]", "protobuf", ""),
        (T.MapType(T.StringType(), T.ArrayType(T.LongType())), "c{}", "protobuf", ""),
    ],
)
def test_a_type_without_a_counterpart_is_named_by_its_path(
    form: str, data_type: T.DataType, path: str, only: str | None, told: str
) -> None:
    if only not in (None, form):
        return
    with pytest.raises(TypeNotMapped, match="No row of this write was sent") as refused:
        DERIVED[form](columns_of(c=data_type))
    assert refused.value.column == path
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("form", "names"),
    [
        *(("avro", (name,)) for name in ("a-b", "1st", "n\u00e4me", "with space", "")),
        *(("protobuf", names) for names in (("a-b",), ("1st",), ("n\u00e4me",), ("street_name", "streetName"))),
    ],
)
def test_a_name_that_the_form_has_not_is_refused(form: str, names: tuple[str, ...]) -> None:
    with pytest.raises(NameNotAllowed) as refused:
        DERIVED[form](columns_of(s=columns_of(**dict.fromkeys(names, T.LongType()))))
    assert refused.value.column == f"s.{names[-1]}"


@pytest.mark.parametrize(
    ("form", "text"),
    [
        *(("avro", text) for text in ("{", '"long"', '{"type": "record"}', '{"type": "nothing"}', "[]", "7")),
        *(("json", text) for text in ("{", "[]", "7", '{"properties": {"a": {"$ref": "#/nowhere"}}}')),
        *(("protobuf", text) for text in ("AAAA", "", "{", 'syntax = "proto3"; message M { int32 a = 0; }')),
    ],
)
def test_what_is_no_schema_is_said_to_be_none(form: str, text: str) -> None:
    with pytest.raises(SchemaUnreadable):
        FITTED[form](text, columns_of(a=T.LongType()) if form == "json" else columns_of())

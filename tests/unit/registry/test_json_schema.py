"""Derived JSON Schemas; what of a given one does not fit. The rows are Spark's: integration/test_registry.py."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql import types as T

from kafka_sink.errors import ColumnNotInSchema
from kafka_sink.registry import json_schema
from registry_rows import columns_of


def test_a_derived_schema_is_closed_and_requires_what_is_never_null() -> None:
    inner = T.StructType([T.StructField("x", T.LongType(), False)])
    columns = T.StructType([T.StructField("id", T.LongType(), False), T.StructField("at", inner)])

    def closed(required: str, **properties: Any) -> dict[str, Any]:
        return {"type": "object", "properties": properties, "required": [required], "additionalProperties": False}

    nested = closed("x", x={"type": "integer"})
    whole = closed("id", id={"type": "integer"}, at={"oneOf": [{"type": "null"}, nested]})
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "orders_value"}
    assert json.loads(json_schema.derived(columns, "orders_value")) == head | whole


STRING = {"type": "string"}
REFERRING = {"properties": {"a": {"$ref": "#/definitions/s"}}, "definitions": {"s": STRING}}
LONG = columns_of(a=T.LongType())
LONGS = T.ArrayType(T.LongType())
LONGS_BY_NAME = T.MapType(T.StringType(), T.LongType())


@pytest.mark.parametrize(
    ("schema", "columns", "path", "expected"),
    [
        ({"properties": {"a": STRING}}, LONG, "a", "string"),
        ({"properties": {"a": {"type": "integer"}}}, columns_of(a=T.DoubleType()), "a", "integer"),
        ({"properties": {"a": {"type": ["null", "boolean"]}}}, columns_of(a=T.StringType()), "a", "boolean"),
        ({"properties": {"a": {"oneOf": [STRING, {"type": "null"}]}}}, LONG, "a", "oneOf"),
        (REFERRING, LONG, "a", "ref"),
        ({"properties": {"a": {"type": "array", "items": STRING}}}, columns_of(a=LONGS), "a[]", "string"),
        ({"properties": {"a": {"additionalProperties": STRING}}}, columns_of(a=LONGS_BY_NAME), "a{}", "string"),
        ({"properties": {"a": {"properties": {"a": STRING}}}}, columns_of(a=LONG), "a.a", "string"),
        ({"properties": {}, "additionalProperties": False}, LONG, "a", "no such property"),
        ({"required": ["b"]}, LONG, "b", "a required property"),
        ({"properties": {"a": False}}, LONG, "a", "false"),
    ],
)
def test_a_given_schema_that_does_not_fit_is_refused_before_a_row(
    schema: Any, columns: T.StructType, path: str, expected: str
) -> None:
    with pytest.raises(ColumnNotInSchema, match="the JSON schema does not fit") as refused:
        json_schema.fitted(json.dumps({"type": "object", **schema}), columns)
    assert refused.value.column == path
    assert expected in refused.value.expected

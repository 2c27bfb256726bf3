"""A schema's text is read in time that grows with its length, whatever is in it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import types as T

from kafka_sink.errors import SchemaUnreadable
from kafka_sink.registry import json_schema
from kafka_sink.registry.registering import MAX_DEPTH, depth_of

COLUMNS = T.StructType([T.StructField("a", T.StringType())])


def cpu_s(call: Callable[[], Any]) -> float:
    began_s = time.process_time()
    call()
    return time.process_time() - began_s


@pytest.mark.parametrize(
    "text", ['\\"' * 32_000, '"' + '\\"' * 32_000, '"\\' * 21_000 + "[", '"' * 64_001, '"\\' * 32_000]
)
def test_unclosed_quotes_are_scanned_once(text: str) -> None:
    """64 KB took 17 CPU s, at each quote again to the end; once takes a few milliseconds."""
    assert cpu_s(lambda: depth_of(text)) < 2


@pytest.mark.parametrize(
    ("text", "depth"),
    [
        ('{"a": "[[[[", "b": [[]]}', 3),
        ('{"a": "\\\\", "b": [[]]}', 3),
        ('{"a": "\\"[[", "b": []}', 2),
        # A quote that is not closed hides no bracket from the count, and neither do those behind it.
        ('{"a": "[[[', 4),
        ('{"a": "[[[\\"[[', 6),
        ('{"a": "[[[\\', 4),
        ('"', 0),
        ('"\\', 0),
        ("", 0),
    ],
)
def test_brackets_in_strings_do_not_count(text: str, depth: int) -> None:
    assert depth_of(text) == depth


def test_a_deep_text_behind_an_open_quote_is_seen() -> None:
    assert depth_of('"' + "[" * (MAX_DEPTH + 1)) > MAX_DEPTH


def doubling(levels: int) -> str:
    """Each level refers to the next one twice."""
    defs: dict[str, Any] = {f"d{level}": {"anyOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)}
    defs[f"d{levels}"] = {"type": "string"}
    return json.dumps({"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": defs})


def test_references_that_double_are_looked_at_once() -> None:
    """1.5 KB of 30 levels were 2^30 branches."""
    assert cpu_s(lambda: json_schema.fitted(doubling(30), COLUMNS)) < 2


def test_a_value_may_have_only_so_many_schemas() -> None:
    branches = [{"type": "string", "maxLength": number} for number in range(json_schema.MAX_BRANCHES + 1)]
    schema = {"type": "object", "properties": {"a": {"anyOf": branches}}}
    with pytest.raises(SchemaUnreadable, match="more than 1000 schemas by anyOf"):
        json_schema.fitted(json.dumps(schema), COLUMNS)
    branches.pop()
    json_schema.fitted(json.dumps(schema), COLUMNS)

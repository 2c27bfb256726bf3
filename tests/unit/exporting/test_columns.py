"""Which types a record's columns are made of. What Spark makes of their rows is in integration/test_export.py."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import types as spark_types

from kafka_sink.errors import ColumnTypeMismatch
from kafka_sink.exporting import columns
from kafka_sink.exporting.columns import ColumnArguments, Framing


class Cast:
    """A column that remembers what it is made into."""

    def __init__(self, into: str = "") -> None:
        self.into = into

    def cast(self, into: str) -> Cast:
        return Cast(into)

    def alias(self, name: str) -> Cast:
        return self


@pytest.fixture
def record_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """The record's columns, of a DataFrame whose columns x and value are of this type."""
    monkeypatch.setattr(columns.F, "col", lambda name: Cast())

    def record(spark_type: spark_types.DataType, **said: Any) -> dict[str, Any]:
        schema = {f"{columns.STAGED}{name}": SimpleNamespace(dataType=spark_type) for name in (*said, "value")}
        frame: Any = SimpleNamespace(columns=["x", "value"], select=lambda *of: SimpleNamespace(schema=schema))
        return dict(columns.staged(frame, ColumnArguments(value="value", **said), Framing(topic="t"))[1])

    return record


@pytest.mark.parametrize("name", ["ByteType", "ShortType", "IntegerType", "NullType"])
def test_a_partition_is_an_int(record_of: Callable[..., dict[str, Any]], name: str) -> None:
    assert record_of(getattr(spark_types, name)(), partition="x")["partition"].into == "int"


@pytest.mark.parametrize(
    "spark_type",
    [
        spark_types.DoubleType(), spark_types.FloatType(), spark_types.DecimalType(9, 0), spark_types.StringType(),
        spark_types.BooleanType(), spark_types.DateType(), spark_types.TimestampType(), spark_types.BinaryType(),
    ],
)  # fmt: skip
def test_of_nothing_else_is_a_partition_made(
    record_of: Callable[..., dict[str, Any]], spark_type: spark_types.DataType
) -> None:
    with pytest.raises(ColumnTypeMismatch, match="'partition' is") as failure:
        record_of(spark_type, partition="x")
    assert failure.value.found == spark_type.simpleString()


@pytest.mark.parametrize(("precision", "scale"), [(38, 0), (9, 2), (38, 6)])
def test_a_decimal_whose_text_is_one_everywhere_becomes_it(
    record_of: Callable[..., dict[str, Any]], precision: int, scale: int
) -> None:
    assert record_of(spark_types.DecimalType(precision, scale), key="x")["key"].into == "string"


@pytest.mark.parametrize("scale", [7, 18, -2])
def test_a_decimal_whose_text_depends_on_ansi_is_for_the_user_to_cast(
    record_of: Callable[..., dict[str, Any]], scale: int
) -> None:
    """0.0000001 with it, 1E-7 without: another partition of the same key."""
    with pytest.raises(ColumnTypeMismatch, match=r"at most 6 decimal places.*cast"):
        record_of(spark_types.DecimalType(38, scale), key="x")


def test_json_is_told_to_keep_microseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, str] = {}

    def to_json(whole: object, options: dict[str, str] | None = None) -> object:
        told.update(options or {})
        return Cast()

    monkeypatch.setattr(columns.F, "to_json", to_json)
    monkeypatch.setattr(columns.F, "struct", lambda *names: names)
    monkeypatch.setattr(columns.F, "col", lambda name: Cast())
    frame: Any = SimpleNamespace(columns=["x"], select=lambda *of: SimpleNamespace(schema={
        f"{columns.STAGED}value": SimpleNamespace(dataType=spark_types.StringType())
    }))  # fmt: skip
    columns.staged(frame, ColumnArguments(value="json"), Framing(topic="t"))
    assert {name: text.count("S") for name, text in told.items()} == {"timestampFormat": 6, "timestampNTZFormat": 6}
    assert "timeZone" not in told, "the session's"

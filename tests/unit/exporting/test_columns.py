"""Which types a record's columns are made of. What Spark makes of their rows is in integration/test_export.py."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import types as spark_types

from kafka_sink.errors import ColumnTypeMismatch
from kafka_sink.exporting import columns
from kafka_sink.exporting.columns import Framing, Said


class Cast:
    """A column that remembers what it is made into."""

    def __init__(self, into: str = "") -> None:
        self.into = into

    def cast(self, into: str) -> Cast:
        return Cast(into)


CAST: Any = Cast()


@pytest.mark.parametrize("name", ["ByteType", "ShortType", "IntegerType", "NullType"])
def test_a_partition_is_an_int(name: str) -> None:
    made: Any = columns._partition(CAST, getattr(spark_types, name)())
    assert made.into == "int"


@pytest.mark.parametrize(
    "spark_type",
    [
        spark_types.DoubleType(), spark_types.FloatType(), spark_types.DecimalType(9, 0), spark_types.StringType(),
        spark_types.BooleanType(), spark_types.DateType(), spark_types.TimestampType(), spark_types.BinaryType(),
    ],
)  # fmt: skip
def test_of_nothing_else_is_a_partition_made(spark_type: spark_types.DataType) -> None:
    with pytest.raises(ColumnTypeMismatch, match="'partition' is") as failure:
        columns._partition(CAST, spark_type)
    assert failure.value.found == spark_type.simpleString()


@pytest.mark.parametrize(("precision", "scale"), [(38, 0), (9, 2), (38, 6)])
def test_a_decimal_whose_text_is_one_everywhere_becomes_it(precision: int, scale: int) -> None:
    made: Any = columns._bytes(CAST, spark_types.DecimalType(precision, scale), "key")
    assert made.into == "string"


@pytest.mark.parametrize("scale", [7, 18, -2])
def test_a_decimal_whose_text_depends_on_ansi_is_for_the_user_to_cast(scale: int) -> None:
    """0.0000001 with it, 1E-7 without: another partition of the same key."""
    with pytest.raises(ColumnTypeMismatch, match=r"at most 6 decimal places.*cast"):
        columns._bytes(CAST, spark_types.DecimalType(38, scale), "key")


def test_json_is_told_to_keep_microseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, str] = {}

    def to_json(whole: object, options: dict[str, str] | None = None) -> object:
        told.update(options or {})
        return whole

    monkeypatch.setattr(columns.F, "to_json", to_json)
    monkeypatch.setattr(columns.F, "struct", lambda *names: names)
    frame: Any = None
    columns._raw(frame, Said(value="json"), Framing(topic="t"))
    assert {name: text.count("S") for name, text in told.items()} == {"timestampFormat": 6, "timestampNTZFormat": 6}
    assert "timeZone" not in told, "the session's"

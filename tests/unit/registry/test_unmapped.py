from __future__ import annotations

import pytest
from pyspark.sql import types as T

from kafka_sink.registry.unmapped import CAST, CAST_KEYS, not_mapped


@pytest.mark.parametrize(
    ("data_type", "hint", "told"),
    [
        (T.NullType(), None, CAST),
        (T.MapType(T.LongType(), T.StringType()), None, CAST_KEYS),
        (T.ArrayType(T.NullType()), "Put it into a struct.", "Put it into a struct."),
    ],
)
def test_the_column_its_type_and_what_to_do(data_type: T.DataType, hint: str | None, told: str) -> None:
    error = not_mapped(data_type, "a.b[]", "Avro", hint)
    assert (error.column, error.found, error.form) == ("a.b[]", data_type.simpleString(), "Avro")
    assert told in str(error)
